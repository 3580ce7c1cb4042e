"""Builds a recipe step by step; runs each step in its dtype and in float64, and refuses ill-conditioned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import DERIVE, GRAD, Case, GradOp, OpDef, ValueRange, op_def
from tstatic.ir.types import dtype_of, numel
from tstatic.locks import cached_property
from tstatic.tools.testing.op_kinds import MOST_INPUT, attempt, bounds, flat
from tstatic.tools.testing.parts import GAP, Array, Input, Step
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import noisy, quiet
from tstatic.tools.testing.tolerance import is_free, ulp

MOST_ELEMENTS = 600
MOST = 100.0
"""Largest absolute value: larger ones would overflow float16 within a few steps."""
MOST_GAIN = 1e3
"""Largest product of derivatives along a path."""
MOST_TRAINED_GAIN = 20.0
"""The same for programs with an optimizer: updated parameters must stay inside the ops' domains."""


@dataclass(frozen=True)
class Value:
    """A value of the program, in its dtype (as the unfused program computes it) and in float64.

    Attributes:
        own, wide: The value in its dtype, and in float64.
        gain: Bound of its derivative with respect to the inputs.
        exact: Whether no fusion can change it: it is an input, or consists of elements of exact values.
    """

    own: Array
    wide: Array
    gain: float = 1.0
    exact: bool = True

    @cached_property
    def range(self) -> tuple[float, float]:
        return float(self.wide.min()), float(self.wide.max())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.own.shape)

    @cached_property
    def dtype(self) -> str:
        return dtype_of(self.own.dtype).name

    @property
    def is_float(self) -> bool:
        return dtype_of(self.own.dtype).is_float


# -------------------------------------------------------------------------------------------------------------- builder
class ProgramBuilder:
    """The inputs and steps so far, with their values.

    Attributes:
        pool: Names that later steps may read, oldest first.
        asides: Results that are fetched and that no step may read.
    """

    def __init__(self, backward: bool = False, parameters: bool = False, most_elements: int = MOST_ELEMENTS) -> None:
        self.backward = backward
        self.parameters = parameters
        self.most_elements = most_elements
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {}
        self.pool: list[str] = []
        self.asides: list[str] = []
        self._named = 0

    def _add(self, one: Input) -> str:
        self.inputs.append(one)
        own = one.array()
        wide = own.astype(np.float64) if dtype_of(one.dtype).is_float else own
        self.values[one.name] = Value(own, wide)
        return one.name

    def fresh(self, shape: tuple[int, ...], dtype: str, values: ValueRange | None = None, seed: int = 0) -> str:
        """Adds an input and returns its name.

        If the program has parameters, every non-empty float is one: a float32 parameter, cast to the dtype.
        """
        number = len(self.inputs)
        one = Input(f"x{number}", shape, dtype, values or ValueRange(), 1000 * number + seed)
        floats = dtype_of(dtype).is_float
        if not (self.parameters and floats and shape and numel(shape) > 0):
            name = self._add(one)
            if floats:
                self.pool.append(name)
            return name
        name = self._add(replace(one, dtype="float32", parameter=True))
        self.pool.append(name)
        return (
            name
            if dtype == "float32"
            else (self.emit("cast", {"X": name}, {"in_dtype": "float32", "out_dtype": dtype}) or [name])[0]
        )

    def untrained(self, shape: tuple[int, ...], dtype: str, values: ValueRange | None = None, seed: int = 0) -> str:
        """Adds an input that no optimizer changes; returns its name."""
        number = len(self.inputs)
        return self._add(Input(f"x{number}", shape, dtype, values or ValueRange(), 1000 * number + seed))

    def index(self, shape: tuple[int, ...], high: int, seed: int) -> str:
        """Adds an input of integers from 0 to ``high - 1``; returns its name."""
        return self.fresh(shape, "int64", ValueRange(0, high, dtype="int64"), seed)

    def threshold(self, name: str) -> str:
        """Adds an input of one element in the widest gap between a value's elements; returns its name.

        There, another rounding of the value is least likely to change the result of a comparison.
        """
        value = self.values[name]
        points = np.unique(value.wide) if value.wide.size else np.zeros(1)
        at = int(np.argmax(np.diff(points))) if points.size > 1 else 0
        middle = float(points[at : at + 2].mean()) if points.size > 1 else float(points[0]) + 1.0
        return self._add(Input(f"x{len(self.inputs)}", (1,), value.dtype, given=(round(middle, 2),)))

    @staticmethod
    def bounded(definition: OpDef, case: Case, values: ValueRange) -> ValueRange:
        """Returns a range with its bound resolved: ``"W.0"`` is the size of axis 0 of input W, any other text an attribute."""
        if not isinstance(values.high, str):
            return values
        slot, dot, axis = values.high.partition(".")
        if not dot:
            return replace(values, high=float(definition.complete(case.attrs)[slot]))
        shape = next(s for c, s in zip(definition.inputs, case.shapes, strict=False) if c.name == slot)
        first = shape[0] if shape and isinstance(shape[0], tuple | list) else shape
        return replace(values, high=float(first[int(axis)] if first else 1))

    # ------------------------------------------------------------------------------------------------------------- emit
    def emit(self, type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[str] | None:
        """Appends a step.

        Args:
            type: Op type.
            inputs: Slot -> name or list of names.
            attrs: Attributes.

        Returns:
            The names of its outputs without the intermediate ones, or ``None`` if the step was refused: the op refuses its
            inputs, the result overflows, or it is discontinuous within the rounding of its inputs.
        """
        definition = op_def(type)
        fitted = {
            slot: [self._fit(definition, slot, n) for n in row]
            if isinstance(row, list)
            else self._fit(definition, slot, row)
            for slot, row in inputs.items()
        }
        rows = [fitted.get(s.name) for s in definition.inputs]
        own = self._run(definition, rows, attrs, lambda v: v.own)
        if own is None:
            return None
        wide_attrs = _widened(definition, attrs)
        wide = self._run(definition, rows, wide_attrs, lambda v: v.wide)
        if wide is None or not _sound(own, wide) or self._jumps(definition, rows, wide_attrs, wide):
            return None
        gain = self._gain(definition, rows, wide_attrs, wide) if self.backward else 1.0
        if gain is None or gain > (MOST_TRAINED_GAIN if self.parameters else MOST_GAIN):
            return None
        return self._append(definition, fitted, attrs, own, wide, gain)

    def witness(self, name: str, dtype: str) -> None:
        """Compares an input with its rounded copy, so that a fusion that omits the rounding changes the result.

        In float64 nothing is rounded, so no later step may read the result: it is only fetched.

        Args:
            name: A float32 input.
            dtype: The 16-bit type that it is rounded to.
        """
        low = self.emit("cast", {"X": name}, {"in_dtype": "float32", "out_dtype": dtype})
        wide = low and self.emit("cast", {"X": low[0]}, {"in_dtype": dtype, "out_dtype": "float32"})
        if not wide:
            return
        definition, ins = op_def("less_than"), {"X": wide[0], "Y": name}
        own = self._run(definition, [wide[0], name], {}, lambda v: v.own)
        if own is not None:
            self.asides += self._append(definition, ins, {}, own, own, 1.0)
            del self.pool[-1]

    def _append(
        self, definition: OpDef, fitted: Mapping[str, Any], attrs: Mapping[str, Any],
        own: Sequence[Any], wide: Sequence[Any], gain: float,
    ) -> list[str]:  # fmt: skip
        outputs: dict[str, Any] = {}
        made = []
        for slot, a, b in zip(definition.outputs, own, wide, strict=True):
            if a is None:
                continue
            row = []
            for x, y in zip(a if isinstance(a, list) else [a], b if isinstance(b, list) else [b], strict=True):
                name = f"v{self._named}"
                self._named += 1
                same = bool(np.array_equal(x.astype(y.dtype), y, equal_nan=True))
                self.values[name] = Value(x, y, gain, same and is_free(definition.type))
                row.append(name)
                if not slot.intermediate:
                    made.append(name)
                    self.pool.append(name)
            outputs[slot.name] = row
        self.steps.append(Step.of(definition.type, fitted, outputs, attrs))
        return made

    def _run(self, definition: OpDef, rows: Sequence[Any], attrs: Mapping[str, Any], look: Any) -> list[Any] | None:
        ins = [
            None if r is None else [look(self.values[n]) for n in r] if isinstance(r, list) else look(self.values[r])
            for r in rows
        ]
        outs = attempt(definition, ins, attrs)
        if outs is None or sum(a.size for a in flat(outs)) > self.most_elements:
            return None
        return outs

    def fits(self, definition: OpDef, slot: str, name: str) -> bool:
        """Returns whether a value lies in the domain of a slot."""
        value = self.values[name]
        if not value.is_float or not value.wide.size:
            return True
        low, high = bounds(definition, slot)
        least, most = value.range
        return low <= least and most <= high

    def _fit(self, definition: OpDef, slot: str, name: str) -> str:
        """Returns a value that lies in the domain of a slot: ``name``, or else ``tanh`` and ``scale`` of it."""
        if definition.type in ("tanh", "scale") or self.fits(definition, slot, name):
            return name
        low, high = bounds(definition, slot)
        if high == MOST_INPUT:
            low, high = -2.0, 2.0
        small = self.emit("tanh", {"X": name}, {})
        half = (high - low) / 2 - GAP
        moved = small and self.emit(
            "scale", {"X": small[0]}, {"scale": round(half, 4), "bias": round((high + low) / 2, 4)}
        )
        return moved[0] if moved else name

    # ----------------------------------------------------------------------------------------------------- conditioning
    def _variants(self, rows: Sequence[Any]) -> list[Any]:
        """Returns functions that give a value as other roundings would: farther off in the same and in other directions.

        Each perturbs by 4 times the actual error plus 8 units in the last place.
        """
        used = {n for r in rows if r is not None for n in (r if isinstance(r, list) else [r])}
        if all(self.values[n].exact for n in used):
            return []

        order = {id(self.values[n]): k for k, n in enumerate(sorted(used))}

        def away(pattern: Any) -> Any:
            def look(value: Value) -> Array:
                if not value.is_float or value.exact:
                    return value.wide
                error = value.own.astype(np.float64) - value.wide
                unit = 8 * ulp(value.wide, value.own.dtype) * (value.wide != 0)
                return np.asarray(value.wide + pattern(value) * (np.copysign(unit, error) + 4 * error))

            return look

        return [
            lambda v: v.own.astype(np.float64) if v.is_float else v.own,
            away(lambda v: 1.0),
            away(lambda v: -1.0),
            # Perturbs values in alternating directions, and then the elements of each value.
            away(lambda v: (-1.0) ** order[id(v)]),
            away(lambda v: np.where(np.arange(v.wide.size) % 2, 1.0, -1.0).reshape(v.shape)),
        ]

    def _jumps(self, definition: OpDef, rows: Sequence[Any], attrs: Mapping[str, Any], wide: Sequence[Any]) -> bool:
        for look in self._variants(rows):
            other = self._run(definition, rows, attrs, look)
            if other is None or any(_differ(a, b) for a, b in zip(flat(wide), flat(other), strict=True)):
                return True
        return False

    def _gain(
        self, definition: OpDef, rows: Sequence[Any], attrs: Mapping[str, Any], wide: Sequence[Any]
    ) -> float | None:
        """Returns a bound of the derivative with respect to the inputs, or ``None`` if the op's gradient is discontinuous there."""
        names = [n for r in rows if r is not None for n in (r if isinstance(r, list) else [r])]
        before = max((self.values[n].gain for n in names), default=1.0)
        has_op = isinstance(definition.grad, GradOp) or (definition.grad is DERIVE and definition.pointwise is not None)
        if not has_op:
            return 2 * before
        back = op_def(f"{definition.type}_grad")
        results = []
        for look in [lambda v: v.wide, *self._variants(rows)]:
            outs = self._run(definition, rows, attrs, look)
            if outs is None:
                return None
            named: dict[str, Any] = {}
            for slot, row in zip(definition.inputs, rows, strict=True):
                named[slot.name] = _map(lambda n, look=look: look(self.values[n]), row)
            for slot, out in zip(definition.outputs, outs, strict=True):
                named[slot.name] = out
                named[slot.name + GRAD] = _map(lambda a: np.ones(a.shape) if a.dtype == np.float64 else None, out)
            picked = {n: v for n, v in attrs.items() if n in back.attrs}
            try:
                with np.errstate(all="ignore"):
                    wanted = [_reached(named.get(o.name.removesuffix(GRAD))) for o in back.outputs]
                    found = evaluate(back, [named.get(s.name) for s in back.inputs], picked, wanted)
            except (TstaticError, ValueError, TypeError, IndexError, AttributeError):
                return None
            results.append(flat(found))
        local = max((float(np.abs(a).max(initial=0.0)) for a in results[0] if a.dtype == np.float64), default=0.0)
        if not np.isfinite(local) or any(
            _differ(a, b) for r in results[1:] for a, b in zip(results[0], r, strict=True)
        ):
            return None
        return before * max(1.0, local)

    # ----------------------------------------------------------------------------------------------------------- finish
    def recipe(self, inner: Sequence[str] = ()) -> Recipe:
        """Returns the recipe, which fetches the results that no step reads and the values in ``inner``."""
        read = {n for s in self.steps for n in s.reads}
        made = {n for s in self.steps for n in s.writes}
        ends = [n for n in self.pool if n in made and n not in read]
        fetches = tuple(dict.fromkeys([*ends, *(n for n in inner if n in made), *self.asides]))
        used = tuple(i for i in self.inputs if i.name in read)
        floats = (
            tuple(i.name for i in used if dtype_of(i.dtype).is_float) if self.backward and not self.parameters else ()
        )
        return quiet(Recipe(used, tuple(self.steps), fetches, floats))

    def trained(self, recipe: Recipe, optimizer: str, runs: int, clip: float = 0.0) -> Recipe | None:
        """Returns a recipe with an optimizer, or ``None`` if no gradient reaches a parameter."""
        found = replace(recipe, optimizer=optimizer, runs=runs, clip=clip)
        if not any(self.values[n].is_float and self.values[n].own.size for n in recipe.fetches):
            return None
        try:
            built = found.build()
        except TstaticError:
            return None
        if not any(op.definition.update for op in built.main.global_block().ops):
            return None
        noise = noisy(found, {f"{i.name}{GRAD}": i.name for i in found.inputs if i.parameter})
        if not noise:
            return found
        # A parameter whose gradient is only rounding noise becomes a fed input.
        inputs = tuple(replace(i, parameter=i.parameter and i.name not in noise) for i in found.inputs)
        return self.trained(replace(recipe, inputs=inputs), optimizer, runs, clip)


def _widened(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes for a run in float64."""

    def wide(name: str, value: Any) -> Any:
        return (
            "float64"
            if definition.attrs[name].kind == "dtype" and value is not None and dtype_of(value).is_float
            else value
        )

    return {n: wide(n, v) for n, v in attrs.items()}


def _map(function: Any, value: Any) -> Any:
    return None if value is None else [function(v) for v in value] if isinstance(value, list) else function(value)


def _reached(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return first is not None and not isinstance(first, list) and first.dtype == np.float64


def _sound(own: Sequence[Any], wide: Sequence[Any]) -> bool:
    """Returns whether two results are finite and small, and differ by no more than rounding explains."""
    for a, b in zip(flat(own), flat(wide), strict=True):
        if not dtype_of(a.dtype).is_float:
            if not np.array_equal(a, b):
                return False
            continue
        narrow = a.astype(np.float64)
        if not (np.isfinite(narrow).all() and (np.abs(b) <= MOST).all()):
            return False
        if _differ(narrow, b):
            return False
    return True


def _differ(a: Array, b: Array) -> bool:
    """Returns whether two roundings of one result differ by more than smooth ops allow: 0.25 relative, or absolute below 1."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if not dtype_of(a.dtype).is_float:
        return not np.array_equal(a, b)
    with np.errstate(all="ignore"):
        return bool((~(np.abs(a - b) <= 0.25 * np.maximum(1.0, np.abs(a)))).any()) if a.size else False


__all__ = ["MOST_ELEMENTS", "ProgramBuilder", "Value"]
