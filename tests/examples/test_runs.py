"""Every script of ``examples/`` that trains through ``training.fit``: short runs in 16 bits, on two places, broken off, longer."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.examples.small import SIZES
from tests.helpers import warm
from tstatic import static

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "training.fit(" in path.read_text(encoding="utf-8"))
PICTURES = {
    "resnet": ["resnet.png", "resnet_hardest.png"],
    "deepfm": ["deepfm_roc.png", "deepfm_columns.png"],
    "gan": ["gan.png", "gan_drawings.png"],
    "bert_mlm": ["bert_mlm.png", "bert_mlm_guesses.png"],
}
SMALL = {"resnet": {"BATCH": 16}, "gan": {"BATCH": 16}}
"""Constants of the scripts that are smaller here: 20 steps take a second."""


@pytest.fixture
def no_pictures(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than training does."""
    monkeypatch.setattr(script, "plot", lambda *_: None)


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The scripts as modules."""
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    module = importlib.import_module(request.param)
    for name, value in SMALL.get(request.param, {}).items():
        monkeypatch.setattr(module, name, value)
    if request.param in SIZES:
        # Here with dropout: what is drawn goes on where it was, too.
        random = {} if request.param == "word2vec" else {"dropout": 0.2}
        monkeypatch.setattr(module, "Sizes", partial(module.Sizes, **SIZES[request.param] | random))
    return module


def trained(script: ModuleType, out: Path, *arguments: str) -> dict[str, Any]:
    """Runs a script's command line in a scope of its own; returns the state of its newest checkpoint."""
    with static.scope_guard(static.Scope()):
        assert script.main(["--place", "cpu", "--out", str(out), *arguments]) == 0
    (newest, *_) = sorted((out / f"{script.__name__}-checkpoints").glob("program0-*.state"), reverse=True)
    state: dict[str, Any] = paddle.load(newest)["state"]
    return state


def losses(state: dict[str, Any]) -> np.ndarray:
    """What was recorded in every step, in the order of the steps."""
    return np.array([list(step.values()) for step in state["history"]["steps"]])


class BrokenOff(Exception):
    """Instead of a signal."""


@pytest.mark.slow
def test_twenty_steps_write_all_that_is_shown(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script.__name__
    found = losses(trained(script, tmp_path, "--steps", "20"))
    assert found.shape[0] == 20
    assert np.all(np.isfinite(found))
    for picture in PICTURES.get(name, [f"{name}.png"]):
        assert (tmp_path / picture).stat().st_size > 1000
    row = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert row["name"] == name
    told = capsys.readouterr()
    assert f"{row['metric']} {row['reached']:.4f} (wanted of a full run: {row['goal']})" in told.out
    assert "0 s left" in told.err, "a line per epoch, as this is no terminal"


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_two_places_in_16_bits_follow_one_in_32(script: ModuleType, tmp_path: Path) -> None:
    """On few steps: how far courses part afterwards says nothing."""
    exact = losses(trained(script, tmp_path / "exact", "--steps", "5"))
    places = losses(trained(script, tmp_path / "places", "--steps", "5", "--places", "2"))
    rounded = losses(trained(script, tmp_path / "rounded", "--steps", "5", "--amp", "bf16"))
    both = losses(trained(script, tmp_path / "both", "--steps", "5", "--amp", "fp16", "--places", "2"))
    for other in (places, rounded, both):
        assert not np.array_equal(other, exact)
    # Places have batch statistics and dropout of their own, so only the first losses are near.
    np.testing.assert_allclose(places[0], exact[0], rtol=0.2)
    np.testing.assert_allclose(rounded, exact, rtol=0.1)
    np.testing.assert_allclose(both, places, rtol=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_was_broken_off_resumes_bit_for_bit(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a checkpoint at the end of an epoch; then the finished run is trained longer."""
    training = importlib.import_module("training")
    fit = training.fit

    def short_epochs(*arguments: Any, **others: Any) -> Any:
        given, name, programs, step, test, _, *rest = arguments
        return fit(given, name, programs, lambda number: guarded(step, number), test, 4, *rest, **others)

    def guarded(step: Any, number: int) -> Any:
        if number == stop:
            raise BrokenOff
        return step(number)

    monkeypatch.setattr(training, "fit", short_epochs)
    stop = -1
    whole = trained(script, tmp_path / "whole", "--steps", "12")
    stop = 6
    with pytest.raises(BrokenOff):
        trained(script, tmp_path / "broken", "--steps", "12")
    stop = -1
    resumed = trained(script, tmp_path / "broken", "--steps", "12", "--resume")
    assert resumed == whole
    longer = trained(script, tmp_path / "broken", "--steps", "14", "--resume")
    assert longer["history"]["steps"][:12] == whole["history"]["steps"]
    assert len(longer["history"]["steps"]) == 14
    with pytest.raises(SystemExit, match="another seed"):
        trained(script, tmp_path / "broken", "--steps", "14", "--resume", "--seed", "5")


def test_a_script_runs_as_a_person_runs_it(tmp_path: Path) -> None:
    """In a process of its own, which has only the script's folder to import from."""
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    done = warm.run(FOLDER / "deepfm.py", "--steps", "3", "--table", "wine", "--out", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("deepfm: held-out AUC 0.")


def test_a_full_run_that_misses_its_goal_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = pytest.importorskip("training")
    assert training.verdict(tmp_path, "it", "accuracy", 0.9, 0.95, True) == 1
    assert training.verdict(tmp_path, "it", "accuracy", float("nan"), 0.95, True) == 1
    assert training.verdict(tmp_path, "it", "accuracy", 0.9, 0.95, False) == 0
    assert training.verdict(tmp_path, "it", "accuracy", 0.95, 0.95, True) == 0
    assert training.verdict(tmp_path, "it", "loss", 2.0, 1.9, True, "min") == 1
    assert training.verdict(tmp_path, "it", "loss", 1.8, 1.9, True, "min") == 0
    assert "accuracy 0.9000 (missed: >= 0.95)" in capsys.readouterr().out


def test_the_runner_finds_all_scripts_and_prints_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("examples_runner", FOLDER / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    assert {"digits", "gpt", "resnet", "deepfm", "gan"} <= set(runner.scripts())
    assert set(SIZES) <= set(runner.scripts())
    assert not {"library", "training", "__main__"} & set(runner.scripts())

    row = {"metric": "accuracy", "reached": 0.5, "goal": ">= 0.6", "seconds": 7.4, "processor": 12.0}
    write = f"import sys; open(sys.argv[2] + '/%s.json', 'w').write({json.dumps(row)!r})\n"
    (tmp_path / "bad.py").write_text(write % "bad" + "sys.exit(1)")
    (tmp_path / "good.py").write_text(write % "good")
    (tmp_path / "broken.py").write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["examples", "--out", str(tmp_path / "out")])
    assert runner.main() == 1
    rows = [line.split() for line in capsys.readouterr().out.strip().splitlines()]
    assert rows == [
        ["script", "metric", "reached", "wanted", "seconds", "processor"],
        ["bad", "accuracy", "0.5000", ">=", "0.6", "7", "12", "missed"],
        ["broken", "failed", "with", "exit", "code", "3"],
        ["good", "accuracy", "0.5000", ">=", "0.6", "7", "12"],
    ]
    monkeypatch.setattr(sys, "argv", ["examples", "good", "--out", str(tmp_path / "out")])
    assert runner.main() == 0
