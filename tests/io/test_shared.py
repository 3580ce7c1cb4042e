"""Workers pass batches in shared memory: the same values, no copies, nothing left over."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.patience import HANG
from tests.io.test_data_loader import Calls, values
from tstatic import io
from tstatic.io.collate import collate
from tstatic.io.shared import MOST_SEGMENTS, SMALL, SharedReader, SharedWriter

Ends = tuple[SharedWriter, SharedReader]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = Pipe()
    writer, reader = SharedWriter(theirs, True), SharedReader(ours)
    yield writer, reader
    writer.close()
    reader.close()


def passed(ends: Ends, make: Any) -> Any:
    writer, reader = ends
    writer.begin(reader.freed())
    writer.send(make(writer.empty))
    return reader.receive()


def mapped() -> int:
    return Path("/proc/self/maps").read_text().count("tstatic batch")


def test_messages_arrive_as_they_are(ends: Ends) -> None:
    big, small = np.arange(SMALL, dtype="float32"), np.arange(3)
    for message in (
        {"a": [big, small], "b": (big[::2], "text", None)},
        [np.asfortranarray(big.reshape(64, -1)), big[::-1], np.zeros((0, 3))],
        np.array(["text"] * SMALL, object),
        np.ones(SMALL, "datetime64[s]"),
    ):
        found = passed(ends, lambda empty, message=message: message)
        np.testing.assert_equal(found, message)


def test_a_batch_is_stacked_where_it_is_read(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(np.full(SMALL, i, "float32"), i) for i in range(4)]
    copies: list[int] = []
    room = SharedWriter._room
    monkeypatch.setattr(SharedWriter, "_room", lambda self, size: copies.append(size) or room(self, size))
    for _ in range(5):
        pixels, labels = passed(ends, lambda empty: collate(rows, empty))
        assert pixels.mean(axis=1).tolist() == labels.tolist() == [0, 1, 2, 3]
        pixels += 1  # the reader's own
        del pixels, labels
    assert mapped() == 2  # the writer's view, and the reader's
    assert copies == [SMALL * 16] * 6  # asked twice for the first batch only: before there is a segment, and for a copy


def test_a_segment_is_used_again_when_its_arrays_are_gone(ends: Ends) -> None:
    def batch(value: int) -> Any:
        return passed(ends, lambda empty: np.full(SMALL, value))

    kept = batch(1)
    part = kept[5:7]
    other = batch(2)
    del kept
    assert batch(3)[0] == 3
    assert [part.tolist(), other[0]] == [[1, 1], 2]
    del part, other
    gc.collect()
    assert len({batch(i).__array_interface__["data"][0] for i in range(6)}) <= 3
    assert mapped() <= 6


def test_a_larger_batch_replaces_a_segment(ends: Ends) -> None:
    for size in (SMALL, 2 * SMALL, 9 * SMALL, SMALL):
        assert passed(ends, lambda empty, size=size: np.ones(size, "uint8")).sum() == size
    assert mapped() == 2


def test_batches_may_all_be_kept(ends: Ends) -> None:
    kept = [passed(ends, lambda empty, i=i: np.full(SMALL, i)) for i in range(MOST_SEGMENTS + 9)]
    assert [int(one[-1]) for one in kept] == list(range(MOST_SEGMENTS + 9))
    assert mapped() == 2 * MOST_SEGMENTS
    del kept
    assert int(passed(ends, lambda empty: np.full(SMALL, 7))[0]) == 7
    assert mapped() == MOST_SEGMENTS + 1 or mapped() == 2 * MOST_SEGMENTS


def test_without_memory_files(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert passed(ends, lambda empty: np.ones(SMALL)).sum() == SMALL


# --------------------------------------------------------------------------------------------------------------- loaders
@pytest.mark.parametrize("use", [True, False])
def test_arrays_of_a_loader(use: bool) -> None:
    data = Calls(lambda i: (np.full((8, 1024), i, "float32"), {"n": i}), 7)
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "use_shared_memory": use}
    for persistent in (False, True):
        loader = io.DataLoader(data, persistent_workers=persistent, **options)
        for _ in range(3):
            kept = list(loader)
            assert [np.array(pixels)[:, 0, 0].tolist() for pixels, _ in kept] == [[0, 1], [2, 3], [4, 5], [6]]
            assert [values(rest["n"]) for _, rest in kept] == [[0, 1], [2, 3], [4, 5], [6]]
            assert bool(mapped()) is use
    del kept, loader
    gc.collect()
    assert mapped() == 0


def test_descriptors_are_given_back() -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    data = Calls(lambda i: np.full(SMALL, i), 8)
    list(io.DataLoader(data, num_workers=2))
    before = files()
    for _ in range(3):
        next(iter(io.DataLoader(data, num_workers=2)))
    gc.collect()
    assert files() == before


SCRIPT = """
import os, signal, sys, time
import numpy as np
from tstatic import io

class Slow(io.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        if i > 3:
            time.sleep(WAIT)
        return np.full(10000, i)

if __name__ == "__main__":
    BEFORE
    for number, batch in enumerate(io.DataLoader(Slow(), batch_size=1, num_workers=2, worker_init_fn=INIT)):
        print(int(np.array(batch)[0, 0]), flush=True)
        if number == LAST:
            break
    print("done", flush=True)
"""


def script(folder: Path, **parts: str) -> subprocess.Popen[str]:
    text = SCRIPT
    for name, value in {"BEFORE": "pass", "INIT": "None", "LAST": "3", "WAIT": "100", **parts}.items():
        text = text.replace(name, value)
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def ends_with_its_group(process: subprocess.Popen[str]) -> bool:
    """Whether all processes of the script end within seconds."""
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        alive = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                alive += [fields] if fields[0] not in "ZX" and int(fields[2]) == process.pid else []
        if not alive:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_over_after_a_signal(how: signal.Signals, tmp_path: Path) -> None:
    left = set(os.listdir("/dev/shm"))
    process = script(tmp_path, LAST="-1")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(4)] == ["0\n", "1\n", "2\n", "3\n"]
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as Ctrl-C does: also to the workers
    else:
        process.send_signal(how)
    _, said = process.communicate(timeout=HANG)
    assert said.rstrip().endswith("KeyboardInterrupt") if how == signal.SIGINT else said == ""
    assert ends_with_its_group(process)
    assert set(os.listdir("/dev/shm")) <= left


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"BEFORE": "signal.signal(signal.SIGTERM, lambda *_: None)"},
        {"INIT": "lambda number: signal.signal(signal.SIGTERM, signal.SIG_IGN)"},
        {"BEFORE": "import threading; threading.Thread(target=time.sleep, args=(0.5,)).start()"},
        {"BEFORE": "import multiprocessing; multiprocessing.set_start_method('spawn')"},
    ],
    ids=["plain", "own handler", "deaf workers", "beside threads", "spawn"],
)
def test_a_loader_that_is_left_early_ends_its_workers(parts: dict[str, str], tmp_path: Path) -> None:
    process = script(tmp_path, **parts)
    assert process.communicate(timeout=HANG) == ("0\n1\n2\n3\ndone\n", "")
    assert process.returncode == 0
    assert ends_with_its_group(process)


def test_readers_in_processes_end_in_spite_of_a_handler(tmp_path: Path) -> None:
    text = """
        import signal
        import tstatic as paddle
        signal.signal(signal.SIGTERM, lambda *_: None)
        samples = paddle.reader.multiprocess_reader([lambda: iter(range(10**9))])()
        print(next(samples))
        samples.close()
    """
    path = tmp_path / "readers.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=HANG)
    assert (done.stdout, done.stderr) == ("0\n", "")
