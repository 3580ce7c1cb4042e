"""Explains a compilation: what the fusions did, what they cost, what stopped the rest, and the program as it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tstatic.devices import cpu_device
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import Applied, Fusion, Log, OpInfo, Rejection, kernels_of
from tstatic.fusion.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.reasons import explain_code
from tstatic.fusion.shape_readers import shapes_from_contents
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, flat
from tstatic.ir.opdef import EMPTY, OpDef
from tstatic.ir.program import Block, Operator, Program
from tstatic.ir.types import Meta
from tstatic.plan.plan import Generated, Plan, make_plan
from tstatic.static import pipeline
from tstatic.static.compile import Compilation
from tstatic.static.explain import (
    Drawing,
    Explanation,
    FusionAnswer,
    MemoryTraffic,
    Note,
    OnHost,
    PropertyStatus,
    properties,
)
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.target import DEFAULT_TARGET
from tstatic.where import show


def _named(op: FrozenOp, names: dict[str, str], inputs: bool) -> dict[str, tuple[str, ...]]:
    slots, entries = (op.definition.inputs, op.inputs) if inputs else (op.definition.outputs, op.outputs)
    found = {}
    for slot, entry in zip(slots, entries, strict=True):
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
    for name in [n for n, v in block.vars.items() if n not in touched and not v.persistable and not v.is_data]:
        del block.vars[name]
    return copy


Kernels = Mapping[tuple[Entry, ...], Kernel]
"""The kernels of fused ops, by the ops' outputs."""


def _bytes(op: FrozenOp, metas: Mapping[str, Meta]) -> int:
    return sum(metas[v].nbytes for v in (*op.contents(), *op.writes()) if v in metas)


def _cost(frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy) -> tuple[int, int]:
    """Returns the launches and bytes of a step on a GPU, by its plan.

    An op whose result is a view has none, a fused op has those of its kernel, any other op counts as one launch.
    """
    launches, total = 0, sum(kernel.nbytes for kernel in kernels.values())
    for op, made in planned(frozen, metas, kernels, build):
        launches += 1 if made is None else len(made.calls.launches)
        # A kernel may recompute values that the ops it replaces only read.
        total += _bytes(op, metas) if made is None else 0
    return launches, total


def planned(
    frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy
) -> list[tuple[FrozenOp, Generated | None]]:
    """Returns the ops that do work in the plan, with their kernels; if sizes are unknown, and so is the plan, all but views."""
    given = [metas.get(v) for v in (*frozen.feeds, *frozen.reads.values())]
    if not all(meta is not None and meta.known for meta in given):
        frozen, metas, made = pipeline.planned_kernels(frozen, metas, kernels, DEFAULT_TARGET)
        return [(op, made.get(op.outputs)) for op in frozen.ops if op.definition.view is None]
    return working(plan_of(frozen, metas, kernels, build))


def plan_of(frozen: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels, build: BuildStrategy) -> Plan:
    """Returns the plan for a GPU of a program whose sizes are known."""
    frozen, metas, made = pipeline.planned_kernels(frozen, metas, kernels, DEFAULT_TARGET)
    return make_plan(frozen, metas, pipeline.plan_options(build), made)


def working(plan: Plan) -> list[tuple[FrozenOp, Generated | None]]:
    """Returns the ops of a plan that do work, with their kernels."""
    return [(step.op, plan.kernels.get(step.op.outputs)) for step in plan.steps if step.how != "view"]


def _with_kernels(applied: Sequence[Applied], kernels: Kernels) -> tuple[Applied, ...]:
    """Returns the fusions with the kernels of the final program; one that a later fusion absorbed has none."""
    left = {frozenset(flat(outputs)): kernel for outputs, kernel in kernels.items()}
    # If a fusion absorbed another one and writes the same values, the kernel belongs to the later one.
    return tuple(replace(a, kernel=left.pop(a.written, None)) for a in reversed(applied))[::-1]


def build_explanation(
    made: Compilation, build: BuildStrategy, execution: ExecutionStrategy, note: str = "",
    statuses: Sequence[PropertyStatus] = (),
) -> Explanation:  # fmt: skip
    """Builds the explanation of what the fusions did to a program.

    Args:
        made: The compilation; the first replica is explained.
        build, execution: The strategies.
        note: The sizes that were assumed.
        statuses: Those of further strategies.
    """
    frozen, metas, log = made.first.before, made.first.metas_before, made.first.log
    fused, after_metas = made.first.after, made.first.metas
    kernels = kernels_of(fused, after_metas)
    # The cost with all switches off.
    before, after = (
        _cost(eliminate_identity_gradients(frozen, metas), metas, {}, build),
        _cost(fused, after_metas, kernels, build),
    )
    copy = made.program.clone()
    names = {frozen.names.get(v, v): v for op in frozen.ops for v in op.writes()}

    def why(a: str, b: str) -> FusionAnswer:
        return _why(frozen, metas, build, log, names[a], names[b])

    def draw() -> Drawing:
        notes = _Notes(log, _would(frozen, metas, build))
        after = {i: notes.of(op) for i, op in enumerate(fused.ops)}
        return Drawing(copy, as_program(copy, fused), _notes_before(copy, frozen, notes, _left(frozen, metas)), after)

    def page(explanation: Explanation, max_ops: int) -> str:
        from tstatic.static import explain_html  # the page and its drawings are loaded only for this

        return explain_html.page(explanation, max_ops)

    switches = {f.switch: f.name for f in FUSIONS}
    said = made.report.said() if made.report is not None else None
    return Explanation(
        (*properties(build, execution, log.applied, log.refused, switches, said), *statuses),
        _with_kernels(log.applied, kernels),
        tuple(log.refused),
        MemoryTraffic(before[0], after[0], before[1], after[1]),
        note,
        "generated" if made.first.device.generated else "reference",
        made.report,
        made.program.mixed_precision,
        _on_host(fused),
        _shared(made, fused, after_metas, kernels),
        why,
        tuple(names),
        draw,
        page,
    )


def _shared(made: Compilation, fused: FrozenProgram, metas: Mapping[str, Meta], kernels: Kernels) -> tuple[Kernel, ...]:
    """Returns the kernels that a device's plan has beside those of fused ops."""
    device = made.first.device
    target = device.target if device.generated else DEFAULT_TARGET
    found = pipeline.planned_kernels(fused, metas, kernels, target)[2]
    own = {id(kernel) for kernel in kernels.values()}
    return tuple(one.kernel for one in found.values() if id(one.kernel) not in own)


def _on_host(frozen: FrozenProgram) -> tuple[OnHost, ...]:
    """Returns the ops that leave the device."""
    device = cpu_device()
    found = ((op, device.host_reason(op)) for op in frozen.ops)
    names = frozen.names
    return tuple(
        OnHost(OpInfo(op.type, tuple(names.get(v, v) for v in op.writes()), op.where), why) for op, why in found if why
    )


def _holds(record: Applied | Rejection, values: tuple[str, str]) -> bool:
    made = {v for m in record.members for v in m.outputs}
    return all(v in made for v in values)


def _label(frozen: FrozenProgram, value: str) -> str:
    op = next(o for o in frozen.ops if value in o.writes())
    where = show(op.where)
    return f"{op.type} -> {frozen.names.get(value, value)}" + (f" (at {where})" if where else "")


def _left(frozen: FrozenProgram, metas: Mapping[str, Meta]) -> set[str]:
    """Returns the values that are still made after identity gradients are removed."""
    return {v for op in eliminate_identity_gradients(frozen, metas).ops for v in op.writes()}


def _log_of_only(fusion: Fusion, frozen: FrozenProgram, metas: Mapping[str, Meta]) -> Log:
    """Returns what one fusion would do if its switch were the only one that is on."""
    log = Log()
    pipeline.make_one(fusion, shapes_from_contents(frozen, metas), dict(metas), log)
    return log


def _why(
    frozen: FrozenProgram, metas: Mapping[str, Meta], build: BuildStrategy, log: Log, a: str, b: str
) -> FusionAnswer:
    pair = f"{_label(frozen, a)} and {_label(frozen, b)}"
    for made in log.applied:
        if _holds(made, (a, b)):
            return FusionAnswer(True, "APPLIED", f"{pair} are one {made.op} by {made.switch}.", "")

    def apart(code: str, why: str, change: str, *, advice: bool = True) -> FusionAnswer:
        return FusionAnswer(False, code, f"{pair} stay apart{why}.{f' To allow it: {change}.' * advice}", change)

    for no in log.refused:
        if _holds(no, (a, b)):
            return apart(no.code, f" under {no.switch}: {no.code}, {no.reason}", no.change)
    refused: Rejection | None = None
    # Patterns first: to turn on one pattern is a smaller change than to turn on a general compiler.
    for fusion in sorted(FUSIONS, key=lambda f: f.groups is not None):
        if getattr(build, fusion.switch):
            continue
        other = _log_of_only(fusion, frozen, metas)
        if any(_holds(x, (a, b)) for x in other.applied):
            meaning, change = explain_code("OFF", value=fusion.switch)
            return apart("OFF", f": {meaning} ({fusion.switch})", change)
        refused = refused or next((x for x in other.refused if _holds(x, (a, b))), None)
    makers = {v: op for op in frozen.ops for v in op.writes()}
    left = _left(frozen, metas)
    for value in (a, b):
        if value not in left:
            meaning, change = explain_code("IDENTITY", reader=makers[value].type)
            return apart("IDENTITY", f": {meaning}", change, advice=False)
    if refused is not None:
        why = f", and {refused.switch} would not join them: {refused.code}, {refused.reason}"
        return apart(refused.code, why, refused.change)
    linked = a in makers[b].reads() or b in makers[a].reads()
    meaning, change = explain_code("NO_PATTERN")
    reason = meaning if linked else "neither reads what the other makes, and no fusion joins unrelated operators"
    return apart("NO_PATTERN", f": {reason}", change, advice=False)


# ----------------------------------------------------------------------------------------------------- notes for drawings
def _would(frozen: FrozenProgram, metas: Mapping[str, Meta], build: BuildStrategy) -> list[Applied]:
    """Returns the fusions that the switches that are off would make, each by itself."""
    return [a for f in FUSIONS if not getattr(build, f.switch) for a in _log_of_only(f, frozen, metas).applied]


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
