"""Each example gives the losses of a torch program with the same parameters, batches and noise."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.examples.twins import copy_parameters

TWINS = sorted(path.stem for path in (Path(__file__).parent / "twins").glob("[a-z]*.py"))
STEPS = 50


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch's threads wait by spinning, which takes long where other tests run."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", TWINS)
def test_fifty_steps_follow_the_torch_twin(name: str) -> None:
    for package in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(package)
    twin = importlib.import_module(f"tests.examples.twins.{name}")
    paddle.seed(getattr(twin, "SEED", 1))  # a twin with relu chooses one
    ours, theirs = twin.losses(STEPS)
    assert len(ours) == len(theirs) >= STEPS
    assert np.all(np.isfinite(ours))
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-4)
    # The course of a training, no constant: what is compared says something.
    assert np.ptp(ours) > 0.05


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("one_thread")
def test_a_twin_with_another_parameter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = importlib.import_module("tests.examples.twins.deepfm")

    def changed(program: Any, module: Any) -> None:
        copy_parameters(program, module)
        next(module.last.parameters()).data += 0.1  # of all units: the first one may be idle

    monkeypatch.setattr(twin, "copy_parameters", changed)
    ours, theirs = twin.losses(5)
    assert not np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
