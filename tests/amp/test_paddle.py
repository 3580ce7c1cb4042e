"""What Paddle 2.6.2 does in mixed precision (``recorded.json``, made by ``record.py``), and chosen differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
from tests.amp import described
from tstatic import static

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
FACTS = {"scales": described.scales, "errors": described.errors}


def test_it_was_recorded_with_paddle_2_6_2() -> None:
    assert RECORDED["versions"]["paddle"] == "2.6.2"


@pytest.mark.parametrize("fact", FACTS)
def test_facts(fact: str) -> None:
    assert FACTS[fact](paddle) == RECORDED[fact]


def test_signatures() -> None:
    # Types have names here, and a default that all calls would share is None.
    named = {"<VarType.FP16: 4>": "'float16'", "{}": "None"}
    recorded = {
        path: [[p[0], *(named.get(d, d) for d in p[1:])] for p in given]
        for path, given in RECORDED["signatures"].items()
    }
    assert described.signatures(paddle) == recorded


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("how", described.HOW)
@pytest.mark.parametrize("program", described.PROGRAMS)
def test_every_op_runs_in_the_type_that_paddle_gives_it(program: str, how: str, dtype: str) -> None:
    (_, casts), *ops = RECORDED["forward"][program][how][dtype]
    assert described.forward(paddle, program, how, dtype) == [["casts", casts - SAVED.get((program, how), 0)], *ops]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_the_state_has_paddle_s_names(level: str) -> None:
    assert described.roles(paddle, level) == RECORDED["state"][level]


def test_lists_hold_what_paddle_s_hold() -> None:
    lists = static.amp.fp16_lists
    every = static.amp.AutoMixedPrecisionLists().all_list
    assert lists.white_list == every.intersection(RECORDED["white"])
    assert lists.black_list >= every.intersection(RECORDED["black"])
    assert lists.gray_list >= every.intersection(RECORDED["gray"]) - set(RECORDED["black"]) - WITHOUT_INPUTS
    extra = static.amp.AutoMixedPrecisionLists().black_list - lists.black_list
    assert extra == every.intersection(RECORDED["extra black"])
    # More ops follow their inputs here: copies and activations whose kernels compute in float32 and round once.
    more = lists.gray_list - set(RECORDED["gray"])
    assert {"gelu", "squeeze2", "unsqueeze2", "expand_v2", "flatten_contiguous_range", "swish", "assign"} <= more
    assert not more & set(RECORDED["black"])


SAVED = {("mixed", "OD"): 1}
"""At OD Paddle converts the input of a cast that the user wrote, too."""
WITHOUT_INPUTS = {
    "fill_constant", "gaussian_random", "uniform_random", "uniform_random_batch_size_like", "c_allreduce_sum"
}  # fmt: skip
"""Gray in Paddle; nothing is ever converted for them, as they read no floats or state their type."""
