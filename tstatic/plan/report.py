"""Reports the memory of a plan: bytes by category, and the op at the peak."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstatic.display import html_table, size
from tstatic.fusion.codegen.kernel import KernelLocal
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta
from tstatic.plan.capacity import capacity
from tstatic.plan.flat_buffers import PAD, state_buffers
from tstatic.plan.memory import Lifetime, aligned
from tstatic.plan.plan import Plan, scratch_name
from tstatic.where import show


@dataclass(frozen=True, slots=True)
class OpMemory:
    """The arena bytes that are in use while one op runs."""

    step: int
    op: str
    where: str
    live_bytes: int
    result_bytes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What runs of a plan showed of the memory beside its arena.

    Attributes:
        beside: Number of a step -> bytes that the device's library held beside its results.
        outside: The most bytes that the library had allocated at one time in the first run.
        bound: Bytes of what was bound beside the arena.
        workspaces: Bytes of scratch, and of workspaces of the device's libraries.
        pools: Bytes that captured graphs hold.
    """

    beside: Mapping[int, int] = field(default_factory=dict)
    outside: int = 0
    bound: int = 0
    workspaces: int = 0
    pools: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """The memory that a run needs.

    Attributes:
        peak_bytes: Size of the arena, and the larger of ``foreign_bytes`` and ``pool_bytes``. On devices without foreign blocks
            the arena contains every buffer of the run.
        by_category: Bytes of ``feeds``, ``activations``, ``gradients``, ``temporaries`` and ``scratch`` (partial sums of kernels,
            what ops need only while they run, and what the device's library was seen to allocate for them) that are live at the
            peak, and of ``parameters`` and ``other state`` in the scope.
        by_op: Live bytes at each step, with the op and the user's line.
        peak: The step at which most bytes are live.
        held_bytes: Bytes that arenas and the scope hold at this moment, on all places.
        foreign_bytes: The most bytes outside the arena that are live at one step: blocks that the device's library allocates for
            results, and what it was seen to hold beside them in the first run; before that, the blocks alone.
        pool_bytes: Bytes that captured graphs hold outside the arena, for the same results: a launch finds them where they were
            when the graph was captured. 0 before there are any.
        bound_bytes: Bytes of constants, of what checks of positions keep, and of gaps between variables that lie side by side.
        workspace_bytes: Bytes of the scratch of workers, and of workspaces of the device's libraries; 0 before the first run.
        unknown: Values whose sizes depend on other values; they are allocated outside the arena.
        replicas: Of a data-parallel program: the report of each place, in their order.
        planned_for: The GPU, or the chip that need not be here, that it was planned for; empty: CPU places.
    """

    peak_bytes: int
    by_category: Mapping[str, int]
    by_op: tuple[OpMemory, ...]
    peak: OpMemory | None
    held_bytes: int
    unknown: tuple[str, ...]
    replicas: tuple[MemoryReport, ...] = ()
    foreign_bytes: int = 0
    planned_for: str = ""
    pool_bytes: int = 0
    bound_bytes: int = 0
    workspace_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All that a run needs on its place: the peak, the values in the scope, what is bound beside the arena, and workspaces."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """What :attr:`total_bytes` consists of; the results of the device's library are in pools once graphs were captured."""
        outside = "pools of graphs" if self.pool_bytes > self.foreign_bytes else "the library's results"
        most = max(self.foreign_bytes, self.pool_bytes)
        return {
            "arena": self.peak_bytes - most,
            outside: most,
            "parameters": self.by_category["parameters"],
            "other state": self.by_category["other state"],
            "constants, checks, gaps": self.bound_bytes,
            "workspaces": self.workspace_bytes,
        }

    @property
    def largest(self) -> str:
        """The largest parts in words, and the step at the peak."""
        parts = sorted(self.parts.items(), key=lambda part: -part[1])
        found = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts[:3] if nbytes)
        live = f"{self.peak.op} @ {self.peak.where}, where {size(self.peak.live_bytes)} are live" if self.peak else ""
        return f"{found}; most at {live}" if live else found

    def fits(self, memory: Any = None) -> Fit:
        """Returns whether a run fits in a memory; of several places each in its own, or all in the memory of the CPU.

        Args:
            memory: Bytes, a size (``"80 GB"``), a chip that need not be here (``"H100"``), or a place; as in
                :func:`tstatic.plan.capacity.capacity`.
        """
        return _fit(self, memory)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data (JSON)."""
        shared = {"replicas": [one.to_dict() for one in self.replicas]} if self.replicas else {}
        return {
            **shared,
            "total_bytes": self.total_bytes,
            "peak_bytes": self.peak_bytes,
            "foreign_bytes": self.foreign_bytes,
            "pool_bytes": self.pool_bytes,
            "bound_bytes": self.bound_bytes,
            "workspace_bytes": self.workspace_bytes,
            "held_bytes": self.held_bytes,
            "by_category": dict(self.by_category),
            "peak": None if self.peak is None else _row(self.peak),
            "by_op": [_row(o) for o in self.by_op],
            "unknown": list(self.unknown),
            "planned_for": self.planned_for,
        }

    def __repr__(self) -> str:
        at = f" at {self.peak.op} @ {self.peak.where}" if self.peak is not None else ""
        return f"<MemoryReport: peak {size(self.peak_bytes)}{at}; parameters {size(self.by_category['parameters'])}>"

    def _repr_html_(self) -> str:
        rows = [(name, size(nbytes)) for name, nbytes in self.by_category.items()]
        return html_table(str(self).splitlines()[0], ("category", "size"), rows)

    def __str__(self) -> str:
        outside = f", blocks of the device's library {size(self.foreign_bytes)}" if self.foreign_bytes else ""
        arena = self.parts["arena"]
        chip = f" on {self.planned_for}" if self.planned_for else ""
        lines = [f"arena {size(arena)}{chip}{outside}; held now {size(self.held_bytes)}"]
        lines += [f"  {name:<12} {size(nbytes):>10}" for name, nbytes in self.by_category.items()]
        more = {"graphs": self.pool_bytes, "constants": self.bound_bytes, "workspaces": self.workspace_bytes}
        lines += [f"  {name:<12} {size(nbytes):>10}" for name, nbytes in more.items() if nbytes]
        if self.peak is not None:
            lines.append(
                f"  peak at step {self.peak.step}: {self.peak.op} @ {self.peak.where} ({size(self.peak.live_bytes)} live)"
            )
        if self.replicas:
            arenas = ", ".join(size(one.peak_bytes) for one in self.replicas)
            lines.append(f"  arenas of the {len(self.replicas)} places: {arenas}")
        if self.unknown:
            # The first eight: a program with sequences may have thousands.
            lines.append(f"  sizes known only at run time: {', '.join(self.unknown[:8])}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a run fits in a memory; true if it does.

    Attributes:
        needed_bytes: What the run takes: its peak, parameters and other state.
        available_bytes: What there is for it.
        memory: Whose memory.
        report: The report that ``needed_bytes`` is from.
    """

    needed_bytes: int
    available_bytes: int
    memory: str
    report: MemoryReport

    @property
    def free_bytes(self) -> int:
        """Bytes that are left; negative: bytes that are missing."""
        return self.available_bytes - self.needed_bytes

    def __bool__(self) -> bool:
        return self.free_bytes >= 0

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain data (JSON), without the report."""
        return {
            "fits": bool(self),
            "needed_bytes": self.needed_bytes,
            "available_bytes": self.available_bytes,
            "memory": self.memory,
        }

    def __str__(self) -> str:
        of = f"{size(self.needed_bytes)} of {size(self.available_bytes)} ({self.memory})"
        if self:
            return f"fits: {of}, {size(self.free_bytes)} left"
        parts = sorted(self.report.by_category.items(), key=lambda part: -part[1])
        largest = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts[:3] if nbytes)
        peak = self.report.peak
        at = f"; most is live at {peak.op} @ {peak.where}" if peak is not None else ""
        return f"does not fit: {of}, {size(-self.free_bytes)} missing; {largest}{at}"

    __repr__ = __str__


def _fit(report: MemoryReport, memory: Any = None) -> Fit:
    """Returns whether the run of a report fits in a memory, which is given as in :func:`tstatic.plan.capacity.capacity`."""
    found = capacity(memory)
    places = report.replicas or (report,)
    needed = [place.total_bytes for place in places]
    # Free memory lacks what arenas and scope hold already, and the run takes that again instead of more.
    available = found.nbytes + (report.held_bytes if found.has_held else 0)
    # Places of the CPU share its memory, so what they need adds up; GPUs have each their own.
    return Fit(sum(needed) if found.shared else max(needed), available, found.name, report)


def _row(o: OpMemory) -> dict[str, Any]:
    return {"step": o.step, "op": o.op, "where": o.where, "live_bytes": o.live_bytes, "result_bytes": o.result_bytes}


def _category(plan: Plan, name: str, makers: Mapping[str, int]) -> str:
    if name in plan.program.feeds:
        return "feeds"
    if isinstance(name, KernelLocal):
        return "scratch"
    role = makers.get(name, 0)
    if role & OpRole.Backward:
        return "gradients"
    return "temporaries" if role & OpRole.Optimize else "activations"


def memory_report(
    plan: Plan,
    state: Mapping[str, Meta],
    held: int,
    parameters: frozenset[str] = frozenset(),
    seen: Seen | None = None,
) -> MemoryReport:
    """Builds the report of a plan.

    Args:
        plan: The plan.
        state: Persistable variable -> metadata.
        held: Bytes held at this moment.
        parameters: Names of ``state`` that are parameters.
        seen: What runs of the plan showed.
    """
    seen = seen or Seen(bound=sum(meta.nbytes for meta in _constants(plan)))
    gaps = _gaps(plan)
    beside = seen.beside
    foreign = [*plan.foreign, *(Lifetime(scratch_name(i), nbytes, i, i) for i, nbytes in beside.items())]
    outside = _live(len(plan.steps), foreign)
    live = [a + b for a, b in zip(_live(len(plan.steps), plan.lifetimes), outside, strict=True)]
    makers = {v: step.op.role for step in plan.steps for v in step.op.writes()}
    by_op = []
    for i, step in enumerate(plan.steps):
        slots = [plan.storage[v] for v in step.op.writes()]
        metas = [slot.meta for slot in slots if slot.kind == "arena" or slot.kind == "foreign"]
        made = sum(aligned(m.nbytes) for m in metas if m is not None)
        by_op.append(OpMemory(i, step.op.type, show(step.op.where), live[i + 1], made))
    peak = max(by_op, key=lambda o: o.live_bytes, default=None)
    categories = {"feeds": 0, "activations": 0, "gradients": 0, "temporaries": 0, "scratch": 0}
    if peak is not None:
        for b in (*plan.lifetimes, *foreign):
            # Only what is live at the peak: the categories then add up to the arena's use there.
            if b.first <= peak.step <= b.last:
                categories[_category(plan, b.name, makers)] += aligned(b.nbytes)
    categories["parameters"] = sum(m.nbytes for n, m in state.items() if n in parameters)
    categories["other state"] = sum(m.nbytes for n, m in state.items() if n not in parameters)
    unknown = tuple(v for v, s in plan.storage.items() if s.kind == "dynamic")
    # Seen as a whole: what steps hold beside their results need not be there at one time.
    most = seen.outside or max(outside, default=0)
    return MemoryReport(
        plan.arena_bytes + max(most, seen.pools), categories, tuple(by_op), peak, held, unknown,
        foreign_bytes=most, pool_bytes=seen.pools, bound_bytes=seen.bound + gaps, workspace_bytes=seen.workspaces,
    )  # fmt: skip


def _gaps(plan: Plan) -> int:
    """Returns the bytes between the variables that lie in flat buffers."""
    program, found = plan.program, 0
    for name in {name for names in state_buffers(program).values() for name in names}:
        meta = plan.storage[program.reads[name]].meta
        if meta is not None:
            unit = PAD * meta.dtype.itemsize
            found += -(-meta.nbytes // unit) * unit - meta.nbytes
    return found


def _constants(plan: Plan) -> Iterator[Meta]:
    return (slot.meta for slot in plan.storage.values() if slot.kind == "const" and slot.meta is not None)


def _live(steps: int, lifetimes: Sequence[Lifetime]) -> list[int]:
    """Returns the live bytes before the first step, and at each."""
    # Changes of the live bytes, by step: what begins is added, what ended a step before is taken off. Feeds begin at -1 and
    # roots end at ``steps``, so that indices are shifted by one, with one more behind the end.
    changes = [0] * (steps + 3)
    for b in lifetimes:
        changes[b.first + 1] += aligned(b.nbytes)
        changes[b.last + 2] -= aligned(b.nbytes)
    # A running sum of the changes: linear in steps and buffers, however long the values live.
    return list(itertools.accumulate(changes[: steps + 1]))
