"""The digits example: broken off and resumed, and trained longer, it gives what one run does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tstatic import static

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    """The script as a module."""
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("digits_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(digits: ModuleType, out: Path, epochs: int, again: bool) -> list[tuple[float, float]]:
    """Loss and accuracy of every epoch of a run in a scope of its own, those before a resumption included."""
    seen: list[tuple[float, float]] = []
    with static.scope_guard(static.Scope()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "plot", lambda history, path: seen.extend(history))
        accuracy, reloaded = digits.train(epochs, "cpu", out, again)
    assert accuracy == reloaded == seen[-1][1]
    return seen


@pytest.mark.slow
def test_a_finished_run_is_trained_longer_as_if_in_one(digits: ModuleType, tmp_path: Path) -> None:
    once = trained(digits, tmp_path / "once", 4, False)
    first = trained(digits, tmp_path / "twice", 2, False)
    assert once[:2] == first
    assert trained(digits, tmp_path / "twice", 4, True) == once
    assert trained(digits, tmp_path / "twice", 3, True) == once, "all epochs are done"
    assert once[-1][1] > 0.9
    steps = {path.stem for path in (tmp_path / "twice" / "digits-checkpoints").iterdir()}
    assert {"epoch-00000003", "epoch-00000004"} <= steps
    assert len(steps) <= 3
    assert (tmp_path / "twice" / "digits.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_run_is_drawn(digits: ModuleType, tmp_path: Path) -> None:
    digits.plot([(2.0, 0.1), (0.5, 0.9)], tmp_path / "digits.png")
    assert (tmp_path / "digits.png").read_bytes()[:4] == b"\x89PNG"
