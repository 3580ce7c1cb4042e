"""Compiles programs: strategy, feeds, fetches and scope become a Compilation, which a cache keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import INFO
from typing import Any

from tstatic import flags
from tstatic.comm.data_parallel import distribute
from tstatic.comm.distribution import Distribution, Report
from tstatic.comm.group import Group
from tstatic.comm.hierarchy import choose_hierarchy
from tstatic.comm.rendezvous import ProcessInfo
from tstatic.devices import Device, cpu_device
from tstatic.devices.cpu.pool import usable_cpus
from tstatic.fusion.engine import Log
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.program import Operator, Program
from tstatic.ir.types import Meta
from tstatic.ir.updates import with_updates
from tstatic.locks import cached_property
from tstatic.logs import get_logger, warn_once
from tstatic.plan.known_values import infer_program
from tstatic.plan.plan import Plan
from tstatic.runtime.feed import uninitialised
from tstatic.runtime.scope import Scope
from tstatic.runtime.session import Session
from tstatic.static import pipeline
from tstatic.static.ledger import CompileRecord, Key, Ledger
from tstatic.static.request import state_metas
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target

_log = get_logger("recompiles")

CACHE_SIZE = 32
"""The most compilations kept per Executor; the least recently used one is removed first."""


# ---------------------------------------------------------------------------------------------------------- distribution
def loss_scale(strategy: BuildStrategy, world: int) -> float:
    """Returns the initial gradient of the loss on each of ``world`` replicas, unless it is fed."""
    independent = strategy.reduce_strategy is BuildStrategy.ReduceStrategy._NoReduce
    # Replicas sum their gradients: scaling that of the loss by 1 / world makes the sum a mean.
    coefficient = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.CoeffNumDevice
    return 1.0 / world if coefficient and not independent else 1.0


def distribution(
    strategy: BuildStrategy, replicas: int, processes: ProcessInfo | None = None, megabytes: float | None = None
) -> Distribution:
    """Returns the distribution that a strategy describes.

    Args:
        strategy: The strategy.
        replicas: Number of replicas in each process.
        processes: The position of this process; ``None`` for a single one.
        megabytes: Most of gradients in one collective; ``None``: what ``FLAGS_fuse_parameter_memory_size`` says.

    Raises:
        StrategyValueError: If the processes cannot be divided into the blocks that the strategy requires.
    """
    processes = processes or ProcessInfo()
    world = replicas * processes.size
    block, hierarchy = choose_hierarchy(strategy, processes)
    kind = strategy.reduce_strategy
    independent = kind is BuildStrategy.ReduceStrategy._NoReduce
    if megabytes is None:
        megabytes = float(flags.flag("FLAGS_fuse_parameter_memory_size"))
    least = int(flags.flag("FLAGS_fuse_parameter_groups_size"))
    return Distribution(
        replicas,
        world,
        collect=not independent,
        share_updates=kind is BuildStrategy.ReduceStrategy.Reduce,
        bucket_bytes=megabytes * (1 << 20) if megabytes >= 0 else None,
        bucket_count=least if strategy.fuse_all_reduce_ops else 0,
        fuse_broadcasts=strategy.fuse_broadcast_ops,
        sync_batch_norm=strategy.sync_batch_norm,
        block=block,
        hierarchy=hierarchy,
        watch=int(flags.flag("FLAGS_check_rank_gradients")),
    )


# ----------------------------------------------------------------------------------------------------------- compilation
@dataclass(frozen=True)
class LoweredProgram:
    """The program of a replica, before and after its fusions, and its plan; equal replicas share one.

    Attributes:
        before: The program after the passes, before the fusions.
        metas_before: Metadata of all its values.
        after: The program with fused ops.
        metas: Metadata of all its values.
        log: The fusions that were made, and the matches that were not.
        build: The strategy.
        device: The device of the places, which decides whether fused ops run as generated kernels.
        target: The chip that kernels are planned for.
        numerics: What it was compiled for, ``default`` or ``strict``.
    """

    before: FrozenProgram
    metas_before: Mapping[str, Meta]
    after: FrozenProgram
    metas: Mapping[str, Meta]
    log: Log
    build: BuildStrategy
    device: Device
    target: Target
    numerics: str

    @cached_property
    def plan(self) -> Plan:
        """The plan, made on first use: an explanation does not need it."""
        with flags.using_numerics(self.numerics):
            return pipeline.lower(self.after, self.metas, self.build, self.device, self.target)

    def plan_on(self, chip: Target) -> Plan:
        """Returns the plan for a chip that need not be here."""
        with flags.using_numerics(self.numerics):
            return pipeline.lower(self.after, self.metas, self.build, None, chip)


@dataclass(frozen=True)
class Compilation:
    """The result of compiling a program for one key.

    Attributes:
        key: The key; ``None`` if no cache keeps the compilation.
        program: The user's program.
        source: The program after pruning.
        replicas: One per replica; a program on one place has one.
        states: Per replica, the metadata of the variables that the plan was made for.
        report: What data-parallel replicas exchange; ``None`` for a program on one place.
    """

    key: Key | None
    program: Program
    source: Program
    replicas: tuple[LoweredProgram, ...]
    states: tuple[Mapping[str, Meta], ...]
    report: Report | None

    @property
    def first(self) -> LoweredProgram:
        """The first replica's program, which is the one shown to users."""
        return self.replicas[0]

    @property
    def exchanges(self) -> bool:
        """Whether the replicas exchange values."""
        return self.report is not None and bool(self.report.gradients or self.report.norms)

    @cached_property
    def meets(self) -> bool:
        """Whether the user's program has collectives of all processes."""
        return self.report is not None and bool(self.report.collectives)

    @cached_property
    def touched(self) -> tuple[frozenset[str], ...]:
        """Per replica, the variables that it reads or writes."""
        return tuple(frozenset(one.before.reads) | frozenset(one.before.writes) for one in self.replicas)

    @cached_property
    def copied(self) -> tuple[tuple[str, ...], ...]:
        """Per replica, the variables of which it has a copy, because all replicas use them."""
        shared = frozenset.intersection(*self.touched)
        return tuple(tuple(sorted(names & shared)) for names in self.touched)

    @cached_property
    def exclusive(self) -> tuple[tuple[str, ...], ...]:
        """Per replica, the variables that it uses and at least one other replica does not."""
        shared = frozenset.intersection(*self.touched)
        return tuple(tuple(sorted(names - shared)) for names in self.touched)

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The trainable parameters that the program uses; they are equal in all replicas of all processes."""
        return tuple(p.name for p in self.program.all_parameters() if p.trainable and p.name in self.touched[0])

    def fits(self, scope: Scope) -> bool:
        """Returns whether the scope's values still have the shapes that the plans were made for."""
        for state in self.states:
            for var, meta in state.items():
                array = scope.array(var)
                # Types are not compared: binding checks them, with a message of its own.
                if array is None or array.shape != meta.shape:
                    return False
        return True

    def bind(
        self, scope: Scope, device: Device, threads: int, group: Group | None = None, rank: int = 0
    ) -> tuple[Session, ...]:
        """Returns sessions, one per replica; each binds its arrays when it first runs.

        Args:
            scope: The scope of the persistable variables.
            device: The device of the places.
            threads: Number of threads of all replicas together.
            group: The group in which the replicas communicate; ``None`` for a program on one place.
            rank: Rank of this process, so that each replica draws its own random numbers.

        Raises:
            FeedError: If a persistable variable that the program reads has no value.
        """
        count = len(self.replicas)
        # Replicas run at the same time and share the cores; results do not depend on the number.
        each = max(1, min(threads, usable_cpus()) // count)
        check = bool(flags.flag("FLAGS_check_nan_inf"))
        sessions = []
        for i, one in enumerate(self.replicas):
            for var in one.before.reads:
                if scope.array(var) is None:
                    raise uninitialised(one.plan, var)
            sessions.append(
                Session(
                    one.plan,
                    scope.replica(i),
                    device,
                    each,
                    self.program.random_seed,
                    self.program.uid,
                    check,
                    group.communicator(i, device) if group is not None else None,
                    rank * count + i,
                )
            )
        return tuple(sessions)


def fuse_under(
    numerics: str, frozen: FrozenProgram, metas: Mapping[str, Meta], build: BuildStrategy
) -> tuple[FrozenProgram, Mapping[str, Meta], Log]:
    """Applies the fusions of a strategy under ``default`` or ``strict`` numerics; returns also what was fused and what not."""
    log = Log()
    with flags.using_numerics(numerics):
        fused, after = pipeline.fuse(frozen, metas, build, log)
    return fused, after, log


def compile_program(
    program: Program,
    build: BuildStrategy,
    feeds: Sequence[Mapping[str, Meta]],
    fetches: Sequence[str],
    scope: Scope,
    *,
    how: Distribution | None = None,
    kept: Sequence[Operator] | None = None,
    device: Device | None = None,
    key: Key | None = None,
    numerics: str | None = None,
) -> Compilation:
    """Rewrites, distributes and fuses a program for given feeds and fetches.

    Args:
        program: The user's program; it is not changed.
        build: Its strategy.
        feeds: Per replica, the metadata of its feeds. For an explanation, those of the first replica only.
        fetches: Names of the fetched variables.
        scope: Its values give the shapes of the state; variables without a value have their declared shapes.
        how: The distribution of a data-parallel program; ``None`` for one place.
        kept: Prune the program to the fetches and these updates, or to all updates if the list is empty; ``None``: do not
            prune. Ops of this program, or of one that it is a copy of.
        device: The device of the places; that of CPU places if ``None``.
        key: The key under which a cache will keep the compilation.
        numerics: ``default`` or ``strict``; ``None``: what ``FLAGS_numerics`` says.

    Raises:
        TstaticError: If a feed or fetch does not fit, or an op rejects its inputs' shapes.
    """
    names = list(feeds[0])
    source = program if kept is None else with_updates(program, names, fetches, kept)
    scale = 1.0 if how is None else loss_scale(build, how.world)
    device = device or cpu_device()
    used = flags.numerics() if numerics is None else numerics
    widens = bool(program.mixed_precision) and device.name == "cpu" and used != "strict"
    frozen, _ = pipeline.simplify(source, build, names, fetches, scale, widens)
    programs, report = ([frozen], None) if how is None else distribute(frozen, how)
    known: dict[tuple[Any, ...], LoweredProgram] = {}
    replicas = []
    states = []
    # Not strict: an explanation gives the feeds of the first replica only.
    for mine, metas in zip(programs, feeds, strict=False):
        state = state_metas(mine, program, scope)
        # Replicas with equal programs and equal feeds share one lowering, and so one plan and its kernels.
        alike = id(mine), tuple(sorted(metas.items()))
        if alike not in known:
            # Sizes of the state come from the scope, where they may differ from the declared ones.
            inferred = infer_program(mine, {**metas, **{mine.reads[var]: meta for var, meta in state.items()}})
            fused, after, log = fuse_under(used, mine, inferred, build)
            known[alike] = LoweredProgram(mine, inferred, fused, after, log, build, device, device.target, used)
        replicas.append(known[alike])
        states.append(state)
    return Compilation(key, program, source, tuple(replicas), tuple(states), report)


# ----------------------------------------------------------------------------------------------------------------- cache
@dataclass(frozen=True)
class Bound:
    """A compilation and its sessions.

    Attributes:
        compilation: The compilation that they run.
        sessions: One per replica.
        group: The group in which the replicas communicate.
        kept: Fed persistable variables that the program does not write: after the run the scope has what was fed.
    """

    compilation: Compilation
    sessions: tuple[Session, ...]
    group: Group | None
    kept: tuple[str, ...] = ()


class CompileCache:
    """Keeps the compilations of one Executor, with their sessions, by key.

    Attributes:
        warns: Whether many compilations of one program draw a warning; checks make them on purpose.
    """

    def __init__(self) -> None:
        self.warns = True
        self._entries: OrderedDict[Key, Bound] = OrderedDict()
        self.ledger = Ledger()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key, scope: Scope) -> Bound | None:
        """Returns the entry of a key, if the scope's values still fit it."""
        # Most runs repeat the last one, whose entry is at the end; comparing two keys takes a fifth of hashing one twice.
        newest, found = next(reversed(self._entries.items()), (None, None))
        repeated = key == newest
        if not repeated:
            found = self._entries.get(key)
        if found is None:
            return None
        for session in found.sessions:
            if session.stale():
                # Other storage of the same shapes is only bound anew; other shapes need another plan.
                if not found.compilation.fits(scope):
                    return None
                break
        if not repeated:
            self._entries.move_to_end(key)
        return found

    def add(self, key: Key, entry: Bound, seconds: float) -> CompileRecord:
        """Adds an entry, logs and records the time of the compilation and the parts of the key that differ from the nearest one."""
        count = len(entry.sessions)
        program = entry.compilation.program
        record = self.ledger.add(key, repr(program), seconds)
        if _log.isEnabledFor(INFO):
            where = f" for {count} places" if count > 1 else ""
            _log.info("compiled %r%s in %.1f ms: %s", program, where, seconds * 1e3, record.reason)
        if self.warns and record.number == CACHE_SIZE + 1:
            warn_once(
                ("many compilations", program.uid),
                f"{program!r} was compiled {record.number} times, and an Executor keeps {CACHE_SIZE} plans: {record.reason}. "
                "Executor.compilations has all reasons; FLAGS_max_recompiles sets a limit",
                topic="recompiles",
            )
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > CACHE_SIZE:
            self._entries.popitem(last=False)
        return record

    def forget(self, group: Group) -> None:
        """Removes the entries of replicas whose group has ended."""
        # A list, as the dict changes in the loop.
        for key in [key for key, entry in self._entries.items() if entry.group is group]:
            del self._entries[key]

    def close(self) -> None:
        """Frees the memory of all sessions and removes all entries."""
        for entry in self._entries.values():
            for session in entry.sessions:
                session.drop()
        self._entries.clear()

    @property
    def held_bytes(self) -> int:
        """Bytes that the arenas of all sessions hold now."""
        return sum(session.held_bytes for entry in self._entries.values() for session in entry.sessions)


__all__ = [
    "Bound", "Compilation", "CompileCache", "Key", "LoweredProgram", "compile_program", "distribution", "loss_scale",
]  # fmt: skip
