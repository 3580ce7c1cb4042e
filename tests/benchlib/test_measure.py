"""How peers are timed: in turns, in random order, long enough; on a clock that is a number."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.benchlib.fakes import FakeTimer
from tstatic.benchlib import timers
from tstatic.benchlib.measure import TRIES, Setting, measure
from tstatic.benchlib.timers import CpuTimer, CudaTimer, sets_for
from tstatic.errors import DeviceError


def runs(*names: str) -> dict[str, Any]:
    return {name: [lambda name=name: name] for name in names}


def test_every_turn_times_every_peer_once_in_another_order() -> None:
    peers = runs("a", "b", "c")
    timer = FakeTimer(calls=False)
    found = measure(peers, timer, Setting(repeats=20, seconds=1e-4), random.Random(1))
    assert {name: len(one.seconds) for name, one in found.items()} == dict.fromkeys("abc", 20)
    names = {one[0]: name for name, one in peers.items()}
    # Each is run once before it counts; calibration comes before the turns.
    timed = [names[run] for run, _ in timer.order[-2 * 3 * 20 :: 2]]
    turns = [tuple(timed[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) == 6


@pytest.mark.parametrize("cost", [1e-7, 3e-6, 1e-3, 0.5])
def test_a_sample_is_long_enough_and_not_much_longer(cost: float) -> None:
    found = measure(runs("a"), FakeTimer(lambda run: cost, calls=False), Setting(11, 2e-3), random.Random(0))["a"]
    assert found.inner * cost >= 2e-3 * 0.999
    assert found.inner == 1 or found.inner * cost <= 2.1e-3
    assert found.seconds == pytest.approx([cost] * 11)


def test_peers_that_take_about_the_same_have_samples_of_equally_many_runs() -> None:
    peers = runs("slow", "a", "b", "fast")
    costs = dict(zip((one[0] for one in peers.values()), (1e-3, 1.1e-4, 1e-4, 1e-5), strict=True))
    disturbed = random.Random(1)

    def cost(run: Any) -> float:
        return costs[run] * (4.0 if disturbed.random() < 0.2 else 1.0)

    found = measure(peers, FakeTimer(cost, calls=False), Setting(11, 1e-3), random.Random(0))
    assert found["a"].inner == found["b"].inner
    assert found["slow"].inner < found["a"].inner < found["fast"].inner


def test_rows_of_slow_runs_get_fewer_turns() -> None:
    timer = FakeTimer(lambda run: 2.0, calls=False)
    assert len(measure(runs("a"), timer, Setting(repeats=50, most=10.0), random.Random(0))["a"].seconds) == 11
    assert len(measure(runs("a", "b"), timer, Setting(repeats=50, most=10.0), random.Random(0))["a"].seconds) == 8
    assert len(measure(runs("a"), FakeTimer(lambda run: 99.0), Setting(), random.Random(0))["a"].seconds) == 1


def test_long_runs_are_not_repeated_for_the_caches_sake() -> None:
    calls = {}
    for cost in (0.01, 0.1):
        timer = FakeTimer(lambda run, cost=cost: cost, calls=False)
        measure(runs("a"), timer, Setting(11, 1e-3), random.Random(0))
        calls[cost] = len(timer.order)
    assert calls[0.01] - calls[0.1] == 11 + TRIES


def test_sets_of_inputs_take_turns() -> None:
    done: list[int] = []
    timer = FakeTimer()
    timer.seconds([lambda: done.append(0), lambda: done.append(1)], 5)
    assert done == [0, 1, 0, 1, 0]
    assert sets_for(timer, 1000) == 1
    timer.cache_bytes = 1 << 20
    assert [sets_for(timer, n) for n in (1 << 30, 1 << 18, 1)] == [1, 4, 16]


def test_the_cpu_is_timed_by_its_clock() -> None:
    ticks = iter(range(100))
    timer = CpuTimer(1, clock=lambda: float(next(ticks)), sleep=lambda seconds: None)
    done: list[int] = []
    assert timer.seconds([lambda: done.append(1)], 3) == 1.0
    assert len(done) == 3


class _Event:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self) -> None:
        self.log.append("event")

    def elapsed_time(self, other: Any) -> float:
        return 8.0


def test_a_gpu_is_timed_by_events_around_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    log: list[str] = []
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "Event", lambda enable_timing: _Event(log))
    monkeypatch.setattr(cuda, "synchronize", lambda: log.append("wait"))
    properties = type("P", (), {"L2_cache_size": 1 << 20, "name": "chip", "major": 9, "minor": 0, "multi_processor_count": 4,
                                "total_memory": 1})()  # fmt: skip
    monkeypatch.setattr(cuda, "get_device_properties", lambda index: properties)
    timer = CudaTimer()
    assert timer.seconds([lambda: log.append("run")], 2) == 0.008
    assert log == ["event", "run", "run", "event", "wait"]
    assert timer.cache_bytes == 4 << 20
    assert timer.facts()["name"] == "chip"
    assert repr(timer.place()) == "Place(gpu:0)"


def test_without_a_gpu_it_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(timers.machine, "gpu_query", lambda: "nvidia-smi is not there")
    with pytest.raises(DeviceError, match="no GPU") as caught:
        CudaTimer()
    assert "nvidia-smi is not there" in str(caught.value)
    assert torch.__version__ in str(caught.value)
