"""Calls on label sequences answer what Paddle 1.8.5 and 2.6.2 answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.structured import described, modern
from tstatic import fluid

FLUID, PADDLE = (json.loads(Path(__file__).with_name(name).read_text()) for name in ("fluid.json", "paddle.json"))


def same(found: Any, recorded: Any, where: str) -> None:
    """Compares lists of the same structure: whole numbers are equal, others within float32's rounding."""
    assert np.shape(found) == np.shape(recorded), where
    np.testing.assert_allclose(found, recorded, rtol=2e-5, atol=2e-6, err_msg=where)


@pytest.mark.parametrize(
    "case", [*described.PADDED, *described.LOD, *described.DECODED], ids=lambda case: case.__name__
)
def test_sequences_answer_what_fluid_answers(case: Callable[[Any], Any]) -> None:
    compare(case(fluid), FLUID[case.__name__], case.__name__)


def compare(found: Any, recorded: Any, where: str) -> None:
    """Compares the results of one case: their values, then the lengths of their sequences."""
    if found and isinstance(found[0][0], list) and len(found[0]) != 2:
        for i, (mine, theirs) in enumerate(zip(found, recorded, strict=True)):
            compare(mine, theirs, f"{where}[{i}]")
        return
    for i, ((value, lengths), (wanted, wanted_lengths)) in enumerate(zip(found, recorded, strict=True)):
        same(value, wanted, f"{where}, result {i}")
        assert lengths == wanted_lengths, f"{where}, result {i}"


@pytest.mark.parametrize("case", modern.CASES, ids=lambda case: case.__name__)
def test_padded_sequences_answer_what_paddle_answers(case: Callable[[Any], Any]) -> None:
    for i, ((shape, values), (wanted_shape, wanted)) in enumerate(
        zip(case(paddle), PADDLE[case.__name__], strict=True)
    ):
        assert shape == wanted_shape, f"result {i}"
        same(values, wanted, f"{case.__name__}, result {i}")
