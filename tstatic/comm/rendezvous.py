"""Lets the processes of a run find each other: rank 0 runs a server that tells all ranks if one does not join.

Each rank sends a text to the server and gets those of all. Its connection stays open until all ranks are connected with
each other, so that a rank that dies meanwhile is noticed at once, and every waiting rank is told which one it was.
"""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from tstatic.errors import RankFailedError

NO_LAUNCHER = "no launcher"
"""The ``source`` of a process that no launcher started."""
_LINE = 1 << 20
"""Bytes of the longest message; a peer that sends more is not a rank."""
LINGER = 1.0
"""Seconds for which the server of a failed run still answers ranks that connect."""
_PAUSE = 0.05
"""Seconds between attempts to reach the server, which may start later than this rank."""
_SLICE = 0.25
"""Most seconds of a wait for messages, after which the deadline is checked."""
_PROTOCOL = "tstatic"


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """This process's position among the processes of a run.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        local_rank: Number of this process on its machine.
        local_size: Number of processes on each machine; 0 if the launcher does not say, or they differ.
        address: Host of rank 0.
        port: Port on that host.
        source: The environment variables or properties that gave these values.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    address: str = ""
    port: int = 0
    source: str = NO_LAUNCHER
    local_size: int = 0


class _Link:
    """A connection on which messages are lines of JSON."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.rank = -1
        self._rest = b""

    def send(self, message: Any) -> None:
        # A rank that died, or does not read, is noticed when reading from it.
        with contextlib.suppress(OSError):
            # A rank that does not read must not hold up what the others are told.
            self.link.settimeout(1.0)
            self.link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Any] | None:
        """Returns the messages that have arrived, or ``None`` if the peer has closed; does not wait.

        Raises:
            ValueError: If the data is not a message.
        """
        self.link.settimeout(0.0)
        try:
            data = self.link.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None  # a peer that died resets the connection
        if not data:
            return None
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > _LINE:
            raise ValueError("too long")
        found = [json.loads(line) for line in lines]
        if not all(isinstance(one, dict) for one in found):
            raise ValueError("no message")
        return found


class Rendezvous:
    """One rank's part in the rendezvous.

    Args:
        launch: This process's position.
        address: Address of the server; with port 0, rank 0 chooses a port.
        run: A text that must be equal for processes of one run, such as the number of restarts.
        deadline: A time of ``time.monotonic``.

    Raises:
        RankFailedError: If another program holds the server's port.
    """

    def __init__(self, launch: ProcessInfo, address: tuple[str, int], run: str, deadline: float) -> None:
        self.launch = launch
        self.rank, self.size = launch.rank, launch.size
        self.address = address
        self.deadline = deadline
        self._run = run
        self._server: socket.socket | None = None
        # On rank 0: links to all other ranks; elsewhere: the link to the server, under 0.
        self._links: dict[int, _Link] = {}
        self._strangers: list[_Link] = []
        self._here: set[int] = set()
        self._texts: dict[int, str] = {}
        self._done: set[int] = set()
        self._told = False
        if self.rank == 0:
            self._listen()

    # ------------------------------------------------------------------------------------------------------------ all ranks
    def exchange(self, text: str) -> dict[int, str]:
        """Sends a text and returns those of all ranks.

        Raises:
            RankFailedError: If a rank dies or does not join before the deadline; the message names the rank.
        """
        if self.rank == 0:
            self._here, self._texts[0] = {0}, text
        else:
            self._call(text)
        while len(self._texts) < self.size:
            self._step(_SLICE)
        if self.rank == 0:
            self._tell({"all": self._texts})
        return dict(self._texts)

    def watch(self) -> None:
        """Raises the error that names the rank if one failed meanwhile; does not wait."""
        self._step(0.0)

    def leave(self) -> None:
        """Returns when all ranks are connected with each other; from then on they monitor each other.

        Raises:
            RankFailedError: If a rank dies or is not connected before the deadline.
        """
        self._done.add(self.rank)
        if self.rank:
            self._tell({"done": self.rank})
        # Nobody hangs up before all are done: until then, a closed connection means that its rank died.
        while len(self._done) < self.size:
            self._step(_SLICE)
        if self.rank == 0:
            self._tell({"finished": True})
        self.close()

    def close(self, error: BaseException | None = None, why: str = "") -> None:
        """Closes all connections, and tells the others if this rank failed.

        Args:
            error: The error for which this rank gives up.
            why: What this rank did, as the end of a sentence that begins with the rank.
        """
        if error is not None and not self._told:
            self._tell({"failed": self.rank, "text": why or f"raised {type(error).__name__}"})
        for link in (*self._links.values(), *self._strangers):
            link.link.close()
        if self._server is not None:
            self._server.close()

    def _tell(self, message: Any) -> None:
        for link in self._links.values():
            link.send(message)

    def _step(self, seconds: float) -> None:
        """Waits at most ``seconds`` for messages, and handles them."""
        links = [*self._links.values(), *self._strangers]
        sockets: list[Any] = [one.link for one in links] + ([self._server] if self._server is not None else [])
        ready = select.select(sockets, [], [], max(0.0, min(seconds, self.deadline - time.monotonic())))[0]
        for one in links:
            if one.link in ready:
                self._take(one)
        if self._server is not None and self._server in ready:
            with contextlib.suppress(OSError):
                self._strangers.append(_Link(self._server.accept()[0]))
        if time.monotonic() > self.deadline:
            raise self._late()

    def _take(self, link: _Link) -> None:
        try:
            messages = link.receive()
        except ValueError:
            # To another rank this is the server, which must speak
            # the protocol; a stranger at rank 0's port is sent away.
            if link.rank == 0:
                raise self._rank0_error("another program answers there, not a rank of this run") from None
            messages = None
        if messages is None:
            if link in self._strangers:
                self._strangers.remove(link)
                link.link.close()
                return
            if link.rank not in self._done:
                raise self._failed(link.rank, "died before all ranks were connected: its connection closed")
            self._links.pop(link.rank).link.close()
            return
        for message in messages:
            if "failed" in message:
                raise self._failed(int(message["failed"]), str(message["text"]))
            if self.rank == 0:
                self._serve(link, message)
            else:
                self._follow(message)

    def _failed(self, rank: int, text: str) -> RankFailedError:
        self._told = True
        self._tell({"failed": rank, "text": text})
        # Ranks that have not connected yet would wait until their time-out.
        if self._server is not None and len(self._here) < self.size - 1:
            self._tell_newcomers({"failed": rank, "text": text})
        return RankFailedError(
            f"rank {rank} of {self.size} {text}",
            expected=f"{self.size} processes that all start, as {self.launch.source} say",
            received=f"{len(self._here)} of them so far; this is rank {self.rank}",
            fix="look at that rank's own output and exit code",
        )

    def _tell_newcomers(self, message: Any) -> None:
        """Sends a message to ranks that connect shortly after the failure."""
        assert self._server is not None
        for link in self._strangers:
            link.send(message)
        end = min(self.deadline, time.monotonic() + LINGER)
        while (left := end - time.monotonic()) > 0:
            if select.select([self._server], [], [], left)[0]:
                with contextlib.suppress(OSError):
                    link = _Link(self._server.accept()[0])
                    self._strangers.append(link)
                    link.send(message)

    def _late(self) -> RankFailedError:
        missing = sorted(set(range(self.size)) - self._here)
        if not missing:
            slow = sorted(set(range(self.size)) - self._done)
            return self._failed(slow[0] if slow else 0, "did not connect to the others before the time-out")
        names = ", ".join(map(str, missing))
        self._told = True
        self._tell({"failed": missing[0], "text": f"did not start before the time-out (nothing from rank {names})"})
        return RankFailedError(
            f"only {len(self._here)} of {self.size} ranks have started",
            expected=f"{self.size} processes, as {self.launch.source} say",
            received=f"nothing from rank {names}",
            fix="look at the output of those ranks; raise FLAGS_rendezvous_timeout_s if they start slowly",
        )

    # --------------------------------------------------------------------------------------------------------------- rank 0
    def _listen(self) -> None:
        host, port = self.address
        try:
            if socket.has_dualstack_ipv6():
                self._server = socket.create_server(
                    ("", port), family=socket.AF_INET6, backlog=self.size + 128, dualstack_ipv6=True
                )
            else:
                self._server = socket.create_server(("", port), backlog=self.size + 128)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise RankFailedError(
                f"rank 0 of {self.size} cannot listen at port {port}" + (": another program holds it" if taken else ""),
                expected=f"a free port for {self.launch.source} to name",
                received=f"{type(error).__name__}: {error}",
                fix="choose a MASTER_PORT that is free; look for a process of an earlier run",
            ) from error
        self.address = host, int(self._server.getsockname()[1])

    def _serve(self, link: _Link, message: dict[str, Any]) -> None:
        if link.rank >= 0:
            if message.get("done") == link.rank:
                self._done.add(link.rank)
            return
        rank = message.get("rank")
        if message.get("protocol") != _PROTOCOL or not isinstance(rank, int) or not 0 < rank < self.size:
            self._strangers.remove(link)
            link.link.close()
            return
        # Before the run is compared, which this message does not name.
        if "left" in message:
            raise self._failed(rank, str(message["left"]))
        if message.get("run") != self._run or message.get("size") != self.size or rank in self._links:
            # A rank of another run with the same port, or the same rank started twice.
            why = f"rank {rank} is there already" if rank in self._links else f"{self._run}, {self.size} processes"
            link.send({"refused": why})
            self._strangers.remove(link)
            link.link.close()
            return
        self._strangers.remove(link)
        link.rank = rank
        self._links[rank] = link
        self._texts[rank] = str(message["text"])
        self._here.add(rank)
        self._tell({"here": sorted(self._here)})

    # --------------------------------------------------------------------------------------------------------- other ranks
    def _call(self, text: str) -> None:
        why = ""
        while True:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise self._rank0_error(why)
            try:
                # Five seconds at most: an address that drops packets must not use up the time for further attempts.
                link = _Link(socket.create_connection(self.address, min(left, 5.0)))
                break
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
            time.sleep(min(_PAUSE, max(0.0, self.deadline - time.monotonic())))
        link.rank = 0
        self._links[0] = link
        link.send({"protocol": _PROTOCOL, "run": self._run, "size": self.size, "rank": self.rank, "text": text})
        # The server answers at once; another program that holds the port does not.
        while not self._here:
            if time.monotonic() > self.deadline - _PAUSE:
                raise self._rank0_error(
                    "a connection without an answer: another program holds that port, or rank 0 hangs"
                )
            self._step(min(_SLICE, self.deadline - _PAUSE - time.monotonic()))

    def _follow(self, message: dict[str, Any]) -> None:
        if "refused" in message:
            raise self._rank0_error(f"the rank 0 of another run: {message['refused']}")
        if "here" in message:
            self._here = set(message["here"])
        if "all" in message:
            self._texts = {int(rank): text for rank, text in message["all"].items()}
        if "finished" in message:
            self._done = set(range(self.size))

    def _rank0_error(self, why: str) -> RankFailedError:
        return unreachable(self.launch, "rank 0", self.address, why, ": rank 0 does not answer")


def unreachable(
    launch: ProcessInfo, server: str, address: tuple[str, int], received: str, what: str = ""
) -> RankFailedError:
    """Returns the error about a server, ``rank 0`` or ``torchrun``, through which a rank should find the others.

    Args:
        launch: This process's position.
        server: Who should answer.
        address: Where it should.
        received: What came instead of an answer.
        what: The end of the first sentence.
    """
    host, port = address
    return RankFailedError(
        f"rank {launch.rank} of {launch.size} cannot meet the others{what}",
        expected=f"{server} at {host}:{port}, from {launch.source}",
        received=received,
        fix="look at rank 0's own output; choose a MASTER_PORT that is free; open the network between the machines",
    )


def depart(launch: ProcessInfo, why: str, patience: float = 0.0) -> bool:
    """Tells the server that this rank will not join; returns whether it could be reached.

    Args:
        launch: The position of this process, which has not joined.
        why: What it did, as the end of a sentence that begins with the rank.
        patience: Seconds to wait for the server to start.
    """
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError), socket.create_connection((launch.address, launch.port), 0.5) as link:
            link.sendall(json.dumps({"protocol": _PROTOCOL, "rank": launch.rank, "left": why}).encode() + b"\n")
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


__all__ = ["LINGER", "NO_LAUNCHER", "ProcessInfo", "Rendezvous", "depart", "unreachable"]
