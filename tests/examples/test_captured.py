"""Every script of ``examples/`` that trains leaves the same checkpoint whether its steps are launched as graphs or called."""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.examples.small import SIZES
from tests.examples.test_runs import SCRIPTS, SMALL, losses, trained
from tests.helpers.captured_runs import standing_in

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
        reason="puts a device of its own in the place of the CPU's",
    ),
    pytest.mark.skipif(os.environ.get("TSTATIC_GRAPHS") != "all", reason="TSTATIC_GRAPHS=all trains all examples"),
]


def loaded(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, made small, without its pictures."""
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    module = importlib.import_module(name)
    patch.setattr(module, "plot", lambda *_: None)
    for constant, value in SMALL.get(name, {}).items():
        patch.setattr(module, constant, value)
    if name in SIZES:
        random = {} if name == "word2vec" else {"dropout": 0.2}
        patch.setattr(module, "Sizes", partial(module.Sizes, **SIZES[name] | random))
    return module


def flat(state: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a checkpoint, times of runs left out."""
    if isinstance(state, dict):
        return {k: v for name, one in state.items() for k, v in flat(one, f"{path}/{name}").items()}
    if isinstance(state, list | tuple):
        return {k: v for number, one in enumerate(state) for k, v in flat(one, f"{path}/{number}").items()}
    return {} if "seconds" in path or "processor" in path else {path: np.asarray(state).tobytes()}


@pytest.mark.parametrize("device", ["fake", "gpu"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_leaves_the_same_checkpoint(
    name: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = loaded(name, monkeypatch)
    arguments = ["--steps", "6", *(["--table", "wine"] if name == "deepfm" else [])]
    found = []
    with standing_in(device) as made:
        for mode in ("off", "auto"):
            paddle.set_flags({"FLAGS_cuda_graph": mode})
            try:
                found.append(trained(script, tmp_path / mode, *arguments))
            finally:
                paddle.set_flags({"FLAGS_cuda_graph": "auto"})
        assert made.launches >= 4
    assert losses(found[0]).size
    plain, captured = map(flat, found)
    assert [key for key in plain if captured[key] != plain[key]] == []


@pytest.mark.parametrize("device", ["fake", "gpu"])
@pytest.mark.parametrize("name", ["digits", "gpt"])
def test_an_example_with_a_loop_of_its_own_has_the_same_losses(
    name: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = loaded(name, monkeypatch)
    found = []
    with standing_in(device) as made:
        for mode in ("off", "auto"):
            paddle.set_flags({"FLAGS_cuda_graph": mode})
            try:
                with paddle.static.scope_guard(paddle.static.Scope()):
                    if name == "gpt":
                        small = {"steps": 9, "batch": 8, "tokens": 16, "width": 16, "layers": 1, "heads": 2}
                        found.append(script.train(script.Settings(**small), 1, tmp_path / mode, False, 3))
                    else:
                        monkeypatch.setattr(script, "plot", lambda history, path: found.append(list(history)))
                        script.train(2, "cpu", tmp_path / mode)
            finally:
                paddle.set_flags({"FLAGS_cuda_graph": "auto"})
        assert made.launches >= 4
    plain, captured = found
    assert plain == captured
