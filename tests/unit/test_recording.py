"""Recorded numpy calls: later runs equal the function, and what calls alone cannot repeat is not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tstatic.ir import recording
from tstatic.ir.recording import LATE, Recording, record, recorded_late


def _sums(x: Any, out: Any, scratch: Any, scale: float = 2.0) -> None:
    """Views, a temporary array, ufuncs, reductions, copies, numbers, operations in place."""
    (work,) = scratch
    turned = np.empty((x.shape[1], x.shape[0]), x.dtype)
    np.copyto(turned, x.T)
    np.multiply(turned.T, np.asarray(scale, x.dtype), work)
    work[0] += 1
    work[1:, 0] = 3
    np.add.reduce(work, axis=0, out=out[0])
    np.matmul(x, turned, out=out[1:, : len(x)])
    out[1:, len(x) :].fill(0)
    out -= 1


def test_later_runs_equal_the_function() -> None:
    rng = np.random.default_rng(0)
    x, out, work = np.empty((3, 4), "float32"), np.empty((4, 4), "float32"), np.empty((3, 4), "float32")
    run = Recording(_sums, (x, out), {"scratch": (work,), "scale": 3.0})
    assert record(_sums, (x, out), {"scratch": (work,)}) is not None
    for _ in range(4):
        x[...] = rng.normal(size=x.shape)
        wanted = np.empty_like(out)
        _sums(x, wanted, (np.empty_like(work),), 3.0)
        run()
        np.testing.assert_array_equal(out, wanted)


def test_the_function_is_not_called_again() -> None:
    count = 0

    def function(x: Any) -> None:
        nonlocal count
        count += 1
        np.add(x, 1, x)

    x = np.zeros(3)
    run = Recording(function, (x,), {})
    for _ in range(5):
        run()
    # In the first two runs, and once to record.
    assert count == 3
    np.testing.assert_array_equal(x, [5, 5, 5])


def _grow(x: Any, out: Any) -> None:
    temporary = np.zeros_like(np.ndarray(x.shape))
    np.copyto(temporary[:1], x[:1])
    np.add(temporary, x, temporary)
    np.copyto(out, temporary)


def _stale(x: Any, out: Any) -> None:
    hidden = np.ndarray(x.shape, x.dtype, x)
    temporary = np.empty(x.shape)
    np.add(hidden, 1, temporary)
    np.copyto(out, temporary)


def _past_the_tape(x: Any, out: Any) -> None:
    np.add(np.ndarray(x.shape, x.dtype, x), 1, np.ndarray(out.shape, out.dtype, out))


REFUSED: dict[str, Callable[[Any, Any], None]] = {
    "a look at a value": lambda x, out: np.add(x, 1 if x[0] > 0 else 2, out),
    "a truth value": lambda x, out: np.add(x, 1, out) if x[:1] else None,
    "a number": lambda x, out: np.add(x, float(x[:1]), out),
    "an item": lambda x, out: np.add(x, x.item(0), out),
    "a method": lambda x, out: np.copyto(out, x.cumsum()),
    "an array of numpy's": lambda x, out: np.copyto(out, x * 2),
    "a function without out": lambda x, out: np.copyto(out, np.sort(x)),
    "values at places": lambda x, out: np.copyto(out, x[[2, 1, 0]]),
    "another option": lambda x, out: np.add(x, 1, out, where=[True, False, True]),
    "an array of its own that is read first": _grow,
    "an array of its own that no call has written": _stale,
    "a write past the tape": _past_the_tape,
    "a list": lambda x, out: np.add(x, [1.0, 2.0, 3.0], out),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_calls_cannot_repeat_is_not_recorded(what: str) -> None:
    x, out = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    assert record(REFUSED[what], (x, out), {}) is None
    # Nothing was computed on the way.
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(out, 0)


def test_a_reshape_that_copies_is_not_recorded() -> None:
    def function(x: Any, out: Any) -> None:
        np.copyto(out, x.T.reshape(4))

    assert record(function, (np.zeros((1, 4)), np.zeros(4)), {}) is not None
    assert record(function, (np.zeros((2, 2)), np.zeros(4)), {}) is None


def test_errors_are_the_functions_own() -> None:
    def function(x: Any) -> None:
        np.add(x, np.ones(4), x)

    run = Recording(function, (np.zeros(3),), {})
    for _ in range(3):
        with pytest.raises(ValueError, match="broadcast"):
            run()


def test_long_lists_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_CALLS", 3)

    def function(x: Any, count: int) -> None:
        for _ in range(count):
            np.add(x, 1, x)

    assert record(function, (np.zeros(3), 3), {}) is not None
    assert record(function, (np.zeros(3), 4), {}) is None


def test_large_arrays_of_its_own_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> None:
        copy = np.empty(x.shape)
        np.copyto(copy, x)
        np.add(copy, copy, x)

    assert record(function, (np.zeros(8),), {}) is not None
    monkeypatch.setattr(recording, "MOST_BYTES", 63)
    assert record(function, (np.zeros(8),), {}) is None


def test_sizes_that_may_not_come_again_are_recorded_late() -> None:
    ran: list[int] = []

    def function(x: np.ndarray, out: np.ndarray) -> None:
        ran.append(1)
        np.add(x, 1.0, out=out)

    x, out = np.ones(3), np.empty(3)
    with recorded_late():
        late = Recording(function, (x, out), {})
    soon = Recording(function, (x, out), {})
    counts = []
    for _ in range(LATE + 4):
        out[...] = 0
        late()
        np.testing.assert_array_equal(out, [2.0, 2.0, 2.0])
        counts.append(len(ran))
    # The run that records calls the function twice.
    assert counts[: LATE + 1] == [*range(1, LATE + 1), LATE + 2]
    assert counts[-1] == LATE + 2
    ran.clear()
    for _ in range(5):
        soon()
    assert len(ran) == 3
