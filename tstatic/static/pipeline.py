"""THE page to read first: a program and a strategy become a plan by these passes in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion import FUSIONS
from tstatic.fusion.demand import TOGETHER, demand, demands
from tstatic.fusion.engine import Fusion, Log, apply
from tstatic.fusion.shape_readers import shapes_from_contents
from tstatic.ir.frozen import FrozenProgram, freeze, unfused
from tstatic.ir.program import Operator, OpRole, Program
from tstatic.ir.types import Meta
from tstatic.ir.verify import verify
from tstatic.passes.cse import cse
from tstatic.passes.dce import dce
from tstatic.passes.fold import fold
from tstatic.passes.manager import Pass, PassRecord, run_passes
from tstatic.plan.plan import Generated, Plan, PlanOptions, make_plan
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


def fusions_of(strategy: BuildStrategy) -> tuple[Fusion, ...]:
    """The fusions that a strategy asks for, in their order."""
    return tuple(f for f in FUSIONS if getattr(strategy, f.switch))


def fuse(
    frozen: FrozenProgram, known: Mapping[str, Meta], strategy: BuildStrategy, log: Log | None = None
) -> FrozenProgram:
    """Makes the strategy's fusions.

    Args:
        frozen: After the other passes.
        known: Metadata of feeds and state by value: which shapes broadcast, and how, decides what can be one kernel.
        strategy: Its switches.
        log: Is told what was made, and what not and why.
    """
    wanted = fusions_of(strategy)
    if not wanted and not demands(frozen):
        return frozen
    metas = infer_program(frozen, known)
    frozen = shapes_from_contents(frozen, metas)
    log = log if log is not None else Log()
    frozen = demand(frozen, metas, log)
    for fusion in wanted:
        if fusion.prepare is not None:
            frozen = fusion.prepare(frozen, metas)
        frozen = apply(fusion, frozen, metas, log)
        verify(frozen, fusion.name)
    return frozen


def lower(frozen: FrozenProgram, known: Mapping[str, Meta], strategy: BuildStrategy, generated: bool = False) -> Plan:
    """Plans a rewritten program.

    Args:
        frozen: With its fused ops.
        known: Metadata of feeds and state by value.
        strategy: Says how memory is planned.
        generated: Fused ops run as generated kernels; otherwise as the ops that they stand for, with the same bits as unfused.
    """
    if not generated:
        frozen = unfused(frozen)
        return make_plan(frozen, infer_program(frozen, known), plan_options(strategy))
    metas = infer_program(frozen, known)
    by_name = {f.name: f for f in (TOGETHER, *FUSIONS)}
    kernels = {}
    for op in frozen.ops:
        if op.body:
            kernel = by_name[op.fusion].kernel(op.body, metas, list(op.writes()))
            kernels[op.outputs] = Generated(kernel, kernel.plan(True))
    return make_plan(frozen, metas, plan_options(strategy), kernels)
