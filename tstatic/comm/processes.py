"""Runs collectives between processes; each ends with success, or with an error that names the failed rank."""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic import flags, version
from tstatic.comm.liveness import SETTLE, TICK, At, Monitor, exits, odd_ones
from tstatic.comm.liveness.feed_watch import FeedWatch
from tstatic.comm.passes.finite_gradients import Look
from tstatic.comm.rendezvous import ProcessInfo, launch
from tstatic.comm.rendezvous.joining import join
from tstatic.comm.transport.gloo import Gloo, pack
from tstatic.comm.transport.hierarchy import Hierarchy
from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.errors import ForkedProcessError, RankFailedError, RankNumericsError
from tstatic.locks import lock, rlock
from tstatic.logs import get_logger

Array = np.ndarray[Any, Any]

_VERDICT = 2 * (SETTLE + TICK) + 1.5
"""Seconds to wait for the verdict after the first sign that a rank failed: its own two waits on both sides, and time for load."""

_SAME_SCRIPT = "let all ranks run the same script with the same arguments; only the data may differ"


class Processes:
    """The processes that a launcher started, which exchange arrays of the host; one per process, see :func:`world`.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        host: Address at which the others reach this machine.
        calls: Number of collectives so far.
        moved: Bytes that this rank sent in collectives of arrays.

    Args:
        launch: This process's position.

    Raises:
        RankFailedError: If a process does not join within ``FLAGS_rendezvous_timeout_s``, or runs another version of tstatic.
        MissingPackageError: If torch is not installed.
    """

    def __init__(self, launch: ProcessInfo) -> None:
        self.rank = launch.rank
        self.size = launch.size
        self.launch = launch
        self.calls = 0
        self.moved = 0
        self._pid = os.getpid()
        self._lock = rlock()
        self._deadline: float | None = None  # of the current step; collectives outside of steps have one each
        self._history = 0
        self.feeds = FeedWatch(self.rank)
        self._state: Callable[[], Mapping[str, str]] | None = None
        self._changed = False
        self._checked: set[tuple[str, str]] = set()
        self._meetings: dict[tuple[int, ...], int] = {}
        deadline = time.monotonic() + float(flags.flag("FLAGS_rendezvous_timeout_s"))
        store, mesh, self._door = join(launch, deadline)
        self.monitor = monitor = Monitor(self.rank, self.size, mesh)  # before anything else is exchanged: it ends waits
        if self._door is not None:
            self._door.watch(
                lambda rank, text: monitor.accuse(rank, "double", text),
                lambda: monitor.accused or monitor.verdict is not None or bool(monitor.failed),
            )
        self.host = mesh.host
        self._levels = Hierarchy(store, self.rank, self.size, mesh.host, self._wait)
        # Before the first exchange: a rank that ends by what it heard must have sent what it said.
        exits.guard(self.monitor, self.close)
        self.check_same(version.__version__, "tstatic version")
        get_logger("dist").info("rank %d of %d: connected, through %s", self.rank, self.size, mesh.host)

    # ------------------------------------------------------------------------------------------------------- collectives
    def form(self, block: int) -> None:
        """Connects blocks of ``block`` neighbours by rank, and the first processes of all blocks with each other.

        Raises:
            RankFailedError: If a rank failed or did not join.
        """
        if block in self._levels:
            return
        # All ranks exchange first: one that waits inside gloo for a dead rank can only be ended by the monitor.
        self.exchange(f"blocks of {block} processes", None)
        with self._inside(f"connection of blocks of {block} processes", 0):
            try:
                self._levels.form(block)
            except RuntimeError as error:
                raise self._broken(error) from None

    def all_reduce(self, arrays: Sequence[Array], block: int = 0, look: Look | None = None) -> None:
        """Sums arrays over the processes, in place; every process gets the same bits.

        16-bit floats are added in float32 and rounded once. Under strict numerics sums are taken in the order
        of the ranks, so that they do not depend on how gloo splits them.

        Args:
            arrays: This process's arrays.
            block: Size of the blocks of neighbours that sum first; then their first processes sum over the blocks, so that
                less is sent between machines. 0: sum over all processes at once.
            look: Called with some of the arrays, and a flat one that has their values, before they are sent.

        Raises:
            RankFailedError: If a rank failed or did not arrive.
        """
        arrays = [a for a in arrays if a.size]
        if not arrays:
            return
        strict = flags.numerics() == "strict"
        count = sum(a.nbytes for a in arrays)
        with self._inside(f"all_reduce of {len(arrays)} arrays, {count} bytes", count):
            packed, back = pack(arrays, strict)

            def before(number: int) -> None:
                if look is not None:
                    flat, sources = packed[number]
                    look(sources, flat)

            self._levels.add([flat for flat, _ in packed], strict, block, before)
            back()

    def all_gather(self, array: Array) -> Array:
        """Stacks the processes' arrays, of equal shape and dtype, along a new first axis, in the order of their ranks."""
        own = np.array(array, order="C")  # writable, which torch requires even of arrays that it only reads
        whole = np.empty((self.size, own.size), own.dtype)
        with self._inside(f"all_gather of {own.nbytes} bytes", own.nbytes):
            if own.size:
                self._wait(self._levels.all.gather(own, list(whole)))
        return whole.reshape(self.size, *array.shape)

    def broadcast(self, arrays: Sequence[Array], root: int = 0) -> None:
        """Copies one process's arrays into those of all, in place."""
        count = sum(a.nbytes for a in arrays)
        with self._inside(f"broadcast of {len(arrays)} arrays, {count} bytes, from rank {root}", count):
            whole = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays if a.size]
            for ended in [self._levels.all.broadcast(one, root) for one in whole]:
                self._wait(ended)
            for array, one in zip([a for a in arrays if a.size], whole, strict=True):
                if one is not array:
                    np.copyto(array, one)

    def exchange_parts(self, parts: Array) -> Array:
        """Sends ``parts[r]`` to rank ``r``, for all ranks; returns what came from each, in the order of their ranks.

        Args:
            parts: Shape ``[size, ...]``, equal on all ranks.
        """
        own = np.ascontiguousarray(parts)
        with self._inside(f"exchange of {own.nbytes} bytes", own.nbytes):
            return self._exchange_parts(self._levels.all, own)

    def _exchange_parts(self, gloo: Gloo, own: Array) -> Array:
        out = np.empty_like(own)
        if own.size:
            count = own.size // gloo.size
            self._wait(gloo.exchange(own.reshape(-1), out.reshape(-1), [count] * gloo.size, count))
        return out

    def among(self, ranks: Sequence[int]) -> Members:
        """Returns the collectives of some of the processes, of which this is one."""
        return Members(self, tuple(ranks))

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        """Returns when all processes have arrived, after the same collectives.

        Args:
            label: Purpose of the meeting; the same for all.
            note: Any JSON value for the others.

        Returns:
            What each of them noted, by rank.

        Raises:
            RankFailedError: If a rank failed, did not arrive, or ran other collectives.
        """
        mine = self._mine()
        return self._agreed(self.exchange(label, mine if note is None else {**mine, "note": note}))

    def ended(self, reached: Callable[[], bool]) -> None:
        """Returns when this process's device has ended a step, and all processes have queued it, after the same collectives.

        Nothing waits for the others beyond what the device itself waits for: they have told of the step before it ends.

        Args:
            reached: Returns whether the device has.

        Raises:
            RankFailedError: If a rank failed, did not arrive, or ran other collectives.
        """
        self._agreed(self.exchange("end of a step", self._mine(), reached))

    def _mine(self) -> dict[str, Any]:
        """Returns what this process tells the others of its step."""
        changed, self._changed = self._changed, False
        return {"history": self._history, "feed": self.feeds.take(), "changed": changed}

    def _agreed(self, found: Sequence[Any]) -> list[Any]:
        """Compares what all processes told; returns their notes."""
        histories = {rank: str(one["history"]) for rank, one in enumerate(found)}
        odd, _ = odd_ones(histories)
        if odd:
            raise self._refused("history of collectives", odd, histories)
        self.feeds.compare([one["feed"] for one in found])  # behind the histories: of other steps nothing can be said
        if self._state is not None and any(one["changed"] for one in found):
            self._compare_state(self._state())
        return [one.get("note") for one in found]

    def _compare_state(self, own: Mapping[str, str]) -> None:
        found = self.exchange("comparison of the parameters", own)
        for name in own:
            values = {rank: one[name] for rank, one in enumerate(found)}
            odd, _ = odd_ones(values)
            if odd:
                fix = (
                    "write the same on all ranks: call paddle.seed(n) before the startup program, or load one file; "
                    "a new Executor begins with rank 0's values"
                )
                raise self._refused(f"value of '{name}', which was written between steps,", odd, values, fix)

    def exchange(self, label: str, payload: Any, ready: Callable[[], bool] = lambda: True) -> list[Any]:
        """All-gathers ``payload``, any JSON value; returns the payloads by rank, not before ``ready``. Does not use gloo.

        Raises:
            RankFailedError: If a rank failed or did not arrive, or is in another exchange.
        """
        with self._inside(label, 0):
            # Messages carry the number of the exchange: a fast rank may already send its next one.
            number = self.monitor.at.number
            self.monitor.say(number, label, payload)
            self._wait(lambda: ready() and self.monitor.heard_all(number))
            found = self.monitor.take(number)
            labels = {rank: one["label"] for rank, one in found.items()} | {self.rank: label}
            odd, _ = odd_ones(labels)
            if odd:
                raise self._refused("collective", odd, labels)
            brought = {rank: one["payload"] for rank, one in found.items()} | {self.rank: payload}
            return [brought[rank] for rank in range(self.size)]

    def check_same(self, text_hash: str, what: str) -> bool:
        """Checks that something is equal on all ranks; the ranks exchange digests once per ``text_hash``.

        Args:
            text_hash: Its digest.
            what: Its name in messages, such as ``program`` or ``strategy``.

        Returns:
            Whether the ranks exchanged digests in this call; the same on all ranks.

        Raises:
            RankFailedError: If ranks differ, on every rank; it names the rank that differs from the majority.
        """
        if (what, text_hash) in self._checked:
            return False
        found = {rank: str(one) for rank, one in enumerate(self.exchange(f"check of the {what}", text_hash))}
        odd, _ = odd_ones(found)
        if odd:
            raise self._refused(what, odd, found)
        self._checked.add((what, text_hash))
        return True

    # -------------------------------------------------------------------------------------------------------------- steps
    @contextlib.contextmanager
    def step(self, timeout: float, queued: bool = False) -> Iterator[None]:
        """Sets a deadline for all collectives in the block: each ends in time, or raises.

        Args:
            timeout: Seconds.
            queued: Whether its collectives are queued without this group: then the others learn here that this rank is in the step.
        """
        before, self._deadline = self._deadline, time.monotonic() + timeout
        if queued:
            self.monitor.at = At(self.monitor.at.number + 1, "a step", True)
        try:
            yield
        finally:
            self._deadline = before

    def failed_rank(self, waited: float) -> RankFailedError | None:
        """Returns an error that names the rank for which a step waits, of which this group does not know; ``None`` if none is."""
        if not self.monitor.accused:
            self.monitor.accuse(*self.monitor.failed_rank(waited))
        return self.verdict()

    def watch_state(self, changed: bool, state: Callable[[], Mapping[str, str]]) -> None:
        """Makes the next :meth:`agree` compare parameters, if those of any rank may have changed between steps.

        Args:
            changed: Whether this rank's parameters may have changed.
            state: Returns name -> digest of the values that must be equal on all ranks.
        """
        self._changed, self._state = changed, state

    def failed(self, error: BaseException) -> None:
        """Tells the other ranks that this one failed within a step, so that none waits for it; the group cannot be used after it.

        The caller knows of the failure, so the monitor does not end this process.
        """
        if isinstance(error, RankNumericsError):
            return  # all ranks raise it together, and can go on
        self.monitor.delivered = True
        if not isinstance(error, RankFailedError):  # a RankFailedError is about another rank, or all ranks raise it
            self.monitor.fail("raised", exits.describe(error))

    # --------------------------------------------------------------------------------------------------------------- waits
    @contextlib.contextmanager
    def _inside(self, label: str, moved: int) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                "a forked child cannot take part in its parent's group of processes",
                expected=f"process {self._pid}",
                received=f"process {os.getpid()}, forked from it",
                fix="run programs in the process that the launcher started",
            )
        with self._lock:
            monitor = self.monitor
            if monitor.verdict is not None or monitor.failed:
                raise monitor.error()
            # A running checksum of all labels: equal on two ranks only if they ran the same collectives in the same order.
            self._history = zlib.crc32(label.encode(), self._history)
            monitor.at = At(monitor.at.number + 1, label, True)
            try:
                yield
            except BaseException as error:
                # gloo must not write to the arrays any more, since the caller may free them; and the others must not wait.
                self._levels.stop()
                self.failed(error)
                monitor.failed = monitor.failed or str(error).partition("\n")[0]
                raise
            monitor.at = At(monitor.at.number, label, False)
            self.calls += 1
            self.moved += moved

    @contextlib.contextmanager
    def _between(self, ranks: tuple[int, ...], label: str) -> Iterator[Gloo]:
        """Runs a collective of some processes, which all have come when the block begins; the others do not count it.

        Raises:
            RankFailedError: If one does not come, or comes to another collective: it names both ranks.
        """
        monitor = self.monitor
        with self._lock:
            if monitor.verdict is not None or monitor.failed:
                raise monitor.error()
            try:
                key = "ranks " + " ".join(map(str, ranks))
                others = [rank for rank in ranks if rank != self.rank]
                number = self._meetings[ranks] = self._meetings.get(ranks, 0) + 1
                monitor.arrive(others, key, number, label)

                def arrived() -> bool:
                    return not monitor.absent(others, key, number, label)

                def late(waited: float) -> RankFailedError:
                    missing = monitor.absent(others, key, number, label)
                    monitor.accuse(missing[0], "late", f"did not come to the {label} within {waited:.3g} s, for which "
                                                       f"rank {self.rank} waits")  # fmt: skip
                    return self.verdict() or monitor.error()

                self._wait(arrived, late)
                found = monitor.met(others, key, number) | {self.rank: label}
                odd = [rank for rank in others if found[rank] != label]
                if odd:
                    text = f"is in the {found[odd[0]]} while rank {self.rank} is in the {label}"
                    monitor.accuse(odd[0], "diverged", text)
                    raise self.verdict() or monitor.error()
                yield self._levels.members(ranks)
            except BaseException as error:
                self._levels.stop()
                self.failed(error)
                monitor.failed = monitor.failed or str(error).partition("\n")[0]
                raise
            self.calls += 1

    def _wait(self, ended: Callable[[], bool], late: Callable[[float], RankFailedError] | None = None) -> None:
        """Polls until work has ended, with short pauses at first: most work ends within a fraction of a millisecond."""
        start = last = time.monotonic()
        timeout = float(flags.flag("FLAGS_step_timeout_s"))
        deadline = self._deadline if self._deadline is not None else start + timeout
        polls = 0
        while True:
            try:
                if ended():
                    return
            except RuntimeError as error:
                raise self._broken(error) from None
            if self.monitor.verdict is not None:
                raise self.monitor.error()
            now = time.monotonic()
            if now - last > 1.0:  # this process was suspended: give the others as much extra time
                deadline += now - last
            last = now
            if now > deadline:
                raise (late or self._late)(now - start)
            polls += 1
            # A millisecond at most: whoever waits for a slow peer must take no core.
            time.sleep(0 if polls < 20 else min(0.001, 2e-6 * polls))

    def _late(self, waited: float) -> RankFailedError:
        return self.failed_rank(waited) or RankFailedError(
            f"{self.monitor.at.label} did not end within {waited:g} s",
            expected="a step shorter than FLAGS_step_timeout_s",
            received="no agreement on which rank is late",
            fix="raise FLAGS_step_timeout_s if steps may take longer",
        )

    def _broken(self, error: RuntimeError) -> RankFailedError:
        """Returns the error for a broken connection of gloo: the monitor knows, or soon will, which rank failed."""
        found = self.verdict()
        if found is not None:
            return found
        self.monitor.fail("network", f"lost a connection: {error}")
        return RankFailedError(
            f"rank {self.rank} of {self.size} lost a connection to another rank, although all of them live",
            expected="connections that stay open",
            received=str(error).strip().splitlines()[0],
            fix="look at the network between the machines",
        )

    def verdict(self) -> RankFailedError | None:
        """Waits for the verdict, which soon follows the first sign of a failure; returns it, or ``None``."""
        deadline = time.monotonic() + _VERDICT
        while self.monitor.verdict is None and time.monotonic() < deadline:
            time.sleep(0.005)  # of a wait of seconds
        return self.monitor.error() if self.monitor.verdict is not None else None

    def _refused(
        self, what: str, odd: Sequence[int], found: Mapping[int, str], fix: str = _SAME_SCRIPT
    ) -> RankFailedError:
        ranks = f"rank {odd[0]} of {self.size} has"
        if len(odd) > 1:
            ranks = f"ranks {', '.join(map(str, odd))} of {self.size} have"
        usual = next(rank for rank in sorted(found) if rank not in odd)
        return RankFailedError(
            f"{ranks} another {what} than rank {usual}",
            expected=f"the same {what} on all ranks, such as rank {usual}'s: {found[usual]}",
            received="; ".join(f"rank {rank}: {found[rank]}" for rank in odd),
            fix=fix,
        )

    def close(self) -> bool:
        """Leaves the group; returns whether all its threads have ended, so that Python can exit."""
        global _world
        if os.getpid() != self._pid:
            return True
        if _world is self:
            _world = None
        if self._door is not None:
            self._door.close()  # first: while this group ends, its port must answer no newcomer
        idle = self.monitor.verdict is None and not self.monitor.failed
        self.monitor.leave()  # before gloo's connections close, which the others would take for a failure
        done = idle or self._levels.stop()
        if done:
            self._levels.close()
        return done


class Members:
    """Collectives of some of the processes; each member calls them in the same order, the others do not.

    Args:
        processes: The group of all.
        ranks: The members, in the order in which results count them.

    Attributes:
        rank: Number of this process among the members.
        size: Number of members.
    """

    def __init__(self, processes: Processes, ranks: tuple[int, ...]) -> None:
        self._all = processes
        self._ranks = ranks
        self.rank = ranks.index(processes.rank)
        self.size = len(ranks)

    def all_gather(self, array: Array) -> Array:
        """Stacks the members' arrays, of equal shape and dtype, along a new first axis."""
        own = np.array(array, order="C")
        whole = np.empty((self.size, own.size), own.dtype)
        with self._all._between(self._ranks, self._label("all_gather", own)) as gloo:
            if own.size:
                self._all._wait(gloo.gather(own, list(whole)))
        return whole.reshape(self.size, *array.shape)

    def all_reduce(self, arrays: Sequence[Array], block: int = 0, look: Look | None = None) -> None:
        """Sums arrays over the members, in place, in their order; 16-bit floats are added in float32 and rounded once.

        Args:
            arrays: This member's arrays.
            block: 0: some of the processes have one level only.
            look: Called with each array before it is sent.
        """
        assert not block, "some of the processes sum at once"
        for array in arrays:
            if look is not None:
                look([array], None)
            add_in_order([*self.all_gather(array)], [array])

    def broadcast(self, arrays: Sequence[Array], root: int = 0) -> None:
        """Copies the arrays of member ``root`` into those of all, in place; two members are a sender and a receiver."""
        for array in arrays:
            own = np.ascontiguousarray(array)
            way = f"broadcast from rank {self._ranks[root]}"
            if self.size == 2:
                way = f"transfer from rank {self._ranks[root]} to rank {self._ranks[1 - root]}"
            with self._all._between(self._ranks, self._label(way, own)) as gloo:
                if own.size:
                    self._all._wait(gloo.broadcast(own, root))
            if own is not array:
                np.copyto(array, own)

    def exchange_parts(self, parts: Array) -> Array:
        """Sends ``parts[r]`` to member ``r``; returns what came from each."""
        own = np.ascontiguousarray(parts)
        with self._all._between(self._ranks, self._label("exchange", own)) as gloo:
            return self._all._exchange_parts(gloo, own)

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        """Returns when all members have arrived: what each of them noted, any JSON value, by its number."""
        with self._all._between(self._ranks, label):
            pass
        own = np.frombuffer(json.dumps(note).encode(), np.uint8)
        sizes = self.all_gather(np.array([own.size])).reshape(-1)
        texts = self.all_gather(np.resize(own, int(sizes.max())))
        return [json.loads(text[:size].tobytes()) for text, size in zip(texts, sizes, strict=True)]

    def among(self, ranks: Sequence[int]) -> Members:
        """Returns the collectives of some of all processes, of which this is one."""
        return self._all.among(ranks)

    def failed(self, error: BaseException) -> None:
        """Tells all processes that this one failed, as :meth:`Processes.failed` does."""
        self._all.failed(error)

    def _label(self, what: str, array: Array) -> str:
        return f"{what}, {array.dtype} of shape {list(array.shape)}"


def digest(arrays: Mapping[str, Array]) -> str:
    """Returns a checksum of the names, dtypes, shapes and bits of arrays."""
    total = 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total = zlib.crc32(f"{name} {array.dtype} {arrays[name].shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return f"{total:08x}"


_world: Processes | None = None
_starting = lock()


def world() -> Processes | None:
    """Returns the group of this process, connected at the first call; ``None`` for a single process."""
    global _world
    with _starting:
        if _world is None and launch.current().size > 1:
            _world = Processes(launch.current())
        return _world


__all__ = ["Members", "Processes", "digest", "world"]
