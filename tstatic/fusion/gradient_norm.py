"""Computes the global norm of all gradients, for clipping, in one pass: ``fuse_adamw`` and ``fuse_all_optimizer_ops``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tstatic.fusion.codegen.square_sum import square_sum_kernel
from tstatic.fusion.engine import Fused, Fusion, Proposal
from tstatic.fusion.multi_tensor import ADAMW as UPDATE_ADAMW
from tstatic.fusion.multi_tensor import ALL as UPDATE_ALL
from tstatic.fusion.multi_tensor import is_adamw, is_update
from tstatic.fusion.view import View
from tstatic.ir.opdef import OpDef


def _propose(fits: Callable[[OpDef], bool], view: View) -> Iterator[Proposal]:
    if not any(fits(op.definition) for op in view.ops):
        return
    for index in view.of_type("sum"):
        entries = view.ops[index].input("X")
        if not isinstance(entries, tuple) or len(set(entries)) < max(2, len(entries)):
            continue
        norms = [view.maker.get(v, -1) for v in entries]
        if any(n < 0 or view.ops[n].type != "squared_l2_norm" or view.ops[n].body for n in norms):
            continue
        casts = [c for n in norms if (c := _cast(view, n)) is not None]
        tensors = [view.ops[n].input("X") for n in norms]
        raw = {view.ops[c].output("Out"): view.ops[c].input("X") for c in casts}
        values = tuple(str(raw.get(t, t)) for t in tensors)
        out = view.ops[index].output("Out")
        assert isinstance(out, str)
        yield (
            tuple(sorted({*casts, *norms, index})),
            partial(Fused, "squared_l2_norm", {"X": values}, {"Out": out}),
        )


def _cast(view: View, norm: int) -> int | None:
    """Returns the cast before a norm, if no other op reads its result."""
    value = view.ops[norm].input("X")
    index = view.maker.get(value) if isinstance(value, str) else None
    if index is None or not isinstance(value, str):
        return None
    single = len(view.readers[value]) == 1 and value not in view.fetched and value not in view.kept
    return index if single and view.ops[index].type == "cast" and not view.ops[index].body else None


ADAMW = Fusion(
    "adamw_norm",
    UPDATE_ADAMW.switch,
    proposes=partial(_propose, is_adamw),
    kernel=square_sum_kernel,
)

ALL = Fusion(
    "all_optimizer_norm",
    UPDATE_ALL.switch,
    proposes=partial(_propose, is_update),
    kernel=square_sum_kernel,
)
