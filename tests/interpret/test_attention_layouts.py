"""Attentions whose operands are behind splits and transposes: all packings are read in place and agree with the operators."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.attention_blocks import Block, drawn_block, layout_recipe, recipe
from tests.helpers.drawn import BY_NAME, made, only
from tests.helpers.patience import HANG
from tests.helpers.soak import SOAK, shards
from tests.interpret.faults import Fault, _replaced, _text, caught
from tstatic import testing

FUSION = BY_NAME["dot_product_attention"]
PROGRAMS = int(os.environ.get("TSTATIC_ATTENTION_LAYOUTS", "700" if SOAK else "14"))


def kind_of(number: int) -> str:
    """Most have all gradients, since those are written through strides; every tenth is trained."""
    return "training" if number % 10 == 9 else "forward" if number % 10 == 4 else "gradients"


@pytest.mark.parametrize("shard", shards(7, 2))
def test_drawn_programs_agree(shard: int) -> None:
    for number in range(shard * PROGRAMS // 7, (shard + 1) * PROGRAMS // 7):
        one = layout_recipe(number, kind_of(number))
        records = made(FUSION, one)
        assert len(records) == (1 if kind_of(number) == "forward" else 2), drawn_block(number)
        try:
            testing.assert_equivalent(one, only(FUSION.switch), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"program {number} ({drawn_block(number)}): {error}") from None


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["parts", "pair"])
def test_scripts_run_alone(packing: str, tmp_path: Path) -> None:
    """Both kernels, each in a process of its own; that of the gradient is given the result that belongs to its inputs."""
    block = Block(packing=packing, scale="query", rows=17, heads=2, size=5)
    for record, outputs in zip(
        made(FUSION, recipe(block, "gradients")), (2, 1 if packing == "parts" else 2), strict=True
    ):
        assert record.kernel is not None
        path = tmp_path / "kernel.py"
        path.write_text(record.kernel.text)
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"passed: {outputs} outputs" in done.stdout


def _strides_swapped(text: str) -> str:
    """The strides of batch and head change places."""
    return re.sub(r"(\w+ // \w+) \* (\w+) \+ (\w+ % \w+) \* (\w+)", r"\1 * \4 + \3 * \2", text)


FAULTS = (
    _text("strides of batch and head swapped", _strides_swapped),
    _replaced("packed offset wrong", r"tl\.load\(k \+ K_START \+ ", "tl.load(k + "),
    _replaced("offset of a gradient wrong", r"tl\.store\(dv \+ DV_START \+ ", "tl.store(dv + "),
    _replaced(
        "rows of the result side by side", r"tl\.store\(out \+ (.*rows\[:, None\]) \* OUT_ROW", r"tl.store(out + \1 * 1"
    ),
    _replaced("factor dropped", r"return wide\(a\) \* b$", "return wide(a)"),
)


def _recipe(number: int, kind: str) -> testing.Recipe:
    block = drawn_block(number, batch=2, heads=2, scale="query", dtype="float32", dropout=(0.0, 0.0), rows=17)
    return recipe(replace(block, packing=("parts", "pair", "heads")[number % 3]), kind)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_planted_faults_are_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(fault, monkeypatch, _recipe, FUSION.switch, 6) is not None
