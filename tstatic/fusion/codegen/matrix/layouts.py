"""Where the elements of a matrix lie that is behind reshapes, transposes, splits and joins: strides in the memory of another value.

A kernel that reads and writes through strides needs none of these ops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tstatic.fusion.codegen.kernel import Matrices, steps_of
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.fusion.codegen.text.size_names import SizeNames, product_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import EMPTY, GRAD
from tstatic.ir.types import Meta, Shape


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a value lie.

    Attributes:
        value: The value in whose memory they lie.
        shape: Size of each dimension.
        strides: Elements between neighbours along each dimension.
        offset: The first element's place.
        factor: By what an element is multiplied when it is read or written; ``None``: by nothing.
    """

    value: str
    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0
    factor: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is the whole value, as it lies in memory."""
        return self == contiguous(self.value, self.shape)

    @property
    def rows_lie(self) -> bool:
        """Whether the elements of a row of the last dimension lie side by side."""
        return not self.shape or self.strides[-1] == 1 or self.shape[-1] == 1

    @property
    def matrices(self) -> Matrices:
        """Where its elements lie, as a library is told."""
        return Matrices(self.shape, self.strides, self.offset)

    def permuted(self, order: Sequence[int]) -> Layout:
        """Returns it with dimensions in another order: the result's ``i`` is dimension ``order[i]`` here."""
        at = [i % len(self.shape) for i in order]
        return replace(self, shape=tuple(self.shape[i] for i in at), strides=tuple(self.strides[i] for i in at))

    def cut(self, axis: int, start: int, size: int) -> Layout:
        """Returns a run of indices along an axis."""
        axis %= len(self.shape)
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return replace(self, shape=shape, offset=self.offset + start * self.strides[axis])

    def entry(self, axis: int, index: int) -> Layout:
        """Returns one index of an axis, which is removed."""
        axis %= len(self.shape)
        own = self.cut(axis, index, 1)
        return replace(
            own,
            shape=own.shape[:axis] + own.shape[axis + 1 :],
            strides=own.strides[:axis] + own.strides[axis + 1 :],
        )

    def reshaped(self, shape: Shape) -> Layout | None:
        """Returns it in another shape of as many elements in the same order; ``None`` where no strides say that."""
        # Along a size of 1 no step is ever made, whatever the stride.
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        left = list(shape)
        while old:
            # The fewest leading dimensions of both shapes that hold as many elements.
            sizes, mine = [left.pop(0)], [old.pop(0)]
            while (have := math.prod(sizes)) != (want := math.prod(n for n, _ in mine)):
                if have < want and left:
                    sizes.append(left.pop(0))
                elif have > want and old:
                    mine.append(old.pop(0))
                else:
                    return None
            # Dimensions that become one have to follow each other without gaps.
            if any(s != n * t for (_, s), (n, t) in pairwise(mine)):
                return None
            step, found = mine[-1][1], list[int]()
            for n in reversed(sizes):
                found.append(step)
                step *= n
            strides += reversed(found)
        # What is left are sizes of 1.
        return replace(self, shape=shape, strides=(*strides, *(1 for _ in left)))

    def multiplied(self, factor: float) -> Layout | None:
        """Returns it with a factor; ``None`` if it has one, since each product is rounded."""
        return replace(self, factor=factor) if self.factor is None else None


def contiguous(value: str, shape: Shape) -> Layout:
    """Returns the layout of a value of its own."""
    return Layout(value, shape, steps_of(shape))


# ------------------------------------------------------------------------------------------------------------------- ops
def operand(op: FrozenOp) -> str | None:
    """Returns the value whose elements an op moves to other places; ``None`` for an op that does something else."""
    if op.body:
        return None
    match op.type:
        case "transpose2" | "split" | "unbind" | "unstack":
            entry = op.input("X")
        case "reshape2" | "slice":
            # Shapes and bounds in tensors are known only when the program runs.
            first, *others = op.inputs
            entry = first if not any(e for e in others) else None
        case "scale":
            entry = op.input("X") if op.attrs["bias"] == 0 and len([*op.reads()]) == 1 else None
        case _:
            return None
    return entry if isinstance(entry, str) else None


def batch_offset(layout: Layout, batch: str, sizes: SizeNames, name: str, what: str) -> str:
    """Returns the text of the offset of the first element of a batch.

    Args:
        layout: Where the matrices lie.
        batch: Text of the batch's number.
        sizes: Gets the names of its sizes and strides, which begin with
        name: this, in capitals,
        what: and are those of this.
    """
    outer = [(n, s) for n, s in zip(layout.shape[:-2], layout.strides[:-2], strict=True) if n > 1]
    start = f"{sizes(f'{name}_START', layout.offset, f'where {what} begin')} + " if layout.offset else ""
    # One stride where all lie at one distance.
    if all(s == n * t for (_, s), (n, t) in pairwise(outer)):
        step = outer[-1][1] if outer else layout.shape[-2] * layout.strides[-2]
        return f"{start}{batch} * {sizes(f'{name}_BATCH', step, f'elements from batch to batch of {what}')}"
    terms: list[str] = []
    inner: list[str] = []
    # Axes of the batches, the innermost first.
    for place, (n, s) in enumerate(reversed(outer)):
        axis = len(outer) - 1 - place
        index = f"{batch} // {product_of(inner)}" if inner else batch
        size = sizes(f"{name}_SIZE_{axis}", n, f"size of axis {axis} of the batches of {what}")
        stride = sizes(f"{name}_STEP_{axis}", s, "elements from index to index of that axis")
        terms.insert(0, f"{index} * {stride}" if axis == 0 else f"{index} % {size} * {stride}")
        inner.insert(0, size)
    return f"{start}{' + '.join(terms)}"


def is_join(op: FrozenOp) -> bool:
    """Returns whether an op makes one value of the elements of several."""
    match op.type:
        case "concat" | "stack" | "sum":
            return not op.body and isinstance(op.inputs[0], tuple)
    return False


def takes_apart(op: FrozenOp) -> bool:
    """Returns whether an op makes parts of a value."""
    match op.type:
        case "split" | "unbind" | "unstack" | "slice":
            return True
    return False


def is_spread(op: FrozenOp) -> bool:
    """Returns whether an op is the gradient of a slice: zeros around what arrives."""
    return op.type == "slice_grad" and not op.body


def behind(op: FrozenOp, source: Layout, value: str, metas: Mapping[str, Meta]) -> Layout | None:
    """Returns where a result of an op lies, by where its operand does; ``None`` where no strides say that."""
    match op.type:
        case "reshape2":
            return source.reshaped(metas[value].shape)
        case "transpose2":
            return source.permuted(op.attrs["axis"])
        case "scale":
            return source.multiplied(float(op.attrs["scale"]))
        case "slice":
            return _sliced(op, source)
        case "unbind" | "unstack":
            return source.entry(op.attrs["axis"], _position(op.outputs[0], value))
    axis, sizes = _sections(op, source.shape, metas)
    at = _position(op.outputs[0], value)
    # Where a part in front has no known size, nobody can say where this one begins.
    return None if None in sizes[:at] else source.cut(axis, sum(n or 0 for n in sizes[:at]), metas[value].shape[axis])


def before(op: FrozenOp, result: Layout, value: str, metas: Mapping[str, Meta]) -> Layout | None:
    """Returns where an op may read an operand from, so that its result lies as it should; ``None`` where no strides say that."""
    shape = metas[value].shape
    match op.type:
        case "reshape2":
            return result.reshaped(shape)
        case "transpose2":
            order = [i % len(shape) for i in op.attrs["axis"]]
            # The inverse order, as the result sees it.
            return result.permuted([order.index(i) for i in range(len(order))])
        case "scale":
            return result.multiplied(float(op.attrs["scale"]))
        case "slice_grad":
            return _sliced(op, result)
        case "sum":
            return result
        case "stack":
            return result.entry(op.attrs["axis"], _position(op.inputs[0], value))
    parts = op.inputs[0]
    assert isinstance(parts, tuple)
    axis = op.attrs["axis"] % len(shape)
    before_it = parts[: parts.index(value)]
    return result.cut(axis, sum(metas[v].shape[axis] for v in before_it), shape[axis])


def _position(entry: object, value: str) -> int:
    assert isinstance(entry, tuple)
    return entry.index(value)


def _sections(op: FrozenOp, shape: Shape, metas: Mapping[str, Meta]) -> tuple[int, list[int | None]]:
    """Returns the axis of a split, and the size of each part; ``None`` for one that no value has and no attribute says."""
    axis = op.attrs["axis"] % len(shape)
    parts = op.outputs[0]
    assert isinstance(parts, tuple)
    told = [shape[axis] // len(parts)] * len(parts) if op.attrs["num"] else list(op.attrs["sections"])
    known = zip(parts, told, strict=True)
    return axis, [metas[v].shape[axis] if v != EMPTY else n if n >= 0 else None for v, n in known]


def run_of(op: FrozenOp, shape: Shape) -> tuple[int, int, int] | None:
    """Returns axis, first index and number of indices of a slice, or its gradient, of a shape; ``None`` for several axes."""
    axes, starts, ends = (op.attrs[n] for n in ("axes", "starts", "ends"))
    if len(axes) != 1 or any(op.inputs[1:] if op.type == "slice" else ()):
        return None
    axis = axes[0] % len(shape)
    first, end, _ = slice(starts[0], ends[0]).indices(shape[axis])
    return axis, first, end - first


def _sliced(op: FrozenOp, whole: Layout) -> Layout | None:
    run = run_of(op, whole.shape)
    if run is None or run[2] <= 0:
        return None
    axis, first, size = run
    gone = [a % len(whole.shape) for a in op.attrs["decrease_axis"]]
    if gone not in ([], [axis]):
        return None
    return whole.entry(axis, first) if gone else whole.cut(axis, first, size)


def covers(parts: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> bool:
    """Returns whether gradients of slices hold each element of their sum once."""
    shape = metas[next(iter(parts[0].writes()))].shape
    runs = [run_of(op, shape) for op in parts]
    if any(run is None for run in runs):
        return False
    found = sorted(run for run in runs if run is not None)
    ends = [0, *(first + size for _, first, size in found)]
    return len({axis for axis, _, _ in found}) == 1 and all(
        first == end for (_, first, _), end in zip(found, ends, strict=False)
    ) and ends[-1] == shape[found[0][0]]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- bodies
class Moved:
    """The ops of a body that only move elements in front of values that it reads, and behind values that it makes.

    Args:
        body: The ops, in order.
        metas: Metadata of all values.
    """

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> None:
        self.metas = metas
        self.maker = {v: op for op in body for v in op.writes()}
        self.reader: dict[str, FrozenOp] = {}
        for op in body:
            for value in op.contents():
                # The first reader: a value that is moved has no other one in a match.
                self.reader.setdefault(value, op)
        self._inside: set[int] = set()
        self._body = body

    def read(self, value: str) -> Layout:
        """Returns where a value lies that the other ops read."""
        op = self.maker.get(value)
        source = operand(op) if op is not None else None
        if op is None or source is None:
            return contiguous(value, self.metas[value].shape)
        self._inside.add(id(op))
        found = behind(op, self.read(source), value, self.metas)
        assert found is not None, "the match has only what strides say"
        return found

    def written(self, value: str) -> Layout:
        """Returns where a value is written to that the other ops make."""
        op = self.reader.get(value)
        if op is None or (operand(op) is None and not is_join(op) and not is_spread(op)):
            return contiguous(value, self.metas[value].shape)
        self._inside.add(id(op))
        (result,) = op.writes()
        found = before(op, self.written(result), value, self.metas)
        assert found is not None, "the match has only what strides say"
        return found

    @property
    def others(self) -> list[FrozenOp]:
        """The ops that are in front of or behind no value that was asked for."""
        return [op for op in self._body if id(op) not in self._inside]


def numpy_moves(reference: Reference, op: FrozenOp) -> bool:
    """Writes an op that moves elements in numpy; returns whether it is one."""
    if op.type == "scale" or not (operand(op) is not None or is_join(op) or is_spread(op)):
        return False
    if is_join(op):
        entries = op.inputs[0]
        assert isinstance(entries, tuple)
        texts = [reference.of(v).text for v in entries]
        axis = op.attrs.get("axis")
        match op.type:
            case "sum":
                text = " + ".join(texts)
            case "stack":
                text = f"np.stack(({', '.join(texts)}), {axis})"
            case _:
                text = f"np.concatenate(({', '.join(texts)}), {axis})"
        reference.put(op.outputs[0], text)
        return True
    value = op.input(f"Out{GRAD}") if is_spread(op) else operand(op)
    assert isinstance(value, str)
    text = reference.of(value).text
    match op.type:
        case "reshape2":
            out = next(iter(op.writes()))
            reference.put(out, f"{text}.reshape({reference.metas[out].shape!r})")
        case "transpose2":
            reference.put(op.outputs[0], f"{text}.transpose({tuple(op.attrs['axis'])!r})")
        case _:
            _numpy_parts(reference, op, text)
    return True


def _numpy_parts(reference: Reference, op: FrozenOp, text: str) -> None:
    """Writes runs along an axis: a split, a slice, the gradient of a slice."""
    if is_spread(op):
        (out,) = op.writes()
        run = run_of(op, reference.metas[out].shape)
        assert run is not None
        axis, first, size = run
        shape = reference.metas[out].shape
        inner = (*shape[:axis], size, *shape[axis + 1 :])
        around = tuple((first, n - first - size) if i == axis else (0, 0) for i, n in enumerate(shape))
        reference.put(out, f"np.pad({text}.reshape({inner!r}), {around!r})")
        return
    if op.type == "slice":
        (out,) = op.writes()
        source = operand(op)
        assert source is not None
        run = run_of(op, reference.metas[source].shape)
        assert run is not None
        axis, first, size = run
        _put_run(reference, out, text, axis, first, size)
        return
    source = operand(op)
    assert source is not None
    shape = reference.metas[source].shape
    parts = op.outputs[0]
    assert isinstance(parts, tuple)
    sections: Sequence[int | None]
    if op.type == "split":
        axis, sections = _sections(op, shape, reference.metas)
    else:
        axis, sections = op.attrs["axis"] % len(shape), [1] * len(parts)
    first = 0
    for value, length in zip(parts, sections, strict=True):
        if value != EMPTY:
            assert length is not None
            _put_run(reference, value, text, axis, first, length)
        first += length or 0


def _put_run(reference: Reference, out: str, text: str, axis: int, first: int, size: int) -> None:
    run = f"{text}[{':, ' * axis}{first}:{first + size}]"
    reference.put(out, f"{run}.reshape({reference.metas[out].shape!r})")
