"""THE page to read first: a program and a strategy become a plan by these passes in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.ir.frozen import FrozenProgram, freeze
from tstatic.ir.program import Operator, OpRole, Program
from tstatic.ir.types import Meta
from tstatic.passes.cse import cse
from tstatic.passes.dce import dce
from tstatic.passes.fold import fold
from tstatic.passes.manager import Pass, PassRecord, run_passes
from tstatic.plan.plan import Plan, PlanOptions, make_plan
from tstatic.plan.shapes import infer_program
from tstatic.static.strategy import BuildStrategy


def passes_of(strategy: BuildStrategy) -> tuple[Pass, ...]:
    """The ordered passes that a strategy asks for; clean-ups come last, and first what makes them cheaper."""
    return (
        Pass("dce", dce),
        Pass("fold", fold),
        Pass("cse", cse),
        Pass("dce", dce),
    )


def plan_options(strategy: BuildStrategy) -> PlanOptions:
    """What a strategy says about memory; the order is the program's, whatever a strategy says."""
    return PlanOptions(
        reuse=strategy.memory_optimize is not False,
        inplace=strategy.enable_inplace,
    )


def _is_loss_gradient(op: Operator) -> bool:
    return op.role == OpRole.Backward | OpRole.Loss


def rewrite(
    program: Program, strategy: BuildStrategy, feeds: Sequence[str], fetches: Sequence[str]
) -> tuple[FrozenProgram, tuple[PassRecord, ...]]:
    """Freezes a program and runs the strategy's passes.

    With ``GradientScaleStrategy.Customized`` the op that starts the loss gradient is left out, and the user feeds it.
    """
    customized = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.Customized
    frozen = freeze(program, feeds, fetches, _is_loss_gradient if customized else None)
    return run_passes(frozen, passes_of(strategy))


def lower(frozen: FrozenProgram, known: Mapping[str, Meta], strategy: BuildStrategy) -> Plan:
    """Plans a rewritten program; ``known`` gives the metadata of feeds and state by value."""
    return make_plan(frozen, infer_program(frozen, known), plan_options(strategy))
