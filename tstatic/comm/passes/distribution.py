"""Defines the settings of data parallelism, and the report of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tstatic import flags
from tstatic.display import counted, size
from tstatic.ir.frozen import FrozenOp

MEGABYTE = 1 << 20
"""Bytes of what flags and strategies call a megabyte, as Paddle's do."""
BUCKET_MEGABYTES = 25.0
"""Megabytes of a bucket where sums run beside the backward part: large enough that a call's latency is a small share of it."""
FIRST_BYTES = MEGABYTE
"""The first bucket takes no more gradients once it has so many bytes: it starts early, however large the others are."""

_LEVELS = ("use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks")


class Moves(Protocol):
    """What moves values, and as the text of ``str`` also why."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a strategy of fleet says of how gradients travel.

    Attributes:
        megabytes: Most of gradients in one collective; ``None``: what the flags say.
        last_megabytes: Most in the last one, which starts when the backward part ends.
        same_stream: Put collectives into the stream of the computation.
        waits: Let the host wait behind each collective.
        half: Send float32 gradients as float16.
    """

    megabytes: float | None = None
    last_megabytes: float = 1.0
    same_stream: bool = False
    waits: bool = False
    half: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a program is distributed over replicas.

    Attributes:
        replicas: Number of replicas of this process.
        world: Number of replicas of all processes.
        collect: Sum gradients over the replicas.
        share_updates: Update each parameter on one replica of the process and send it to the others.
        bucket_bytes: Most bytes of gradients in one collective; ``None``: no limit.
        last_bytes: Most bytes in the last one.
        bucket_count: Least number of gradients in one collective; 0: one collective per gradient.
        fuse_broadcasts: Send all parameters in one collective.
        sync_batch_norm: Compute statistics over all replicas.
        block: Number of processes, neighbours by rank, whose gradients are summed before the sum over all; 0: one level.
        hierarchy: The reason for ``block``, for explanations.
        watch: Whether to look for NaN and infinity in each replica's gradients before they are summed: 1, 0, or -1 where memory is
            the host's.
        low: Send gradients that were computed in 16 bits before they are cast for the update.
        half: Send float32 gradients as float16.
        apart: Let each replica of the process keep its own part of a sum over several runs, until the sum is complete.
        rings: Number of rings over which the collectives take turns.
        same_stream: Put collectives into the stream of the computation.
        waits: Let the host wait behind each collective.
    """

    replicas: int = 1
    world: int = 1
    collect: bool = True
    share_updates: bool = False
    bucket_bytes: float | None = None
    last_bytes: float = MEGABYTE
    bucket_count: int = 1
    fuse_broadcasts: bool = True
    sync_batch_norm: bool = False
    block: int = 0
    hierarchy: str = ""
    watch: int = 0
    low: bool = True
    half: bool = False
    apart: bool = True
    rings: int = 1
    same_stream: bool = False
    waits: bool = False


def host_decides(op: FrozenOp) -> bool:
    """Returns whether a collective needs the host in each run, or no flag asks for it in a graph."""
    given = {slot.name: entry for slot, entry in zip(op.definition.inputs, op.inputs, strict=True)}
    return bool(op.attrs.get("waits") or given.get("Skip")) or not flags.flag("FLAGS_collectives_in_graph")


@dataclass
class Report:
    """Reports what the passes did, for explanations.

    Attributes:
        how: The settings.
        gradients: Number of gradients that are summed.
        tables: Number of those that are summed as the rows that the replicas looked up, each in a collective of its own.
        padded: Whether so many rows are exchanged as any replica may have looked up, so that no host learns how many there are.
        reductions: Number of collectives that sum them.
        nbytes: Bytes of gradients that a replica brings to them, without those of tables.
        low: Number of gradients that are sent in 16 bits.
        merged: Number of gradients that are summed over several runs.
        parts: Variables of such sums of which each replica of the process has its own part.
        each_run: Why the gradients of each run are exchanged; empty where sums over several runs are, when they are complete.
        owners: Parameter -> replica that updates it.
        parameters: Number of variables that are sent after the update.
        broadcasts: Number of collectives that send them.
        shared: Number of values that owners send to all before the update (partial norms, ...).
        gatherings: Number of collectives that send them.
        norms: Number of batch norms with common statistics.
        collectives: Number of collectives of all processes that the user's program has.
        choices: What moves values, between the places of a process and between processes, and why; known when it runs.
    """

    how: Distribution
    gradients: int = 0
    tables: int = 0
    padded: bool = False
    reductions: int = 0
    nbytes: int = 0
    low: int = 0
    merged: int = 0
    parts: tuple[str, ...] = ()
    each_run: str = ""
    owners: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    broadcasts: int = 0
    shared: int = 0
    gatherings: int = 0
    norms: int = 0
    collectives: int = 0
    choices: Sequence[Moves] = ()

    @property
    def replicas(self) -> int:
        """Number of replicas of this process."""
        return self.how.replicas

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.how.world

    @property
    def block(self) -> int:
        """Number of processes whose gradients are summed before the sum over all; 0: one level."""
        # Without gradients nothing is summed in blocks, whatever the strategy says.
        return self.how.block if self.reductions else 0

    @property
    def hierarchy(self) -> str:
        """The reason for ``block``."""
        return self.how.hierarchy

    @property
    def before(self) -> int:
        """Collectives of a step if each gradient and parameter had its own."""
        # Two for each batch norm: statistics on the way forward, sums on the way back.
        return self.gradients + self.parameters + self.shared + 2 * self.norms

    @property
    def after(self) -> int:
        """Collectives of a step."""
        return self.reductions + self.broadcasts + self.gatherings + 2 * self.norms

    @property
    def _size(self) -> str:
        """The bytes of the collectives that sum gradients."""
        if not self.gradients or not self.how.collect:
            return ""
        most = self.how.bucket_bytes
        limit = f" of at most {most / MEGABYTE:g} MB" if most and self.how.bucket_count else ""
        low = f", {self.low} of them in 16 bits" if self.low else ""
        return f"{limit}: {size(self.nbytes)} a step{low}"

    @property
    def _rings(self) -> str:
        """Where the collectives are queued."""
        if self.how.same_stream:
            return "collectives go into the stream of the computation, which is one ring."
        return f"collectives take turns over {counted(self.how.rings, 'ring')}."

    def said(self) -> dict[str, str]:
        """Returns property of the BuildStrategy -> what it did."""
        if self.world == 1:
            alone = "there is one place, so nothing is exchanged."
            names = ("reduce_strategy", "fuse_all_reduce_ops", "fuse_broadcast_ops", "sync_batch_norm", "nccl_comm_num")
            return {**dict.fromkeys((*names, *_LEVELS), alone)}
        loads = [sum(o == r for o in self.owners.values()) for r in range(self.replicas)]
        owners = "every replica updates all."
        if self.owners:
            owners = f"parameters per owner: {', '.join(map(str, loads))}."
        elif self.how.share_updates and self.replicas == 1:
            owners = "owners are places of one process, and this one has a single place: every process updates all."
        return {
            **dict.fromkeys(_LEVELS, self.hierarchy),
            "reduce_strategy": f"{self.gradients} gradients are summed over {self.world} replicas; {owners}",
            "fuse_all_reduce_ops": f"{self.gradients} gradients go in {self.reductions} collectives{self._size}.",
            "nccl_comm_num": self._rings,
            "fuse_broadcast_ops": f"{self.parameters} updated parameters go in {self.broadcasts} collectives.",
            "sync_batch_norm": f"{self.norms} batch norms have the statistics of all replicas.",
        }

    def to_dict(self) -> dict[str, object]:
        """Returns all numbers, as plain data."""
        names = (
            "replicas",
            "world",
            "gradients",
            "tables",
            "padded",
            "reductions",
            "nbytes",
            "low",
            "merged",
            "parameters",
            "broadcasts",
            "shared",
            "gatherings",
            "norms",
            "block",
        )
        numbers: dict[str, object] = {name: getattr(self, name) for name in names}
        numbers.update(parts=list(self.parts), each_run=self.each_run)
        moved = [str(choice) for choice in self.choices]
        return {**numbers, "owners": dict(self.owners), "before": self.before, "after": self.after, "choices": moved}

    def captures(self, op: FrozenOp) -> bool:
        """Returns whether a collective is part of a graph, once it is known what moves values."""
        alone = self.replicas == 1 and any(one.name == "nccl" for one in self.choices)
        return alone and not host_decides(op) and op.attrs.get("watch", 0) <= 0

    @property
    def moved(self) -> list[str]:
        """What moves values, and why, a line each."""
        # Of a process with one place the first is about nothing.
        return [f"values move by {choice}" for choice in self.choices[self.replicas == 1 :]]

    @property
    def _over_runs(self) -> str:
        """When gradients are exchanged that are summed over several runs."""
        if self.each_run:
            return f"gradients of each run are exchanged, though {self.merged} of them are summed over several: {self.each_run}"
        of = "each place adds up its own" if self.parts else "each process adds up its own"
        return f"{self.merged} of them are summed over several runs first: {of}, and the last run exchanges the sums"

    def __str__(self) -> str:
        lines = [
            f"{self.world} replicas, {self.replicas} of them in this process; collectives a step: {self.before} -> {self.after}",
            f"{self.gradients} gradients summed in {self.reductions} collectives{self._size}",
        ]
        if self.merged and self.world > 1:
            lines.append(self._over_runs)
        lines += self.moved
        if self.how.same_stream or self.how.rings > 1:
            lines.append(self._rings.rstrip("."))
        if self.how.waits:
            lines.append("the host waits behind each collective")
        if self.tables:
            rows = "as many as any replica may have looked up" if self.padded else "those looked up"
            lines.append(f"{self.tables} of them are gradients of tables, of which only rows are exchanged: {rows}")
            if self.padded and self.world > self.replicas:
                lines.append(
                    "before each step the processes tell each other how many: 8 bytes a table, between the hosts"
                )
        if self.block:
            lines.append(self.hierarchy)
        if self.owners:
            lines.append(f"{self.parameters} parameters sent in {self.broadcasts} collectives after the update")
            lines.append(f"{self.shared} values that owners share before it, in {self.gatherings} collectives")
            lines += [f"replica {owner} updates {param}" for param, owner in self.owners.items()]
        if self.norms:
            lines.append(f"{self.norms} batch norms with common statistics, two collectives each")
        return "\n".join(lines)
