"""The examples on the text of Python's library: short runs, broken-off runs, places, and precision."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tstatic import static

TEXT = {"batch": 8, "tokens": 12, "shortest": 4, "words": 300, "width": 16, "dropout": 0.0, "tested": 4}
SMALL: dict[str, dict[str, Any]] = {
    "text_lstm": TEXT,
    "text_transformer": {**TEXT, "heads": 2},
    "bert_mlm": {"batch": 8, "tokens": 12, "hidden": 2, "words": 300, "width": 16, "heads": 2, "tested": 4},
    "word2vec": {"batch": 32, "words": 300, "width": 8, "tested": 400},
}
NAMES = sorted(SMALL)

sys.path.append(str(Path(__file__).parents[2] / "examples"))  # scripts import their neighbours by name
for package in ("tqdm", "matplotlib", "sklearn"):
    pytest.importorskip(package)


def run(name: str, out: Path, *arguments: str, **sizes: Any) -> Any:
    """Trains on small settings in a scope of its own and draws nothing; returns the history."""
    script = importlib.import_module(name)
    given = script.training.parser("", 1).parse_args(["--steps", "20", "--place", "cpu", "--out", str(out), *arguments])
    given.out.mkdir(exist_ok=True)
    with static.scope_guard(static.Scope()), pytest.MonkeyPatch.context() as patch:
        draw_nothing(script, patch)
        return script.train(given, script.Sizes(**{**SMALL[name], **sizes}))


def draw_nothing(script: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than 20 steps: one test draws them."""
    for name in [each for each in vars(script) if each.startswith("plot")]:
        patch.setattr(script, name, lambda *_: None)


def losses(history: Any) -> list[float]:
    return [step["loss"] for step in history.steps]


_alone: dict[str, list[float]] = {}


@pytest.fixture
def alone(tmp_path: Path) -> Callable[[str], list[float]]:
    """The losses of 20 steps on one place, trained once for each script."""

    def trained(name: str) -> list[float]:
        if name not in _alone:
            _alone[name] = losses(run(name, tmp_path / "alone"))
        return _alone[name]

    return trained


@pytest.mark.parametrize("name", NAMES)
def test_twenty_steps_write_all_results(name: str, tmp_path: Path) -> None:
    script = importlib.import_module(name)
    with static.scope_guard(static.Scope()):
        code = script.main(
            ["--steps", "20", "--place", "cpu", "--out", str(tmp_path / "new")], script.Sizes(**SMALL[name])
        )
    assert code == 0, "a short run need not reach the goal"
    written = json.loads((tmp_path / "new" / f"{name}.json").read_text(encoding="utf-8"))
    assert 0.0 < written["reached"] < 1.0
    assert written["goal"] == f">= {script.GOAL:g}"
    pictures = {path.name for path in (tmp_path / "new").glob("*.png") if path.stat().st_size > 10_000}
    assert f"{name}.png" in pictures
    assert ("bert_mlm_guesses.png" in pictures) == (name == "bert_mlm")
    assert len(list((tmp_path / "new" / f"{name}-checkpoints").iterdir())) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_full_run_of_a_model_that_learns_nothing_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = importlib.import_module(name)
    draw_nothing(script, monkeypatch)
    monkeypatch.setattr(script, "RATE", 1e-9)
    monkeypatch.setattr(script, "PER_EPOCH", 1)
    with static.scope_guard(static.Scope()):
        assert script.main(["--place", "cpu", "--out", str(tmp_path)], script.Sizes(**SMALL[name])) == 1
    assert "(missed: " in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_broken_off_goes_on_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module(name)
    monkeypatch.setattr(script, "PER_EPOCH", 5)
    random = {} if name == "word2vec" else {"dropout": 0.2}
    whole = run(name, tmp_path / "whole", **random)
    broken = Broken(script, 13)
    with monkeypatch.context() as patch:
        patch.setattr(script, "build", broken.build)
        with pytest.raises(KeyboardInterrupt):
            run(name, tmp_path / "broken", **random)
    assert broken.steps == 13
    again = run(name, tmp_path / "broken", "--resume", **random)
    assert losses(again) == losses(whole)
    assert again.tests == whole.tests
    assert len(set(losses(whole))) == 20


class Broken:
    """Stops a training after some steps."""

    def __init__(self, script: ModuleType, most: int) -> None:
        self.script, self.most, self.steps = script, most, 0
        self._build = script.build

    def build(self, *arguments: Any) -> Any:
        model = self._build(*arguments)
        move_on = model.scheduler.step

        def step() -> None:
            self.steps += 1
            if self.steps == self.most:
                raise KeyboardInterrupt
            move_on()

        model.scheduler.step = step
        return model


@pytest.mark.parametrize("name", NAMES)
def test_two_places_give_the_losses_of_one(name: str, tmp_path: Path, alone: Callable[[str], list[float]]) -> None:
    np.testing.assert_allclose(losses(run(name, tmp_path, "--places", "2")), alone(name), rtol=1e-5)


@pytest.mark.parametrize(("name", "amp"), [("text_lstm", "bf16"), ("bert_mlm", "bf16"), ("word2vec", "fp16")])
def test_mixed_precision_follows_float32(
    name: str, amp: str, tmp_path: Path, alone: Callable[[str], list[float]]
) -> None:
    found = losses(run(name, tmp_path, "--amp", amp))
    np.testing.assert_allclose(found, alone(name), rtol=0.0, atol=2e-2)
    assert found != alone(name)
