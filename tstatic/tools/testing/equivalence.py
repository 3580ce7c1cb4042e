"""``assert_equivalent`` checks that strategies do not change a program's results; if one does, it writes the smallest script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.devices.planned import planned_device
from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.ir.checks import check_type
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Program
from tstatic.ir.updates import with_updates
from tstatic.logs import warn_once
from tstatic.progress import tracked
from tstatic.static.compile.request import fetch_names
from tstatic.static.strategy import BuildStrategy
from tstatic.target import CHIPS, Target, named
from tstatic.tools.testing.feeds import Range, sample_feeds
from tstatic.tools.testing.parts import Feeds
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import Failure, Trial, baseline_of, everything_on, start_values, trial_of_recipe
from tstatic.tools.testing.shrink import postponed, smallest
from tstatic.tools.testing.tolerance import Difference


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
    target: str | Target | None = None,
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
        target: A chip (``"sm_80"``, ``"sm_90"``, ``"sm_100"``, or a name such as ``"H100"``) that need not be here: run what it
            launches. Triton's interpreter runs the kernels, cut as they are there, and torch's operators on the CPU are the
            chip's library; where a kernel has other ways to be launched that run further functions, each is compared. It needs
            torch and triton, and no GPU. ``None`` runs CPU places as ``TSTATIC_CPU_BACKEND`` says.

    Returns:
        How much was compared. If no generated kernel ran, because this device runs fused ops as those that they replace, one
        warning says so: ``target`` or ``TSTATIC_CPU_BACKEND=interpret`` runs the kernels.

    Raises:
        EquivalenceError: A result differs; the message names variable, element and strategies, and holds a script.
        ProgramTypeError: For arguments of the wrong type.
        ProgramError: If there is no such target.
        DeviceError: With a target, if this process compiles kernels already: it either interprets or compiles them.
        MissingPackageError: With a target, if torch or triton is not installed.
        TstaticError: What the unfused run refuses.

    Example:
        >>> y = paddle.nn.functional.gelu(static.data("x", [None, 4]) * 2.0)
        >>> testing.assert_equivalent(static.default_main_program(), fetch_list=[y], examples=2).feeds
        2
    """
    chosen = _strategies(strategies)
    chip = _chip(target)
    if isinstance(program, Recipe):
        trial, own = trial_of_recipe(program, k, chip)
        batches: Sequence[Feeds] = [own]
    elif isinstance(program, Program):
        trial = _trial_of_program(program, fetch_list, steps, startup, k, chip)
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
            "that they replace. TSTATIC_CPU_BACKEND=interpret runs the kernels in Triton's interpreter; target='sm_90' runs those "
            "of such a chip",
        )
    return Equivalence(len(batches), len(chosen), fusions, kernels)


def _strategies(given: Any) -> list[BuildStrategy]:
    chosen = [everything_on()] if given is None else [given] if isinstance(given, BuildStrategy) else list(given)
    for one in chosen:
        check_type(
            one, BuildStrategy, "strategies", "assert_equivalent", expected="a static.BuildStrategy or a list of them"
        )
    return chosen


def _chip(target: str | Target | None) -> Target | None:
    """Returns the chip of a name, after a look at whether this process can run what it launches."""
    if target is None:
        return None
    chip = named(target) if isinstance(target, str) else target
    if not isinstance(chip, Target):
        known = dict.fromkeys(one.architecture for one in CHIPS)
        raise ProgramError(
            "assert_equivalent runs what a chip launches, and this is none",
            expected=f"one of {', '.join(known)}, or of {', '.join(one.short_name.upper() for one in CHIPS)}",
            received=shown(target),
            fix="pass target='sm_90', or leave it out to run on CPU places as they are",
        )
    planned_device(chip).begin()
    return chip


def _trial_of_program(
    program: Program, fetch_list: Any, steps: int, startup: Program | None, k: float | None, chip: Target | None
) -> Trial:
    state = start_values(program, startup)
    clone = program.clone()
    clone.random_seed = program.random_seed or 1
    names, kept = fetch_names(fetch_list) if fetch_list is not None else (results_of(program), [])
    if kept:
        clone = with_updates(clone, [], names, kept)
    return Trial(clone, state, names, steps, k, chip)


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
        *(_launched(trial.chip, failure.way) if trial.chip is not None else []),
        f"  strategy: {failure.strategy!r}",
        f"  against:  {baseline!r}",
    ]
    if script:
        lines += [f"  {note}", "", script]
    return EquivalenceError(
        "\n".join(lines), failure.variable, failure.step, failure.difference, failure.strategy, baseline, script
    )


def _launched(chip: Target, way: int) -> list[str]:
    other = f", kernels in way {way} of those that the chip could take besides its plan" if way else ""
    return [f"  launched as on {chip.architecture} ({chip.name}){other}"]


__all__ = ["Equivalence", "EquivalenceError", "assert_equivalent", "results_of"]
