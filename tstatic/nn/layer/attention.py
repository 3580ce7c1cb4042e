"""Multi-head attention."""

from __future__ import annotations

from typing import Any, NamedTuple

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_divisible, check_int, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.common import Linear
from tstatic.nn.layer.layers import Layer
from tstatic.ops.random.dropout import dropout


def added(x: Variable, y: Variable) -> Variable:
    """``x + y``, named as the operator names it."""
    return emit("elementwise_add", {"X": x, "Y": y}, prefix="tmp")  # type: ignore[no-any-return]


def _scaled(x: Variable, scale: float = 1.0, bias: float = 0.0) -> Variable:
    return emit("scale", {"X": x}, {"scale": scale, "bias": bias}, prefix="tmp")  # type: ignore[no-any-return]


def _mask_to_add(mask: Variable | None, like: Variable) -> Variable | None:
    """A mask as numbers that are added to scores: of bools and ints, 0 hides a place (it becomes -1e9)."""
    if mask is None:
        return None
    check_variable(mask, "attn_mask", "MultiHeadAttention")
    if mask.dtype is like.dtype:
        return mask
    cast = {"in_dtype": mask.dtype, "out_dtype": like.dtype}
    number: Variable = emit("cast", {"X": mask}, cast)
    return number if mask.dtype.is_float else _scaled(_scaled(number, bias=-1.0), 1e9)


class Cache(NamedTuple):
    """Keys and values ``[n, heads, places, head size]`` of all earlier steps."""

    k: Variable
    v: Variable


class StaticCache(NamedTuple):
    """Keys and values ``[n, heads, places, head size]`` that stay as they are."""

    k: Variable
    v: Variable


@export("nn.MultiHeadAttention")
class MultiHeadAttention(Layer):
    """Attention with several heads: ``softmax(q k^T / sqrt(head size) + mask) v`` of linear projections.

    Args:
        embed_dim: Width of queries and of the output.
        num_heads: Number of heads; it divides ``embed_dim``.
        dropout: Chance of a weight to be dropped in training.
        kdim, vdim: Widths of keys and values; ``embed_dim`` if ``None``.
        need_weights: Whether a call returns the weights too.
        weight_attr, bias_attr: ParamAttr, name or initializer of the four projections; ``bias_attr=False`` for no biases.

    Example:
        >>> layer = paddle.nn.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> x = static.data("x", [None, 5, 8])
        >>> y = layer(x, x, x)
        >>> y.shape
        (-1, 5, 8)
    """

    Cache = Cache
    StaticCache = StaticCache

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self.embed_dim = check_int(embed_dim, "embed_dim", "MultiHeadAttention", 1)
        self.num_heads = check_int(num_heads, "num_heads", "MultiHeadAttention", 1)
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.need_weights = dropout, need_weights
        self.head_dim = check_divisible(embed_dim, num_heads, "embed_dim", "num_heads", "MultiHeadAttention")
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(self.kdim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(self.vdim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def _heads(self, x: Variable) -> Variable:
        split = emit("reshape2", {"X": x}, {"shape": (0, 0, self.num_heads, self.head_dim)})
        return emit("transpose2", {"X": split}, {"axis": (0, 2, 1, 3)}, prefix="transpose")  # type: ignore[no-any-return]

    def compute_kv(self, key: Variable, value: Variable) -> tuple[Variable, Variable]:
        """Keys and values in heads: ``[n, heads, places, head size]`` each."""
        k, v = self.k_proj(key), self.v_proj(value)
        return self._heads(k), self._heads(v)

    def gen_cache(self, key: Variable, value: Variable | None = None, type: Any = Cache) -> Any:
        """A cache for calls that come.

        Args:
            key: ``[n, places, kdim]``; of an empty cache only ``n`` and the dtype count.
            value: ``[n, places, vdim]``, or ``None``: for ``Cache`` it starts empty, for ``StaticCache`` it is ``key``.
            type: ``MultiHeadAttention.Cache`` grows with every call; ``MultiHeadAttention.StaticCache`` stays.
        """
        if type is StaticCache:
            return StaticCache(*self.compute_kv(key, key if value is None else value))
        if value is not None:
            return Cache(key, value)
        shape = (-1, self.num_heads, 0, self.head_dim)
        attrs = {"shape": shape, "dtype": key.dtype, "value": 0.0, "input_dim_idx": 0, "output_dim_idx": 0}
        k, v = (emit("fill_constant_batch_size_like", {"Input": key}, attrs, prefix="fill_constant") for _ in range(2))
        return Cache(k, v)

    def forward(
        self,
        query: Variable,
        key: Variable | None = None,
        value: Variable | None = None,
        attn_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """Attends from each query to all keys.

        Args:
            query: ``[n, queries, embed_dim]``.
            key: ``[n, places, kdim]``; ``query`` if ``None``.
            value: ``[n, places, vdim]``; ``query`` if ``None``.
            attn_mask: Broadcasts to ``[n, heads, queries, places]``: floats are added to scores; of bools and ints, 0 hides.
            cache: What :meth:`gen_cache` or an earlier call returned.

        Returns:
            ``[n, queries, embed_dim]``; with ``need_weights`` also the weights ``[n, heads, queries, places]``, with
            ``cache`` also the new cache.
        """
        for arg, x in (("query", query), ("key", key), ("value", value)):
            if x is not None or arg == "query":
                given = check_variable(x, arg, "MultiHeadAttention", FLOATS)
                check_rank(given, 3, arg, "MultiHeadAttention", layout="[n, places, width]")
        q = self._heads(self.q_proj(query))
        if isinstance(cache, StaticCache):
            k, v = cache
        else:
            k, v = self.compute_kv(query if key is None else key, query if value is None else value)
        if isinstance(cache, Cache):
            k = emit("concat", {"X": [cache.k, k]}, {"axis": 2})
            v = emit("concat", {"X": [cache.v, v]}, {"axis": 2})
            cache = Cache(k, v)
        product = emit("matmul_v2", {"X": _scaled(q, self.head_dim**-0.5), "Y": k}, {"trans_y": True})
        mask = _mask_to_add(attn_mask, product)
        weights = emit("softmax", {"X": product if mask is None else added(product, mask)})
        if self.dropout:
            weights = dropout(weights, self.dropout, training=self.training)
        out = emit("matmul_v2", {"X": weights, "Y": v})
        out = emit("transpose2", {"X": out}, {"axis": (0, 2, 1, 3)}, prefix="transpose")
        out = self.out_proj(emit("reshape2", {"X": out}, {"shape": (0, 0, self.embed_dim)}))
        results = [out]
        if self.need_weights:
            results.append(weights)
        if cache is not None:
            results.append(cache)
        return out if len(results) == 1 else tuple(results)
