"""Computes a linear layer and the cross entropy behind it in chunks of rows, so that the logits are never whole in memory.

The program is rewritten into ordinary ops over slices of the rows, which every device runs and later fusions take up. Where the
gradient of the losses depends on no loss, a chunk goes forward and backward before the next one begins; where it does, the
backward part makes each chunk's logits again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tstatic.fusion.codegen.matrix.products import is_product
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.engine import Applied, Fusion, Log, Rejection, Rewriting, member
from tstatic.fusion.engine.chain import ALONG_ROWS, PRODUCT, Chain
from tstatic.fusion.engine.live_bytes import live_bytes
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.row_chunks import Chunks
from tstatic.fusion.patterns.row_groups import EMPTY, ROW, WIDE, RowGroup, group_of, is_loss, loss_of, needed
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import Meta

LEAST_ROWS = 4096
"""The fewest rows of a chunk: with fewer, products would no longer fill a chip."""

MANY_CLASSES = 1 << 15
"""So many classes fill it with half the rows where logits have 16 bits: 2,048 times 32,768 are 4,096 tiles of 128 by 128."""

_TAKEN = "turn that fusion off"

ALIGNED_ROWS = 64
"""Chunks begin at multiples of so many rows where they are that long, so that slices are as aligned as whole values."""


def sizes_of(rows: int, count: int) -> tuple[int, ...]:
    """Returns the rows of each chunk, equal but for the last one, which has the rest."""
    each = rows // count
    each -= each % ALIGNED_ROWS if each >= ALIGNED_ROWS else 0
    return (*(each,) * (count - 1), rows - each * (count - 1))


def counts(rows: int, least: int) -> Iterator[int]:
    """Yields the numbers of chunks that leave each at least so many rows: 2, 4, 8 and so on."""
    count = 2
    while rows // count >= least:
        yield count
        count *= 2


def rewritten(
    fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log, least: int = LEAST_ROWS
) -> FrozenProgram:
    """Rewrites every linear layer whose logits nothing but losses needs, and records what was done and what was not.

    Args:
        fusion: The fusion, for the records.
        program: The frozen program.
        metas: Metadata of all its values; those of new ones are added.
        log: Gets the records.
        least: The fewest rows of a chunk; half of them where there are :data:`MANY_CLASSES` and logits have 16 bits.
    """
    if not any(is_loss(op.definition) for op in program.ops):
        return program
    view = View(program, metas)
    # By what they write, as indices change with each rewriting.
    products = [op.outputs for op in view.ops if any(is_product(one.definition) for one in op.body or (op,))]
    for outputs in products:
        index = next(i for i, op in enumerate(view.ops) if op.outputs == outputs)
        loss = loss_of(view, index)
        if loss is None:
            continue
        try:
            if view.ops[index].body:
                raise MatchRejected("TWO_GROUPS", f"the matrix product is in {view.ops[index].type} already", _TAKEN)
            group = group_of(view, index, loss)
            if strict_numerics():
                raise MatchRejected("NUM_STRICT")
            count = _count(view, metas, group, least)
        except MatchRejected as unfit:
            members = tuple(member(view.ops[i]) for i in (index, loss))
            log.refused.append(Rejection(fusion.name, fusion.switch, unfit.code, members, unfit.reason, unfit.change))
            continue
        members = tuple(member(view.ops[i]) for i in sorted(group.members))
        gone = tuple(v for v in group.made(view) if group.kinds.get(v, WIDE) == WIDE)
        made = _in_chunks(view, metas, group, count)
        log.applied.append(
            Applied(
                fusion.name, fusion.switch, f"linear_cross_entropy in {count} chunks", members, gone, (), None,
                rewritten=tuple(made.program.ops[i] for i in sorted(made.indices)),
                memory=max(live_bytes(view.program, metas)) - max(live_bytes(made.program, metas)),
            )
        )  # fmt: skip
        view = View(made.program, metas)
    return view.program


# ------------------------------------------------------------------------------------------------------ number of chunks
def _count(view: View, metas: dict[str, Meta], group: RowGroup, least: int) -> int:
    """Returns the least number of chunks with which they no longer decide the most bytes that are alive, else the largest.

    Raises:
        MatchRejected: If the rows are too few for two chunks, or the whole logits do not decide it, either.
    """
    low = any(metas[v].dtype.is_low for v in group.made(view) if group.kinds.get(v) == WIDE)
    if low and group.classes >= MANY_CLASSES:
        least = -(-least // 2)
    possible = [*counts(group.rows, least)]
    if not possible:
        raise MatchRejected("FEW_ROWS", f"{group.rows} rows make no two chunks of {least}")
    wide = {v for v in group.made(view) if group.kinds.get(v) == WIDE}
    # Chunks cost launches, and save nothing where the peak is elsewhere.
    if not _decides(view.program, metas, group.members, wide):
        raise MatchRejected("NOT_THE_PEAK")
    for count in possible:
        # Sizes of names that a trial makes are nobody else's.
        own = dict(metas)
        made = _in_chunks(view, own, group, count)
        if not _decides(made.program, own, made.indices, made.wide):
            return count
    # None removes the logits from the peak: the smallest ones lower it most.
    return possible[-1]


def _decides(program: FrozenProgram, metas: dict[str, Meta], indices: set[int], wide: set[str]) -> bool:
    """Returns whether the program needs more memory at its peak than the ops outside of a group need without its logits."""
    outside = max((n for i, n in enumerate(live_bytes(program, metas, wide)) if i not in indices), default=0)
    return max(live_bytes(program, metas)) > outside


# ------------------------------------------------------------------------------------------------------------- rewriting
@dataclass(frozen=True, slots=True)
class _Made:
    """A program with a group in chunks: the indices of the group's ops, and their values of the size of a chunk's logits."""

    program: FrozenProgram
    indices: set[int]
    wide: set[str]


def _in_chunks(view: View, metas: dict[str, Meta], group: RowGroup, count: int) -> _Made:
    names = dict(view.program.names)
    chunks = Chunks(view, metas, names, group, sizes_of(group.rows, count))
    now = [i for i in sorted(group.members) if i not in group.waiting]
    later = sorted(group.waiting)
    # Before the first reader of what they make; what they read moves in front of them.
    blocks = {group.loss: chunks.run(*_pass(view, group, now))}
    if later:
        # In front of the first that waits: what these read is made by then.
        blocks[later[0]] = chunks.run(*_pass(view, group, later))
    constants = dict(view.program.constants)
    ops: list[FrozenOp] = []
    for index, op in enumerate(view.ops):
        ops += blocks.get(index, [])
        if index not in group.members:
            ops.append(_without_results(view, group, op, metas, names, constants))
    inside = {id(op) for block in blocks.values() for op in block}
    ordered = _makers_first(ops)
    return _Made(
        view.program.edit(ops=tuple(ordered), names=names, constants=constants),
        {i for i, op in enumerate(ordered) if id(op) in inside},
        chunks.wide,
    )


def _pass(view: View, group: RowGroup, members: Sequence[int]) -> tuple[list[int], list[str]]:
    """Returns the members that a pass computes, those that make the rows of classes again among them, and what others read."""
    own = {v for i in members for v in view.ops[i].writes()}
    roots = view.program.roots()

    def is_read(value: str) -> bool:
        return value in roots or any(i not in group.members or i not in members for i in view.readers.get(value, ()))

    visible = [
        v for i in members for v in view.ops[i].writes() if group.kinds.get(v) not in (None, WIDE, EMPTY) and is_read(v)
    ]
    maker = group.made(view)
    # A loss checks its labels even if nobody reads it.
    wanted = {i for i in members if view.ops[i].definition.effects} | {maker[v] for v in visible}
    pending = [*wanted]
    while pending:
        for value in view.ops[pending.pop()].reads():
            index = maker.get(value)
            # No pass stores rows of classes, so that each makes again what it reads of them.
            if index is not None and index not in wanted and (value in own or group.kinds.get(value) in (WIDE, EMPTY)):
                wanted.add(index)
                pending.append(index)
    return sorted(wanted), visible


def _without_results(
    view: View,
    group: RowGroup,
    op: FrozenOp,
    metas: dict[str, Meta],
    names: dict[str, str],
    constants: dict[str, np.ndarray[Any, Any]],
) -> FrozenOp:
    """Returns an op that reads a constant in the place of losses of which it needs only the shape: it may move before them."""
    unread = {*op.reads()} - {*needed(view, op)}
    renamed: dict[str, str] = {}
    for value in unread:
        if group.kinds.get(value) == ROW and view.maker.get(value) in group.members:
            meta = metas[value]
            name = renamed[value] = f"{value}@SHAPE"
            constants.setdefault(name, np.zeros(meta.shape, meta.dtype.np))
            metas[name] = meta
            names[name] = name
    return op.with_inputs(renamed) if renamed else op


def _makers_first(ops: Sequence[FrozenOp]) -> list[FrozenOp]:
    """Returns ops in their order, but each behind those that make what it reads.

    Raises:
        MatchRejected: If two need each other.
    """
    maker = {v: i for i, op in enumerate(ops) for v in op.writes()}
    done: set[int] = set()
    entered: set[int] = set()
    ordered: list[FrozenOp] = []
    for start in range(len(ops)):
        stack = [start]
        while stack:
            index = stack[-1]
            makers = {maker[v] for v in ops[index].reads() if v in maker} if index not in done else set()
            # The stack takes its last entry first: so the makers keep their order.
            missing = sorted(makers - done, reverse=True)
            if not missing:
                stack.pop()
                if index not in done:
                    done.add(index)
                    ordered.append(ops[index])
                continue
            if index in entered:
                raise MatchRejected("CYCLE", reader=ops[index].type)
            entered.add(index)
            stack.extend(missing)
    return ordered


def fusion_of(least: int = LEAST_ROWS) -> Fusion:
    """Returns the fusion, with chunks of at least so many rows."""
    chain = Chain(
        (PRODUCT, ALONG_ROWS), "a cross entropy reads the logits of a linear layer, and nothing else reads them"
    )
    return Fusion(
        "linear_cross_entropy", "fuse_linear_cross_entropy", Rewriting(partial(rewritten, least=least), chain)
    )


FUSION = fusion_of()
