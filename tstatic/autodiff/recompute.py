"""Recomputes the values between checkpoints in the backward pass, so that they need not be kept."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.autodiff.backward import Backward, PendingOp, run, stale_at
from tstatic.ir.program import Operator


def _segments(ops: Sequence[Operator], path: Sequence[int], checkpoints: set[str]) -> list[list[int]]:
    """Returns the positions of the path's ops, split after each op that writes a checkpoint."""
    segments: list[list[int]] = [[]]
    for i in path:
        segments[-1].append(i)
        if any(n in checkpoints for n in ops[i].output_arg_names):
            segments.append([])
    return segments


def recompute(
    work: Backward, ops: Sequence[Operator], path: Sequence[int], needed: set[str], checkpoints: set[str]
) -> None:
    """Creates the backward ops, and recomputes the segments before the last checkpoint.

    Random ops draw the same numbers the second time, because their position keys them. Ops that own blocks are not
    repeated; their results are kept.
    """
    segments = _segments(ops, path, checkpoints)
    for number in range(len(segments) - 1, -1, -1):
        segment = segments[number]
        mapping = {} if number == len(segments) - 1 else _repeat(work, ops, segment, checkpoints, number)
        mark = len(work.pending)
        run(work, ops, segment, needed)
        if mapping:
            for new_op in work.pending[mark:]:
                new_op.inputs = {s: tuple(mapping.get(n, n) for n in row) for s, row in new_op.inputs.items()}


def _repeat(
    work: Backward, ops: Sequence[Operator], segment: Sequence[int], checkpoints: set[str], number: int
) -> dict[str, str]:
    """Repeats the segment's forward ops; returns forward name -> name of the repeated value."""
    mapping: dict[str, str] = {}
    overwritten = stale_at(work, ops)
    for i in segment:
        op = ops[i]
        if any(spec.kind == "block" for spec in op.definition.attrs.values()) or op.definition.effects:
            continue
        if all(n in checkpoints for n in op.output_arg_names):
            continue
        outputs = {}
        inputs = {s: tuple(mapping.get(n, n) for n in row) for s, row in op.inputs.items()}
        work.check_fresh(op, [n for n in op.input_arg_names if n not in mapping], "", op.definition, overwritten(i))
        for slot, row in op.outputs.items():
            fresh = tuple(f"{n}.recompute_{number}" for n in row)
            for old, new in zip(row, fresh, strict=True):
                work.metas[new] = work.meta(old)
                if old not in checkpoints:
                    mapping[old] = new
            outputs[slot] = fresh
        work.pending.append(PendingOp(op.type, inputs, outputs, dict(op.attrs), op.where, position=op.position))
    return mapping
