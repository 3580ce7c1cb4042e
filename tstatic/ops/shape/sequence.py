"""Number sequences: ``range`` (arange) and ``linspace``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ProgramError, ProgramTypeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.declare import default_dtype
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, dtype_of, float32, int64
from tstatic.ops.shape._shape_arg import check_sizes
from tstatic.tuned.philox import CHUNK

Array = np.ndarray[Any, Any]
Number = int | float


def _length(start: Number, end: Number, step: Number, op: str) -> int:
    if step == 0 or not all(map(math.isfinite, (start, end, step))):
        raise ProgramError(
            f"'{op}' needs finite bounds and a step that is not 0",
            expected="finite numbers, step != 0",
            received=f"start={start}, end={end}, step={step}",
            fix="pass step=1, for example",
            op=op,
        )
    if all(isinstance(v, int) for v in (start, end, step)):
        return max(0, -((start - end) // step))  # type: ignore[return-value]
    return max(0, math.ceil((end - start) / step))


def fill_steps(out: Array, start: Number, step: Number) -> None:
    """``start + i * step``: whole numbers exactly, floats computed in float64 and rounded once."""
    whole = out.dtype.kind in "iu" and isinstance(start, int) and isinstance(step, int)
    for at in range(0, out.shape[0], CHUNK):
        part = out[at : at + CHUNK]
        count = np.arange(at, at + part.shape[0], dtype=np.int64 if whole else np.float64)
        np.multiply(count, step, count)
        np.add(count, start, count)
        np.copyto(part, count, casting="unsafe")


def _range_infer(start: Number, end: Number, step: Number, dtype: DType) -> Meta:
    size = _length(start, end, step, "range")
    check_sizes([size], "range")
    _numbers("range", dtype)
    return Meta((size,), dtype)


def _numbers(op: str, dtype: DType) -> None:
    if dtype.name == "bool":
        raise DTypeError(
            f"'{op}' makes numbers", expected="an int or float dtype", received="bool", fix="pass dtype='int64'", op=op
        )


def _range_lower(torch: Any, *, start: Number, end: Number, step: Number, dtype: DType) -> Any:
    whole = dtype.is_integer and isinstance(start, int) and isinstance(step, int)
    # torch refuses a range that runs the wrong way; here, as in numpy, it is empty.
    count = torch.arange(_length(start, end, step, "range"), dtype=torch.int64 if whole else torch.float64)
    return (count * step + start).to(getattr(torch, dtype.name))


register(
    OpDef(
        "range",
        "-> Out",
        attrs={"start": Attr(0, "number"), "end": Attr(kind="number"), "step": Attr(1, "number"), "dtype": int64},
        infer=_range_infer,
        ref=lambda out, *, start, step: fill_steps(out, start, step),
        lower=_range_lower,
        domain=Domain(
            cases=(
                *(Case((), {"start": 1, "end": 9, "step": 2, "dtype": d}) for d in ("int64", "int32", "float16")),
                *(Case((), {"end": 7, "dtype": d}) for d in ("float32", "float64", "bfloat16", "uint8")),
                Case((), {"start": 5, "end": -5, "step": -3}),
                Case((), {"start": 5, "end": 5}),
                Case((), {"start": 5, "end": 1}),
                Case((), {"start": 0.1, "end": 2.05, "step": 0.1, "dtype": "float32"}),
                Case((), {"start": 2**62, "end": 2**62 + 3}),
                Case((), {"start": 0.5, "end": 4.0, "dtype": "int64"}),
            ),
            ulps=1,
        ),
    )
)


# ---------------------------------------------------------------------------------------- bounds known at run time only
def _arange_infer(start: Meta, end: Meta, step: Meta) -> Meta:
    for name, meta in (("Start", start), ("End", end), ("Step", step)):
        if meta.dtype != start.dtype or (meta.known and meta.numel != 1):
            raise DTypeError(
                "the bounds of 'arange' must be single numbers of one dtype",
                expected=f"one {start.dtype.name}",
                received=f"{name} = {meta!r}",
                fix=f"convert it with paddle.cast(x, '{start.dtype.name}')",
                op="arange",
            )
    return Meta((-1,), start.dtype)


def _arange_ref(start: Array, end: Array, step: Array, out: Any) -> list[Array]:
    first, last, by = (v.item() if v.dtype.kind in "iu" else float(v.flat[0]) for v in (start, end, step))
    made = np.empty(_length(first, last, by, "arange"), start.dtype)
    fill_steps(made, first, by)
    return [made]


def _arange_lower(torch: Any, start: Any, end: Any, step: Any) -> Any:
    made = np.empty(_length(start.item(), end.item(), step.item(), "arange"), dtype_of(str(start.dtype)).np)
    steps = torch.arange(made.shape[0], dtype=torch.float64 if start.is_floating_point() else torch.int64)
    return (steps * step.item() + start.item()).to(start.dtype)


register(
    OpDef(
        "arange",
        "Start, End, Step -> Out",
        infer=_arange_infer,
        ref=_arange_ref,
        lower=_arange_lower,
        dynamic=True,
        domain=Domain(
            cases=(Case(((), (), ())), Case(((1,), (1,), (1,)))),
            values={"Start": ValueRange(-3, 3), "End": ValueRange(2, 9), "Step": ValueRange(1, 2)},
            floats=("float32", "float64"),
            others=("int64", "int32"),
        ),
    )
)


# ------------------------------------------------------------------------------------------------------------ linspace
def _linspace_infer(num: int, dtype: DType) -> Meta:
    if num < 1:
        raise ProgramError(
            "'linspace' makes at least one number", expected="num >= 1", received=num, fix="pass num=2", op="linspace"
        )
    check_sizes([num], "linspace")
    _numbers("linspace", dtype)
    return Meta((num,), dtype)


def _linspace_ref(out: Array, *, start: float, stop: float, num: int) -> None:
    step = (stop - start) / max(num - 1, 1)
    half = (num + 1) // 2
    # From both ends, so that both are exact and the sequence is symmetric.
    fill_steps(out[:half], start, step)
    fill_steps(out[half:][::-1], stop, -step)


def _linspace_lower(torch: Any, *, start: float, stop: float, num: int, dtype: DType) -> Any:
    return torch.linspace(start, stop, num, dtype=torch.float64).to(getattr(torch, dtype.name))


register(
    OpDef(
        "linspace",
        "-> Out",
        attrs={"start": Attr(kind="float"), "stop": Attr(kind="float"), "num": Attr(kind="int"), "dtype": float32},
        infer=_linspace_infer,
        ref=_linspace_ref,
        lower=_linspace_lower,
        domain=Domain(
            cases=(
                *(Case((), {"start": 0, "stop": 10, "num": n}) for n in (1, 2, 5, 8)),
                *(
                    Case((), {"start": -1, "stop": 2.5, "num": 8, "dtype": d})
                    for d in ("float64", "float16", "bfloat16")
                ),
                Case((), {"start": 4, "stop": -4, "num": 9, "dtype": "int32"}),
                Case((), {"start": 3, "stop": 3, "num": 4}),
            ),
            ulps=2,
        ),
    )
)


# ---------------------------------------------------------------------------------------------------- public functions
def _number(value: Any, name: str, function: str) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ProgramTypeError(
            f"The type of '{name}' in {function} must be a number",
            expected="an int, a float or a Variable",
            received=f"{value!r} of type {type(value).__name__}",
            fix=f"pass {name} as a number",
            op=function,
        )
    return value.item() if isinstance(value, np.generic) else value


@export("tensor.arange", op="range")
def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Variable:
    """The numbers ``start, start + step, ...`` below ``end`` (above it for a negative step).

    Args:
        start: First number; the end when ``end`` is ``None``, and 0 is the start then.
        end: Where to stop; not included.
        step: Difference.
        dtype: int64 when all three are ints, else the default dtype, if ``None``.
        name: Name of the result.

    Returns:
        Shape [ceil((end - start) / step)]; of unknown length when a bound is a Variable.

    Example:
        >>> x = paddle.arange(5)
        >>> y = paddle.arange(1.0, 3.0, 0.5)
        >>> static.Executor().run(fetch_list=[x, y])
        [array([0, 1, 2, 3, 4]), array([1. , 1.5, 2. , 2.5], dtype=float32)]
    """
    first, last = (0, start) if end is None else (start, end)
    bounds = (first, last, step)
    given = next((b for b in bounds if isinstance(b, Variable)), None)
    if given is not None:
        kind = given.dtype if dtype is None else dtype_of(dtype)
        ins = []
        for bound in bounds:
            one = as_variable(bound, dtype=kind)
            if one.dtype is not kind:
                one = emit("cast", {"X": one}, {"in_dtype": one.dtype, "out_dtype": kind})
            ins.append(one)
        return emit("arange", dict(zip(("Start", "End", "Step"), ins, strict=True)), name=name)  # type: ignore[no-any-return]
    numbers = [_number(b, n, "arange") for b, n in zip(bounds, ("start", "end", "step"), strict=True)]
    natural = int64 if all(isinstance(n, int) for n in numbers) else default_dtype()
    kind = natural if dtype is None else dtype_of(dtype)
    attrs = {"start": numbers[0], "end": numbers[1], "step": numbers[2], "dtype": kind}
    return emit("range", {}, attrs, name=name)  # type: ignore[no-any-return]


@export("fluid.layers.range", "fluid.layers.tensor.range", op="range")
def range_(start: Any, end: Any, step: Any, dtype: Any, name: str | None = None) -> Variable:
    """The numbers from ``start`` to below ``end``; see ``paddle.arange``."""
    return arange(start, end, step, dtype, name)


@export("tensor.linspace", "fluid.layers.linspace", op="linspace")
def linspace(start: Any, stop: Any, num: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """``num`` numbers at equal distances from ``start`` to ``stop``, both included; shape [num].

    Args:
        start: First number, or a Variable with one element.
        stop: Last number, or a Variable with one element.
        num: How many; an int.
        dtype: The default dtype if ``None``.
        name: Name of the result.
    """
    kind = default_dtype() if dtype is None else dtype_of(dtype)
    if isinstance(num, bool) or not isinstance(num, int | np.integer):
        raise ProgramTypeError(
            "The type of 'num' in linspace must be int",
            expected="an int",
            received=f"{num!r} of type {type(num).__name__}",
            fix="pass the number of points as an int",
            op="linspace",
        )
    if isinstance(start, Variable) or isinstance(stop, Variable):
        ends = [
            check_variable(as_variable(v, dtype=kind), n, "linspace") for v, n in ((start, "start"), (stop, "stop"))
        ]
        low, high = (
            v if v.dtype is kind else emit("cast", {"X": v}, {"in_dtype": v.dtype, "out_dtype": kind}) for v in ends
        )
        part = emit("linspace", {}, {"start": 0.0, "stop": 1.0, "num": int(num), "dtype": kind})
        reach = emit("elementwise_sub", {"X": high, "Y": low})
        scaled = emit("elementwise_mul", {"X": part, "Y": reach})
        return emit("elementwise_add", {"X": scaled, "Y": low}, name=name)  # type: ignore[no-any-return]
    attrs = {"start": _number(start, "start", "linspace"), "stop": _number(stop, "stop", "linspace"),
             "num": int(num), "dtype": kind}  # fmt: skip
    return emit("linspace", {}, attrs, name=name)  # type: ignore[no-any-return]
