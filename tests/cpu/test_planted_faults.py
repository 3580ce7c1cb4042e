"""Faults planted in runs on the fake device are all found: by other bits than the CPU's, or by an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_fake_device import Doubled, collected, fake, state
from tests.helpers import device_faults as faults
from tstatic import devices, static
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.fake import FakeDevice
from tstatic.errors import TstaticError

SEEDS = 12

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares the CPU with the fake device"
)


def feed_of(step: int) -> dict[str, Any]:
    return {n: np.random.default_rng([step, i]).normal(size=(4, 6)).astype(np.float32) for i, n in enumerate("xy")}


def build() -> tuple[static.Program, static.Program, list[Any]]:
    """Two branches of two feeds, whose sum is the loss; ops of several streams, with scratch memory and a norm."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, y = (static.data(n, [None, 6]) for n in "xy")
        a = static.nn.batch_norm(static.nn.fc(x, 8, activation="gelu"))
        b = paddle.nn.functional.softmax(static.nn.fc(y, 8, activation="tanh"))
        c = static.nn.fc(a * b, 6)
        loss = paddle.mean(paddle.square(c - x))
        paddle.optimizer.Adam(0.1).minimize(loss)
    main.random_seed = startup.random_seed = 3
    return main, startup, [loss, c]


def trained(number: int | None) -> list[Any]:
    """Two steps, one on the CPU, and one more; ``None``: all on the CPU."""
    main, startup, fetches = build()
    with static.scope_guard(static.Scope()):
        exe = static.Executor("cpu")
        exe.run(startup)
        found = []
        for step, late in enumerate((True, True, False, True)):
            with fake(number) if late and number is not None else contextlib.nullcontext():
                found += exe.run(main, feed=feed_of(step), fetch_list=fetches)
        return [*found, *state(static.global_scope()).values()]


def parallel(number: int | None) -> list[Any]:
    """Two steps on two places."""
    main, startup, fetches = build()
    with fake(number) if number is not None else contextlib.nullcontext(), static.scope_guard(static.Scope()):
        exe = static.Executor("cpu")
        exe.run(startup)
        both = static.CompiledProgram(main).with_data_parallel(fetches[0].name, places=["cpu"] * 2)
        found = []
        for step in range(2):
            found += exe.run(both, feed=feed_of(step), fetch_list=fetches)
        return [*found, *state(static.global_scope()).values()]


def exchanged(number: int | None) -> list[Any]:
    """A sum over two places of two processes."""
    return collected("small sum", devices.HOST if number is None else FakeDevice(number), Doubled())[0]


Scenario = Callable[[int | None], list[Any]]

FAULTS: dict[str, tuple[faults.Plant, Scenario]] = {
    "a missing wait between streams": (faults.missing_wait, trained),
    "early reuse of an arena's slot": (faults.early_reuse, trained),
    "scratch memory of two streams": (faults.unordered_scratch, trained),
    "the host reads device memory": (faults.host_read, trained),
    "a read before the copy finished": (faults.read_before_copy, exchanged),
    "a pinned buffer overwritten before its copy": (faults.pinned_overwritten, trained),
    "an event recorded too early": (faults.early_event, trained),
    "a replayed graph with a stale pointer": (faults.stale_pointer, trained),
    "a collective without wait": (faults.collective_without_wait, parallel),
    "freed memory is used": (faults.freed_memory, trained),
    "a fetch before its producer": (faults.early_fetch, trained),
    "a feed that is not waited for": (faults.feed_not_awaited, trained),
}


def differs(plain: list[Any], scenario: Scenario, number: int) -> bool:
    try:
        late = scenario(number)
    except (TstaticError, QueuedWorkError):
        return True
    return any(a.tobytes() != b.tobytes() for a, b in zip(plain, late, strict=True))


@pytest.mark.parametrize("scenario", [trained, parallel, exchanged], ids=lambda f: f.__name__)
def test_runs_without_a_fault_give_the_cpus_bits(scenario: Scenario) -> None:
    plain = scenario(None)
    assert [n for n in range(SEEDS) if differs(plain, scenario, n)] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scenario = FAULTS[name]
    plain = scenario(None)
    plant(monkeypatch)
    assert any(differs(plain, scenario, n) for n in range(SEEDS)), f"{plant.__doc__} No order of {SEEDS} shows it."
