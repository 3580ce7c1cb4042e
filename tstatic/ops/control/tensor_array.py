"""Tensor arrays: ``create_array``, ``array_write``, ``array_read``, ``array_length`` and joining the elements of one."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from tstatic.errors import IndexRangeError, ProgramError, ProgramTypeError
from tstatic.ir.build import LayerNamer, append_op, check_variable, emit
from tstatic.ir.checks import INDICES, check_axis, check_one_element, check_same_dtype
from tstatic.ir.declare import default_main_program
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.program import Block, Variable
from tstatic.ir.tensor_array import KIND, TensorArray, add, zeros_like
from tstatic.ir.types import UNKNOWN, DType, Meta, dtype_of, float32, int32, int64

_PLACE = Meta((2,), int64)
"""What the gradients read: the position, and the length of the array before. Counters change within a loop's body."""

WRITTEN = Dynamic("what was written to the array", exact=False)
"""Why sizes behind a tensor array depend on values."""


def is_array(x: Any) -> TypeGuard[Variable]:
    """Returns whether a value is the Variable of a tensor array."""
    return isinstance(x, Variable) and x.type == KIND


def check_array(x: Any, arg: str, function: str) -> Variable:
    """Returns ``x`` if it is the Variable of a tensor array.

    Raises:
        ProgramTypeError: If it is something else.
    """
    if not is_array(x):
        raise ProgramTypeError(
            f"'{arg}' of {function} is not a tensor array",
            expected="a Variable that create_array or array_write returned",
            received=repr(x) if isinstance(x, Variable) else type(x).__name__,
            fix=f"make one with paddle.tensor.create_array('float32'), or with array_write({arg}, i)",
            op=function,
            var=x.name if isinstance(x, Variable) else arg,
        )
    return x


def _index(i: Any) -> int:
    return int(np.asarray(i).reshape(()))


# ------------------------------------------------------------------------------------------------------------ the ops
def _write(x: Any, i: Any, array: Any, out: Any = None, place: Any = None) -> list[Any]:
    rows = list(array or ())
    index = _index(i)
    if not 0 <= index <= len(rows):
        raise IndexRangeError(
            "array_write writes at a position beyond the end of the array",
            expected=f"a position from 0 to {len(rows)}, the array's length",
            received=index,
            fix="write the elements one after another",
            op="array_write",
        )
    # A copy: the arena's memory is used again. Longer than before if it is written at the end.
    rows[index : index + 1] = [np.array(x)]
    return [TensorArray(rows), np.array([index, len(array or ())])]


def _write_grad(x: Any, place: Any, dout: Any, *outs: Any) -> list[Any]:
    index, length = (int(n) for n in place)
    rows = [*dout, *[None] * (index + 1 - len(dout))]
    # None is a gradient of 0: nothing read that element.
    dx = np.zeros_like(x) if rows[index] is None else rows[index]
    # Overwritten, so what was there before reached no result.
    rows[index] = None
    return [dx, TensorArray(rows[:length])]


register(OpDef(
    "write_to_array", "X, I, Array? -> Out, Place~", infer=lambda x, i, array: (_meet(x, array), _PLACE), ref=_write,
    dynamic=WRITTEN,
    grad=GradOp(
        "X, Place, Out@GRAD -> X@GRAD, Array@GRAD", ref=_write_grad, infer=lambda x, place, dout: (x, dout), dynamic=WRITTEN,
        shape_only=("X",),
    ),
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip


def _meet(x: Meta, array: Meta | None) -> Meta:
    """Returns the metadata that every element has; sizes that differ are unknown. The first element decides the rank."""
    if array is None or array.rank != x.rank:
        return x
    return x.with_shape(a if a == b else UNKNOWN for a, b in zip(x.shape, array.shape, strict=True))


def _read(array: Any, i: Any, out: Any = None, place: Any = None) -> list[Any]:
    index = _index(i)
    if not 0 <= index < len(array):
        raise IndexRangeError(
            "array_read reads at a position that the array does not have",
            expected=f"a position from 0 to {len(array) - 1}" if array else "an array with elements: this one is empty",
            received=index,
            fix="see array_length(array)",
            op="array_read",
        )
    # Not a copy: elements are copied when written and never changed afterwards.
    return [array[index], np.array([index, len(array)])]


def _read_grad(place: Any, dout: Any, *outs: Any) -> list[Any]:
    index, length = (int(n) for n in place)
    rows: list[Any] = [None] * length
    # A copy, since elements of an array outlive the arena's buffers.
    rows[index] = np.array(dout)
    return [TensorArray(rows)]


register(OpDef(
    "read_from_array", "X, I -> Out, Place~", infer=lambda array, i: (array, _PLACE), ref=_read, dynamic=WRITTEN,
    grad=GradOp("Place, Out@GRAD -> X@GRAD", ref=_read_grad, infer=lambda place, dout: (dout,), dynamic=WRITTEN),
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip

register(OpDef(
    "lod_array_length", "X -> Out", infer=lambda array: Meta((1,), int64),
    ref=lambda array, out=None: [np.array([len(array)])], dynamic=WRITTEN,
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip

register(OpDef(
    "create_array", "-> Out", attrs={"dtype": float32, "shape": Attr((), "ints")},
    infer=lambda dtype, shape: Meta(shape, dtype), ref=lambda out=None: [TensorArray()], dynamic=WRITTEN,
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip

register(OpDef(
    # A new list of the same elements: writes to one of the two do not reach the other.
    "assign_array", "X -> Out", infer=lambda x: x, ref=lambda array, out=None: [TensorArray(array)], dynamic=WRITTEN,
    grad=lambda ctx: [_copy(ctx)],
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip

register(OpDef(
    "sum_arrays", "X* -> Out", infer=lambda xs: xs[0], dynamic=WRITTEN,
    ref=lambda arrays, out=None: [_total(arrays)],
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip

register(OpDef(
    "array_zeros_like", "X -> Out", infer=lambda x: x, ref=lambda array, out=None: [zeros_like(array)], dynamic=WRITTEN,
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip


def _copy(ctx: GradContext) -> OpSpec:
    arriving = ctx.out_grads[ctx.outputs["Out"][0]]
    return OpSpec("assign_array", {"X": [arriving]}, {"Out": [ctx.in_grads[ctx.inputs["X"][0]]]})


def _total(arrays: Any) -> Any:
    total = arrays[0]
    for one in arrays[1:]:
        total = add(total, one)
    return total


# ------------------------------------------------------------------------------------------------------------ joining
def _joined_infer(x: Meta, axis: int, use_stack: bool) -> tuple[Meta, Meta]:
    if use_stack:
        place = check_axis(axis, x.rank + 1)
        shape = (*x.shape[:place], UNKNOWN, *x.shape[place:])
    else:
        place = check_axis(axis, x.rank)
        shape = (*x.shape[:place], UNKNOWN, *x.shape[place + 1 :])
    return x.with_shape(shape), Meta((UNKNOWN,), int32)


def _joined(array: Any, out: Any = None, sizes: Any = None, *, axis: int, use_stack: bool) -> list[Any]:
    if not array:
        raise ProgramError(
            "a tensor array without elements cannot be joined",
            expected="at least one element",
            received="an empty array",
            fix="write to it first, for example in a loop that runs",
            op="tensor_array_to_tensor",
        )
    made = np.stack(array, axis) if use_stack else np.concatenate(array, axis)
    return [made, np.array([1 if use_stack else a.shape[axis] for a in array], np.int32)]


def _joined_grad(sizes: Any, dout: Any, *outs: Any, axis: int, use_stack: bool) -> list[Any]:
    if use_stack:
        return [TensorArray(np.array(part) for part in np.moveaxis(dout, axis, 0))]
    # Elements may differ in size along the axis, so the sizes of the forward pass say where to cut.
    return [TensorArray(np.array(part) for part in np.split(dout, np.cumsum(sizes)[:-1], axis))]


register(OpDef(
    "tensor_array_to_tensor", "X -> Out, OutIndex", attrs={"axis": 0, "use_stack": False}, infer=_joined_infer,
    ref=_joined, dynamic=WRITTEN,
    grad=GradOp("OutIndex, Out@GRAD -> X@GRAD", ref=_joined_grad, infer=lambda sizes, dout: (dout,), dynamic=WRITTEN),
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip


def join_array(x: Variable, axis: int, use_stack: bool, name: str | None = None) -> tuple[Variable, Variable]:
    """Joins the elements of a tensor array; returns the result and the elements' sizes along the axis."""
    attrs = {"axis": axis, "use_stack": use_stack}
    return emit("tensor_array_to_tensor", {"X": x}, attrs, name=name)  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------------- functions
def _marked(array: Variable) -> Variable:
    array.type = KIND
    return array


def _created(dtype: DType, shape: tuple[int, ...] = ()) -> Variable:
    array = _marked(emit("create_array", {}, {"dtype": dtype, "shape": shape}, name=None, prefix="array"))
    # Elements may come from parameters.
    array.stop_gradient = not dtype.is_inexact
    return array


@export("tensor.create_array", "fluid.layers.create_array", op="create_array")
def create_array(dtype: Any, initialized_list: Any = None) -> Variable:
    """Makes a tensor array, which loops write to and read from.

    Args:
        dtype: Element type.
        initialized_list: Variables of that type that it begins with.

    Raises:
        ProgramTypeError, DTypeError: If ``initialized_list`` holds anything else.

    Example:
        >>> array = paddle.tensor.create_array("float32", [paddle.ones([2])])
        >>> n = paddle.tensor.array_length(array)
        >>> static.Executor().run(fetch_list=[n])[0]
        array([1])
    """
    kind = dtype_of(dtype)
    given = list(initialized_list) if isinstance(initialized_list, list | tuple) else initialized_list
    if given is not None and not isinstance(given, list):
        raise ProgramTypeError(
            "initialized_list of create_array is not a list",
            expected="a list of Variables",
            received=type(initialized_list).__name__,
            fix="pass create_array(dtype, [x, y])",
            op="create_array",
        )
    for x in given or ():
        check_variable(x, "initialized_list", "create_array", (kind.name,))
    array = _created(kind, given[0].shape if given else ())
    for i, x in enumerate(given or ()):
        index = emit("fill_constant", {}, {"shape": (1,), "dtype": int64, "value": i})
        array_write(x, index, array)
    return array


def _declare(array: Variable, shape: tuple[int, ...]) -> None:
    """Gives an array that was made empty the shape of its elements: also the arrays that it is a copy of."""
    array._shape = shape
    for block in array.block.program.blocks:
        for op in block.ops:
            if array.name not in op.output_arg_names:
                continue
            if op.type == "create_array":
                op._set_attr("shape", shape)
            elif op.type == "assign_array":
                source = block._var_recursive(op.input("X")[0])
                # () is the mark of an array that was made empty; a known shape stays.
                if source.shape == ():
                    _declare(source, shape)


def _check_position(i: Any, function: str) -> Variable:
    position = check_variable(i, "i", function, INDICES)
    check_one_element(position, "i", function)
    return position


@export("tensor.array_write", "fluid.layers.array_write", op="write_to_array")
def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Writes ``x`` at position ``i`` of a tensor array; a write at its length appends.

    Args:
        x: Any shape.
        i: The position: ints, one element.
        array: The tensor array, which is changed; a new one if ``None``.

    Returns:
        The array.

    Raises:
        ProgramTypeError: If ``array`` is not a tensor array.
        DTypeError: If ``x`` has another type than the array, or ``i`` is not an int.
        IndexRangeError: In a run, if ``i`` is beyond the end.

    Example:
        >>> array = paddle.tensor.array_write(paddle.ones([2]), paddle.zeros([1], "int64"))
        >>> x = paddle.tensor.array_read(array, paddle.zeros([1], "int64"))
        >>> static.Executor().run(fetch_list=[x])[0]
        array([1., 1.], dtype=float32)
    """
    check_variable(x, "x", "array_write")
    _check_position(i, "array_write")
    if array is None:
        array = _created(x.dtype, x.shape)
    else:
        check_array(array, "array", "array_write")
        check_same_dtype([x, array], ["x", "array"], "array_write")
    offsets = _offsets_of(x, array)
    helper = LayerNamer("array_write")
    place = helper.variable(int64, (2,), stop_gradient=True)
    # The first write tells the shape, after ops that made or copied the empty array were built.
    if array.shape == () and x.shape != ():
        _declare(array, x.shape)
    append_op(
        helper.block, "write_to_array", {"X": x, "I": i, "Array": array}, {"Out": array, "Place": place},
    )  # fmt: skip
    array.lod, array.lod_level = tuple(one.name for one in offsets), len(offsets)
    for name, one in zip(x.lod, offsets, strict=False):
        array_write(helper.block._var_recursive(name), i, one)
    return array


def _offsets_of(x: Variable, array: Variable) -> list[Variable]:
    """Returns the arrays that the row offsets of an array's elements are in; its first element says whether it has some.

    Raises:
        ProgramError: If the array's elements have sequences, and ``x`` has not as many levels of them.
    """
    block = array.block
    # Only the first element may bring sequences: later ones could not give offsets to those before.
    if not array.lod and x.lod and not _is_written(array):
        return [
            _marked(LayerNamer("array", block=block).emit("create_array", {}, {"dtype": int64, "shape": (UNKNOWN,)}))
            for _ in x.lod
        ]
    if array.lod and len(x.lod) != len(array.lod):
        raise ProgramError(
            "array_write writes an element without the sequences that the others are divided into",
            expected=f"a LoD of {len(array.lod)} levels, as the first element of '{array.name}' has",
            received=f"'{x.name}' with {len(x.lod)} levels",
            fix=f"give it a LoD with fluid.layers.lod_reset({x.name}, y)",
            op="array_write",
            var=x.name,
        )
    return [block._var_recursive(name) for name in array.lod]


def _is_written(array: Variable) -> bool:
    block: Block | None = default_main_program().current_block()
    while block is not None:
        if any(op.type == "write_to_array" and array.name in op.output_arg_names for op in block.ops):
            return True
        # Outwards only: an op in another branch or body does not write before this one.
        block = block.parent
    return False


@export("tensor.array_read", "fluid.layers.array_read", op="read_from_array")
def array_read(array: Variable, i: Variable) -> Variable:
    """Returns the element at position ``i`` of a tensor array.

    Args:
        array: The tensor array.
        i: The position: ints, one element.

    Raises:
        ProgramTypeError: If ``array`` is not a tensor array.
        IndexRangeError: In a run, if there is no such element.

    Example:
        >>> array = paddle.tensor.create_array("float32", [paddle.zeros([2]), paddle.ones([2])])
        >>> x = paddle.tensor.array_read(array, paddle.ones([1], "int64"))
        >>> static.Executor().run(fetch_list=[x])[0]
        array([1., 1.], dtype=float32)
    """
    check_array(array, "array", "array_read")
    x: Variable = emit("read_from_array", {"X": array, "I": _check_position(i, "array_read")})
    x.lod = tuple(array_read(array.block._var_recursive(name), i).name for name in array.lod)
    x.lod_level = len(x.lod)
    return x


@export("tensor.array_length", "fluid.layers.array_length", op="lod_array_length")
def array_length(array: Variable) -> Variable:
    """Returns the number of elements of a tensor array, int64 ``[1]``.

    Raises:
        ProgramTypeError: If ``array`` is not a tensor array.

    Example:
        >>> n = paddle.tensor.array_length(paddle.tensor.create_array("float32"))
        >>> static.Executor().run(fetch_list=[n])[0]
        array([0])
    """
    return emit("lod_array_length", {"X": check_array(array, "array", "array_length")})  # type: ignore[no-any-return]


@export("fluid.layers.tensor_array_to_tensor", "tensor.tensor_array_to_tensor", op="tensor_array_to_tensor")
def tensor_array_to_tensor(
    input: Variable, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """Joins the elements of a tensor array along an axis.

    Args:
        input: The tensor array.
        axis: An axis that the elements have, or, to stack, the axis that is added.
        name: Name of the layer.
        use_stack: Stacks the elements, which then have one shape.

    Returns:
        The joined value, and the size of each element along the axis, int32.

    Raises:
        ProgramTypeError: If ``input`` is not a tensor array.
        ProgramError: In a run, if it is empty.

    Example:
        >>> array = paddle.tensor.create_array("float32", [paddle.zeros([1, 2]), paddle.ones([3, 2])])
        >>> x, sizes = fluid.layers.tensor_array_to_tensor(array, axis=0)
        >>> static.Executor().run(fetch_list=[sizes])[0]
        array([1, 3], dtype=int32)
    """
    return join_array(check_array(input, "input", "tensor_array_to_tensor"), axis, use_stack, name)
