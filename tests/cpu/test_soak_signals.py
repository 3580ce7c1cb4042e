"""A sample of the soak of signals and forks, and that it sees what it is there to see."""

from __future__ import annotations

import random
import signal
from typing import Any

import numpy as np
import pytest

from tests.cpu import soak_signals
from tstatic.runtime.binding import Binding
from tstatic.runtime.commit import Commit

pytestmark = pytest.mark.skipif(not hasattr(signal, "alarm"), reason="this system has no such signals, or cannot fork")


# A signal may arrive in a callback of a weak reference: Python drops what its handler raises there, and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_steps_that_signals_and_forks_hit_leave_a_state_that_the_next_run_takes_or_refuses() -> None:
    assert soak_signals.soak(18, seed=3) == []


@pytest.mark.numpy_device
def test_the_soak_sees_state_that_is_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = soak_signals.Bench(2)
    write = Commit.write

    def half(self: Commit, pending: Any, bound: Binding) -> None:
        write(self, pending, bound)
        name = bench.main.all_parameters()[0].name
        np.asarray(bench.scope.array(name))[0, 0] += 1

    monkeypatch.setattr(Commit, "write", half)
    rng = random.Random(0)
    found = [soak_signals.signalled(bench, rng, signal.SIGINT, 0.001) for _ in range(3)]
    assert any("state is that of no step" in one or "is wrong after" in one for one in found), found
