"""Defines the settings of data parallelism, and the report of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_LEVELS = ("use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks")


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a program is distributed over replicas.

    Attributes:
        replicas: Number of replicas of this process.
        world: Number of replicas of all processes.
        collect: Sum gradients over the replicas.
        share_updates: Update each parameter on one replica of the process and send it to the others.
        bucket_bytes: Most bytes of gradients in one collective; ``None``: no limit.
        bucket_count: Least number of gradients in one collective; 0: one collective per gradient.
        fuse_broadcasts: Send all parameters in one collective.
        sync_batch_norm: Compute statistics over all replicas.
        block: Number of processes, neighbours by rank, whose gradients are summed before the sum over all; 0: one level.
        hierarchy: The reason for ``block``, for explanations.
        watch: Whether to look for NaN and infinity in each replica's gradients before they are summed: 1, 0, or -1 where memory is
            the host's.
    """

    replicas: int = 1
    world: int = 1
    collect: bool = True
    share_updates: bool = False
    bucket_bytes: float | None = None
    bucket_count: int = 1
    fuse_broadcasts: bool = True
    sync_batch_norm: bool = False
    block: int = 0
    hierarchy: str = ""
    watch: int = 0


@dataclass
class Report:
    """Reports what the passes did, for explanations.

    Attributes:
        how: The settings.
        gradients: Number of gradients that are summed.
        tables: Number of those that are summed as the rows that the replicas looked up, each in a collective of its own.
        reductions: Number of collectives that sum them.
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
    reductions: int = 0
    owners: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    broadcasts: int = 0
    shared: int = 0
    gatherings: int = 0
    norms: int = 0
    collectives: int = 0
    choices: Sequence[object] = ()

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

    def said(self) -> dict[str, str]:
        """Returns property of the BuildStrategy -> what it did."""
        if self.world == 1:
            alone = "there is one place, so nothing is exchanged."
            names = ("reduce_strategy", "fuse_all_reduce_ops", "fuse_broadcast_ops", "sync_batch_norm")
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
            "fuse_all_reduce_ops": f"{self.gradients} gradients go in {self.reductions} collectives.",
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
            "reductions",
            "parameters",
            "broadcasts",
            "shared",
            "gatherings",
            "norms",
            "block",
        )
        numbers: dict[str, object] = {name: getattr(self, name) for name in names}
        moved = [str(choice) for choice in self.choices]
        return {**numbers, "owners": dict(self.owners), "before": self.before, "after": self.after, "choices": moved}

    def __str__(self) -> str:
        lines = [
            f"{self.world} replicas, {self.replicas} of them in this process; collectives a step: {self.before} -> {self.after}",
            f"{self.gradients} gradients summed in {self.reductions} collectives",
        ]
        # Of a process with one place the first is about nothing.
        lines += [f"values move by {choice}" for choice in self.choices[self.replicas == 1 :]]
        if self.tables:
            lines.append(
                f"{self.tables} of them are gradients of tables, of which only the rows looked up are exchanged"
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
