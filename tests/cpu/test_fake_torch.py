"""The fake device with torch's operators: the torch device's numbers in whatever order the work is done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

from tests.cpu import test_planted_faults as planted
from tests.cpu.test_fake_device import state, values_after
from tests.cpu.test_seeds import OWN, _changed_imports, _with_cpu
from tests.helpers import device_faults as faults
from tests.helpers.drawn import PLAIN
from tests.helpers.gpu import trained
from tests.helpers.soak import SOAK, shards
from tests.parallel.golden import ROWS, Training, net, strategy
from tests.parallel.test_golden import CASES
from tstatic import devices, nn, static, testing
from tstatic.devices.fake.with_torch import DEVICE, FakeTorchDevice
from tstatic.errors import TstaticError
from tstatic.ir.frozen import FrozenOp
from tstatic.places import CPUPlace
from tstatic.testing.runner import baseline_of, everything_on, trial_of_recipe

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares the torch device with the fake one"
)

PROGRAMS = 2000 if SOAK else 16
SEEDS = 6


@contextlib.contextmanager
def late(number: int = 0) -> Iterator[FakeTorchDevice]:
    """Runs CPU places on the device, in the order that a number draws."""
    DEVICE.reseed(number)
    with devices.use("fake+torch"):
        yield DEVICE


def close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("shard", shards(4, 1))
def test_random_programs_give_the_references_numbers(shard: int) -> None:
    kinds: dict[str, Any] = [{}, {"backward": True}, {"optimizer": True}, {"special": True}][shard]
    plain = baseline_of(static.BuildStrategy())

    @seed(9000 + shard)
    @settings(max_examples=PROGRAMS // 4, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds))
    def run(recipe: testing.Recipe) -> None:
        # What two libraries' functions differ by is not the device's to answer for: a few units for each.
        trial, feeds = trial_of_recipe(recipe, k=32.0)
        assert trial.compare(plain, feeds) is None
        for number, chosen in enumerate((plain, everything_on())):
            with late(number):
                failure = trial.compare(chosen, feeds)
            assert failure is None, f"{failure.variable}: {failure.difference or failure.error!r}"

    run()


@pytest.mark.parametrize("number", range(2))
def test_a_net_trains_as_on_torch_in_any_order(number: int) -> None:
    with devices.use("torch"):
        expected = trained(CPUPlace())
    with late(number):
        close(trained(CPUPlace()), expected)


def test_ops_run_in_torch_or_on_the_host_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, bool] = {}
    right = FakeTorchDevice._form_of

    def spy(self: FakeTorchDevice, op: FrozenOp, given: Any) -> Any:
        found = right(self, op, given)
        chosen[op.type] = found is not None
        return found

    monkeypatch.setattr(FakeTorchDevice, "_form_of", spy)
    with late():
        trained(CPUPlace(), steps=1)
        assert all(chosen[t] for t in ("conv2d", "batch_norm_grad", "relu", "softmax_with_cross_entropy_grad"))
        assert not chosen.get("dropout"), "it draws numbers"
        x = static.data("x", [4, 3])
        explained = static.CompiledProgram(static.default_main_program()).explain([nn.functional.dropout(x, 0.5)])
    assert [one.op.type for one in explained.on_host] == ["dropout"]


@pytest.mark.parametrize("name", [*CASES][::2])
def test_golden_numbers(name: str) -> None:
    rows, switches, steps, losses, gradient, weights = CASES[name]
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    with late(1):
        training = Training(net(), build=strategy(**switches))
        for _ in range(steps):
            loss, grad, w = training.step(feed, ["w@GRAD", "w"])
    np.testing.assert_allclose(loss, losses, atol=1e-6)
    np.testing.assert_allclose(grad[:, 0], gradient, atol=1e-6)
    np.testing.assert_allclose(w[:, 0], weights * 2, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, code in OWN.items() if "exe.run" in code])
def test_samples_leave_torchs_numbers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2")
    code = _changed_imports(_with_cpu(OWN[name]))
    with devices.use("torch"):
        expected = values_after(code, name)
    with late(3):
        close(values_after(code, name), expected)


def steps_of(number: int | None) -> list[Any]:
    """Three steps of a net with several streams; ``None``: on the torch device."""
    main, startup, fetches = planted.build()
    with static.scope_guard(static.Scope()), devices.use("torch") if number is None else late(number):
        exe = static.Executor("cpu")
        exe.run(startup)
        found = [v for step in range(3) for v in exe.run(main, feed=planted.feed_of(step), fetch_list=fetches)]
        return [*found, *state(static.global_scope()).values()]


def differs(number: int) -> bool:
    try:
        late_values = steps_of(number)
    except TstaticError:
        return True
    return any(not np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(steps_of(None), late_values, strict=True))


@pytest.mark.parametrize(
    "fault", [None, faults.missing_wait, faults.early_fetch], ids=["none", "missing_wait", "early_fetch"]
)
def test_faults_and_only_those_are_found(fault: faults.Plant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault is not None:
        fault(monkeypatch)
    assert any(differs(n) for n in range(SEEDS)) == (fault is not None)
