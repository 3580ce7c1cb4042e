"""The blocks of the state's weights: as near to float64 as one product for all columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.tuned import recurrent
from tstatic.tuned._common import make


def _run(kind: recurrent.Recurrence, batch: int, width: int, dtype: Any, reverse: bool) -> list[Any]:
    steps, inputs, columns = 4, 5, kind.gates * width
    rng = np.random.default_rng(0)

    def values(*shape: int) -> Any:
        return (rng.normal(size=shape) * 0.1).astype("float32").astype(dtype)

    states = 2 if kind.has_cell else 1
    x, initial = values(steps, batch, inputs), [values(batch, width) for _ in range(states)]
    weights, biases = [values(columns, inputs), values(columns, width)], [values(columns), values(columns)]
    dout, dlast = values(steps, batch, width), [values(batch, width) for _ in range(states)]
    length = np.arange(batch) % (steps + 1)
    out, last = np.empty_like(dout), [np.empty_like(one) for one in initial]
    gates = np.empty((steps + kind.has_cell, batch, kind.saved * width), dtype) if kind.saved else None
    sizes = (kind, steps, batch, inputs, width, np.dtype(dtype))
    scratch = make(recurrent.forward_scratch(*sizes))
    recurrent.forward(kind, x, initial, weights, biases, length, out, last, gates, reverse, scratch)
    found = [np.empty_like(one) for one in (x, *initial, *weights, *biases)]
    recurrent.backward(
        kind, x, initial, weights, length, out, gates, dout, dlast, found[0], found[1 : 1 + states],
        found[1 + states : 3 + states], found[3 + states :], reverse, make(recurrent.backward_scratch(*sizes)),
    )  # fmt: skip
    return [out, *last, *found]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("batch", "width"), [(3, 128), (16, 128), (32, 256)])
@pytest.mark.parametrize("kind", [recurrent.LSTM, recurrent.GRU, recurrent.SIMPLE], ids=["lstm", "gru", "simple"])
def test_blocks_are_as_exact_as_one_product(
    kind: recurrent.Recurrence, batch: int, width: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recurrent.forward_scratch(kind, 4, batch, 5, width, np.dtype("float32"))[1][0][0] > 1
    blocks = _run(kind, batch, width, "float32", reverse)
    monkeypatch.setattr(recurrent, "BLOCK_ROWS", 0)
    assert recurrent.forward_scratch(kind, 4, batch, 5, width, np.dtype("float32"))[1][0][0] == 1
    whole, exact = _run(kind, batch, width, "float32", reverse), _run(kind, batch, width, "float64", reverse)
    for one, other, true in zip(blocks, whole, exact, strict=True):
        # The mean error, as the largest one of a few thousand depends on luck: both orders of the sums give 6 to 9 ulp there.
        ours, theirs = (float(np.sqrt(np.mean(np.square(found - true)))) for found in (one, other))
        assert ours <= 1.3 * theirs + 0.1 * np.spacing(np.float32(np.abs(true).max()))
