"""Saves are whole: whatever moment a process ends at, loading finds the old files or the new ones."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.interrupts import interrupts
from tests.helpers.patience import HANG
from tests.helpers.seed import SEED
from tstatic import fluid, static
from tstatic.errors import CheckpointError
from tstatic.formats import checkpoint, files

NAMES = ("a", "b", "c")
KILLS = int(os.environ.get("TSTATIC_KILLS", "0"))
EVERY = 1 if KILLS else 2
"""Each such call ends the process; where it begins is drawn."""


class Net:
    """Three parameters, and a program whose ``scale`` is the value that they are saved with."""

    def __init__(self) -> None:
        self.exe = static.Executor("cpu")
        self.programs: dict[float, tuple[Any, Any, Any]] = {}
        for scale in (1.0, 2.0):
            main = static.Program()
            with static.program_guard(main, static.Program()):
                x = static.data("x", [2])
                a, b, c = (paddle.create_parameter([2], "float32", name=name) for name in NAMES)
                self.programs[scale] = main, x, paddle.scale((x * a + b) * c, scale)

    def fill(self, value: float) -> None:
        for name in NAMES:
            static.global_scope().var(name).get_tensor().set(np.full(2, value, "float32"))

    def save(self, how: str, folder: Path, value: float) -> None:
        """Saves parameters that all have this value, with the program of this scale."""
        main, x, y = self.programs[value]
        with static.scope_guard(static.Scope()):
            self.fill(value)
            WAYS[how].save(self, str(folder), main, x, y)

    def load(self, how: str, folder: Path) -> float:
        """The one value that all parameters have, which is the program's scale, too."""
        with static.scope_guard(static.Scope()):
            program = WAYS[how].load(self, str(folder), self.programs[1.0][0])
            found = {float(v) for name in NAMES for v in np.array(static.global_scope().find_var(name).get_tensor())}
        if program is not None:
            found.add(next(op.attr("scale") for op in program.global_block().ops if op.type == "scale"))
        assert len(found) == 1, f"a mixture: {found}"
        return found.pop()


@dataclass(frozen=True)
class Way:
    save: Callable[..., Any]
    load: Callable[..., Any]
    names: tuple[str, ...]


def _load(net: Net, folder: str, main: Any) -> Any:
    static.load(main, f"{folder}/m")
    return static.Program.parse_from_string(static.load_from_file(f"{folder}/m.pdmodel"))


WAYS = {
    "save": Way(lambda net, folder, main, x, y: static.save(main, f"{folder}/m"), _load, ("m.pdmodel", "m.pdopt", "m.pdparams")),
    "save_inference_model": Way(
        lambda net, folder, main, x, y: static.save_inference_model(f"{folder}/m", [x], [y], net.exe),
        lambda net, folder, main: static.load_inference_model(f"{folder}/m", net.exe)[0],
        ("m.pdiparams", "m.pdmodel"),
    ),
    "save for Paddle": Way(
        lambda net, folder, main, x, y: static.save(main, f"{folder}/m", format="paddle"),
        _load,
        ("m.pdmodel", "m.pdopt", "m.pdparams"),
    ),
    "save_inference_model for Paddle": Way(
        lambda net, folder, main, x, y: static.save_inference_model(f"{folder}/m", [x], [y], net.exe, format="paddle"),
        lambda net, folder, main: static.load_inference_model(f"{folder}/m", net.exe)[0],
        ("m.pdiparams", "m.pdmodel"),
    ),
    "save_persistables": Way(
        lambda net, folder, main, x, y: fluid.io.save_persistables(net.exe, folder, main),
        lambda net, folder, main: fluid.io.load_persistables(net.exe, folder, main),
        NAMES,
    ),
    "save_params": Way(
        lambda net, folder, main, x, y: fluid.io.save_params(net.exe, folder, main),
        lambda net, folder, main: fluid.io.load_params(net.exe, folder, main),
        NAMES,
    ),
    "save_vars": Way(
        lambda net, folder, main, x, y: fluid.io.save_vars(net.exe, folder, main, predicate=fluid.io.is_parameter, filename="all"),
        lambda net, folder, main: fluid.io.load_vars(net.exe, folder, main, predicate=fluid.io.is_parameter, filename="all"),
        ("all",),
    ),
    "fluid.save_inference_model": Way(
        lambda net, folder, main, x, y: fluid.io.save_inference_model(folder, ["x"], [y], net.exe, main),
        lambda net, folder, main: fluid.io.load_inference_model(folder, net.exe)[0],
        ("__model__", *NAMES),
    ),
    "fluid.save_inference_model, one file": Way(
        lambda net, folder, main, x, y: fluid.io.save_inference_model(folder, ["x"], [y], net.exe, main, params_filename="p"),
        lambda net, folder, main: fluid.io.load_inference_model(folder, net.exe, params_filename="p")[0],
        ("__model__", "p"),
    ),
}  # fmt: skip
SETS = [name for name, way in WAYS.items() if len(way.names) > 1 and "Paddle" not in name]
"""Ways that write several files; those for Paddle have no place for what tells files of two saves apart."""


@pytest.fixture
def net() -> Net:
    return Net()


# ---------------------------------------------------------------------------------------------------------------- killed
CALLS = ("open", "mkdir", "fdopen", "chown", "chmod", "fsync", "close", "rename", "replace", "rmdir", "unlink")


class _HalfWritten:
    """A file that loses the process in the middle of a write."""

    def __init__(self, file: Any, call: Callable[..., Any]) -> None:
        self._file, self._call = file, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _HalfWritten:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        self._call()
        return int(self._file.write(data[len(data) // 2 :]))


def count_calls(last: int) -> Callable[[], int]:
    """Ends the process before its ``last``-th file-system call; returns how many there were."""
    count = 0

    def called() -> None:
        nonlocal count
        count += 1
        if count == last:
            os._exit(9)

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            called()
            result = real(*args, **kwargs)
            return _HalfWritten(result, called) if name == "fdopen" and "w" in args[1] else result

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))
    return lambda: count


def fork(work: Callable[[], Any]) -> int:
    """Starts a child that runs ``work`` and ends; returns its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, which are idle here
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Waits for a child; its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def _unwritable(monkeypatch: pytest.MonkeyPatch) -> Any:
    def refused(*args: Any) -> Any:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "rmdir", "unlink"):
            patch.setattr(os, name, refused)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_a_save_killed_before_any_file_system_call_is_loaded_whole(
    net: Net, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.save(how, tmp_path / "old", 1.0)
    seen = []
    for count, last in enumerate(range(1 + random.Random(SEED + how).randrange(EVERY), 200, EVERY)):
        folder = tmp_path / str(last)
        shutil.copytree(tmp_path / "old", folder)

        def save(folder: Path = folder, last: int = last) -> None:
            count_calls(last)
            net.save(how, folder, 2.0)

        code = ended(fork(save))
        with _unwritable(monkeypatch):
            value = net.load(how, folder)
        assert net.load(how, folder) == value
        seen.append(value)
        if code == 0:
            break
        assert code == 9
        if count % 3 == 0:
            # The next save clears up.
            net.save(how, folder, 1.0)
            assert net.load(how, folder) == 1.0
            assert tuple(sorted(os.listdir(folder))) == WAYS[how].names
    assert seen == sorted(seen), "there is one point at which the save counts"
    assert seen[0] == 1.0
    assert seen[-1] == 2.0
    assert EVERY * len(seen) > 8


@pytest.mark.slow
def test_the_first_save_of_all_is_there_or_not(net: Net, tmp_path: Path) -> None:
    for last in range(1, 200):
        folder = tmp_path / str(last)

        def save(folder: Path = folder, last: int = last) -> None:
            count_calls(last)
            net.save("save", folder, 2.0)

        if ended(fork(save)) == 0:
            break
        paddle.save({}, folder / "n")  # finishes it
        names = {name for name in os.listdir(folder) if name.startswith("m")} if folder.exists() else set()
        assert names in (set(), set(WAYS["save"].names))
        assert not names or net.load("save", folder) == 2.0


@pytest.mark.skipif(not KILLS, reason="make proof")
def test_a_save_killed_by_the_kernel_is_loaded_whole(net: Net, tmp_path: Path) -> None:
    killed = 0
    for number in range(KILLS):
        how = random.Random(number).choice(SETS)
        folder = tmp_path / str(number)
        net.save(how, folder, 1.0)
        child = fork(lambda how=how, folder=folder: [net.save(how, folder, value) for value in (1.0, 2.0) * 1000])
        time.sleep(0.05 + 0.2 * random.Random(number).random())
        os.kill(child, signal.SIGKILL)
        killed += ended(child) == -signal.SIGKILL
        assert net.load(how, folder) in (1.0, 2.0)
    assert killed == KILLS


# ----------------------------------------------------------------------------------------------------------- interrupted
# A handler may raise in a callback of the garbage collector, where Python can only print what it raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["save", "save_persistables"])
def test_a_save_that_a_signal_breaks_off_is_loaded_whole(net: Net, tmp_path: Path, how: str) -> None:
    net.save(how, tmp_path, 1.0)
    values = itertools.cycle((2.0, 1.0))
    interrupts(lambda: net.save(how, tmp_path, next(values)), lambda: net.load(how, tmp_path), 25)
    net.save(how, tmp_path, 2.0)
    assert tuple(sorted(os.listdir(tmp_path))) == WAYS[how].names


def test_loading_while_another_process_saves_gives_one_save(net: Net, tmp_path: Path) -> None:
    net.save("save_persistables", tmp_path, 1.0)
    child = fork(lambda: [net.save("save_persistables", tmp_path, value) for value in (1.0, 2.0) * 100_000])
    try:
        # At least a hundred loads; on a busy machine as many as it takes until the other process has saved in between.
        seen = {net.load("save_persistables", tmp_path) for _ in range(100)}
        end = time.monotonic() + HANG
        while len(seen) < 2 and time.monotonic() < end:
            seen.add(net.load("save_persistables", tmp_path))
    finally:
        os.kill(child, signal.SIGKILL)
        ended(child)
    assert seen == {1.0, 2.0}


def test_two_processes_that_save_at_once_leave_one_save(net: Net, tmp_path: Path) -> None:
    def saves(value: float) -> None:
        for _ in range(15):
            net.save("fluid.save_inference_model", tmp_path, value)

    children = [fork(lambda value=value: saves(value)) for value in (1.0, 2.0)]
    assert [ended(child) for child in children] == [0, 0]
    assert net.load("fluid.save_inference_model", tmp_path) in (1.0, 2.0)
    assert tuple(sorted(os.listdir(tmp_path))) == WAYS["fluid.save_inference_model"].names


def test_a_stage_that_another_save_sweeps_before_it_is_locked_is_made_anew(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, made = os.mkdir, []

    def swept(path: Any, *mode: int, **where: int) -> None:
        mkdir(path, *mode, **where)
        made.append(path)
        if ".tstatic-" in str(path) and len(made) == 1:
            os.rmdir(path, **where)

    monkeypatch.setattr(files.os, "mkdir", swept)
    net.save("save", tmp_path, 2.0)
    assert len(made) >= 2
    assert net.load("save", tmp_path) == 2.0
    assert tuple(sorted(os.listdir(tmp_path))) == WAYS["save"].names


# ------------------------------------------------------------------------------------------------------------- mixtures
@pytest.mark.parametrize("how", SETS)
def test_files_of_two_saves_are_refused_and_the_old_ones_named(net: Net, tmp_path: Path, how: str) -> None:
    net.save(how, tmp_path / "old", 1.0)
    net.save(how, tmp_path / "new", 2.0)
    names = WAYS[how].names
    for name in names:
        shutil.copytree(tmp_path / "new", tmp_path / "mixed", dirs_exist_ok=True)
        shutil.copyfile(tmp_path / "old" / name, tmp_path / "mixed" / name)
        with pytest.raises(CheckpointError, match="not of one save") as caught:
            net.load(how, tmp_path / "mixed")
        head = caught.value.what
        assert [other for other in names if f"mixed/{other} (saved" in head] == [name], head
    # Each save can still be copied as a whole.
    for kept, value in (("old", 1.0), ("new", 2.0)):
        shutil.copytree(tmp_path / kept, tmp_path / "mixed", dirs_exist_ok=True)
        assert net.load(how, tmp_path / "mixed") == value


def test_values_of_a_later_save_of_the_same_program_may_be_copied_alone(net: Net, tmp_path: Path) -> None:
    main, x, y = net.programs[1.0]
    for value, name in ((1.0, "old"), (2.0, "new")):
        net.fill(value)
        static.save_inference_model(str(tmp_path / name), [x], [y], net.exe)
        static.save(main, str(tmp_path / f"{name}-training"))
    shutil.copyfile(tmp_path / "new.pdiparams", tmp_path / "old.pdiparams")
    for suffix in ("pdparams", "pdopt"):
        shutil.copyfile(tmp_path / f"new-training.{suffix}", tmp_path / f"old-training.{suffix}")
    for load in (
        lambda: static.load_inference_model(str(tmp_path / "old"), net.exe),
        lambda: static.load(main, str(tmp_path / "old-training")),
    ):
        net.fill(0.0)
        load()
        assert np.array(static.global_scope().find_var("a").get_tensor()).tolist() == [2.0, 2.0]


def test_a_later_save_may_replace_a_part_of_an_earlier_one(net: Net, tmp_path: Path) -> None:
    main, x, y = net.programs[1.0]
    net.fill(1.0)
    fluid.io.save_persistables(net.exe, str(tmp_path), main)
    net.fill(2.0)
    fluid.io.save_vars(net.exe, str(tmp_path), main, predicate=lambda v: v.name == "b")
    net.fill(0.0)
    fluid.io.load_persistables(net.exe, str(tmp_path), main)
    assert [float(np.array(static.global_scope().find_var(n).get_tensor())[0]) for n in NAMES] == [1.0, 2.0, 1.0]
    # Both write m.pdmodel.
    static.save(main, str(tmp_path / "m"))
    static.save_inference_model(str(tmp_path / "m"), [x], [y], net.exe)
    static.load(main, str(tmp_path / "m"))
    static.load_inference_model(str(tmp_path / "m"), net.exe)
    # A program alone.
    fluid.io.save_inference_model(str(tmp_path / "f"), ["x"], [y], net.exe, main)
    other = net.programs[2.0]
    fluid.io.save_inference_model(str(tmp_path / "f"), ["x"], [other[2]], net.exe, other[0], program_only=True)
    fluid.io.load_inference_model(str(tmp_path / "f"), net.exe)


@pytest.mark.parametrize("how", ["save", "save_inference_model", "save_params"])
def test_files_saved_before_there_were_stamps_are_loaded(how: str) -> None:
    folder = Path(__file__).parents[1] / "data/format-1"
    net = Net()
    if how == "save":
        main = static.Program.parse_from_string((folder / "m.pdmodel").read_bytes())
        static.load(main, str(folder / "m"))
        assert static.global_scope().runs[main.uid][1] == 1
    elif how == "save_inference_model":
        program, names, fetched = static.load_inference_model(str(folder / "net"), net.exe)
        assert net.exe.run(program, feed={names[0]: np.ones((1, 2), "float32")}, fetch_list=fetched)[0].tolist() == [
            [12, 12]
        ]
    else:
        main = net.programs[1.0][0]
        fluid.io.load_vars(net.exe, str(folder / "vars"), vars=[main.global_block().var(n) for n in "ab"])
    assert all(np.array(static.global_scope().find_var(n).get_tensor()).tolist() == [3.0, 3.0] for n in "ab")


# -------------------------------------------------------------------------------------------------------- disk and folder
def test_a_disk_without_room_is_noticed_before_anything_is_written(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.save("save", tmp_path, 1.0)
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*real[:2], real[2], 1, 1, *real[5:]]))
    with monkeypatch.context() as patch:
        patch.setattr(files, "_stage", lambda *args: pytest.fail("it began to write"))
        with pytest.raises(CheckpointError, match=f"{real.f_frsize:,} bytes free") as caught:
            net.save("save", tmp_path, 2.0)
    assert str(caught.value.expected).startswith("room for")
    assert caught.value.__cause__ is None
    assert net.load("save", tmp_path) == 1.0


@pytest.mark.parametrize("how", SETS)
def test_a_disk_that_fills_up_between_two_files_leaves_the_old_save(
    net: Net, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.save(how, tmp_path, 1.0)
    opened = []
    real = os.fdopen

    def full(handle: int, mode: str, **kwargs: Any) -> Any:
        opened.append(handle)
        if len(opened) == 2:
            raise OSError(28, "No space left on device")
        return real(handle, mode, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        with pytest.raises(CheckpointError, match=r"No space left on device; [0-9,]+ bytes free") as caught:
            net.save(how, tmp_path, 2.0)
    assert "untouched" in str(caught.value)
    assert net.load(how, tmp_path) == 1.0
    assert tuple(sorted(os.listdir(tmp_path))) == WAYS[how].names


def test_a_new_file_takes_the_umask_and_an_old_one_keeps_its_mode(net: Net, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        net.save("save", tmp_path, 1.0)
        modes = {p.name: p.stat().st_mode & 0o7777 for p in tmp_path.iterdir()}
        assert modes == {"m.pdmodel": 0o640, "m.pdopt": 0o640, "m.pdparams": 0o640}
        (tmp_path / "m.pdparams").chmod(0o604)
        net.save("save", tmp_path, 2.0)
        modes = {p.name: p.stat().st_mode & 0o7777 for p in tmp_path.iterdir()}
        assert modes == {"m.pdmodel": 0o640, "m.pdopt": 0o640, "m.pdparams": 0o604}
    finally:
        os.umask(old)


def test_links_are_followed(net: Net, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "there").write_bytes(b"")
    (tmp_path / "m.pdparams").symlink_to("store/values")  # not there yet
    (tmp_path / "m.pdmodel").symlink_to(tmp_path / "there")
    net.save("save", tmp_path, 2.0)
    assert (tmp_path / "m.pdparams").is_symlink()
    assert (tmp_path / "m.pdmodel").is_symlink()
    assert (tmp_path / "store/values").stat().st_size > 100
    assert (tmp_path / "there").read_bytes().startswith(b"tstatic-program")
    assert net.load("save", tmp_path) == 2.0
    (tmp_path / "linked").symlink_to(tmp_path)
    net.save("save", tmp_path / "linked", 1.0)
    assert net.load("save", tmp_path) == 1.0


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("put", "words"),
    [(_fifo, "a FIFO"), (Path.mkdir, "a folder"), (lambda path: path.symlink_to("/dev/zero"), "a device")],
    ids=["fifo", "folder", "device"],
)
def test_what_is_no_file_is_neither_replaced_nor_read(net: Net, tmp_path: Path, put: Any, words: str) -> None:
    net.save("save", tmp_path, 1.0)
    (tmp_path / "m.pdparams").unlink()
    put(tmp_path / "m.pdparams")
    before = (tmp_path / "m.pdmodel").read_bytes()
    for call in (lambda: net.save("save", tmp_path, 2.0), lambda: net.load("save", tmp_path)):
        with pytest.raises(CheckpointError, match=words):
            call()
    assert (tmp_path / "m.pdmodel").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["m.pdmodel", "m.pdopt", "m.pdparams"]


def test_only_what_dead_processes_staged_is_swept(net: Net, tmp_path: Path) -> None:
    (tmp_path / ".tstatic-00000000.tmp").mkdir()
    (tmp_path / ".tstatic-00000000.tmp/m.pdparams").write_bytes(b"half")
    (tmp_path / ".m.pdparams.abcd1234.tmp").write_bytes(b"of an earlier version")
    kept = [".m.pdparams.mine.tmp", ".other.pdparams.abcd1234.tmp", ".tstatic-notes.tmp"]
    for name in kept:
        (tmp_path / name).write_bytes(b"")
    with files._staging(tmp_path) as alive:
        net.save("save", tmp_path, 1.0)
        assert sorted(os.listdir(tmp_path)) == sorted([alive.name, *kept, *WAYS["save"].names])


def test_what_cannot_be_moved_to_its_place_is_told(net: Net, tmp_path: Path) -> None:
    net.save("save", tmp_path, 1.0)
    (tmp_path / files.DONE).mkdir()
    (tmp_path / files.DONE / "folder").mkdir()
    (tmp_path / files.DONE / "folder/file").write_bytes(b"")
    (tmp_path / "folder").write_bytes(b"")
    with pytest.raises(CheckpointError, match="could not write"):
        net.save("save", tmp_path, 2.0)
    assert net.load("save", tmp_path) == 1.0


def test_a_plain_safetensors_file_is_loaded_by_its_name(tmp_path: Path) -> None:
    net = Net()
    data = checkpoint.encode(checkpoint.Checkpoint({name: np.full(2, 5.0, "float32") for name in NAMES}))
    (tmp_path / "plain.safetensors").write_bytes(data)
    static.load(net.programs[1.0][0], str(tmp_path / "plain.safetensors"))
    assert np.array(static.global_scope().find_var("c").get_tensor()).tolist() == [5.0, 5.0]
    assert set(static.load_program_state(str(tmp_path / "plain.safetensors"))) == set(NAMES)
    # The suffix comes first.
    net.fill(1.0)
    static.save(net.programs[1.0][0], str(tmp_path / "plain.safetensors"))
    assert static.load_program_state(str(tmp_path / "plain.safetensors"))["a"].tolist() == [1.0, 1.0]
