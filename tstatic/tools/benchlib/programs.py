"""A row of a user's own program: what a step of it takes, and its results, by the references of the operators in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.devices import HOST, standing_in
from tstatic.errors import ProgramError
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of
from tstatic.locks import cached_property
from tstatic.runtime.scope import Scope
from tstatic.static.strategy import BuildStrategy
from tstatic.tools.benchlib.cases import Case, Work, build
from tstatic.tools.benchlib.rows import BOTH, FORWARD, OwnProgram, Row
from tstatic.tools.testing.equivalence import results_of
from tstatic.tools.testing.feeds import data_variables, values_of
from tstatic.tools.testing.parts import Array, sample
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import Trial, baseline_of
from tstatic.tools.testing.tolerance import check, ulp, ulps_of

_EMPTY = Recipe((), (), ())
_VALUES = 0.01, 0.1
"""Bounds of values that are drawn for variables without any: positive, as variances have to be, and small, as weights are."""


def row_of_program(
    subject: str,
    program: Program,
    shapes: Mapping[str, Sequence[int]],
    fetches: Sequence[str] = (),
    scope: Scope | None = None,
    blocks: Sequence[tuple[str, int]] = (),
) -> tuple[Row, list[str]]:
    """Returns the row of a program, and the variables whose values had to be drawn.

    Args:
        subject: What the row is called.
        program: The program; it stays as it is.
        shapes: Input -> shape.
        fetches: What a step fetches; none takes all results that no op reads.
        scope: Where its persistable variables have their values; those without one get drawn numbers.
        blocks: Sizes of blocks that its kernels take.

    Raises:
        ProgramError: If it has no op, or works with other processes.
    """
    clone = program.clone()
    clone.random_seed = program.random_seed or 1
    ops = [op for block in clone.blocks for op in block.ops]
    if not ops:
        raise ProgramError(
            f"'{subject}' has no operators to measure",
            fix="build the program before it is saved, or choose another with --program",
        )
    if clone.collectives or any(op.definition.collective for op in ops):
        raise ProgramError(
            f"'{subject}' exchanges values with other places or processes, and a row runs on one place",
            expected="a program for one place", received="collective operators", fix="measure the program of one place",
        )  # fmt: skip
    names = list(fetches) or results_of(clone)
    state: dict[str, Array] = {}
    drawn: list[str] = []
    for number, var in enumerate(v for v in clone.list_vars() if v.persistable and v.type == "dense_tensor"):
        held = None if scope is None else scope.array(var.name)
        if held is None and -1 not in var.shape and any(var.name in op.input_arg_names for op in ops):
            low, high = _VALUES if var.dtype.is_float else (0.0, 1.0)
            held = sample(var.shape, var.dtype.name, low, high, number)
            drawn.append(var.name)
        if held is not None:
            state[var.name] = np.array(held)
    written = {n for op in ops for n in op.output_arg_names}
    backward = any(op.role & OpRole.Backward for op in ops)
    own = OwnProgram(
        clone, {n: tuple(s) for n, s in shapes.items()}, tuple(names), state, any(n in written for n in state)
    )
    kinds = [v.dtype.name for v in data_variables(clone) if v.dtype.is_float]
    label = ", ".join(f"{name} {list(shape)}" for name, shape in own.shapes.items())
    direction = BOTH if backward else FORWARD
    row = Row(subject, label, kinds[0] if kinds else "float32", direction, _EMPTY, blocks=tuple(blocks), own=own)
    return row, drawn


def fingerprint(row: Row) -> str:
    """Returns some digits that change with a user's program: results of different ones do not go into one file."""
    assert row.own is not None
    return hashlib.sha256(str(row.own.program).encode("utf-8", "backslashreplace")).hexdigest()[:12]


def case_of(row: Row, seed: int = 0) -> Case:
    """Builds what peers need of any row, a user's program among them.

    Raises:
        TstaticError: What an op refuses.
    """
    if row.own is None:
        return build(row, seed)
    own, feed = row.own, {}
    for number, var in enumerate(data_variables(own.program)):
        values = values_of(own.program, var)
        feed[var.name] = sample(
            own.shapes[var.name],
            var.dtype.name,
            values.low,
            float(values.high),
            seed + number,
            values.avoid,
            values.rows,
        )
    trial = Trial(own.program, own.state, list(own.fetches))
    written = [name for name in trial.written if name in own.state]
    return ProgramCase(
        row, own.program, dict(own.state), list(own.fetches), {**feed, **own.state}, feed, written, trial
    )


@dataclass
class ProgramCase(Case):
    """A user's program, ready for peers.

    Attributes:
        trial: Runs it as a reference, branches and loops included.
    """

    trial: Trial = None  # type: ignore[assignment]

    @cached_property
    def trains(self) -> bool:
        assert self.row.own is not None
        return self.row.own.trains

    @cached_property
    def random(self) -> bool:
        return any(op.definition.random for block in self.program.blocks for op in block.ops)

    @cached_property
    def expected(self) -> list[Array]:
        """The results of the references, in the program's own types."""
        with standing_in(HOST):
            plain = self.trial.compiled(baseline_of(BuildStrategy()), self.trial.by_reference)
            return self._joined(self.trial.run(plain, self.feed, self.state))

    @cached_property
    def _wide(self) -> tuple[list[Array], list[Array]]:
        """The results in float64, and how far each moves when inputs and temporaries move by a unit in the last place."""
        with standing_in(HOST):
            exact, spread = self.trial.reference(self.feed, 0)
        return self._joined(exact), self._joined(spread)

    def _joined(self, rows: Sequence[Sequence[Array]]) -> list[Array]:
        """Returns what the step fetched, and the state behind it, in the order of :attr:`compared`."""
        (fetched, kept), by_name = rows, self.trial.written
        held = dict(zip(by_name, kept, strict=True))
        return [*map(np.asarray, fetched), *(held[name] for name in self.written)]

    @cached_property
    def exact(self) -> list[Array]:
        """The results of the references in float64."""
        return self._wide[0]

    @cached_property
    def work(self) -> Work:
        """The bytes that a step reads and writes at least; its operations are not counted."""
        read = {n for block in self.program.blocks for op in block.ops for n in op.input_arg_names}
        given = [a for n, a in self.inputs.items() if n in read]
        return Work(sum(a.nbytes for a in given) + sum(a.nbytes for a in self.expected), None)

    def _wrong(self, number: int, got: Array, foreign: bool) -> str:
        if self._complex:
            return self._off(number, got)
        name, expected = self.compared[number], self.expected[number]
        exact, spread = (one[number] for one in self._wide)
        units = ulps_of(self.program, [name])[name]
        found = check(exact, expected, got, units, spread)
        if found is not None and found.reason == "value":
            # Sums of many terms are added in another order by each library: units of the largest element.
            finite = np.abs(exact[np.isfinite(exact)])
            largest = (3 if foreign else 1) * units * ulp(finite.max(initial=0.0), dtype_of(got.dtype))
            found = check(exact, expected, got, units, np.maximum(spread, largest))
        return f"{name} {found}" if found is not None else ""


def note(drawn: Sequence[str], subject: Any) -> str:
    """Returns a line on variables without values; empty if there are none."""
    more = f" and {len(drawn) - 3} more" if len(drawn) > 3 else ""
    return f"{subject} has no values for {', '.join(drawn[:3])}{more}: numbers were drawn for them" if drawn else ""


__all__ = ["ProgramCase", "case_of", "fingerprint", "note", "row_of_program"]
