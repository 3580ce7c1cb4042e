"""Counts what kernels move, from their launches, and what the table of floors says that they should."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tstatic as paddle
from tstatic import static
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan.shapes import infer_program
from tstatic.runtime.scope import Scope
from tstatic.static import pipeline
from tstatic.static.request import state_metas

__all__ = [
    "FUSIONS", "Meta", "Row", "against_formulas", "built", "dtype_of", "formula", "fused_kernels", "moved", "paddle",
    "pipeline", "rewritten", "second_passes", "static", "strategy",
]  # fmt: skip

Row = dict[str, Any]


def moved(kernel: Kernel) -> int:
    """Bytes of all launches: what each launch names, read or written once by it, partial sums and tables included.

    A launch beside the main one whose tiles cover no more than the partial sums that it names merges them: of a tensor it
    sees no more elements than its tiles hold.
    """
    calls = kernel.plan(False)
    sizes: Counter[str] = Counter()
    widths: dict[str, int] = {}
    for buffer in (*kernel.inputs, *kernel.outputs):
        sizes[buffer.value] += buffer.nbytes
        widths[buffer.value] = buffer.dtype.itemsize
    total = 0
    for launch in calls.launches:
        named = {a for a in launch.arguments if isinstance(a, str)}
        tiles = math.prod(launch.grid) * math.prod(launch.constants.values())
        # Tiles are padded to powers of two, by axis. The main function may walk over more than a tile.
        most = 4 * max((n for a, (n, _) in calls.partials.items() if a in named), default=-1)
        merges = launch.function != "kernel" and tiles <= most
        total += sum(min(sizes[a], tiles * widths[a]) if merges else sizes[a] for a in named if a in widths)
        total += sum(n * t.itemsize for a, (n, t) in calls.partials.items() if a in named)
        for name, table in calls.tables.items():
            if name in named:
                total += 8 * (len(table.values) if table.numbers is None else table.numbers.size)
                if launch.function == "kernel":
                    # The launches beside it read a number per tensor, not the tensors.
                    total += sum(sizes[v] for v in dict.fromkeys(table.values))
    return total


def _size(metas: Mapping[str, Meta], value: Any) -> int:
    return metas[value].nbytes if isinstance(value, str) else 0


def formula(op: FrozenOp, metas: Mapping[str, Meta]) -> tuple[str, int] | None:
    """The row of the table of floors that a fused op has, and its bytes; ``None`` where there is none."""
    first = op.body[0]
    backward = op.type.endswith("_grad")
    if op.fusion in ("bn_act", "bn_add_act"):
        norm = next(b for b in op.body if b.type.startswith("batch_norm"))
        times = {"bn_act": (3, 5), "bn_add_act": (4, 7)}[op.fusion][backward]
        name = "BN+act" if op.fusion == "bn_act" else "BN+add+act"
        return f"{name} {'bwd' if backward else 'fwd'}", times * _size(metas, norm.input("X"))
    updates = [b for b in op.body if b.card.update]
    if updates and updates[0].type in ("adam", "adamw", "momentum", "sgd"):
        streams = {"adam": 7, "adamw": 7, "momentum": 5, "sgd": 3}[updates[0].type]
        label = "AdamW" if updates[0].type == "adamw" else updates[0].type
        return label, streams * sum(_size(metas, b.input("Param")) for b in updates)
    if first.type in ("squared_l2_norm", "sum_of_squares"):
        return "grad norm", sum(_size(metas, b.input("X")) for b in op.body if b.type == first.type)
    return None


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


def rewritten(
    main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]
) -> tuple[tuple[FrozenOp, ...], tuple[FrozenOp, ...], Mapping[str, Meta]]:
    """The ops of a program before and after its fusions, and the metadata of the values before."""
    block = main.global_block()
    known = {n: Meta(tuple(s), dtype_of(block.var(n).dtype)) for n, s in feeds.items()}
    frozen, _ = pipeline.rewrite(main, chosen, list(known), fetches)
    known |= {frozen.reads[v]: m for v, m in state_metas(frozen, main, Scope()).items()}
    return frozen.ops, pipeline.fuse(frozen, known, chosen).ops, infer_program(frozen, known)


def fused_kernels(
    main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]
) -> list[tuple[FrozenOp, Kernel, Mapping[str, Meta]]]:
    """The fused ops of a program with their kernels, as a plan for a GPU would hold them."""
    _, ops, metas = rewritten(main, chosen, feeds, fetches)
    by_name = {f.name: f for f in FUSIONS}
    return [(op, by_name[op.fusion].kernel(op.body, metas, list(op.writes())), metas) for op in ops if op.body]


def second_passes(ops: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> int:
    """Bytes that unfused batch norms read twice, as fused ones do: their sums must be known before the result is."""
    twice = {"batch_norm": ("X",), "batch_norm_grad": ("X", "Y@GRAD")}
    return sum(_size(metas, op.input(slot)) for op in ops if not op.body for slot in twice.get(op.type, ()))


def against_formulas(kernels: Sequence[tuple[FrozenOp, Kernel, Mapping[str, Meta]]]) -> list[Row]:
    """One row per formula: kernels, bytes they move, bytes of the formula, and the worst kernel's ratio.

    Kernels without a formula are compared with what they must read and write.
    """
    rows: dict[str, Row] = {}
    for op, kernel, metas in kernels:
        found = formula(op, metas)
        label, least = found or (f"{op.fusion} ({kernel.template})", kernel.nbytes)
        row = rows.setdefault(label, {"what": label, "table": found is not None, "kernels": 0, "moved": 0, "least": 0,
                                      "worst": 0.0})  # fmt: skip
        row["kernels"] += 1
        row["moved"] += moved(kernel)
        row["least"] += least
        row["worst"] = max(row["worst"], moved(kernel) / least if least else 0.0)
    return sorted(rows.values(), key=lambda r: -r["moved"])
