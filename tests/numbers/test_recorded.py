"""Results and gradients against those that Paddle 2.6.2 recorded (``.venv-paddle/bin/python -m tests.numbers.record``)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.numbers import described
from tests.numbers.record import RECORDED

PADDLE: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mine() -> dict[str, Any]:
    return described.facts(paddle)


def test_the_same_things_are_recorded(mine: dict[str, Any]) -> None:
    assert sorted(mine) == sorted(PADDLE)


@pytest.mark.parametrize("name", PADDLE)
def test_results_and_gradients_are_paddles(name: str, mine: dict[str, Any]) -> None:
    assert len(mine[name]) == len(PADDLE[name])
    for got, want in zip(mine[name], PADDLE[name], strict=True):
        assert (got["dtype"], got["shape"]) == (want["dtype"], want["shape"])
        np.testing.assert_allclose(got["values"], want["values"], rtol=2e-4, atol=2e-5)
