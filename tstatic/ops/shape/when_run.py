"""Axes, parts and paddings that are Variables: known when the program runs, or constants that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import INTEGERS, check_axis, check_one_element
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.control.conditional import switch_case
from tstatic.ops.control.debug import Assert
from tstatic.ops.shape.fill import filled

R = TypeVar("R")


def constant_of(x: Variable) -> int | None:
    """Returns the number that a Variable of one element is, if one op of the program says so; else ``None``."""
    writers = [op for op in x.block.ops if x.name in op.output_arg_names]
    # With several writers, as in a loop, the value depends on when it is read.
    if len(writers) != 1:
        return None
    (op,) = writers
    if op.type == "fill_constant" and not op.input_arg_names:
        return int(op.attr("value"))
    return None


def by_axis(axis: Any, rank: int, build: Callable[[int], R], function: str, among: Sequence[int] | None = None) -> R:
    """Returns ``build(axis)`` or, for a Variable, a choice between all axes that is made when the program runs.

    Args:
        axis: A number, or an integer Variable of one element.
        rank: How many axes there are.
        build: Builds the result for an axis.
        function: For messages.
        among: The axes that fit, where not all of them do.

    Raises:
        DTypeError, ShapeError: If the Variable is not one integer.
    """
    if not isinstance(axis, Variable):
        return build(axis)
    check_one_element(check_variable(axis, "axis", function, INTEGERS), "axis", function)
    known = constant_of(axis)
    if known is not None:
        return build(check_axis(known, rank, "axis", function))
    number = emit_one("cast", {"X": axis}, {"in_dtype": axis.dtype, "out_dtype": "int64"})
    number = emit_one("reshape2", {"X": number}, {"shape": (1,)})
    # Counted from the front before it is compared: -1 and rank - 1 name one axis.
    from_end = emit("less_than", {"X": number, "Y": as_variable(0, dtype="int64")})
    number = emit("where", {"Condition": from_end, "X": number + rank, "Y": number})
    axes = list(range(rank) if among is None else among)
    if not axes:
        raise ShapeError(
            f"no axis can be the 'axis' of {function}",
            expected="sizes that fit along at least one axis",
            received="sizes that fit along none",
            fix="print the shapes; an unknown size (-1) fits, and is compared when the program runs",
            op=function,
        )
    places = emit_one("fill_any_like", {"X": number}, {"value": 0})
    for one in axes:
        same = emit("equal", {"X": number, "Y": as_variable([one], dtype="int64")})
        places = places + emit_one("cast", {"X": same}, {"in_dtype": same.dtype, "out_dtype": "int64"})
    # Without the check, a number outside would silently take the last branch of switch_case.
    Assert(places > 0, [number])
    if len(axes) == 1:
        return build(axes[0])
    found: R = switch_case(number, {i: (lambda i=i: build(i)) for i in axes})
    return found


def join_by_axis(
    axis: Any, items: Sequence[Variable], joined: Callable[[int, Sequence[Variable]], Variable]
) -> Variable:
    """Returns ``joined(axis, items)``; for a Variable the axis is one along which the known sizes fit.

    Raises:
        DTypeError, ShapeError: If the Variable is not one integer, or the items fit along no axis.
    """
    rank = len(items[0].shape) if items else 1
    if not isinstance(axis, Variable) or constant_of(axis) is not None:
        return by_axis(axis, rank, lambda at: joined(at, items), "concat")
    shapes = [item.shape for item in items]
    if any(len(s) != rank for s in shapes):
        return joined(0, items)  # which says what differs
    differ = [len({s[d] for s in shapes if s[d] != UNKNOWN}) > 1 for d in range(rank)]

    def along(at: int) -> Variable:
        # A branch that does not run is planned too: sizes that may not fit are hidden from its plan.
        # Known sizes along the other axes fit by the choice of `fitting`; unknown ones may turn out not to.
        open_axes = [d for d in range(rank) if d != at and any(s[d] == UNKNOWN for s in shapes)]
        return joined(at, [_of_open_sizes(item, open_axes) for item in items] if open_axes else items)

    fitting = [d for d in range(rank) if not any(differ[:d] + differ[d + 1 :])]
    return by_axis(axis, rank, along, "concat", fitting)


def _of_open_sizes(x: Variable, axes: Sequence[int]) -> Variable:
    """Returns ``x`` as a value whose sizes along some axes are read when the program runs."""
    sizes = emit("shape", {"Input": x})
    ends = [emit_one("slice", {"Input": sizes}, {"axes": (0,), "starts": (d,), "ends": (d + 1,)}) for d in axes]
    attrs = {"axes": tuple(axes), "starts": (0,) * len(axes), "ends": (UNKNOWN,) * len(axes)}
    return emit_one("slice", {"Input": x, "EndsTensorList": ends}, {**attrs, "infer_flags": (UNKNOWN,) * len(axes)})


def axes_to_split(shape: Sequence[int], num_or_sections: Any) -> list[int]:
    """Returns the axes of a shape that may be split so: unknown sizes, and those that are a multiple of the number or the sum."""
    if isinstance(num_or_sections, int):
        # A number below 1 is refused by the split itself.
        return [
            i for i, size in enumerate(shape) if size == UNKNOWN or num_or_sections < 1 or size % num_or_sections == 0
        ]
    given = num_or_sections if isinstance(num_or_sections, list | tuple) else ()
    sizes = [s for s in given if isinstance(s, int) and s != UNKNOWN]
    exact = len(sizes) == len(given)
    return [
        i for i, size in enumerate(shape) if size == UNKNOWN or (sum(sizes) == size if exact else sum(sizes) <= size)
    ]


def elements_of(axis: Any, function: str, arg: str = "axis") -> list[Any]:
    """Returns the numbers of a number, of a Variable of known length, or of a list of numbers and Variables, one by one.

    Raises:
        DTypeError, ShapeError: If a Variable is not a vector of integers of known length.
    """
    found: list[Any] = []
    for one in axis if isinstance(axis, list | tuple) else [axis]:
        if not isinstance(one, Variable):
            found.append(one)
            continue
        check_variable(one, arg, function, INTEGERS)
        if len(one.shape) != 1 or one.shape[0] == 1:
            found.append(one)
        elif one.shape[0] == UNKNOWN:
            check_one_element(one, arg, function)
        else:
            bounds = ({"axes": (0,), "starts": (i,), "ends": (i + 1,)} for i in range(one.shape[0]))
            found.extend(emit_one("slice", {"Input": one}, attrs) for attrs in bounds)
    return found


def unsqueezed_by_axis(x: Variable, axis: Any, name: str | None) -> Variable:
    """Inserts one axis of size 1, whose place is a number or a Variable."""
    return by_axis(
        axis, len(x.shape) + 1, lambda at: emit_one("unsqueeze2", {"X": x}, {"axes": (at,)}, name=name), "unsqueeze"
    )


def squeeze_when_run(x: Variable, axes: Sequence[Any], name: str | None) -> Variable:
    """Removes axes of size 1, of which some are Variables: a reshape to the sizes of the others.

    A size other than 1 of such an axis is an error in the run, since the number of axes is known before.
    """
    rank, gone = len(x.shape), len(axes)
    # `taken` marks the axes that go: 1 for each, so that one named twice shows in the sum below.
    order = as_variable(list(range(rank)), dtype="int64")
    taken = emit_one("fill_any_like", {"X": order}, {"value": 0})
    for axis in axes:
        number = as_variable(axis, dtype="int64")
        if isinstance(axis, Variable):
            check_one_element(check_variable(axis, "axis", "squeeze", INTEGERS), "axis", "squeeze")
            number = emit_one("cast", {"X": axis}, {"in_dtype": axis.dtype, "out_dtype": "int64"})
        number = emit_one("reshape2", {"X": number}, {"shape": (1,)})
        for counted in (number, number + rank):
            same = emit("equal", {"X": order, "Y": counted})
            taken = taken + emit_one("cast", {"X": same}, {"in_dtype": same.dtype, "out_dtype": "int64"})
    # Kept axes first, in their order, then those that go.
    places = emit("argsort", {"X": order + taken * rank}, {"axis": 0})[1]
    sizes = emit_one("gather", {"X": emit("shape", {"Input": x}), "Index": places}, {"axis": 0})
    kept, rest = ({"axes": (0,), "starts": (a,), "ends": (b,)} for a, b in ((0, rank - gone), (rank - gone, rank)))
    ones = emit_one("slice", {"Input": sizes}, rest)
    wrong = emit("not_equal", {"X": ones, "Y": as_variable(1, dtype=ones.dtype)})
    count = emit_one(
        "reduce_sum", {"X": emit_one("cast", {"X": wrong}, {"in_dtype": wrong.dtype, "out_dtype": "int64"})}
    )
    found = emit_one("reduce_sum", {"X": taken})
    Assert((count + (found - gone) * (found - gone)) < 1, [ones, taken])
    if rank == gone:
        return emit_one("reshape2", {"X": x}, {"shape": ()}, name=name, prefix="squeeze")
    shape = emit_one("slice", {"Input": sizes}, kept)
    out = emit_one(
        "reshape2", {"X": x, "Shape": shape}, {"shape": (UNKNOWN,) * (rank - gone)}, name=name, prefix="squeeze"
    )
    return out


def split_when_run(x: Variable, sections: Any, axis: int, name: str | None) -> list[Variable]:
    """Splits at sizes of which some are Variables, or into equal parts: slices between the sums of the sizes before them."""
    if isinstance(sections, int):
        total = emit_one(
            "slice", {"Input": emit("shape", {"Input": x})}, {"axes": (0,), "starts": (axis,), "ends": (axis + 1,)}
        )
        size = emit_one("elementwise_floordiv", {"X": total, "Y": as_variable(sections, dtype=total.dtype)})
        sections = [size] * sections
    sizes = [s if isinstance(s, Variable) else as_variable(int(s), dtype="int64") for s in sections]
    sizes = [emit_one("cast", {"X": s}, {"in_dtype": s.dtype, "out_dtype": "int64"}) for s in sizes]
    sizes = [emit_one("reshape2", {"X": s}, {"shape": (1,)}) for s in sizes]
    rest = [i for i, s in enumerate(sections) if not isinstance(s, Variable) and s == UNKNOWN]
    if rest:
        total = emit_one(
            "slice", {"Input": emit("shape", {"Input": x})}, {"axes": (0,), "starts": (axis,), "ends": (axis + 1,)}
        )
        left = emit_one("cast", {"X": total}, {"in_dtype": total.dtype, "out_dtype": "int64"})
        for i, size in enumerate(sizes):
            left = left if i == rest[0] else left - size
        sizes[rest[0]] = left
    start = as_variable([0], dtype="int64")
    parts = []
    for size, given in zip(sizes, sections, strict=True):
        end = start + size
        inputs = {"Input": x, "StartsTensor": start, "EndsTensor": end}
        attrs = {"axes": (axis,), "starts": (UNKNOWN,), "ends": (UNKNOWN,), "infer_flags": (UNKNOWN,)}
        part = emit_one("slice", inputs, attrs, name=name)
        if not isinstance(given, Variable) and given != UNKNOWN:
            part = emit_one("reshape2", {"X": part}, {"shape": _with_size(part, axis, int(given))})
        parts.append(part)
        start = end
    return parts


def _with_size(x: Variable, axis: int, size: int) -> tuple[int, ...]:
    # A size of 0 in a reshape keeps that of the input.
    return tuple(size if i == axis else 0 for i in range(len(x.shape)))


def pad_when_run(x: Variable, pad: Variable, mode: str, value: float, data_format: str, name: str | None) -> Variable:
    """Pads by a Variable of sizes, as :func:`pad` does by numbers; for a constant.

    Raises:
        UnsupportedError: For another mode.
    """
    if mode != "constant":
        raise UnsupportedError(
            f"mode '{mode}' of pad needs its sizes when the program is built",
            expected="mode='constant', or numbers",
            received="a Variable",
            fix="pass the paddings as a list of numbers",
            op="pad",
        )
    rank = len(x.shape)
    first = 1 if data_format[-1] == "C" else 2
    count = pad.shape[0] // 2
    # As many pairs as axes begin with the first axis; else the last spatial axis comes first.
    axes = list(range(rank)) if count == rank else list(range(first, first + count))[::-1]
    for i, axis in enumerate(axes):
        ends = []
        for side in (2 * i, 2 * i + 1):
            sizes = emit("shape", {"Input": x})
            parts: list[Any] = [sizes[k] for k in range(rank)]
            parts[axis] = pad[side]
            ends.append(filled(parts, x.dtype, value, "pad"))
        x = emit_one("concat", {"X": [ends[0], x, ends[1]]}, {"axis": axis})
    return x if name is None else emit_one("assign", {"X": x}, name=name)
