"""Attention from queries, keys and values."""

from __future__ import annotations

import math

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_number, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.random.dropout import dropout
from tstatic.ops.shape.creation import ones, ones_like
from tstatic.ops.shape.diagonal import tril
from tstatic.ops.shape.transpose import transpose


@export("nn.functional.scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Variable,
    key: Variable,
    value: Variable,
    attn_mask: Variable | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    training: bool = True,
    name: str | None = None,
) -> Variable:
    """Returns ``softmax(query @ key.T / sqrt(size) + mask) @ value`` for each head.

    Args:
        query: Floats ``[batch, length, heads, size]``.
        key, value: ``[batch, other length, heads, size]``.
        attn_mask: What is added to the products, or truth values: False forbids a pair. It broadcasts to
            ``[batch, heads, length, other length]``.
        dropout_p: The share of weights that training drops.
        is_causal: Each place reads only places up to its own; not together with a mask.
        training: Whether dropout acts.
        name: Name of the layer.

    Returns:
        ``[batch, length, heads, size]``.

    Raises:
        ShapeError: If a rank is not 4, the size is unknown, or both a mask and ``is_causal`` are given.

    Example:
        >>> x = paddle.ones([1, 2, 1, 4])
        >>> y = paddle.nn.functional.scaled_dot_product_attention(x, x, x * 3, is_causal=True)
        >>> static.Executor().run(fetch_list=[y])[0].shape
        (1, 2, 1, 4)
    """
    parts = [(query, "query"), (key, "key"), (value, "value")]
    for v, arg in parts:
        check_rank(check_variable(v, arg, "scaled_dot_product_attention"), 4, arg, "scaled_dot_product_attention")
    check_number(dropout_p, "dropout_p", "scaled_dot_product_attention", least=0, most=1)
    size = query.shape[-1]
    if size == UNKNOWN or (is_causal and attn_mask is not None):
        raise ShapeError(
            "scaled_dot_product_attention needs a known head size, and either a mask or is_causal",
            expected="query [batch, length, heads, size], and at most one of attn_mask and is_causal",
            received=f"query {list(query.shape)}" + ", attn_mask and is_causal=True" * (attn_mask is not None),
            fix="reshape the query, or put the causal mask into attn_mask",
            op="scaled_dot_product_attention",
        )
    q, k, v = (transpose(v, [0, 2, 1, 3]) for v, _ in parts)
    mixed = attention_of_heads(q, k, v, attn_mask, dropout_p, is_causal, training)
    return transpose(mixed, [0, 2, 1, 3], name=name)


def attention_of_heads(
    q: Variable, k: Variable, v: Variable, mask: Variable | None, dropout_p: float, is_causal: bool, training: bool,
    factor: float | None = None,
) -> Variable:  # fmt: skip
    """Returns ``softmax(factor * q @ k.T + mask) @ v``, the length and the size of heads last.

    Args:
        q, k, v: ``[..., length, size]``, with a known size.
        mask, dropout_p, is_causal, training: As of :func:`scaled_dot_product_attention`.
        factor: What the products are multiplied by; ``1 / sqrt(size)`` if ``None``.
    """
    # The queries are scaled, not the scores: size numbers a row instead of length, and float16 ends at 65504.
    scores = matmul(scale(q, 1.0 / math.sqrt(q.shape[-1]) if factor is None else factor), k, transpose_y=True)
    if is_causal:
        # One mask for all heads: a constant where the lengths are known.
        lengths = [q.shape[-2], k.shape[-2]]
        seen = ones_like(scores) if UNKNOWN in lengths else ones(lengths, scores.dtype)
        scores = _allowed(scores, cast(tril(seen), "bool"))
    elif mask is not None:
        # A mask of floats is added: it may hold biases as well as minus infinity.
        scores = _allowed(scores, mask) if mask.dtype.name == "bool" else scores + mask
    weights = softmax(scores)
    weights = dropout(weights, dropout_p, training=training) if dropout_p > 0 else weights
    return matmul(weights, v)


def _allowed(scores: Variable, mask: Variable) -> Variable:
    """Returns the scores, minus infinity where the mask is false."""
    never = emit_one("fill_constant", {}, {"shape": (), "dtype": scores.dtype, "value": float("-inf")})
    return emit_one("where", {"Condition": mask, "X": scores, "Y": never})
