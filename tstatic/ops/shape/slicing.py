"""Selecting runs along axes: slice, strided_slice and crop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axis, check_length
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.ref import keywords
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.shapes import ANY, Array, as_list, clear, copy, emit_one, sizes_given, sizes_of, tensor_rank
from tstatic.ops.control.array_slice import slice_array
from tstatic.ops.control.tensor_array import is_array
from tstatic.ops.shape import _shape_onnx as _onnx

Runs = dict[int, tuple[int, int, int]]
"""Axis -> (start, stop, step), as ``slice`` was asked for."""

END = 2**63 - 1
"""The end of every axis. Paddle writes 2**31 - 1, which is a position inside an axis of more elements."""


def runs_of(axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int], rank: int) -> Runs:
    """Pairs axes with their bounds.

    Raises:
        ShapeError: If the lists differ in length, an axis is out of range or a step is 0.
    """
    steps = steps if len(steps) else [1] * len(axes)
    for given, arg in ((starts, "starts"), (ends, "ends"), (steps, "strides")):
        check_length(given, len(axes), arg, why="one for each of axes")
    runs: Runs = {}
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise ShapeError(
                "a stride of 0 selects nothing",
                expected="a stride other than 0",
                received=list(steps),
                fix="use a positive stride, or a negative one to go backwards",
            )
        runs[normalize_axis(axis, rank)] = (start, stop, step)
    return runs


def bounded(size: int, start: int, stop: int, step: int) -> slice:
    """Returns a Python slice of an axis of known size.

    Bounds count from the end when negative and are cut to the axis. With a negative step a stop of -1 means "past the
    first element", as in Paddle's ``strided_slice``.
    """
    if step > 0:
        # Bounds outside are cut, not refused, as in Python and Paddle.
        low = min(max(start + size if start < 0 else start, 0), size)
        high = min(max(stop + size if stop < 0 else stop, 0), size)
        return slice(low, max(low, high), step)
    # Backwards, bounds are cut to -1 (before the first element) and size - 1; a slice spells the former None.
    low = min(max(start + size if start < 0 else start, -1), size - 1)
    # Unlike Python, an end of -1 with a negative step is "before the first element", as Paddle writes it.
    high = -1 if stop == -1 else max(stop + size if stop < 0 else stop, 0)
    if low <= high:
        return slice(0, 0, 1)
    return slice(low, None if high < 0 else high, step)


def length(size: int, start: int, stop: int, step: int) -> int:
    """Returns how many elements a run selects; -1 when that depends on an unknown size."""
    if size == UNKNOWN:
        # Bounds that count from one end are in the same order for every size.
        same_side = (start < 0) == (stop < 0)
        if step > 0 and same_side and stop <= start:
            return 0
        return UNKNOWN
    return len(range(*bounded(size, start, stop, step).indices(size)))


def selected(shape: Shape, runs: Runs, gone: Sequence[int], op: str) -> Shape:
    """Returns the shape after a selection; axes in ``gone`` hold one element and are removed.

    Raises:
        IndexRangeError: If an axis that is to be removed does not hold exactly one element (an index out of range).
    """
    new = []
    for axis, size in enumerate(shape):
        kept = length(size, *runs[axis]) if axis in runs else size
        if axis not in gone:
            new.append(kept)
        # An axis goes only if an index chose it, so 0 elements mean that the index was outside.
        elif kept not in (1, UNKNOWN):
            raise IndexRangeError(
                f"index {runs[axis][0] if axis in runs else 0} is out of range for axis {axis} of size {size}",
                expected=f"an index from {-size} to {size - 1}",
                received=runs[axis][0] if axis in runs else 0,
                fix="check the index, or the size of the value that is sliced",
                op=op,
            )
    return tuple(new)


def window(array: Array, runs: Runs, gone: Sequence[int] = ()) -> Array:
    """Returns the selection as a view."""
    index = tuple(bounded(s, *runs[i]) if i in runs else slice(None) for i, s in enumerate(array.shape))
    # A 0-d array indexed with () would be a copy, not a view.
    part = array[index] if index else array
    return part.squeeze(tuple(gone)) if len(gone) else part


def positive(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Counts axes from the front."""
    return tuple(normalize_axis(a, rank) for a in axes)


def embed(target: Array, place: Array, value: Array) -> list[Call]:
    """Writes zeros everywhere, then ``value`` in its place (a view of ``target``)."""
    # A window of the whole size covers everything: no zeros are left over.
    if place.size == target.size:
        return [copy(place, value)]
    return [clear(target), copy(place, value)]


Find = Callable[..., tuple[Runs, Sequence[int]]]
"""``(shape, bounds given at run time, **attributes) -> (runs, axes that go)``."""


def selection(
    type: str,
    x: str,
    tensors: Sequence[str],
    attrs: Mapping[str, Any],
    find: Find,
    infer: Callable[..., Meta],
    domain: Domain,
    names: Sequence[str] | None = None,
) -> OpDef:
    """Defines an op that selects a run along each axis.

    Args:
        type: Op type.
        x: The slot that is selected from.
        tensors: Slots (with their marks) that hold bounds given at run time.
        attrs: Attributes.
        find: Says what is selected; a bound of a ``*`` slot is a list of arrays.
        infer: ``(x, *tensors, **attributes) -> Meta``.
        domain: Where tests may sample.
        names: The attributes that ``find`` uses, where its signature does not say them.
    """
    count = len(tensors)

    def view(array: Array, *given: Any, **values: Any) -> Array:
        runs, gone = find(array.shape, given, **values)
        selected(array.shape, runs, gone, type)
        return window(array, runs, gone)

    def calls(array: Array, *rest: Any, **values: Any) -> list[Call]:
        if any(_is_given(t) for t in rest[:count]):
            return [(late, (array, rest, values))]
        return [copy(rest[count], view(array, *rest[:count], **values))]

    def late(array: Array, rest: Sequence[Any], values: Mapping[str, Any]) -> None:
        # The bounds are values: they are not there yet when calls are made.
        np.copyto(rest[count], view(array, *rest[:count], **values))

    def fresh(array: Array, *rest: Any, **values: Any) -> list[Any]:
        return [np.array(view(array, *rest[:count], **values), order="C", copy=True)]

    def lower(torch: Any, tensor: Any, *given: Any, **values: Any) -> Any:
        runs, gone = find(tuple(tensor.shape), _to_numpy(given), **values)
        part, flipped = _torch_part(tensor, runs)
        # A view would be the input's memory.
        part = part.flip(flipped) if flipped else part.clone(memory_format=torch.contiguous_format)
        return part.squeeze(tuple(gone)) if len(gone) else part

    def back_calls(like: Array, *rest: Any, **values: Any) -> list[Call]:
        dout, dx = rest[count], rest[count + 1]
        if any(_is_given(t) for t in rest[:count]):
            return [(back_late, (rest, values))]
        return embed(dx, view(dx, *rest[:count], **values), dout)

    def back_late(rest: Sequence[Any], values: Mapping[str, Any]) -> None:
        dout, dx = rest[count], rest[count + 1]
        for function, args in embed(dx, view(dx, *rest[:count], **values), dout):
            function(*args)

    def back_lower(torch: Any, like: Any, *rest: Any, **values: Any) -> Any:
        runs, _ = find(tuple(like.shape), _to_numpy(rest[:count]), **values)
        dout = rest[count]
        dx = torch.zeros(tuple(like.shape), dtype=dout.dtype, device=dout.device)
        part, flipped = _torch_part(dx, runs)
        dout = dout.reshape(part.shape)
        part.copy_(dout.flip(flipped) if flipped else dout)
        return dx

    # Attributes such as infer_flags say nothing to the selection and are not passed on.
    names = keywords(find) if names is None else tuple(names)
    slots = ", ".join((x, *tensors))
    plain = [t.rstrip("*?") for t in tensors]
    return OpDef(
        type,
        f"{slots} -> Out",
        lod=x,
        attrs=attrs,
        infer=infer,
        ref=copies(calls, fresh, attrs=names),
        lower=lambda torch, *given, **values: lower(torch, *given, **{n: values[n] for n in names}),
        view=lambda array, **values: view(array, *[None] * count, **{n: values[n] for n in names}),
        grad=GradOp(
            f"{slots}, Out@GRAD -> {x}@GRAD",
            ref=copies(back_calls, attrs=names),
            lower=lambda torch, *given, **values: back_lower(torch, *given, **{n: values[n] for n in names}),
            shape_only=(x,),
            grad=grad_is_forward_op(type, x, "Out", plain),
        ),
        amp="gray",
        domain=domain,
        complex="linear",
    )


def _torch_part(tensor: Any, runs: Runs) -> tuple[Any, list[int]]:
    """Returns the selected part of a tensor as a view, and the axes along which it has to be read backwards.

    torch's slices have no negative steps.
    """
    index, flipped = [slice(None)] * tensor.dim(), []
    for axis, run in runs.items():
        places = range(*bounded(tensor.shape[axis], *run).indices(tensor.shape[axis]))
        # torch slices forwards only: the same elements forwards, then a flip.
        if places.step < 0:
            places = places[::-1]
            flipped.append(axis)
        index[axis] = slice(places.start, places.stop, places.step) if places else slice(0, 0)
    return tensor[tuple(index)], flipped


def _is_given(tensor: Any) -> bool:
    return tensor is not None and not (isinstance(tensor, list | tuple) and len(tensor) == 0)


def _to_numpy(given: Sequence[Any]) -> list[Any]:
    return [
        [t.cpu().numpy() for t in g] if isinstance(g, list | tuple) else None if g is None else g.cpu().numpy()
        for g in given
    ]


# ---------------------------------------------------------------------------------------------- slice and strided_slice
def _slice_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle's bounds have 32 bits; an open end is the largest of them. It reads a flag for each axis, also where none is."""
    most = 2**31 - 1
    changed = {n: tuple(max(-most, min(most, v)) for v in op.attrs[n]) for n in ("starts", "ends")}
    flags = op.attrs["infer_flags"] or (1,) * len(op.attrs["axes"])
    return [op.made(attrs={**op.attrs, **changed, "infer_flags": flags})]


def _slice_op(
    type: str, bounds: Sequence[str], cases: Sequence[tuple[Shape, Mapping[str, Any]]], onnx: Callable[..., Any]
) -> None:
    """Registers an op that selects runs along axes.

    Args:
        type: Op type.
        bounds: Its attributes with bounds; each may be given at run time, as one Variable or as a list of them.
        cases: (shape, attributes) for tests.
        onnx: Its form in ONNX.
    """
    count = len(bounds)
    slots = [f"{name.capitalize()}Tensor" for name in bounds]

    def runs(lists: Sequence[Sequence[int]], attrs: Mapping[str, Any], rank: int) -> Runs:
        starts, ends, *strides = lists
        return runs_of(attrs["axes"], starts, ends, strides[0] if strides else (), rank)

    def find(shape: Shape, given: Sequence[Any], **attrs: Any) -> tuple[Runs, Sequence[int]]:
        late = zip(bounds, given[:count], given[count:], strict=True)
        lists = [sizes_of(attrs[name], tensor, each) for name, tensor, each in late]
        return runs(lists, attrs, len(shape)), positive(attrs["decrease_axis"], len(shape))

    def infer(x: Meta, *given: Any, **attrs: Any) -> Meta:
        axes, gone = attrs["axes"], positive(attrs["decrease_axis"], x.rank)
        lists = [attrs[name] for name in bounds]
        pairs = zip(given[:count], given[count:], strict=True)
        # All bounds are numbers: the shape follows from them alone.
        if all(tensor_rank(tensor, each, "a bound") is None for tensor, each in pairs):
            return x.with_shape(selected(x.shape, runs(lists, attrs, x.rank), gone, type))
        shape, sliced = list(x.shape), positive(axes, x.rank)
        # Where one bound is a Variable, the flags say which axes have numbers.
        flags = attrs["infer_flags"] if len(attrs["infer_flags"]) == len(axes) else (-1,) * len(axes)
        known = runs(lists, attrs, x.rank) if any(f != -1 for f in flags) else {}
        for axis, flag in zip(sliced, flags, strict=True):
            shape[axis] = UNKNOWN if flag == -1 else length(x.shape[axis], *known[axis])
        return x.with_shape(s for i, s in enumerate(shape) if i not in gone)

    attrs = {
        "axes": Attr(kind="ints"), **{name: Attr((), "ints") for name in bounds},
        "infer_flags": Attr.idle((), "the slots say which bounds are Variables", "ints"),
        "decrease_axis": Attr((), "ints"),
    }  # fmt: skip
    domain = Domain(
        cases=tuple(Case((shape, *[None] * 2 * count), given) for shape, given in cases), others=ANY, ulps=0
    )
    tensors = (*(f"{slot}?" for slot in slots), *(f"{slot}List*?" for slot in slots))
    definition = selection(type, "Input", tensors, attrs, find, infer, domain, ("axes", *bounds, "decrease_axis"))
    register(replace(definition, paddle=PaddleForm(write=_slice_write), onnx=onnx))


_slice_op(
    "slice", ("starts", "ends"),
    (
        ((5, 4), {"axes": (0,), "starts": (1,), "ends": (3,)}),
        ((5, 4), {"axes": (0, 1), "starts": (-3, 0), "ends": (-1, 100)}),
        ((5, 4), {"axes": (0,), "starts": (2,), "ends": (3,), "decrease_axis": (0,)}),
        ((3, 4, 2), {"axes": (-1, 0), "starts": (1, 0), "ends": (2, 2), "decrease_axis": (2,)}),
        ((5, 4), {"axes": (1,), "starts": (3,), "ends": (1,)}), ((0, 4), {"axes": (0,), "starts": (0,), "ends": (2,)}),
        ((6,), {"axes": (0,), "starts": (5,), "ends": (6,), "decrease_axis": (0,)}),
        ((2, 3), {"axes": (), "starts": (), "ends": ()}),
    ), _onnx.slice_form,
)  # fmt: skip


def bounds(value: Any, first: str, each: str, inputs: dict[str, Any], flags: list[int]) -> list[Any]:
    """Splits bounds into the attribute and inputs (added to ``inputs``); clears the flags of bounds not known yet."""
    attr, tensor, tensors = sizes_given(value)
    inputs[first], inputs[each] = tensor, tensors
    if tensor is not None:
        flags[:] = [-1] * len(flags)
        # -1 in the attribute marks a bound that a Variable gives.
        return [-1] * len(flags)
    for i, item in enumerate(as_list(value)[: len(flags)]):
        if isinstance(item, Variable):
            flags[i] = -1
    return attr


@export("tensor.slice", "Variable.slice", "fluid.layers.slice", op="slice")
def slice_(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Variable:
    """Selects ``starts[i] : ends[i]`` along axis ``axes[i]``.

    Args:
        input: ``[...]``, any dtype; or a tensor array, of which the result is one, too: its only axis is 0.
        axes: Axes.
        starts: First positions; a list of ints and Variables, or one Variable. Negative ones count from the end.
        ends: Positions behind the last; those beyond the axis mean its end.

    Raises:
        ShapeError: If the lists differ in length or an axis is out of range.
        IndexRangeError: In a run, if no element of a tensor array is left.

    Example:
        >>> x = paddle.to_tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        >>> y = paddle.slice(x, axes=[0, 1], starts=[1, -2], ends=[3, 3])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[5, 6],
               [8, 9]])
    """
    if is_array(input):
        for axis in as_list(axes):
            check_axis(axis, 1, "axes", "slice")
        return slice_array(input, starts, ends)
    x = check_variable(input, "input", "slice")
    inputs: dict[str, Any] = {"Input": x}
    flags = [1] * len(as_list(axes))
    first = bounds(starts, "StartsTensor", "StartsTensorList", inputs, flags)
    last = bounds(ends, "EndsTensor", "EndsTensorList", inputs, flags)
    attrs = {"axes": as_list(axes), "starts": first, "ends": last, "infer_flags": flags}
    return emit_one("slice", inputs, attrs)


# -------------------------------------------------------------------------------------------------------- strided_slice
_slice_op(
    "strided_slice", ("starts", "ends", "strides"),
    (
        ((7, 4), {"axes": (0,), "starts": (1,), "ends": (6,), "strides": (2,)}),
        ((7, 4), {"axes": (0,), "starts": (100,), "ends": (-1,), "strides": (-1,)}),
        ((7, 4), {"axes": (0, 1), "starts": (5, -1), "ends": (1, -4), "strides": (-2, -1)}),
        ((7, 4), {"axes": (-1,), "starts": (0,), "ends": (2**31 - 1,), "strides": (3,)}),
        ((0, 4), {"axes": (0,), "starts": (0,), "ends": (3,), "strides": (2,)}),
        ((0, 4), {"axes": (0,), "starts": (3,), "ends": (-1,), "strides": (-2,)}),
        ((6,), {"axes": (0,), "starts": (1,), "ends": (4,), "strides": (-1,)}),
        ((3, 4), {"axes": (0, 1), "starts": (1, 0), "ends": (2, 4), "strides": (1, 2), "decrease_axis": (0,)}),
    ), _onnx.strided_slice,
)  # fmt: skip


@export("tensor.strided_slice", "Variable.strided_slice", op="strided_slice")
def strided_slice(
    x: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any, name: str | None = None
) -> Variable:
    """Selects ``starts[i] : ends[i] : strides[i]`` along axis ``axes[i]``.

    Args:
        x: ``[...]``, any dtype.
        axes: Axes.
        starts: First positions; a list of ints and Variables, or one Variable. Negative ones count from the end.
        ends: Positions behind the last; beside a negative stride -1 means "past the first element".
        strides: Steps, not 0.
        name: Name of the layer.

    Raises:
        ShapeError: If the lists differ in length, an axis is out of range or a stride is 0.
    """
    x = check_variable(x, "x", "strided_slice")
    inputs: dict[str, Any] = {"Input": x}
    flags = [1] * len(as_list(axes))
    attrs = {
        "axes": as_list(axes),
        "starts": bounds(starts, "StartsTensor", "StartsTensorList", inputs, flags),
        "ends": bounds(ends, "EndsTensor", "EndsTensorList", inputs, flags),
        "strides": bounds(strides, "StridesTensor", "StridesTensorList", inputs, flags),
        "infer_flags": flags,
    }
    return emit_one("strided_slice", inputs, attrs, name=name)


@export("fluid.layers.strided_slice", op="strided_slice")
def fluid_strided_slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any) -> Variable:
    """Calls :func:`strided_slice` under its older signature.

    Args:
        input: The ``x`` of :func:`strided_slice`.
        axes, starts, ends, strides: As there.
    """
    return strided_slice(input, axes, starts, ends, strides)


# ----------------------------------------------------------------------------------------------------------------- crop
def _sizes(old: Shape, shape: Sequence[int], offsets: Sequence[int]) -> tuple[list[int], list[int]]:
    """(offsets, sizes), -1 meaning up to the end; checks what is known."""
    offsets = list(offsets) if len(offsets) else [0] * len(old)
    check_length(
        shape, len(old), "shape", why="one for each dimension", fix="give each dimension a size; -1: up to the end"
    )
    check_length(offsets, len(old), "offsets", why="one for each dimension")
    sizes = []
    for size, low, kept in zip(old, offsets, shape, strict=True):
        # -1 is "the rest behind the offset".
        kept = (size - low if size >= 0 else UNKNOWN) if kept == UNKNOWN else kept
        if low < 0 or kept < UNKNOWN or (size >= 0 and low + max(kept, 0) > size):
            raise ShapeError(
                "the window lies outside the value",
                expected=f"offsets of at least 0 and offset + size within {list(old)}",
                received=f"shape {list(shape)} and offsets {offsets}",
                fix="make offset + size at most the size of the value along each axis; a size of -1 reaches to the end",
            )
        sizes.append(kept)
    return offsets, sizes


def _find_crop(
    old: Shape, given: Sequence[Any], *, shape: Sequence[int], offsets: Sequence[int]
) -> tuple[Runs, Sequence[int]]:
    size, sizes, offset, offset_list = given
    lows, kept = _sizes(old, sizes_of(shape, size, sizes), sizes_of(offsets, offset, offset_list))
    return {i: (low, low + n, 1) for i, (low, n) in enumerate(zip(lows, kept, strict=True))}, ()


def _infer_crop(x: Meta, *given: Any, shape: Sequence[int], offsets: Sequence[int]) -> Meta:
    size, sizes, offset, offset_list = given
    free_size = tensor_rank(size, sizes, "shape") is not None
    free_offset = tensor_rank(offset, offset_list, "offsets") is not None
    if free_size:
        return x.with_shape(max(s, UNKNOWN) for s in shape) if len(shape) == x.rank else x.with_shape([-1] * x.rank)
    if free_offset:
        return x.with_shape(shape)
    return x.with_shape(_sizes(x.shape, shape, offsets)[1])


# Sizes and offsets are numbers in these cases; tests of Variables are written out.
_NONE = (None,) * 4
register(replace(selection(
    "crop_tensor", "X", ("Shape?", "ShapeTensor*?", "Offsets?", "OffsetsTensor*?"),
    {"shape": Attr((), "ints"), "offsets": Attr((), "ints")}, _find_crop, _infer_crop,
    Domain(
        cases=(
            Case(((5, 4), *_NONE), {"shape": (2, 3), "offsets": (1, 0)}),
            Case(((5, 4), *_NONE), {"shape": (-1, 2), "offsets": (3, 2)}),
            Case(((5, 4), *_NONE), {"shape": (5, 4), "offsets": ()}),
            Case(((2, 3, 4), *_NONE), {"shape": (1, -1, 1), "offsets": (1, 0, 3)}),
            Case(((0, 3), *_NONE), {"shape": (0, 2), "offsets": (0, 1)}),
            Case(((6,), *_NONE), {"shape": (0,), "offsets": (6,)}),
        ),
        others=ANY, ulps=0,
    ),
), onnx=_onnx.crop))  # fmt: skip


@export("tensor.crop", "Variable.crop", "fluid.layers.crop_tensor", op="crop_tensor")
def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Cuts out a window.

    Args:
        x: ``[...]``, any dtype.
        shape: The window's sizes; -1 means up to the end. A list of ints and Variables, or one Variable. Without it the
            whole value.
        offsets: Where it begins; zeros by default.
        name: Name of the layer.

    Raises:
        ShapeError: If the window lies outside the value.
    """
    x = check_variable(x, "x", "crop")
    sizes, size, size_list = sizes_given([-1] * len(x.shape) if shape is None else shape)
    lows, low, low_list = sizes_given([0] * len(x.shape) if offsets is None else offsets)
    inputs = {"X": x, "Shape": size, "ShapeTensor": size_list, "Offsets": low, "OffsetsTensor": low_list}
    return emit_one("crop_tensor", inputs, {"shape": sizes, "offsets": lows}, name=name)


@export("fluid.layers.crop", op="crop_tensor")
def fluid_crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Calls :func:`crop`; of a Variable given as ``shape`` the shape counts, not the values.

    Args:
        x, offsets: As in :func:`crop`.
        shape: The same; of a Variable only its shape counts.
        name: Name of the layer.
    """
    sizes = list(shape.shape) if isinstance(shape, Variable) else shape
    return crop(x, sizes, offsets, name)
