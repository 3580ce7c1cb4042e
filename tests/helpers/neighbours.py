"""Folders full of what nobody expects beside a model: links, FIFOs, devices, sockets, and names that the library uses."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.other_user import IS_ROOT, NOBODY
from tstatic.formats import leftovers
from tstatic.version import __version__

NAMES = (
    leftovers.COMMITTED, leftovers.MANIFEST, ".tstatic-00000000.tmp", ".tstatic-1f0c62ab.tmp", ".m.pdparams.abcd1234.tmp",
    ".all.abcd1234.tmp", "LATEST", "latest", "checkpoint", "manifest.json", ".lock", "m.lock", "__pycache__", "__init__.py",
    "m.pdiparams", "inf.pdparams", "dygraph.pdopt", "inf.pdopt", "object.pdparams", "__params__", "step-00000003.state",
    "step-00000003.pdparams", "step-00000000.pdmodel", "stage-abcd1234.tmp", "kernels-link-py3.11",
    f"kernels-{__version__}-py3.12", "k_" + "0" * 64 + ".py", "dog", "c.png", "m.pdparams.part", "tstatic-0",
)  # fmt: skip
"""Names that the library writes, looks for, or once wrote."""
MODES = (0o644, 0o755, 0o000, 0o777, 0o4755, 0o1777)
TIMES = (0, 1, -(10**9), 2**31 - 1, 2**33, 10**9)


@dataclass(frozen=True)
class Place:
    """Where a neighbour is put.

    Attributes:
        path: It is not there yet.
        outside: A folder that nothing may touch.
        dice: Decides what a folder holds.
    """

    path: Path
    outside: Path
    dice: random.Random


def _socket(place: Place) -> None:
    here = os.getcwd()
    os.chdir(place.path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.path.name)
    finally:
        os.chdir(here)


def _device(place: Place) -> None:
    # Reading the first would not end. Where only root may make devices, a link leads to one.
    number = place.dice.choice((os.makedev(1, 5), os.makedev(1, 3)))
    try:
        os.mknod(place.path, stat.S_IFCHR | 0o666, number)
    except PermissionError:
        place.path.symlink_to("/dev/zero")


def _folder(place: Place) -> None:
    """A folder with entries of other kinds, under the names of the files around it, and perhaps a manifest of them."""
    place.path.mkdir()
    beside = [one.name for one in place.path.parent.iterdir() if one != place.path]
    names = [*place.dice.sample(beside, min(len(beside), 4)), "train.py"]
    for name in names:
        INNER[place.dice.choice(list(INNER))](Place(place.path / name, place.outside, place.dice))
    manifest = place.path / leftovers.MANIFEST
    if place.dice.random() < 0.6 and not os.path.lexists(manifest):
        listed = place.dice.choice((names, names[:1], ["../train.py"], [leftovers.COMMITTED], []))
        manifest.write_text(json.dumps({"format": 1, "files": listed}))


def _copies(place: Place) -> None:
    """A folder with copies of the files around it: a committed save, for example."""
    place.path.mkdir()
    for one in list(place.path.parent.iterdir()):
        if one.is_file() and not one.is_symlink():
            shutil.copy(one, place.path / one.name)


INNER: dict[str, Callable[[Place], object]] = {
    "a text": lambda place: place.path.write_text("import os\n"),
    "nothing": lambda place: place.path.write_bytes(b""),
    "a pickle": lambda place: place.path.write_bytes(b"\x80\x04N."),
    "a link to a folder outside": lambda place: place.path.symlink_to(place.outside),
    "a link to a file outside": lambda place: place.path.symlink_to(place.outside / "thesis.txt"),
    "a link to a save outside": lambda place: place.path.symlink_to(place.outside / "m.pdparams"),
    "a link to nothing": lambda place: place.path.symlink_to(place.outside / "missing"),
    "a link to itself": lambda place: place.path.symlink_to(place.path.name),
    "a link to the folder around it": lambda place: place.path.symlink_to(".."),
    "a FIFO": lambda place: os.mkfifo(place.path),
    "a socket": _socket,
    "a device": _device,
}
KINDS: dict[str, Callable[[Place], object]] = INNER | {"a folder": _folder, "a folder of copies": _copies}


def put(kind: str, place: Place, owner: int, mode: int, when: int) -> None:
    """Puts a neighbour somewhere, with an owner, a mode and a time of change."""
    KINDS[kind](place)
    inside = [place.path, *(place.path.rglob("*") if place.path.is_dir() and not place.path.is_symlink() else ())]
    for path in reversed(inside):
        if IS_ROOT and owner:
            os.chown(path, owner, owner, follow_symlinks=False)
    if not place.path.is_symlink():
        place.path.chmod(mode if IS_ROOT else mode | 0o700)
    with contextlib.suppress(OSError, OverflowError):  # not every file system has such times
        os.utime(place.path, (when, when), follow_symlinks=False)


def crowd(
    folder: Path, outside: Path, dice: random.Random, kinds: Sequence[str] = tuple(KINDS), many: float = 0.5
) -> None:
    """Puts neighbours into a folder and all folders below it, and some in the places of its own files.

    Args:
        folder: What is going to be read.
        outside: What links lead to.
        dice: Draws which, and of what kind.
        kinds: The kinds to draw from.
        many: The part of all names that is used in each folder.
    """
    (outside / "folder").mkdir(parents=True)
    (outside / "thesis.txt").write_text("years\n")
    (outside / "folder/m.pdparams").write_bytes(b"\x80\x04N.")
    (outside / "m.pdparams").write_bytes(b"\x80\x04N.")
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for where in folders:
        own = sorted(path for path in where.iterdir() if path.is_file())
        # An entry of the kernel cache that is not what it should be is written again.
        own = [] if where.name.startswith("kernels-") else own
        for path in own:
            if dice.random() < 0.1:
                path.rename(outside / f"{len(os.listdir(outside))}-{path.name}")
                put(dice.choice(kinds), Place(path, outside, dice), 0, 0o644, 10**9)
        for name in NAMES:
            path = where / name
            if not os.path.lexists(path) and dice.random() < many:
                owner = dice.choice((0, 0, NOBODY, 12345))
                put(dice.choice(kinds), Place(path, outside, dice), owner, dice.choice(MODES), dice.choice(TIMES))
