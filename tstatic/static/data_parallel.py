"""Runs a compiled program on several places of this process: one plan, session and thread per replica."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, proxy

import numpy as np

from tstatic import flags, places
from tstatic.comm import blocks, launch
from tstatic.comm.data_parallel import distribute
from tstatic.comm.distribution import Distribution, Report
from tstatic.comm.group import Group
from tstatic.comm.processes import Processes, digest, world
from tstatic.devices import blas, interpret
from tstatic.devices.pool import usable_cpus
from tstatic.errors import PlaceError, TstaticError
from tstatic.ir import edit
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.process import shared_text
from tstatic.ir.program import Program
from tstatic.ir.types import Meta
from tstatic.ir.where import show, user_line
from tstatic.logs import get_logger
from tstatic.plan.plan import Plan
from tstatic.plan.shapes import infer_program
from tstatic.runtime.feed import Arrays, uninitialised
from tstatic.runtime.interrupt import left_whole
from tstatic.runtime.learning_rate import scheduled
from tstatic.runtime.replica_threads import ReplicaThreads
from tstatic.runtime.scope import ReplicaScope, Scope, tensor_of
from tstatic.runtime.session import Session
from tstatic.runtime.shards import merged, shards
from tstatic.static import pipeline
from tstatic.static.request import fits, state_metas, updated
from tstatic.static.strategy import BuildStrategy

if TYPE_CHECKING:
    from tstatic.static.compiled_program import CompiledProgram

_log = get_logger("recompiles")

LATER = 1.5
"""Seconds by which a process's own deadline comes after that of all processes, whose error names the rank."""
CACHE_SIZE = 32
"""Compiled programs kept per Executor and number of places; the least recently used one goes first."""

_numbers = itertools.count()
"""Of what all processes compile, over all Executors: a later one's program may read the same and yet start anew."""


def places_of(executor_place: Any, given: Any) -> list[places.Place]:
    """The places of a parallel program.

    Args:
        executor_place: The Executor's.
        given: What ``with_data_parallel`` was told: places or their spellings, one of them, or ``None``.

    Raises:
        PlaceError: If there are none, or they are of another kind than the Executor's.
    """
    home = places.resolve(executor_place)
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


def loss_scale(strategy: BuildStrategy, world: int) -> float:
    """What the gradient of the loss starts at on each of so many replicas, unless it is fed."""
    alone = strategy.reduce_strategy is BuildStrategy.ReduceStrategy._NoReduce
    coefficient = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.CoeffNumDevice
    return 1.0 / world if coefficient and not alone else 1.0


def distribution(strategy: BuildStrategy, replicas: int, processes: launch.ProcessInfo | None = None) -> Distribution:
    """What a strategy says about a number of replicas in each of the processes.

    Raises:
        StrategyValueError: If the processes cannot be cut into the blocks that it asks for.
    """
    processes = processes or launch.ProcessInfo()
    world = replicas * processes.size
    block, levels = blocks.choose(strategy, processes)
    kind = strategy.reduce_strategy
    alone = kind is BuildStrategy.ReduceStrategy._NoReduce
    megabytes = float(flags.flag("FLAGS_fuse_parameter_memory_size"))
    least = int(flags.flag("FLAGS_fuse_parameter_groups_size"))
    return Distribution(
        replicas,
        world,
        collect=not alone,
        share_updates=kind is BuildStrategy.ReduceStrategy.Reduce,
        bucket_bytes=megabytes * (1 << 20) if megabytes >= 0 else None,
        bucket_count=least if strategy.fuse_all_reduce_ops else 0,
        fuse_broadcasts=strategy.fuse_broadcast_ops,
        sync_batch_norm=strategy.sync_batch_norm,
        block=block,
        levels=levels,
    )


def exchanges(report: Report) -> bool:
    """Whether replicas of a program depend on each other."""
    return bool(report.gradients or report.norms)


def _digest(program: Program, build: BuildStrategy) -> str:
    """Of what must be equal in all processes: the program, and the strategy but for this process's own number."""
    same = [(p.name, repr(getattr(build, p.name))) for p in type(build).properties() if p.name != "trainer_id"]
    return hashlib.sha256(f"{shared_text(program)}{same}".encode()).hexdigest()[:16]


def _held(scope: Scope, names: Iterable[str]) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Those variables that have a value."""
    return [(name, array) for name in names if (array := scope.array(name)) is not None]


@dataclass(frozen=True)
class Compiled:
    """The replicas of one program for given shards.

    Attributes:
        sessions: One per replica.
        fused: The first replica's program with its fused ops.
        report: What was inserted.
        own: Per replica the variables that it has a copy of.
        lone: Per replica those that it alone works with.
        states: Per replica the metadata of the variables that the plan was made for.
        parameters: What is trained: it is equal in all replicas of all processes.
    """

    sessions: tuple[Session, ...]
    fused: FrozenProgram
    report: Report
    own: tuple[tuple[str, ...], ...]
    lone: tuple[tuple[str, ...], ...]
    states: tuple[Mapping[str, Meta], ...]
    parameters: tuple[str, ...]

    def fits(self, scope: Scope) -> bool:
        """Whether the scope's values still have the metadata that the plans were made for."""
        return all(fits(state, scope) for state in self.states)


class Replicas:
    """The replicas' threads and what they meet in, for one Executor and number of places; and what was compiled."""

    def __init__(self, size: int, outer: Processes | None = None) -> None:
        self.outer = outer
        self.group = Group(size, outer)
        self.running: Compiled | None = None
        self.numbers: WeakKeyDictionary[Scope, dict[int, int]] = WeakKeyDictionary()
        self.seen: WeakKeyDictionary[Scope, int] = WeakKeyDictionary()  # its count of writes, when all had the same
        me = proxy(self)  # so that the threads of a company that nobody has any more end at once
        if outer is not None:
            outer.monitor.current_op = partial(Replicas._current_op, me, 0)
        self.threads = ReplicaThreads(size, self.group, partial(Replicas._current_op, me))
        self.cache: OrderedDict[tuple[Any, ...], Compiled] = OrderedDict()

    def _current_op(self, replica: int) -> str:
        return self.running.sessions[replica].current_op() if self.running is not None else ""

    # ---------------------------------------------------------------------------------------------------------- compile
    def compile(
        self,
        program: Program,
        source: Program,
        build: BuildStrategy,
        feeds: Sequence[Arrays],
        fetches: list[str],
        scope: Scope,
        device: str,
        threads: int,
    ) -> Compiled:
        """Rewrites and plans a program for all replicas; replicas alike share a plan.

        Raises:
            FeedError: If a persistable variable that is read has no value.
        """
        how = distribution(build, len(feeds), None if self.outer is None else self.outer.launch)
        frozen, _ = pipeline.rewrite(source, build, list(feeds[0]), fetches, loss_scale(build, how.world))
        programs, report = distribute(frozen, how)
        interpreted = device == "cpu" and interpret.backend() == "interpret"
        known: dict[tuple[Any, ...], tuple[FrozenProgram, Plan]] = {}
        sessions = []
        states = []
        each = max(1, min(threads, usable_cpus()) // len(feeds))
        first: FrozenProgram | None = None
        for replica, (mine, arrays) in enumerate(zip(programs, feeds, strict=True)):
            key = (id(mine), tuple((n, a.shape, a.dtype) for n, a in sorted(arrays.items())))
            state = state_metas(mine, program, scope)
            if key not in known:
                given = {mine.reads[var]: meta for var, meta in state.items()}
                given.update((n, meta_of(a)) for n, a in arrays.items())
                fused, metas = pipeline.fuse(mine, infer_program(mine, given), build)
                known[key] = fused, pipeline.lower(fused, metas, build, generated=interpreted)
            fused, plan = known[key]
            first = first if first is not None else fused
            for var in mine.reads:
                if scope.array(var) is None:
                    raise uninitialised(plan, var)
            check = bool(flags.flag("FLAGS_check_nan_inf"))
            sessions.append(
                Session(
                    plan, scope.replica(replica), device, each, program.random_seed, program.uid, check,
                    self.group.communicator(replica), replica + (0 if self.outer is None else self.outer.rank * len(feeds)),
                )
            )  # fmt: skip
            states.append(state)
        touched = [frozenset(p.reads) | frozenset(p.writes) for p in programs]
        everywhere = frozenset.intersection(*touched)
        assert first is not None
        if self.outer is not None and exchanges(report):
            # Asked once for a program and a scope, in the order in which they came, which is the same in all processes.
            met = self.numbers.setdefault(scope, {})
            if program.uid not in met:  # each process compiles again when its own sizes change
                met[program.uid] = next(_numbers)
            if self.outer.check_same(f"{met[program.uid]} {_digest(program, build)}", "program or strategy"):
                # Each process initialised its own: all begin with the first one's.
                self.outer.broadcast([a for _, a in _held(scope, sorted(touched[0]))])
                scope.touched()
                self.seen[scope] = scope.writes
            self.outer.form(report.block)
        return Compiled(
            tuple(sessions), first, report,
            tuple(tuple(sorted(t & everywhere)) for t in touched), tuple(tuple(sorted(t - everywhere)) for t in touched),
            tuple(states),
            tuple(p.name for p in program.all_parameters() if p.trainable and p.name in touched[0]),
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------------------------- run
    def run(self, compiled: Compiled, feeds: Sequence[Arrays], scope: Scope, iterations: int) -> list[list[Any]]:
        """Runs a step on all replicas; returns what each fetched.

        Raises:
            BaseException: The error of the replica that failed; state is then as before the step.
        """
        writes = scope.writes
        for replica, (own, lone) in enumerate(zip(compiled.own, compiled.lone, strict=True)):
            where = scope.replica(replica)
            if isinstance(where, ReplicaScope):
                where.fill(own, lone)
        # Binding moves state into flat buffers, which may put out what was bound before.
        while any(session.stale() for session in compiled.sessions):
            for session in compiled.sessions:
                if session.stale():
                    session.bind()
        self.running = compiled
        self.group.across = self.outer is not None and exchanges(compiled.report)
        tasks = [
            partial(session.replay, arrays, iterations)
            for session, arrays in zip(compiled.sessions, feeds, strict=True)
        ]
        scopes = [session.scope for session in compiled.sessions]
        timeout = float(flags.flag("FLAGS_step_timeout_s"))
        with blas.OneThread():
            if self.outer is None or not self.group.across:
                with left_whole(scopes):
                    return self.threads.run(tasks, timeout)
            changed = self.seen.get(scope) != writes
            self.outer.watch_state(changed, lambda: {n: digest({n: a}) for n, a in _held(scope, compiled.parameters)})
            if self.outer.feeds.watching:
                self.outer.feeds.note(digest({f"{i} {n}": a for i, part in enumerate(feeds) for n, a in part.items()}))
            try:
                with self.outer.step(timeout), left_whole(scopes):
                    # The processes' own deadline comes first: its error names the rank.
                    results = self.threads.run(tasks, timeout + LATER)
                self.seen[scope] = scope.writes
                return results
            except BaseException as error:
                self.outer.failed(error)
                raise


class Companies:
    """One Executor's companies, by number of places, and its data-parallel runs."""

    def __init__(self) -> None:
        self._by_size: dict[int, Replicas] = {}

    def close(self) -> None:
        """Ends the threads and frees the plans."""
        for company in self._by_size.values():
            company.threads.close()
        self._by_size.clear()

    @property
    def held_bytes(self) -> int:
        """Bytes that the arenas of all replicas hold now."""
        entries = (e for company in self._by_size.values() for e in company.cache.values())
        return sum(session.held_bytes for entry in entries for session in entry.sessions)

    def run(
        self,
        compiled: CompiledProgram,
        place: Any,
        feed: Any,
        used: frozenset[str],
        wanted: tuple[list[str], list[str]],
        scope: Scope,
        return_numpy: bool,
        return_merged: bool,
        use_prune: bool,
    ) -> list[Any]:
        """One step on every place of a data-parallel program; ``wanted`` are names to fetch and results to keep."""
        fetches, execution = wanted[0], compiled._exec_strategy
        try:
            company, entry, feeds = self._entry(compiled, place, feed, used, wanted, scope, use_prune)
        except TstaticError as error:
            raise error.add_context(where=show(user_line())) from None
        if execution._dry_run:
            return [None] * len(fetches)
        with scheduled(compiled._program, scope):
            results = company.run(entry, feeds, scope, execution.num_iteration_per_run)
        compiled._dropped = False
        for session in entry.sessions:
            compiled._after_run(session)
        if not return_merged:
            rows = [[one[i] for one in results] for i in range(len(fetches))]
            return rows if return_numpy else [[tensor_of(v) for v in row] for row in rows]
        values = merged(results, fetches)
        return values if return_numpy else [tensor_of(v) for v in values]

    def _entry(
        self,
        compiled: CompiledProgram,
        place: Any,
        feed: Any,
        used: frozenset[str],
        wanted: tuple[list[str], list[str]],
        scope: Scope,
        use_prune: bool,
    ) -> tuple[Replicas, Compiled, list[Arrays]]:
        """The compiled replicas for this feed, from the cache where they still fit."""
        program, build, (fetches, kept) = compiled._program, compiled._build_strategy, wanted
        found = places_of(place, compiled._places)
        # Connected before the feed is looked at: the other processes hear of one that is refused.
        company = self._by_size.get(len(found)) or self._company(len(found), build)
        feeds = shards(program, feed, used, len(found))
        threads = compiled._exec_strategy.num_threads or 4 * len(found)
        signature = tuple(tuple((n, a.shape, a.dtype) for n, a in sorted(part.items())) for part in feeds)
        key = (
            program.uid, program.version, build.key(), threads, signature, tuple(fetches), tuple(found), id(scope),
            flags.key(), use_prune, tuple(kept),
        )  # fmt: skip
        entry = company.cache.get(key)
        if entry is None or (any(s.stale() for s in entry.sessions) and not entry.fits(scope)):
            company = self._company(len(found), build)
            start = time.perf_counter()
            source = edit.prune(program, list(feeds[0]), fetches + (kept or updated(program))) if use_prune else program
            entry = company.compile(program, source, build, feeds, fetches, scope, found[0].kind, threads)
            compiled._remember(entry.sessions[0].plan, entry.fused)
            milliseconds = (time.perf_counter() - start) * 1e3
            _log.info("compiled %r for %d places in %.1f ms", program, len(found), milliseconds)
            company.cache[key] = entry
            while len(company.cache) > CACHE_SIZE:
                company.cache.popitem(last=False)
        company.cache.move_to_end(key)
        return company, entry, feeds

    def _company(self, size: int, build: BuildStrategy) -> Replicas:
        """The company for so many places, among the processes that the launcher and the strategy agree on."""
        launch.resolve_process(build)
        outer = world()
        company = self._by_size.get(size)
        if company is None or company.outer is not outer:
            if company is not None:
                company.threads.close()
            company = self._by_size[size] = Replicas(size, outer)
        return company


__all__ = ["Companies", "Compiled", "Replicas", "distribution", "places_of"]
