"""Explains a compilation: what the fusions did, what they cost, what stopped the rest, and the program as it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial

from tstatic import flags
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import Applied, Log, Rejection, kernels_of
from tstatic.fusion.engine.choice import explained
from tstatic.fusion.engine.nearest import why_idle
from tstatic.fusion.engine.reasons import explain_code
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.single_op import kernel_per_draw, kernel_per_op
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, flat, unfused
from tstatic.ir.opdef import EMPTY, OpDef
from tstatic.ir.program import Block, Operator, Program
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.plan.plan import Generated, Plan, make_plan
from tstatic.static.compile import Compilation, LoweredProgram, fuse_under, pipeline
from tstatic.static.compile.graph_parts import copied_results, graph_parts, on_host, outside_graphs
from tstatic.static.explain import (
    Drawing,
    Explanation,
    FusionAnswer,
    MemoryTraffic,
    Note,
    OffSwitch,
)
from tstatic.static.explain.property_status import PropertyStatus, properties
from tstatic.static.explain.savings import Operators, Savings, bytes_of, named_members
from tstatic.static.explain.strict_cost import StrictCost, StrictRefusal
from tstatic.static.explain.why import Only, Question, left_of, only_one, why_apart
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.target import DEFAULT_TARGET, Target


def _named(op: FrozenOp, names: dict[str, str], inputs: bool) -> dict[str, tuple[str, ...]]:
    slots, entries = (op.definition.inputs, op.inputs) if inputs else (op.definition.outputs, op.outputs)
    found = {}
    for slot, entry in zip(slots, entries, strict=True):
        # `Shapes` lists what only sizes are taken of, and no user wrote it.
        if entry is None or slot.name == "Shapes":
            continue
        row = (entry,) if isinstance(entry, str) else entry
        found[slot.name] = tuple(names.get(v, v) if v != EMPTY else v for v in row)
    return found


class _Shown(Operator):
    """An op with a definition of its own, as fused ops have."""

    __slots__ = ("own",)
    own: OpDef

    @property
    def definition(self) -> OpDef:
        return self.own


def _operator(op: FrozenOp, block: Block, names: dict[str, str]) -> Operator:
    shown = _Shown(
        block, op.type, _named(op, names, True), _named(op, names, False), dict(op.attrs),
        role=op.role, role_var=op.role_var, where=op.where, position=op.position,
    )  # fmt: skip
    shown.own = op.definition
    return shown


def as_program(program: Program, frozen: FrozenProgram) -> Program:
    """Returns a program for reading: the ops of the first block as they run, and the variables that they use.

    It cannot be run or saved: fused ops exist only in plans. The user's program is not changed.
    """
    copy = program.clone()
    block = copy.global_block()
    names = dict(frozen.names)
    known = {op.position: op for op in block.ops}
    ops = []
    for op in frozen.ops:
        same = known.get(op.position)
        # An op with a body of its own (control flow) is shown as the user wrote it.
        kept = same is not None and not op.body and same.type == op.type and op.sub_blocks
        ops.append(same if kept and same is not None else _operator(op, block, names))
    block.ops[:] = ops
    touched = {n for op in ops for n in (*op.input_arg_names, *op.output_arg_names)}
    block.vars.drop([n for n, v in block.vars.items() if n not in touched and not v.persistable and not v.is_data])
    return copy


Kernels = Mapping[tuple[Entry, ...], Kernel]
"""The kernels of fused ops, by the ops' outputs."""


def _cost(
    frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy
) -> tuple[int, int, int]:
    """Returns the launches and bytes of a step on a GPU, by its plan, and the bytes of its arena (0 if sizes are unknown).

    An op whose result is a view has none, a fused op has those of its kernel, any other op counts as one launch.
    """
    ops, arena = planned(frozen, metas, kernels, build)
    return (*_sum(_costs(ops, metas, kernels)), arena)


def _costs(
    ops: Iterable[tuple[FrozenOp, Generated | None]], metas: Mapping[str, Meta], kernels: Kernels
) -> list[tuple[FrozenOp, int, int]]:
    """Returns the ops of a plan, each with its launches and bytes."""
    found = []
    # The bytes of a kernel are those of the sums that it leaves to others, too: what only adds these up is none of these kernels.
    own = {id(kernel) for kernel in kernels.values()}
    for op, made in ops:
        mine = made is not None and (made.kernel is op.kernel or id(made.kernel) in own)
        nbytes = bytes_of(op, metas) if made is None else made.kernel.nbytes if mine else 0
        found.append((op, 1 if made is None else len(made.calls.launches), nbytes))
    return found


def _sum(costs: Iterable[tuple[FrozenOp, int, int]]) -> tuple[int, int]:
    known = list(costs)
    return sum(launches for _, launches, _ in known), sum(nbytes for *_, nbytes in known)


def _more(here: list[tuple[FrozenOp, int, int]], there: list[tuple[FrozenOp, int, int]]) -> tuple[int, int]:
    """Returns how many launches and bytes more one plan has than another."""
    (launches, nbytes), (fewer, less) = _sum(here), _sum(there)
    return launches - fewer, nbytes - less


def _writes(op: FrozenOp) -> set[str]:
    """Returns what an op makes, and what the ops in it make."""
    return {*op.writes(), *(v for one in op.body for v in one.writes())}


def _strict_cost(lowered: LoweredProgram, build: BuildStrategy) -> StrictCost:
    """Returns what strict numerics cost a program: its plan compared with the one that it has under default numerics."""
    with flags.using_numerics("strict"):
        strict = kernel_per_op(lowered.after, lowered.metas)
        kernels = kernels_of(strict, lowered.metas)
        here = _costs(planned(strict, lowered.metas, kernels, build)[0], lowered.metas, kernels)
    other, metas, _ = fuse_under("default", lowered.before, lowered.metas_before, build)
    with flags.using_numerics("default"):
        kernels = kernels_of(other, metas)
        there = _costs(planned(other, metas, kernels, build)[0], metas, kernels)
    refused = []
    for no in (r for r in lowered.log.refused if r.code == "NUM_STRICT"):
        made = {v for m in no.members for v in m.outputs}
        fused = [one for one in there if not made.isdisjoint(_writes(one[0]))]
        # The same work in both plans: all that the larger fusions do.
        made.update(*(_writes(op) for op, _, _ in fused))
        apart = [one for one in here if not made.isdisjoint(_writes(one[0]))]
        refused.append(StrictRefusal(no, *_more(apart, fused)))
    return StrictCost(*_more(here, there), tuple(refused))


def planned(
    frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy
) -> tuple[list[tuple[FrozenOp, Generated | None]], int]:
    """Returns the ops that do work in the plan, with their kernels, and the bytes of its arena.

    If sizes are unknown, and so is the plan, the ops are those that cannot be views, and the arena is 0.
    """
    given = [metas.get(v) for v in (*frozen.feeds, *frozen.reads.values())]
    if not all(meta is not None and meta.known for meta in given):
        frozen, metas, made = pipeline.planned_kernels(frozen, metas, kernels, DEFAULT_TARGET)
        return [(op, made.get(op.outputs)) for op in frozen.ops if op.definition.view is None], 0
    plan = plan_of(frozen, metas, kernels, build)
    return working(plan), plan.arena_bytes


def plan_of(frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy) -> Plan:
    """Returns the plan for a GPU of a program whose sizes are known."""
    frozen = kernel_per_draw(frozen, metas)
    kernels = {**kernels_of(frozen, metas), **kernels}
    frozen, metas, made = pipeline.planned_kernels(frozen, metas, kernels, DEFAULT_TARGET)
    return make_plan(frozen, metas, pipeline.plan_options(build), made)


def working(plan: Plan) -> list[tuple[FrozenOp, Generated | None]]:
    """Returns the ops of a plan that do work, with their kernels."""
    steps = (step for step in plan.steps if step.how != "view" and step.how != "joined")
    return [(step.op, plan.kernels.get(step.op.outputs)) for step in steps]


def _with_kernels(applied: Sequence[Applied], kernels: Kernels) -> tuple[Applied, ...]:
    """Returns the fusions with the kernels of the final program; one that a later fusion absorbed has none."""
    left = {frozenset(flat(outputs)): kernel for outputs, kernel in kernels.items()}
    # If a fusion absorbed another one and writes the same values, the kernel belongs to the later one.
    return tuple(replace(a, kernel=left.pop(a.written, None)) for a in reversed(applied))[::-1]


def build_explanation(
    made: Compilation, build: BuildStrategy, execution: ExecutionStrategy, note: str = "",
    statuses: Sequence[PropertyStatus] = (), verbose: bool = False, chosen: Sequence[str] = (),
) -> Explanation:  # fmt: skip
    """Builds the explanation of what the fusions did to a program.

    Args:
        made: The compilation; the first replica is explained.
        build, execution: The strategies.
        note: The sizes that were assumed.
        statuses: Those of further strategies.
        verbose: Whether its text lists everything.
        chosen: Properties whose values the user did not set.
    """
    frozen, metas, log = made.first.before, made.first.metas_before, made.first.log
    fused, after_metas = made.first.after, made.first.metas
    kernels = kernels_of(fused, after_metas)
    # The program with all switches off.
    plain, arena = planned(eliminate_identity_gradients(frozen, metas), metas, {}, build)
    alone_ops = [op for op, _ in plain]
    before, after = (*_sum(_costs(plain, metas, {})), arena), _cost(fused, after_metas, kernels, build)
    operators = Operators(frozen, metas, log)
    log = Log(log.applied, [operators.with_culprit(r) for r in log.refused])
    applied = _with_kernels(log.applied, kernels)
    saved = Savings(alone_ops, fused, after_metas, kernels, applied)
    # A copy: the program may be edited before somebody looks at the drawing.
    copy = made.program.clone()
    # Of a variable that is written several times the last value.
    names = {frozen.names.get(v, v): v for op in frozen.ops for v in op.writes()}

    # Only when it is asked for: each switch fuses the program anew.
    @cache
    def alone() -> dict[str, Only]:
        return {f.switch: only_one(f, frozen, metas) for f in FUSIONS if not getattr(build, f.switch)}

    def why(a: str, b: str) -> FusionAnswer:
        # Questions may come after the flag has changed.
        with flags.using_numerics(made.first.numerics):
            return why_apart(Question(frozen, metas, log, build, operators, alone), names[a], names[b])

    def off() -> tuple[OffSwitch, ...]:
        with flags.using_numerics(made.first.numerics):
            would = ((switch, one.made, one.log.applied) for switch, one in alone().items() if one.log.applied)
            return tuple(OffSwitch(s, len(does), Savings(alone_ops, *fused, does).total) for s, fused, does in would)

    def draw() -> Drawing:
        with flags.using_numerics(made.first.numerics):
            notes = _Notes(log, [a for one in alone().values() for a in one.log.applied])
        after = {i: notes.of(op) for i, op in enumerate(fused.ops)}
        before = _notes_before(copy, frozen, notes, left_of(frozen, metas))
        sizes = _bytes(frozen, metas), _bytes(fused, after_metas)
        return Drawing(copy, as_program(copy, fused), before, after, *sizes)

    def page(explanation: Explanation, max_ops: int) -> str:
        from tstatic.static.explain import html as explain_html  # the page and its drawings are loaded only for this

        return explain_html.page(explanation, max_ops)

    switches = {f.switch: f.name for f in FUSIONS}
    idle = _idle(frozen, metas, log, build)
    refused = {r.switch for r in log.refused}
    silent = {switch: why for switch, why in idle.items() if switch not in refused}
    # Times of an interpreter say nothing: bounds are those of the default chip.
    target = DEFAULT_TARGET if _target(made).large_programs else _target(made)
    said = made.report.said() if made.report is not None else None
    ran = _as_it_runs(made.first)
    return Explanation(
        (*properties(build, execution, log.applied, log.refused, switches, said, chosen, silent), *statuses),
        applied,
        tuple(log.refused),
        MemoryTraffic(before[0], after[0], before[1], after[1], before[2], after[2]),
        note,
        "generated" if made.first.device.generated else "reference",
        made.report,
        made.program.mixed_precision,
        on_host(ran, made.first.device),
        _strict_cost(made.first, build) if made.first.numerics == "strict" else None,
        _shared(made, fused, after_metas, kernels),
        tuple(saved.of(a) for a in applied),
        tuple(operators.possible(r) for r in log.refused),
        verbose,
        partial(named_members, operators),
        off,
        why,
        tuple(names),
        draw,
        page,
        made_at=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        idle=idle,
        outside_graphs=outside_graphs(ran, made.first.metas, made.first.device, made.report),
        graphs=graph_parts(ran, made.first.metas, made.first.device, made.report),
        target=target,
        # Asked late, as it needs the plan.
        _copied=lambda: copied_results(made.first.plan, made.first.device),
        _ways=partial(explained, target=target, device=made.first.device),
    )


def _idle(frozen: FrozenProgram, metas: Mapping[str, Meta], log: Log, build: BuildStrategy) -> dict[str, str]:
    """Returns why each switch that is on made no fusion: what was refused, or what came nearest and what it lacks."""
    acted = {a.switch for a in log.applied}
    found: dict[str, str] = {}
    view: View | None = None
    for fusion in FUSIONS:
        switch = fusion.switch
        if switch in acted or switch in found or not getattr(build, switch):
            continue
        codes = Counter(r.code for r in log.refused if r.switch == switch)
        if codes:
            first = next(r for r in log.refused if r.switch == switch)
            counts = ", ".join(f"{n} x {code}" for code, n in codes.items())
            found[switch] = f"refused {counts}: {first.reason}"
            continue
        # One for all switches, as it indexes the whole program; none if every switch acted.
        view = view or View(frozen, metas)
        found[switch] = why_idle(fusion, view, log.applied)
    return found


def _shared(made: Compilation, fused: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels) -> tuple[Kernel, ...]:
    """Returns the kernels that a device's plan has beside those of fused ops."""
    own = {id(kernel) for kernel in kernels.values()}
    if made.first.device.generated and made.first.numerics != "strict":
        fused = kernel_per_draw(fused, metas)
        kernels = {**kernels_of(fused, metas), **kernels}
    found = pipeline.planned_kernels(fused, metas, kernels, _target(made))[2]
    return tuple(one.kernel for one in found.values() if id(one.kernel) not in own)


def _target(made: Compilation) -> Target:
    """Returns the chip that kernels are launched on; where none are, the one that they are planned for by default."""
    device = made.first.device
    return device.target if device.generated else DEFAULT_TARGET


def _as_it_runs(lowered: LoweredProgram) -> FrozenProgram:
    """Returns the program with the ops that its device runs."""
    if lowered.device.generated:
        return kernel_per_draw(lowered.after, lowered.metas)
    return unfused(lowered.after)


def _bytes(frozen: FrozenProgram, metas: Mapping[str, Meta]) -> dict[str, int]:
    """Returns the bytes of each variable, of the largest of its values; of those whose sizes are known."""
    found: dict[str, int] = {}
    for value, meta in metas.items():
        name = frozen.names.get(value, value)
        if UNKNOWN not in meta.shape:
            found[name] = max(found.get(name, 0), meta.nbytes)
    return found


# ----------------------------------------------------------------------------------------------------- notes for drawings
def _together(record: Applied | Rejection) -> str:
    return " + ".join(m.type for m in record.members)


def _by_value(records: Sequence[Applied | Rejection]) -> dict[str, list[int]]:
    """Returns value -> the records with a member that makes it; a fused op may be a member, too."""
    found: dict[str, list[int]] = {}
    for i, r in enumerate(records):
        for v in dict.fromkeys(v for m in r.members for v in m.outputs):
            found.setdefault(v, []).append(i)
    return found


class _Notes:
    """Collects notes on ops: fusions made, matches rejected, and what the switches that are off would do."""

    def __init__(self, log: Log, would: Sequence[Applied]) -> None:
        self.records = log.applied, log.refused, would
        self.index = _by_value(log.applied), _by_value(log.refused), _by_value(would)

    def holding(self, which: int, writes: Iterable[str]) -> list[int]:
        """Returns the records that contain an op; of the applied ones also those that contain the op it was fused into."""
        index = self.index[which]
        found = list(dict.fromkeys(i for v in writes for i in index.get(v, ())))
        if which == 0:
            # Applied fusions do not overlap: they share a value only if one is a member of the other.
            for i in found:
                made = [v for m in self.records[0][i].members for v in m.outputs]
                found.extend(j for j in dict.fromkeys(j for v in made for j in index[v]) if j not in found)
        return sorted(found)

    def of(self, op: FrozenOp) -> tuple[Note, ...]:
        """Returns the notes on an op."""
        applied, refused, would = self.records
        writes = list(op.writes())
        found = []
        for i in self.holding(0, writes):
            made = applied[i]
            are = "are one" if len(made.members) > 1 else "is a"
            found.append(Note("applied", f"{_together(made)} {are} {made.op} by {made.switch}.", "", i))
        for i in self.holding(1, writes):
            no = refused[i]
            stay = "stay apart" if len(no.members) > 1 else "stays as it is"
            text = f"{_together(no)} {stay} under {no.switch}: {no.code}, {no.reason}."
            found.append(Note("refused", text, no.change, i))
        # What is fused already needs no advice about switches that are off.
        for i in () if op.body else self.holding(2, writes):
            meaning, change = explain_code("OFF", value=would[i].switch)
            found.append(Note("off", f"{_together(would[i])} could be one {would[i].op}: {meaning}.", change))
        if not found:
            view = op.definition.view is not None
            alone = "Its result is a view of its input: it costs nothing."
            found.append(Note("alone", alone if view else "No fusion has it in its pattern here."))
        return tuple(found)


def _notes_before(
    program: Program, frozen: FrozenProgram, notes: _Notes, left: set[str]
) -> dict[int, tuple[Note, ...]]:
    # By type as well: a pass may have put another op in the same place.
    known = {(op.position, op.type): op for op in frozen.ops}
    gone = Note(
        "gone", "It does not run: nothing needs its result, or a pass computed it beforehand or found it twice."
    )
    found: dict[int, tuple[Note, ...]] = {}
    for i, op in enumerate(program.global_block().ops):
        same = known.get((op.position, op.type))
        if same is None:
            found[i] = (gone,)
        elif left.issuperset(same.writes()) or notes.holding(0, same.writes()):
            found[i] = notes.of(same)
        else:
            meaning, _ = explain_code("IDENTITY", reader=same.type)
            found[i] = (Note("gone", f"It does not run: {meaning}."),)
    return found
