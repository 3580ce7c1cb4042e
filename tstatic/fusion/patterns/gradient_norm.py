"""Computes the global norm of all gradients, for clipping, in one pass: ``fuse_adamw`` and ``fuse_all_optimizer_ops``.

What follows the sum in single numbers (the root, the ratio to the limit, its casts) is computed by the launch that adds the sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial

from tstatic.fusion.codegen.define import is_pointwise
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.update.square_sum import square_sum_kernel
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, loop_nest
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.multi_tensor import ADAMW as UPDATE_ADAMW
from tstatic.fusion.patterns.multi_tensor import ALL as UPDATE_ALL
from tstatic.fusion.patterns.multi_tensor import is_adamw, is_update
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef


def _propose(fits: Callable[[OpDef], bool], view: View) -> Iterator[Proposal]:
    if not any(fits(op.definition) for op in view.ops):
        return
    for index in view.of_type("sum"):
        entries = view.ops[index].input("X")
        # As clipping by global norm sums: two tensors or more, and each of them once.
        if not isinstance(entries, tuple) or len(set(entries)) < max(2, len(entries)):
            continue
        norms = [view.maker.get(v, -1) for v in entries]
        if any(n < 0 or view.ops[n].type != "squared_l2_norm" or view.ops[n].body for n in norms):
            continue
        casts = [c for n in norms if (c := _cast(view, n)) is not None]
        tensors = [view.ops[n].input("X") for n in norms]
        # The kernel reads what was cast, and widens it in registers.
        raw = {view.ops[c].output("Out"): view.ops[c].input("X") for c in casts}
        values = tuple(str(raw.get(t, t)) for t in tensors)
        out = view.ops[index].output("Out")
        assert isinstance(out, str)
        members = {*casts, *norms, index}
        scalars = _scalars(view, members, out)
        made = {"Scalars": tuple(v for i in scalars for v in view.ops[i].writes())} if scalars else {}
        # The fused op keeps the type, with all tensors in X: one pass squares and adds them.
        yield (
            tuple(sorted({*members, *scalars})),
            partial(Fused, "squared_l2_norm", {"X": values}, {"Out": out, **made}),
        )


def _cast(view: View, norm: int) -> int | None:
    """Returns the cast before a norm, if no other op reads its result."""
    value = view.ops[norm].input("X")
    index = view.maker.get(value) if isinstance(value, str) else None
    if index is None or not isinstance(value, str):
        return None
    single = len(view.readers[value]) == 1 and value not in view.fetched and value not in view.kept
    return index if single and view.ops[index].type == "cast" and not view.ops[index].body else None


def _scalars(view: View, members: set[int], total: str) -> list[int]:
    """Returns the ops behind the sum that compute single numbers from it and from others, in program order.

    What reads a summed tensor itself is a product with the factor, which the update takes in, though the tensor may be a single
    number.
    """
    tensors = {v for i in members for v in view.ops[i].reads()} - {v for i in members for v in view.ops[i].writes()}
    tensors |= {v for i in members if view.ops[i].type == "cast" for v in view.ops[i].writes()}
    inside, found = set(members), list[int]()
    body: list[FrozenOp] = []
    waiting = [*view.readers.get(total, ())]
    heapq.heapify(waiting)
    # In the program's order, so that an op comes after what makes its inputs.
    while waiting:
        index = heapq.heappop(waiting)
        op = view.ops[index]
        if index in inside or index in view.forbidden or not tensors.isdisjoint(op.reads()) or not _is_scalar(view, op):
            continue
        grown = [*body, *(op.body or (op,))]
        # Op by op, as long as the whole is one kernel without a cycle.
        if view.between(inside | {index}) is not None or not _has_kernel(view, grown):
            continue
        body = grown
        inside.add(index)
        found.append(index)
        for value in op.writes():
            for reader in view.readers.get(value, ()):
                heapq.heappush(waiting, reader)
    return found


def _is_scalar(view: View, op: FrozenOp) -> bool:
    """Returns whether all that an op, or each op in it, reads and makes is a single number, and expressions say how."""
    parts = op.body or (op,)
    values = (view.metas.get(v) for one in parts for v in (*one.reads(), *one.writes()))
    return all(is_pointwise(one.definition) for one in parts) and all(m is not None and m.numel == 1 for m in values)


def _has_kernel(view: View, body: list[FrozenOp]) -> bool:
    try:
        loop_nest(body, view.metas, [v for op in body for v in op.writes()], view.formulas)
    except CodegenUnsupported:
        return False
    return True


ADAMW = Fusion(
    "adamw_norm",
    UPDATE_ADAMW.switch,
    Proposals(partial(_propose, is_adamw), UPDATE_ADAMW.finder.chain),
    kernel=square_sum_kernel,
)

ALL = Fusion(
    "all_optimizer_norm",
    UPDATE_ALL.switch,
    Proposals(partial(_propose, is_update), UPDATE_ALL.finder.chain),
    kernel=square_sum_kernel,
)
