"""Counts what kernels move, from their launches, and what the table of floors says that they should."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tstatic as paddle
from tstatic import static
from tstatic.fusion import FUSIONS, engine, feedforward
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.products import multiplies, products_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.norm._norm import uses_running_statistics
from tstatic.plan.plan import Generated
from tstatic.runtime.scope import Scope
from tstatic.static import inquiry, pipeline
from tstatic.static.compile import LoweredProgram, compile_program

__all__ = [
    "FUSIONS", "Meta", "Row", "Scope", "against_formulas", "built", "compile_program", "dtype_of", "formula", "fused_kernels",
    "kernel_of", "moved", "paddle", "pipeline", "planned", "rewritten", "second_launches", "second_passes", "static", "strategy",
]  # fmt: skip

Row = dict[str, Any]


def moved(kernel: Kernel) -> int:
    """Bytes of all launches."""
    return sum(kernel.moved)


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
        # Gradients that are added up on the way in are a stream each.
        times += sum(len(list(b.reads())) - 1 for b in op.body if b.type == "sum")
        return f"{name} {'bwd' if backward else 'fwd'}", times * _size(metas, norm.input("X"))
    updates = [b for b in op.body if b.definition.update]
    if updates and updates[0].type in ("adam", "adamw", "momentum", "sgd"):
        streams = {"adam": 7, "adamw": 7, "momentum": 5, "sgd": 3}[updates[0].type]
        label = "AdamW" if updates[0].type == "adamw" else updates[0].type
        # 16-bit parameters are written from float32 copies: 28 bytes in both cases with adam.
        sizes = [metas[str(b.input("Param"))] for b in updates]
        return label, streams * sum(m.numel * max(4, m.dtype.itemsize) for m in sizes)
    if op.fusion in ("gemm_epilogue", "feedforward"):
        least = matrix_bytes(op, metas)
        what = "linear+bias+act" if op.fusion == "gemm_epilogue" else "feed-forward"
        return None if least is None else (f"{what} {'bwd' if backward else 'fwd'}", least)
    if first.type in ("squared_l2_norm", "sum_of_squares"):
        return "grad norm", sum(_size(metas, b.input("X")) for b in op.body if b.type == first.type)
    return None


def matrix_bytes(op: FrozenOp, metas: Mapping[str, Meta]) -> int | None:
    """Bytes of matrix products and what is around them; ``None`` where the library makes a product, which is a pass of its own.

    Each product reads its two matrices, and each part between products what it needs beside: e(MK+KN+2MN) for a product with a
    bias and an activation whose argument is kept.
    """
    products = {id(one): products_of(one, metas) for one in op.body if multiplies(one)}
    if any(not p.dtype.is_low or not p.aligned for found in products.values() for p in found):
        return None
    total = 0
    parts = feedforward.parts_of(op.body, metas)
    for number, part in enumerate(parts):
        made = {v for one in part for v in one.writes()}
        later = {v for other in parts[number + 1 :] for one in other for v in one.contents()}
        read = {v for one in part if id(one) not in products for v in one.contents()} - made
        total += sum(metas[v].nbytes for v in (*read, *(made & {*op.writes(), *later})))
        total += sum(metas[v].nbytes for one in part for p in products.get(id(one), ()) for v in (p.a, p.b))
    return total


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


def planned(
    main: Any, chosen: Any, feeds: Mapping[str, Sequence[int]], fetches: Sequence[str]
) -> list[tuple[FrozenOp, Generated | None]]:
    """The ops that do work in a plan for a GPU, with their kernels: those whose result is no view of what they read."""
    made = lowered(main, chosen, feeds, fetches)
    return inquiry.planned(made.after, made.metas, engine.kernels_of(made.after, made.metas), chosen)


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
    return sum(_size(metas, op.input(slot)) for op in norms for slot in twice[op.type])


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
