"""Counts the bytes of values that are alive at each op of a program, before anything is planned."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import UNKNOWN, Meta


def live_bytes(program: FrozenProgram, metas: Mapping[str, Meta], without: Collection[str] = ()) -> list[int]:
    """Returns for each op the bytes of what ops have made and what later ones read, with what it makes itself.

    Views and results that lie in the place of a dying input count once, as in a plan. Feeds and variables, which are there all
    the time, count nothing, and neither do values of unknown sizes: the numbers serve to compare programs, not to allocate.

    Args:
        program: The program, as it stands between two fusions.
        metas: Metadata of all its values.
        without: Values that are not counted.
    """
    last: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        last.update(dict.fromkeys(op.contents(), index))
    # What is fetched or kept lives to the end.
    last.update(dict.fromkeys(program.roots(), len(program.ops)))
    root: dict[str, str] = {}
    span: dict[str, tuple[int, int]] = {}
    for index, op in enumerate(program.ops):
        taken = _shared(op, index, metas, last, root, span)
        for value in op.writes():
            base = root[value] = taken.get(value, value)
            first, end = span.get(base, (index, index))
            span[base] = first, max(end, last.get(value, index))
    changes = [0] * (len(program.ops) + 2)
    for base, (first, end) in span.items():
        meta = metas.get(base)
        if root.get(base) == base and base not in without and meta is not None and UNKNOWN not in meta.shape:
            changes[first] += meta.nbytes
            changes[end + 1] -= meta.nbytes
    return list(itertools.accumulate(changes[: len(program.ops)]))


def _shared(
    op: FrozenOp,
    index: int,
    metas: Mapping[str, Meta],
    last: Mapping[str, int],
    root: Mapping[str, str],
    span: Mapping[str, tuple[int, int]],
) -> dict[str, str]:
    """Returns result -> the value in whose memory it lies."""
    found: dict[str, str] = {}
    pairs: Sequence[tuple[object, object]] = [(op.input(a), op.output(b)) for a, b in op.definition.inplace]
    if op.definition.view is not None:
        pairs = [(op.inputs[0], op.outputs[0])]
    for source, result in pairs:
        if not isinstance(source, str) or not isinstance(result, str) or source not in metas or result not in metas:
            continue
        base = root.get(source, source)
        # What is fed or kept in a scope is nobody's to overwrite; a view of it takes no memory.
        dies = base in root and span[base][1] == index and metas[source].nbytes == metas[result].nbytes
        if op.definition.view is not None or (dies and base not in found.values()):
            found[result] = base
    return found
