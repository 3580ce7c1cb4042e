"""What the table of floors says that a fused op should move, counted from its ops and never from its kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tstatic.fusion.attention import block as attention_block
from tstatic.fusion.attention.causal import for_kernel
from tstatic.fusion.attention.dot_product_attention import RESULT, SAVED
from tstatic.fusion.codegen.define import works_on_rows
from tstatic.fusion.codegen.matrix.products import Product, multiplies, products_of, tails_of
from tstatic.fusion.patterns import feedforward
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.target import DEFAULT_TARGET

PROGRAMS = 2 * DEFAULT_TARGET.multiprocessors
"""Programs that share the rows of sums over rows: each leaves a partial sum per column, which is written and read once."""

Metas = Mapping[str, Meta]


def formula(op: FrozenOp, metas: Metas) -> tuple[str, int] | None:
    """The row of the table of floors that a fused op has, and its bytes; ``None`` where there is none."""
    way = "bwd" if op.type.endswith("_grad") else "fwd"
    if op.fusion in ("bn_act", "bn_add_act"):
        norm = next(b for b in op.body if b.type.startswith("batch_norm"))
        times = {"bn_act": (3, 5), "bn_add_act": (4, 7)}[op.fusion][way == "bwd"]
        name = "BN+act" if op.fusion == "bn_act" else "BN+add+act"
        # Gradients that are added up on the way in are a stream each.
        times += sum(len(list(b.reads())) - 1 for b in op.body if b.type == "sum")
        return f"{name} {way}", times * _size(metas, norm.input("X"))
    updates = [b for b in op.body if b.definition.update]
    if updates and updates[0].type in ("adam", "adamw", "momentum", "sgd"):
        streams = {"adam": 7, "adamw": 7, "momentum": 5, "sgd": 3}[updates[0].type]
        label = "AdamW" if updates[0].type == "adamw" else updates[0].type
        # 16-bit parameters are written from float32 copies: 28 bytes in both cases with adam.
        sizes = [metas[str(b.input("Param"))] for b in updates]
        return label, streams * sum(m.numel * max(4, m.dtype.itemsize) for m in sizes)
    if op.fusion in ("gemm_epilogue", "feedforward"):
        what = "linear+bias+act" if op.fusion == "gemm_epilogue" else "feed-forward"
        return f"{what} {way}", matrix_bytes(op, metas)
    if op.fusion == "dot_product_attention":
        return f"attention {way}", attention_bytes(op, metas)
    if op.fusion == "attention":
        return f"attention block {way}", block_bytes(op, metas)
    if op.fusion in ("compiler", "auto"):
        return group_bytes(op, metas)
    if any(b.type in ("squared_l2_norm", "sum_of_squares") for b in op.body):
        return "grad norm", once(op, metas)
    return None


def _size(metas: Metas, value: Any) -> int:
    return metas[value].nbytes if isinstance(value, str) else 0


def once(op: FrozenOp, metas: Metas) -> int:
    """Bytes of all that an op reads and writes, once each: each stream of the table is one of these."""
    return sum(metas[v].nbytes for v in dict.fromkeys((*op.contents(), *op.writes())) if v in metas)


def partial_bytes(ops: Sequence[FrozenOp], written: set[str], metas: Metas, least: int) -> int:
    """Bytes of the partial sums of results that are sums over rows: 8*G*N for each in float32, 16*G*N for a norm's two.

    Args:
        ops: What makes them.
        written: The results that are wanted.
        metas: Metadata of all values.
        least: The fewest terms of which a program leaves a partial sum. What one program can add up has none.
    """
    total = 0
    for op in ops:
        largest = max(metas[v].numel for v in (*op.reads(), *op.writes()))
        for slot, value in zip(op.definition.outputs, op.outputs, strict=True):
            if not isinstance(value, str) or value not in written or metas[value].numel == largest:
                continue
            if slot.name in ("Scale@GRAD", "Bias@GRAD") or op.type == "elementwise_add_grad":
                kept = metas[value]
                programs = min(PROGRAMS, largest // max(1, kept.numel) // least)
                total += 2 * programs * kept.numel * kept.dtype.compute.itemsize if programs > 1 else 0
    return total


_ROW, _TERMS = 8, 128
"""The fewest rows of a program that goes along them, and the fewest terms of a program that only sums."""


def group_bytes(op: FrozenOp, metas: Metas) -> tuple[str, int] | None:
    """Groups of any ops: each array once; a group with sums over rows also their partial sums."""
    kinds = {b.type.removesuffix("_grad") for b in op.body if works_on_rows(b.definition)}
    backward = any(b.type.endswith("_grad") for b in op.body)
    sums = partial_bytes(op.body, set(op.writes()), metas, _ROW if kinds else _TERMS)
    if "softmax_with_cross_entropy" in kinds:
        return "CE fwd+bwd" if backward else "CE fwd", once(op, metas) + sums
    if "layer_norm" in kinds:
        return f"(residual+) LN {'bwd' if backward else 'fwd'}", once(op, metas) + sums
    return None if kinds else ("pointwise and sums", once(op, metas) + sums)


def attention_bytes(op: FrozenOp, metas: Metas) -> int:
    """Attention alone: what it reads and writes (``core_bytes``)."""
    rows, given = (
        _size(metas, op.input(slot)) if op.type.endswith("_grad") else 0 for slot in ("SoftmaxAux", "Out@GRAD")
    )
    result = str(op.input("Out")) if rows else ""
    again = sum(metas[v].nbytes for v in {*op.contents()} - {result})
    return core_bytes(op.body, once(op, metas), rows, given, again, metas)


def core_bytes(ops: Sequence[FrozenOp], least: int, rows: int, given: int, again: int, metas: Metas) -> int:
    """Attention: e*4BHSD forward, e*8BHSD backward; the mask and what is saved per row.

    Gradients are added up by one program each, in a fixed order, all in one pass. In 16 bits the sum of each row of dO * O is
    made before it, of one more reading of dO, and is written once and read once; wider types make it on the way.
    With dropout 16 bits take two
    passes, as the registers do not hold random numbers and all three gradients: the second reads all but the result again.

    Args:
        ops: The attention's.
        least: Bytes of what it reads and writes, each once.
        rows, given: Bytes of what is saved per row, in float64, and of dO; 0 forward.
        again: Bytes of what it reads, but for its result.
        metas: Metadata of all values.
    """
    if any("dropout" in op.type for op in ops):
        given += again + rows // 2
    low = any(metas[v].dtype.is_low for op in ops if op.type == "softmax_grad" for v in op.reads())
    return least + (given + rows if low else 0)


def block_bytes(op: FrozenOp, metas: Metas) -> int:
    """Blocks of attention: the products around it (``matrix_bytes``), and the attention (``core_bytes``).

    Sums over rows of its gradients cost partial sums only, as the programs that make the gradients add them up.
    """
    groups, middle, summing = attention_block.groups_of(op.body, metas, list(op.writes()))
    written = {*op.writes()}
    total = parts_bytes(
        [part for part in groups if part is not middle], written | _contents((*middle, *summing)), metas
    )
    made = {v for one in middle for v in one.writes()}
    # A causal mask that is known is not read.
    read = _contents(for_kernel(middle)) - made
    softmax = next((one for one in middle if one.type == "softmax_grad"), None)
    if softmax is not None:
        read.add(str(softmax.attrs[RESULT]))
    stored = made & {*written, *_contents(one for part in groups if part is not middle for one in part)}
    least = sum(metas[v].nbytes for v in read | stored)
    mixed = next((one for one in middle if one.type == "matmul_v2_grad"), None)
    rows = _size(metas, softmax.attrs[SAVED]) if softmax is not None else 0
    given = _size(metas, mixed.input("Out@GRAD")) if mixed is not None else 0
    again = sum(metas[v].nbytes for v in read) - (_size(metas, softmax.attrs[RESULT]) if softmax is not None else 0)
    total += core_bytes(middle, least, rows, given, again, metas)
    return total + partial_bytes(summing, written, metas, _ROW)


def _contents(ops: Iterable[FrozenOp]) -> set[str]:
    return {v for op in ops for v in op.contents()}


def matrix_bytes(op: FrozenOp, metas: Metas) -> int:
    """Bytes of matrix products and what is around them.

    Each product reads its two matrices, and each part between products what it needs beside: e(MK+KN+MN) for a product with a
    bias and an activation. A product that the device's library makes is a pass of its own: e(MK+KN+MN) with or without what is only
    added to it, and anything else that follows reads it once more. These are products of 32 bits or more, those whose rows do not
    begin at multiples of 16 bytes, and those with several results: e(MK+KN+3MN) where the sum with the bias is kept.
    """
    return parts_bytes(feedforward.parts_of(op.body, metas), {*op.writes()}, metas)


def parts_bytes(parts: Sequence[Sequence[FrozenOp]], needed: set[str], metas: Metas) -> int:
    """Bytes of the parts of a block, one after the other; ``needed``: results that more than these parts read."""
    total = 0
    for number, part in enumerate(parts):
        made = {v for one in part for v in one.writes()}
        later = {v for other in parts[number + 1 :] for one in other for v in one.contents()}
        stored = made & {*needed, *later}
        total += sum(metas[v].nbytes for v in stored)
        products = next((products_of(one, metas) for one in part if multiplies(one)), ())
        if not products:
            # Partial sums of a part along rows; those behind products are few, as each has a tile of rows.
            total += sum(metas[v].nbytes for v in {v for one in part for v in one.contents()} - made)
            total += partial_bytes(part, stored, metas, _ROW)
            continue
        (main,) = (one for one in part if multiplies(one))
        for product, tail in zip(products, tails_of(part, main, products), strict=True):
            total += sum(metas[v].nbytes for v in (product.a, product.b))
            total += sum(metas[v].nbytes for v in {v for one in tail for v in one.contents()} - made)
            total += metas[product.out].nbytes * _again(product, tail, stored, metas)
    return total


def _again(product: Product, tail: Sequence[FrozenOp], stored: set[str], metas: Metas) -> int:
    """Returns how often a product is written or read beside what is kept: 0 where a tile of it stays in registers."""
    if not tail or _added(product, tail, stored, metas):
        return 0
    low, kept = product.dtype.is_low, product.out in stored
    # A library writes a product of 16 bits, or its sum with a bias, where it is kept.
    biased = len(tail) > 1 and _added(product, tail[:1], stored, metas) and not stored.isdisjoint(tail[0].writes())
    direct = low and (kept or biased)
    results = [v for one in tail for v in one.writes() if v in stored]
    summed = any(metas[v].numel < metas[product.out].numel for v in results)
    if low and product.aligned and len(results) + kept < 2 and not summed:
        return 0
    return 1 if kept or direct else 2


def _added(product: Product, tail: Sequence[FrozenOp], stored: set[str], metas: Metas) -> bool:
    """Returns whether all that follows a product is the add of a vector or a matrix, which the library makes on the way."""
    if len(tail) != 1 or tail[0].type not in ("elementwise_add", "sum") or product.out in stored:
        return False
    sizes = product.columns, product.rows * product.columns
    return any(metas[v].numel in sizes for v in tail[0].contents() if v != product.out)
