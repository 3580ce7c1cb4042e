"""Planted faults: what fusions and generated kernels could get wrong, each a few lines that break the text or the engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.drawn import only
from tstatic import testing
from tstatic.fusion import engine
from tstatic.fusion.engine import cache, view
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns import auto
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.operator import OpRole
from tstatic.runtime import generated

Hits = list[str]
"""What the fault really changed."""


@dataclass(frozen=True)
class Fault:
    """A fault: ``plant`` breaks what it is about until the patch is undone, and notes each time that it took effect."""

    name: str
    plant: Callable[[pytest.MonkeyPatch, Hits], None]


def _text(name: str, change: Callable[[str], str]) -> Fault:
    """A fault in the text of generated kernels."""

    def plant(patch: pytest.MonkeyPatch, hits: Hits) -> None:
        def load(text: str, title: str) -> Any:
            broken = change(text)
            if broken != text:
                hits.append(title)
            return cache.load(broken, title)

        patch.setattr(generated, "cache", SimpleNamespace(load=load))

    return Fault(name, plant)


def _replaced(name: str, pattern: str, by: str) -> Fault:
    return _text(name, lambda text: re.sub(pattern, by, text, flags=re.MULTILINE))


# -------------------------------------------------------------------------------------------------------- kernels' text
def _swapped_stores(text: str) -> str:
    """The first two results of a kernel, of one shape and type, change places."""
    stores = re.findall(r"tl\.store\(y\d+ \+ offsets, (v\d+), mask=mask\)", text)
    if "_grad" not in text or len(stores) < 2 or stores[0] == stores[1]:
        return text
    a, b = (f"offsets, {s}, mask=mask" for s in stores[:2])
    return text.replace(a, "\0").replace(b, a).replace("\0", b)


def _stale(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Kernels that differ in numbers of attributes only are taken for one."""
    known: dict[str, str] = {}

    def load(text: str, title: str) -> Any:
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", '"""')))
        # Sizes are whole numbers: they stay in the key, so that no wrong memory is touched.
        key = re.sub(
            r"\d+\.\d+(e-?\d+)?|\d+e-?\d+", "number", code.split("if __name__")[0].split("import triton\n", 1)[1]
        )
        first = known.setdefault(key, text)
        if first != text:
            hits.append(title)
        return cache.load(first, title)

    patch.setattr(generated, "cache", SimpleNamespace(load=load))


def _unmasked(text: str) -> str:
    """Sums take in what lies beyond the data; it reads as 1, since a load without its mask could end the process."""
    if "tl.sum(" not in text:
        return text
    text = re.sub(r"(\w+ \+?= )tl\.where\(mask, (.*), 0\.0\)$", r"\1\2", text, flags=re.MULTILINE)
    return text.replace("mask=mask, other=0)", "mask=mask, other=1)")


# -------------------------------------------------------------------------------------------------------------- engine
def _single_use(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    outside = View.outside

    def nobody(self: View, value: str, inside: set[int]) -> list[int]:
        hits.extend([value] * bool(outside(self, value, inside)))
        return []

    patch.setattr(View, "outside", nobody)


def _forgets(attribute: str) -> Callable[[pytest.MonkeyPatch, Hits], None]:
    """The links of a program without the values that must survive."""

    def plant(patch: pytest.MonkeyPatch, hits: Hits) -> None:
        start = View.__init__

        def forgetful(self: View, *args: Any) -> None:
            start(self, *args)
            hits.extend(getattr(self, attribute))
            setattr(self, attribute, set())

        patch.setattr(view.View, "__init__", forgetful)

    return plant


def _other_match(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A fused gradient reads what another forward op of the same type and shape has saved."""
    make = engine._make

    def faulty(fusion: Any, links: View, *args: Any) -> Any:
        fused, record = make(fusion, links, *args)
        renamed = {}
        for op in fused.body if fused.role & OpRole.Backward else ():
            for value in op.reads():
                maker = links.maker.get(value)
                if maker is None or f"{links.ops[maker].type}_grad" != op.type:
                    continue
                place = list(links.ops[maker].writes()).index(value)
                for other in links.of_type(links.ops[maker].type):
                    found = list(links.ops[other].writes())
                    if other != maker and len(found) > place and links.metas[found[place]] == links.metas[value]:
                        renamed[value] = found[place]
        hits.extend(renamed)
        return (fused.with_inputs(renamed) if renamed else fused), record

    patch.setattr(engine, "_make", faulty)


def _no_cycle_check(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    replace_matches = engine.replace_matches

    def faulty(program: FrozenProgram, links: View, made: Any) -> FrozenProgram | None:
        done = replace_matches(program, links, made)
        if done is not None:
            return done
        hits.append("ring")
        inside = {i for indices, _ in made for i in indices}
        nodes: list[tuple[int, FrozenOp]] = [(max(indices), op) for indices, op in made]
        nodes += [(i, op) for i, op in enumerate(links.ops) if i not in inside]
        return program.edit(ops=tuple(op for _, op in sorted(nodes, key=lambda n: n[0])))

    patch.setattr(engine, "replace_matches", faulty)
    patch.setattr(View, "between", lambda self, inside: None)
    patch.setattr(auto._Groups, "reaches", lambda self, start, goal: False)


FAULTS = (
    _text("dropped mask of a sum", _unmasked),
    _replaced("swapped operands", r"\b([av]\d+) - ([av]\d+)\b", r"\2 - \1"),
    Fault("missing single-use rule", _single_use),
    Fault("forward and backward take different matches", _other_match),
    _replaced("wrong broadcast stride", r"offsets // (\w+|\([^)]*\))", r"offsets // (2 * \1)"),
    _replaced("NaN dropped", r"tl\.where\(\(a != a\) \| \(b != b\), a \+ b, (tl\.where\(a [<>] b, a, b\))\)", r"\1"),
    _replaced(
        "bfloat16 accumulation",
        r"tl\.sum\((sum_\w+|total|along|spread), 0\)",
        r"tl.sum(\1.to(tl.bfloat16).to(tl.float32), 0)",
    ),
    _replaced("off-by-one tail", r"mask = offsets < n$", r"mask = offsets < n - 1"),
    _replaced("wrong axis of a row reduction", r", 1\)\[:, None\]", r", 0)[None, :]"),
    _replaced(
        "missing cast rounding",
        r"return (from_bf16\(to_bf16\(a\)\)|a\.to\(tl\.float16\)\.to\(tl\.float32\))",
        r"return a",
    ),
    _text("gradient of the wrong operand", _swapped_stores),
    _replaced("old moment instead of the new one", r"(step = |div_rn\()(velocity|moment1)out\b", r"\1\2"),
    Fault("missing fetch safety", _forgets("fetched")),
    Fault("missing persistable safety", _forgets("kept")),
    Fault("cycle check off", _no_cycle_check),
    Fault("stale kernel cache key", _stale),
    _replaced("scale's bias dropped", r"(# scale\b.*\n.* = .*) [+-] \(?-?\d+\.\d+\)?$", r"\1"),
    _replaced("batch norm without epsilon", r"(spread_here \+ )\d\S*\)", r"\g<1>0.0)"),
    _replaced("row reduction before its mask", r"tl\.sum\(tl\.where\(mask, (.*?), 0\.0\), 1\)", r"tl.sum(\1, 1)"),
    _replaced("lost partial sum", r"rows < strips\)", r"rows < strips - 1)"),
    _replaced("mask of a long row dropped", r"^( +sum_v\d+ \+= )tl\.where\(mask, (.*), 0\.0\)$", r"\1\2"),
)


# ---------------------------------------------------------------------------------------------------- matrix products' text
def _bias_twice(text: str) -> str:
    for name in re.findall(r"^    (a\d+) = .*tl\.load\(\w+ \+ columns,", text, flags=re.MULTILINE):
        text = re.sub(rf"^(    v\d+ = .*)\b{name}\b", rf"\1({name} + {name})", text, count=1, flags=re.MULTILINE)
    return text


def _other_gradient(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The gradient of GELU is computed as that of SiLU, and those of ReLU and sigmoid as that of tanh."""
    make = engine._kernel
    others = {"gelu_grad": "silu_grad", "relu_grad": "tanh_grad", "sigmoid_grad": "tanh_grad"}

    def faulty(fusion: Any, links: View, body: Any, written: Any) -> Any:
        changed = tuple(
            replace(op, definition=op_def(others[op.type]), attrs={}) if op.type in others else op for op in body
        )
        hits.extend(a.type for a, b in zip(body, changed, strict=True) if a is not b)
        return make(fusion, links, changed, written)

    patch.setattr(engine, "_kernel", faulty)


PRODUCT_FAULTS = (
    _replaced("rest of the depth unmasked", r"mask=inside\[(None, :|:, None)\], other=0", r"mask=inside[\1], other=1"),
    _text(
        "second operand transposed",
        lambda text: re.sub(
            r"right = b \+ \(begin \+ inner\)\[:, None\] \* \w+ \+ columns\[None, :\](.*?inner < (\w+) - .*?right \+= STEP) \* \w+",
            r"right = b + columns[None, :] * \2 + (begin + inner)[:, None]\1",
            text,
            flags=re.DOTALL,
        ),
    ),
    _text("bias added twice", _bias_twice),
    _replaced("accumulation lost", r"^(    # sum\b.*\n    v\d+ = )(?:a\d+ \+ total|total \+ a\d+)$", r"\1total"),
    _replaced("part of the depth dropped", r"range\(1, PARTS\)", "range(1, PARTS - 1)"),
    Fault("gradient of another activation", _other_gradient),
)
"""Faults of products with what follows them; seen by programs that are made of such (``epilogue_programs``)."""


CHUNK_FAULT = _replaced(
    "sum over chunks lost", r"^(    # elementwise_add\b.*\n    v\d+ = )(?:a\d+ \+ total|total \+ a\d+)$", r"\1total"
)
"""A fault of losses in chunks of rows (``linear_loss_programs``): a product's kernel forgets the sum over the chunks before."""


# ---------------------------------------------------------------------------------------------------------- attention's text
def _scale_dropped(text: str) -> str:
    """The first op of the scores, a product with a number, is left out."""
    start = text.find("def scores(")
    end = text.find("@triton.jit", start) if start >= 0 else -1
    body = text[start:end]
    return text[:start] + re.sub(r"= s \* \d[\d.e-]*$", "= s * 1.0", body, count=1, flags=re.MULTILINE) + text[end:]


def _shifted_numbers(text: str) -> str:
    """The gradient draws the random numbers of the neighbouring places."""
    start = text.find("def weights_grad(")
    if start < 0:
        return text
    text, rest = text[:start], text[start:]
    return text + re.sub(r"(draws \+ \d+, .*?)(offsets|fours)(, turned)?\)", r"\1\2 + 4\3)", rest, count=1)


ATTENTION_FAULTS = (
    _replaced("last key masked", r"s = tl\.where\(\(columns < (\w+)\)", r"s = tl.where((columns < \1 - 1)"),
    _replaced("diagonal off by one", r"columns\[None, :\] <= rows\[:, None\]", "columns[None, :] < rows[:, None]"),
    _replaced(
        "block on the diagonal skipped", r"last = tl\.minimum\(top_row \+ ROWS \+ ", "last = tl.minimum(top_row + "
    ),
    _replaced("row without keys", r'tl\.where\(peak == float\("-inf"\), 0\.0, ([^)]*)\)', r"\1"),
    _replaced("factor of powers lost", r"p = exp_less(\w*)\(s, [\d.]+,", r"p = exp_less\1(s, 1.0,"),
    _text("scale dropped", _scale_dropped),
    _text("dropout of another position", _shifted_numbers),
    _replaced("gradient of queries added twice", r"key, for_queries\)", "key, for_queries + for_queries)"),
    _replaced("gradient of keys without its sums", r"d - sums\[:, None\]", "d"),
    _replaced(
        "largest score of one block",
        r"shrink = (?:tl\.exp\(top - shift\)|tl\.where\(top == .*)$",
        "shrink = tl.full(top.shape, 1.0, top.dtype)",
    ),
)
"""Faults of attentions; seen by programs that have one (``attention_programs``)."""


def caught(
    fault: Fault, patch: pytest.MonkeyPatch, recipe: Callable[[int, str], testing.Recipe], switch: str, most: int
) -> int | None:
    """Returns the first of so many numbered programs with gradients that shows a planted fault; ``None`` if none does."""
    hits: list[str] = []
    fault.plant(patch, hits)
    try:
        for number in range(most):
            seen = len(hits)
            given = recipe(number, "gradients")
            try:
                testing.assert_equivalent(given, only(switch), shrink=False)
            except testing.EquivalenceError:
                assert len(hits) > seen
                return number
        return None
    finally:
        patch.undo()
        assert hits, f"'{fault.name}' was planted and never took effect"
