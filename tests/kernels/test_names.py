"""Sizes and strides in kernels have names, which change nothing of what is compiled."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

import pytest

from tests.kernels import environments, golden, registry
from tests.kernels.environments import ALL
from tstatic.chips.aot import Source, compile_all
from tstatic.fusion.codegen.text.emit import prelude_functions

BARE: dict[str, str] = {
    # A formula's numbers are the user's, or the definition's: thresholds of dropout, classes, an index that is left out.
    r"^v\d+ = ": "numbers of formulas, in lines that compute values",
    # The docstring says what the table holds, and the line is named by the place.
    r"^d(\d+) = _loaded\(draws \+ \1,": "place of a number in the table of draws",
    # Filters are written out, place by place.
    r"\bTAPS \+ \d+\b": "number of a place of a filter",
    r"\((down|right)( \* STEP_\w+)? [+-] \d+\)": "how far a place of a filter is from its middle",
    # The exponent of a float32: 8 bits behind 23 of fraction, 127 for 1.
    r" >> 23\) & 255\) - 30, 127\)| << 23\)| - 127\)": "bits of a float32",
}
"""Lines in which a number above 2 stands bare: pattern -> why."""


def bare_lines(text: str) -> Iterator[str]:
    """The lines of a module's own functions with whole numbers above 2 that have no name."""
    lines = text.splitlines()
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef) or function.name in prelude_functions():
            continue
        named = {id(n.value) for n in function.body if isinstance(n, ast.AnnAssign)}
        for node in ast.walk(function):
            # 0, 1 and 2 are axes, borders and halves; no size is told by them.
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2 and id(node) not in named:
                yield lines[node.lineno - 1].strip()


def test_numbers_have_names() -> None:
    sources = {source.text: name for name, _, source in registry.kernels(slow=ALL)}
    found = {line: name for text, name in sources.items() for line in bare_lines(text)}
    assert [(n, line) for line, n in found.items() if not any(re.search(p, line) for p in BARE)] == []
    if ALL:
        assert [p for p in BARE if not any(re.search(p, line) for line in found)] == []


def test_a_bare_number_is_found() -> None:
    body = "    SIZE: tl.constexpr = 32  # size of an axis\n    a0 = tl.load(x0 + offsets % {})\n    # 48 comments"
    text = f"@triton.jit\ndef kernel(x0, offsets):\n{body}\n"
    assert list(bare_lines(text.format("SIZE"))) == []
    assert list(bare_lines(text.format("32"))) == ["a0 = tl.load(x0 + offsets % 32)"]
    assert list(bare_lines(text.replace("def kernel", "def _maximum").format("32"))) == []


SAMPLES = (
    "elewise_add_act/relu-channels-float32/0.kernel",
    "elewise_add_act/relu-channels-float32/1.kernel",
    "compiler/layer_norm-768-float32/1.kernel",
    "bn_act/train-256x64x56x56-float32/0.statistics",
    "adamw/clip-bfloat16/1.kernel",
    "relu_depthwise_conv/k3s2-128x56x56x144-float32/0.kernel",
    "gemm/linear-768-bfloat16@sm_90.go_on",
    "gemm/linear-768-bfloat16@sm_90~generated.kernel",
)


def numbered(source: Source) -> Source:
    """A source with numbers in the place of their names."""
    return dataclasses.replace(source, text=ast.unparse(golden.in_numbers(source.text)))


def instructions(ptx: str) -> list[str]:
    """The lines of PTX, but for those that say where in the source they come from."""
    code = ptx.split(".section")[0].splitlines()
    kept = [
        line.split("//")[0].rstrip() for line in code if not re.match(r"\s*(\.loc|\.file|//|\$L__tmp|\$L__func)", line)
    ]
    return [line for line in kept if line]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["pinned", "3.6"])
def test_a_name_changes_no_code(which: str) -> None:
    python = environments.python(which)
    named = {name: source for name, _, source in registry.kernels(slow=False) if name in SAMPLES}
    plain = {name: numbered(source) for name, source in named.items()}
    assert len(named) >= 6
    assert all("constexpr = " in named[n].text and "constexpr = " not in plain[n].text for n in named)
    assert {n: golden.digest(s) for n, s in named.items()} == {n: golden.digest(s) for n, s in plain.items()}
    if not ALL:
        # A name is taken out before anything is made of it, whatever the kernel does.
        named, plain = ({n: some[n] for n in SAMPLES[::3] if n in some} for some in (named, plain))
    chips = dict.fromkeys(named, (90,))
    first, second = ({r.name: r for r in compile_all(some, chips, python, ptx=True)} for some in (named, plain))
    for name in named:
        assert not first[name].error, first[name].error
        assert first[name].figures() == second[name].figures(), name
        code, other = (instructions(some[name].ptx) for some in (first, second))
        assert len(code) > 20
        assert code == other, name
