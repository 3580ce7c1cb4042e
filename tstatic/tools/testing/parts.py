"""Defines the parts of a recipe, inputs with their values and steps, and draws samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir.opdef import ValueRange
from tstatic.ir.types import dtype_of

Array = np.ndarray[Any, Any]
Names = tuple[str, ...]
Slots = tuple[tuple[str, Names], ...]
Feeds = dict[str, Array]

GAP = 0.01
"""Distance of samples from the points that a domain avoids."""

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)
_HUGE = (1e13, -1e13, 1e30, -1e30)
"""The cube of the first, and the square of the second, overflow float32."""


# -------------------------------------------------------------------------------------------------------------- samples
def sample(
    shape: Iterable[int],
    dtype: str = "float32",
    low: float = -2.0,
    high: float = 2.0,
    seed: int = 0,
    avoid: tuple[float, ...] | str = (),
    rows: bool = False,
    nan: bool = False,
    special: bool = False,
) -> Array:
    """Returns an array that depends on the arguments alone, the same on every machine.

    Args:
        shape: Its shape.
        dtype: Its dtype; whole numbers are drawn from ``low`` to ``high - 1``, truth values are even.
        low, high: Bounds.
        seed: Seed of the values.
        avoid: Points from which floats keep a distance of 0.01; ``"int"`` avoids all whole numbers.
        rows: Each row along the last axis is positive and sums to 1.
        nan: About every third float is NaN, at least one of them.
        special: About every third float is NaN, infinite, a zero of either sign or huge (float32 and float64 only: 16-bit
            types overflow where another kernel may not).
    """
    size, kind = tuple(shape), dtype_of(dtype)
    rng = np.random.default_rng(seed)
    found: Array
    if special and kind.is_float:
        found = sample(size, dtype, low, high, seed, avoid, rows)
        places = found.reshape(-1)[seed % 3 :: 3]
        chosen = [*_SPECIAL, *(() if kind.is_low else _HUGE)]
        places[...] = np.array(chosen)[np.random.default_rng(seed).integers(0, len(chosen), places.shape)]
        return found
    if nan and kind.is_float:
        found = sample(size, dtype, low, high, seed, avoid, rows)
        found.reshape(-1)[seed % 3 :: 3] = np.nan
        found.reshape(-1)[:1] = np.nan
        return found
    if kind.name == "bool":
        return np.asarray(rng.random(size) < 0.5)
    if not kind.is_float:
        first = math.ceil(low)
        return np.asarray(rng.integers(first, max(math.ceil(high), first + 1), size)).astype(kind.np)
    if rows:
        found = np.exp(rng.normal(size=size))
        return np.asarray(found / found.sum(-1, keepdims=True) if size else found).astype(kind.np)
    found = np.asarray(rng.uniform(low, high, size))
    for _ in range(20 if avoid else 0):
        bad = _near(found.astype(kind.np).astype(np.float64), avoid)
        if not bad.any():
            break
        found = np.where(bad, rng.uniform(low, high, size), found)
    return np.asarray(found.astype(kind.np))


def _near(x: Array, avoid: tuple[float, ...] | str) -> Array:
    if isinstance(avoid, str):
        return np.asarray(np.abs(x - np.round(x)) < GAP)
    close = np.zeros(x.shape, bool)
    for point in avoid:
        close |= np.abs(x - point) < GAP
    return close


# -------------------------------------------------------------------------------------------------------------- records
@dataclass(frozen=True)
class Input:
    """An input of a recipe: a fed value, or a parameter with these start values.

    Attributes:
        name, shape, dtype: As in ``static.data``.
        values: The range of its elements; ``high`` is a number here.
        seed: Seed for :func:`sample`.
        parameter: Whether it is a parameter.
        given: The values, as (nested) tuples of numbers; ``None`` draws them.
        nan: About every third value is NaN.
        special: About every third value is NaN, infinite, a zero or huge.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    values: ValueRange = ValueRange()  # noqa: RUF009 - frozen
    seed: int = 0
    parameter: bool = False
    given: tuple[Any, ...] | float | None = None
    nan: bool = False
    special: bool = False

    def array(self) -> Array:
        """Returns the values."""
        if self.given is not None:
            return np.array(self.given, np.float64 if dtype_of(self.dtype).is_float else None).reshape(self.shape).astype(
                dtype_of(self.dtype).np
            )  # fmt: skip
        v = self.values
        return sample(self.shape, self.dtype, v.low, float(v.high), self.seed, v.avoid, v.rows, self.nan, self.special)


@dataclass(frozen=True)
class Step:
    """An op of a recipe: type, names per slot, attributes (dtypes by name), and its role if it is not a forward op."""

    type: str
    inputs: Slots
    outputs: Slots
    attrs: tuple[tuple[str, Any], ...] = ()
    role: int = 0
    role_var: Names = ()

    @staticmethod
    def of(
        type: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None
    ) -> Step:
        """Makes a step from dicts; a slot with one name may hold a text."""

        def side(slots: Mapping[str, Any]) -> Slots:
            return tuple((s, (row,) if isinstance(row, str) else tuple(row)) for s, row in slots.items())

        return Step(type, side(inputs), side(outputs), tuple((attrs or {}).items()))

    @property
    def reads(self) -> Names:
        return tuple(n for _, row in self.inputs for n in row)

    @property
    def writes(self) -> Names:
        return tuple(n for _, row in self.outputs for n in row)

    def all_attrs(self) -> dict[str, Any]:
        """Returns the attributes, including those that state its role."""
        extra: dict[str, Any] = {"op_role": self.role} if self.role else {}
        if self.role_var:
            extra["op_role_var"] = list(self.role_var)
        return {**dict(self.attrs), **extra}
