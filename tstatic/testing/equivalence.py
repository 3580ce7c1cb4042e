"""``assert_equivalent`` checks that strategies do not change a program's results; if one does, it writes the smallest script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.checks import check_type
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Program
from tstatic.ir.updates import with_updates
from tstatic.logs import warn_once
from tstatic.progress import tracked
from tstatic.static.request import fetch_names
from tstatic.static.strategy import BuildStrategy
from tstatic.testing.feeds import Range, sample_feeds
from tstatic.testing.parts import Feeds
from tstatic.testing.recipe import Recipe
from tstatic.testing.runner import Failure, Trial, baseline_of, everything_on, start_values, trial_of_recipe
from tstatic.testing.shrink import postponed, smallest
from tstatic.testing.tolerance import Difference


class EquivalenceError(AssertionError):
    """Raised if a program gives another result under a strategy.

    Attributes:
        variable: The first variable that differs.
        step: The run in which it differs (0 is the first).
        difference: The worst element (:class:`~tstatic.testing.tolerance.Difference`), or ``None`` if the run itself failed.
        strategy: The strategy.
        baseline: The strategy with every rewriting switched off.
        script: A script of at most 30 lines that shows the difference; empty if none was asked for.
    """

    def __init__(
        self,
        message: str,
        variable: str,
        step: int,
        difference: Difference | None,
        strategy: BuildStrategy,
        baseline: BuildStrategy,
        script: str = "",
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.step = step
        self.difference = difference
        self.strategy = strategy
        self.baseline = baseline
        self.script = script


NO_KERNEL = "no generated kernel ran"
"""Key of the warning that says so."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """How much :func:`assert_equivalent` compared.

    Attributes:
        feeds, strategies: Number of feeds, and of strategies for each.
        fusions: Most fused ops in the program under one of the strategies.
        kernels: Most generated kernels that a run of it launched; 0 where fused ops run as those that they replace.
    """

    feeds: int
    strategies: int
    fusions: int
    kernels: int


# --------------------------------------------------------------------------------------------------------------- assert
def assert_equivalent(
    program: Program | Recipe,
    strategies: BuildStrategy | Iterable[BuildStrategy] | None = None,
    feeds: Any = None,
    fetch_list: Any = None,
    steps: int = 1,
    startup: Program | None = None,
    seed: int = 0,
    examples: int = 20,
    *,
    ranges: Mapping[str, Range] | None = None,
    k: float | None = None,
    shrink: bool = True,
) -> Equivalence:
    """Checks that a program gives the same results with all rewriting off and under each strategy.

    Every run starts from the same parameters, in a scope of its own; the user's scope and program stay as they are. The
    results may differ as far as the tolerance rule of docs/testing.md allows, and not at all where the strategy left the
    ops alone.

    Args:
        program: A Program, with or without an optimizer, or a Recipe (which brings its own feeds, fetches and steps).
        strategies: One BuildStrategy or several; ``None`` switches every fusion on.
        feeds: One feed or a list of feeds; ``None`` draws ``examples`` feeds with :func:`sample_feeds`.
        fetch_list: What to compare; ``None``: all results that no op reads. Parameters that an optimizer updates are
            compared after the last step.
        steps: Number of runs (training steps) from the start values.
        startup: Startup program; ``None``: the values of the global scope, or the default startup program.
        seed: Seed of the drawn feeds.
        examples: Number of drawn feeds.
        ranges: Input name -> bounds of drawn feeds.
        k: Units in the last place to allow everywhere; ``None`` follows the table.
        shrink: Look for the smallest program that shows the difference.

    Returns:
        How much was compared. If no generated kernel ran, because this device runs fused ops as those that they replace, one
        warning says so: ``TSTATIC_CPU_BACKEND=interpret`` runs the kernels.

    Raises:
        EquivalenceError: A result differs; the message names variable, element and strategies, and holds a script.
        ProgramTypeError: For arguments of the wrong type.
        TstaticError: What the unfused run refuses.
    """
    chosen = _strategies(strategies)
    if isinstance(program, Recipe):
        trial, own = trial_of_recipe(program, k)
        batches: Sequence[Feeds] = [own]
    elif isinstance(program, Program):
        trial = _trial_of_program(program, fetch_list, steps, startup, k)
        batches = _batches(trial.program, feeds, seed, examples, ranges)
    else:
        raise ProgramTypeError(
            "assert_equivalent compares a Program",
            expected="a static.Program or a testing.Recipe",
            received=shown(program),
            fix="pass the program itself; a CompiledProgram's strategy goes into 'strategies'",
        )
    fusions = kernels = 0
    pairs = [(number, batch, strategy) for number, batch in enumerate(batches) for strategy in chosen]
    for number, batch, strategy in tracked("comparing runs", pairs, len(pairs)):
        failure = trial.compare(strategy, batch, seed + number)
        if failure is not None:
            recipe = program if isinstance(program, Recipe) else None
            raise _error(failure, trial, batch, recipe, shrink) from failure.error
        made, ran = trial.counts(strategy)
        fusions, kernels = max(fusions, made), max(kernels, ran)
    if fusions and not kernels:
        warn_once(
            NO_KERNEL,
            "assert_equivalent compared fused programs, but no generated kernel ran: on this device fused operators run as those "
            "that they replace. TSTATIC_CPU_BACKEND=interpret runs the kernels in Triton's interpreter",
        )
    return Equivalence(len(batches), len(chosen), fusions, kernels)


def _strategies(given: Any) -> list[BuildStrategy]:
    chosen = [everything_on()] if given is None else [given] if isinstance(given, BuildStrategy) else list(given)
    for one in chosen:
        check_type(
            one, BuildStrategy, "strategies", "assert_equivalent", expected="a static.BuildStrategy or a list of them"
        )
    return chosen


def _trial_of_program(program: Program, fetch_list: Any, steps: int, startup: Program | None, k: float | None) -> Trial:
    state = start_values(program, startup)
    clone = program.clone()
    clone.random_seed = program.random_seed or 1
    names, kept = fetch_names(fetch_list) if fetch_list is not None else (results_of(program), [])
    if kept:
        clone = with_updates(clone, [], names, kept)
    return Trial(clone, state, names, steps, k)


def results_of(program: Program) -> list[str]:
    """Returns the loss, the fetches of an inference program, and the forward results and gradients that no op reads."""
    read = {n for block in program.blocks for op in block.ops for n in op.input_arg_names}
    found = dict.fromkeys((*program.fetch_names, *([program.loss_name] if program.loss_name else [])))
    block = program.global_block()
    for op in block.ops:
        if op.role & (OpRole.Optimize | OpRole.LRSched):
            continue
        for slot, row in op.outputs.items():
            if op.definition.output_slots[slot].intermediate:
                continue
            for name in row:
                var = block._find_var_recursive(name)
                if name not in read and var is not None and not var.persistable and var.type == "dense_tensor":
                    found[name] = None
    return list(found)


def _batches(
    program: Program, feeds: Any, seed: int, examples: int, ranges: Mapping[str, Range] | None
) -> Sequence[Feeds]:
    if feeds is None:
        # Small and odd sizes first; 1 finds what broadcasting hides.
        sizes = ((3, 4, 2), (1, 1, 1), (5, 3, 7), (2, 2, 2), (8, 1, 3), (17, 5, 4))
        return [sample_feeds(program, seed + i, ranges, sizes[i % len(sizes)]) for i in range(examples)]
    listed = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    return [{n: np.asarray(v) for n, v in one.items()} for one in listed]


def _error(failure: Failure, trial: Trial, feeds: Feeds, recipe: Recipe | None, shrink: bool) -> EquivalenceError:
    baseline = baseline_of(failure.strategy)
    script, note = smallest(failure, trial, feeds, recipe) if shrink and not postponed() else ("", "")
    lines = [
        f"'{failure.variable}' differs under another strategy, step {failure.step}"
        if failure.error is None
        else f"the program runs unfused and fails under a strategy: {type(failure.error).__name__}: {failure.error}",
        *([f"  {failure.difference}"] if failure.difference else []),
        f"  strategy: {failure.strategy!r}",
        f"  against:  {baseline!r}",
    ]
    if script:
        lines += [f"  {note}", "", script]
    return EquivalenceError(
        "\n".join(lines), failure.variable, failure.step, failure.difference, failure.strategy, baseline, script
    )


__all__ = ["Equivalence", "EquivalenceError", "assert_equivalent", "results_of"]
