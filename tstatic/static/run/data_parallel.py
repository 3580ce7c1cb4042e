"""Runs replicas of a program on several places of this process: one session and one thread each."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, proxy, ref

import numpy as np

from tstatic import flags, places
from tstatic.comm.group import Group
from tstatic.comm.passes.distribution import Distribution
from tstatic.comm.processes import Processes, digest
from tstatic.comm.transport import ProcessTransport, choice
from tstatic.comm.transport.nccl import NcclError
from tstatic.comm.transport.nccl_transport import NcclProcesses
from tstatic.devices import Device, of_place, owner_of
from tstatic.errors import PlaceError, RankFailedError
from tstatic.formats.text import shared_text
from tstatic.ir.program import Program
from tstatic.runtime.feed import Arrays
from tstatic.runtime.foreseen import takes_turn
from tstatic.runtime.interrupt import wait_for_writes
from tstatic.runtime.replica_threads import ReplicaThreads
from tstatic.runtime.scope import LoDTensor, ReplicaScope, Scope
from tstatic.shield import shield
from tstatic.static.compile import Compilation
from tstatic.static.compile.plan_cache import Bound
from tstatic.static.strategy import BuildStrategy

OWN_PLACE = object()
"""As the places of a program: the Executor's own one, in each of the processes that run it together."""
LATER = 1.5
"""Seconds between the deadline of the process group, whose error names the rank, and that of this process."""
_numbers = itertools.count()
"""Process-wide compile counter: two executors may compile identical text, so a hash alone is not unique."""


def places_of(executor_place: Any, given: Any) -> list[places.Place]:
    """Returns the places of a parallel program.

    Args:
        executor_place: The Executor's place.
        given: The argument of ``with_data_parallel``: places or their spellings, one of them, or ``None``; or ``OWN_PLACE``.

    Raises:
        PlaceError: If there are none, or they are of another kind than the Executor's.
    """
    home = places.resolve(executor_place)
    if given is OWN_PLACE:
        return [home]
    if given is None:
        found: list[places.Place] = [*(places.cpu_places() if home.kind != "gpu" else places.cuda_places())]
    else:
        listed = given if isinstance(given, list | tuple) else [given]
        found = [places.resolve(p) for p in listed]
    if not found:
        raise PlaceError(
            "No places for execution.",
            expected="at least one place",
            received="an empty list" if given is not None else "CPU_NUM=0",
            fix="pass places=[paddle.CPUPlace()] * 2, or set CPU_NUM",
        )
    other = next((p for p in found if p.kind != home.kind), None)
    if other is not None:
        raise PlaceError(
            "Place type not match. You may set wrong type of places.",
            expected=f"places of the Executor's kind, {home}",
            received=repr(other),
            fix="make the Executor on a place of that kind",
        )
    return found


def joined_by(on: Iterable[places.Place]) -> tuple[tuple[Device, ...], str]:
    """Returns what replicas on some places depend on, beside the processes: their devices, and what moves their values."""
    return tuple(map(of_place, on)), choice.asked()


def _digest(program: Program, build: BuildStrategy, how: Distribution) -> str:
    """Returns a digest of what must be equal in all processes: program, strategy except ``trainer_id``, how gradients are cut."""
    same = [(p.name, repr(getattr(build, p.name))) for p in type(build).properties() if p.name != "trainer_id"]
    cut = how.bucket_bytes, how.last_bytes, how.bucket_count, how.low, how.half
    return hashlib.sha256(f"{shared_text(program)}{same}{cut}".encode()).hexdigest()[:16]


def _held(scope: Scope, names: Iterable[str]) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Returns the names and values of the variables that have a value."""
    return [(name, array) for name in names if (array := scope._value(name)) is not None]


class Replicas:
    """The replicas of one Executor on several places: their threads, their group, and what they run.

    Args:
        devices: The device of each.
        outer: The group of processes; ``None`` for a single process.

    Attributes:
        choices: What moves values between the places, and between the processes, once that is chosen.

    Raises:
        TstaticError: If ``FLAGS_collectives`` asks for what cannot be.
    """

    def __init__(self, devices: Sequence[Device], outer: Processes | None = None) -> None:
        self.outer = outer
        self.devices = tuple(devices)
        size = len(self.devices)
        wanted = choice.asked()
        # A single process has its own reasons; of several, one place each, the processes' say whether NCCL can be.
        inside = choice.between_places(self.devices, wanted if outer is None or size > 1 else "auto")
        self.choices = [inside]
        self.between: ProcessTransport | None = None
        if outer is not None:
            # Some of the processes exchange values before all have met: they choose then.
            at_first = choice.Choice("gloo", "the processes have not chosen yet")
            self.between = choice.for_processes(self.devices, at_first, outer)
        self.group = Group(size, self.between, choice.for_places(self.devices, inside))
        if size > 1:
            choice.tell("between the places", inside)
        self.running: Bound | None = None
        # An entry, its scopes' layouts, and the variables of which the replicas have parts: too many names to look up in each run.
        self._parts: tuple[tuple[Any, ...], dict[LoDTensor, list[LoDTensor]]] = (), {}
        self.numbers: WeakKeyDictionary[Scope, dict[int, int]] = WeakKeyDictionary()
        # The scope's count of writes when its values were last equal in all processes.
        self.seen: WeakKeyDictionary[Scope, int] = WeakKeyDictionary()
        me = proxy(self)  # weak, so that the threads end as soon as this object is deleted
        self.threads = ReplicaThreads(
            size, self.group, partial(Replicas._current_op, me), partial(Replicas._is_computing, me)
        )
        if outer is not None:
            outer.monitor.current_op = lambda: me.threads.stuck_op()

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return 0 if self.outer is None else self.outer.rank

    def connect(self) -> None:
        """Chooses what moves values between the processes, at the first program that they run together.

        Raises:
            TstaticError: If ``FLAGS_collectives`` asks for what cannot be.
        """
        if self.outer is None or len(self.choices) > 1:
            return
        wanted = choice.asked()
        mine = choice.identity(self.devices, self.outer.host) if wanted in ("auto", "nccl") else []
        whose = self.outer.exchange("choice of collectives", mine)
        chosen = choice.between_processes(self.devices, wanted, whose)
        self.between = self.group.outer = choice.for_processes(self.devices, chosen, self.outer)
        if isinstance(self.between, NcclProcesses):
            self.group.ended = self._ended
            # What hangs in NCCL asks nobody.
            self.outer.monitor.on_verdict(self.between.give_up)
            self.between.connect()
        self.choices.append(chosen)
        choice.tell("between the processes", chosen)

    def _ended(self, reached: Callable[[], bool]) -> None:
        """Returns when this process's device has ended a step, and the other processes have queued it."""
        outer, between = self.outer, self.between
        assert outer is not None
        assert isinstance(between, NcclProcesses)

        def looked() -> bool:
            if (error := between.fault()) is not None:
                raise error
            return reached()

        outer.ended(looked)

    def _current_op(self, replica: int) -> str:
        return self.running.sessions[replica].current_op() if self.running is not None else ""

    def _is_computing(self, replica: int) -> bool:
        return self.running is not None and self.running.sessions[replica].is_computing()

    def agree(self, compilation: Compilation, build: BuildStrategy, scope: Scope) -> None:
        """Compares the processes' programs, copies the first process's state to all, and forms the blocks.

        Raises:
            DistributedError: If they compiled different programs.
        """
        if self.outer is None or compilation.report is None or not compilation.exchanges:
            return
        # Numbers pairs of program and scope in the order of their first use, which is the same in all processes.
        met = self.numbers.setdefault(scope, {})
        uid = compilation.program.uid
        if uid not in met:  # not at each compilation: a process also compiles again when its own sizes change
            met[uid] = next(_numbers)
        if self.outer.check_same(
            f"{met[uid]} {_digest(compilation.program, build, compilation.report.how)}", "program or strategy"
        ):
            # Each process initialised its own state: all start with the first one's.
            held = _held(scope, sorted(compilation.touched[0]))
            self.outer.broadcast([a for _, a in held])
            for name, array in held:
                storage = scope.array(name)
                if storage is not array:  # `array` is a copy: the host cannot read the device's memory
                    owner_of(storage).from_host(storage, array)
            scope.bump_version()
            self.seen[scope] = scope.writes
        self.outer.form(compilation.report.block)

    def room(self, entry: Bound) -> tuple[int, ...]:
        """Returns for how many rows of each table a step needs a plan: as many as the process with the most looks up.

        Where there are such tables, processes tell each other before each step: 8 bytes a table, and no device is asked.
        """
        own = entry.compilation.rows
        if not own or self.outer is None:
            return entry.compilation.room
        told = self.outer.exchange("rows of tables", list(own))
        return tuple(map(max, zip(*told, strict=True)))

    def run(self, entry: Bound, feeds: Sequence[Arrays], scope: Scope, iterations: int) -> list[list[Any]]:
        """Runs a step on all replicas; returns the fetched values of each.

        Raises:
            BaseException: The error of the replica that failed; the state is then as before the step.
        """
        scope.in_flight.settle()
        writes = scope.writes
        exchanges = entry.compilation.exchanges
        self.group.across = self.outer is not None and (exchanges or entry.compilation.meets)
        if self.group.across:
            self.connect()
        self._bind(entry, scope)
        self.running = entry
        tasks = [
            partial(session.replay, arrays, iterations) for session, arrays in zip(entry.sessions, feeds, strict=True)
        ]
        scopes = [session.scope for session in entry.sessions]
        timeout = float(flags.flag("FLAGS_step_timeout_s"))
        with self._settings(entry), self._apart(entry, scope):
            if self.outer is None or not self.group.across:
                # An exchange with some of the processes has the same time-out, and its error names the ranks.
                later = 0.0 if self.outer is None else LATER
                with wait_for_writes(scopes):
                    results = self.threads.run(tasks, timeout + later)
                entry.sessions[0].writing.mend()
                return results
            if exchanges:
                self._watch(self.outer, entry, feeds, scope, writes)
            queued = self.group.ended is not None
            try:
                with self.outer.step(timeout, queued), wait_for_writes(scopes):
                    # The deadline of the process group comes first, because its error names the rank.
                    results = self.threads.run(tasks, timeout + LATER)
                entry.sessions[0].writing.mend()
                self.seen[scope] = scope.writes
                return results
            except BaseException as error:
                named = self._named(error, timeout) if queued else None
                if self.between is not None:
                    self.between.abort(named or error)
                if named is not None:
                    raise named from error
                raise

    def _named(self, error: BaseException, timeout: float) -> RankFailedError | None:
        """Returns an error that names the rank that failed; ``None`` if this one did, or the error names one."""
        assert self.outer is not None
        if self.threads.lost:
            return self.outer.failed_rank(timeout)
        # Where a collective was ended, or another rank refused what it was fed, that rank tells of itself.
        return self.outer.verdict() if isinstance(error, RankFailedError | NcclError) else None

    def _settings(self, entry: Bound) -> contextlib.AbstractContextManager[Any]:
        """Returns the block in which all sessions run."""
        block = contextlib.ExitStack()
        for device in dict.fromkeys(self.devices):
            mine = [session for session in entry.sessions if session.device is device]
            sets = [session.stream_set for session in mine]
            block.enter_context(device.settings(mine[0].setting.threads, sets)(False))
        return block

    @contextlib.contextmanager
    def _apart(self, entry: Bound, scope: Scope) -> Iterator[None]:
        """Leaves sums over runs to the replicas, each of which has its own part, while they run."""
        made = entry.compilation
        at = (entry, *(session.scope.layout for session in entry.sessions))
        if self._parts[0] != at:
            first, *others = [session.scope for session in entry.sessions]
            tensors = {
                var.get_tensor(): [one.var(name).get_tensor() for one in others]
                for name in made.parts
                if (var := first.find_var(name)) is not None
            }
            self._parts = at, tensors
        run = self._parts[1]
        try:
            scope.parted.begin(run)
            yield
        finally:
            with shield:
                scope.parted.end(run, made.whole)

    def _bind(self, entry: Bound, scope: Scope) -> None:
        """Updates the replicas' copies of variables, and binds the sessions whose storage changed."""
        made = entry.compilation
        if scope.parted.others and scope.parted.whole is not made.whole:
            scope._join(made.whole)
        parted = scope.parted
        current = len(self.devices) - 1 if parted.ran() is scope else 0
        for behind in scope.replicas[current:]:
            behind.fall_behind()
        parted.ran = ref(scope)
        for replica, (copied, exclusive) in enumerate(zip(made.copied, made.exclusive, strict=True)):
            where = scope.replica(replica)
            if isinstance(where, ReplicaScope):
                where.fill(copied, exclusive, self.devices[replica], made.parts)
        # Binding moves state into flat buffers, which may make sessions stale that were bound before.
        while any(session.stale() for session in entry.sessions):
            for session in entry.sessions:
                if session.stale():
                    session.bind_plan()
        for session in entry.sessions:
            assert session.bound is not None
            takes_turn(session.scope, session.bound.foreseen)

    def _watch(self, outer: Processes, entry: Bound, feeds: Sequence[Arrays], scope: Scope, writes: int) -> None:
        """Registers digests of this process's parameters and feeds, so that the processes can find a difference."""
        trained = entry.compilation.trained
        outer.watch_state(self.seen.get(scope) != writes, lambda: {n: digest({n: a}) for n, a in _held(scope, trained)})
        if outer.feeds.watching:
            outer.feeds.note(digest({f"{i} {n}": a for i, part in enumerate(feeds) for n, a in part.items()}))

    def close(self) -> None:
        """Ends the threads."""
        self.threads.close()


__all__ = ["OWN_PLACE", "Replicas", "places_of"]
