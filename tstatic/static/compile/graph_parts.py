"""Says what of a program a device captures as graphs, and which operators keep it from being one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tstatic.comm.passes.distribution import Report
from tstatic.devices import Device
from tstatic.display import counted
from tstatic.fusion.engine import OpInfo
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.traits import Waits
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class OnHost:
    """An op that runs on the host between ops that run on the device.

    Attributes:
        op: The op.
        reason: What it needs the host for.
    """

    op: OpInfo
    reason: str

    def __str__(self) -> str:
        return f"op {self.op.type} -> {', '.join(self.op.outputs)} runs on the host on this device: {self.reason}"


@dataclass(frozen=True, slots=True)
class OutsideGraphs:
    """An op whose step no graph of the device holds; graphs end before it and begin anew behind it.

    Attributes:
        op: The op.
        reason: What keeps it out.
    """

    op: OpInfo
    reason: str

    def __str__(self) -> str:
        return f"op {self.op.type} -> {', '.join(self.op.outputs)} is in no graph of this device: {self.reason}"


@dataclass(frozen=True, slots=True)
class CopiedResult:
    """An op whose results torch allocates, and that are copied to memory of the plan.

    Attributes:
        op: The op, with those results.
        reason: Why they do not stay where they are.
    """

    op: OpInfo
    reason: str

    def __str__(self) -> str:
        return f"op {self.op.type} -> {', '.join(self.op.outputs)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Operators that a device launches as one graph.

    Attributes:
        ops: They, in the program's order.
        then: The operator that ends the graph; ``None`` at the end of the program.
    """

    ops: tuple[OpInfo, ...]
    then: OutsideGraphs | None = None

    def __str__(self) -> str:
        found = counted(len(self.ops), "operator")
        return found if self.then is None else f"{found}, then `{self.then.op.type}`: {self.then.reason}"


def _info(op: FrozenOp, names: Mapping[str, str]) -> OpInfo:
    return OpInfo(op.type, tuple(names.get(v, v) for v in op.writes()), op.where)


def on_host(frozen: FrozenProgram, device: Device) -> tuple[OnHost, ...]:
    """Returns the ops that leave the device."""
    return tuple(OnHost(_info(op, frozen.names), why) for op in frozen.ops if (why := device.host_reason(op)))


def outside_graphs(
    frozen: FrozenProgram, metas: Mapping[str, Meta], device: Device, exchanged: Report | None = None
) -> tuple[OutsideGraphs, ...]:
    """Returns the ops whose steps no graph of the device holds; ``exchanged``: what the replicas exchange."""
    return tuple(
        OutsideGraphs(_info(op, frozen.names), why)
        for op in frozen.ops
        if (why := _splits(op, metas, device, exchanged))
    )


def copied_results(plan: Plan, device: Device) -> tuple[CopiedResult, ...]:
    """Returns the ops that torch runs and whose results are copied."""
    found = []
    names = plan.program.names
    for op in (step.op for step in plan.steps if step.how == "ref"):
        # By reason: results of one op may be copied for different ones.
        copied: dict[str, list[str]] = {}
        for value in op.writes():
            why = plan.copied.get(value, "")
            if not why and op.definition.torch_run == "alloc" and device.block_use(op) == "finds":
                why = f"it ends a graph: {op.definition.why(Waits)}"
            if why:
                copied.setdefault(why, []).append(names.get(value, value))
        found += [CopiedResult(OpInfo(op.type, tuple(values), op.where), why) for why, values in copied.items()]
    return tuple(found)


def graph_parts(
    frozen: FrozenProgram, metas: Mapping[str, Meta], device: Device, exchanged: Report | None = None
) -> tuple[GraphPart, ...]:
    """Returns the graphs of a program, in its order; none on a device without graphs. ``exchanged``: as above."""
    if not device.deferred:
        return ()
    parts: list[tuple[bool, Sequence[tuple[FrozenOp, str]]]] = [
        # As lists: a group of `groupby` is empty once the next one is asked for.
        (captured, list(group))
        for captured, group in itertools.groupby(
            ((op, _splits(op, metas, device, exchanged)) for op in frozen.ops), key=lambda one: not one[1]
        )
    ]
    found = []
    # What ended a graph is the first op of the group that follows it.
    for (captured, ops), (_, behind) in itertools.zip_longest(parts, parts[1:], fillvalue=(False, ())):
        if captured:
            then = OutsideGraphs(_info(behind[0][0], frozen.names), behind[0][1]) if behind else None
            found.append(GraphPart(tuple(_info(op, frozen.names) for op, _ in ops), then))
    return tuple(found)


def _splits(op: FrozenOp, metas: Mapping[str, Meta], device: Device, exchanged: Report | None) -> str:
    if op.definition.collective and exchanged is not None and exchanged.captures(op):
        return ""
    # A graph holds the sizes of the run that was captured, so that an unknown one keeps a step out.
    sized = all(v in metas and UNKNOWN not in metas[v].shape for v in (*op.reads(), *op.writes()))
    return device.splits(op, sized)


__all__ = [
    "CopiedResult",
    "GraphPart",
    "OnHost",
    "OutsideGraphs",
    "copied_results",
    "graph_parts",
    "on_host",
    "outside_graphs",
]
