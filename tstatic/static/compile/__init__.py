"""Compiles programs: strategy, feeds, fetches and scope become a Compilation.

* ``pipeline``  the passes and fusions that a program and a strategy require, in order: read this first
* ``request``  the arguments of a run: feeds, fetches, state
* ``plan_cache``, ``any_size``  keeps compilations; plans for feeds of any size, to which new sizes of a known program are bound
* ``ledger``  what each compilation cost, and why it was needed
* ``graph_parts``  what of a program a device launches as one, and what keeps it from being one
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from tstatic import flags
from tstatic.chips import ahead
from tstatic.comm.group import Group
from tstatic.comm.passes.data_parallel import distribute
from tstatic.comm.passes.distribution import BUCKET_MEGABYTES, MEGABYTE, Distribution, Exchange, Report
from tstatic.comm.passes.row_sums import padded, row_counts
from tstatic.comm.rendezvous import ProcessInfo
from tstatic.comm.transport.hierarchy import choose_hierarchy
from tstatic.devices import Device, cpu_device
from tstatic.devices.cpu.pool import usable_cpus
from tstatic.fusion.engine import Log
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.program import Operator, Program
from tstatic.ir.types import Meta
from tstatic.ir.updates import with_updates
from tstatic.locks import cached_property
from tstatic.plan.alignment import unaligned
from tstatic.plan.known_values import infer_program
from tstatic.plan.plan import Plan
from tstatic.runtime import timeline
from tstatic.runtime.arenas import Arenas
from tstatic.runtime.feed import uninitialised
from tstatic.runtime.scope import Scope
from tstatic.runtime.session import Session
from tstatic.static.compile import pipeline
from tstatic.static.compile.ledger import Key
from tstatic.static.compile.request import state_metas
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target, as_asked


# ---------------------------------------------------------------------------------------------------------- distribution
def loss_scale(strategy: BuildStrategy, world: int) -> float:
    """Returns the initial gradient of the loss on each of ``world`` replicas, unless it is fed."""
    independent = strategy.reduce_strategy is BuildStrategy.ReduceStrategy._NoReduce
    # Replicas sum their gradients: scaling that of the loss by 1 / world makes the sum a mean.
    coefficient = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.CoeffNumDevice
    return 1.0 / world if coefficient and not independent else 1.0


def distribution(
    strategy: BuildStrategy,
    replicas: int,
    processes: ProcessInfo | None = None,
    exchange: Exchange | None = None,
    late: bool = False,
    numerics: str | None = None,
) -> Distribution:
    """Returns the distribution that a strategy describes.

    Args:
        strategy: The strategy.
        replicas: Number of replicas in each process.
        processes: The position of this process; ``None`` for a single one.
        exchange: What a strategy of fleet says of how gradients travel.
        late: Whether the replicas' device runs its work late, so that sums run beside the backward part.
        numerics: ``default`` or ``strict``; ``None``: what ``FLAGS_numerics`` says.

    Raises:
        StrategyValueError: If the processes cannot be divided into the blocks that the strategy requires.
    """
    processes, exchange = processes or ProcessInfo(), exchange or Exchange()
    world = replicas * processes.size
    block, hierarchy = choose_hierarchy(strategy, processes)
    kind = strategy.reduce_strategy
    independent = kind is BuildStrategy.ReduceStrategy._NoReduce
    megabytes: float | None = float(flags.flag("FLAGS_fuse_parameter_memory_size"))
    if megabytes == -1:
        # Between CPU places nothing runs beside the backward part, so that each further sum is one more meeting of all threads.
        default = BUCKET_MEGABYTES if late or processes.size > 1 else None
        megabytes = default if exchange.megabytes is None else exchange.megabytes
    least = int(flags.flag("FLAGS_fuse_parameter_groups_size"))
    return Distribution(
        replicas,
        world,
        collect=not independent,
        share_updates=kind is BuildStrategy.ReduceStrategy.Reduce,
        bucket_bytes=None if megabytes is None else max(0.0, megabytes) * MEGABYTE,
        last_bytes=exchange.last_megabytes * MEGABYTE,
        bucket_count=least if strategy.fuse_all_reduce_ops else 0,
        fuse_broadcasts=strategy.fuse_broadcast_ops,
        sync_batch_norm=strategy.sync_batch_norm,
        block=block,
        hierarchy=hierarchy,
        watch=int(flags.flag("FLAGS_check_rank_gradients")),
        low=(numerics or flags.numerics()) != "strict",
        half=exchange.half,
        # What a look at a sum in between joins is added in another order then.
        apart=(numerics or flags.numerics()) != "strict",
        rings=strategy.nccl_comm_num,
        same_stream=exchange.same_stream,
        waits=exchange.waits,
    )


# ----------------------------------------------------------------------------------------------------------- compilation
@dataclass(frozen=True, eq=False)
class Family:
    """What the compilations of a program for feeds of any sizes have in common.

    Attributes:
        source: The program after pruning.
        programs: Per replica, the program after the passes, before the fusions: sizes decide only what comes then.
        report: What data-parallel replicas exchange; ``None`` for a program on one place.
    """

    source: Program
    programs: tuple[FrozenProgram, ...]
    report: Report | None

    @cached_property
    def repeats(self) -> bool:
        """Whether a run that failed can be repeated, and a plan without sizes is worth while.

        Bodies of loops would run slower, and what prints or calls functions of the user would do so twice.
        """
        return not any(
            op.sub_blocks or op.definition.collective or op.definition.objects
            or (op.definition.effects and not op.definition.indices)  # what checks positions only raises
            or any(spec.kind == "function" for spec in op.definition.attrs.values())
            for frozen in self.programs for op in frozen.ops
        )  # fmt: skip


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
        # Under the numerics that the fusions were made for: the flag may have changed since.
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
        family: What it has in common with compilations for other sizes.
        replicas: One per replica; a program on one place has one.
        states: Per replica, the metadata of the variables that the plan was made for.
        rows: For each table whose gradient is summed as rows, how many a replica may have looked up; empty if runs find that out.
        room: For how many it was compiled, which are those of the process with the most.
    """

    key: Key | None
    program: Program
    family: Family
    replicas: tuple[LoweredProgram, ...]
    states: tuple[Mapping[str, Meta], ...]
    rows: tuple[int, ...] = ()
    room: tuple[int, ...] = ()

    @property
    def source(self) -> Program:
        """The program after pruning."""
        return self.family.source

    @property
    def report(self) -> Report | None:
        """What data-parallel replicas exchange; ``None`` for a program on one place."""
        return self.family.report

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
    def parts(self) -> frozenset[str]:
        """The variables of which each replica has a part of its own: the value is their sum."""
        return frozenset() if self.report is None else frozenset(self.report.parts)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The variables that the replicas use and have no parts of."""
        return frozenset().union(*self.touched) - self.parts

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

    def bind_scope(
        self,
        scope: Scope,
        devices: Sequence[Device],
        threads: int,
        group: Group | None = None,
        rank: int = 0,
        arenas: Sequence[Arenas | None] = (),
    ) -> tuple[Session, ...]:
        """Returns sessions, one per replica; each binds its arrays when it first runs.

        Args:
            scope: The scope of the persistable variables.
            devices: The device of each replica.
            threads: Number of threads of all replicas together.
            group: The group in which the replicas communicate; ``None`` for a program on one place.
            rank: Rank of this process, so that each replica draws its own random numbers.
            arenas: Per replica, memory that it shares with sessions that run when it does not.

        Raises:
            FeedError: If a persistable variable that the program reads has no value.
        """
        count = len(self.replicas)
        # Replicas run at the same time and share the cores; results do not depend on the number.
        each = max(1, min(threads, usable_cpus()) // count)
        check = bool(flags.flag("FLAGS_check_nan_inf"))
        sessions = []
        # Replicas that are alike share a lowering: its kernels are compiled once.
        for one in {id(one): one for one in self.replicas}.values():
            for var in one.before.reads:
                if scope.array(var) is None:
                    raise uninitialised(one.plan, var)
            if one.plan.kernels and (block := devices[0].compiling()) is not None:
                with block:
                    timeline.kernels(_compiled_ahead(one.plan))
        for i, (one, device) in enumerate(zip(self.replicas, devices, strict=True)):
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
                    arenas[i] if arenas else None,
                )
            )
        return tuple(sessions)


@timeline.part("look for kernels in Triton's cache")
def _compiled_ahead(plan: Plan) -> ahead.Batch | None:
    """Has other processes compile the kernels of a plan, while this one uploads and binds."""
    kernels = [(one.kernel, one.calls) for one in plan.kernels.values()]
    named = dict.fromkeys(
        a for _, calls in kernels for one in calls.launches for a in one.arguments if isinstance(a, str)
    )
    return ahead.begin(kernels, unaligned(plan, named))


def fuse_under(
    numerics: str, frozen: FrozenProgram, metas: Mapping[str, Meta], build: BuildStrategy
) -> tuple[FrozenProgram, Mapping[str, Meta], Log]:
    """Applies the fusions of a strategy under ``default`` or ``strict`` numerics; returns also what was fused and what not."""
    log = Log()
    with flags.using_numerics(numerics):
        fused, after = pipeline.fuse(frozen, metas, build, log)
    return fused, after, log


def family_of(
    program: Program,
    build: BuildStrategy,
    feeds: Sequence[str],
    fetches: Sequence[str],
    how: Distribution | None = None,
    kept: Sequence[Operator] | None = None,
    widens: bool = False,
) -> Family:
    """Prunes, rewrites and distributes a program; sizes play no part in it.

    Args:
        program, build, fetches, how, kept: As for :func:`compile_program`.
        feeds: Names of what is fed.
        widens: Whether float16 is computed in float32, as on CPU places.

    Raises:
        TstaticError: If a feed or fetch does not fit.
    """
    source = program if kept is None else with_updates(program, list(feeds), fetches, kept)
    scale = 1.0 if how is None else loss_scale(build, how.world)
    frozen, _ = pipeline.simplify(source, build, list(feeds), fetches, scale, widens)
    if how is None:
        return Family(source, (frozen,), None)
    programs, report = distribute(frozen, how)
    return Family(source, tuple(programs), report)


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
    family: Family | None = None,
    room: tuple[int, ...] = (),
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
        family: What :func:`family_of` returned for the same arguments, to spare its work.
        room: For how many rows of each table to plan, which may be more than the feeds of this process ask for.

    Raises:
        TstaticError: If a feed or fetch does not fit, or an op rejects its inputs' shapes.
    """
    device = device or cpu_device()
    used = flags.numerics() if numerics is None else numerics
    if family is None:
        # Strict numerics round to float16 after every op, which a wider computation would not.
        widens = bool(program.mixed_precision) and device.name == "cpu" and used != "strict"
        family = family_of(program, build, list(feeds[0]), fetches, how, kept, widens)
    replicas = [
        (mine, metas, state_metas(mine, program, scope))
        # Not strict: an explanation gives the feeds of the first replica only.
        for mine, metas in zip(family.programs, feeds, strict=False)
    ]
    # Inference, fusions and kernels are done once for each pair of program and feeds.
    distinct = {_alike(*one): one for one in replicas}
    known = {alike: _inferred(*one) for alike, one in distinct.items()}
    rows: tuple[int, ...] = ()
    if how is not None and family.report is not None and family.report.tables and device.deferred:
        # Of memory that the host reads, runs send the rows that they find.
        counts = [row_counts(mine, metas) for mine, metas in known.values()]
        if all(counts):
            family.report.padded = True
            rows = tuple(map(max, zip(*counts, strict=True)))
            # Processes exchange buffers of one size: the one that looks up most rows decides it.
            room = room or rows
            known = {
                alike: _inferred(padded(mine, room, how.world), *rest) for alike, (mine, *rest) in distinct.items()
            }
    made = {}
    for alike, (mine, inferred) in known.items():
        fused, after, log = fuse_under(used, mine, inferred, build)
        target = as_asked(device.target)
        made[alike] = LoweredProgram(mine, inferred, fused, after, log, build, device, target, used)
    lowered = tuple(made[_alike(*one)] for one in replicas)
    return Compilation(
        key, program, family, lowered, tuple(state for _, _, state in replicas), rows, room if rows else ()
    )


def _alike(mine: FrozenProgram, feeds: Mapping[str, Meta], state: Mapping[str, Meta]) -> Hashable:
    """Returns what replicas with one lowering, and so one plan and its kernels, have in common: equal programs and equal feeds."""
    return id(mine), tuple(sorted(feeds.items()))


def _inferred(
    mine: FrozenProgram, feeds: Mapping[str, Meta], state: Mapping[str, Meta]
) -> tuple[FrozenProgram, Mapping[str, Meta]]:
    """Returns a replica's program with the metadata of all its values."""
    # Sizes of the state come from the scope, where they may differ from the declared ones.
    return mine, infer_program(mine, {**feeds, **{mine.reads[var]: meta for var, meta in state.items()}})


__all__ = [
    "Compilation",
    "Family",
    "Key",
    "LoweredProgram",
    "compile_program",
    "distribution",
    "family_of",
    "loss_scale",
]
