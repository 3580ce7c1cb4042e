"""Axes, parts and paddings that are Variables: known when the program runs, or constants that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tstatic.errors import UnsupportedError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import INTEGERS, check_axis, check_one_element
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.control.conditional import switch_case
from tstatic.ops.control.debug import Assert
from tstatic.ops.shape._shapes import emit_one
from tstatic.ops.shape.fill import filled

R = TypeVar("R")


def constant_of(x: Variable) -> int | None:
    """Returns the number that a Variable of one element is, if one op of the program says so; else ``None``."""
    writers = [op for op in x.block.ops if x.name in op.output_arg_names]
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
    from_end = emit("less_than", {"X": number, "Y": as_variable(0, dtype="int64")})
    number = emit("where", {"Condition": from_end, "X": number + rank, "Y": number})
    axes = list(range(rank) if among is None else among)
    places = emit_one("fill_any_like", {"X": number}, {"value": 0})
    for one in axes:
        same = emit("equal", {"X": number, "Y": as_variable([one], dtype="int64")})
        places = places + emit_one("cast", {"X": same}, {"in_dtype": same.dtype, "out_dtype": "int64"})
    Assert(places > 0, [number])
    found: R = switch_case(number, {i: (lambda i=i: build(i)) for i in axes})
    return found


def split_when_run(x: Variable, sections: Sequence[Any], axis: int, name: str | None) -> list[Variable]:
    """Splits at sizes of which some are Variables: each part is a slice between the sums of the sizes before it."""
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


def split_evenly_when_run(x: Variable, parts: int, axis: int, name: str | None) -> list[Variable]:
    """Splits an axis of unknown size into equal parts."""
    total = emit_one(
        "slice", {"Input": emit("shape", {"Input": x})}, {"axes": (0,), "starts": (axis,), "ends": (axis + 1,)}
    )
    size = emit_one("elementwise_floordiv", {"X": total, "Y": as_variable(parts, dtype=total.dtype)})
    return split_when_run(x, [size] * parts, axis, name)


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
