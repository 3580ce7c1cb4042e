"""How ranks find each other, and how soon and by which name one is told that does not come; in one process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.comm.pool import free_port
from tstatic.comm import rendezvous
from tstatic.comm.rendezvous import ProcessInfo, Rendezvous, depart
from tstatic.comm.rendezvous.admission import Admission, Claimant
from tstatic.comm.rendezvous.door import Door
from tstatic.errors import RankFailedError

Task = Callable[[], Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "LINGER", 0.3)


def launches(size: int) -> list[ProcessInfo]:
    port = free_port()
    return [ProcessInfo(rank, size, rank, "127.0.0.1", port, "a test") for rank in range(size)]


def meet(
    launch: ProcessInfo,
    seconds: float,
    before: Callable[[Rendezvous], None] = lambda meeting: None,
    after: Callable[[Door], None] = lambda door: None,
    me: Claimant | None = None,
) -> Any:
    """One rank's part, with its own connections left out."""
    deadline = time.monotonic() + seconds
    try:
        meeting = Rendezvous(launch, (launch.address, launch.port), "0", deadline, me)
    except RankFailedError as error:
        return str(error)
    try:
        texts = meeting.exchange(f"text of {launch.rank}")
        before(meeting)
        door = meeting.leave()
    except RankFailedError as error:
        meeting.close(error)
        return str(error)
    if door is not None:
        after(door)
        door.close()
    return texts


def together(tasks: dict[Any, Task]) -> tuple[dict[Any, Any], float]:
    """Runs each rank's part in a thread; returns what they said, and after how many seconds the last was through."""
    found: dict[Any, Any] = {}
    threads = [threading.Thread(target=lambda r=r, t=t: found.update({r: t()}), daemon=True) for r, t in tasks.items()]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in threads), found
    return found, time.monotonic() - start


def test_all_ranks_get_what_each_left_in_any_order() -> None:
    here = launches(4)

    def late() -> Any:
        time.sleep(0.2)
        return meet(here[0], 10.0)

    found, _ = together({r: lambda r=r: meet(here[r], 10.0) for r in (1, 2, 3)} | {0: late})  # type: ignore[misc]
    assert found == {rank: {r: f"text of {r}" for r in range(4)} for rank in range(4)}


def test_a_rank_that_never_comes_is_named_by_all_after_the_time_out() -> None:
    here = launches(3)
    found, seconds = together({r: lambda r=r: meet(here[r], 0.6) for r in (0, 2)})  # type: ignore[misc]
    assert 0.5 < seconds < 2.6
    assert all("rank 1" in said for said in found.values()), found
    assert any("only 2 of 3 ranks have started" in said and "nothing from rank 1" in said for said in found.values())


def test_a_rank_0_that_never_comes_is_named_after_the_time_out() -> None:
    here = launches(2)
    found, seconds = together({1: lambda: meet(here[1], 0.6)})
    assert 0.5 < seconds < 2.6
    assert "rank 0 does not answer" in found[1]
    assert "refused" in found[1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "another program holds that port"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a rank of this run"),
        (b"[1]\n", "not a rank of this run"),
    ],
)
def test_a_port_that_somebody_else_holds_is_told(answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            # Until the port is closed, whenever that is.
            with contextlib.suppress(OSError):
                while True:
                    link, _ = other.accept()
                    links.append(link)
                    link.sendall(answer)

        links: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        port = other.getsockname()[1]
        here = [ProcessInfo(rank, 2, rank, "127.0.0.1", port, "a test") for rank in range(2)]
        found, seconds = together({r: lambda r=r: meet(here[r], 0.6) for r in (0, 1)})  # type: ignore[misc]
        for link in links:
            link.close()
    assert seconds < 2.6
    assert f"cannot listen at port {port}: another program holds it" in found[0]
    assert f"rank 0 at 127.0.0.1:{port}" in found[1]
    assert told in found[1]


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("when", ["before all came", "before all are connected"])
def test_a_rank_that_dies_before_the_first_meeting_is_named_at_once_by_all(victim: int, when: str) -> None:
    here = launches(4)
    gone = threading.Event()

    def die() -> Any:
        meeting = Rendezvous(here[victim], (here[victim].address, here[victim].port), "0", time.monotonic() + 20.0)
        if when == "before all came":
            meeting.deadline = time.monotonic() + 0.5
            meeting._tell = lambda message: None  # type: ignore[method-assign] - a killed process tells nothing
            with pytest.raises(RankFailedError):
                meeting.exchange("of the victim")
        else:
            meeting.exchange("of the victim")
        for link in meeting._links.values():
            link.link.close()
        if meeting._server is not None:
            meeting._server.close()
        gone.set()

    def wait(meeting: Rendezvous) -> None:
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            meeting.watch()
            time.sleep(0.01)

    others = [r for r in range(4) if r != victim]
    if when == "before all came":
        others = others[:-1]
    tasks: dict[Any, Task] = {r: lambda r=r: meet(here[r], 20.0, wait) for r in others}  # type: ignore[misc]
    found, seconds = together({**tasks, victim: die})
    assert seconds < 8.0
    for rank in others:
        assert f"rank {victim} of 4 died before all ranks were connected" in found[rank], found


def test_a_rank_that_leaves_without_having_come_says_so() -> None:
    here = launches(3)

    def leave() -> bool:
        return depart(here[2], "raised ValueError: no data, at train.py:3", 5.0)

    found, seconds = together({0: lambda: meet(here[0], 20.0), 1: lambda: meet(here[1], 20.0), 2: leave})
    assert found[2]
    assert seconds < 8.0
    for rank in (0, 1):
        assert "rank 2 of 3 raised ValueError: no data, at train.py:3" in found[rank]
    assert not depart(here[2], "nobody is there any more")


def test_strangers_at_the_port_disturb_nobody() -> None:
    here = launches(2)
    deep = b'{"rank": ' + b"[" * 100_000 + b"\n"

    def disturb(meeting: Rendezvous) -> None:
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", json.dumps({"rank": 7}).encode() + b"\n", deep):
            link = socket.create_connection(("127.0.0.1", here[0].port))
            link.sendall(said)
            open_links.append(link)

    open_links: list[socket.socket] = []
    found, _ = together({0: lambda: meet(here[0], 10.0), 1: lambda: meet(here[1], 10.0, disturb)})
    for link in open_links:
        link.close()
    assert found[0] == found[1] == {0: "text of 0", 1: "text of 1"}


# ------------------------------------------------------------------------------------------------------- two jobs, one port
def process(number: int, age: float = 0.0) -> Claimant:
    return Claimant(f"machine{number % 2}", 1000 + number, f"token of {number}", age)


def test_a_rank_that_two_processes_claim_is_refused_on_both_sides() -> None:
    """Two jobs of one script that name one port must not become one job."""
    here = launches(4)
    tasks: dict[Any, Task] = {
        ("first", 0): lambda: meet(here[0], 20.0, me=process(10)),
        ("first", 3): lambda: meet(here[3], 20.0, me=process(13)),
        ("second", 1): lambda: meet(here[1], 20.0, me=process(21)),
        ("second", 3): lambda: meet(here[3], 20.0, me=process(23)),
    }
    found, seconds = together(tasks)
    assert seconds < 10.0
    for (_job, _rank), said in found.items():
        assert "rank 3" in said
        for name in ("process 1013 on machine1", "process 1023 on machine1"):
            assert name in said, found
        assert "choose another MASTER_PORT" in said
    refused = [said for said in found.values() if f"was not admitted at port {here[0].port}" in said]
    assert len(refused) == 1


def test_a_rank_0_that_two_processes_claim_is_refused_on_both_sides() -> None:
    here = launches(3)
    first = threading.Event()

    def later() -> Any:
        first.wait(10.0)
        return meet(here[0], 20.0, me=process(20))

    def early() -> Any:
        meeting = Rendezvous(here[0], (here[0].address, here[0].port), "0", time.monotonic() + 20.0, process(10))
        first.set()
        with pytest.raises(RankFailedError) as caught:
            meeting.exchange("")
        meeting.close()
        return str(caught.value)

    found, _ = together({0: early, "other": later, 1: lambda: meet(here[1], 20.0, me=process(11))})
    for said in found.values():
        assert "process 1010 on machine0" in said, found
        assert "process 1020 on machine0" in said, found


@pytest.mark.parametrize(
    ("age", "rank", "told"),
    [(1000.0, 1, [1]), (1000.0, 0, [0]), (0.0, 1, []), (0.0, 0, [])],
    ids=["it may be ours", "it may be our rank 0", "started later", "a rank 0 that started later"],
)
def test_a_job_that_trains_keeps_its_port_and_ends_only_for_a_process_as_old_as_itself(
    age: float, rank: int, told: list[int]
) -> None:
    """A job that is started later cannot harm one that trains; of jobs that start together neither may go on."""
    here = launches(2)
    doubles: list[tuple[int, str]] = []
    said: list[Any] = []

    def watch(door: Door) -> None:
        door.watch(lambda number, text: doubles.append((number, text)), lambda: False)
        said.append(meet(here[rank], 10.0, me=process(7, age)))

    together({0: lambda: meet(here[0], 10.0, after=watch), 1: lambda: meet(here[1], 10.0)})
    assert f"rank {rank} of 2 was not admitted at port {here[0].port}" in said[0]
    assert "process 1007 on machine1" in said[0]
    assert [number for number, _ in doubles] == told
    for _, text in doubles:
        assert "process 1007 on machine1" in text
        assert "two jobs" in text


@pytest.mark.parametrize("rank", [0, 1])
def test_the_next_run_waits_for_the_port_of_one_that_is_failing(rank: int) -> None:
    here = launches(2)
    ours: list[Door] = []

    def watch(door: Door) -> None:
        door.watch(lambda *_: None, lambda: True)
        ours.append(door)
        over.wait(20.0)

    over = threading.Event()
    found: dict[Any, Any] = {}

    def again() -> None:
        next_run = {r: lambda r=r: meet(here[r], 20.0, me=process(r)) for r in (0, 1)}  # type: ignore[misc]
        first = threading.Thread(target=lambda: found.update({rank: next_run[rank]()}))
        first.start()
        time.sleep(0.3)
        over.set()
        found[1 - rank] = next_run[1 - rank]()
        first.join()

    together(
        {
            0: lambda: meet(here[0], 20.0, after=watch),
            1: lambda: meet(here[1], 20.0),
            "next": lambda: [_until(lambda: bool(ours)), again()],
        }
    )
    assert found == {r: {0: "text of 0", 1: "text of 1"} for r in (0, 1)}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("formed", [False, True])
def test_jobs_that_launchers_name_are_told_apart(formed: bool) -> None:
    here = [replace(one, job="SLURM 1.0") for one in launches(2)]
    other = replace(here[1], job="SLURM 2.0")
    said: list[Any] = []
    doubles: list[Any] = []

    def intrude(*_: Any) -> None:
        said.append(meet(other, 10.0, me=process(9, 1000.0)))
        assert not formed or not doubles
        said.append(depart(other, "died"))

    def watch(door: Door) -> None:
        door.watch(lambda *told: doubles.append(told), lambda: False)
        if formed:
            intrude()

    before = (lambda _: None) if formed else intrude
    found, _ = together({0: lambda: meet(here[0], 10.0, after=watch), 1: lambda: meet(here[1], 10.0, before)})
    assert found == {r: {0: "text of 0", 1: "text of 1"} for r in (0, 1)}
    assert "the port belongs to job 'SLURM 1.0', and this rank belongs to job 'SLURM 2.0'" in said[0]
    assert not doubles


def test_a_forked_child_does_not_keep_the_port() -> None:
    """A worker of a loader outlives its rank by moments; the next run must find the port free."""
    here = launches(2)
    kept: list[int] = []

    def fork(door: Door) -> None:
        door.watch(lambda *_: None, lambda: False)
        kept.append(start_child())

    def start_child() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            time.sleep(60.0)
            os._exit(0)
        return pid

    try:
        together({0: lambda: meet(here[0], 10.0, after=fork), 1: lambda: meet(here[1], 10.0)})

        def free() -> bool:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", here[0].port)):
                return True
            return False

        _until(free)  # the child lives on, and has let go of it
    finally:
        for pid in kept:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_claimant_is_one_process_with_its_age() -> None:
    first, again = Claimant.here(), Claimant.here()
    assert (first.pid, first.token) == (os.getpid(), again.token)
    assert 0.0 < first.age <= again.age
    assert Claimant.of(Admission(0, 1, "", "0", first).request()) == first
    for lacking in ("host", "pid", "token", "age"):
        message = Admission(0, 1, "", "0", first).request()
        del message[lacking]
        with pytest.raises(ValueError, match="no claimant"):
            Claimant.of(message)
