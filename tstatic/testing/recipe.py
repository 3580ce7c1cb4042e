"""A program as plain data: inputs, steps, what is fetched, gradients and an optimizer; it builds the program and its script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tstatic.optimizer
from tstatic import static
from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.domain import ValueRange
from tstatic.ir.program import Block, Program, Variable, program_guard
from tstatic.ir.types import dtype_of
from tstatic.nn.clip import ClipGradByGlobalNorm
from tstatic.nn.initializer import Assign
from tstatic.testing.script import write

Array = np.ndarray[Any, Any]
Names = tuple[str, ...]
Slots = tuple[tuple[str, Names], ...]
Feeds = dict[str, Array]

GAP = 0.01
"""Distance that samples keep from the points that a domain avoids."""

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)
_HUGE = (1e13, -1e13, 1e30, -1e30)
"""The cube of the one overflows float32, and the square of the other."""


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
        seed: Another seed gives other values.
        avoid: Points that floats keep a distance of 0.01 from; ``"int"`` avoids all whole numbers.
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
    """A value from outside: fed, or (``parameter``) a parameter with these start values.

    Attributes:
        name, shape, dtype: As in ``static.data``.
        values: Where its elements are drawn from; ``high`` is a number here.
        seed: Of :func:`sample`.
        parameter: Whether it is a parameter.
        given: The values themselves, as (nested) tuples of numbers, instead of drawn ones.
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
        """Its values."""
        if self.given is not None:
            return np.array(self.given, np.float64 if dtype_of(self.dtype).is_float else None).reshape(self.shape).astype(
                dtype_of(self.dtype).np
            )  # fmt: skip
        v = self.values
        return sample(self.shape, self.dtype, v.low, float(v.high), self.seed, v.avoid, v.rows, self.nan, self.special)


@dataclass(frozen=True)
class Step:
    """One op: its type, names per slot, attributes (dtypes by name), and its role if it is not a forward op."""

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
        """Attributes, the automatic ones of its role included."""
        extra: dict[str, Any] = {"op_role": self.role} if self.role else {}
        if self.role_var:
            extra["op_role_var"] = list(self.role_var)
        return {**dict(self.attrs), **extra}


@dataclass(frozen=True)
class Built:
    """A recipe's programs, what to feed, and the names to fetch."""

    main: Program
    startup: Program
    feeds: Feeds
    fetches: list[str]

    def __iter__(self) -> Any:
        return iter((self.main, self.startup, self.feeds, self.fetches))


@dataclass(frozen=True, repr=False)
class Recipe:
    """A straight-line program as plain data, so that hypothesis shrinks it and a message can print it.

    Attributes:
        inputs: Fed values and parameters.
        steps: Ops, in order.
        fetches: Names of the values that a run returns.
        gradients: Also fetch the gradients of the float fetches by these inputs; each fetched value ``v`` gets the fed
            gradient ``v_bar``.
        optimizer: Name of a class of ``tstatic.optimizer`` that minimizes the sum of the weighted means of the float
            fetches that are not empty; the weights of ``v`` are fed as ``v_weights``.
        runs: Number of runs (training steps).
        clip: The gradients' global norm is clipped to it; 0 leaves them alone.
        kept: Inner values that are persistable: the scope keeps them after a run.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    fetches: Names
    gradients: Names = ()
    optimizer: str = ""
    runs: int = 1
    clip: float = 0.0
    kept: Names = ()

    # ------------------------------------------------------------------------------------------------------------ build
    def build(self) -> Built:
        """Builds the programs.

        Returns:
            Main program, startup program, feeds and names to fetch (also as ``main, startup, feeds, fetches = ...``).

        Raises:
            TstaticError: What an op refuses.
        """
        main, startup = Program(), Program()
        # A seed of its own, so that a program of random ops is the same in every process.
        main.random_seed = startup.random_seed = 1
        feeds: Feeds = {}
        with program_guard(main, startup), names.guard():
            block = main.global_block()
            for one in self.inputs:
                _declare(one, feeds)
            for step in self.steps:
                append(block, step)
            for name in self.kept:
                block.var(name).persistable = True
            fetches = [*self.fetches, *self._append_gradients(block, feeds)]
            if self.optimizer:
                loss = self._append_loss(block, feeds)
                clip = ClipGradByGlobalNorm(self.clip) if self.clip else None
                getattr(tstatic.optimizer, self.optimizer)(learning_rate=0.01, grad_clip=clip).minimize(loss)
                fetches.append(loss.name)
        return Built(main, startup, feeds, fetches)

    def _floats(self, block: Block) -> list[Variable]:
        return [block.var(n) for n in self.fetches if block.var(n).dtype.is_float]

    def _append_gradients(self, block: Block, feeds: Feeds) -> list[str]:
        targets = self._floats(block) if self.gradients else []
        if not targets:
            return []
        seeds = []
        for k, target in enumerate(targets):
            one = self.seed_of(target, k)
            seeds.append(_declare(one, feeds))
        found = static.gradients(targets, [block.var(n) for n in self.gradients], seeds)
        return list(dict.fromkeys(g.name for g in found if g is not None))

    @staticmethod
    def seed_of(target: Variable, number: int) -> Input:
        """The fed gradient of a fetched value."""
        return Input(f"{target.name}_bar", target.shape, target.dtype.name, ValueRange(0.5, 1.5), number)

    @staticmethod
    def weights_of(target: Variable, number: int) -> Input:
        """The fed weights of a fetched value in the loss."""
        return Input(f"{target.name}_weights", target.shape, "float32", ValueRange(0.5, 1.5), number)

    def _append_loss(self, block: Block, feeds: Feeds) -> Variable:
        total: Any = None
        for number, target in enumerate(self._floats(block)):
            # The mean of nothing is NaN.
            if 0 in target.shape:
                continue
            wide = target
            if target.dtype.is_low:
                wide = emit("cast", {"X": target}, {"in_dtype": target.dtype, "out_dtype": "float32"})
            # Weights, since the plain mean of a softmax or a normalisation has no gradient but rounding noise.
            weights = _declare(self.weights_of(target, number), feeds)
            product = emit("elementwise_mul", {"X": wide, "Y": weights})
            mean = emit("reduce_mean", {"X": product}, {"reduce_all": True})
            total = mean if total is None else emit("elementwise_add", {"X": total, "Y": mean})
        assert isinstance(total, Variable), "a recipe with an optimizer fetches a float that is not empty"
        return total

    # ---------------------------------------------------------------------------------------------------------- editing
    def pruned(self, fetches: Iterable[str]) -> Recipe:
        """The same recipe with only what the given values need."""
        wanted = set(fetches)
        kept = []
        for step in reversed(self.steps):
            if wanted.intersection(step.writes):
                kept.append(step)
                wanted.update(step.reads)
        return replace(
            self, steps=tuple(kept[::-1]), fetches=tuple(n for n in fetches),
            gradients=tuple(n for n in self.gradients if n in wanted),
            inputs=tuple(i for i in self.inputs if i.name in wanted),
            kept=tuple(n for n in self.kept if n in wanted),
        )  # fmt: skip

    def __repr__(self) -> str:
        lines = [
            f"{i.name}: {i.dtype}{list(i.shape)}{' (parameter)' * i.parameter}{' with NaN' * i.nan}"
            f"{' with special values' * i.special}"
            for i in self.inputs
        ]
        lines += [
            f"{', '.join(s.writes)} = {s.type}({', '.join([*s.reads, *(f'{n}={v!r}' for n, v in s.attrs)])})"
            for s in self.steps
        ]
        lines.append(f"fetch {', '.join(self.fetches)}")
        if self.gradients:
            lines.append(f"gradients by {', '.join(self.gradients)}")
        if self.optimizer:
            lines.append(f"{self.optimizer}, {self.runs} steps" + (f", clipped at {self.clip}" if self.clip else ""))
        if self.kept:
            lines.append(f"persistable {', '.join(self.kept)}")
        return "Recipe:\n  " + "\n  ".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis prints of a failing example."""
        printer.text(repr(self))

    def to_script(self, strategies: Any = ()) -> str:
        """A script of at most 30 lines that builds the program through the public API and compares (see ``script.py``).

        Args:
            strategies: A BuildStrategy or several.
        """
        return write(self, strategies)


def _declare(one: Input, feeds: Feeds) -> Variable:
    if one.parameter:
        made: Variable = static.create_parameter(
            list(one.shape), one.dtype, name=one.name, default_initializer=Assign(one.array())
        )
        return made
    feeds[one.name] = one.array()
    var: Variable = static.data(one.name, list(one.shape), one.dtype)
    var.stop_gradient = not var.dtype.is_float
    return var


def append(block: Block, step: Step) -> None:
    """Appends a step to a block; its new outputs take the step's names."""
    new = []
    for name in step.writes:
        if block._find_var_recursive(name) is None:
            new.append(block.create_var(name=name))
    block.append_op(
        step.type, {s: list(row) for s, row in step.inputs}, {s: list(row) for s, row in step.outputs}, step.all_attrs()
    )
    for var in new:
        if not var.dtype.is_float:
            var.stop_gradient = True


__all__ = ["Built", "Input", "Recipe", "Step", "sample"]
