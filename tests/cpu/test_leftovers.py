"""What a broken-off save leaves: loads read it and change nothing; the next save finishes it, and touches nothing else."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.trees import snapshot
from tstatic import fluid, static
from tstatic.errors import CheckpointError
from tstatic.formats import files, leftovers

ROOT = os.geteuid() == 0
SAVED = ("m.pdmodel", "m.pdopt", "m.pdparams")
"""The files of a save of ``m``."""


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
    done = committed(folder, list(SAVED) if manifest else None)
    for name in SAVED:
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
    assert sorted(os.listdir(tmp_path)) == [*SAVED, *(name.replace("m.", "other.", 1) for name in SAVED)]
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


# -------------------------------------------------------------------------------------------------------- other's leftovers
NOBODY = 65534


def _foreign(path: Path) -> None:
    for one in (path, *path.rglob("*")):
        os.chown(one, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.skipif(not ROOT, reason="only root can give a folder away")
def test_a_committed_save_of_another_user_is_neither_read_nor_moved(program: Any, tmp_path: Path) -> None:
    """Root reads and writes everywhere, so nothing but the owner tells whose committed save it is."""
    save(program, tmp_path / "m", 1.0)
    _foreign(broken_off(program, tmp_path, 2.0))
    before = snapshot(tmp_path)
    for call in (
        lambda: loaded(program, tmp_path / "m"),
        lambda: paddle.load(tmp_path / "m.pdparams"),
        lambda: save(program, tmp_path / "m", 3.0),
        lambda: save(program, tmp_path / "other", 3.0),
        lambda: paddle.save({}, tmp_path / "other"),
    ):
        with pytest.raises(CheckpointError, match=rf"{leftovers.COMMITTED}.*(?s:.*)user {NOBODY}"):
            call()
    # What it does not hold is read. A save makes and removes a staging folder, which the folder's own times show.
    (tmp_path / "n.pdparams").write_bytes((tmp_path / "m.pdparams").read_bytes())
    static.load_program_state(str(tmp_path / "n"))
    (tmp_path / "n.pdparams").unlink()
    after = snapshot(tmp_path)
    assert [path for path in before | after if before.get(path) != after.get(path)] in ([], [str(tmp_path)])


@pytest.mark.skipif(not ROOT, reason="only root can give a folder away")
def test_a_committed_save_of_the_folders_owner_is_read_but_not_moved(program: Any, tmp_path: Path) -> None:
    save(program, tmp_path / "m", 1.0)
    broken_off(program, tmp_path, 2.0)
    _foreign(tmp_path)
    before = snapshot(tmp_path)
    assert loaded(program, tmp_path / "m") == 2.0
    assert snapshot(tmp_path) == before
    with pytest.raises(CheckpointError, match=f"user {NOBODY}"):
        save(program, tmp_path / "m", 3.0)
    assert loaded(program, tmp_path / "m") == 2.0


# ---------------------------------------------------------------------------------------------------------------- writing
def _link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def _socket(path: Path, precious: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _listing(*names: str) -> Callable[[Path, Path], None]:
    """A committed folder with a file of each name, all listed, and whatever a name outside of it would reach."""

    def make(path: Path, precious: Path) -> None:
        committed(path.parent, list(names))
        for name in names:
            if "/" not in name and name != "..":
                (path / name).write_text("planted")

    return make


def _unlisted(path: Path, precious: Path) -> None:
    done = committed(path.parent, ["m.pdparams"])
    (done / "other.pdparams").write_text("planted")


def _manifest(text: str) -> Callable[[Path, Path], None]:
    def make(path: Path, precious: Path) -> None:
        done = committed(path.parent)
        (done / "other.pdparams").write_text("planted")
        (done / leftovers.MANIFEST).write_text(text)

    return make


def _manifest_link(path: Path, precious: Path) -> None:
    committed(path.parent)
    (path / leftovers.MANIFEST).symlink_to(precious / "thesis.txt")


def _manifest_fifo(path: Path, precious: Path) -> None:
    committed(path.parent)
    os.mkfifo(path / leftovers.MANIFEST)


def _inside(put: Callable[[Path], Any], manifest: bool = True) -> Callable[[Path, Path], None]:
    """A committed folder with an entry of another kind under a name that a save writes."""

    def make(path: Path, precious: Path) -> None:
        put(committed(path.parent, ["other.pdparams"] if manifest else None) / "other.pdparams")

    return make


def _plain(*names: str) -> Callable[[Path, Path], None]:
    def make(path: Path, precious: Path) -> None:
        done = committed(path.parent)
        for name in names:
            (done / name).write_text("import os\n")

    return make


WRONG: dict[str, Callable[[Path, Path], None]] = {
    "a link to a folder": _link,
    "a link to nothing": lambda path, precious: path.symlink_to("nothing"),
    "a link to itself": lambda path, precious: path.symlink_to(path),
    "a file": lambda path, precious: path.write_text("mine") and None,
    "a FIFO": lambda path, precious: os.mkfifo(path),
    "a socket": _socket,
    "a name that is a path": _listing("../train.py"),
    "the folder around it": _listing(".."),
    "a name of the library's own": _listing(".tstatic-00000000.tmp"),
    "a listed file that no save wrote": _listing("train.py"),
    "a file that is not listed": _unlisted,
    "a manifest that is no text": _manifest("\0"),
    "a manifest of a later format": _manifest('{"format": 2, "files": []}'),
    "a manifest of numbers": _manifest('{"format": 1, "files": [1]}'),
    "a manifest without end": _manifest("[" * 100_000),
    "a manifest that is a link": _manifest_link,
    "a manifest that is a FIFO": _manifest_fifo,
    "a folder in it": _inside(Path.mkdir),
    "a FIFO in it": _inside(os.mkfifo),
    "a link in it": _inside(lambda path: path.symlink_to("/etc/passwd")),
    "a link in it, without a manifest": _inside(lambda path: path.symlink_to("/etc/passwd"), manifest=False),
    "a script, without a manifest": _plain("train.py"),
    "a new script, without a manifest": _plain("sitecustomize.py"),
    "a save and a script, without a manifest": _plain("m.pdparams", "train.py"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_no_save_left_stays_where_it_is(program: Any, tmp_path: Path, what: str) -> None:
    """A save moved every name out of whatever had the committed folder's name."""
    folder, precious = tmp_path / "model", tmp_path / "precious"
    (precious / "folder").mkdir(parents=True)
    (precious / "thesis.txt").write_text("years")
    save(program, folder / "n", 1.0)
    (folder / "train.py").write_text("mine")
    (tmp_path / "train.py").write_text("mine, too")
    WRONG[what](folder / leftovers.COMMITTED, precious)
    before = snapshot(tmp_path)
    for call in (lambda: save(program, folder / "n", 2.0), lambda: paddle.save({}, folder / "object")):
        with pytest.raises(CheckpointError, match="could not write") as caught:
            call()
        assert str(folder / leftovers.COMMITTED) in str(caught.value)
        assert "nothing was written" in str(caught.value)
    after = snapshot(tmp_path)
    assert [path for path in before | after if before.get(path) != after.get(path)] in ([], [str(folder)])
    assert loaded(program, folder / "n") == 1.0


@pytest.mark.parametrize("name", [leftovers.COMMITTED, leftovers.MANIFEST, ".tstatic-01234567.tmp"])
def test_no_save_writes_a_name_that_saves_use(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / name, tmp_path / name / "m"):
        with pytest.raises(CheckpointError, match="could not write"):
            paddle.save({}, path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_no_save_wrote_is_not_replaced(program: Any, tmp_path: Path) -> None:
    """A variable may have any name, so the file that would be replaced says more than the name."""
    (tmp_path / "train.py").write_text("mine")
    done = committed(tmp_path, ["train.py"])
    save(program, tmp_path / "elsewhere/m", 1.0)
    os.replace(tmp_path / "elsewhere/m.pdparams", done / "train.py")
    with pytest.raises(CheckpointError, match=r"'train\.py', which it would replace"):
        save(program, tmp_path / "m", 2.0)
    assert (tmp_path / "train.py").read_text() == "mine"
    (tmp_path / "train.py").unlink()
    save(program, tmp_path / "m", 2.0)
    assert static.load_program_state(str(tmp_path / "train.py"))["w"].tolist() == [1.0, 1.0]


def test_only_what_saves_staged_is_swept(program: Any, tmp_path: Path) -> None:
    """The next save removed staging folders with all that was in them."""
    for number, put in enumerate(
        (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.write_text("#!/bin/sh"))
    ):
        stage = tmp_path / f".tstatic-0000000{number}.tmp"
        stage.mkdir()
        (stage / "m.pdparams").write_bytes(b"half")
        put(stage / "mine")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "m.pdparams").write_bytes(b"half")
    (tmp_path / ".tstatic-00000004.tmp").symlink_to(outside)
    (tmp_path / ".m.pdparams.abcd1234.tmp").symlink_to(outside / "m.pdparams")
    if ROOT:
        (tmp_path / ".tstatic-00000005.tmp").mkdir()
        (tmp_path / ".tstatic-00000005.tmp/m.pdparams").write_bytes(b"half")
        _foreign(tmp_path / ".tstatic-00000005.tmp")
    swept = tmp_path / ".tstatic-0000000a.tmp"
    swept.mkdir()
    (swept / leftovers.MANIFEST).write_bytes(leftovers.manifest(["any name"]))
    (swept / "any name").write_bytes(b"half")
    before = snapshot(tmp_path)
    save(program, tmp_path / "m", 1.0)
    after = snapshot(tmp_path)
    gone = {path for path in before if after.get(path) != before[path]} - {str(tmp_path)}
    assert gone == {str(swept), str(swept / "any name"), str(swept / leftovers.MANIFEST)}
    assert set(after) - set(before) == {str(tmp_path / name) for name in SAVED}


# ---------------------------------------------------------------------------------------------------------- while it reads
@pytest.mark.parametrize("saved", [True, False], ids=["saved again", "moved"])
def test_files_that_change_place_while_they_are_read_are_those_of_one_save(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool
) -> None:
    """A move is none of a reader's business; a save between two files makes it read both again."""
    save(program, tmp_path / "m", 1.0)
    broken_off(program, tmp_path, 2.0)
    paths = [tmp_path / name for name in SAVED]
    wanted = {path: (tmp_path / leftovers.COMMITTED / path.name).read_bytes() for path in paths}
    real, opened = leftovers.open_committed, []

    def open_committed(path: Path) -> int | None:
        opened.append(path)
        if len(opened) == 2:
            monkeypatch.undo()
            save(program, tmp_path / ("m" if saved else "other"), 3.0)
            assert not (tmp_path / leftovers.COMMITTED).exists()
        return real(path)

    monkeypatch.setattr(leftovers, "open_committed", open_committed)
    found = files.read(paths)
    assert len(opened) == 2
    if saved:
        wanted = {path: path.read_bytes() for path in paths}
    assert found == wanted
