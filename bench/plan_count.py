"""Counts what kernels move, from their launches, and what the table of floors says that they should."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plan_formulas import formula, matrix_bytes, once

import tstatic as paddle
from tstatic import static
from tstatic.fusion import FUSIONS, engine
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.base.norm import uses_running_statistics
from tstatic.plan.plan import Plan
from tstatic.runtime.scope import Scope
from tstatic.static.compile import LoweredProgram, compile_program, pipeline
from tstatic.static.explain import inquiry

__all__ = [
    "FUSIONS", "Meta", "Row", "Scope", "against_formulas", "built", "compile_program", "dtype_of", "formula",
    "fused_kernels", "kernel_of", "launches_by_kind", "matrix_bytes", "moved", "paddle", "pipeline", "planned",
    "rewritten", "second_launches", "second_passes", "static", "strategy",
]  # fmt: skip

Row = dict[str, Any]


def moved(kernel: Kernel) -> int:
    """Bytes of all launches."""
    return sum(kernel.moved)


def strategy(only: str = "") -> Any:
    """All fusions on, or those of one switch, or with ``-`` none."""
    made = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(made, fusion.switch, not only or fusion.switch == only)
    return made


def built(build: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The program that a function builds, and what it returns."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        return main, build(paddle)


def lowered(main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]) -> LoweredProgram:
    """A program before and after its fusions."""
    block = main.global_block()
    known = {n: Meta(tuple(s), dtype_of(block.var(n).dtype)) for n, s in feeds.items()}
    return compile_program(main, chosen, [known], fetches, Scope()).first


def rewritten(
    main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]
) -> tuple[tuple[FrozenOp, ...], tuple[FrozenOp, ...], Mapping[str, Meta]]:
    """The ops of a program before and after its fusions, and the metadata of all values."""
    made = lowered(main, chosen, feeds, fetches)
    return made.before.ops, made.after.ops, made.metas


def planned(main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]) -> Plan:
    """The plan for a GPU."""
    made = lowered(main, chosen, feeds, fetches)
    return inquiry.plan_of(made.after, made.metas, engine.kernels_of(made.after, made.metas), chosen)


def launches_by_kind(plan: Plan) -> list[Row]:
    """What the launches of a step are: op or kernel -> how many there are, and their launches; most launches first."""
    rows: dict[str, Row] = {}
    for op, made in inquiry.working(plan):
        members = ", ".join(f"{n} {t}" if n > 1 else t for t, n in Counter(b.type for b in op.body).items())
        what = f"{op.type}: {members}" if op.fusion and op.fusion != "strip_sums" else op.type
        row = rows.setdefault(what, {"what": what, "ops": 0, "launches": 0})
        row["ops"] += 1
        row["launches"] += 1 + second_launches([op]) if made is None else len(made.calls.launches)
    return sorted(rows.values(), key=lambda r: -r["launches"])


def fused_kernels(
    main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]
) -> list[tuple[FrozenOp, Kernel, Mapping[str, Meta]]]:
    """The fused ops of a program with their kernels, as a plan for a GPU would hold them."""
    _, ops, metas = rewritten(main, chosen, feeds, fetches)
    return [(op, kernel, metas) for op in ops if op.body and (kernel := kernel_of(op, metas)) is not None]


def kernel_of(op: FrozenOp, metas: Mapping[str, Meta]) -> Kernel | None:
    """The kernel of a fused op, or of an op alone that states expressions; ``None`` for any other."""
    if op.body:
        return engine.kernel_of(op, metas)
    try:
        return engine.loop_nest([op], metas, list(op.writes()))
    except CodegenUnsupported:
        return None


def second_launches(ops: Sequence[FrozenOp]) -> int:
    """Launches of unfused batch norms beyond the first of each, counted as those of a fused one: statistics, merge, map.

    A launch cannot wait for its own programs, and the sums over the whole batch must be known before the result is.
    """
    norms = [op for op in ops if not op.body and op.type in ("batch_norm", "batch_norm_grad")]
    return 2 * sum(not uses_running_statistics(op.attrs) for op in norms)


def second_passes(ops: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> int:
    """Bytes that unfused batch norms read twice, as fused ones do: their sums must be known before the result is."""
    twice = {"batch_norm": ("X",), "batch_norm_grad": ("X", "Y@GRAD")}
    norms = [op for op in ops if not op.body and op.type in twice and not uses_running_statistics(op.attrs)]
    return sum(metas[str(op.input(slot))].nbytes for op in norms for slot in twice[op.type])


def against_formulas(kernels: Sequence[tuple[FrozenOp, Kernel, Mapping[str, Meta]]]) -> list[Row]:
    """One row per formula: kernels, bytes they move, bytes of the formula, and the worst kernel's ratio.

    Kernels without a formula are compared with what they must read and write.
    """
    rows: dict[str, Row] = {}
    for op, kernel, metas in kernels:
        found = formula(op, metas)
        label, least = found or (f"{op.fusion} ({kernel.template})", once(op, metas))
        row = rows.setdefault(label, {"what": label, "table": found is not None, "kernels": 0, "moved": 0, "least": 0,
                                      "worst": 0.0})  # fmt: skip
        row["kernels"] += 1
        row["moved"] += moved(kernel)
        row["least"] += least
        row["worst"] = max(row["worst"], moved(kernel) / least if least else 0.0)
    return sorted(rows.values(), key=lambda r: -r["moved"])
