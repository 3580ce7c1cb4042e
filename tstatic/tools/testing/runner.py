"""Runs one program from one state under several strategies, and finds the first difference by the tolerance rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tstatic.devices import Device, standing_in
from tstatic.devices.planned import planned_device
from tstatic.errors import MissingPackageError, ProgramError
from tstatic.flags import FILL, filling_memory
from tstatic.ir.declare import NO_FUSE, default_startup_program
from tstatic.ir.opdef import GRAD
from tstatic.ir.program import Program
from tstatic.locks import cached_property
from tstatic.places import CPUPlace
from tstatic.runtime.scope import Scope, global_scope
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.run.executor import Executor, checking_executor
from tstatic.static.strategy import BuildStrategy
from tstatic.static.strategy.property import BOOL, OPTIONAL_BOOL
from tstatic.target import Target
from tstatic.tools.testing.magnitudes import SUFFIX, made_values, magnitudes, nudge, perturbable, unit_step, widen
from tstatic.tools.testing.parts import Array, Feeds
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.tolerance import Difference, check, float64_program, ulps_of, units

PATTERNS = 2
"""Number of random sign patterns by which inputs and temporaries are perturbed to measure the spread."""
MORE_PATTERNS = 16
"""The same if an element seems to break the rule: with few patterns, perturbations may cancel by chance."""
PLAIN_FILL = 0x6B
"""The byte that memory holds before unfused runs: a number of the order of 1e26 in float32. Fused runs find NaN (``FILL``), so that
an element that both leave unwritten differs, too."""
CANCELS = 2.0
"""Condition number ``sum|x| / |sum x|`` from which a sum's own rounding counts."""
_SWITCHES = ("compiler", "fusion", "memory", "optimizer fusion", "rewrite")


@dataclass(frozen=True)
class Failure:
    """A difference: a variable in a step, or the error that the run raised; and of several ways of a chip, in which."""

    variable: str
    step: int
    difference: Difference | None
    strategy: BuildStrategy
    error: BaseException | None = None
    way: int = 0


def baseline_of(strategy: BuildStrategy) -> BuildStrategy:
    """Returns a copy of a strategy without anything that rewrites the program or shares memory; what it computes stays."""
    plain = strategy.copy()
    for item in BuildStrategy.properties():
        if item.effect in _SWITCHES and item.kind in (BOOL, OPTIONAL_BOOL):
            setattr(plain, item.name, False)
    return plain


def everything_on() -> BuildStrategy:
    """Returns a strategy with every fusion switch on."""
    strategy = BuildStrategy()
    for item in BuildStrategy.properties():
        if item.effect in ("compiler", "fusion", "optimizer fusion") and item.kind is BOOL:
            setattr(strategy, item.name, True)
    return strategy


# ----------------------------------------------------------------------------------------------------------------- runs
@dataclass
class Trial:
    """A program with its start values, which runs under any strategy, each time from the same state.

    Attributes:
        program: The program; it has a seed.
        state: Persistable variables and their start values.
        fetches: Names that each run returns.
        steps: Number of runs.
        k: Units in the last place to allow; ``None`` counts those of the ops that a strategy rewrote.
        chip: Launch kernels as on this chip, in each of their ways there; ``None``: on CPU places as they are.
    """

    program: Program
    state: Mapping[str, Array]
    fetches: list[str]
    steps: int = 1
    k: float | None = None
    chip: Target | None = None
    executor: Executor = field(default_factory=lambda: checking_executor(CPUPlace()))
    _wide: tuple[Program, Program] | None = None
    _references: dict[Any, tuple[CompiledProgram, CompiledProgram]] = field(default_factory=dict)
    _compiled: dict[Any, CompiledProgram] = field(default_factory=dict)
    _plain: dict[Any, list[list[Array]]] = field(default_factory=dict)

    @property
    def written(self) -> list[str]:
        """The persistable variables that the program writes, with or without a start value."""
        outs = {n for op in self.program.global_block().ops for n in op.output_arg_names}
        return [v.name for v in self.program.list_vars() if v.persistable and v.name in outs]

    def run(
        self,
        program: Any,
        feeds: Feeds | Sequence[Feeds],
        state: Mapping[str, Array],
        way: int = 0,
        fill: int = PLAIN_FILL,
    ) -> list[list[Array]]:
        """Runs the steps in a fresh scope, with one feed for all or one each; the last entry holds what the scope keeps.

        Args:
            program: The program, compiled or not.
            feeds: One feed, or one for each step.
            state: The start values of persistable variables.
            way: Which of the ways of a chip to launch kernels.
            fill: The byte in the memory of temporaries before each step. Without it, an element that a kernel leaves unwritten
                would hold what the unfused run put there: all plans of an Executor share memory.
        """
        with filling_memory(fill):
            if self.chip is None:
                return self._run(program, feeds, state)
            with standing_in(self._device(way)):
                return self._run(program, feeds, state)

    def _device(self, way: int) -> Device:
        assert self.chip is not None
        return planned_device(self.chip, way)

    def _run(self, program: Any, feeds: Feeds | Sequence[Feeds], state: Mapping[str, Array]) -> list[list[Array]]:
        batches = [feeds] * self.steps if isinstance(feeds, Mapping) else feeds
        scope = Scope()
        for name, array in state.items():
            scope.publish(name, array.copy())
        results = [self.executor.run(program, feed=batch, fetch_list=self.fetches, scope=scope) for batch in batches]
        results.append([np.array(scope.find_var(n).get_tensor()) for n in self.written])  # type: ignore[union-attr]
        return results

    @cached_property
    def by_reference(self) -> Program:
        """The program, in which users' kernels run as their references."""
        if not any(op.definition.kernel is not None for block in self.program.blocks for op in block.ops):
            return self.program
        copy = self.program.clone()
        for op in (op for block in copy.blocks for op in block.ops if op.definition.kernel is not None):
            op.namescope = f"{op.namescope}{NO_FUSE}/"
        copy._touch()
        return copy

    def compiled(self, strategy: BuildStrategy, program: Program | None = None) -> CompiledProgram:
        program = self.program if program is None else program
        key = strategy.key(), program is self.program
        if key not in self._compiled:
            self._compiled[key] = CompiledProgram(program, build_strategy=strategy)
        return self._compiled[key]

    def ways(self, compiled: CompiledProgram) -> int:
        """Returns in how many ways the kernels of a program that ran can be launched, side by side."""
        if self.chip is None:
            return 1
        return max((len(kernel.ways(self.chip)) for kernel in compiled.kernels), default=1)

    def counts(self, strategy: BuildStrategy) -> tuple[int, int]:
        """Returns how many fused ops a program that ran under a strategy has, and how many of them run as generated kernels."""
        compiled = self.compiled(strategy)
        return len(compiled.fused_ops), len(compiled.kernels)

    def reference(
        self, feeds: Feeds, seed: int, patterns: int = PATTERNS, strategy: BuildStrategy | None = None
    ) -> tuple[list[list[Array]], list[list[Array]]]:
        """Returns the values in float64, and their spread: the change if inputs and temporaries change by a unit in the last place.

        If the terms of a value cancel, it changes by one unit in the last place of ``sum|x|`` instead of ``|sum x|``.

        Args:
            feeds: The feed of every step.
            seed: Seed of the signs.
            patterns: Number of sign patterns; the spread is the largest change.
            strategy: The strategy; its fusions are switched off.
        """
        if self._wide is None:
            self._wide = float64_program(self.by_reference), perturbable(self.by_reference)
        # No fusion may touch the reference, not even those that are on by default.
        plain = baseline_of(BuildStrategy() if strategy is None else strategy)
        if plain.key() not in self._references:
            first, second = (CompiledProgram(p, build_strategy=plain) for p in self._wide)
            self._references[plain.key()] = first, second
        plain_wide, perturbed_wide = self._references[plain.key()]
        wide, state = {n: widen(a) for n, a in feeds.items()}, {n: widen(a) for n, a in self.state.items()}
        made = made_values(self.program)
        y64 = self.run(plain_wide, wide, state)
        (middle, *_) = replace(self, fetches=list(made), steps=1).run(plain_wide, wide, state)
        values = dict(zip(made, middle, strict=True))
        sizes = magnitudes(self.by_reference, {**wide, **state, **values})
        spread = [[np.zeros(np.shape(v)) for v in row] for row in y64]
        for pattern in range(patterns):
            rng = np.random.default_rng([seed, pattern])
            moved_feeds, moved_state = ({n: nudge(a, rng) for n, a in given.items()} for given in (feeds, self.state))
            # Roundings differ from step to step; inputs do not.
            batches = [{**moved_feeds, **self._perturbations(made, values, sizes, rng)} for _ in range(self.steps)]
            moved = self.run(perturbed_wide, batches, moved_state)
            with np.errstate(all="ignore"):
                for row, other, base in zip(spread, moved, y64, strict=True):
                    for i, (b, c) in enumerate(zip(other, base, strict=True)):
                        if b.dtype == np.float64 and b.shape == c.shape == row[i].shape:
                            row[i] = np.fmax(row[i], np.abs(b - c))
        return y64, spread

    def _perturbations(
        self,
        made: Mapping[str, bool],
        values: Mapping[str, Array],
        sizes: Mapping[str, Array],
        rng: np.random.Generator,
    ) -> Feeds:
        """Returns perturbations of the temporaries, for the inputs that :func:`perturbable` adds."""
        block = self.program.global_block()
        makers = {name: op for op in block.ops for name in op.output_arg_names}
        found = {}
        for name, value in values.items():
            dtype = block._var_recursive(name).dtype
            # No op reads the rounding of a value that is only fetched; it changes only if its terms cancelled.
            step = unit_step(value, dtype, rng) if made[name] else np.zeros(value.shape)
            size = sizes.get(name)
            if size is not None and (size > CANCELS * np.abs(value)).any():
                # As many units as two kernels for its op may differ by: those of terms that another order adds up.
                lost = max(1.0, units(makers[name])) * unit_step(np.nan_to_num(size, posinf=0.0), dtype.compute, rng)
                step = step + np.where(size > CANCELS * np.abs(value), lost, 0.0)
            found[name + SUFFIX] = step
        return found

    def compare(self, strategy: BuildStrategy, feeds: Feeds, seed: int = 0) -> Failure | None:
        """Compares the unfused run with one under a strategy.

        Returns:
            The first difference, in the order of steps and fetches, or ``None``.

        Raises:
            TstaticError: The unfused run refuses the program.
        """
        plain = baseline_of(strategy)
        key = (plain.key(), id(feeds))
        if key not in self._plain:
            self._plain = {key: self.run(self.compiled(plain, self.by_reference), feeds, self.state)}
        unfused = self._plain[key]
        compiled, way, count = self.compiled(strategy), 0, 1
        while way < count:
            try:
                fused = self.run(compiled, feeds, self.state, way, FILL)
            except MissingPackageError:
                # A missing package says nothing about the program.
                raise
            except Exception as error:
                return Failure("", 0, None, strategy, error, way)
            failure = self._difference(strategy, feeds, seed, unfused, fused)
            if failure is not None:
                return replace(failure, way=way)
            way, count = way + 1, self.ways(compiled)
        return None

    def _difference(
        self,
        strategy: BuildStrategy,
        feeds: Feeds,
        seed: int,
        unfused: Sequence[Sequence[Array]],
        fused: Sequence[Sequence[Array]],
    ) -> Failure | None:
        """Returns the first difference between two runs that the rule does not allow."""
        compiled, plain = self.compiled(strategy), baseline_of(strategy)
        names = [*([self.fetches] * self.steps), self.written]
        # Equal bits pass the rule whatever float64 gives, so the slow float64 runs are only made if some bits differ.
        if all(_same(u, f) for row, other in zip(unfused, fused, strict=True) for u, f in zip(row, other, strict=True)):
            return None
        every = {n for row in names for n in row}
        k = dict.fromkeys(every, self.k or 0.0)
        if self.k is None:
            k = ulps_of(self.program, every, compiled.program, again=self.steps > 1)
        failure = None
        for patterns in (PATTERNS, MORE_PATTERNS):
            y64, spread = self.reference(feeds, seed, patterns, plain)
            failure = None
            for step, row in enumerate(names):
                for i, name in enumerate(row):
                    found = check(y64[step][i], unfused[step][i], fused[step][i], k[name], spread[step][i])
                    if found is not None and failure is None:
                        failure = Failure(name, min(step, self.steps - 1), found, strategy)
            if failure is None or failure.difference is None or failure.difference.reason != "value":
                break
        return failure


def _same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def trial_of_recipe(recipe: Recipe, k: float | None = None, chip: Target | None = None) -> tuple[Trial, Feeds]:
    """Returns a trial of a recipe, and its feeds."""
    built = recipe.build()
    state = start_values(built.main, built.startup)
    return Trial(built.main, state, built.fetches, recipe.runs, k, chip), built.feeds


def start_values(program: Program, startup: Program | None, scope: Scope | None = None) -> dict[str, Array]:
    """Returns the start values of a program's persistable variables.

    Args:
        program: The main program.
        startup: Its startup program; ``None`` takes the values of the scope, and without them runs the default one.
        scope: The scope that may hold values; the global one if ``None``.

    Raises:
        ProgramError: If a variable that the program reads has no start value.
    """
    wanted = [v.name for v in program.list_vars() if v.persistable]
    where = global_scope() if scope is None else scope
    if startup is None and all(where.array(n) is not None for n in wanted):
        return {n: np.array(where._value(n)) for n in wanted}
    fresh = Scope()
    start = (default_startup_program() if startup is None else startup).clone()
    if start.global_block().ops:
        start.random_seed = start.random_seed or 1
        Executor(CPUPlace()).run(start, scope=fresh)
    found = {n: fresh._value(n) for n in wanted}
    missing = [n for n, a in found.items() if a is None and _is_read(program, n)]
    if missing:
        raise ProgramError(
            f"'{missing[0]}' has no start value",
            expected="a startup program that initialises every parameter, or a scope that holds them",
            received=f"no value for {', '.join(map(repr, missing[:5]))}",
            fix="pass startup=..., or run the startup program before assert_equivalent",
            var=missing[0],
        )
    return {n: a for n, a in found.items() if a is not None}


def _is_read(program: Program, name: str) -> bool:
    """Returns whether an op reads the value that a variable has before the run: no earlier op of the main block writes it."""
    for op in program.global_block().ops:
        if name in op.input_arg_names:
            return True
        if name in op.output_arg_names:
            return False
    return any(name in op.input_arg_names for block in program.blocks[1:] for op in block.ops)


# ------------------------------------------------------------------------------------------------------- rounding noise
NOISE = 1e-10
"""Gradients closer to zero than this in float64 are the residue of a cancellation."""


def noisy(recipe: Recipe, names: Mapping[str, str]) -> set[str]:
    """Returns the inputs whose gradients cancel to rounding noise (a shift before a softmax), on which no two kernels agree."""
    trial, feeds = trial_of_recipe(replace(recipe, runs=1))
    block = trial.program.global_block()
    wanted = [n for n in names if block.has_var(n)]
    wide = Trial(float64_program(trial.program), trial.state, wanted)
    (found, *_) = wide.run(
        wide.compiled(baseline_of(BuildStrategy())),
        {n: widen(a) for n, a in feeds.items()},
        {n: widen(a) for n, a in trial.state.items()},
    )
    return {names[n] for n, g in zip(wanted, found, strict=True) if ((np.abs(g) > 0) & (np.abs(g) < NOISE)).any()}


def quiet(recipe: Recipe) -> Recipe:
    """Returns the recipe without the gradients that are only rounding noise."""
    if not recipe.gradients:
        return recipe
    found = noisy(recipe, {f"{n}{GRAD}": n for n in recipe.gradients})
    return replace(recipe, gradients=tuple(n for n in recipe.gradients if n not in found))


__all__ = ["Failure", "Trial", "baseline_of", "everything_on", "noisy", "quiet", "start_values", "trial_of_recipe"]
