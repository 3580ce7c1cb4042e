"""Multi-head attention, and the encoder and the decoder of the Transformer (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from tstatic.errors import NotFoundError, ProgramError, near
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_divisible, check_int, check_length, check_rank
from tstatic.ir.export import PUBLIC_API, export, namespace
from tstatic.ir.program import Variable
from tstatic.nn.depth import check_layers
from tstatic.nn.layer.common import Dropout, Linear
from tstatic.nn.layer.container import LayerList
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import LayerNorm
from tstatic.nn.param import ParamAttr
from tstatic.ops.random.dropout import dropout


def added(x: Variable, y: Variable) -> Variable:
    """Returns ``x + y``, named as the operator names it."""
    return emit("elementwise_add", {"X": x, "Y": y}, prefix="tmp")  # type: ignore[no-any-return]


def _scaled(x: Variable, scale: float = 1.0, bias: float = 0.0) -> Variable:
    return emit("scale", {"X": x}, {"scale": scale, "bias": bias}, prefix="tmp")  # type: ignore[no-any-return]


def _mask_to_add(mask: Variable | None, like: Variable) -> Variable | None:
    """Returns a mask as numbers to add to scores: in masks of bools and ints, 0 hides a position (it becomes -1e9)."""
    if mask is None:
        return None
    check_variable(mask, "attn_mask", "MultiHeadAttention")
    if mask.dtype is like.dtype:
        return mask
    cast = {"in_dtype": mask.dtype, "out_dtype": like.dtype}
    number: Variable = emit("cast", {"X": mask}, cast)
    return number if mask.dtype.is_float else _scaled(_scaled(number, bias=-1.0), 1e9)


class Cache(NamedTuple):
    """Keys and values ``[n, heads, positions, head size]`` of all earlier steps."""

    k: Variable
    v: Variable


class StaticCache(NamedTuple):
    """Keys and values ``[n, heads, positions, head size]`` that stay as they are."""

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
        """Returns keys and values in heads: ``[n, heads, positions, head size]`` each.

        ``key`` is ``[n, positions, kdim]`` and ``value`` ``[n, positions, vdim]``.
        """
        k, v = self.k_proj(key), self.v_proj(value)
        return self._heads(k), self._heads(v)

    def gen_cache(self, key: Variable, value: Variable | None = None, type: Any = Cache) -> Any:
        """Returns a cache for later calls.

        Args:
            key: ``[n, positions, kdim]``; for an empty cache only ``n`` and the dtype matter.
            value: ``[n, positions, vdim]``, or ``None``: for ``Cache`` it starts empty, for ``StaticCache`` it is ``key``.
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
            key: ``[n, positions, kdim]``; ``query`` if ``None``.
            value: ``[n, positions, vdim]``; ``query`` if ``None``.
            attn_mask: Broadcasts to ``[n, heads, queries, positions]``: floats are added to scores; in bools and ints, 0 hides.
            cache: What :meth:`gen_cache` or an earlier call returned.

        Returns:
            ``[n, queries, embed_dim]``; with ``need_weights`` also the weights ``[n, heads, queries, positions]``, with
            ``cache`` also the new cache.
        """
        for arg, x in (("query", query), ("key", key), ("value", value)):
            if x is not None or arg == "query":
                given = check_variable(x, arg, "MultiHeadAttention", FLOATS)
                check_rank(given, 3, arg, "MultiHeadAttention", layout="[n, positions, width]")
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


def _convert_param_attr_to_list(param_attr: Any, n: int) -> list[Any]:
    """Returns one attribute per part of a layer; copies of a named one are named ``<name>_0``, ``<name>_1``, ...

    Raises:
        ProgramError: If a list of another length is given.
    """
    if isinstance(param_attr, list | tuple):
        check_length(
            param_attr, n, "param_attr", "Transformer", why="one per part, or a single one", error=ProgramError
        )
        return [a if a is False else None if a in (True, None) else ParamAttr._to_attr(a) for a in param_attr]
    if param_attr is False:
        return [False] * n
    attrs = [copy.copy(ParamAttr._to_attr(param_attr)) for _ in range(n)]
    for i, attr in enumerate(attrs):
        attr.name = attr.name and f"{attr.name}_{i}"
    return attrs


def _activation(name: Any, owner: str) -> Any:
    found = PUBLIC_API.get(f"nn.functional.{name}")
    if found is None:
        raise NotFoundError(
            f"{owner} has no activation of that name",
            expected="the name of a function of nn.functional, such as 'relu' or 'gelu'",
            received=repr(name),
            fix=near(str(name), namespace("nn.functional")) or "choose 'relu'",
            op=owner,
        )
    return found.function


class _Block(Layer):
    """What encoder and decoder layers share: attentions, then two linear layers, each part with residual, dropout and norm."""

    _attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        # A stack makes further layers from what this one was made from.
        config = {n: v for n, v in locals().items() if n not in ("self", "__class__")}
        super().__init__()
        self._config = config
        owner = type(self).__name__
        check_int(d_model, "d_model", owner, 1)
        check_int(nhead, "nhead", owner, 1)
        check_int(dim_feedforward, "dim_feedforward", owner, 1)
        self.normalize_before = normalize_before
        self.activation = _activation(activation, owner)
        parts = len(self._attentions) + 1
        weights, biases = (_convert_param_attr_to_list(attr, parts) for attr in (weight_attr, bias_attr))
        attn_dropout = dropout if attn_dropout is None else attn_dropout
        for name, weight, bias in zip(self._attentions, weights, biases, strict=False):
            setattr(self, name, MultiHeadAttention(d_model, nhead, attn_dropout, weight_attr=weight, bias_attr=bias))
        self.linear1 = Linear(d_model, dim_feedforward, weights[-1], biases[-1])
        self.dropout = Dropout(dropout if act_dropout is None else act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        for i in range(1, parts + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model))
        for i in range(1, parts + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))

    def _sublayer(self, x: Variable, norm: Layer, drop: Layer, run: Any) -> tuple[Variable, Any]:
        """Returns ``x + drop(run(norm(x)))``, or ``norm(x + drop(run(x)))``; ``run`` may return a cache beside its result."""
        out = run(norm(x) if self.normalize_before else x)
        out, extra = out if isinstance(out, tuple) else (out, None)
        out = added(x, drop(out))
        return (out if self.normalize_before else norm(out)), extra

    def _feed_forward(self, x: Variable) -> Variable:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))  # type: ignore[no-any-return]


@export("nn.TransformerEncoderLayer")
class TransformerEncoderLayer(_Block):
    """Self-attention, then two linear layers, each with a residual, dropout and layer normalisation.

    Args:
        d_model: Width of input and output.
        nhead: Number of attention heads.
        dim_feedforward: Width between the two linear layers.
        dropout: Dropout before each residual is added.
        activation: Name of a function of ``nn.functional``.
        attn_dropout: Dropout of attention weights; ``dropout`` if ``None``.
        act_dropout: Dropout after the activation; ``dropout`` if ``None``.
        normalize_before: Whether each part's input is normalised, rather than its output.
        weight_attr, bias_attr: Attributes of attention and of the linear layers; a list has one for each of the two.

    Example:
        >>> layer = paddle.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
        >>> x = static.data("x", [None, 5, 8])
        >>> layer(x).shape
        (-1, 5, 8)
    """

    _attentions = ("self_attn",)

    def forward(self, src: Variable, src_mask: Variable | None = None, cache: Any = None) -> Any:
        """Maps ``src``, ``[n, positions, d_model]``, to the same shape; with ``cache`` also the new cache.

        ``src_mask`` is the ``attn_mask`` of :class:`MultiHeadAttention`.
        """
        src, cache_out = self._sublayer(
            src, self.norm1, self.dropout1, lambda x: self.self_attn(x, x, x, src_mask, cache)
        )
        src, _ = self._sublayer(src, self.norm2, self.dropout2, self._feed_forward)
        return src if cache is None else (src, cache_out)

    def gen_cache(self, src: Variable) -> Any:
        """Returns an empty cache for step-by-step calls."""
        return self.self_attn.gen_cache(src, type=Cache)


class _Stack(Layer):
    """What encoder and decoder share: layers of one kind, each with its own parameters, and a last normalisation."""

    def _set_up(self, layer: Layer, num_layers: int, norm: Layer | None) -> None:
        owner = type(self).__name__
        check_layers(num_layers, owner)
        config: dict[str, Any] = getattr(layer, "_config", {})
        if not config and num_layers > 1:
            raise ProgramError(
                f"{owner} cannot make more layers like the one given: it does not say what it was made from",
                expected="a TransformerEncoderLayer or TransformerDecoderLayer, or a layer with a dict '_config'",
                received=f"a {type(layer).__name__}",
                fix="set self._config to the arguments of its constructor",
                op=owner,
            )
        self.layers = LayerList([layer if i == 0 else type(layer)(**config) for i in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _run(self, x: Variable, others: tuple[Variable | None, ...], cache: Any) -> Any:
        """Returns the last layer's result, normalised; with ``cache`` (a list) also the new caches."""
        caches = []
        for i, layer in enumerate(self.layers):
            if cache is None:
                x = layer(x, *others)
            else:
                x, new = layer(x, *others, cache[i])
                caches.append(new)
        out = x if self.norm is None else self.norm(x)
        return out if cache is None else (out, caches)


@export("nn.TransformerEncoder")
class TransformerEncoder(_Stack):
    """A stack of encoder layers.

    Args:
        encoder_layer: The first; the others are made like it.
        num_layers: How many.
        norm: A layer applied to the result.

    Example:
        >>> layer = paddle.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
        >>> encoder = paddle.nn.TransformerEncoder(layer, num_layers=2)
        >>> encoder(static.data("x", [None, 5, 8])).shape
        (-1, 5, 8)
    """

    def __init__(self, encoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        self._set_up(encoder_layer, num_layers, norm)

    def forward(self, src: Variable, src_mask: Variable | None = None, cache: Any = None) -> Any:
        """Maps ``src``, ``[n, positions, d_model]``, to the same shape; with ``cache`` (a list) also the new caches.

        ``src_mask`` is the ``attn_mask`` of :class:`MultiHeadAttention`.
        """
        return self._run(src, (src_mask,), cache)

    def gen_cache(self, src: Variable) -> list[Any]:
        """Returns empty caches for step-by-step calls, one per layer."""
        return [layer.gen_cache(src) for layer in self.layers]


@export("nn.TransformerDecoderLayer")
class TransformerDecoderLayer(_Block):
    """Self-attention, attention to a memory, then two linear layers, each with a residual, dropout and normalisation.

    Args:
        d_model: Width of input, memory and output.
        nhead: Number of attention heads.
        dim_feedforward: Width between the two linear layers.
        dropout, activation, attn_dropout, act_dropout, normalize_before: As in :class:`TransformerEncoderLayer`.
        weight_attr, bias_attr: Attributes of the two attentions and of the linear layers; a list has one for each of the three.

    Example:
        >>> layer = paddle.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
        >>> memory, target = static.data("memory", [None, 5, 8]), static.data("target", [None, 3, 8])
        >>> layer(target, memory).shape
        (-1, 3, 8)
    """

    _attentions = ("self_attn", "cross_attn")

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """Maps ``tgt``, ``[n, positions, d_model]``, to the same shape; with ``cache`` (a pair) also the new pair of caches.

        ``memory`` is ``[n, positions of the source, d_model]``. ``tgt_mask`` and ``memory_mask`` are the ``attn_mask`` of the
        attention to ``tgt`` and to ``memory``.
        """
        own, fixed = (None, None) if cache is None else cache
        tgt, own = self._sublayer(tgt, self.norm1, self.dropout1, lambda x: self.self_attn(x, x, x, tgt_mask, own))
        tgt, fixed = self._sublayer(
            tgt, self.norm2, self.dropout2, lambda x: self.cross_attn(x, memory, memory, memory_mask, fixed)
        )
        tgt, _ = self._sublayer(tgt, self.norm3, self.dropout3, self._feed_forward)
        return tgt if cache is None else (tgt, (own, fixed))

    def gen_cache(self, memory: Variable) -> tuple[Any, Any]:
        """Returns an empty cache of the self-attention, and the keys and values of ``memory``."""
        return (
            self.self_attn.gen_cache(memory, type=Cache),
            self.cross_attn.gen_cache(memory, memory, type=StaticCache),
        )


@export("nn.TransformerDecoder")
class TransformerDecoder(_Stack):
    """A stack of decoder layers.

    Args:
        decoder_layer: The first; the others are made like it.
        num_layers: How many.
        norm: A layer applied to the result.

    Example:
        >>> layer = paddle.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
        >>> decoder = paddle.nn.TransformerDecoder(layer, num_layers=2)
        >>> memory, target = static.data("memory", [None, 5, 8]), static.data("target", [None, 3, 8])
        >>> decoder(target, memory).shape
        (-1, 3, 8)
    """

    def __init__(self, decoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        self._set_up(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """Maps ``tgt``, ``[n, positions, d_model]``, to the same shape; with ``cache`` (a list) also the new caches.

        ``memory``, ``tgt_mask`` and ``memory_mask`` are those of :class:`TransformerDecoderLayer`.
        """
        return self._run(tgt, (memory, tgt_mask, memory_mask), cache)

    def gen_cache(self, memory: Variable, do_zip: bool = False) -> list[Any]:
        """Returns caches for step-by-step calls with ``memory``, one pair per layer.

        ``do_zip`` gives a list of the pairs' first parts and one of the second.
        """
        caches = [layer.gen_cache(memory) for layer in self.layers]
        return list(zip(*caches, strict=True)) if do_zip else caches


def _spread(attr: Any, parts: int) -> Any:
    """Returns the attributes of the parts of an encoder (2) or decoder (3) layer from a list of 1 to 3.

    Raises:
        ProgramError: For a list of another length.
    """
    if not isinstance(attr, list | tuple):
        return attr
    why = "[self-attention, cross-attention, linear]"
    check_length(attr, (1, 2, 3), "weight_attr and bias_attr", "Transformer", why=why, error=ProgramError)
    first, last = attr[0], attr[-1]
    if parts == 2:
        return [first, last]
    return list(attr) if len(attr) == 3 else [first, first, last]


@export("nn.Transformer")
class Transformer(Layer):
    """An encoder and a decoder.

    Args:
        d_model: Width of all inputs and outputs.
        nhead: Number of attention heads.
        num_encoder_layers, num_decoder_layers: Sizes of the stacks.
        dim_feedforward, dropout, activation, attn_dropout, act_dropout: As in :class:`TransformerEncoderLayer`.
        normalize_before: Whether each part's input is normalised, rather than its output; stacks' results always are.
        weight_attr, bias_attr: A single attribute, or a list of up to three: self-attention, cross-attention, linear layers.
        custom_encoder, custom_decoder: Used in place of the stacks.

    Example:
        >>> net = paddle.nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
        >>> source, target = static.data("source", [None, 5, 8]), static.data("target", [None, 3, 8])
        >>> net(source, target).shape
        (-1, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        custom_encoder: Layer | None = None,
        custom_decoder: Layer | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.nhead = d_model, nhead
        settings = (
            d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout, normalize_before,
        )  # fmt: skip

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            first = TransformerEncoderLayer(*settings, _spread(weight_attr, 2), _spread(bias_attr, 2))
            self.encoder = TransformerEncoder(first, num_encoder_layers, LayerNorm(d_model))
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            one = TransformerDecoderLayer(*settings, _spread(weight_attr, 3), _spread(bias_attr, 3))
            self.decoder = TransformerDecoder(one, num_decoder_layers, LayerNorm(d_model))

    def forward(
        self,
        src: Variable,
        tgt: Variable,
        src_mask: Variable | None = None,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
    ) -> Any:
        """Maps ``[n, positions of src, d_model]`` and ``[n, positions of tgt, d_model]`` to the shape of ``tgt``.

        ``src_mask`` is the ``attn_mask`` in the encoder, ``tgt_mask`` that of the attention to ``tgt`` in the decoder, and
        ``memory_mask`` that of the attention to the encoder's result.
        """
        memory = self.encoder(src, src_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask)

    def generate_square_subsequent_mask(self, length: int) -> Any:
        """Returns a mask ``[length, length]`` that hides later positions: 0 up to the diagonal, minus infinity above."""
        size = check_int(length, "length", "generate_square_subsequent_mask", 1)
        attrs = {"shape": (size, size), "dtype": self._dtype, "value": float("-inf")}
        return PUBLIC_API["tensor.triu"].function(emit("fill_constant", {}, attrs), 1)
