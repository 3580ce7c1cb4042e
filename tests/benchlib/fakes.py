"""A timer whose clock is a number: what a run takes is told, nothing waits, and noise comes from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tstatic.benchlib.timers import Roofs, Run
from tstatic.places import CPUPlace


class FakeTimer:
    """Advances a virtual clock by what each run is said to take.

    Args:
        cost: Run -> seconds; 1 ms for every run if ``None``. The run itself is called, too, if ``calls``.
    """

    device = "cpu"
    threads = 1
    pause = 0.0
    cache_bytes = 0

    def __init__(self, cost: Callable[[Run], float] | None = None, calls: bool = True) -> None:
        self.cost = cost or (lambda run: 1e-3)
        self.calls = calls
        self.now = 0.0
        self.order: list[tuple[Run, int]] = []

    def seconds(self, runs: list[Run], times: int) -> float:
        self.order.append((runs[0], times))
        start = self.now
        for number in range(min(times, 64)):
            run = runs[number % len(runs)]
            if self.calls:
                run()
            self.now += self.cost(run) * (times / min(times, 64))
        return self.now - start

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def place(self) -> Any:
        return CPUPlace()

    def facts(self) -> dict[str, Any]:
        return {"device": "cpu", "threads": 1}

    def roofs(self) -> Roofs:
        return Roofs(1e10, 1e11)


class Noise:
    """What a noisy machine makes of the times of runs: heavy tails, a drift that goes on for minutes, and steps of the clock.

    Args:
        seed: Of everything.
        true: Run -> seconds without noise.
        bias: Run -> factor that stays, such as where memory lies.
    """

    def __init__(self, seed: int, true: dict[Run, float], bias: dict[Run, float] | None = None) -> None:
        self.random = random.Random(seed)
        self.true = true
        self.bias = bias or {}
        self.drift = 1.0

    def __call__(self, run: Run) -> float:
        draw = self.random
        self.drift *= 1 + draw.gauss(0, 0.01)
        if draw.random() < 0.02:
            self.drift = draw.choice((1.0, 1.3, 2.0))  # another program begins or ends
        heavy = draw.paretovariate(1.5) if draw.random() < 0.15 else 1.0
        return self.true[run] * self.bias.get(run, 1.0) * self.drift * heavy * draw.lognormvariate(0, 0.05)
