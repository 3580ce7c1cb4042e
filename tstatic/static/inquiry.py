"""Asks the passes what they would do: explanations of a program under a strategy."""

from __future__ import annotations

from collections.abc import Mapping

from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Applied, Log, Refused, apply
from tstatic.fusion.reasons import explain_code
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import Meta
from tstatic.ir.where import show
from tstatic.plan.shapes import infer_program
from tstatic.static import pipeline
from tstatic.static.explain import Answer, Explanation, Traffic, properties
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy


def _bytes(op: FrozenOp, metas: Mapping[str, Meta]) -> int:
    shapes = {s.name for s in op.card.inputs if s.name in op.card.shape_only}
    total = 0
    for slot, entry in zip(op.card.inputs, op.inputs, strict=True):
        if entry is not None and slot.name not in shapes:
            total += sum(metas[v].nbytes for v in ((entry,) if isinstance(entry, str) else entry) if v in metas)
    return total + sum(metas[v].nbytes for v in op.writes() if v in metas)


def _cost(frozen: FrozenProgram, metas: Mapping[str, Meta]) -> tuple[int, int]:
    """Launches and bytes of a step; an op whose result is a view of its input has none."""
    ops = [op for op in frozen.ops if op.card.view is None]
    return len(ops), sum(_bytes(op, metas) for op in ops)


def inquire(
    frozen: FrozenProgram,
    known: Mapping[str, Meta],
    build: BuildStrategy,
    execution: ExecutionStrategy,
    kernel_kind: str,
    note: str = "",
) -> Explanation:
    """Runs the fusions on a frozen program and says what they did."""
    metas = infer_program(frozen, known)
    log = Log()
    fused = pipeline.fuse(frozen, known, build, log)
    before, after = _cost(frozen, metas), _cost(fused, metas)
    names = {frozen.names.get(v, v): v for op in frozen.ops for v in op.writes()}

    def why(a: str, b: str) -> Answer:
        return _why(frozen, known, build, log, names[a], names[b])

    return Explanation(
        properties(build, execution, log.applied, log.refused, {f.switch: f.name for f in FUSIONS}),
        tuple(log.applied),
        tuple(log.refused),
        Traffic(before[0], after[0], before[1], after[1]),
        note,
        kernel_kind,
        why,
        tuple(names),
    )


def _holds(record: Applied | Refused, values: tuple[str, str]) -> bool:
    made = {v for m in record.members for v in m.outputs}
    return all(v in made for v in values)


def _label(frozen: FrozenProgram, value: str) -> str:
    op = next(o for o in frozen.ops if value in o.writes())
    where = show(op.where)
    return f"{op.type} -> {frozen.names.get(value, value)}" + (f" (at {where})" if where else "")


def _why(frozen: FrozenProgram, known: Mapping[str, Meta], build: BuildStrategy, log: Log, a: str, b: str) -> Answer:
    pair = f"{_label(frozen, a)} and {_label(frozen, b)}"
    for made in log.applied:
        if _holds(made, (a, b)):
            return Answer(True, "APPLIED", f"{pair} are one {made.op} by {made.switch}.", "")
    for no in log.refused:
        if _holds(no, (a, b)):
            text = f"{pair} stay apart under {no.switch}: {no.code}, {no.reason}. To allow it: {no.change}."
            return Answer(False, no.code, text, no.change)
    metas = infer_program(frozen, known)
    refused: Refused | None = None
    for fusion in FUSIONS:
        if getattr(build, fusion.switch):
            continue
        other = Log()
        apply(fusion, frozen, metas, other)
        if any(_holds(x, (a, b)) for x in other.applied):
            meaning, change = explain_code("OFF", value=fusion.switch)
            return Answer(
                False, "OFF", f"{pair} stay apart: {meaning} ({fusion.switch}). To allow it: {change}.", change
            )
        refused = refused or next((x for x in other.refused if _holds(x, (a, b))), None)
    if refused is not None:
        return Answer(
            False, refused.code,
            f"{pair} stay apart, and {refused.switch} would not join them: {refused.code}, {refused.reason}. "
            f"To allow it: {refused.change}.", refused.change,
        )  # fmt: skip
    makers = {v: op for op in frozen.ops for v in op.writes()}
    linked = a in makers[b].reads() or b in makers[a].reads()
    meaning, change = explain_code("NO_PATTERN")
    reason = meaning if linked else "neither reads what the other makes, and no fusion joins unrelated operators"
    return Answer(False, "NO_PATTERN", f"{pair} stay apart: {reason}.", change)
