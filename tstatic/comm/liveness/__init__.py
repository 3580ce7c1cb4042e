"""Finds which rank failed first: heartbeats over a separate mesh, and one verdict that all survivors share.

* ``mesh``  connections to all ranks
* ``exits``  how a rank ends
* ``feed_watch``  warns when processes are fed the same data
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tstatic import flags
from tstatic.comm.liveness.mesh import Mesh, Message
from tstatic.comm.rendezvous.admission import OTHER_PORT
from tstatic.errors import RankFailedError

TICK = 0.25
"""Seconds between two heartbeats: four missed ones tell a stopped rank from a late one within a second."""

SETTLE = 0.25
"""Seconds between the first accusation and the verdict, because another rank may report an earlier failure."""


class At(NamedTuple):
    """The progress of a rank: the number of its last collective, its label, and whether the rank is inside it."""

    number: int = 0
    label: str = ""
    inside: bool = False


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The rank that failed first, as all survivors report it.

    Attributes:
        when: Seconds since the epoch at which it was first seen.
        rank: The rank that failed.
        kind: ``died``, ``raised``, ``ended`` (by a signal), ``stopped``, ``late``, ``left``, ``diverged``, ``double``
            (two processes claim the rank) or ``network``.
        text: The failure, as the end of a sentence that begins with the rank.
        by: The rank that saw it.
    """

    when: float
    rank: int
    kind: str
    text: str
    by: int


@dataclass
class _Peer:
    """What is known about another rank."""

    at: At = field(default_factory=At)
    current_op: str = ""
    silent: float = 0.0
    left: int | None = None  # number of collectives that it had finished when it left
    judged: bool = False  # it reported which rank failed, so it may close its connection
    said: dict[int, Message] = field(default_factory=dict)
    met: dict[tuple[str, int], str] = field(default_factory=dict)  # labels of its collectives with some of the ranks


_FIX = {
    "died": "look at that rank's own output and exit code; a kill by the system for memory stands in the kernel's log",
    "raised": "look at that rank's own error",
    "ended": "find out who sent the signal",
    "stopped": "look whether that process is suspended or its machine is gone; FLAGS_step_timeout_s says how long to wait",
    "late": "look at what that rank does there; raise FLAGS_step_timeout_s if steps may take longer",
    "left": "let all ranks run the same number of steps: io.DistributedBatchSampler gives each equally many batches",
    "diverged": "let all ranks run the same programs in the same order",
    "double": OTHER_PORT,
    "network": "look at the network between the machines",
}


class Monitor:
    """Watches the other ranks, and sends them the state of this one.

    Args:
        rank: This rank.
        size: Number of ranks.
        mesh: The connections to all other ranks.
        current_op: Returns what this rank is doing, for the others' errors about it.
        end: Ends this process with an exit code.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        mesh: Mesh,
        current_op: Callable[[], str] = lambda: "",
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self.rank = rank
        self.size = size
        self.current_op = current_op
        self.at = At()
        self.verdict: RankFailure | None = None
        self.delivered = False
        self.failed = ""
        self._on_verdict: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._mesh = mesh
        self._end = end
        self._peers = {other: _Peer() for other in range(size) if other != rank}
        self._accused: dict[int, RankFailure] = {}
        self._lock = threading.Lock()  # held only briefly, and never by a signal handler
        self._leaving = False
        self._settled_at = 0.0
        self._grace_until = 0.0
        self._differ_until = 0.0
        self._ticked = time.monotonic()
        mesh.start(self)

    def on_verdict(self, method: Callable[[], None]) -> None:
        """Has a method called, in a thread of its own, when it is known that a rank failed, unless its object is gone by then."""
        self._on_verdict = [one for one in self._on_verdict if one() is not None] + [weakref.WeakMethod(method)]

    # ------------------------------------------------------------------------------------------------------ other threads
    @property
    def accused(self) -> bool:
        """Whether a rank is known to have failed; the verdict may still be open."""
        return bool(self._accused)

    def say(self, number: int, label: str, payload: Any) -> None:
        """Sends this rank's payload of exchange ``number`` to the others."""
        self._mesh.post({"t": "said", "n": number, "label": label, "payload": payload})

    def heard_all(self, number: int) -> bool:
        """Returns whether the payloads of all other ranks have arrived for an exchange."""
        return all(number in peer.said for peer in self._peers.values())

    def take(self, number: int) -> dict[int, Message]:
        """Returns and removes the others' messages of an exchange, by rank."""
        return {rank: peer.said.pop(number) for rank, peer in self._peers.items()}

    def arrive(self, others: Sequence[int], key: str, number: int, label: str) -> None:
        """Tells the other members of a part of the ranks that this one came to their collective of that number."""
        for rank in others:
            self._mesh.post({"t": "met", "key": key, "n": number, "label": label}, rank)

    def absent(self, others: Sequence[int], key: str, number: int, label: str) -> list[int]:
        """Returns the members that have not come; accuses one that ended its program without."""
        missing = [rank for rank in others if (key, number) not in self._peers[rank].met]
        for rank in missing:
            if self._peers[rank].left is not None and rank not in self._accused:
                self.accuse(rank, "left", f"ended its program while rank {self.rank} waits for it in the {label}")
        return missing

    def met(self, others: Sequence[int], key: str, number: int) -> dict[int, str]:
        """Returns and removes the labels that the other members gave."""
        return {rank: self._peers[rank].met.pop((key, number)) for rank in others}

    def accuse(self, rank: int, kind: str, text: str) -> None:
        """Reports that a rank failed; the verdict follows when the others have had time to report."""
        seen = RankFailure(time.time(), rank, kind, text, self.rank)
        self._suspect(seen)
        self._mesh.post({"t": "accuse", **asdict(seen)})

    def fail(self, kind: str, text: str) -> None:
        """Tells the others that this rank fails; takes no lock, so a signal handler may call it."""
        if not self.failed and self.verdict is None:
            self.failed = text
            self._mesh.post({"t": "accuse", **asdict(RankFailure(time.time(), self.rank, kind, text, self.rank))})

    def failed_rank(self, waited: float) -> tuple[int, str, str]:
        """Returns the rank that keeps a collective from ending, with kind and text of its failure."""
        mine = self.at
        # The rank that is furthest behind is the one that the others wait for, directly or not.
        behind = [(p.at.number, rank) for rank, p in self._peers.items() if p.at.number < mine.number]
        rank = min(behind)[1] if behind else max(self._peers, key=lambda r: self._peers[r].silent)
        peer = self._peers[rank]
        # Four missed heartbeats: a rank that is merely late still sends them, from a thread of its own.
        if peer.silent > 4 * TICK:
            return rank, "stopped", f"gave no sign of life for {peer.silent:.1f} s, and {mine.label} waits for it"
        if behind:
            where = f"; it is {peer.current_op}" if peer.current_op else ""
            return rank, "late", f"did not come to {mine.label} (number {mine.number}) within {waited:.3g} s{where}"
        return rank, "network", f"and all others are in {mine.label}, which does not end within {waited:.3g} s"

    def error(self) -> RankFailedError:
        """Returns the verdict as an error. The caller must raise it: the monitor then does not end this process."""
        self.delivered = True
        found = self.verdict
        if found is None:
            return RankFailedError(
                "this rank failed in an earlier step, so it cannot work with the others any more",
                expected="ranks of which none has failed",
                received=self.failed,
                fix="start all ranks again; a program can go on from its last checkpoint",
            )
        rank, this, received = f"rank {found.rank}", "", f"{found.kind}, first seen by rank {found.by}"
        if found.rank == self.rank:
            this, received = ", which is this one,", f"was given up, first by rank {found.by}"
        else:
            received += f"; this is rank {self.rank}"
        return RankFailedError(
            f"{rank} of {self.size}{this} {found.text}",
            expected="ranks that all take part until the end",
            received=f"{rank} {received}",
            fix=_FIX[found.kind],
        )

    def leave(self) -> None:
        """Says goodbye, so that the others do not take the closing connection for a failure, and stops watching."""
        self._leaving = True
        if self.verdict is None:
            # A collective that it is still inside does not count as done.
            self._mesh.post({"t": "bye", "done": self.at.number - self.at.inside})
        # Before the connections close: without the goodbye, the others take this for a death.
        self._mesh.flush(1.0)
        self._mesh.close()

    def flush(self, timeout: float) -> bool:
        """Waits until all messages have been sent to the others; returns whether they were."""
        return self._mesh.flush(timeout)

    # --------------------------------------------------------------------------------------------------- the mesh's thread
    def on_message(self, rank: int, message: Message) -> None:
        peer = self._peers[rank]
        peer.silent = 0.0
        match message["t"]:
            case "beat":
                peer.at = At(*message["at"])
                peer.current_op = message["current_op"]
                self._compare()
            case "said":
                peer.said[message["n"]] = message
                peer.at = At(message["n"], message["label"], True)
            case "met":
                peer.met[message["key"], message["n"]] = message["label"]
            case "bye":
                peer.left = message["done"]
                peer.at = At(message["done"])
                self._check_left()
            case "accuse":
                # A rank that accuses itself is about to end, so its closing connection is not another failure.
                peer.judged = peer.judged or message["rank"] == rank
                self._suspect(_verdict(message))
            case "verdict":
                peer.judged = True
                self._judge(_verdict(message))

    def on_disconnect(self, rank: int, why: str) -> None:
        peer = self._peers[rank]
        if peer.left is None and not peer.judged and not self._leaving:
            self.accuse(rank, "died", f"died: its connection closed without a goodbye{why and f' ({why})'}")

    def on_timer(self, now: float) -> float:
        # Time in which this process was suspended does not count as the others' silence.
        elapsed = min(now - self._ticked, 2 * TICK)
        self._ticked = now
        # The earliest accusation wins: later ones are mostly consequences of the first failure.
        if self._settled_at and now >= self._settled_at and self.verdict is None:
            with self._lock:
                first = min(self._accused.values(), key=lambda one: (one.when, one.rank))
            self._judge(first)
        if self.verdict is not None and not self.delivered and now >= self._grace_until and not self._leaving:
            self._say(f"it did not notice within {flags.flag('FLAGS_failure_grace_s'):g} s and is ended")
            self._end(1)
        if self.verdict is None and not self._leaving:
            self._mesh.post({"t": "beat", "at": self.at, "current_op": self._doing()})
            limit = float(flags.flag("FLAGS_step_timeout_s"))
            for rank, peer in self._peers.items():
                # Reset by any message: a long collective is not silence, as the mesh has a thread of its own.
                peer.silent += elapsed
                if peer.silent >= limit and peer.left is None and rank not in self._accused:
                    self.accuse(rank, "stopped", f"gave no sign of life for {peer.silent:.1f} s")
            self._compare()
            self._check_left()
        nearest = now + TICK
        # The verdict must not wait for the next heartbeat.
        return min(nearest, self._settled_at) if self._settled_at > now else nearest

    def _doing(self) -> str:
        if self.at.inside:
            return f"in {self.at.label} (number {self.at.number})"
        with contextlib.suppress(Exception):
            return self.current_op()
        return ""

    def _compare(self) -> None:
        """Checks that ranks inside collectives of the same number are in the same collective."""
        mine = self.at
        there = {rank: p.at.label for rank, p in self._peers.items() if p.at.inside and p.at.number == mine.number}
        if not mine.inside or self._accused or all(label == mine.label for label in there.values()):
            self._differ_until = 0.0
            return
        # Which rank is the odd one is known when all have arrived; do not wait for ranks that never do.
        now = time.monotonic()
        self._differ_until = self._differ_until or now + 4 * TICK
        if len(there) < len(self._peers) and now < self._differ_until:
            return
        there[self.rank] = mine.label
        odd, usual = odd_ones(there)
        self.accuse(odd[0], "diverged", f"is in {there[odd[0]]} while others are in {usual} (number {mine.number})")

    def _check_left(self) -> None:
        mine = self.at
        for rank, peer in self._peers.items():
            if mine.inside and peer.left is not None and peer.left < mine.number and rank not in self._accused:
                self.accuse(rank, "left", f"ended its program while rank {self.rank} waits for it in {mine.label}")

    def _suspect(self, one: RankFailure) -> None:
        with self._lock:
            known = self._accused.get(one.rank)
            if known is None or one.when < known.when:
                self._accused[one.rank] = one
            if not self._settled_at:
                self._settled_at = time.monotonic() + SETTLE

    def _judge(self, verdict: RankFailure) -> None:
        # The first verdict to arrive is final: each rank passes on the one that it adopted, so all report the same failure.
        if self.verdict is not None or self._leaving:
            return
        self._suspect(verdict)
        self._grace_until = time.monotonic() + float(flags.flag("FLAGS_failure_grace_s"))
        # Posted before it is set: the main thread raises it as soon as it sees it, and may end this process.
        self._mesh.post({"t": "verdict", **asdict(verdict)})
        self.verdict = verdict
        for method in [found for one in self._on_verdict if (found := one()) is not None]:
            # In threads of their own: they end what hangs, and heartbeats must not wait for that.
            threading.Thread(target=method, name="tstatic-verdict", daemon=True).start()
        if not self.failed:
            self._say(f"rank {verdict.rank} {verdict.text} (seen by rank {verdict.by})")

    def _say(self, text: str) -> None:
        """Writes a line to stderr at once: the launcher may end this process before anything else prints."""
        with contextlib.suppress(OSError):
            os.write(2, f"tstatic: rank {self.rank} of {self.size}: {text}\n".encode())


def _verdict(message: Message) -> RankFailure:
    return RankFailure(*(message[name] for name in ("when", "rank", "kind", "text", "by")))


def odd_ones(labels: dict[int, str]) -> tuple[Sequence[int], str]:
    """Returns the ranks that differ from the majority, and the majority's value; in a draw, the lowest rank's value."""
    counts = Counter(labels.values())
    # A draw needs a rule that all ranks share, or two halves would blame each other.
    usual = max(counts, key=lambda label: (counts[label], -min(r for r, one in labels.items() if one == label)))
    return [rank for rank in sorted(labels) if labels[rank] != usual], usual


__all__ = ["SETTLE", "TICK", "At", "Monitor", "RankFailure", "odd_ones"]
