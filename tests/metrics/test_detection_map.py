"""DetectionMAP gives the numbers that Paddle 1.8.5 gave, batch by batch and over all batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.metrics.record_detection_map import RECORDED, run
from tstatic import fluid
from tstatic.errors import IndexRangeError, ProgramError

ROWS = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row["case"].values())))
def test_numbers_are_those_of_paddle(row: dict[str, Any]) -> None:
    found = run(row["case"], row["batches"], fluid)
    np.testing.assert_allclose(found, row["answers"], rtol=1e-5, atol=1e-6)


def test_reset_forgets_the_batches() -> None:
    case = ROWS[0]["case"]
    first, second = ROWS[0]["batches"]
    _, (mean, both) = run(case, [first, second], fluid)
    _, (_, alone) = run(case, [first, second], fluid, resets=(0, 1))
    assert mean == alone != both


def test_wrong_arguments_and_classes() -> None:
    case, batches = ROWS[0]["case"], ROWS[0]["batches"]
    with pytest.raises(ProgramError, match="ap_version"):
        run({**case, "version": "voc"}, batches, fluid)
    with pytest.raises(IndexRangeError, match="Label"):
        run({**case, "classes": 2}, batches, fluid)
