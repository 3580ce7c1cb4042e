"""The functions of ``incubate.nn.functional``: blocks of networks, which the fusions of a build strategy may join."""

from __future__ import annotations

from typing import Any

from tstatic.errors import UnsupportedError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axis, check_choice, check_rank, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.activation import gelu
from tstatic.ops.elementwise.activation_piecewise import relu
from tstatic.ops.elementwise.arithmetic import add
from tstatic.ops.elementwise.logic import less_than, where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import cos as cosine
from tstatic.ops.elementwise.unary import rsqrt
from tstatic.ops.elementwise.unary import sin as sine
from tstatic.ops.functions.linear import linear
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.norm.layer_norm import layer_norm
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.random.dropout import UPSCALE, dropout
from tstatic.ops.reduce.reduction import mean
from tstatic.ops.shape.creation import full
from tstatic.ops.shape.joining import stack
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import arange
from tstatic.ops.shape.transpose import transpose

_PLAIN = "results are not quantised, and a positive scale is refused"


def _activated(x: Variable, activation: str) -> Variable:
    if activation == "none":
        return x
    return gelu(x) if activation == "gelu" else relu(x)


def _refuse(function: str, argument: str, value: Any, expected: str, why: str, fix: str = "leave it out") -> None:
    raise UnsupportedError(
        f"'{argument}' of {function} is not supported: {why}", expected=expected, received=shown(value),
        fix=fix, op=function, var=argument,
    )  # fmt: skip


def _check_ring(function: str, ring_id: int) -> None:
    if ring_id != -1:
        _refuse(function, "ring_id", ring_id, "-1", "matrices are not split over processes")


def _check_quantised(function: str, scale: float) -> None:
    if scale > 0:
        _refuse(function, "quant_scale", scale, "a number that is not positive", "results are not quantised")


# ----------------------------------------------------------------------------------------------------------------- products
@export("incubate.nn.functional.fused_matmul_bias")
def fused_matmul_bias(
    x: Variable,
    y: Variable,
    bias: Variable | None = None,
    transpose_x: bool = False,
    transpose_y: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns ``x @ y + bias``; ``BuildStrategy.fuse_gemm_epilogue`` computes it in one kernel.

    Args:
        x, y: As of ``paddle.matmul``.
        bias: ``[columns]``, or ``None``.
        transpose_x, transpose_y: Whether the last two axes are swapped before.
        name: Name of the layer.

    Example:
        >>> y = paddle.incubate.nn.functional.fused_matmul_bias(paddle.ones([2, 3]), paddle.ones([3, 1]), paddle.ones([1]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[4.],
               [4.]], dtype=float32)
    """
    product = matmul(x, y, transpose_x, transpose_y, name=None if bias is not None else name)
    return product if bias is None else add(product, check_variable(bias, "bias", "fused_matmul_bias"), name)


@export("incubate.nn.functional.fused_linear")
def fused_linear(
    x: Variable, weight: Variable, bias: Variable | None = None, transpose_weight: bool = False, name: str | None = None
) -> Variable:
    """Returns ``x @ weight + bias``, see :func:`fused_matmul_bias`.

    Args:
        x: ``[..., rows]``.
        weight: ``[rows, columns]``.
        bias: ``[columns]``, or ``None``.
        transpose_weight: The weight is ``[columns, rows]``.
        name: Name of the layer.
    """
    return fused_matmul_bias(x, weight, bias, False, transpose_weight, name)


@export("incubate.nn.functional.fused_linear_activation")
def fused_linear_activation(
    x: Variable,
    y: Variable,
    bias: Variable,
    trans_x: bool = False,
    trans_y: bool = False,
    activation: str | None = None,
) -> Variable:
    """Returns ``activation(x @ y + bias)``, see :func:`fused_matmul_bias`.

    Args:
        x, y, bias: As there.
        trans_x, trans_y: Whether the last two axes are swapped before.
        activation: ``"gelu"`` (the exact one), ``"relu"``, or ``None``.

    Raises:
        ProgramError: For another activation.
    """
    kind = check_choice(activation or "none", ("none", "gelu", "relu"), "activation", "fused_linear_activation")
    return _activated(fused_matmul_bias(x, y, bias, trans_x, trans_y), kind)


# ------------------------------------------------------------------------------------------------------------------ dropout
@export("incubate.nn.functional.fused_dropout_add")
def fused_dropout_add(
    x: Variable, y: Variable, p: float = 0.5, training: bool = True, mode: str = UPSCALE, name: str | None = None
) -> Variable:
    """Returns ``dropout(x) + y``.

    Args:
        x, p, training, mode: As of ``nn.functional.dropout``.
        y: The shape of ``x``.
        name: Name of the layer.
    """
    return add(dropout(x, p, None, training, mode), check_variable(y, "y", "fused_dropout_add"), name)


@export("incubate.nn.functional.fused_bias_dropout_residual_layer_norm")
def fused_bias_dropout_residual_layer_norm(
    x: Variable,
    residual: Variable,
    bias: Variable | None = None,
    ln_scale: Variable | None = None,
    ln_bias: Variable | None = None,
    dropout_rate: float = 0.5,
    ln_epsilon: float = 1e-5,
    training: bool = True,
    mode: str = UPSCALE,
    name: str | None = None,
) -> Variable:
    """Returns ``layer_norm(residual + dropout(x + bias))`` over the last axis.

    Args:
        x: ``[..., size]``.
        residual: The shape of ``x``.
        bias: ``[size]``, or ``None``.
        ln_scale, ln_bias: ``[size]`` each, or ``None``: the factor and the summand of the normalisation.
        dropout_rate, training, mode: As ``p``, ``training`` and ``mode`` of ``nn.functional.dropout``.
        ln_epsilon: Added to the variance.
        name: Name of the layer.
    """
    function = "fused_bias_dropout_residual_layer_norm"
    check_variable(x, "x", function)
    inner = x if bias is None else x + check_variable(bias, "bias", function)
    added = check_variable(residual, "residual", function) + dropout(inner, dropout_rate, None, training, mode)
    return _normalised(added, ln_scale, ln_bias, ln_epsilon, name)


def _normalised(
    x: Variable, scale: Variable | None, bias: Variable | None, epsilon: float, name: str | None = None
) -> Variable:
    """Normalises over the last axis."""
    size = check_static_dim(x.shape[-1], x, "the last axis", "layer_norm")
    return layer_norm(x, [size], scale, bias, epsilon, name)


@export("incubate.nn.functional.fused_feedforward")
def fused_feedforward(
    x: Variable,
    linear1_weight: Variable,
    linear2_weight: Variable,
    linear1_bias: Variable | None = None,
    linear2_bias: Variable | None = None,
    ln1_scale: Variable | None = None,
    ln1_bias: Variable | None = None,
    ln2_scale: Variable | None = None,
    ln2_bias: Variable | None = None,
    dropout1_rate: float = 0.5,
    dropout2_rate: float = 0.5,
    activation: str = "relu",
    ln1_epsilon: float = 1e-5,
    ln2_epsilon: float = 1e-5,
    pre_layer_norm: bool = False,
    training: bool = True,
    mode: str = UPSCALE,
    ring_id: int = -1,
    add_residual: bool = True,
    name: str | None = None,
) -> Variable:
    """Returns the feed-forward block of a transformer: ``x + dropout2(linear2(dropout1(activation(linear1(x)))))``, normalised.

    Args:
        x: ``[batch, steps, size]``.
        linear1_weight, linear1_bias: ``[size, hidden]`` and ``[hidden]`` or ``None``.
        linear2_weight, linear2_bias: ``[hidden, size]`` and ``[size]`` or ``None``.
        ln1_scale, ln1_bias, ln1_epsilon: Of the normalisation in front, which ``pre_layer_norm`` asks for.
        ln2_scale, ln2_bias, ln2_epsilon: Of the normalisation behind, without ``pre_layer_norm``.
        dropout1_rate, dropout2_rate, training, mode: As of ``nn.functional.dropout``.
        activation: ``"relu"`` or ``"gelu"``.
        pre_layer_norm: Normalises in front of the block, not behind it.
        ring_id: -1: matrices are not split over processes.
        add_residual: Whether ``x`` is added.
        name: Name of the last layer.

    Raises:
        ProgramError: For another activation.
        UnsupportedError: For another ``ring_id``.
    """
    function = "fused_feedforward"
    check_variable(x, "x", function)
    _check_ring(function, ring_id)
    check_choice(activation, ("relu", "gelu"), "activation", function)
    start = _normalised(x, ln1_scale, ln1_bias, ln1_epsilon) if pre_layer_norm else x
    hidden = dropout(
        _activated(linear(start, linear1_weight, linear1_bias), activation), dropout1_rate, None, training, mode
    )
    out = dropout(linear(hidden, linear2_weight, linear2_bias), dropout2_rate, None, training, mode)
    out = add(x, out, name if pre_layer_norm else None) if add_residual else out
    return out if pre_layer_norm else _normalised(out, ln2_scale, ln2_bias, ln2_epsilon, name)


# --------------------------------------------------------------------------------------------------------------- attention
@export("incubate.nn.functional.fused_multi_head_attention")
def fused_multi_head_attention(
    x: Variable,
    qkv_weight: Variable,
    linear_weight: Variable,
    pre_layer_norm: bool = False,
    pre_ln_scale: Variable | None = None,
    pre_ln_bias: Variable | None = None,
    ln_scale: Variable | None = None,
    ln_bias: Variable | None = None,
    pre_ln_epsilon: float = 1e-5,
    qkv_bias: Variable | None = None,
    linear_bias: Variable | None = None,
    cache_kv: Variable | None = None,
    attn_mask: Variable | None = None,
    dropout_rate: float = 0.5,
    attn_dropout_rate: float = 0.5,
    ln_epsilon: float = 1e-5,
    training: bool = True,
    mode: str = UPSCALE,
    ring_id: int = -1,
    add_residual: bool = True,
    num_heads: int = -1,
    transpose_qkv_wb: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns the self-attention block of a transformer: ``x + dropout(linear(attention(x)))``, normalised.

    Args:
        x: ``[batch, steps, size]``.
        qkv_weight: ``[3, heads, head size, size]``, or with ``transpose_qkv_wb`` ``[size, 3 * size]``.
        qkv_bias: ``[3, heads, head size]``, or ``[3 * size]``, or ``None``.
        linear_weight, linear_bias: ``[size, size]`` and ``[size]`` or ``None``.
        pre_layer_norm: Normalises in front of the block, not behind it.
        pre_ln_scale, pre_ln_bias, pre_ln_epsilon: Of the normalisation in front.
        ln_scale, ln_bias, ln_epsilon: Of the normalisation behind.
        cache_kv: ``None``: keys and values of earlier steps are not kept.
        attn_mask: Added to the scores, ``[batch, heads, steps, steps]`` or what broadcasts to it.
        dropout_rate, attn_dropout_rate: Of the result and of the attention's weights.
        training, mode: As of ``nn.functional.dropout``.
        ring_id: -1: matrices are not split over processes.
        add_residual: Whether ``x`` is added.
        num_heads: The number of heads with ``transpose_qkv_wb``.
        name: Name of the last layer.

    Raises:
        ShapeError: If the shapes do not fit.
        UnsupportedError: For a ``cache_kv`` or another ``ring_id``.
    """
    function = "fused_multi_head_attention"
    check_rank(check_variable(x, "x", function), 3, "x", function, layout="[batch, steps, size]")
    _check_ring(function, ring_id)
    if cache_kv is not None:
        _refuse(function, "cache_kv", cache_kv, "None", "keys and values are not kept between runs")
    start = _normalised(x, pre_ln_scale, pre_ln_bias, pre_ln_epsilon) if pre_layer_norm else x
    size = check_static_dim(x.shape[2], x, "the last axis", function)
    weight = check_variable(qkv_weight, "qkv_weight", function)
    if transpose_qkv_wb:
        heads = num_heads
    else:
        heads = check_static_dim(weight.shape[1], weight, "axis 1", function)
        weight = transpose(reshape(weight, [-1, size]), [1, 0])
        qkv_bias = None if qkv_bias is None else reshape(qkv_bias, [-1])
    projected = reshape(linear(start, weight, qkv_bias), [0, 0, 3, heads, -1])
    q, k, v = (transpose(projected[:, :, i], [0, 2, 1, 3]) for i in range(3))
    scores = matmul(q * (q.shape[-1] ** -0.5), k, transpose_y=True)
    scores = scores if attn_mask is None else scores + attn_mask
    weights = dropout(softmax(scores), attn_dropout_rate, None, training, mode)
    joined = reshape(transpose(matmul(weights, v), [0, 2, 1, 3]), [0, 0, -1])
    out = dropout(linear(joined, linear_weight, linear_bias), dropout_rate, None, training, mode)
    out = add(x, out, name if pre_layer_norm else None) if add_residual else out
    return out if pre_layer_norm else _normalised(out, ln_scale, ln_bias, ln_epsilon, name)


@export("incubate.nn.functional.variable_length_memory_efficient_attention")
def variable_length_memory_efficient_attention(
    query: Variable,
    key: Variable,
    value: Variable,
    seq_lens: Variable,
    kv_seq_lens: Variable,
    mask: Variable | None = None,
    scale: float | None = None,
    causal: bool = False,
    pre_cache_length: int = 0,
) -> Variable:
    """Returns attention over padded sequences of different lengths; rows behind a sequence's end are 0.

    Args:
        query: ``[batch, heads, steps, head size]``.
        key, value: ``[batch, heads, key steps, head size]``.
        seq_lens, kv_seq_lens: ``[batch, 1]`` integers: how many steps of queries and of keys count.
        mask: Added to the scores, ``[batch, heads, steps, key steps]`` or what broadcasts to it.
        scale: Factor of the scores; one by the root of the head size if ``None``.
        causal: A query sees no later key.
        pre_cache_length: 0: there is no cache in front of the keys.

    Raises:
        UnsupportedError: For another ``pre_cache_length``.
    """
    function = "variable_length_memory_efficient_attention"
    for given, argument in ((query, "query"), (key, "key"), (value, "value")):
        check_rank(
            check_variable(given, argument, function), 4, argument, function, layout="[batch, heads, steps, size]"
        )
    if pre_cache_length:
        _refuse(function, "pre_cache_length", pre_cache_length, "0", "there is no cache in front of the keys")
    steps, keys = (check_static_dim(v.shape[2], v, "axis 2", function) for v in (query, key))
    factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
    scores = matmul(query * factor, key, transpose_y=True)
    scores = scores if mask is None else scores + mask
    rows, columns = (cast(arange(n), "int64") for n in (steps, keys))
    seen = less_than(reshape(columns, [1, 1, 1, -1]), reshape(cast(kv_seq_lens, "int64"), [-1, 1, 1, 1]))
    if causal:
        earlier = less_than(reshape(columns, [1, 1, 1, -1]), reshape(rows + 1, [1, 1, -1, 1]))
        seen = cast(cast(seen, "int32") * cast(earlier, "int32"), "bool")
    lowest = full([1], -1e30 if query.dtype.name in ("float32", "float64", "bfloat16") else -6e4, query.dtype)
    found = matmul(softmax(where(seen, scores, lowest)), value)
    valid = less_than(reshape(rows, [1, 1, -1, 1]), reshape(cast(seq_lens, "int64"), [-1, 1, 1, 1]))
    made: Variable = found * cast(valid, found.dtype)
    return made


@export("incubate.nn.functional.fused_rotary_position_embedding")
def fused_rotary_position_embedding(
    q: Variable,
    k: Variable | None = None,
    v: Variable | None = None,
    sin: Variable | None = None,
    cos: Variable | None = None,
    position_ids: Variable | None = None,
    use_neox_rotary_style: bool = True,
) -> tuple[Variable, Variable | None, Variable | None]:
    """Turns pairs of elements by angles that grow with the position (Su et al., 2021).

    Args:
        q: ``[batch, steps, heads, head size]``; so are ``k`` and ``v``, each of which may be ``None``.
        k, v: See ``q``.
        sin, cos: ``[steps, head size]`` or ``[1, steps, 1, head size]``; angles of ``step / 10000 ** (2 i / head size)`` for pair
            ``i`` if ``None``, for neighbouring pairs only.
        position_ids: ``[batch, steps]``: rows of ``sin`` and ``cos``; 0, 1, and so on if ``None``.
        use_neox_rotary_style: Pairs are neighbours; otherwise element ``i`` is paired with ``i + head size / 2``.

    Returns:
        The turned ``q``, ``k`` and ``v``.

    Raises:
        UnsupportedError: If ``sin`` and ``cos`` are left out for pairs that are not neighbours.
    """
    function = "fused_rotary_position_embedding"
    check_rank(check_variable(q, "q", function), 4, "q", function, layout="[batch, steps, heads, size]")
    steps, size = (check_static_dim(q.shape[i], q, f"axis {i}", function) for i in (1, 3))
    if sin is None or cos is None:
        if not use_neox_rotary_style:
            why = "for these pairs the layout of the angles is the caller's"
            _refuse(function, "sin", sin, "tables of sines and cosines", why, "pass sin and cos")
        exponents = cast(cast(arange(size), "int64") // 2 * 2, "float32") / float(size)
        angles = unsqueeze(cast(arange(steps), "float32"), [1]) / (10000.0**exponents)
        sin, cos = sine(angles), cosine(angles)
    tables = []
    for table in (sin, cos):
        flat = cast(reshape(table, [-1, size]), q.dtype)
        if position_ids is None:
            tables.append(reshape(flat, [1, -1, 1, size]))
        else:
            rows = flat[reshape(position_ids, [-1])]
            tables.append(reshape(rows, [-1, steps, 1, size]))
    sines, cosines = tables

    def turned(x: Variable | None, name: str) -> Variable | None:
        if x is None:
            return None
        check_variable(x, name, function)
        if use_neox_rotary_style:
            pairs = reshape(x, [0, 0, 0, size // 2, 2])
            other = reshape(stack([pairs[..., 1] * -1.0, pairs[..., 0]], -1), [0, 0, 0, size])
        else:
            half = size // 2
            swapped = stack([x[..., half:] * -1.0, x[..., :half]], 3)
            other = reshape(swapped, [0, 0, 0, size])
        made: Variable = x * cosines + other * sines
        return made

    first = turned(q, "q")
    assert first is not None
    return first, turned(k, "k"), turned(v, "v")


# ---------------------------------------------------------------------------------------------------------- normalisations
@no_effect(quant_scale=_PLAIN, quant_round_type=_PLAIN, quant_max_bound=_PLAIN, quant_min_bound=_PLAIN)
@export("incubate.nn.functional.fused_layer_norm")
def fused_layer_norm(
    x: Variable,
    norm_weight: Variable | None,
    norm_bias: Variable | None,
    epsilon: float,
    residual_alpha: float = 1.0,
    begin_norm_axis: int = 1,
    bias: Variable | None = None,
    residual: Variable | None = None,
    quant_scale: float = -1,
    quant_round_type: int = 0,
    quant_max_bound: float = 0,
    quant_min_bound: float = 0,
) -> Any:
    """Returns ``layer_norm(x + bias + residual_alpha * residual)``, without weight and bias of the norm the sum itself.

    Args:
        x: Floats.
        norm_weight, norm_bias: Factor and summand, of the normalised axes' sizes, flat or not.
        epsilon: Added to the variance.
        residual_alpha: Factor of ``residual``.
        begin_norm_axis: The first axis that is normalised.
        bias, residual: Added to ``x`` before, or ``None``.
        quant_scale: Not positive: results are not quantised.

    Returns:
        The result; with ``residual`` the result and the sum.

    Raises:
        UnsupportedError: For a positive ``quant_scale``.
    """
    _check_quantised("fused_layer_norm", quant_scale)
    added = _sum(check_variable(x, "x", "fused_layer_norm"), bias, residual, residual_alpha)
    out = added
    if norm_weight is not None or norm_bias is not None:
        shape = _normal_shape(added, begin_norm_axis, "fused_layer_norm")
        weight, summand = (None if p is None else reshape(p, shape) for p in (norm_weight, norm_bias))
        out = layer_norm(added, shape, weight, summand, epsilon)
    return out if residual is None else (out, added)


@no_effect(quant_scale=_PLAIN, quant_round_type=_PLAIN, quant_max_bound=_PLAIN, quant_min_bound=_PLAIN)
@export("incubate.nn.functional.fused_rms_norm")
def fused_rms_norm(
    x: Variable,
    norm_weight: Variable,
    norm_bias: Variable | None,
    epsilon: float,
    begin_norm_axis: int,
    bias: Variable | None = None,
    residual: Variable | None = None,
    quant_scale: float = -1,
    quant_round_type: int = 0,
    quant_max_bound: float = 0,
    quant_min_bound: float = 0,
) -> Any:
    """Returns ``y / sqrt(mean(y ** 2) + epsilon) * norm_weight + norm_bias`` of ``y = x + bias + residual``.

    Args:
        x: Floats.
        norm_weight, norm_bias: Factor, and summand or ``None``, of the normalised axes' sizes, flat or not.
        epsilon: Added to the mean square.
        begin_norm_axis: The first axis that is normalised.
        bias, residual: Added to ``x`` before, or ``None``.
        quant_scale: Not positive: results are not quantised.

    Returns:
        The result; with ``residual`` the result and ``y``.

    Raises:
        UnsupportedError: For a positive ``quant_scale``.
    """
    _check_quantised("fused_rms_norm", quant_scale)
    added = _sum(check_variable(x, "x", "fused_rms_norm"), bias, residual, 1.0)
    shape = _normal_shape(added, begin_norm_axis, "fused_rms_norm")
    axes = list(range(len(added.shape) - len(shape), len(added.shape)))
    out = added * rsqrt(mean(added * added, axes, True) + epsilon)
    out = out * reshape(check_variable(norm_weight, "norm_weight", "fused_rms_norm"), shape)
    out = out if norm_bias is None else out + reshape(norm_bias, shape)
    return out if residual is None else (out, added)


def _sum(x: Variable, bias: Variable | None, residual: Variable | None, alpha: float) -> Variable:
    made: Any = x if bias is None else x + bias
    made = made if residual is None else made + (residual if alpha == 1.0 else residual * alpha)
    return made  # type: ignore[no-any-return]


def _normal_shape(x: Variable, begin: int, function: str) -> list[int]:
    start = check_axis(begin, len(x.shape), "begin_norm_axis", function)
    return [check_static_dim(x.shape[i], x, f"axis {i}", function) for i in range(start, len(x.shape))]
