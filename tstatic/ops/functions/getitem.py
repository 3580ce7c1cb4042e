"""``variable[...]``: integers, slices, ellipsis, None, lists, arrays, and integer or bool Variables, by torch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, UnsupportedError
from tstatic.ir.build import as_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_list, emit_one, size_variable
from tstatic.ops.control.array_slice import item_of_array
from tstatic.ops.control.tensor_array import is_array
from tstatic.ops.indexing.masking import nonzero
from tstatic.ops.shape.reshape import squeeze, unsqueeze
from tstatic.ops.shape.slicing import END
from tstatic.ops.shape.transpose import transpose


def _bad(x: Variable, what: str, expected: object, received: Any, fix: str) -> IndexRangeError:
    return IndexRangeError(what, expected=expected, received=received, fix=fix, op="getitem", var=x.name)


@dataclass(frozen=True)
class _Basic:
    """One run along an axis: ints or Variables; ``gone`` when a single int removes the axis."""

    axis: int
    start: Any
    stop: Any
    step: Any = 1
    gone: bool = False


@dataclass
class _Plan:
    """What an index means, in the order in which it is carried out.

    Attributes:
        basic: Runs along axes, and axes that an int removes.
        points: (axis then, 0-d integer Variable): axes that a position known at run time removes.
        new: Positions then of new axes of size 1.
        index: (axis then, integer Variable); a bool mask of several axes gives several.
    """

    basic: list[_Basic] = field(default_factory=list)
    points: list[tuple[int, Variable]] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    index: list[tuple[int, Variable]] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------- single items
def _is_index(item: Any) -> bool:
    """Returns whether an item selects by position or truth with an array, and not by a single number."""
    if isinstance(item, Variable):
        # A 0-d integer removes its axis like an int; a bool of any rank is a mask.
        return item.dtype.name == "bool" or len(item.shape) > 0
    return isinstance(item, list | tuple | np.ndarray | bool | np.bool_) and not (
        isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu"
    )


def _as_index(x: Variable, item: Any) -> Any:
    """Returns an integer or bool Variable, or the array of a constant.

    Raises:
        IndexRangeError: If the item holds anything but integers or truth values.
    """
    if isinstance(item, Variable):
        kind = item.dtype
        good = kind.is_integer or kind.name == "bool"
        received: Any = f"a Variable of dtype {kind.name}"
        constant = None
    else:
        try:
            constant = np.asarray(item)
        except ValueError:
            constant = np.empty(1, object)
        # numpy makes float64 of an empty list, which would be refused.
        if constant.size == 0 and not isinstance(item, np.ndarray):
            constant = constant.astype(np.int64)
        good = constant.dtype.kind in "iub"
        received = repr(item)
    if not good:
        raise _bad(
            x,
            "Valid index accept int / bool / slice / ellipsis / list / Tuple / Ndarray / Tensor of integers or truth values",
            "integers or truth values of one rectangular shape",
            received,
            "use paddle.cast(index, 'int64')",
        )
    return item if constant is None else constant


def _number(x: Variable, item: Any, axis: int) -> _Basic:
    """Reads a single int."""
    size, at = x.shape[axis], int(item)
    if size != UNKNOWN and not -size <= at < size:
        raise _bad(
            x,
            f"index {at} is out of range for axis {axis} of size {size}",
            f"an index from {-size} to {size - 1}" if size else "no index, since the axis is empty",
            at,
            "check the index",
        )
    # -1 + 1 is 0, which would be the beginning: the last entry ends at END.
    return _Basic(axis, at, at + 1 if at != -1 else END, gone=True)


def _bound(x: Variable, value: Any, name: str) -> Any:
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        return None if value is None else int(value)
    if isinstance(value, Variable) and value.dtype.is_integer and (len(value.shape) == 0 or value.shape == (1,)):
        return value
    raise _bad(
        x,
        f"the {name} of a slice must be an integer",
        "an int, None, or an integer Variable of one element",
        repr(value),
        f"convert the {name} to an int",
    )


def _is_default(value: Any, default: int) -> bool:
    # Variables build an operator when they are compared.
    return value is None or (isinstance(value, int) and value == default)


def _run(x: Variable, item: slice, axis: int) -> _Basic | None:
    """Reads a slice; ``None`` when it selects everything."""
    step = _bound(x, item.step, "step")
    start, stop = _bound(x, item.start, "start"), _bound(x, item.stop, "stop")
    if isinstance(step, int) and step == 0:
        raise _bad(
            x, "the step of a slice cannot be 0", "a step other than 0", repr(item), "use a positive or negative step"
        )
    if stop is None and _is_default(start, 0) and _is_default(step, 1):
        return None
    # A step that is a Variable is taken to be positive where a bound is missing: its sign is not known here.
    if isinstance(step, Variable) or step is None or step > 0:
        return _Basic(axis, 0 if start is None else start, END if stop is None else stop, 1 if step is None else step)
    size = x.shape[axis]
    if size != UNKNOWN and not isinstance(start, Variable) and not isinstance(stop, Variable):
        # Bounds of a backward slice are settled here: the operator takes a stop of -1 for "past the first element".
        low, high, _ = slice(start, stop, step).indices(size)
        return _Basic(axis, low, high, step) if low > high else _Basic(axis, 0, 0, 1)
    if isinstance(stop, int) and stop == -1:
        # Backwards down to the last element, which it leaves out: nothing.
        return _Basic(axis, 0, 0, 1)
    # Of an unknown size: -1 as the stop of a backward run is "past the first element" for the operator.
    return _Basic(axis, END if start is None else start, -1 if stop is None else stop, step)


# ---------------------------------------------------------------------------------------------------------------- plan
def _consumed(item: Any) -> int:
    """Returns how many axes of the value an item is for."""
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    if isinstance(item, Variable):
        return len(item.shape) if item.dtype.name == "bool" else 1
    if isinstance(item, list | tuple | np.ndarray):
        array = np.asarray(item) if _rectangular(item) else np.empty(0)
        # A mask covers as many axes as it has, an index of integers one.
        return array.ndim if array.dtype.kind == "b" else 1
    return 1


def _rectangular(item: Any) -> bool:
    try:
        np.asarray(item)
    except ValueError:
        return False
    return True


def _without_ellipsis(x: Variable, items: Sequence[Any]) -> list[Any]:
    rank = len(x.shape)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise _bad(
            x, "an index can only have a single ellipsis ('...')", "one '...'", f"{len(dots)} of them", "remove one"
        )
    used = sum(_consumed(item) for item in items)
    if used > rank:
        raise _bad(
            x,
            f"too many indices for a value of {rank} dimensions",
            f"at most {rank} indices",
            f"{used} indices",
            "remove some",
        )
    rest = [slice(None)] * (rank - used)
    at = dots[0] if dots else len(items)
    return [*items[:at], *rest, *items[at + 1 :]]


def _read(x: Variable, items: Sequence[Any]) -> _Plan:
    plan = _Plan()
    # The axis of the next item: in the value, after the slices, and in the result.
    axis = sliced = position = 0
    for item in _without_ellipsis(x, items):
        if item is None:
            plan.new.append(position)
            position += 1
        elif _is_index(item):
            taken = _consumed(item)
            for variable in _positions(x, _as_index(x, item), axis, taken):
                plan.index.append((position, variable))
                position += 1
            if not taken:
                # A single truth value selects along a new axis.
                plan.new.append(position - 1)
            axis += taken
            sliced += taken
        elif isinstance(item, slice):
            run = _run(x, item, axis)
            if run is not None:
                plan.basic.append(run)
            axis, sliced, position = axis + 1, sliced + 1, position + 1
        elif isinstance(item, Variable):
            plan.points.append((sliced, _as_index(x, item)))
            axis, sliced = axis + 1, sliced + 1
        elif isinstance(item, int | np.integer) or (isinstance(item, np.ndarray) and item.dtype.kind in "iu"):
            plan.basic.append(_number(x, item, axis))
            axis += 1
        else:
            raise _bad(
                x,
                "Valid index accept int / bool / slice / ellipsis / list / Tuple / Ndarray / Tensor",
                "one of these",
                f"{item!r} of type {type(item).__name__}",
                "convert the index to an int",
            )
    return plan


def _positions(x: Variable, index: Any, axis: int, taken: int) -> list[Variable]:
    """Returns integer Variables for one index: one, or one for each axis of a bool mask."""
    truth = index.dtype.name == "bool"
    if not truth:
        if isinstance(index, Variable):
            return [index]
        size = x.shape[axis]
        if size != UNKNOWN:
            if index.size and not (-size <= int(index.min()) and int(index.max()) < size):
                raise _bad(
                    x,
                    f"an index is out of range for axis {axis} of size {size}",
                    f"indices from {-size} to {size - 1}",
                    index.tolist(),
                    "check the indices",
                )
            index = np.where(index < 0, index + size, index)
        return [as_variable(index.astype(np.int64))]
    shape = tuple(index.shape)
    for have, want in zip(shape, x.shape[axis : axis + taken], strict=True):
        if UNKNOWN not in (have, want) and have != want:
            raise _bad(
                x,
                "the shape of a bool index does not fit the axes that it selects from",
                list(x.shape[axis : axis + taken]),
                list(shape),
                "give the mask the shape of the value's leading axes",
            )
    if not isinstance(index, Variable):
        # A constant mask is turned into positions here, so the result has a known shape.
        places = np.nonzero(index.reshape(1) if not shape else index)
        return [as_variable(p.astype(np.int64)) for p in places]
    if not shape:
        index = unsqueeze(index, 0)
    found = nonzero(index)
    rank = max(len(shape), 1)
    if rank == 1:
        return [squeeze(found, 1)]
    return emit_list("unbind", {"X": found}, {"axis": 1, "num": rank})


# ------------------------------------------------------------------------------------------------------------- building
def _slice(x: Variable, runs: Sequence[_Basic]) -> Variable:
    """Emits one ``slice`` or ``strided_slice`` for all runs; the result is named after the value, as Paddle does."""
    if not runs:
        return x
    strided = any(isinstance(r.step, Variable) or r.step != 1 for r in runs)
    type = "strided_slice" if strided else "slice"
    inputs: dict[str, Any] = {"Input": x}
    attrs: dict[str, Any] = {
        "axes": [r.axis for r in runs],
        "decrease_axis": [r.axis for r in runs if r.gone],
        # Paddle's mark: -1 where a size is known at run time only.
        "infer_flags": [-1 if any(isinstance(v, Variable) for v in (r.start, r.stop, r.step)) else 1 for r in runs],
    }
    columns = {"starts": [r.start for r in runs], "ends": [r.stop for r in runs]}
    if strided:
        columns["strides"] = [r.step for r in runs]
    for name, values in columns.items():
        attrs[name] = [-1 if isinstance(v, Variable) else v for v in values]
        if any(isinstance(v, Variable) for v in values):
            slot = f"{name.capitalize()}TensorList"
            inputs[slot] = [size_variable(v) for v in values]
    return emit_one(type, inputs, attrs, prefix=f"{x.name}_{type}")


def _take(x: Variable, index: Sequence[tuple[int, Variable]]) -> Variable:
    """Selects by integer Variables along some axes."""
    axes = [axis for axis, _ in index]
    rank = len(x.shape)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    # numpy puts the selected axes where the first stood if they are neighbours, else in front.
    front = axes[0] if together else 0
    if axes != list(range(len(axes))):
        # gather_nd reads along the first axes.
        x = transpose(x, [*axes, *(a for a in range(rank) if a not in axes)])
    variables = [v for _, v in index]
    wide = max(len(v.shape) for v in variables)
    if len(variables) == 1:
        places = unsqueeze(variables[0], -1)
    else:
        # stack wants one dtype; int64 if any index has it, so no position is cut.
        kind = "int64" if any(v.dtype.name == "int64" for v in variables) else variables[0].dtype.name
        same = [
            v if v.dtype.name == kind else emit_one("cast", {"X": v}, {"in_dtype": v.dtype, "out_dtype": kind})
            for v in variables
        ]
        if len({v.shape for v in same}) > 1 or UNKNOWN in same[0].shape:
            same = emit_list("broadcast_tensors", {"X": same})
        places = emit_one("stack", {"X": same}, {"axis": -1})
    out = emit_one("gather_nd", {"X": x, "Index": places})
    if front:
        out = transpose(out, [*range(wide, wide + front), *range(wide), *range(wide + front, len(out.shape))])
    return out


@export("Variable.__getitem__", op="slice")
def getitem(x: Variable, item: Any) -> Variable:
    """Selects a part of a value by torch's rules: numpy's, but a single position always just removes its axis.

    Args:
        x: ``[...]``, any dtype; or a tensor array, whose elements are read at a position and which a slice makes shorter.
        item: An int, a slice, ``...``, ``None``, a list, an array, an integer Variable or a bool mask, or a tuple of them.
            Bounds of slices may be Variables of one integer.

    Returns:
        A Variable; ``x`` itself when everything is selected.

    Raises:
        IndexRangeError: For an index of a type that cannot index, one out of range, or one too many. Values of Variables
            are checked when the program runs.
    """
    if is_array(x):
        return item_of_array(x, item)
    items = list(item) if isinstance(item, tuple) else [item]
    plan = _read(x, items)
    # Slices first: they are cheap, and leave less for the gathers to read.
    out = _slice(x, plan.basic)
    if plan.points:
        out = _take(out, plan.points)
    if plan.new:
        out = unsqueeze(out, plan.new)
    return _take(out, plan.index) if plan.index else out


@export("Variable.__setitem__")
def setitem(x: Variable, item: Any, value: Any) -> None:
    """Refuses ``x[item] = value``: values of a program are never changed in place.

    Args:
        x, item, value: The Variable, the index and what would be written; the message names them.

    Raises:
        UnsupportedError: Always; it names what to use.
    """
    raise UnsupportedError(
        f"a part of a graph variable cannot be assigned to ('{x.name}[...] = ...')",
        expected="a new variable",
        received=f"{x.name}[{item!r}] = {value!r}",
        fix="use paddle.where(mask, value, x), paddle.scatter(x, index, updates) or paddle.concat of the parts",
        op="setitem",
        var=x.name,
    )
