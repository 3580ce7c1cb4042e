"""Selecting runs along axes: slice and strided_slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.shape._shapes import as_list, emit_one, sizes_given, sizes_of, tensor_rank
from tstatic.ops.shape._slicing import Runs, length, positive, runs_of, selected, selection
from tstatic.ops.shape.reshape import ANY

_INTS = Attr((), "ints")


def _bounds_known(given: Sequence[Any]) -> bool:
    half = len(given) // 2
    pairs = zip(given[:half], given[half:], strict=True)
    return all(tensor_rank(tensor, each, "a bound") is None for tensor, each in pairs)


def _infer(
    x: Meta,
    given: Sequence[Any],
    op: str,
    runs: Callable[[], Runs],
    axes: Sequence[int],
    decrease_axis: Sequence[int],
    infer_flags: Sequence[int],
) -> Meta:
    gone = positive(decrease_axis, x.rank)
    if _bounds_known(given):
        return x.with_shape(selected(x.shape, runs(), gone, op))
    shape, sliced = list(x.shape), positive(axes, x.rank)
    # Where one bound is a Variable, the flags say which axes have numbers.
    flags = infer_flags if len(infer_flags) == len(axes) else (-1,) * len(axes)
    known = runs() if any(f != -1 for f in flags) else {}
    for axis, flag in zip(sliced, flags, strict=True):
        shape[axis] = UNKNOWN if flag == -1 else length(x.shape[axis], *known[axis])
    return x.with_shape(s for i, s in enumerate(shape) if i not in gone)


# --------------------------------------------------------------------------------------------------------------- slice
def _find(
    shape: Shape,
    given: Sequence[Any],
    *,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    decrease_axis: Sequence[int],
) -> tuple[Runs, Sequence[int]]:
    first, last, firsts, lasts = given
    runs = runs_of(axes, sizes_of(starts, first, firsts), sizes_of(ends, last, lasts), (), len(shape))
    return runs, positive(decrease_axis, len(shape))


def _infer_slice(
    x: Meta,
    *given: Any,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    decrease_axis: Sequence[int],
    infer_flags: Sequence[int],
) -> Meta:
    def runs() -> Runs:
        return runs_of(axes, starts, ends, (), x.rank)

    return _infer(x, given, "slice", runs, axes, decrease_axis, infer_flags)


_NONE = (None,) * 4
register(
    selection(
        "slice",
        "Input",
        ("StartsTensor?", "EndsTensor?", "StartsTensorList*?", "EndsTensorList*?"),
        {
            "axes": Attr(kind="ints"),
            "starts": _INTS,
            "ends": _INTS,
            "infer_flags": Attr.idle((), "the slots say which bounds are Variables", "ints"),
            "decrease_axis": _INTS,
        },
        _find,
        _infer_slice,
        Domain(
            cases=(
                Case(((5, 4), *_NONE), {"axes": (0,), "starts": (1,), "ends": (3,)}),
                Case(((5, 4), *_NONE), {"axes": (0, 1), "starts": (-3, 0), "ends": (-1, 100)}),
                Case(((5, 4), *_NONE), {"axes": (0,), "starts": (2,), "ends": (3,), "decrease_axis": (0,)}),
                Case(((3, 4, 2), *_NONE), {"axes": (-1, 0), "starts": (1, 0), "ends": (2, 2), "decrease_axis": (2,)}),
                Case(((5, 4), *_NONE), {"axes": (1,), "starts": (3,), "ends": (1,)}),
                Case(((0, 4), *_NONE), {"axes": (0,), "starts": (0,), "ends": (2,)}),
                Case(((6,), *_NONE), {"axes": (0,), "starts": (5,), "ends": (6,), "decrease_axis": (0,)}),
                Case(((2, 3), *_NONE), {"axes": (), "starts": (), "ends": ()}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


def bounds(value: Any, first: str, each: str, inputs: dict[str, Any], flags: list[int]) -> list[Any]:
    """Splits bounds into the attribute and inputs (added to ``inputs``); clears the flags of bounds not known yet."""
    attr, tensor, tensors = sizes_given(value)
    inputs[first], inputs[each] = tensor, tensors
    if tensor is not None:
        flags[:] = [-1] * len(flags)
        return [-1] * len(flags)
    for i, item in enumerate(as_list(value)[: len(flags)]):
        if isinstance(item, Variable):
            flags[i] = -1
    return attr


@export("tensor.slice", "Variable.slice", "fluid.layers.slice", op="slice")
def slice_(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Variable:
    """Selects ``starts[i] : ends[i]`` along axis ``axes[i]``.

    Args:
        input: ``[...]``, any dtype.
        axes: Axes.
        starts: First positions; a list of ints and Variables, or one Variable. Negative ones count from the end.
        ends: Positions behind the last; those beyond the axis mean its end.

    Raises:
        ShapeError: If the lists differ in length or an axis is out of range.

    Example:
        >>> x = paddle.to_tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        >>> y = paddle.slice(x, axes=[0, 1], starts=[1, -2], ends=[3, 3])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[5, 6],
               [8, 9]])
    """
    x = check_variable(input, "input", "slice")
    inputs: dict[str, Any] = {"Input": x}
    flags = [1] * len(as_list(axes))
    first = bounds(starts, "StartsTensor", "StartsTensorList", inputs, flags)
    last = bounds(ends, "EndsTensor", "EndsTensorList", inputs, flags)
    attrs = {"axes": as_list(axes), "starts": first, "ends": last, "infer_flags": flags}
    return emit_one("slice", inputs, attrs)


# -------------------------------------------------------------------------------------------------------- strided_slice
def _find_strided(
    shape: Shape,
    given: Sequence[Any],
    *,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    strides: Sequence[int],
    decrease_axis: Sequence[int],
) -> tuple[Runs, Sequence[int]]:
    first, last, step, firsts, lasts, steps = given
    lists = sizes_of(starts, first, firsts), sizes_of(ends, last, lasts), sizes_of(strides, step, steps)
    return runs_of(axes, *lists, len(shape)), positive(decrease_axis, len(shape))


def _infer_strided(
    x: Meta,
    *given: Any,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    strides: Sequence[int],
    decrease_axis: Sequence[int],
    infer_flags: Sequence[int],
) -> Meta:
    def runs() -> Runs:
        return runs_of(axes, starts, ends, strides, x.rank)

    return _infer(x, given, "strided_slice", runs, axes, decrease_axis, infer_flags)


_SIX = (None,) * 6
register(
    selection(
        "strided_slice",
        "Input",
        (
            "StartsTensor?",
            "EndsTensor?",
            "StridesTensor?",
            "StartsTensorList*?",
            "EndsTensorList*?",
            "StridesTensorList*?",
        ),
        {
            "axes": Attr(kind="ints"),
            "starts": _INTS,
            "ends": _INTS,
            "strides": _INTS,
            "infer_flags": Attr.idle((), "the slots say which bounds are Variables", "ints"),
            "decrease_axis": _INTS,
        },
        _find_strided,
        _infer_strided,
        Domain(
            cases=(
                Case(((7, 4), *_SIX), {"axes": (0,), "starts": (1,), "ends": (6,), "strides": (2,)}),
                Case(((7, 4), *_SIX), {"axes": (0,), "starts": (100,), "ends": (-1,), "strides": (-1,)}),
                Case(((7, 4), *_SIX), {"axes": (0, 1), "starts": (5, -1), "ends": (1, -4), "strides": (-2, -1)}),
                Case(((7, 4), *_SIX), {"axes": (-1,), "starts": (0,), "ends": (2**31 - 1,), "strides": (3,)}),
                Case(((0, 4), *_SIX), {"axes": (0,), "starts": (0,), "ends": (3,), "strides": (2,)}),
                Case(((0, 4), *_SIX), {"axes": (0,), "starts": (3,), "ends": (-1,), "strides": (-2,)}),
                Case(((6,), *_SIX), {"axes": (0,), "starts": (1,), "ends": (4,), "strides": (-1,)}),
                Case(
                    ((3, 4), *_SIX),
                    {"axes": (0, 1), "starts": (1, 0), "ends": (2, 4), "strides": (1, 2), "decrease_axis": (0,)},
                ),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


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
    """:func:`strided_slice` under its older signature."""
    return strided_slice(input, axes, starts, ends, strides)
