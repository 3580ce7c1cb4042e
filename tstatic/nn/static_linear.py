"""``fc``, ``embedding`` and the other layer functions built on matrix products and lookups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    FLOATS,
    INTEGERS,
    check_choice,
    check_each,
    check_int,
    check_length,
    check_rank,
    check_static_dim,
)
from tstatic.ir.export import respell
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.nn.initializer import Constant
from tstatic.nn.param import LayerHelper, ParamAttr, check_activation, check_enabled
from tstatic.no_effect import no_effect
from tstatic.ops.functions.linear import bilinear_product
from tstatic.ops.indexing.embedding import DISTRIBUTED as TABLE
from tstatic.ops.indexing.embedding import padding_row


def _fc(
    x: Any, arg: str, size: int, num_flatten_dims: int, weight_attr: Any, bias_attr: Any, act: Any, name: str | None
) -> Variable:
    inputs = [check_variable(v, arg, "fc", FLOATS) for v in (x if isinstance(x, list | tuple) and x else [x])]
    attrs = check_each(weight_attr, len(inputs), "weight_attr", "fc", "input", error=ProgramError)
    check_int(size, "size", "fc", 1)
    check_activation(act, "fc")
    shapes = []
    axis = num_flatten_dims
    for x, attr in zip(inputs, attrs, strict=True):
        check_enabled(attr, "weight_attr", "fc")
        rank = len(x.shape)
        axis = rank - 1 if num_flatten_dims == -1 else num_flatten_dims
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 < axis < rank:
            raise ShapeError(
                "num_flatten_dims of fc must leave at least one axis on either side",
                expected=f"an int from 1 to {max(rank - 1, 1)}, or -1, for an input of rank at least 2",
                received=f"num_flatten_dims={num_flatten_dims!r} for '{x.name}' of shape {list(x.shape)}",
                fix="choose the first axis that belongs to the features",
                op="fc",
                var=x.name,
            )
        for i, n in enumerate(x.shape[axis:], axis):
            check_static_dim(n, x, f"axis {i} (a feature axis)", "fc")
        shapes.append((math.prod(x.shape[axis:]), size))
    helper = LayerHelper("fc", name=name, bias_attr=bias_attr, act=act)
    products = []
    for x, attr, shape in zip(inputs, attrs, shapes, strict=True):
        w = helper.create_parameter(attr, shape, x.dtype)
        columns = {"x_num_col_dims": axis, "y_num_col_dims": 1}
        products.append(helper.emit("mul", {"X": x, "Y": w}, columns))
    out: Variable = products[0] if len(products) == 1 else helper.emit("sum", {"X": products})
    return helper.append_activation(helper.append_bias_op(out, axis))


@export("static.nn.fc", op="mul")
def fc(
    x: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    activation: str | None = None,
    name: str | None = None,
) -> Variable:
    """Builds a fully connected layer: ``activation(x @ w + b)``; several inputs have a weight each and are added.

    Args:
        x: One or several Variables ``[d_0, ..., f_0, ...]``; the axes from ``num_flatten_dims`` on are the features.
        size: Features of the output.
        num_flatten_dims: Leading axes that stay; -1 means all but the last.
        weight_attr: ParamAttr, name or initializer of the weight ``[features, size]``, or one per input.
        bias_attr: The same for the bias ``[size]``; ``False`` for none.
        activation: Op type of an activation, such as ``"relu"``.
        name: Name of the layer.

    Returns:
        ``[d_0, ..., size]``.

    Raises:
        ShapeError: If a feature size is unknown, or ``num_flatten_dims`` does not fit.
        NotFoundError: If there is no such activation.

    Example:
        >>> x = static.data("x", [None, 3])
        >>> y = static.nn.fc(x, size=2, weight_attr=paddle.nn.initializer.Constant(0.5), activation="relu")
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.array([[1, 2, 3], [-1, -2, -3]], "float32")}, fetch_list=[y])[0]
        array([[3., 3.],
               [0., 0.]], dtype=float32)
    """
    return _fc(x, "x", size, num_flatten_dims, weight_attr, bias_attr, activation, name)


@export("fluid.layers.fc", op="mul")
def fluid_fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Builds a fully connected layer, as :func:`fc`; 1.x calls ``weight_attr`` ``param_attr`` and ``activation`` ``act``.

    Args:
        input: The ``x`` of :func:`fc`: one or several Variables.
        size, num_flatten_dims, name: As there.
        param_attr, bias_attr: ParamAttr, name or initializer of weight and bias; ``False`` for no bias.
        act: Op type of an activation, or ``None``.

    Example:
        >>> x = fluid.layers.data("x", shape=[3])
        >>> y = fluid.layers.fc(x, size=2, param_attr=fluid.initializer.Constant(0.5))
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> _ = exe.run(fluid.default_startup_program())
        >>> exe.run(feed={"x": np.array([[1, 2, 3]], "float32")}, fetch_list=[y])
        [array([[3., 3.]], dtype=float32)]
    """
    return _fc(input, "input", size, num_flatten_dims, param_attr, bias_attr, act, name)


# ------------------------------------------------------------------------------------------------------------ embedding
def _embedding(
    type: str, input: Variable, size: Sequence[int], is_sparse: bool, padding_idx: int | None, param_attr: Any, dtype: Any
) -> Variable:  # fmt: skip
    check_variable(input, "input", "embedding", INTEGERS)
    check_length(
        size if isinstance(size, list | tuple) else [size], 2, "size", "embedding", why="[rows, width of a row]"
    )
    rows, width = (check_int(s, f"size[{i}]", "embedding", 1) for i, s in enumerate(size))
    check_enabled(param_attr, "param_attr", "embedding")
    attrs = {"padding_idx": padding_row(padding_idx, rows, "embedding"), "is_sparse": bool(is_sparse)}
    helper = LayerHelper("embedding")
    w = helper.create_parameter(param_attr, (rows, width), dtype)
    return helper.emit(type, {"Ids": input, "W": w}, attrs)  # type: ignore[no-any-return]


@no_effect(is_distributed=TABLE.no_effect)
@export("static.nn.embedding", "fluid.embedding", "fluid.input.embedding", op="lookup_table_v2")
def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Looks up rows of a table that is a parameter.

    Args:
        input: Row numbers, ints of any shape.
        size: ``[rows, width]`` of the table.
        is_sparse: Updates with ``lazy_mode`` leave rows alone that the batch does not name; other updates are the same.
        padding_idx: Row that gives zeros and gets no gradient; a negative number counts from the end.
        param_attr: ParamAttr, name or initializer of the table.
        dtype: Float type of the table.

    Returns:
        ``[*input.shape, width]``.

    Raises:
        ShapeError, DTypeError: If ``size``, ``padding_idx`` or the type of ``input`` does not fit.

    Example:
        >>> table = paddle.nn.initializer.Assign(np.array([[0, 0], [1, 10], [2, 20]], "float32"))
        >>> ids = static.data("ids", [None], "int64")
        >>> y = static.nn.embedding(ids, size=[3, 2], param_attr=table)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"ids": np.array([2, 1])}, fetch_list=[y])[0]
        array([[ 2., 20.],
               [ 1., 10.]], dtype=float32)
    """
    return _embedding("lookup_table_v2", input, size, is_sparse, padding_idx, param_attr, dtype)


@no_effect(is_distributed=TABLE.no_effect)
@export("fluid.layers.embedding", op="lookup_table")
@parameters_of(embedding)
def fluid_embedding(is_distributed: Any, **given: Any) -> Variable:
    """Looks up rows of a table as :func:`embedding` does; the last axis of ``input`` has size 1 and becomes the row width (1.x).

    Args:
        input: Row numbers ``[..., 1]``.
        size, is_sparse, padding_idx, param_attr, dtype: As in :func:`embedding`.

    Returns:
        ``[..., width]``.

    Raises:
        ShapeError: If the last axis of ``input`` is not 1.

    Example:
        >>> table = fluid.initializer.NumpyArrayInitializer(np.array([[0, 0], [1, 10], [2, 20]], "float32"))
        >>> ids = fluid.layers.data("ids", shape=[1], dtype="int64")
        >>> y = fluid.layers.embedding(ids, size=[3, 2], param_attr=fluid.ParamAttr(initializer=table))
        >>> exe = fluid.Executor()
        >>> _ = exe.run(fluid.default_startup_program())
        >>> exe.run(feed={"ids": np.array([[2], [1]])}, fetch_list=[y])[0]
        array([[ 2., 20.],
               [ 1., 10.]], dtype=float32)
    """
    return _embedding("lookup_table", **given)


# ---------------------------------------------------------------------------------------------------------------- others
@export("static.nn.bilinear_tensor_product", "fluid.layers.bilinear_tensor_product")
def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """Returns ``act(x_i W_k y_j + b_k)``, summed over ``i`` and ``j``, for each of ``size`` matrices ``W_k``.

    Args:
        x: ``[n, i]``.
        y: ``[n, j]``.
        size: Number of matrices.
        act: Op type of an activation.
        name: Name of the layer.
        param_attr: ParamAttr, name or initializer of the weight ``[size, i, j]``.
        bias_attr: The same for the bias ``[1, size]``; ``False`` for none.

    Returns:
        ``[n, size]``.

    Raises:
        ShapeError: If an input is not a matrix, or its width is unknown.
    """
    function = "bilinear_tensor_product"
    for arg, value in (("x", x), ("y", y)):
        check_rank(check_variable(value, arg, function, FLOATS), 2, arg, function, layout="[n, features]")
        check_static_dim(value.shape[1], value, "axis 1 (the features)", function)
    check_int(size, "size", function, 1)
    check_activation(act, function)
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function, name=name, act=act)
    w = helper.create_parameter(param_attr, (size, x.shape[1], y.shape[1]), x.dtype)
    b = helper.create_parameter(bias_attr, (1, size), x.dtype, is_bias=True)
    return helper.append_activation(bilinear_product(helper, x, y, w, b))


@export("static.nn.prelu", op="prelu")
@respell("fluid.layers.prelu", takes="x, mode, param_attr=None, name=None, data_format='NCHW'", op="prelu")
def prelu(
    x: Variable, mode: str, param_attr: Any = None, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Returns ``x`` where it is positive, else ``x`` times a learned slope that starts at 0.25.

    Args:
        x: Floats.
        mode: ``"all"`` for one slope, ``"channel"`` for one per channel, ``"element"`` for one per element of a sample.
        param_attr: ParamAttr, name or initializer of the slope.
        data_format: ``"NCHW"`` or ``"NHWC"`` (and their relatives for other ranks), which says where the channels are.
        name: Name of the layer.

    Raises:
        ProgramError: For another mode or layout.
        ShapeError: If a size that the slope needs is unknown.
    """
    check_variable(x, "x", "prelu", FLOATS)
    check_choice(mode, ("all", "channel", "element"), "mode", "prelu")
    check_choice(data_format, ("NCHW", "NHWC", "NC", "NCL", "NLC", "NCDHW", "NDHWC"), "data_format", "prelu")
    check_enabled(param_attr, "param_attr", "prelu")
    rank = len(x.shape)
    shape: tuple[int, ...] = (1,)
    if mode == "channel":
        check_rank(x, range(2, 6), "x", "prelu", layout=data_format)
        at = rank - 1 if data_format[-1] == "C" else 1
        shape = tuple(
            check_static_dim(n, x, "the channel axis", "prelu") if i == at else 1 for i, n in enumerate(x.shape)
        )
    elif mode == "element":
        check_rank(x, range(1, 7), "x", "prelu", layout="[n, ...]")
        shape = (1, *(check_static_dim(n, x, f"axis {i}", "prelu") for i, n in enumerate(x.shape[1:], 1)))
    helper = LayerHelper("prelu", name=name)
    alpha = helper.create_parameter(ParamAttr._to_attr(param_attr), shape, x.dtype, default_initializer=Constant(0.25))
    layout = "NHWC" if data_format[-1] == "C" and data_format != "NC" else "NCHW"
    return helper.emit("prelu", {"X": x, "Alpha": alpha}, {"mode": mode, "data_format": layout})  # type: ignore[no-any-return]
