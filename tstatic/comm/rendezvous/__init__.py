"""Lets the processes of a run find each other: rank 0 runs a server that tells all ranks if one does not join.

Each rank sends a text to the server and gets those of all. Its connection stays open until all ranks are connected with
each other, so that a rank that dies meanwhile is noticed at once, and every waiting rank is told which one it was.

* ``launch``  this process's rank, from the launcher's environment
* ``joining``  connects the processes that a launcher started
* ``admission``, ``door``, ``links``  which process may take a rank, a running job's port, and messages before that
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import time
from dataclasses import dataclass
from typing import Any

from tstatic.comm.rendezvous.admission import OTHER_PORT, Admission, Claimant, refused
from tstatic.comm.rendezvous.door import Door
from tstatic.comm.rendezvous.links import Link, readable
from tstatic.errors import RankFailedError

NO_LAUNCHER = "no launcher"
"""The ``source`` of a process that no launcher started."""
LINGER = 1.0
"""Seconds for which the server of a failed run still answers ranks that connect, which would wait for their time-out."""
_PAUSE = 0.05
"""Seconds between attempts to reach the server, which may start later than this rank."""
_SLICE = 0.25
"""Most seconds of a wait for messages, after which the deadline is checked."""
_ANSWER = 2.0
"""Seconds that whoever holds the port of rank 0 has to say who it is."""
_FREED = 5.0
"""Seconds for which rank 0 waits for a port whose holder does not answer any more, as one that is ending."""


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
        job: The launcher's name of this job, which another start does not have; empty if it gives none.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    address: str = ""
    port: int = 0
    source: str = NO_LAUNCHER
    local_size: int = 0
    job: str = ""


class Rendezvous:
    """One rank's part in the rendezvous.

    Args:
        launch: This process's position.
        address: Address of the server; with port 0, rank 0 chooses a port.
        run: A text that must be equal for processes of one run, such as the number of restarts.
        deadline: A time of ``time.monotonic``.
        me: This process.

    Raises:
        RankFailedError: If another program, or another job, holds the server's port.
    """

    def __init__(
        self, launch: ProcessInfo, address: tuple[str, int], run: str, deadline: float, me: Claimant | None = None
    ) -> None:
        self.launch = launch
        self.rank, self.size = launch.rank, launch.size
        self.address = address
        self.deadline = deadline
        self.admission = Admission(launch.rank, launch.size, launch.job, run, me)
        self._server: socket.socket | None = None
        # On rank 0: links to all other ranks; elsewhere: the link to the server, under 0.
        self._links: dict[int, Link] = {}
        self._strangers: list[Link] = []
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

    def leave(self) -> Door | None:
        """Returns when all ranks are connected with each other; from then on they monitor each other.

        Returns:
            On rank 0 the port, which keeps other jobs away until it is closed; ``None`` on the others.

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
        # Taken out first: `close` must not close the port, which the door keeps.
        server, self._server = self._server, None
        self.close()
        return None if server is None else Door(server, self.admission)

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

    def absent(self, rank: int, text: str) -> RankFailedError:
        """Returns the error about a rank that will not come, of which all others are told.

        Args:
            rank: The rank.
            text: What it did, as the end of a sentence that begins with the rank.
        """
        return self._failed(rank, text)

    def _tell(self, message: Any) -> None:
        for link in self._links.values():
            link.send(message)

    def _step(self, seconds: float) -> None:
        """Waits at most ``seconds`` for messages, and handles them."""
        links = [*self._links.values(), *self._strangers]
        sockets = [one.link for one in links] + ([self._server] if self._server is not None else [])
        ready = readable(sockets, min(seconds, self.deadline - time.monotonic()))
        for one in links:
            if one.link in ready:
                self._take(one)
        if self._server is not None and self._server in ready:
            with contextlib.suppress(OSError):
                self._strangers.append(Link(self._server.accept()[0]))
        if time.monotonic() > self.deadline:
            raise self._late()

    def _take(self, link: Link) -> None:
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
            if link.rank == 0 and not self._here:
                # Closed without a word: the end of an earlier run's port. Ask again.
                self._links.pop(0).link.close()
                return
            # A rank that is done may hang up; of any other it means that it died.
            if link.rank not in self._done:
                raise self._failed(link.rank, "died before all ranks were connected: its connection closed")
            self._links.pop(link.rank).link.close()
            return
        for message in messages:
            if "failed" in message:
                raise self._failed(
                    int(message["failed"]), str(message["text"]), *([str(message["fix"])] if "fix" in message else [])
                )
            if self.rank == 0:
                self._serve(link, message)
            else:
                self._follow(message)

    def _failed(
        self, rank: int, text: str, fix: str = "look at that rank's own output and exit code"
    ) -> RankFailedError:
        # Before the others are told: `close`, which runs next, must not tell them something else.
        self._told = True
        message = {"failed": rank, "text": text, "fix": fix}
        self._tell(message)
        # Ranks that have not connected yet would wait until their time-out.
        if self._server is not None and len(self._here) < self.size - 1:
            self._tell_newcomers(message)
        return RankFailedError(
            f"rank {rank} of {self.size} {text}",
            expected=f"{self.size} processes that all start, as {self.launch.source} say",
            received=f"{len(self._here)} of them so far; this is rank {self.rank}, {self.admission.me}",
            fix=fix,
        )

    def _tell_newcomers(self, message: Any) -> None:
        """Sends a message to ranks that connect shortly after the failure."""
        assert self._server is not None
        for link in self._strangers:
            link.send(message)
        end = min(self.deadline, time.monotonic() + LINGER)
        while (left := end - time.monotonic()) > 0:
            if readable([self._server], left):
                with contextlib.suppress(OSError):
                    link = Link(self._server.accept()[0])
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
        given_up = min(self.deadline, time.monotonic() + _FREED)
        while True:
            try:
                self._server = listen(port, self.size)
                break
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                if taken and self._is_ending(given_up):
                    time.sleep(_PAUSE)
                    continue
                raise RankFailedError(
                    f"rank 0 of {self.size} cannot listen at port {port}"
                    + (": another program holds it" if taken else ""),
                    expected=f"a free port for {self.launch.source} to name",
                    received=f"{type(error).__name__}: {error}",
                    fix="choose a MASTER_PORT that is free; look for a process of an earlier run",
                ) from error
        self.address = host, int(self._server.getsockname()[1])

    def _is_ending(self, given_up: float) -> bool:
        """Asks whoever holds the port of this rank 0 whether it will soon be free.

        Args:
            given_up: Time after which a holder that hangs up without a word is no more waited for.

        Raises:
            RankFailedError: If rank 0 of a job that goes on holds it; that job learns of this one.
        """
        try:
            link = Link(socket.create_connection(("127.0.0.1", self.address[1]), _ANSWER))
        except OSError:
            return time.monotonic() < given_up  # it has just closed
        with link.link:
            link.send(self.admission.request())
            end = min(self.deadline, time.monotonic() + _ANSWER)
            while (left := end - time.monotonic()) > 0:
                if not readable([link.link], left):
                    continue
                try:
                    answers = link.receive()
                except ValueError:
                    return False
                if answers is None:
                    return time.monotonic() < given_up
                for answer in answers:
                    if "refused" in answer:
                        raise refused(self.admission, self.address[1], str(answer["refused"]))
                    if "later" in answer:
                        return time.monotonic() < self.deadline
                    if "failed" in answer:
                        return time.monotonic() < given_up
        return False

    def _serve(self, link: Link, message: dict[str, Any]) -> None:
        if link.rank >= 0:
            if message.get("done") == link.rank:
                self._done.add(link.rank)
            return
        self._strangers.remove(link)
        stranger = self.admission.stranger(message) if Admission.is_request(message) else None
        if stranger is None or (stranger and "left" in message):
            link.link.close()
            return
        rank = message["rank"]
        if "left" in message:
            link.link.close()
            if rank not in self._links and rank:
                raise self._failed(rank, str(message["left"]))
            return
        try:
            newcomer = Claimant.of(message)
        except ValueError:
            link.link.close()
            return
        holder = self.admission.holders.get(rank)
        if stranger or holder is not None:
            again = not stranger and holder is not None and holder.token == newcomer.token
            text = stranger or self.admission.taken(rank, newcomer)
            link.send({"later": True} if again else {"refused": stranger or f"rank {rank} {text}"})
            link.link.close()
            if not stranger and not again:
                # Which of the two belongs to this job cannot be known: neither may go on.
                raise self._failed(rank, text, OTHER_PORT)
            return
        link.rank = rank
        self.admission.holders[rank] = newcomer
        self._texts[rank] = str(message.get("text", ""))
        self._here.add(rank)
        here = {"here": sorted(self._here)}
        # The newcomer first: it is not among the links yet, and waits for this word.
        link.send(here)
        self._tell(here)
        self._links[rank] = link

    # --------------------------------------------------------------------------------------------------------- other ranks
    def _call(self, text: str) -> None:
        request = {**self.admission.request(), "text": text}
        self._connect(request)
        # The server answers at once; another program that holds the port does not.
        while not self._here:
            if time.monotonic() > self.deadline - _PAUSE:
                raise self._rank0_error(
                    "a connection without an answer: another program holds that port, or rank 0 hangs"
                )
            self._step(min(_SLICE, self.deadline - _PAUSE - time.monotonic()))
            if 0 not in self._links and not self._here:
                time.sleep(_PAUSE)
                self._connect(request)

    def _connect(self, request: dict[str, Any]) -> None:
        """Connects to the server, which may start later than this rank, and asks for this rank."""
        why = ""
        while True:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise self._rank0_error(why)
            try:
                # Five seconds at most: an address that drops packets must not use up the time for further attempts.
                link = Link(socket.create_connection(self.address, min(left, 5.0)))
                break
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
            time.sleep(min(_PAUSE, max(0.0, self.deadline - time.monotonic())))
        link.rank = 0
        self._links[0] = link
        link.send(request)

    def _follow(self, message: dict[str, Any]) -> None:
        if "refused" in message:
            raise refused(self.admission, self.address[1], str(message["refused"]))
        if "later" in message:  # an earlier run still holds the port, and is ending
            self._links.pop(0).link.close()
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


def listen(port: int, size: int) -> socket.socket:
    """Returns a socket that listens at a port of this machine, 0 for any, for so many ranks.

    Raises:
        OSError: If the port is taken.
    """
    # All ranks may connect at once, and strangers beside them must not keep one out.
    backlog = size + 128
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=backlog)


def depart(launch: ProcessInfo, why: str, patience: float = 0.0, run: str = "0") -> bool:
    """Tells the server that this rank will not join; returns whether it could be reached.

    Args:
        launch: The position of this process, which has not joined.
        why: What it did, as the end of a sentence that begins with the rank.
        patience: Seconds to wait for the server to start.
        run: As of :class:`Rendezvous`.
    """
    deadline = time.monotonic() + patience
    while True:
        # Half a second: a process that ends must not hang at an address that drops packets.
        with contextlib.suppress(OSError), socket.create_connection((launch.address, launch.port), 0.5) as link:
            request = Admission(launch.rank, launch.size, launch.job, run).request()
            link.sendall(json.dumps({**request, "left": why}).encode() + b"\n")
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


__all__ = ["LINGER", "NO_LAUNCHER", "ProcessInfo", "Rendezvous", "depart", "listen", "unreachable"]
