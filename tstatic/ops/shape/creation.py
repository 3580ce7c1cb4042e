"""The functions that make constants: full, zeros, ones, empty, to_tensor, assign and their 1.x forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError
from tstatic.ir import names
from tstatic.ir.attrs import packed
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import check_result_dtype, check_type
from tstatic.ir.declare import default_dtype, default_main_program
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, dtype_of, plain
from tstatic.no_effect import PLACE, no_effect
from tstatic.ops.base.shapes import emit_one, written
from tstatic.ops.shape.fill import filled, has_variable, known_shape


def _float(dtype: Any) -> DType:
    return default_dtype() if dtype is None else dtype_of(dtype)


def _check_complex(dtype: DType, function: str) -> DType:
    """Returns the dtype of complex constants.

    Raises:
        DTypeError: If it is not a complex one.
    """
    fix = "pass dtype='complex64', or a real number"
    check_result_dtype(dtype, ("complex64", "complex128"), f"{function} with a complex number", fix=fix)
    return dtype


def _constant(
    shape: Any,
    value: Any,
    dtype: DType,
    function: str,
    name: str | None,
    prefix: str | None,
    out: Variable | None = None,
) -> Variable:
    # Attributes are Python numbers, so that a program prints and reads back the same.
    if isinstance(value, np.generic | np.ndarray) and value.size == 1:
        value = value.item()
    outputs = None if out is None else {"Out": check_variable(out, "out", function)}
    # The attribute is real: a complex number becomes a constant of one element, spread over ones.
    if isinstance(value, complex):
        value = as_variable(np.asarray(value, _check_complex(dtype, function).np))
    if isinstance(value, Variable):
        made = _spread(shape, value, dtype, function, name)
        return made if out is None else emit("assign", {"X": made}, outputs=outputs)
    wanted, fix = (
        "a bool, an int, a float or a Variable with one element",
        "use paddle.assign(array) for several values",
    )
    check_type(value, (bool, int, float), "value", function, expected=wanted, fix=fix)
    if has_variable(shape):
        made = filled(shape, dtype, value, function, name)
        return made if out is None else emit("assign", {"X": made}, outputs=outputs)
    attrs = {"shape": known_shape(shape, function), "dtype": dtype, "value": value}
    return emit_one("fill_constant", {}, attrs, name=name, prefix=prefix, outputs=outputs)


def _spread(shape: Any, value: Variable, dtype: DType, function: str, name: str | None) -> Variable:
    """Returns a constant whose number is known at run time only: ones times the number."""
    if value.dtype is not dtype:
        value = emit("cast", {"X": value}, {"in_dtype": value.dtype, "out_dtype": dtype})
    ones = _constant(shape, 1, dtype, function, None, None)
    made: Variable = emit("elementwise_mul", {"X": ones, "Y": value}, name=name)
    # As every constant in Paddle, even if the number itself has a gradient.
    made.stop_gradient = True
    return made


@export("tensor.full", op="fill_constant")
def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes a Variable of ``shape`` whose elements are all ``fill_value``.

    Args:
        shape: A list of ints, of which some may be int Variables with one element, or an int Variable of shape [rank].
        fill_value: A number, or a Variable with one element.
        dtype: The default dtype if ``None``, or the complex one of it for a complex number.
        name: Name of the result.

    Example:
        >>> x = paddle.full([2, 3], 0.5)
        >>> n = paddle.full([2], 7, dtype="int64")
        >>> static.Executor().run(fetch_list=[x, n])
        [array([[0.5, 0.5, 0.5],
               [0.5, 0.5, 0.5]], dtype=float32), array([7, 7])]
    """
    kind = default_dtype().complex if dtype is None and isinstance(fill_value, complex) else _float(dtype)
    return _constant(shape, fill_value, kind, "full", name, None)


@no_effect(device=PLACE)
@export("fluid.layers.full", op="fill_constant")
def fluid_full(
    shape: Any,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Makes a Variable whose elements are all ``fill_value``, see :func:`full`, or writes the value to ``out``.

    Args:
        shape, fill_value, name: As there; without a ``dtype``, and for an integer one, a float loses its fraction as in Paddle.
        out: A Variable of that shape and dtype; it is returned. ``None`` makes a new one.
        dtype: Element type; float32 if ``None``.
        stop_gradient: Whether gradients end at the result.
    """
    made = written(full(shape, fill_value, "float32" if dtype is None else dtype, name), out)
    made.stop_gradient = stop_gradient
    return made


@export("tensor.zeros", op="fill_constant")
def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes zeros of ``shape``; the default dtype if ``dtype`` is ``None``.

    Args:
        shape: As in :func:`full`.
        dtype: Element type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        ShapeError: If a size is negative.

    Example:
        >>> x = paddle.zeros([2, 3])
        >>> n = paddle.zeros([2], dtype="int64")
        >>> static.Executor().run(fetch_list=[x, n])
        [array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32), array([0, 0])]
    """
    return _constant(shape, 0, _float(dtype), "zeros", name, None)


@export("tensor.ones", op="fill_constant")
def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes ones of ``shape``; the default dtype if ``dtype`` is ``None``.

    Args:
        shape: As in :func:`full`.
        dtype: Element type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        ShapeError: If a size is negative.

    Example:
        >>> x = paddle.ones([2, 3])
        >>> n = paddle.ones([2], dtype="int64")
        >>> static.Executor().run(fetch_list=[x, n])
        [array([[1., 1., 1.],
               [1., 1., 1.]], dtype=float32), array([1, 1])]
    """
    return _constant(shape, 1, _float(dtype), "ones", name, None)


@export("tensor.empty", op="empty")
def empty(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes a Variable of ``shape`` whose content is of no importance (it is 0, so that runs repeat).

    Args:
        shape: As in :func:`full`.
        dtype: Element type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        ShapeError: If a size is negative.
    """
    if has_variable(shape):
        return filled(shape, _float(dtype), 0, "empty", name)
    attrs = {"shape": known_shape(shape, "empty"), "dtype": _float(dtype)}
    return emit_one("empty", {}, attrs, name=name)


def _like(x: Any, value: Any, dtype: Any, function: str, name: str | None) -> Variable:
    check_variable(x, "x", function)
    if isinstance(value, Variable):
        # As in `_spread`: the number is known at run time only, so it multiplies ones.
        ones_ = _like(x, 1, dtype, function, None)
        if value.dtype is not ones_.dtype:
            value = emit("cast", {"X": value}, {"in_dtype": value.dtype, "out_dtype": ones_.dtype})
        return emit_one("elementwise_mul", {"X": ones_, "Y": value}, name=name)
    attrs: dict[str, Any] = {"value": value.item() if isinstance(value, np.generic) else value}
    if dtype is not None:
        attrs["dtype"] = dtype_of(dtype)
    return emit_one("fill_any_like", {"X": x}, attrs, name=name, prefix="full_like")


@export("tensor.full_like", op="fill_any_like")
def full_like(x: Variable, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes a Variable in the shape of ``x`` (and, if ``dtype`` is ``None``, of its dtype) that is ``fill_value`` everywhere.

    Args:
        x: Any shape and dtype.
        fill_value: A number, or a Variable with one element.
        dtype: Element type.
        name: Name of the result.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = paddle.full_like(x, 7, dtype="int64")
        >>> static.Executor().run(feed={"x": np.zeros((3, 2), "float32")}, fetch_list=[y])[0]
        array([[7, 7],
               [7, 7],
               [7, 7]])
    """
    return _like(x, fill_value, dtype, "full_like", name)


@export("tensor.zeros_like", op="fill_any_like")
def zeros_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes zeros in the shape of ``x``.

    Args:
        x: Any shape and dtype.
        dtype: Element type; that of ``x`` if ``None``.
        name: Name of the result.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = paddle.zeros_like(x)
        >>> static.Executor().run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])[0]
        array([[0., 0.]], dtype=float32)
    """
    return _like(x, 0, dtype, "zeros_like", name)


@export("tensor.ones_like", op="fill_any_like")
def ones_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes ones in the shape of ``x``.

    Args:
        x: Any shape and dtype.
        dtype: Element type; that of ``x`` if ``None``.
        name: Name of the result.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = paddle.ones_like(x, dtype="int64")
        >>> static.Executor().run(feed={"x": np.zeros((3, 2), "float32")}, fetch_list=[y])[0]
        array([[1, 1],
               [1, 1],
               [1, 1]])
    """
    return _like(x, 1, dtype, "ones_like", name)


@export("tensor.empty_like", op="fill_any_like")
def empty_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes a Variable in the shape of ``x`` whose content is of no importance (it is 0, so that runs repeat).

    Args:
        x: Any shape and dtype.
        dtype: Element type; that of ``x`` if ``None``.
        name: Name of the result.
    """
    return _like(x, 0, dtype, "empty_like", name)


@export("tensor.assign", op="assign")
def assign(x: Any, output: Variable | None = None) -> Variable:
    """Copies a Variable, or makes a constant from an array, a list or a number.

    Args:
        x: A Variable, a numpy array, a (nested) list of numbers, or a number.
        output: An existing Variable to write to, also one of an outer block.

    Returns:
        ``output``, or a new Variable of the shape and dtype of ``x``; a Python number has the shape ``[1]``, as in Paddle.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> kept = paddle.assign(x)
        >>> given = paddle.assign(np.array([5.0], "float32"))
        >>> static.Executor().run(fetch_list=[kept, given])
        [array([1., 2.], dtype=float32), array([5.], dtype=float32)]
    """
    outputs = None if output is None else {"Out": check_variable(output, "output", "assign")}
    if isinstance(x, Variable):
        return emit_one("assign", {"X": x}, outputs=outputs)
    array = _array(x, None, "assign")
    # Lists have no dtype to keep, so they take the one of what they are written to; an array's own dtype stays.
    if output is not None and output.dtype.np != array.dtype and not isinstance(x, np.ndarray):
        array = array.astype(output.dtype.np)
    if isinstance(x, bool | int | float):
        # A scalar that exists already keeps its shape.
        array = array.reshape(() if output is not None and output._shape == () else (1,))
    attrs = {"shape": array.shape, "dtype": dtype_of(array.dtype), "values": packed(array)}
    return emit_one("assign_value", {}, attrs, outputs=outputs, prefix="assign")


def _array(x: Any, dtype: Any, function: str) -> np.ndarray[Any, Any]:
    """Makes an array from numbers; Python floats become the default dtype."""
    try:
        array = plain(x, f"what was given to {function}", function)
    # numpy refuses ragged lists by itself; as an object it gets the message below.
    except ValueError:
        array = np.empty((), object)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise ProgramTypeError(
            f"what was given to {function} cannot become a Variable",
            expected="a Variable, a numeric array, a list of numbers of one shape, or a number",
            received=f"{type(x).__name__}" + (f" of dtype {array.dtype}" if isinstance(x, np.ndarray) else ""),
            fix="pass a rectangular list of numbers",
            op=function,
        )
    if dtype is not None:
        return array.astype(dtype_of(dtype).np)
    # An array of float64 was chosen so; Python's floats are float64 only for want of another type.
    if array.dtype == np.float64 and not isinstance(x, np.ndarray | np.generic):
        return array.astype(default_dtype().np)
    if array.dtype == np.complex128 and not isinstance(x, np.ndarray | np.generic):
        return array.astype(default_dtype().complex.np)
    # Also turns a dtype that only numpy has (uint16, longdouble) into an error that names it.
    return array.astype(dtype_of(array.dtype).np, copy=False)


@no_effect(place=PLACE)
@export("tensor.to_tensor", op="assign_value")
def to_tensor(data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True) -> Variable:
    """Makes a constant from an array, a list or a number; copies a Variable.

    Args:
        data: What to copy.
        dtype: Wanted dtype; that of the data if ``None`` (the default dtype for Python floats).
        stop_gradient: Whether gradients stop here.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = paddle.to_tensor([1, 2], dtype="float64")
        >>> static.Executor().run(fetch_list=[x, y])
        [array([[1., 2.],
               [3., 4.]], dtype=float32), array([1., 2.])]
    """
    out: Variable
    if isinstance(data, Variable):
        if dtype is not None and dtype_of(dtype) is not data.dtype:
            out = emit("cast", {"X": data}, {"in_dtype": data.dtype, "out_dtype": dtype_of(dtype)})
        else:
            out = emit("assign", {"X": data})
    else:
        array = _array(data, dtype, "to_tensor")
        attrs = {"shape": array.shape, "dtype": dtype_of(array.dtype), "values": packed(array)}
        out = emit("assign_value", {}, attrs, prefix="assign")
    out.stop_gradient = stop_gradient
    return out


# ------------------------------------------------------------------------------------------------------------ 1.x forms
@no_effect(force_cpu=PLACE)
@export("tensor.fill_constant", "fluid.layers.fill_constant", "fluid.layers.tensor.fill_constant", op="fill_constant")
def fill_constant(
    shape: Any,
    dtype: Any,
    value: Any,
    force_cpu: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Makes a Variable of ``shape`` whose elements are all ``value``.

    Args:
        shape: See ``paddle.full``.
        dtype: Element type.
        value: A number, its text, or a Variable with one element.
        out: An existing Variable to write to.
        name: Name of the result.

    Example:
        >>> y = paddle.fill_constant([2, 3], "float32", 0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.5, 0.5, 0.5],
               [0.5, 0.5, 0.5]], dtype=float32)
        >>> paddle.fill_constant([1], "int64", 7).dtype
        tstatic.int64
    """
    if isinstance(value, str):
        # A text keeps integers that a float cannot hold, such as 2**63 - 1.
        attrs = {"shape": known_shape(shape, "fill_constant"), "dtype": dtype_of(dtype), "str_value": value}
        outputs = None if out is None else {"Out": check_variable(out, "out", "fill_constant")}
        made = emit("fill_constant", {}, attrs, name=name, outputs=outputs)
    else:
        made = _constant(shape, value, dtype_of(dtype), "fill_constant", name, None, out)
    made.stop_gradient = True
    return made  # type: ignore[no-any-return]


@export("fluid.layers.zeros", "fluid.layers.tensor.zeros", op="fill_constant")
@no_effect(force_cpu=PLACE)
def fluid_zeros(shape: Any, dtype: Any, force_cpu: bool = False, name: str | None = None) -> Variable:
    """Makes zeros of ``shape``.

    Args:
        shape: As in :func:`full`.
        dtype: Element type.
        name: Name of the result.

    Raises:
        ShapeError: If a size is negative.

    Example:
        >>> x = fluid.layers.zeros([2, 3], "float32")
        >>> n = fluid.layers.zeros([1], "int64")
        >>> static.Executor().run(fetch_list=[x, n])
        [array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32), array([0])]
    """
    return fill_constant(shape, dtype, 0.0, force_cpu, name=name)


@export("fluid.layers.ones", "fluid.layers.tensor.ones", op="fill_constant")
@no_effect(force_cpu=PLACE)
def fluid_ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """Makes ones of ``shape``.

    Args:
        shape: As in :func:`full`.
        dtype: Element type.

    Raises:
        ShapeError: If a size is negative.
    """
    return fill_constant(shape, dtype, 1.0, force_cpu)


@export("fluid.layers.zeros_like", "fluid.layers.tensor.zeros_like", op="fill_zeros_like")
def fluid_zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Makes zeros in the shape of ``x``; written to ``out`` if it is given.

    Args:
        x: Any shape and dtype.
        out: A Variable of that shape and dtype; it is returned. ``None`` makes a new one.
    """
    outputs = None if out is None else {"Out": check_variable(out, "out", "zeros_like")}
    made = emit("fill_zeros_like", {"X": check_variable(x, "x", "zeros_like")}, outputs=outputs, prefix="zeros_like")
    made.stop_gradient = True
    return made  # type: ignore[no-any-return]


@export("fluid.layers.ones_like", "fluid.layers.tensor.ones_like", op="fill_any_like")
def fluid_ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Makes ones in the shape of ``x``; written to ``out`` if it is given.

    Args:
        x: Any shape and dtype.
        out: A Variable of that shape and dtype; it is returned. ``None`` makes a new one.
    """
    outputs = None if out is None else {"Out": check_variable(out, "out", "ones_like")}
    made = emit("fill_any_like", {"X": check_variable(x, "x", "ones_like")}, {"value": 1.0}, outputs=outputs,
                prefix="ones_like")  # fmt: skip
    made.stop_gradient = True
    return made  # type: ignore[no-any-return]


@export("fluid.layers.fill_constant_batch_size_like", op="fill_constant_batch_size_like")
def fill_constant_batch_size_like(
    input: Variable,
    shape: Any,
    dtype: Any,
    value: Any,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Fills ``shape``, whose axis ``output_dim_idx`` is as long as axis ``input_dim_idx`` of ``input``, with ``value``.

    Args:
        input: A Variable of any dtype; only its shape counts. If it has a LoD, axis 0 is as long as it has sequences.
        shape: A list of ints; entry ``output_dim_idx`` is replaced.
        dtype: Element type.
        value: A number.
        input_dim_idx, output_dim_idx: Axes, from 0.
        force_cpu: Accepted; the executor's place decides where values live.

    Raises:
        ProgramError: If an axis is out of range.

    Example:
        >>> x = fluid.layers.data("x", shape=[4])
        >>> y = fluid.layers.fill_constant_batch_size_like(x, shape=[-1, 2], dtype="int64", value=7)
        >>> static.Executor().run(feed={"x": np.zeros((3, 4), "float32")}, fetch_list=[y])[0]
        array([[7, 7],
               [7, 7],
               [7, 7]])
    """
    x = check_variable(input, "input", "fill_constant_batch_size_like")
    attrs = {"shape": list(shape), "dtype": dtype_of(dtype), "value": value, "input_dim_idx": input_dim_idx,
             "output_dim_idx": output_dim_idx, "force_cpu": force_cpu}  # fmt: skip
    made = emit("fill_constant_batch_size_like", {"Input": x}, attrs)
    made.stop_gradient = True
    return made  # type: ignore[no-any-return]


@export("tensor.create_tensor", "fluid.layers.create_tensor", "fluid.layers.tensor.create_tensor", op="assign")
def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Declares a Variable without a value, to be the ``output`` of ``assign`` and the like.

    Args:
        dtype: Element type.
        name: Name of the Variable; generated if ``None``.
        persistable: Keep the value in the scope between runs.
    """
    block = default_main_program().current_block()
    # No shape: the op that writes it later tells.
    return block.create_var(
        name=name or names.generate("create_tensor"), dtype=dtype_of(dtype), persistable=persistable, shape=None
    )


@export("fluid.layers.assign", "fluid.layers.tensor.assign", op="assign")
def fluid_assign(input: Any, output: Variable | None = None) -> Variable:
    """Calls :func:`assign` under the argument names of 1.x.

    Args:
        input: The ``x`` of :func:`assign`.
        output: As there.

    Example:
        >>> x = paddle.zeros([2])
        >>> _ = fluid.layers.assign(input=np.array([1.0, 2.0], "float32"), output=x)
        >>> static.Executor().run(fetch_list=[x])[0]
        array([1., 2.], dtype=float32)
    """
    return assign(input, output)
