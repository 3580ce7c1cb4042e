"""Matrix products, attention, and lookups in tables."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import as_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.elementwise.logic import equal, where
from tstatic.ops.elementwise.scale import detach
from tstatic.ops.functions.attention import attention_of_heads
from tstatic.ops.functions.einsum import einsum
from tstatic.ops.functions.linear import outer
from tstatic.ops.indexing.embedding import embedding
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.shape import expanding, reshape
from tstatic.ops.shape.slicing import slice_
from tstatic.tools.interop.conversion import Call, family

converts = family("products")


# -------------------------------------------------------------------------------------------------------------- products
@converts("linear.default")
def _linear(c: Call, x: Variable, weight: Variable, bias: Variable | None = None) -> Variable:
    # The weight stays as torch has it, [out, in]: its name and its values are those of the module's state.
    product = matmul(x, weight, transpose_y=True)
    return product if bias is None else _plus(product, bias)


def _plus(product: Variable, bias: Variable) -> Variable:
    added: Variable = emit("elementwise_add", {"X": product, "Y": bias}, {"axis": -1})
    return added


@converts("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default")
def _matmul(c: Call, x: Variable, y: Variable) -> Variable:
    return matmul(c.cast(x), c.cast(y))


@converts("addmm.default", "baddbmm.default")
def _addmm(c: Call, bias: Variable, x: Variable, y: Variable, *, beta: Any = 1, alpha: Any = 1) -> Variable:
    product = matmul(x, y)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    bias = bias if beta == 1 else bias * beta
    return _plus(product, bias) if len(bias.shape) == 1 else product + bias


@converts("outer.default")
def _outer(c: Call, x: Variable, y: Variable) -> Variable:
    return outer(c.cast(x), c.cast(y))


@converts("einsum.default")
def _einsum(c: Call, equation: str, operands: list[Variable], *, path: Any = None) -> Variable:
    return einsum(equation, *operands)


# ------------------------------------------------------------------------------------------------------------- attention
@converts("scaled_dot_product_attention.default")
def _attention(
    c: Call, q: Variable, k: Variable, v: Variable, mask: Variable | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Variable:  # fmt: skip
    if q.shape[-1] == UNKNOWN:
        raise c.refuse("with heads of an open size", "a known size of heads", list(c.sizes_of(q)))
    if q.shape[-1] == 0:
        raise c.refuse("with heads of no elements", "heads of at least one element", list(c.sizes_of(q)))
    if enable_gqa:
        k, v = (_repeated(c, x, q) for x in (k, v))
    return attention_of_heads(q, k, v, mask, dropout_p, is_causal, True, scale)


def _repeated(c: Call, x: Variable, q: Variable) -> Variable:
    """Returns keys or values with as many heads as the queries, each repeated side by side."""
    own, wanted = c.sizes_of(x)[-3], c.sizes_of(q)[-3]
    if own == wanted:
        return x
    if not isinstance(own, int) or not isinstance(wanted, int):
        raise c.refuse("with an open number of heads", "known numbers of heads", f"{own} and {wanted}")
    return expanding.repeat_interleave(x, wanted // own, len(x.shape) - 3)


# --------------------------------------------------------------------------------------------------------------- lookups
@converts("embedding.default")
def _embedding(
    c: Call,
    weight: Variable,
    ids: Variable,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Variable:
    if scale_grad_by_freq:
        raise c.refuse("with scale_grad_by_freq", "scale_grad_by_freq=False", "True")
    if padding_idx < 0:
        return embedding(ids, weight)
    # Paddle's padding row reads as zeros, torch's as what it holds; neither has a gradient.
    found = embedding(ids, weight, padding_idx)
    row = detach(slice_(weight, [0], [padding_idx], [padding_idx + 1]))
    padding = equal(ids, as_variable(padding_idx, dtype=ids.dtype))
    return where(reshape.unsqueeze(padding, -1), row, found)
