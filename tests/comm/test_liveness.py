"""What the monitor says of ranks, and who a mesh lets in; in one process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.patience import HANG
from tstatic import flags
from tstatic.comm.liveness import At, Monitor, odd_ones
from tstatic.comm.liveness.exits import describe
from tstatic.comm.liveness.mesh import Mesh, own_address
from tstatic.errors import RankFailedError, ShapeError


def _meshes(size: int, seconds: float = HANG) -> list[Mesh]:
    made = [Mesh(rank, size, "127.0.0.1") for rank in range(size)]
    addresses = {mesh.rank: mesh.address for mesh in made}
    threads = [threading.Thread(target=m.connect, args=(addresses, time.monotonic() + seconds)) for m in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


@pytest.fixture
def monitors() -> Iterator[list[Monitor]]:
    flags.set_flags({"FLAGS_step_timeout_s": 30.0})
    made = [Monitor(m.rank, m.size, m, end=lambda code: None) for m in _meshes(3)]
    yield made
    for one in made:
        one.leave()


def _until(condition: Any, seconds: float = HANG) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_ranks_say_to_a_meeting_reaches_all(monitors: list[Monitor]) -> None:
    for one in monitors:
        one.say(1, "meeting", {"rank": one.rank, "text": "é" * 100_000})
    _until(lambda: all(one.heard_all(1) for one in monitors))
    found = monitors[0].take(1)
    assert sorted(found) == [1, 2]
    assert found[2]["payload"] == {"rank": 2, "text": "é" * 100_000}
    assert not monitors[0].heard_all(1)


def test_all_share_the_verdict_that_one_began(monitors: list[Monitor], capfd: pytest.CaptureFixture[str]) -> None:
    monitors[2].accuse(0, "late", "did not come")
    _until(lambda: all(one.verdict for one in monitors))
    assert len({one.verdict for one in monitors}) == 1
    assert "rank 0 of 3 did not come" in str(monitors[1].error())
    assert "rank 0 of 3, which is this one, did not come" in str(monitors[0].error())
    assert capfd.readouterr().err.count("rank 0 did not come (seen by rank 2)") == 3


def test_a_verdict_is_told_to_all_that_asked_and_are_still_there(monitors: list[Monitor]) -> None:
    class Told:
        count = 0

        def tell(self) -> None:
            self.count += 1

    kept, gone = [Told(), Told()], Told()
    for one in (kept[0], gone, kept[1]):
        monitors[0].on_verdict(one.tell)
    count = gone.count
    del gone, one
    monitors[2].accuse(1, "late", "did not come")
    _until(lambda: all(one.count for one in kept))
    assert [count, *(one.count for one in kept)] == [0, 1, 1]


def test_of_two_accusations_the_earlier_counts_for_everybody(monitors: list[Monitor]) -> None:
    monitors[0].accuse(2, "late", "did not come")
    monitors[2].accuse(1, "late", "did not come either")
    _until(lambda: all(one.verdict for one in monitors))
    assert {one.verdict and one.verdict.rank for one in monitors} == {2}


def test_goodbyes_are_no_deaths_and_only_who_waits_for_more_complains(monitors: list[Monitor]) -> None:
    monitors[0].at = At(4, "sum", False)
    monitors[1].at = At(4, "sum", True)
    monitors[0].leave()
    time.sleep(1.0)
    assert monitors[1].verdict is None
    assert not monitors[2].accused
    monitors[1].at = At(5, "sum", True)
    _until(lambda: monitors[1].verdict and monitors[2].verdict)
    assert monitors[2].verdict is not None
    assert (monitors[2].verdict.rank, monitors[2].verdict.kind) == (0, "left")


def test_a_silent_rank_is_blamed_before_a_late_one_and_the_one_furthest_behind_first(monitors: list[Monitor]) -> None:
    monitors[0].at = At(9, "sum", True)
    monitors[1].at = At(7, "sum", False)
    monitors[2].at = At(5, "gather", False)
    monitors[2].current_op = lambda: "at conv2d (net.py:7)"
    _until(lambda: monitors[0]._peers[2].current_op and monitors[0]._peers[1].at.number)
    rank, kind, text = monitors[0].failed_rank(60.0)
    assert (rank, kind) == (2, "late")
    assert text == "did not come to sum (number 9) within 60 s; it is at conv2d (net.py:7)"


def test_who_is_in_another_collective_than_most_is_the_odd_one(monitors: list[Monitor]) -> None:
    for one, label in zip(monitors, ("gather", "sum", "sum"), strict=True):
        one.at = At(3, label, True)
    _until(lambda: all(one.verdict for one in monitors))
    assert {one.verdict and (one.verdict.rank, one.verdict.kind) for one in monitors} == {(0, "diverged")}


@pytest.mark.parametrize(
    ("labels", "odd", "usual"),
    [
        ({0: "a", 1: "a"}, [], "a"),
        ({0: "a", 1: "b"}, [1], "a"),
        ({0: "a", 1: "b", 2: "b"}, [0], "b"),
        ({0: "b", 1: "a", 2: "a", 3: "b"}, [1, 2], "b"),
    ],
)
def test_odd_ones_differ_from_most_and_for_a_draw_from_the_lowest(labels: Any, odd: list[int], usual: str) -> None:
    assert odd_ones(labels) == (odd, usual)


def test_a_mesh_lets_nobody_in_who_does_not_know_the_secret() -> None:
    first, second = Mesh(0, 2, "127.0.0.1"), Mesh(1, 2, "127.0.0.1")
    strangers = []
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b'{"rank": 1, "secret": "no"}\n', b"x" * 5000, b"[]\n"):
        strangers.append(socket.create_connection(("127.0.0.1", first.port)))
        strangers[-1].sendall(greeting)
    hung_up = socket.create_connection(("127.0.0.1", first.port))
    hung_up.close()
    addresses = {0: first.address, 1: second.address}
    thread = threading.Thread(target=second.connect, args=(addresses, time.monotonic() + HANG))
    thread.start()
    first.connect(addresses, time.monotonic() + HANG)
    thread.join()
    assert [*first._sockets] == [1]
    assert [*second._sockets] == [0]
    with pytest.raises(OSError, match=r"refused|reset"):
        socket.create_connection(("127.0.0.1", first.port))
    for one in (*strangers, first, second):
        one.close()


def test_a_rank_that_does_not_connect_is_named() -> None:
    mesh = Mesh(0, 3, "127.0.0.1")
    with pytest.raises(RankFailedError, match=r"ranks 1, 2 of 3 did not connect to rank 0"):
        mesh.connect({0: mesh.address}, time.monotonic() + 0.1)
    mesh.close()
    late = Mesh(1, 2, "127.0.0.1")
    gone = json.dumps({"host": "127.0.0.1", "port": mesh.port, "secret": ""})
    with pytest.raises(RankFailedError, match="rank 1 cannot reach rank 0"):
        late.connect({0: gone, 1: late.address}, time.monotonic() + 5.0)
    late.close()


def test_this_machine_is_reached_where_its_packets_leave() -> None:
    assert own_address("127.0.0.1", 1) == "127.0.0.1"
    assert own_address("localhost", 1) in ("127.0.0.1", "::1")


def test_an_error_is_told_to_the_others_with_operator_and_line() -> None:
    error = ShapeError("shapes do not fit", expected=1, received=2, op="matmul", where="net.py:12")
    assert describe(error) == "raised ShapeError: shapes do not fit in operator 'matmul', at net.py:12"
    with pytest.raises(ValueError, match="first") as caught:
        raise ValueError("first line\nsecond line")
    assert describe(caught.value).startswith("raised ValueError: first line, at ")
    assert "test_liveness.py:" in describe(caught.value)
    assert describe(KeyboardInterrupt()) == "raised KeyboardInterrupt"
