"""How ranks find each other, and how soon and by which name one is told that does not come; in one process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.comm.pool import free_port
from tstatic.comm import rendezvous
from tstatic.comm.rendezvous import ProcessInfo, Rendezvous, depart
from tstatic.errors import RankFailedError

Task = Callable[[], Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "LINGER", 0.3)


def launches(size: int) -> list[ProcessInfo]:
    port = free_port()
    return [ProcessInfo(rank, size, rank, "127.0.0.1", port, "a test") for rank in range(size)]


def meet(launch: ProcessInfo, seconds: float, before: Callable[[Rendezvous], None] = lambda meeting: None) -> Any:
    """One rank's part, with its own connections left out."""
    deadline = time.monotonic() + seconds
    try:
        meeting = Rendezvous(launch, (launch.address, launch.port), "0", deadline)
    except RankFailedError as error:
        return str(error)
    try:
        texts = meeting.exchange(f"text of {launch.rank}")
        before(meeting)
        meeting.leave()
    except RankFailedError as error:
        meeting.close(error)
        return str(error)
    return texts


def together(tasks: dict[int, Task]) -> tuple[dict[int, Any], float]:
    """Runs each rank's part in a thread; returns what they said, and after how many seconds the last was through."""
    found: dict[int, Any] = {}
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
        (b'{"refused": "rank 1 is there"}\n', "another run"),
    ],
)
def test_a_port_that_somebody_else_holds_is_told(answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
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
    tasks: dict[int, Task] = {r: lambda r=r: meet(here[r], 20.0, wait) for r in others}  # type: ignore[misc]
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


def test_strangers_and_doubles_at_the_desk_disturb_nobody() -> None:
    here = launches(2)
    double: list[str] = []

    def disturb(meeting: Rendezvous) -> None:
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", json.dumps({"rank": 7}).encode() + b"\n"):
            link = socket.create_connection(("127.0.0.1", here[0].port))
            link.sendall(said)
            open_links.append(link)
        double.append(meet(here[1], 2.0))

    open_links: list[socket.socket] = []
    found, _ = together({0: lambda: meet(here[0], 10.0), 1: lambda: meet(here[1], 10.0, disturb)})
    for link in open_links:
        link.close()
    assert found[0] == found[1] == {0: "text of 0", 1: "text of 1"}
    assert "rank 1 is there already" in double[0]
