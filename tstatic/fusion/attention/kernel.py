"""Attention: softmax of a product times a third matrix, with ops per element on the scores and on the weights, block by block.

Neither scores nor weights are in memory. The forward kernel saves the logarithm of each row's sum of powers, from which the
backward kernels make the weights again (FlashAttention-2, T. Dao, 2023); each gradient is added up by one program in a fixed
order. What no matrix unit multiplies in full precision, the device's library does first (``attention_library``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tstatic.fusion.attention.library import LibraryWay
from tstatic.fusion.attention.loops import over_keys, own_rows
from tstatic.fusion.attention.module import AttentionModule
from tstatic.fusion.attention.parts import Attention, one
from tstatic.fusion.attention.tiles import FORWARD, Blocks
from tstatic.fusion.codegen.kernel import Kernel, KernelParameter, Launches
from tstatic.fusion.codegen.loops.lines import LANGUAGE
from tstatic.fusion.codegen.matrix.layouts import Layout, contiguous
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.target import Target


def attention_kernel(
    found: Attention,
    mixed: FrozenOp,
    metas: Mapping[str, Meta],
    lse: str | None,
    saving: Sequence[FrozenOp] = (),
    layouts: Mapping[str, Layout] | None = None,
    body: Sequence[FrozenOp] = (),
) -> Kernel:
    """Returns the kernel of an attention; it writes the result of the last product, and ``lse``.

    Args:
        found: Its ops, but for
        mixed: the product of weights and values.
        metas: Metadata of all values; every size is known.
        lse: The value of each row's logarithm of the sum of powers, if it is wanted,
        saving: and the ops that make it.
        layouts: Where operands and result lie, if not in memory of their own.
        body: All ops that it computes, with those that move operands and result; without it those above.

    Raises:
        CodegenUnsupported: If an op between the products is not one per element.
    """
    result = one(mixed.output("Out"))
    module = _Forward(
        found, mixed, None, metas, lse, (layouts or {}).get(result, contiguous(result, metas[result].shape)), layouts
    )
    return module.forward(body or [*found.ops, *saving, mixed])


class _Forward(AttentionModule):
    """The functions of the result."""

    def _forward(self) -> tuple[str, tuple[KernelParameter, ...]]:
        t, kind = self.size_texts, LANGUAGE[self.compute.name]
        given = [self.placed(n, v) for n, v in (("q", self.q), ("k", self.k), ("v", self.v), ("out", self.out))]
        if self.lse is not None:
            given.append(self.pointer("lse", self.lse))
        parameters = (*given, *self.tail, *self.constants())
        keys = self.sizes.key_batch(self.named)

        def loop(seen: str) -> list[str]:
            shift, shrink = "peak", "tl.exp(top - shift)"
            power = "tl.exp(s - shift[:, None])"
            if self.powers:
                # What the sums so far have less is the last shift as it was rounded; where nothing is larger, they stay.
                shift, shrink = f"peak * {self.factor}", 'tl.where(top == float("-inf"), 0.0, tl.exp2(before - shift))'
                power = f"exp_less(s, {self.factor}, shift[:, None])"
            return [
                *self.columns("start"),
                f"key = {self.load('k', 'keys', 'columns', t.columns, 'dims', t.depth, whole=not seen)}",
                *self.scored(),
                *([f's = tl.where({seen}, s, float("-inf"))'] if seen else []),
                "peak = tl.maximum(top, tl.max(s, 1))",
                "# A row without any score above -inf so far has no largest one to be subtracted.",
                *(["before = shift"] if self.powers else []),
                f'shift = tl.where(peak == float("-inf"), 0.0, {shift})',
                f"p = {power}",
                f"shrink = {shrink}",
                "total = total * shrink + tl.sum(p, 1)",
                f"p = {self.call('weights', 'p')}",
                f"value = {self.load('v', 'keys', 'columns', t.columns, 'wide', t.width, whole=not seen)}",
                f"mixed = {self.dot}({self.low('p')}, value, mixed * shrink[:, None])",
                "top = peak",
            ]

        body = [
            f"batch = tl.program_id(1){self.wide_offsets}",
            f"keys = {keys}",
            *own_rows(last_first=self.diagonal is not None),
            *self.head(),
            f"query = {self.load('q', 'batch', 'rows', t.rows, 'dims', t.depth)}",
            f'top = tl.full((ROWS,), float("-inf"), {kind})',
            *([f"shift = tl.zeros((ROWS,), {kind})"] if self.powers else []),
            f"total = tl.zeros((ROWS,), {kind})",
            f"mixed = tl.zeros((ROWS, WIDTH), {kind})",
            *over_keys(t.columns, self.last_seen, loop),
            # The sum over all keys is known here: one division a row, and none in the loop.
            self.store("out", "batch", "rows", t.rows, "wide", t.width, "(mixed / total[:, None])", self.dtype),
        ]
        if self.lse is not None:
            # In float64: beside a large score float32 has too few digits for the logarithm.
            text = f"top.to(tl.float64) + (tl.log(total){self.stretched('top')}).to(tl.float64)"
            if self.powers:
                # What the powers have less, as it was rounded.
                text = (
                    f"shift.to(tl.float64) * tl.full((1,), {math.log(2)!r}, tl.float64) + tl.log(total).to(tl.float64)"
                )
            body.append(f"tl.store(lse + batch * {t.rows} + rows, {text}, mask=rows < {t.rows})")
        return self.function("kernel", parameters, body)

    def forward(self, body: Sequence[FrozenOp]) -> Kernel:
        text, parameters = self._forward()
        library = LibraryWay(self)
        texts = [text, *library.texts()]

        def programs(blocks: Blocks) -> int:
            return math.ceil(self.sizes.rows / blocks.rows)

        def ways(target: Target) -> list[Launches]:
            made = [
                Launches(
                    (self.launch("kernel", parameters, one, programs(one), self.sizes.batches),), {}, name=one.name
                )
                for one in self.blocks(FORWARD, target)
            ]
            return library.among(made, target)

        return self.finished("attention", texts, parameters, body, ways)
