"""Generated kernels between torch's operators, as on a GPU: the reference's numbers by the tolerance rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

from tests.helpers.drawn import PLAIN
from tests.helpers.fusion_programs import CASES, Case, build, run
from tests.helpers.gpu import trained
from tests.helpers.soak import SOAK
from tstatic import devices, static, testing
from tstatic.devices.torch.device import TorchDevice
from tstatic.places import CPUPlace
from tstatic.testing.runner import baseline_of, everything_on, trial_of_recipe

PROGRAMS = 200 if SOAK else 6
SWITCHES = {"fuse_elewise_add_act_ops": True, "enable_auto_fusion": True, "fuse_all_optimizer_ops": True}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was bound as a kernel on the device."""
    found: list[str] = []
    right = TorchDevice.launch

    def launch(self: TorchDevice, module: Any, *rest: Any) -> Any:
        found.append(module.__name__)
        return right(self, module, *rest)

    monkeypatch.setattr(TorchDevice, "launch", launch)
    return found


@pytest.mark.parametrize("case", CASES[1::6], ids=lambda c: c.name)
def test_fused_programs(case: Case, launched: list[str]) -> None:
    plain, _ = run(build(case), **SWITCHES)
    with devices.use("torch+interpret"):
        found, compiled = run(build(case), **SWITCHES)
    assert len(launched) >= len(compiled.plan.kernels) > 0
    for a, b in zip(plain, found, strict=True):
        np.testing.assert_allclose(np.asarray(b, np.float64), np.asarray(a, np.float64), rtol=1e-5, atol=1e-6)


def test_a_net_trains_as_on_numpy() -> None:
    plain = trained(CPUPlace(), steps=2)
    with devices.use("torch+interpret"):
        found = trained(CPUPlace(), steps=2)
    for a, b in zip(plain, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-6)


def test_drawn_programs(launched: list[str]) -> None:
    plain = baseline_of(static.BuildStrategy())

    @seed(31)
    @settings(max_examples=PROGRAMS, **PLAIN)
    @given(recipe=testing.programs(max_ops=10, optimizer=True))
    def check(recipe: testing.Recipe) -> None:
        trial, feeds = trial_of_recipe(recipe, k=32.0)
        assert trial.compare(plain, feeds) is None
        with devices.use("torch+interpret"):
            failure = trial.compare(everything_on(), feeds)
        assert failure is None, f"{failure.variable}: {failure.difference or failure.error!r}"

    check()
    assert launched
