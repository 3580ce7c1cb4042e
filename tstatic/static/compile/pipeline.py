"""Turns a program and a strategy into a plan, by these passes in this order: the file to read first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import DEBUG

from tstatic import flags
from tstatic.comm.passes.data_parallel import scaled, starts_loss_gradient
from tstatic.devices import Device
from tstatic.display import counted
from tstatic.errors import FeedError, NoRoomError
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.engine import Fusion, Log, OpInfo, apply, kernels_of
from tstatic.fusion.engine.choice import choose
from tstatic.fusion.patterns.single_op import kernel_per_draw, kernel_per_op
from tstatic.fusion.rewrites.finish_together import finish_together
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.rewrites.shape_readers import shapes_from_contents
from tstatic.fusion.user.explicit_groups import apply_explicit_groups, has_explicit_groups
from tstatic.fusion.user.user_kernel import present, with_user_kernels
from tstatic.ir.frozen import Entry, FrozenProgram, freeze, unfused, verify
from tstatic.ir.program import Program
from tstatic.ir.types import Meta
from tstatic.logs import get_logger, warn_once
from tstatic.passes.addto import addto
from tstatic.passes.cse import cse
from tstatic.passes.dce import dce
from tstatic.passes.fold import fold
from tstatic.passes.manager import Pass, PassRecord, run_passes
from tstatic.passes.row_gradients import row_gradients
from tstatic.passes.wide_halves import wide_halves
from tstatic.plan.plan import Generated, Plan, PlanOptions, make_plan
from tstatic.static.compile.graph_parts import outside_graphs
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target
from tstatic.where import show

_log = get_logger("fusion")


def passes_of(strategy: BuildStrategy) -> tuple[Pass, ...]:
    """Returns the passes that a strategy requires, in order: those that make others cheaper first, clean-ups last."""
    return (
        *((Pass("addto", addto),) if strategy.enable_addto else ()),
        # Twice: first for less work in the passes between, then for what they leave unread.
        Pass("dce", dce),
        Pass("fold", fold),
        Pass("cse", cse),
        Pass("row gradients", row_gradients),
        Pass("dce", dce),
    )


def plan_options(strategy: BuildStrategy) -> PlanOptions:
    """Returns a strategy's options for memory and for overlapping steps; steps always keep the program's order."""
    return PlanOptions(
        reuse=strategy.memory_optimize is not False,
        # The search for NaN shows what the inputs of the op that made one held.
        inplace=strategy.enable_inplace and not flags.flag("FLAGS_check_nan_inf"),
        sequential=strategy.enable_sequential_execution or strategy.sequential_run or strategy.fix_op_run_order,
        events=not strategy.remove_unnecessary_lock,
        # Only set to False it turns graphs off: unset it leaves them to the flag.
        graphs="off" if strategy.chosen("allow_cuda_graph_capture") is False else flags.graph_mode(),
    )


def simplify(
    program: Program,
    strategy: BuildStrategy,
    feeds: Sequence[str],
    fetches: Sequence[str],
    scale: float = 1.0,
    widens: bool = False,
) -> tuple[FrozenProgram, tuple[PassRecord, ...]]:
    """Freezes a program and runs the strategy's passes; the gradient of the loss starts at ``scale``.

    ``widens``: Whether float16 is computed in float32.

    With ``GradientScaleStrategy.Customized`` the op that fills the loss gradient is removed, and the user feeds it.

    Raises:
        FeedError: The feed lacks the loss gradient, which Customized requires.
    """
    customized = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.Customized
    if customized:
        _need_start(program, feeds)
    frozen = freeze(program, feeds, fetches, starts_loss_gradient if customized else None)
    if scale != 1.0:
        frozen = scaled(frozen, scale)
    # First, so that the passes behind it see one float type.
    widening = (Pass("wide halves", wide_halves),) if widens else ()
    return run_passes(frozen, (*widening, *passes_of(strategy)))


def _need_start(program: Program, feeds: Sequence[str]) -> None:
    for op in program.global_block().ops:
        if not starts_loss_gradient(op):
            continue
        for name in op.output_arg_names:
            if name not in feeds:
                raise FeedError(
                    f"the gradient of the loss, '{name}', is not fed, and gradient_scale_strategy is Customized",
                    expected=f"feed={{'{name}': array of shape [number of places]}}: one number for each place's loss",
                    received=f"feed with {', '.join(map(repr, feeds)) or 'nothing'}",
                    fix="feed it, or set gradient_scale_strategy to CoeffNumDevice or One",
                    op=op.type,
                    var=name,
                    where=show(op.where),
                )


def fusions_of(strategy: BuildStrategy) -> tuple[Fusion, ...]:
    """Returns the fusions that a strategy turns on, in their order."""
    return tuple(f for f in FUSIONS if getattr(strategy, f.switch))


def make_one(
    fusion: Fusion, frozen: FrozenProgram, metas: dict[str, Meta], log: Log, later: Sequence[Fusion] = ()
) -> FrozenProgram:
    """Applies one fusion, knowing those that come later; adds to ``metas`` the values that its preparation makes."""
    fused = apply(fusion, frozen, metas, log, frozenset(f.switch for f in later))
    # Only if something changed: the check walks the whole program.
    if fused is not frozen:
        verify(fused, fusion.name)
    return fused


def fuse(
    frozen: FrozenProgram, metas: Mapping[str, Meta], strategy: BuildStrategy, log: Log | None = None
) -> tuple[FrozenProgram, Mapping[str, Meta]]:
    """Applies the strategy's fusions.

    Args:
        frozen: The program after the other passes.
        metas: Metadata of all its values: broadcasting decides which ops can be one kernel.
        strategy: The strategy, whose switches select the fusions.
        log: Records the fusions made, and the matches rejected with their reasons.

    Returns:
        The program, and the metadata of all its values.
    """
    wanted = fusions_of(strategy)
    if not wanted and not has_explicit_groups(frozen) and not present(frozen):
        return eliminate_identity_gradients(frozen, metas), metas
    own = dict(metas)
    log = log if log is not None else Log()
    before = frozen
    # Before the strategy's fusions, which then leave the ops of the user's own kernels and groups alone.
    frozen = with_user_kernels(frozen, own, log)
    frozen = apply_explicit_groups(shapes_from_contents(frozen, own), own, log)
    if frozen is not before:
        verify(frozen, "explicit groups")
    for number, fusion in enumerate(wanted):
        frozen = make_one(fusion, frozen, own, log, wanted[number + 1 :])
    _say(log)
    return eliminate_identity_gradients(frozen, own), own


def _say(log: Log) -> None:
    """Writes the fusions made and the matches rejected, with reasons, to the ``fusion`` log."""
    if not _log.isEnabledFor(DEBUG):
        return
    for made in log.applied:
        _log.debug("%s: %s became %s", made.fusion, _shown(made.members), made.op)
    for one in log.refused:
        _log.debug("%s: %s stay apart: %s, %s", one.fusion, _shown(one.members), one.code, one.reason)


def _shown(members: Sequence[OpInfo]) -> str:
    return ", ".join(f"{m.type} ({show(m.where)})" if m.where else m.type for m in members)


def planned_kernels(
    frozen: FrozenProgram,
    metas: Mapping[str, Meta],
    kernels: Mapping[tuple[Entry, ...], Kernel],
    target: Target,
    device: Device | None = None,
) -> tuple[FrozenProgram, Mapping[str, Meta], Mapping[tuple[Entry, ...], Generated]]:
    """Returns a program as it runs where kernels run: with its metadata, and its kernels with their launches on a chip.

    Args:
        frozen: The program with its fused ops.
        metas: Metadata of all its values.
        kernels: Those of the fused ops.
        target: The chip.
        device: The device that launches them; ``None``: none does.

    Raises:
        NoRoomError: If the device turned out to have no room for any way of a kernel.
    """
    planned = {}
    for outputs, kernel in kernels.items():
        try:
            planned[outputs] = kernel, choose(kernel, target, device)
        except NoRoomError as error:
            # A kernel does not know which line of the user's code it comes from.
            op = next(one for one in frozen.ops if one.outputs == outputs)
            raise error.add_context(op=op.type, where=show(op.where)) from None
    frozen, metas, found = finish_together(frozen, metas, planned)
    return frozen, metas, {outputs: Generated(*one) for outputs, one in found.items()}


def _warn_of_splits(frozen: FrozenProgram, metas: Mapping[str, Meta], device: Device) -> None:
    """Says what keeps a program from being one graph, to whoever asked for it."""
    found = outside_graphs(frozen, metas, device)
    if not found:
        return
    # One op of each type, of six types at most: layers of the same kind would repeat the line.
    reasons = {one.op.type: f"`{one.op.type}`: {one.reason}" for one in found}
    warn_once(
        ("more than one graph", *reasons),
        f"allow_cuda_graph_capture: {counted(len(found), 'operator')} of the program are launched outside of graphs: "
        + "; ".join([*reasons.values()][:6]),
        topic="steps",
    )


def lower(
    frozen: FrozenProgram,
    metas: Mapping[str, Meta],
    strategy: BuildStrategy,
    device: Device | None,
    target: Target,
) -> Plan:
    """Plans a simplified and fused program.

    Args:
        frozen: The program with its fused ops.
        metas: Metadata of all its values.
        strategy: The strategy, which decides how memory is planned.
        device: Runs the plan: fused ops as generated kernels, or as the ops that they replaced, with the same bits as unfused.
            ``None``: nothing does, and memory that a device's library takes is not planned.
        target: The chip that kernels are planned for.
    """
    options = plan_options(strategy)
    if device is not None and strategy.chosen("allow_cuda_graph_capture"):
        _warn_of_splits(frozen, metas, device)
    # A device without generated kernels runs the bodies of fused ops.
    if device is not None and not device.generated:
        streams = device.compute_streams
        return make_plan(unfused(frozen), metas, options, None, device.scratch_bytes, streams, device.block_use)
    if strict_numerics():
        # A kernel for each op: alone it has the bits that it has in a group.
        frozen, target = kernel_per_op(frozen, metas), target.strict
    else:
        frozen = kernel_per_draw(frozen, metas)
    frozen, metas, kernels = planned_kernels(frozen, metas, kernels_of(frozen, metas), target, device)
    if device is None:
        return make_plan(frozen, metas, options, kernels)
    return make_plan(frozen, metas, options, kernels, device.scratch_bytes, device.compute_streams, device.block_use)
