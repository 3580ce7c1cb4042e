"""Whatever reads files leaves the disk as it was, in folders full of hostile neighbours, for root and for other users."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
import tstatic.dataset
from tests.api import surface
from tests.helpers.loaders import LOADERS, World
from tests.helpers.neighbours import KINDS, crowd
from tests.helpers.other_user import IS_ROOT, as_nobody, open_folder
from tests.helpers.seed import SEED
from tests.helpers.soak import SOAK
from tests.helpers.trees import Entry, snapshot
from tstatic import static
from tstatic.cli.app import app
from tstatic.errors import TstaticError
from tstatic.formats import leftovers

pytestmark = pytest.mark.numpy_device("readers are the same on every device")

DRAWS = 200 if SOAK else 2
LONGEST_S = 60.0
"""Seconds after which a reader hangs."""
READS = re.compile(
    r"_?(load|read|restore|latest|best|steps|cat|ls_dir|list_dirs|image_load|md5file|download)(_.*)?|.*(_load|_from_file|preload.*)"
)
"""Names of what may read files."""
NO_FILES = {
    "Layer.load_dict": "takes a dict",
    "RecomputeOptimizer.load": "takes a dict",
    "DistributedStrategy.load_from_prototxt": "raises UnsupportedError",
    "Fleet.load_inference_model": "raises UnsupportedError", "Fleet.load_model": "raises UnsupportedError",
    "Fleet.load_one_table": "raises UnsupportedError", "load_model": "raises UnsupportedError",
    "load_one_table": "raises UnsupportedError",
    "LocalFS.download": "copies a file to where it is told",
    "tstatic run": "runs a script", "tstatic profile": "runs a program, and writes a recording",
    "tstatic compile": "writes kernels", "tstatic bench": "measures, and writes results",
    "tstatic compare": "compares results, whose reader is in the list", "tstatic doctor": "asks the machine",
    "tstatic selftest": "runs programs of its own", "tstatic op": "shows the library's own operators",
}  # fmt: skip
"""Names that read no file, or that do more than reading, and why."""


class HangError(Exception):
    """A reader waits for what never comes."""


def _hangs(*args: Any) -> None:
    raise HangError


@contextmanager
def limited() -> Iterator[None]:
    """Ends a reader that waits, for a FIFO's writer, for example."""
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with valid files for all readers, which have read them once: they import nothing more afterwards."""
    with open_folder() as folder:
        world = World(folder)
        for loader in LOADERS.values():
            loader.run(world)
        yield folder


def differences(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Returns the paths whose entries differ.

    The kernel cache notes when it used an entry: the time of access, and with it that of the inode's last change.
    """

    def known(tree: dict[str, Entry], path: str) -> Entry | None:
        entry = tree.get(path)
        return entry if entry is None or "/kernels/" not in path else (*entry[:9], entry[10])

    return [path for path in before | after if known(before, path) != known(after, path)]


def changes(world: World, outside: Path) -> list[str]:
    """Runs all loaders; returns what each of them changed, and each error that has no type of the library."""
    found = []
    before = snapshot(world.folder, outside)
    for name, loader in LOADERS.items():
        error = _run(name, world, loader.run)
        after = snapshot(world.folder, outside)
        found += [error] if error else []
        found += [f"{name} changed {path}" for path in differences(before, after)]
        before = after
    return found


def _run(
    name: str, world: World, call: Callable[[World], Any], typed: tuple[type[Exception], ...] = (TstaticError, OSError)
) -> str:
    """Runs a loader; returns an error that it must not raise as text."""
    try:
        with limited(), static.scope_guard(static.Scope()):
            call(world)
    except HangError:
        return f"{name} waits for ever"
    except typed:
        pass
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"[:300]
    return ""


def run_all(world: World) -> list[str]:
    """Runs all loaders; returns the errors that have no type of the library."""
    found = []
    for name, loader in LOADERS.items():
        error = _run(name, world, loader.run)
        found += [error] if error else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(DRAWS))
def test_no_reader_changes_anything_beside_hostile_neighbours(template: Path, draw: int) -> None:
    """Loads moved files out of whatever had the name of the committed folder, through links, too."""
    dice = random.Random(f"{SEED} {draw}")
    # Some folders hold one kind under all names, the others a mixture.
    kinds = (list(KINDS)[draw // 2 % len(KINDS)],) if draw % 2 else tuple(KINDS)
    with open_folder() as base:
        folder, outside = base / "model", base / "outside"
        shutil.copytree(template, folder)
        crowd(folder, outside, dice, kinds)
        world = World(folder, saved=True)
        assert changes(world, outside) == [], f"with {kinds}"
        before = snapshot(base)
        told = as_nobody(lambda: run_all(world))
        assert told == "[]", f"with {kinds}"
        assert differences(before, snapshot(base)) == [], f"as another user, with {kinds}"


@pytest.mark.skipif(not IS_ROOT, reason="root can write everywhere")
def test_another_user_reads_what_root_saved(template: Path) -> None:
    """The check that all readers work in that child: else nothing would be seen to change."""

    def run() -> list[str]:
        world = World(template, saved=True)
        return [error for name in LOADERS if (error := _run(name, world, LOADERS[name].run, ()))]

    before = snapshot(template)
    assert as_nobody(run) == "[]"
    assert differences(before, snapshot(template)) == []


# -------------------------------------------------------------------------------------------------- that it sees changes
def _mover(path: Path) -> None:
    """Moves committed files to their places, as loads did."""
    done = path / leftovers.COMMITTED
    if done.is_dir():
        for name in os.listdir(done):
            os.replace(done / name, path / name)


FAULTS: dict[str, Callable[[Path], object]] = {
    "moves committed files": _mover,
    "makes a folder": lambda folder: (folder / "made").mkdir(exist_ok=True),
    "writes through a link": lambda folder: (folder / "through").write_text("changed"),
    "changes a mode": lambda folder: (folder / "m.pdparams").chmod(0o600),
    "changes a time": lambda folder: os.utime(folder / "m.pdparams", (1, 1)),
    "writes the same content": lambda folder: (folder / "m.pdparams").write_bytes((folder / "m.pdparams").read_bytes()),
    "waits for a FIFO": lambda folder: (folder / "fifo").open("rb"),
    "raises an error without a type": lambda folder: {}["x"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reader_that_does_more_than_read_is_seen(template: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cpu.test_reading_changes_nothing.LONGEST_S", 0.2)
    with open_folder() as base:
        shutil.copytree(template, base / "model")
        (base / "outside").mkdir()
        (base / "outside/m.pdparams").write_text("precious")
        (base / "model/through").symlink_to(base / "outside/m.pdparams")
        os.mkfifo(base / "model/fifo")
        (base / "model" / leftovers.COMMITTED).symlink_to(base / "outside")
        world = World(base / "model", saved=True)
        before = snapshot(base)
        error = _run(fault, world, lambda w: FAULTS[fault](w.folder))
        assert error or differences(before, snapshot(base))


# ------------------------------------------------------------------------------------------------------- that none is missing
def _public() -> Iterator[str]:
    """Yields the public names that may read files."""
    for path, value in surface.walk():
        name = path.rpartition(".")[2]
        if inspect.isclass(value):
            members = {member.partition("(")[0] for member in surface.members(value)}
            yield from (f"{name}.{member}" for member in members if READS.fullmatch(member))
            if issubclass(value, paddle.io.Dataset) and "datasets" in path:
                yield name
        elif READS.fullmatch(name):
            yield name
    for package in (paddle.vision.datasets, paddle.text):
        found = (getattr(package, name) for name in surface.names(package))
        yield from (one.__name__ for one in found if inspect.isclass(one) and issubclass(one, paddle.io.Dataset))
    for info in pkgutil.iter_modules(tstatic.dataset.__path__):
        module = importlib.import_module(f"tstatic.dataset.{info.name}")
        names = (name for name in getattr(module, "__all__", ()) if inspect.isfunction(getattr(module, name)))
        yield from (f"paddle.dataset.{info.name}.{name}" for name in names)
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"tstatic {command.name or command.callback.__name__}"


def test_every_public_reader_is_in_the_list() -> None:
    known = {name for loader in LOADERS.values() for name in loader.covers}
    public = set(_public())
    assert public - known - NO_FILES.keys() == set(), "add them to LOADERS, or to NO_FILES with a reason"
    assert NO_FILES.keys() - public == set()
    assert len(public & known) > 60


def test_a_public_reader_that_is_missing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOADERS, "load_dygraph")
    with pytest.raises(AssertionError, match="load_dygraph"):
        test_every_public_reader_is_in_the_list()
