"""Attentions of the golden set: each direction, type, head size and chip, and what masks and dropout make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tstatic as paddle
from tests.kernels.limits import Kind
from tstatic import static
from tstatic.chips.aot import Source
from tstatic.chips.sources import sources
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.target import A100, B200, H200, Target

F = paddle.nn.functional
TARGETS: Mapping[int, Target] = {80: A100, 90: H200, 100: B200}
BATCH, HEADS, TOKENS = 4, 8, 1024
SWITCH = "fuse_dot_product_attention"


def added(scores: Any) -> Any:
    """A mask in memory."""
    return scores + static.data("mask", [TOKENS, TOKENS], scores.dtype)


def causal(scores: Any) -> Any:
    """One that is known when the program is compiled."""
    return scores + paddle.triu(paddle.full([TOKENS, TOKENS], float("-inf"), scores.dtype), 1)


def mixed(scores: Any) -> Any:
    """The same behind a cast: mixed precision O1, with the softmax in 32 bits."""
    return causal(scores.astype("float32"))


MASKS: Mapping[str, Callable[[Any], Any]] = {
    "mask": added,
    "causal": causal,
    "dropout": causal,
    "mixed": mixed,
    "mixed-dropout": mixed,
}


TF32 = "tf32"
"""In the place of a type: float32, and FLAGS_allow_tf32."""


def attention(head: int, dtype: str, mask: str) -> tuple[Kernel, ...]:
    """Returns the kernels of an attention and of its gradient."""
    allowed = paddle.get_flags("FLAGS_allow_tf32")
    try:
        paddle.set_flags({"FLAGS_allow_tf32": dtype == TF32})
        return _attention(head, "float32" if dtype == TF32 else dtype, mask)
    finally:
        paddle.set_flags(allowed)


def _attention(head: int, dtype: str, mask: str) -> tuple[Kernel, ...]:
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q, k, v = (static.data(name, [BATCH, HEADS, TOKENS, head], dtype) for name in "qkv")
        for one in (q, k, v):
            one.stop_gradient = False
        weights = F.softmax(MASKS[mask](paddle.scale(paddle.matmul(q, k, transpose_y=True), head**-0.5)))
        weights = F.dropout(weights, 0.1) if "dropout" in mask else weights
        out = paddle.matmul(weights.astype(dtype) if "mixed" in mask else weights, v)
        given = static.data("given", list(out.shape), dtype)
        fetches = [out.name, *(g.name for g in static.gradients([out], [q, k, v], [given]))]
    strategy = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(strategy, fusion.switch, fusion.switch == SWITCH)
    feeds = {one.name: tuple(one.shape) for one in main.list_vars() if one.is_data}
    return static.CompiledProgram(main, strategy).explain(fetch_list=fetches, feed_shapes=feeds).kernels


ROWS: tuple[tuple[int, str, str], ...] = (
    *((head, dtype, "causal") for head in (64, 128, 256) for dtype in ("bfloat16", "float16")),
    *((head, "bfloat16", "mask") for head in (64, 128, 256)),
    (64, "bfloat16", "dropout"),
    (128, "bfloat16", "dropout"),
    *((head, "bfloat16", mask) for head in (64, 128) for mask in ("mixed", "mixed-dropout")),
    (64, TF32, "causal"),
    (128, TF32, "causal"),
    # The library multiplies these: between the products is a kernel along rows.
    *((64, "float32", mask) for mask in ("causal", "mask", "dropout")),
)  # fmt: skip
"""Head size, type, mask."""


def attentions(slow: bool) -> Iterator[tuple[str, Kind, Source]]:
    """How each attention is planned on each chip, and of one type and mask every other way; without the slow ones, the first."""
    for head, dtype, mask in ROWS if slow else ROWS[:1]:
        for kernel in attention(head, dtype, mask):
            for chip, target in TARGETS.items():
                planned, *others = kernel.candidates(target)
                row = f"{kernel.template}/{mask}-{head}-{dtype}@sm_{chip}"
                mine = dict(sources(kernel, planned))
                yield from ((f"{row}.{name}", launch_kind(source), source) for name, source in mine.items())
                for way in others if slow and (dtype, mask) == ("bfloat16", "causal") else ():
                    # Of another way, what the planned one does not launch.
                    made = ((n, s) for n, s in sources(kernel, way) if mine.get(n) != s)
                    yield from ((f"{row}~{way.name}.{name}", launch_kind(source), source) for name, source in made)


def launch_kind(source: Source) -> Kind:
    """The kind of one launch of an attention."""
    return "attention" if "tl.dot(" in source.text else "reduction"
