"""The plan: frozen, printable data that gives each step's op and each value's storage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tstatic.display import counted, preformatted, size
from tstatic.flags import GraphMode
from tstatic.fusion.codegen.kernel import Kernel, KernelLocal, Launches
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.types import Meta
from tstatic.ops.update._slots import ROWS
from tstatic.plan.blocks import BlockUse, block_values
from tstatic.plan.flat_buffers import PAD, gradient_buffers
from tstatic.plan.known_values import is_open
from tstatic.plan.memory import Lifetime, aligned, join, place
from tstatic.plan.schedule import schedule
from tstatic.where import show


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan that the strategies set.

    Attributes:
        reuse: A later value may use the memory of a dead one (``memory_optimize``).
        inplace: An op may overwrite an input that no later op reads (``enable_inplace``).
        sequential: Each step waits for the one before it, and no two are chained tile by tile.
        events: An event follows every step, and the next step waits for it (``remove_unnecessary_lock = False``).
        graphs: Whether a device that has graphs captures the steps (``FLAGS_cuda_graph``, ``allow_cuda_graph_capture``).
    """

    reuse: bool = True
    inplace: bool = True
    sequential: bool = False
    events: bool = False
    graphs: GraphMode = "auto"

    @property
    def no_chaining(self) -> bool:
        """Whether each step ends before the next begins."""
        return self.sequential or self.events


StorageKind = Literal["arena", "feed", "state", "view", "const", "dynamic", "foreign", "object"]
"""Where a value is. ``arena``: in the plan's arena, at ``offset``. ``feed``: there, too, filled from the feed. ``state``: in the
scope's storage of variable ``of``. ``view``: in the memory of value ``of``. ``const``: in memory that is filled when the plan is
bound. ``dynamic``: in memory that is allocated when its size is known. ``foreign``: in a block that the device's library allocates
in each run, or in that of value ``of``. ``object``: in none, for it is a Python object, such as a list of tensors."""

StepRegion = Literal["main", "update"]
"""``main`` comes first and writes no state; ``update`` writes it."""

StepHow = Literal["ref", "kernel", "dynamic", "view", "joined"]
"""How a step runs. ``ref``: by the reference, or by the device's form of the op. ``kernel``: by a generated kernel. ``dynamic``:
once the sizes are known that values decide. ``view``, ``joined``: without work, because its result is a view, or what it joins was
written to its place in the result."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of a value; of ``offset`` and ``of`` each kind has what :data:`StorageKind` says."""

    value: str
    kind: StorageKind
    meta: Meta | None
    offset: int = -1
    of: str = ""

    @property
    def in_arena(self) -> bool:
        """Whether it is in the plan's arena."""
        return self.kind == "arena" or self.kind == "feed"


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a plan, in the order of execution."""

    op: FrozenOp
    region: StepRegion
    how: StepHow


@dataclass(frozen=True, slots=True)
class Generated:
    """The kernel of a fused op, and its launches."""

    kernel: Kernel
    calls: Launches

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers: it then reads what they depend on from ``RNG``."""
        return self.calls.draws

    @property
    def asks(self) -> bool:
        """Whether it changes nothing where ``STOPPED`` holds."""
        return self.calls.asks


@dataclass(frozen=True)
class Plan:
    """How to compute a program for given feed shapes."""

    program: FrozenProgram
    steps: tuple[Step, ...]
    storage: Mapping[str, Storage]
    commits: tuple[tuple[str, str], ...]
    arena_bytes: int
    options: PlanOptions
    lifetimes: tuple[Lifetime, ...] = field(repr=False, default=())
    foreign: tuple[Lifetime, ...] = field(repr=False, default=())
    """The blocks that the device's library allocates; each is freed after its last step."""
    root: Mapping[str, str] = field(repr=False, default_factory=dict)
    kernels: Mapping[tuple[Entry, ...], Generated] = field(repr=False, default_factory=dict)
    scratch: Mapping[int, tuple[int, int]] = field(repr=False, default_factory=dict)
    """Number of a step -> offset and size in the arena of the memory that it needs while it runs: partial sums of its kernel, the
    copies that the kernel reads, and what the device asks for its op."""
    copied: Mapping[str, str] = field(repr=False, default_factory=dict)
    """Results that the device's library allocates, and that are copied to memory of the plan -> why."""
    gapped: frozenset[str] = frozenset()
    """Views with gaps between their elements: kernels, which take flat memory, read copies of them."""

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        return f"<Plan: {counted(len(self.steps), 'step')}, {counted(len(self.kernels), 'kernel')}, arena {size(self.arena_bytes)}>"

    def _repr_html_(self) -> str:
        return preformatted(plan_text(self))


def _is_known(meta: Meta | None) -> bool:
    return meta is not None and meta.known


class _Planner:
    def __init__(
        self,
        program: FrozenProgram,
        metas: Mapping[str, Meta],
        options: PlanOptions,
        kernels: Mapping[tuple[Entry, ...], Generated],
        scratch_bytes: ScratchBytes,
        side_by_side: int,
        block_use: BlockUse,
    ) -> None:
        self.scratch_bytes = scratch_bytes
        self.side_by_side = side_by_side
        self.program = program
        self.kernels = kernels
        self.metas = metas
        self.options = options
        order = schedule(program)
        self.ops = order.main + order.update
        self.main_count = len(order.main)
        self.direct = order.direct
        self.commits = order.commits
        self.storage: dict[str, Storage] = {}
        self.root: dict[str, str] = {}
        # Value -> bytes before it in what it is a part of.
        self.within: dict[str, int] = {}
        self.dense: set[str] = set()
        self.last: dict[str, int] = {}
        self.end = len(self.ops)
        # Values whose metadata may not be what they turn out to be.
        self.unsettled: set[str] = set()
        self.as_parameters = self.gradients()
        # Buffer -> last step that reads it under any name (views and in-place results included).
        self.held: dict[str, int] = {}
        launches = {outputs: one.calls for outputs, one in kernels.items()}
        self.may_move, self.made, self.copied = block_values(program, self.ops, launches, self.direct, block_use)

    def gradients(self) -> set[str]:
        """Returns the values that have the sizes of parameters whatever they are made of: the gradients that updates read whole."""
        found: set[str] = set()
        for op in reversed(self.program.ops):
            # What replicas add up has the size of the sum.
            if op.definition.collective and op.writes() and found.issuperset(op.writes()):
                found.update(v for v in op.contents() if _is_known(self.metas.get(v)))
            for one in op.body or (op,):
                given = dict(zip((s.name for s in one.definition.inputs), one.inputs, strict=True))
                param, grad = given.get("Param"), given.get("Grad")
                if (
                    not one.definition.update
                    or given.get(ROWS)
                    or not isinstance(param, str)
                    or not isinstance(grad, str)
                ):
                    continue
                if (meta := self.metas.get(grad)) is not None and meta.shape == self.metas[param].shape:
                    found.add(grad)
        return found

    def uses(self) -> None:
        """Finds the last step that reads each value's contents."""
        for i, op in enumerate(self.ops):
            for value in op.contents():
                self.last[value] = i
        for value in self.program.roots():
            # Fetched and kept values are copied after the last step.
            self.last[value] = self.end

    def sources(self) -> None:
        for name in self.program.feeds:
            if _is_known(self.metas[name]):
                self.storage[name] = Storage(name, "feed", self.metas[name])
                self.dense.add(name)
            else:
                # As many rows as each run feeds: one plan serves batches of sequences of any lengths.
                self.storage[name] = Storage(name, "dynamic", self.metas[name])
        for var, value in self.program.reads.items():
            self.storage[value] = Storage(value, "state", self.metas.get(value), of=var)
            self.dense.add(value)
        for value in self.program.constants:
            self.storage[value] = Storage(value, "const", self.metas[value])

    def plan(self) -> Plan:
        self.uses()  # before any step, which asks whether later ones read what it would overwrite
        self.sources()
        # In order: a step's storage depends on what earlier ones gave their results.
        steps = [self.step(i, op) for i, op in enumerate(self.ops)]
        lifetimes, foreign = self.lifetimes(steps)
        runs = self.runs({b.name for b in lifetimes})
        lifetimes, within = join(lifetimes, runs)
        scratch: dict[int, Lifetime] = {}
        gapped = self.gapped()
        for i, step in enumerate(steps):
            if size := self.scratch(step, gapped):
                # Its neighbours run beside it in other streams: in their memory it would have to wait for them, or they for it.
                beside = self.side_by_side - 1
                scratch[i] = Lifetime(scratch_name(i), size, max(0, i - beside), min(i + beside, self.end))
        lifetimes += scratch.values()
        starts, size = place(lifetimes, self.options.reuse)
        # A member of a run lies within its run's buffer, which has the first one's name.
        offsets = {**starts, **{name: starts[run[0][0]] + within[name] for run in runs for name, _ in run}}
        for value, slot in self.storage.items():
            if slot.in_arena:
                at = offsets[self.base(value)] + self.before(value)
                self.storage[value] = Storage(value, slot.kind, slot.meta, at, slot.of)
        return Plan(
            self.program, tuple(steps), self.storage, self.commits, size, self.options, tuple(lifetimes),
            tuple(foreign), {v: self.base(v) for v in self.storage},
            scratch={i: (starts[one.name], one.nbytes) for i, one in scratch.items()}, gapped=gapped,
            copied={v: why for v, why in self.copied.items() if v in self.last},
        )  # fmt: skip

    def scratch(self, step: Step, gapped: Set[str]) -> int:
        """Returns the bytes that a step needs only while it runs."""
        if step.how == "kernel" and step.op.outputs in self.kernels:
            sums = self.kernels[step.op.outputs].calls.partial_offsets[1]
            return sums + copy_offsets(step.op, gapped, self.metas)[1]
        return self.scratch_bytes(step.op, self.metas) if step.how == "ref" or step.how == "kernel" else 0

    def gapped(self) -> frozenset[str]:
        """Returns the views that are not contiguous."""
        return frozenset(v for v, slot in self.storage.items() if slot.kind == "view" and v not in self.dense)

    def runs(self, placed: set[str]) -> list[list[tuple[str, int]]]:
        """Returns the gradients of each fused update that lie together, padded like the parameters in their flat buffer."""
        found: list[list[tuple[str, int]]] = []
        free = set(placed)
        for grads in gradient_buffers(self.program):
            run: list[tuple[str, int]] = []
            for grad in grads:
                base = self.base(grad)
                meta = self.metas[grad]
                if base in free and self.storage[base].kind == "arena" and self.metas[base].nbytes == meta.nbytes:
                    free.discard(base)
                    # As the parameters are padded: the same offset then finds a parameter and its gradient.
                    unit = PAD * meta.dtype.itemsize
                    run.append((base, -(-max(meta.nbytes, 1) // unit) * unit))
            # A single gradient needs no run.
            if len(run) > 1:
                found.append(run)
        return found

    def base(self, value: str) -> str:
        # A view of a view of an in-place result: each step is one name nearer to the memory.
        while value in self.root:
            value = self.root[value]
        return value

    def before(self, value: str) -> int:
        """Returns the bytes before a value in the buffer that it lies in."""
        found = 0
        while value in self.root:
            found += self.within.get(value, 0)
            value = self.root[value]
        return found

    def step(self, index: int, op: FrozenOp) -> Step:
        region: StepRegion = "main" if index < self.main_count else "update"
        objects = set()
        for slot, entry in zip(op.definition.outputs, op.outputs, strict=True):
            if slot.name in op.definition.objects and isinstance(entry, str):
                self.storage[entry] = Storage(entry, "object", None)
                objects.add(entry)
        unsettled = self.is_unsettled(op, objects)
        dynamic = (unsettled and op.definition.dynamic is not None) or any(
            self.storage[v].kind == "dynamic" for v in op.reads()
        )
        dynamic = dynamic or any(not _is_known(self.metas.get(v)) for v in op.writes() if v not in objects)
        dynamic = dynamic or is_open(op, self.metas)
        if dynamic:
            # An op that only reads values of unknown sizes may have results of known ones, such as gradients of weights.
            if unsettled:
                self.unsettled.update(v for v in op.writes() if v not in self.as_parameters)
            if self.writes_state(op):
                # A table that is updated by as many rows as a run finds has a size of its own, and a copy would take all of it.
                for value in op.writes():
                    self.storage[value] = Storage(value, "state", self.metas[value], of=self.direct[value])
                    self.unsettled.discard(value)
                return Step(op, region, "dynamic")
            for value in op.writes():
                if value not in self.unsettled and _is_known(self.metas.get(value)) and value not in self.direct:
                    self.storage[value] = Storage(value, "arena", self.metas[value])
                    self.dense.add(value)
                    continue
                if value not in objects:
                    self.storage[value] = Storage(value, "dynamic", self.metas.get(value))
                var = self.direct.get(value)
                if var is not None and self.program.writes[var] == value:
                    # The value has memory of its own, so it is copied to the variable's storage at the end.
                    self.commits = (*self.commits, (var, value))
            return Step(op, region, "dynamic")
        if region == "main" and self.try_view(index, op):
            return Step(op, region, "view")
        for value in op.writes():
            if value in objects:
                continue
            if value in self.direct:
                self.storage[value] = Storage(value, "state", self.metas[value], of=self.direct[value])
            else:
                kind: StorageKind = "foreign" if value in self.made else "arena"
                self.storage[value] = Storage(value, kind, self.metas[value])
                self.dense.add(value)
        if self.options.inplace:
            if region == "main" and self.try_join(index, op):
                return Step(op, region, "joined")
            self.try_inplace(index, op)
        return Step(op, region, "kernel" if op.body else "ref")

    def writes_state(self, op: FrozenOp) -> bool:
        """Returns whether an op is an update whose results all replace variables of known sizes in their memory."""
        single = op.definition.update and not op.body
        return single and all(v in self.direct and _is_known(self.metas.get(v)) for v in op.writes())

    def is_unsettled(self, op: FrozenOp, objects: Collection[str]) -> bool:
        """Returns whether results may have other sizes than was inferred: those of functions of the user, and of loops.

        What is inferred of a tensor array is the metadata of an element.
        """
        calls = any(spec.kind == "function" for spec in op.definition.attrs.values())
        inexact = op.definition.dynamic is not None and not op.definition.dynamic.exact
        return bool(calls or op.sub_blocks or objects or inexact) or not self.unsettled.isdisjoint(op.reads())

    def try_view(self, index: int, op: FrozenOp) -> bool:
        """Makes the first output a view of the first input if that needs no copy; returns whether it did."""
        definition = op.definition
        if definition.view is None or not isinstance(op.inputs[0], str) or not isinstance(op.outputs[0], str):
            return False
        source, result = op.inputs[0], op.outputs[0]
        # An empty list of optional values does not count as an input.
        if source not in self.dense or any(op.inputs[1:]):
            return False
        base = self.storage[self.base(source)]
        # The scope's storage changes in the update region and belongs to the user afterwards.
        if base.kind == "state" and self.last.get(result, -1) >= self.main_count:
            return False
        if not (base.in_arena or base.kind == "state" or base.kind == "foreign"):
            return False
        # The definition's own view decides, on memory that is never touched.
        sample = np.empty(self.metas[source].shape, self.metas[source].dtype.np)
        shown = definition.view(sample, **definition.pick(definition.view, op.attrs))
        if shown is None or shown.shape != self.metas[result].shape or not np.may_share_memory(shown, sample):
            return False
        self.storage[result] = Storage(result, "view", self.metas[result], of=source)
        self.root[result] = source
        # The memory lives as long as its last reader under any name.
        self.held[base.value] = max(self.group_last(base.value), self.last.get(result, -1))
        if shown.flags.c_contiguous:
            self.dense.add(result)
        # Other outputs (XShape) are never read; storage for them costs nothing if they are not fetched.
        for value in op.writes():
            if value != result:
                self.storage[value] = Storage(value, "arena", self.metas[value])
        return True

    def try_join(self, index: int, op: FrozenOp) -> bool:
        """Lays the inputs of a join of rows into its result, if each is a buffer of its own; returns whether it did."""
        if op.type != "concat" or any(op.inputs[1:]) or op.attrs["axis"] != 0:
            return False
        parts, result = op.inputs[0], op.outputs[0]
        assert isinstance(parts, tuple)
        assert isinstance(result, str)
        if self.storage[result].kind != "arena" or len({*parts}) < len(parts):
            return False
        total = self.metas[result]
        for part in parts:
            meta = self.metas[part]
            # A part that begins where every buffer may begin: kernels take as many elements at once as there.
            if part is not parts[-1] and meta.nbytes != aligned(meta.nbytes):
                return False
            own = self.storage[part].kind == "arena" and part not in self.root and part in self.dense
            if not own or meta.dtype != total.dtype or not meta.nbytes:
                return False
        top = 0
        for part in parts:
            self.root[part], self.within[part] = result, top
            top += self.metas[part].nbytes
        # The memory lives as long as the last reader of any part.
        self.held[result] = max(self.last.get(result, -1), *(self.group_last(part) for part in parts))
        return True

    def try_inplace(self, index: int, op: FrozenOp) -> None:
        # A kernel knows which pairs it may overlay: it reads an element before it writes it.
        if op.outputs in self.kernels:
            taken: set[str] = set()
            for old, new in self.kernels[op.outputs].kernel.inplace:
                base = self.base(old)
                if new not in self.root and base not in taken and self.share(index, op, old, new):
                    taken.add(base)
            return
        for source_slot, result_slot in op.definition.inplace:
            source, result = op.input(source_slot), op.output(result_slot)
            if isinstance(source, tuple) and isinstance(result, tuple):
                for pair in zip(source, result, strict=True):
                    self.share(index, op, *pair)
            elif isinstance(source, str) and isinstance(result, str) and self.share(index, op, source, result):
                return

    def share(self, index: int, op: FrozenOp, source: str, result: str) -> bool:
        """Gives a result the storage of an input that this op is the last to read, if possible; returns whether it did."""
        if self.storage[result].kind != "arena":
            return False
        # The result takes over the very bytes: same shape and element size, without gaps.
        if self.metas[source].shape != self.metas[result].shape or source not in self.dense:
            return False
        if self.metas[source].dtype.itemsize != self.metas[result].dtype.itemsize:
            return False
        base = self.base(source)
        kind = self.storage[base].kind
        foreign = kind == "foreign"
        if foreign and (result not in self.may_move or self.metas[source].dtype != self.metas[result].dtype):
            return False
        if (kind != "arena" and not foreign) or self.metas[base].nbytes != self.metas[source].nbytes:
            return False
        # Neither a later op nor another name that this op reads may still need the old content.
        if self.group_last(base) > index or any(v != source and self.base(v) == base for v in op.contents()):
            return False
        if foreign:
            self.storage[result] = Storage(result, "foreign", self.metas[result], of=base)
        self.root[result] = base
        self.held[base] = max(index, self.last.get(result, -1))
        return True

    def group_last(self, base: str) -> int:
        return self.held.get(base, self.last.get(base, -1))

    def lifetimes(self, steps: list[Step]) -> tuple[list[Lifetime], list[Lifetime]]:
        """Returns the lifetimes of values in the arena, and of foreign blocks."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        size: dict[str, int] = {}

        def touch(value: str, at: int) -> None:
            base = self.base(value)
            slot = self.storage.get(base)
            # Only values in the arena and in blocks have a lifetime: state, constants and objects live elsewhere.
            if slot is None or not (slot.in_arena or slot.kind == "foreign"):
                return
            # Accesses come in order, so the first one met is the first.
            first.setdefault(base, at)
            last[base] = max(last.get(base, at), at)
            size.setdefault(base, self.metas[base].nbytes)

        for name in self.program.feeds:
            touch(name, -1)
            # Feeds are kept for the whole run, so that several iterations can run on one feed.
            touch(name, self.end)
        for i, step in enumerate(steps):
            for value in step.op.writes():
                touch(value, i)
            for value in step.op.contents():
                if value in self.storage:
                    touch(value, i)
        for value in self.program.roots():
            touch(value, self.end)
        found: tuple[list[Lifetime], list[Lifetime]] = [], []
        for n in first:
            found[self.storage[n].kind == "foreign"].append(Lifetime(n, size[n], first[n], last[n]))
        return found


ScratchBytes = Callable[[FrozenOp, Mapping[str, Meta]], int]
"""The op and the metadata of its values -> bytes that it needs while it runs."""


def copy_offsets(op: FrozenOp, gapped: Set[str], metas: Mapping[str, Meta]) -> tuple[dict[str, int], int]:
    """Returns where the copies that an op's kernel reads begin in memory that holds them all, in bytes, and how large that is."""
    offsets, top = {}, 0
    for value in op.contents():
        if value in gapped and value not in offsets:
            offsets[value] = top
            top += aligned(metas[value].nbytes)
    return offsets, top


def scratch_name(step: int) -> str:
    """Returns the name of a step's scratch memory among the lifetimes; it equals no value's."""
    return KernelLocal(f"scratch of step {step}")


def make_plan(
    program: FrozenProgram,
    metas: Mapping[str, Meta],
    options: PlanOptions,
    kernels: Mapping[tuple[Entry, ...], Generated] | None = None,
    scratch_bytes: ScratchBytes = lambda op, metas: 0,
    side_by_side: int = 1,
    block_use: BlockUse = lambda op: "",
) -> Plan:
    """Plans a frozen program.

    Args:
        program: The program.
        metas: Metadata of all its values.
        options: How memory is planned.
        kernels: Outputs of fused ops -> their kernels.
        scratch_bytes: Says how much memory of the arena an op needs while it runs.
        side_by_side: Number of consecutive steps that may run at the same time.
        block_use: Says which ops bring memory for their results along.
    """
    plan = _Planner(program, metas, options, kernels or {}, scratch_bytes, side_by_side, block_use).plan()
    return replace(plan, kernels=kernels) if kernels else plan


def _events(plan: Plan) -> list[tuple[int, ...]]:
    """Returns, for each step, the earlier steps that it waits for: those whose results it reads, and the last if sequential."""
    maker: dict[str, int] = {}
    waits = []
    for i, step in enumerate(plan.steps):
        before = {i - 1} if plan.options.sequential and i else set()
        waits.append(tuple(sorted(before | {maker[v] for v in step.op.reads() if v in maker})))
        for value in step.op.writes():
            maker[value] = i
    return waits


def _where(slot: Storage) -> str:
    if slot.in_arena:
        return f"{slot.kind}[{slot.offset}]"
    return f"{slot.kind}({slot.of})" if slot.of else slot.kind


MOST_RESULTS = 3
"""So many results of a step are written out: an update of all parameters has hundreds."""


def plan_text(plan: Plan) -> str:
    """Returns a table of the steps in order, the steps that each waits for, and the storage of its results."""
    lines = [
        f"plan: {len(plan.steps)} steps, arena {plan.arena_bytes} bytes, {len(plan.commits)} commits, "
        f"reuse={plan.options.reuse} inplace={plan.options.inplace} sequential={plan.options.sequential} "
        f"events={plan.options.events}",
        f"{'step':>5} {'region':<7} {'how':<8} {'op':<28} {'waits':<14} results",
    ]
    waits = _events(plan)
    for name in plan.program.feeds:
        slot = plan.storage[name]
        lines.append(f"{'-':>5} {'feed':<7} {'copy':<8} {'':<28} {'-':<14} {name}: {slot.meta!r} {_where(slot)}")
    for i, step in enumerate(plan.steps):
        made = [f"{v}: {plan.storage[v].meta!r} {_where(plan.storage[v])}" for v in step.op.writes()]
        results = ", ".join(made[:MOST_RESULTS]) + f", and {len(made) - MOST_RESULTS} more" * (len(made) > MOST_RESULTS)
        events = ",".join(map(str, waits[i])) or "-"
        # The event recorded after a step has the step's number.
        if i in plan.scratch:
            results += "; scratch {1} bytes at arena[{0}]".format(*plan.scratch[i])
        results = f"event {i}; {results}" if plan.options.events else results
        line = f"{i:>5} {step.region:<7} {step.how:<8} {step.op.type:<28} {events:<14} {results}"
        lines.append(f"{line}  @ {show(step.op.where)}" if step.op.where else line)
    for var, value in plan.commits:
        lines.append(f"{'-':>5} {'commit':<7} {'copy':<8} {'':<28} {'-':<14} {var} <- {value}")
    return "\n".join(lines)
