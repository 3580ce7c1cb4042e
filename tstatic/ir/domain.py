"""Where tests may sample an op: plain data, so that the library needs no test tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tstatic.ir.attrs import NO_ATTRS


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Where the elements of one input may be sampled.

    Attributes:
        low, high: Bounds. A text such as ``"W.0"`` for ``high`` means the size of axis 0 of input ``W`` (for indices).
        avoid: Points (kinks, poles) that float samples keep a distance of 0.01 from; ``"int"`` avoids all integers.
        dtype: ``"float"`` follows the tested float type; otherwise a dtype's name.
        distinct: No two elements closer than 0.01 (ties of max, sort, top-k).
        rows: Each row along the last axis is positive and sums to 1 (soft labels, probabilities).
    """

    low: float = -2.0
    high: float | str = 2.0
    avoid: tuple[float, ...] | str = ()
    dtype: str = "float"
    distinct: bool = False
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Shapes (one per input slot: a shape, ``None`` for an absent input, a list of shapes for a ``*`` slot) and attributes."""

    shapes: tuple[Any, ...]
    attrs: Mapping[str, Any] = NO_ATTRS


Family = Literal["unary", "binary", "cases"]


@dataclass(frozen=True, slots=True)
class Domain:
    """Where tests may sample an op: plain data, so that the library needs no test tool.

    Attributes:
        family: ``"unary"`` (any shape), ``"binary"`` (any two shapes that broadcast) or ``"cases"`` (the listed ones only).
        cases: Explicit cases, tried besides the family's.
        attrs: Alternatives of attributes tried with the family's shapes.
        values: Slot name -> :class:`ValueRange`; slots not named get the default range.
        floats: Float types that the op takes.
        others: Further dtypes tried in the place of the float type (``"int64"``, ``"bool"``); no gradients there.
        ulps: Allowed distance between ``ref`` and ``lower`` in units in the last place of the output type.
        check_grad: ``False`` only with a reason (a text) why finite differences cannot apply.
    """

    family: Family = "cases"
    cases: tuple[Case, ...] = ()
    attrs: tuple[Mapping[str, Any], ...] = (NO_ATTRS,)
    values: Mapping[str, ValueRange] = field(default_factory=dict)
    floats: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    others: tuple[str, ...] = ()
    ulps: float = 8.0
    check_grad: bool | str = True
