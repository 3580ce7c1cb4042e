"""Messages between a loader and its workers: whole ones, ones that stop in the middle, and workers that die unseen."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import io
from tstatic.io import shared
from tstatic.io.errors import DataError
from tstatic.io.messages import _LENGTH, receive_file, receive_message, send_message
from tstatic.io.watch import Watch


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_message_arrives_whole(ends: tuple[socket.socket, socket.socket], size: int) -> None:
    data = np.random.default_rng(0).bytes(size)
    sender = threading.Thread(target=send_message, args=(ends[0], data))
    sender.start()
    assert receive_message(ends[1]) == data
    sender.join()


def test_a_file_follows_its_message(ends: tuple[socket.socket, socket.socket]) -> None:
    reading, writing = os.pipe()
    send_message(ends[0], b"here")
    socket.send_fds(ends[0], [b"f"], [reading])
    assert receive_message(ends[1]) == b"here"
    got = receive_file(ends[1])
    os.write(writing, b"x")
    assert os.read(got, 1) == b"x"
    for one in (reading, writing, got):
        os.close(one)
    ends[0].close()
    with pytest.raises(EOFError):
        receive_file(ends[1])
    with pytest.raises(EOFError):
        receive_message(ends[1])


def _sleeper() -> Any:
    process = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("there", [0, 4, _LENGTH.size, _LENGTH.size + 10])
@pytest.mark.parametrize("handle", [True, False])
def test_a_wait_ends_within_a_message_at_its_time_or_with_the_process(
    ends: tuple[socket.socket, socket.socket], there: int, handle: bool
) -> None:
    process = _sleeper()
    watch = Watch(process)
    if not handle:
        watch.close()
    ends[0].send((_LENGTH.pack(1000) + bytes(1000))[:there])
    with pytest.raises(TimeoutError):
        receive_message(ends[1], watch.until(time.monotonic() + 0.05))
    process.kill()
    with pytest.raises(EOFError):
        receive_message(ends[1], watch.until(None))
    with pytest.raises((EOFError, TimeoutError)):
        send_message(ends[1], bytes(50_000_000), watch.until(time.monotonic() + 60.0))
    watch.close()


def test_the_last_message_of_a_process_that_ended_is_read(ends: tuple[socket.socket, socket.socket]) -> None:
    process = _sleeper()
    watch = Watch(process)
    process.kill()
    process.join()
    send_message(ends[0], b"farewell")
    wait = watch.until(None)
    wait(ends[1], select.POLLIN)
    assert receive_message(ends[1], wait) == b"farewell"
    with pytest.raises(EOFError):
        receive_message(ends[1], wait)
    watch.close()


# --------------------------------------------------------------------------------------------------------------- loaders
def _stop_in_the_middle(_: int) -> None:
    """Makes a worker send half of each message."""

    def half(link: socket.socket, data: bytes, *_: Any) -> None:
        link.sendall(_LENGTH.pack(len(data)) + data[: len(data) // 2])
        signal.pause()

    shared.send_message = half


@pytest.mark.parametrize("share", [True, False])
def test_the_timeout_is_kept_in_the_middle_of_a_message(share: bool) -> None:
    """A worker that stops while it sends must not hold up the loader for ever."""
    loader = io.DataLoader(
        [np.zeros(50_000)] * 2, num_workers=1, timeout=0.3, worker_init_fn=_stop_in_the_middle, use_shared_memory=share
    )
    with pytest.raises(DataError, match=r"worker 0 did not give a batch in 0.3 s"):
        list(loader)


def test_the_timeout_is_kept_while_a_worker_takes_no_task() -> None:
    def stop(_: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    tasks = [[0] * 2_000_000] * 8  # more than a pipe holds
    loader = io.DataLoader([1], num_workers=1, timeout=0.3, worker_init_fn=stop, batch_sampler=tasks, prefetch_factor=8)
    with pytest.raises(DataError, match=r"worker 0 did not give a batch in 0.3 s"):
        next(iter(loader))


class _Parent(io.Dataset):
    """Its worker starts a process that lives on and holds the pipe, then dies."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        if i == 2:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pause()
            self.note.write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return i


@contextlib.contextmanager
def _ended(note: Path) -> Iterator[None]:
    try:
        yield
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)


def test_a_child_that_holds_the_pipe_does_not_hide_that_a_worker_died(tmp_path: Path) -> None:
    note = tmp_path / "child"
    with _ended(note), pytest.raises(DataError, match="was killed by SIGKILL"):
        list(io.DataLoader(_Parent(note), num_workers=1))


def test_a_child_that_holds_the_pipe_does_not_hide_that_a_reader_died(tmp_path: Path) -> None:
    dataset = _Parent(tmp_path / "child")
    reader = paddle.reader.multiprocess_reader([lambda: (dataset[i] for i in range(4))])
    with _ended(dataset.note), pytest.raises(DataError, match="a process of multiprocess_reader failed"):
        list(reader())


def test_workers_that_the_system_refuses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("tstatic.io.workers.start_forked", refuse)
    with pytest.raises(DataError, match="DataLoader worker 0 of 2 could not be started"):
        list(io.DataLoader([1], num_workers=2))
