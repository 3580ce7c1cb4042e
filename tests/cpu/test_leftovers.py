"""What a broken-off save leaves: loads read it and change nothing; the next save finishes it, and touches nothing else."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.trees import snapshot
from tstatic import fluid, static
from tstatic.errors import CheckpointError
from tstatic.runtime import files, leftovers

ROOT = os.geteuid() == 0


@pytest.fixture
def program() -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        paddle.create_parameter([2], "float32", name="w")
    return main


def fill(value: float) -> None:
    static.global_scope().var("w").get_tensor().set(np.full(2, value, "float32"))


def save(program: Any, path: Path, value: float) -> None:
    fill(value)
    static.save(program, str(path))


def loaded(program: Any, path: Path) -> float:
    fill(-1.0)
    static.load(program, str(path))
    return float(np.array(static.global_scope().find_var("w").get_tensor())[0])


def committed(folder: Path, names: list[str] | None = None) -> Path:
    """Returns the folder of a committed save whose process ended there; with its manifest if names are given."""
    done = folder / leftovers.COMMITTED
    done.mkdir(parents=True, exist_ok=True)
    if names is not None:
        (done / leftovers.MANIFEST).write_text(json.dumps({"format": 1, "files": names}))
    return done


def broken_off(program: Any, folder: Path, value: float, manifest: bool = True) -> Path:
    """Leaves a save of ``m`` in the state right behind its commit."""
    save(program, folder / "elsewhere/m", value)
    done = committed(folder, ["m.pdmodel", "m.pdparams"] if manifest else None)
    for name in ("m.pdmodel", "m.pdparams"):
        os.replace(folder / "elsewhere" / name, done / name)
    (folder / "elsewhere").rmdir()
    return done


# --------------------------------------------------------------------------------------------------------------- reading
LOADS: dict[str, Callable[[Any, Path], Any]] = {
    "static.load": lambda main, path: static.load(main, str(path)),
    "load_program_state": lambda main, path: static.load_program_state(str(path)),
    "paddle.load": lambda main, path: paddle.load(f"{path}.pdparams"),
    "paddle.load of a program": lambda main, path: paddle.load(f"{path}.pdmodel"),
    "load_dygraph": lambda main, path: fluid.load_dygraph(str(path)),
}


@pytest.mark.parametrize("how", LOADS)
@pytest.mark.parametrize("manifest", [True, False], ids=["manifest", "earlier version"])
def test_loading_reads_a_committed_save_where_it_is(program: Any, tmp_path: Path, how: str, manifest: bool) -> None:
    """A load moved the committed files to their places, so reading changed the folder."""
    save(program, tmp_path / "m", 1.0)
    broken_off(program, tmp_path, 2.0, manifest)
    before = snapshot(tmp_path)
    LOADS[how](program, tmp_path / "m")
    assert snapshot(tmp_path) == before
    assert loaded(program, tmp_path / "m") == 2.0
    save(program, tmp_path / "other", 3.0)
    assert sorted(os.listdir(tmp_path)) == ["m.pdmodel", "m.pdparams", "other.pdmodel", "other.pdparams"]
    assert loaded(program, tmp_path / "m") == 2.0


@pytest.mark.parametrize("how", LOADS)
def test_loading_beside_a_link_leaves_its_target(program: Any, tmp_path: Path, how: str) -> None:
    """A load listed the committed folder through a link and moved all that it found there, folders too."""
    precious = tmp_path / "precious"
    (precious / "folder").mkdir(parents=True)
    (precious / "thesis.txt").write_text("years")
    (precious / "m.pdparams").write_text("not of this model")
    save(program, tmp_path / "model/m", 1.0)
    (tmp_path / "model" / leftovers.COMMITTED).symlink_to(precious)
    before = snapshot(tmp_path)
    LOADS[how](program, tmp_path / "model/m")
    assert loaded(program, tmp_path / "model/m") == 1.0
    assert snapshot(tmp_path) == before


def test_loading_overwrites_nothing_beside_the_model(program: Any, tmp_path: Path) -> None:
    """A folder that an archive brings replaced the files beside the model when it was loaded."""
    save(program, tmp_path / "m", 1.0)
    (tmp_path / "train.py").write_text("mine")
    (committed(tmp_path) / "train.py").write_text("theirs")
    before = snapshot(tmp_path)
    assert loaded(program, tmp_path / "m") == 1.0
    assert snapshot(tmp_path) == before
