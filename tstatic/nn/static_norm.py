"""Normalisation layers as functions, with their parameters: batch, layer, group, instance, spectral and data norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.checks import (
    FLOATS,
    check_axis,
    check_choice,
    check_int,
    check_known,
    check_number,
    check_rank,
    check_static_dim,
    check_type,
)
from tstatic.ir.composed import composed
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, dtype_of
from tstatic.nn.initializer import Constant, Normal
from tstatic.nn.param import LayerHelper, ParamAttr, activate, check_activation, check_enabled
from tstatic.no_effect import IN_PLACE, no_effect
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.functions.affine_channel import affine
from tstatic.ops.shape.creation import full


def parameter_dtype(x: Variable) -> DType:
    """Returns the dtype of statistics and scales: float32 for low-precision inputs."""
    return dtype_of("float32") if x.dtype.is_low else x.dtype


def statistic(name: str | None, value: float, averaged: bool = True) -> ParamAttr:
    """Returns the settings of a running statistic: a parameter that starts at ``value`` and that optimizers do not update."""
    return ParamAttr(name=name, initializer=Constant(value), trainable=False, do_model_average=averaged)


def _scale_and_bias(
    helper: LayerHelper, count: int, param_attr: Any, bias_attr: Any, dtype: DType
) -> dict[str, Variable | None]:
    """Makes the inputs ``Scale`` (1) and ``Bias`` (0) of a normalisation, each unless its attribute is ``False``."""
    return {
        "Scale": helper.create_parameter(param_attr, (count,), dtype, default_initializer=Constant(1.0)),
        "Bias": helper.create_parameter(bias_attr, (count,), dtype, is_bias=True),
    }


def check_both_or_none(scale_attr: Any, bias_attr: Any, arg: str, function: str) -> None:
    """Refuses a scale without a bias, and a bias without a scale; ``arg`` is the name of the scale's attribute.

    Raises:
        ProgramError: If only one of the two attributes is ``False``.
    """
    if (scale_attr is False) != (bias_attr is False):
        check_enabled(scale_attr, arg, f"{function} with a bias")
        check_enabled(bias_attr, "bias_attr", f"{function} with a scale")


def _channels(input: Variable, data_layout: str, function: str) -> int:
    """Returns the number of channels of an input of rank 2 to 5, which it checks."""
    check_variable(input, "input", function, FLOATS)
    first = check_choice(data_layout, ("NCHW", "NHWC"), "data_layout", function) == "NCHW"
    check_rank(input, range(2, 6), "input", function, layout="[n, c, ...]" if first else "[n, ..., c]")
    at = 1 if first else len(input.shape) - 1
    return check_static_dim(input.shape[at], input, f"axis {at} (the channels)", function)


@no_effect(in_place=IN_PLACE)
@export("static.nn.batch_norm", "fluid.layers.batch_norm", op="batch_norm")
def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Normalises each channel over the batch and all positions (Ioffe and Szegedy, 2015).

    Args:
        input: ``[n, c]``, ``[n, c, l]``, ``[n, c, h, w]`` or ``[n, c, d, h, w]`` (``NCHW``), or with ``c`` last (``NHWC``).
        act: Op type of an activation.
        is_test: Uses the running statistics and leaves them as they are.
        momentum: Weight of the OLD running statistic; a number, or a Variable with one element.
        epsilon: Added to the variance.
        param_attr: ParamAttr, name or initializer of the scale ``[c]``, which starts at 1.
        bias_attr: The same for the bias ``[c]``.
        data_layout: Layout of the axes, which says where the channels are.
        name: Name of the layer.
        moving_mean_name, moving_variance_name: Names of the running statistics (``<layer>.w_1``, ``<layer>.w_2``).
        do_model_average_for_mean_and_var: Whether averages of parameters take in the running statistics.
        use_global_stats: Uses the running statistics in training too.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the rank does not fit, or the number of channels is unknown.
        ProgramError: For another layout, or a parameter that is ``False``.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = static.nn.batch_norm(x, epsilon=0.0)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.array([[1, 10], [3, 30]], "float32")}, fetch_list=[y])[0]
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """
    function = "batch_norm"
    if not isinstance(momentum, Variable):
        check_number(momentum, "momentum", function, least=0.0, most=1.0)
    count = _channels(input, data_layout, function)
    check_activation(act, function)
    check_enabled(param_attr, "param_attr", function)
    check_enabled(bias_attr, "bias_attr", function)
    helper = LayerHelper(function, name=name)
    dtype = parameter_dtype(input)
    inputs: dict[str, Any] = {"X": input, **_scale_and_bias(helper, count, param_attr, bias_attr, dtype)}
    mean = helper.create_parameter(statistic(moving_mean_name, 0.0, do_model_average_for_mean_and_var), (count,), dtype)
    variance = helper.create_parameter(
        statistic(moving_variance_name, 1.0, do_model_average_for_mean_and_var), (count,), dtype
    )
    inputs |= {"Mean": mean, "Variance": variance}
    attrs: dict[str, Any] = {
        "epsilon": epsilon,
        "is_test": is_test,
        "data_layout": data_layout,
        "use_global_stats": use_global_stats,
    }
    if isinstance(momentum, Variable):
        inputs["MomentumTensor"] = momentum
    else:
        attrs["momentum"] = momentum
    return normalised(helper, inputs, attrs, act)


def normalised(helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], act: str | None) -> Variable:
    """Emits ``batch_norm`` and an activation; the result is ``<layer>.tmp_3``, as scripts expect (``tmp_2`` in tests)."""
    mean, variance = inputs["Mean"], inputs["Variance"]
    saved = [helper.variable(mean.dtype, mean.shape, stop_gradient=True) for _ in range(2)]
    if not attrs["is_test"]:
        helper.temp_name()  # Paddle's reserve space, which no backend here needs.
    out = helper.variable(inputs["X"].dtype, inputs["X"].shape)
    outputs = {"Y": out, "MeanOut": mean, "VarianceOut": variance, "SavedMean": saved[0], "SavedVariance": saved[1]}
    helper.emit("batch_norm", inputs, attrs, outputs=outputs)
    return activate(helper, out, act)


@export("static.nn.layer_norm", "fluid.layers.layer_norm", op="layer_norm")
def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalises the axes from ``begin_norm_axis`` on, each sample by itself (Ba et al., 2016).

    Args:
        input: Floats, rank at least 2; the normalised axes have known sizes.
        scale: Whether a learned scale (as many as normalised elements, starting at 1) is multiplied.
        shift: Whether a learned bias of that size is added.
        begin_norm_axis: First normalised axis.
        epsilon: Added to the variance.
        param_attr: ParamAttr, name or initializer of the scale.
        bias_attr: The same for the bias.
        act: Op type of an activation.
        name: Name of the layer.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the axis does not exist, or a normalised size is unknown.

    Example:
        >>> x = paddle.to_tensor([[1.0, 3.0], [10.0, 30.0]])
        >>> y = static.nn.layer_norm(x, epsilon=0.0)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)
    """
    function = "layer_norm"
    check_variable(input, "input", function, FLOATS)
    axis = check_int(check_axis(begin_norm_axis, input, "begin_norm_axis", function), "begin_norm_axis", function, 1)
    count = math.prod(check_static_dim(n, input, f"axis {i}", function) for i, n in enumerate(input.shape[axis:], axis))
    check_activation(act, function)
    if scale:
        check_enabled(param_attr, "param_attr", function)
    if shift:
        check_enabled(bias_attr, "bias_attr", function)
    helper = LayerHelper(function, name=name, act=act)
    attrs = (param_attr if scale else False, bias_attr if shift else False)
    inputs = {"X": input, **_scale_and_bias(helper, count, *attrs, parameter_dtype(input))}
    out: Variable = helper.emit(
        function, inputs, {"epsilon": epsilon, "begin_norm_axis": axis}, order=("Mean", "Variance", "Y")
    )
    return helper.append_activation(out)


@export("static.nn.group_norm", "fluid.layers.group_norm", op="group_norm")
def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalises groups of channels, each sample by itself (Wu and He, 2018).

    Args:
        input: ``[n, c, ...]`` (``NCHW``) or ``[n, ..., c]`` (``NHWC``), floats, ``c`` known.
        groups: Number of groups; it divides ``c``.
        epsilon: Added to the variance.
        param_attr: ParamAttr, name or initializer of the scale ``[c]``, which starts at 1; ``False`` for none.
        bias_attr: The same for the bias ``[c]``.
        act: Op type of an activation.
        data_layout: Layout of the axes, which says where the channels are.
        name: Name of the layer.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the rank or ``groups`` does not fit, or the number of channels is unknown.
        ProgramError: For another layout.
    """
    function = "group_norm"
    count = _channels(input, data_layout, function)
    check_int(groups, "groups", function, 1)
    check_activation(act, function)
    helper = LayerHelper(function, name=name, act=act)
    inputs = {"X": input, **_scale_and_bias(helper, count, param_attr, bias_attr, parameter_dtype(input))}
    attrs = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
    out: Variable = helper.emit(function, inputs, attrs, order=("Mean", "Variance", "Y"))
    return helper.append_activation(out)


@export("static.nn.instance_norm", "fluid.layers.instance_norm", op="instance_norm")
def instance_norm(
    input: Variable, epsilon: float = 1e-5, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Variable:
    """Normalises each channel of each sample over its positions (Ulyanov et al., 2016).

    Args:
        input: ``[n, c, ...]``, floats, rank 2 to 5, ``c`` known.
        epsilon: Added to the variance.
        param_attr: ParamAttr, name or initializer of the scale ``[c]``, which starts at 1; ``False`` for none.
        bias_attr: The same for the bias ``[c]``; ``False`` exactly when ``param_attr`` is.
        name: Name of the layer.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the rank does not fit, or the number of channels is unknown.
        ProgramError: If only one of the two parameters is ``False``.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 3.0]], [[10.0, 30.0]]]])
        >>> y = paddle.flatten(static.nn.instance_norm(x, epsilon=0.0))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([-1.,  1., -1.,  1.], dtype=float32)
    """
    function = "instance_norm"
    count = _channels(input, "NCHW", function)
    check_both_or_none(param_attr, bias_attr, "param_attr", function)
    helper = LayerHelper(function, name=name)
    inputs = {"X": input, **_scale_and_bias(helper, count, param_attr, bias_attr, parameter_dtype(input))}
    out: Variable = helper.emit(function, inputs, {"epsilon": epsilon}, order=("SavedMean", "SavedVariance", "Y"))
    return out


def spectral_sizes(shape: Sequence[int], dim: int) -> tuple[int, int]:
    """Returns the sizes of a weight as a matrix whose rows are axis ``dim``."""
    return shape[dim], math.prod(shape) // shape[dim]


def spectral(
    helper: LayerNamer, weight: Variable, u: Variable, v: Variable, dim: int, power_iters: int, eps: float
) -> Variable:
    """Emits ``weight / sigma``, where power iterations from ``u`` and ``v`` find the largest singular value ``sigma``.

    As in Paddle, the vectors stay as they started, and no gradient flows through the iterations.
    """
    *_, sigma = power_iterations(spectral_matrix(weight, dim), u, v, power_iters, eps)
    return helper.emit("elementwise_div", {"X": weight, "Y": sigma})  # type: ignore[no-any-return]


def spectral_matrix(weight: Variable, dim: int) -> Variable:
    """Emits a weight as a matrix whose rows are axis ``dim``."""
    rank = len(weight.shape)
    order = (dim, *(i for i in range(rank) if i != dim))
    turned = weight if dim == 0 else emit_one("transpose2", {"X": weight}, {"axis": order})
    return turned if rank == 2 else emit_one("reshape2", {"X": turned}, {"shape": spectral_sizes(weight.shape, dim)})


def power_iterations(
    matrix: Variable, u: Variable, v: Variable, power_iters: int, eps: float
) -> tuple[Variable, Variable, Variable]:
    """Emits power iterations from ``u`` and ``v``: the vectors that they find, and ``u matrix v``, the largest singular value.

    No gradient flows through the iterations.
    """

    def product(left: Variable, right: Variable, **attrs: bool) -> Variable:
        return emit_one("matmul_v2", {"X": left, "Y": right}, attrs)

    def unit(x: Variable) -> Variable:
        total = emit_one("reduce_sum", {"X": emit_one("square", {"X": x})}, {"reduce_all": True})
        norm = emit_one("scale", {"X": emit_one("sqrt", {"X": total})}, {"scale": 1.0, "bias": float(eps)})
        return emit_one("elementwise_div", {"X": x, "Y": norm})

    fixed = emit_one("assign", {"X": matrix})
    fixed.stop_gradient = True
    left, right = u, v
    for _ in range(power_iters):
        right = unit(product(fixed, left, trans_x=True))
        left = unit(product(fixed, right))
    left.stop_gradient = right.stop_gradient = True
    return left, right, product(left, product(matrix, right))


@composed("spectral_norm")
def _spectral_norm(
    Weight: Variable, U: Variable, V: Variable, *, dim: int = 0, power_iters: int = 1, eps: float = 1e-12
) -> dict[str, Variable]:
    return {"Out": spectral(LayerHelper("spectral_norm"), Weight, U, V, dim, power_iters, eps)}


@export("static.nn.spectral_norm", "fluid.layers.spectral_norm")
def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """Divides a weight by its largest singular value, as power iterations find it (Miyato et al., 2018).

    Args:
        weight: Rank 2 to 5, all sizes known; read as a matrix whose rows are axis ``dim``.
        dim: The axis of rows: 0 for ``fc`` and ``conv`` filters, 1 for transposed ones.
        power_iters: Iterations from the vectors ``<layer>.w_0`` and ``<layer>.w_1``, which start at random and stay.
        eps: Added to norms.
        name: Name of the layer.

    Returns:
        The shape of ``weight``.

    Example:
        >>> w = paddle.to_tensor([[3.0, 0.0], [0.0, 6.0]])
        >>> y = static.nn.spectral_norm(w, power_iters=20)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[0.5, 0. ],
               [0. , 1. ]], dtype=float32)
    """
    function = "spectral_norm"
    check_variable(weight, "weight", function, FLOATS)
    check_rank(weight, range(2, 6), "weight", function, layout="a weight")
    dim = check_axis(dim, weight, "dim", function)
    check_int(power_iters, "power_iters", function, 0)
    for i, n in enumerate(weight.shape):
        check_static_dim(n, weight, f"axis {i}", function)
    helper = LayerHelper(function, name=name)
    u, v = (
        helper.create_parameter(None, (n,), weight.dtype, default_initializer=Normal(0.0, 1.0), stop_gradient=True)
        for n in spectral_sizes(weight.shape, dim)
    )
    return spectral(helper, weight, u, v, dim, power_iters, eps)


@no_effect(
    data_layout="there are no axes but rows and features", in_place=IN_PLACE,
    moving_mean_name="the sums are parameters of their own", moving_variance_name="the sums are parameters of their own",
    summary_decay_rate="the optimizer alone changes the sums",
    sync_stats="gradients of the sums are averaged over places as those of all parameters",
)  # fmt: skip
@export("static.nn.data_norm", "fluid.layers.data_norm", op="data_norm")
def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalises each feature by the size, sum and sum of squares of the data, which are parameters.

    The result is ``(x - sum / size) * sqrt(size / squares)``. As in Paddle, the "gradients" of the three parameters are what
    a batch adds to them: its size, its sum, and its sum of squares about the mean plus ``size * epsilon``; an optimizer
    subtracts them, times its learning rate.

    Args:
        input: ``[batch, features]``; float32 or float64, ``features`` known.
        act: Op type of an activation.
        epsilon: Added to each square that is collected.
        param_attr: A dict of first values, of which each may be left out: ``batch_size`` (10000), ``batch_sum`` (0),
            ``batch_square`` (10000), ``scale_w`` (1), ``bias`` (0).
        name: Name of the layer; parameters are ``<name>.batch_size``, ``.batch_sum``, ``.batch_square_sum``.
        do_model_average_for_mean_and_var: Whether averages of parameters take in the sums.
        slot_dim: If positive, features are slots of that size; one whose first number is 0 gives zeros and is not collected.
        enable_scale_and_shift: Multiply by a parameter ``<name>.scale_w``, and add ``<name>.bias``.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the rank is not 2, or ``slot_dim`` does not divide the features.
        ProgramError: If ``param_attr`` has another key.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = static.nn.data_norm(x, param_attr={"batch_size": 4.0, "batch_sum": 8.0, "batch_square": 1.0})
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.array([[1, 2], [3, 4]], "float32")}, fetch_list=[y])[0]
        array([[-2.,  0.],
               [ 2.,  4.]], dtype=float32)
    """
    function = "data_norm"
    check_variable(input, "input", function, ("float32", "float64"))
    check_rank(input, 2, "input", function, layout="[batch, features]")
    features = check_static_dim(input.shape[1], input, "axis 1 (the features)", function)
    check_activation(act, function)
    given: dict[str, Any] = {} if param_attr is None else dict(check_type(param_attr, dict, "param_attr", function))
    firsts = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4, "scale_w": 1.0, "bias": 0.0}
    for key in given:
        check_known(key, firsts, "param_attr of data_norm has no key", error=ProgramError)
    helper = LayerHelper(function, name=name, act=act)

    def parameter(key: str, suffix: str, averaged: bool) -> Variable:
        first = Constant(check_number(given.get(key, firsts[key]), key, function))
        attr = ParamAttr(f"{helper.name}.{suffix}", first, do_model_average=averaged)
        made: Variable = helper.create_parameter(attr, (features,), input.dtype)
        return made

    averaged = do_model_average_for_mean_and_var
    scaled = check_type(enable_scale_and_shift, bool, "enable_scale_and_shift", function)
    # In this order Paddle creates them: programs that list parameters see the same.
    more = {key: parameter(key, key, True) for key in ("scale_w", "bias")} if scaled else {}
    inputs = {
        "X": input, "BatchSize": parameter("batch_size", "batch_size", averaged),
        "BatchSum": parameter("batch_sum", "batch_sum", averaged),
        "BatchSquareSum": parameter("batch_square", "batch_square_sum", averaged), **more,
    }  # fmt: skip
    attrs = {
        "epsilon": check_number(epsilon, "epsilon", function), "slot_dim": check_int(slot_dim, "slot_dim", function),
        "enable_scale_and_shift": enable_scale_and_shift,
    }  # fmt: skip
    return helper.append_activation(helper.emit(function, inputs, attrs))


@export("fluid.layers.affine_channel")
def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """Multiplies each channel by a number and adds one: ``act(x * scale + bias)``.

    Args:
        x: ``[n, c, ...]`` (``NCHW``) or ``[n, ..., c]`` (``NHWC``); floats, ``c`` known.
        scale, bias: ``[c]``; 1 and 0 if ``None``.
        data_layout: Layout of the axes, which says where the channels are.
        name: Name of the layer.
        act: Op type of an activation.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> x = paddle.ones([1, 2, 1, 1])
        >>> y = fluid.layers.affine_channel(x, paddle.to_tensor([2.0, 3.0]), paddle.to_tensor([0.5, -0.5]))
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([2.5, 2.5], dtype=float32)
    """
    function = "affine_channel"
    count = _channels(x, data_layout, function)
    check_activation(act, function)
    given = [
        full([count], value, x.dtype) if v is None else check_variable(v, arg, function, FLOATS)
        for v, arg, value in ((scale, "scale", 1.0), (bias, "bias", 0.0))
    ]
    helper = LayerHelper(function, name=name, act=act)
    return helper.append_activation(affine(helper, x, given[0], given[1], data_layout))
