"""The record of numpy calls: calls are taken apart, and only rows that lose are listed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.bench.scripts import script
from tstatic.ir.recording import Recording

passes: Any = script("passes")


def _two(x: Any, y: Any, *, by: float) -> None:
    np.multiply(x, by, y)
    np.add(y, x, y)


def _looks(x: Any, y: Any) -> None:
    y[...] = x if x.sum() > 0 else 0


def test_calls_are_taken_apart_where_they_look_at_no_values() -> None:
    x, y = np.ones(8, np.float32), np.empty(8, np.float32)
    for call in (
        (partial(_two, by=2.0), (x, y), {}),
        (Recording(_two, (x, y), {"by": 2.0}), (), {}),
        (_two, (x, y), {"by": 2.0}),
    ):
        found = list(passes.taken_apart(*call))
        assert [(function, known) for (function, _), known in found] == [(np.multiply, True), (np.add, True)]
        assert [passes.moved(args) for (_, args), _ in found] == [64, 96]
    (((function, args), known),) = passes.taken_apart(_looks, (x, [y]), {})
    assert (function, known, passes.moved(args)) == (_looks, False, 64)
    assert [known for _, known in passes.taken_apart(np.add, (x, x, y), {})] == [True]


def test_rows_that_lose_are_listed_slowest_first() -> None:
    def row(name: str, own: float, other: float | None) -> dict[str, Any]:
        entry = {"seconds": [other * (1 + i / 1000) for i in range(12)]} if other else {"state": "missing"}
        own_entry = {"seconds": [own * (1 + i / 1000) for i in range(12)]}
        return {"name": name, "peers": {"tstatic": own_entry, "torch": entry}}

    rows = [row("a", 1.3, 1.0), row("b", 1.1, 1.0), row("c", 3.0, 1.0), row("d", 1.0, None)]
    assert list(passes.losing({"rows": rows}, "torch")) == ["c", "a"]
