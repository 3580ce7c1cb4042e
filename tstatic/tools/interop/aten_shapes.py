"""Views, copies in another order, joining, splitting and indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import as_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, bool_, int64
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise.logic import where
from tstatic.ops.functions import placing
from tstatic.ops.indexing import along_axis, gather
from tstatic.ops.shape import diagonal, expanding, joining, reshape, sequence, slicing, transpose, vision
from tstatic.ops.shape.creation import full
from tstatic.ops.shape.pad import pad as pad_images
from tstatic.tools.interop.conversion import Call, Size, family

converts = family("shapes")

LAST = 2**31 - 1
"""A position behind the end of any axis, as the ops' attributes take it."""


# ---------------------------------------------------------------------------------------------------------------- shapes
def reshaped(c: Call, x: Variable, sizes: Sequence[int | str], given: Sequence[Any] = ()) -> Variable:
    """Returns ``x`` in another shape.

    At most one size can be left to the op; of the others, those of the same axis of ``x`` are kept (0), and what is left is
    computed when the program runs.

    Args:
        c: The call.
        x: What is reshaped.
        sizes: The new sizes, texts for those that are known when the program runs.
        given: Arguments of the call that these may be found among.
    """
    if c.sizes_of(x) == tuple(sizes):
        return x
    known = {size.text: size for size in given if isinstance(size, Size)}
    open_axes = [i for i, size in enumerate(sizes) if isinstance(size, str)]
    if not open_axes and 0 in sizes:
        # In a shape that the op is given, 0 means the size of the input. Without elements there is nothing to order.
        return full([size for size in sizes if isinstance(size, int)], 0, x.dtype)
    if len(open_axes) <= 1:
        return reshape.reshape(x, [size if isinstance(size, int) else UNKNOWN for size in sizes])
    old = c.sizes_of(x)
    shape: list[Any] = list(sizes)
    for i in open_axes:
        if i < len(old) and old[i] == sizes[i]:
            shape[i] = 0
    left = [i for i in open_axes if isinstance(shape[i], str)]
    if left:
        shape[left[0]] = UNKNOWN
    for i in left[1:]:
        if sizes[i] in old:
            shape[i] = _size_of(x, old.index(sizes[i]))
            continue
        found = known.get(str(sizes[i]))
        if found is None:
            raise c.refuse(
                "several sizes are known only when the program runs, and one of them is not an argument",
                "sizes that the module reads from a shape", sizes[i], "give one of the sizes as a number",
            )  # fmt: skip
        shape[i] = found.variable()
    if any(isinstance(size, Variable) for size in shape):
        # Beside Variables a 0 would be a size.
        shape = [_size_of(x, i) if isinstance(size, int) and size == 0 else size for i, size in enumerate(shape)]
    return reshape.reshape(x, shape)


def _size_of(x: Variable, axis: int) -> Variable:
    return cast_to(sequence.shape(x)[axis], int64)


@converts("view.default", "reshape.default", "_unsafe_view.default")
def _view(c: Call, x: Variable, sizes: Sequence[Any]) -> Variable:
    return reshaped(c, x, c.sizes, sizes)


@converts("flatten.using_ints", "unflatten.int")
def _flatten(c: Call, x: Variable, *rest: Any) -> Variable:
    return reshaped(c, x, c.sizes, [size for one in rest if isinstance(one, list | tuple) for size in one])


@converts("view_as.default", "reshape_as.default")
def _view_as(c: Call, x: Variable, other: Variable) -> Variable:
    return reshaped(c, x, c.sizes)


@converts("squeeze.default")
def _squeeze(c: Call, x: Variable) -> Variable:
    axes = [i for i, size in enumerate(x.shape) if size == 1]
    return reshape.squeeze(x, axes) if axes else x


@converts("squeeze.dim", "squeeze.dims")
def _squeeze_axes(c: Call, x: Variable, axes: int | Sequence[int]) -> Variable:
    chosen = [axes] if isinstance(axes, int) else list(axes)
    present = [axis for axis in chosen if x.shape and x.shape[axis] == 1]
    return reshape.squeeze(x, present) if present else x


@converts("unsqueeze.default")
def _unsqueeze(c: Call, x: Variable, axis: int) -> Variable:
    return reshape.unsqueeze(x, axis)


@converts("transpose.int", "swapaxes.default", "swapdims.default")
def _transpose(c: Call, x: Variable, first: int, second: int) -> Variable:
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return transpose.transpose(x, order) if order != sorted(order) else x


@converts("t.default", "numpy_T.default", "mT.default")
def _turned(c: Call, x: Variable) -> Variable:
    return (
        transpose.transpose(x, [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2])
        if len(x.shape) > 1
        else x
    )


@converts("permute.default")
def _permute(c: Call, x: Variable, order: Sequence[int]) -> Variable:
    whole = [axis % len(order) for axis in order]
    return transpose.transpose(x, whole) if whole != sorted(whole) else x


@converts("movedim.int", "movedim.intlist")
def _movedim(c: Call, x: Variable, source: Any, destination: Any) -> Variable:
    return transpose.moveaxis(x, source, destination)


@converts("expand.default")
def _expand(c: Call, x: Variable, sizes: Sequence[Any], implicit: bool = False) -> Variable:
    old, new = c.sizes_of(x), c.sizes
    if old == new:
        return x
    lead = len(new) - len(old)
    shape = []
    for i, (size, argument) in enumerate(zip(new, sizes, strict=True)):
        kept = i >= lead and old[i - lead] == size
        shape.append(UNKNOWN if kept else size if isinstance(size, int) else c.sizes_given([argument])[0])
    return expanding.expand(x, shape)


@converts("expand_as.default")
def _expand_as(c: Call, x: Variable, other: Variable) -> Variable:
    return x if c.sizes_of(x) == c.sizes else expanding.expand_as(x, other)


@converts("broadcast_tensors.default")
def _broadcast(c: Call, xs: Sequence[Variable]) -> list[Variable]:
    if all(c.sizes_of(x) == c.sizes for x in xs):
        return list(xs)
    return expanding.broadcast_tensors(list(xs))


@converts("repeat.default", "tile.default")
def _repeat(c: Call, x: Variable, times: Sequence[Any]) -> Variable:
    return expanding.tile(x, c.sizes_given(times))


@converts("repeat_interleave.self_int")
def _repeat_interleave(
    c: Call, x: Variable, repeats: int, axis: int | None = None, output_size: Any = None
) -> Variable:
    return expanding.repeat_interleave(x, repeats, axis)


@converts("flip.default")
def _flip(c: Call, x: Variable, axes: Sequence[int]) -> Variable:
    return transpose.flip(x, list(axes))


@converts("roll.default")
def _roll(c: Call, x: Variable, shifts: Sequence[int], axes: Sequence[int] = ()) -> Variable:
    return transpose.roll(x, list(shifts), list(axes) or None)


@converts("pixel_shuffle.default")
def _pixel_shuffle(c: Call, x: Variable, factor: int) -> Variable:
    return vision.pixel_shuffle(x, factor)


@converts("diagonal.default")
def _diagonal(c: Call, x: Variable, offset: int = 0, first: int = 0, second: int = 1) -> Variable:
    return diagonal.diagonal(x, offset, first, second)


# ------------------------------------------------------------------------------------------------------- join and split
@converts("cat.default", "concat.default")
def _cat(c: Call, xs: Sequence[Variable], axis: int = 0) -> Variable:
    # A tensor of shape [0] joins with anything.
    whole = [c.cast(x) for x in xs if x.shape != (0,) or c.shape == (0,)]
    return joining.concat(whole, axis) if len(whole) > 1 else whole[0]


@converts("stack.default")
def _stack(c: Call, xs: Sequence[Variable], axis: int = 0) -> Variable:
    return joining.stack([c.cast(x) for x in xs], axis)


@converts("split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default")
def _split(c: Call, x: Variable, sizes: Any, axis: int = 0) -> list[Variable]:
    parts = [result.sizes[axis] for result in c.results]
    if any(isinstance(part, str) for part in parts):
        raise c.refuse("along an axis whose size is open", "a known size", f"axis {axis} of {list(c.sizes_of(x))}")
    return joining.split(x, parts, axis) if len(parts) > 1 else [x]


@converts("unbind.int")
def _unbind(c: Call, x: Variable, axis: int = 0) -> list[Variable]:
    return joining.unbind(x, axis)


@converts("constant_pad_nd.default")
def _constant_pad(c: Call, x: Variable, pads: Sequence[int], value: float = 0.0) -> Variable:
    return _pad(c, x, pads, "constant", value)


@converts("pad.default")
def _pad(c: Call, x: Variable, pads: Sequence[int], mode: str = "constant", value: float | None = None) -> Variable:
    if any(isinstance(amount, Size) for amount in pads):
        raise c.refuse("by sizes that are known when the program runs", "numbers", "sizes")
    rank, pairs = len(x.shape), [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)]
    # Negative amounts cut off.
    cut = [(rank - 1 - i, max(0, -a), max(0, -b)) for i, (a, b) in enumerate(pairs) if a < 0 or b < 0]
    for axis, before, behind in cut:
        x = slicing.slice_(x, [axis], [before], [-behind if behind else LAST])
    pairs = [(max(0, a), max(0, b)) for a, b in pairs]
    if not any(a or b for a, b in pairs):
        return x
    if mode == "constant":
        number = 0.0 if value is None else float(value)
        # One pair for each axis from the front, as the op of any rank has them.
        every = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
        padded: Variable = emit("pad", {"X": x}, {"paddings": [n for pair in every for n in pair], "pad_value": number})
        return padded
    layouts = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
    if rank not in layouts or len(pairs) != rank - 2:
        raise c.refuse(f"with mode '{mode}'", "an input [n, c, ...] whose places are padded", f"{len(pads)} amounts")
    return pad_images(x, [n for pair in pairs for n in pair], mode, 0.0, layouts[rank])


# -------------------------------------------------------------------------------------------------------------- indexing
@converts("slice.Tensor")
def _slice(c: Call, x: Variable, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Variable:
    first, last = (0 if start is None else start), (LAST if end is None else end)
    last = min(last, LAST) if isinstance(last, int) else last
    if (first == 0 and last == LAST and step == 1) if isinstance(first, int) and isinstance(last, int) else False:
        return x
    if isinstance(first, int) and isinstance(last, int) and step != 1:
        return slicing.strided_slice(x, [axis], [first], [last], [step])
    if step != 1:
        raise c.refuse("with a step and open positions", "positions that are numbers", "sizes")
    return slicing.slice_(x, [axis], c.sizes_given([first]), c.sizes_given([last]))


@converts("narrow.default")
def _narrow(c: Call, x: Variable, axis: int, start: int, length: Any) -> Variable:
    if isinstance(start, Size) or isinstance(length, Size):
        raise c.refuse("with open positions", "positions that are numbers", "sizes")
    # A negative start counts from the end, where 0 would be the end of an empty slice.
    end = start + length
    return slicing.slice_(x, [axis], [start], [LAST if start < 0 <= end else end])


@converts("select.int")
def _select(c: Call, x: Variable, axis: int, index: Any) -> Variable:
    if isinstance(index, Size):
        raise c.refuse("at an open position", "a number", "a size")
    axis = axis % len(x.shape)
    end = index + 1 if index != -1 else LAST
    attrs = {"axes": (axis,), "starts": (index,), "ends": (end,), "decrease_axis": (axis,)}
    taken: Variable = emit("slice", {"Input": x}, attrs)
    return taken


@converts("index_select.default")
def _index_select(c: Call, x: Variable, axis: int, index: Variable) -> Variable:
    return gather.index_select(x, index, axis)


@converts("gather.default")
def _gather(c: Call, x: Variable, axis: int, index: Variable, sparse_grad: bool = False) -> Variable:
    # torch reads the part of x that lies before the index's sizes along the other axes.
    for i, (own, wanted) in enumerate(zip(c.sizes_of(x), c.sizes_of(index), strict=True)):
        if i != axis % len(x.shape) and own != wanted:
            if not isinstance(wanted, int):
                raise c.refuse("with an index whose size is open and another one", own, wanted)
            x = slicing.slice_(x, [i], [0], [wanted])
    return along_axis.take_along_axis(x, index, axis, broadcast=False)


@converts("scatter.src", "scatter_add.default", "scatter.value")
def _scatter(c: Call, x: Variable, axis: int, index: Variable, source: Any) -> Variable:
    if isinstance(source, Variable) and c.sizes_of(source) != c.sizes_of(index):
        raise c.refuse("with an index smaller than what is placed", c.sizes_of(source), c.sizes_of(index))
    how = "add" if "scatter_add" in c.name else "assign"
    return along_axis.put_along_axis(x, index, c.cast(source), axis, how, broadcast=False)


@converts("select_scatter.default")
def _select_scatter(c: Call, x: Variable, source: Variable, axis: int, index: int) -> Variable:
    return placing.select_scatter(x, c.cast(source), axis, index)


@converts("slice_scatter.default")
def _slice_scatter(
    c: Call, x: Variable, source: Variable, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Variable:
    size = c.sizes_of(x)[axis]
    if not isinstance(size, int) or step != 1 or isinstance(start, Size) or isinstance(end, Size):
        whole = (start or 0) == 0 and (end is None or (isinstance(end, int) and end >= LAST)) and step == 1
        if whole:
            return c.cast(source)
        raise c.refuse(
            "along an axis whose size is open, or with a step", "a known size and a step of 1", c.sizes_of(x)
        )
    first, last, _ = slice(start, end).indices(size)
    parts = [slicing.slice_(x, [axis], [0], [first])] if first > 0 else []
    parts.append(c.cast(source))
    if last < size:
        parts.append(slicing.slice_(x, [axis], [last], [size]))
    return joining.concat(parts, axis) if len(parts) > 1 else parts[0]


@converts("index.Tensor")
def _index(c: Call, x: Variable, indices: Sequence[Variable | None]) -> Variable:
    used = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype.name in ("bool", "uint8") for index in given):
        raise c.refuse("with a mask: how many elements it selects is known only when the program runs",
                       "an index of whole numbers", "a mask", "write torch.where(mask, x, other)")  # fmt: skip
    if used != list(range(used[0], used[0] + len(used))):
        raise c.refuse("with indices of axes that are not neighbours", "neighbouring axes", f"axes {used}")
    first, count = used[0], len(used)
    whole = [_from_front(c, x, index, first + k) for k, index in enumerate(given)]
    if count == 1:
        index = whole[0]
        flat = reshape.reshape(index, [UNKNOWN]) if len(index.shape) != 1 else index
        taken = gather.gather(x, flat, first)
        return taken if len(index.shape) == 1 else reshaped(c, taken, c.sizes)
    # The indexed axes in front, one coordinate for each, then the result's own axes back in their place.
    order = [*used, *(i for i in range(len(x.shape)) if i not in used)]
    moved = transpose.transpose(x, order) if first else x
    joined = joining.stack(expanding.broadcast_tensors([cast_to(index, int64) for index in whole]), -1)
    taken = gather.gather_nd(moved, joined)
    if not first:
        return taken
    width = len(joined.shape) - 1
    back = [*range(width, width + first), *range(width), *range(width + first, len(taken.shape))]
    return transpose.transpose(taken, back)


def _from_front(c: Call, x: Variable, index: Variable, axis: int) -> Variable:
    """Returns an index whose negative numbers are counted from the front."""
    size = c.sizes_of(x)[axis]
    end = as_variable(size, dtype=index.dtype) if isinstance(size, int) else cast_to(_size_of(x, axis), index.dtype)
    return where(index < 0, index + end, index)


@converts("masked_select.default", "nonzero.default")
def _dynamic(c: Call, *arguments: Any) -> Variable:
    raise c.refuse("the size of its result is known only when the program runs", "results of known sizes", "a selection",
                   "write torch.where(mask, x, other)")  # fmt: skip


@converts("one_hot.default")
def _one_hot(c: Call, x: Variable, classes: int = -1) -> Variable:
    if not isinstance(classes, int) or classes < 1:
        raise c.refuse("without the number of classes", "num_classes > 0", classes)
    numbers = sequence.arange(0, classes, 1, x.dtype)
    hot = emit("equal", {"X": reshape.unsqueeze(x, -1), "Y": numbers})
    return cast_to(hot, c.dtype if c.dtype is not bool_ else int64)
