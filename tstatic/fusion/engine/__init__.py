"""Applies fusions to a frozen program: finds matches, checks that they are safe, replaces them, and explains rejections.

* ``view``  the index of a program that searches ask
* ``pattern``  ops and the values between them as ordinary functions, and the matcher
* ``reasons``, ``nearest``, ``chain``  why ops are not fused, what came nearest, and what fusions without patterns look for
* ``choice``, ``cache``  which of its ways of launching a kernel takes on a chip, and kernels as files
* ``product_blocks``  finds what stands before, between and behind two matrix products
* ``live_bytes``  how many bytes are alive at each op, before anything is planned
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tstatic.fusion.codegen.define import LoopBodies
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, build
from tstatic.fusion.codegen.loops.rows import rows_kernel
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.codegen.text.emit import emit
from tstatic.fusion.engine.chain import Chain
from tstatic.fusion.engine.pattern import Match, Pattern, PatternFunction, find
from tstatic.fusion.engine.reasons import MatchRejected, RejectedPair
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, flat
from tstatic.ir.opdef import OpDef
from tstatic.ir.operator import OpRole
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.where import Where


@dataclass(frozen=True, slots=True)
class OpInfo:
    """An op as reports show it."""

    type: str
    outputs: tuple[str, ...]
    where: Where | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Ops that a fusion's pattern fits but that are not fused: the code, the reason, and the change that would allow it."""

    fusion: str
    switch: str
    code: str
    members: tuple[OpInfo, ...]
    reason: str
    change: str


@dataclass(frozen=True, slots=True)
class Applied:
    """A fusion that was made.

    Attributes:
        fusion, switch: Its name, and the strategy's property that asked for it.
        op: Type of the fused op.
        members: The ops that it replaces.
        gone: Values that are no longer in memory.
        kept: Inner values that are still written, because others read them.
        kernel: The generated kernel; ``None`` if a later fusion absorbed the fused op and so has the kernel, and for a rewriting.
        notes: What the kernel does not do with some of the ops though it computes them; also among the rejections.
        rewritten: Of a rewriting: the ops in the place of its members, before later fusions take them up.
        memory: Of a rewriting for the sake of memory: how many bytes fewer are alive at the peak.
    """

    fusion: str
    switch: str
    op: str
    members: tuple[OpInfo, ...]
    gone: tuple[str, ...]
    kept: tuple[str, ...]
    kernel: Kernel | None
    notes: tuple[Rejection, ...] = ()
    rewritten: tuple[FrozenOp, ...] = ()
    memory: int = 0

    @property
    def written(self) -> frozenset[str]:
        """The values that the fused op writes."""
        return frozenset(v for m in self.members for v in m.outputs) - set(self.gone)


Proposal = tuple[tuple[int, ...], Callable[[], "Fused"]]
"""Indices of ops, and a function that returns their fused op or raises :class:`MatchRejected`."""


@dataclass(frozen=True, slots=True)
class Fused:
    """The fused op that replaces a match.

    Attributes:
        type: Paddle's type of the fused op.
        slots: Slot -> value (or values, for a slot that ends in ``*``); further values that are read go to ``others``.
        outputs: Slot -> value; further values that must be kept go to ``Kept*``.
        attrs: Attributes, for reports.
        body: The ops that it computes, if they are not the matched ops; their results must be equal in every bit.
        inner: Slots of ``outputs`` that no op but gradients of the matched ops may read, beside those named ``Intermediate*``.
        notes: What the kernel does not do with two of the matched ops, by their indices, though it computes them; reported as a
            rejection is.
        others: The slot of further values that are read, without its ``*``; empty if ``slots`` has it.
    """

    type: str
    slots: Mapping[str, str | tuple[str, ...] | None]
    outputs: Mapping[str, str | tuple[str, ...] | None]
    attrs: Mapping[str, object] = field(default_factory=dict)
    body: tuple[FrozenOp, ...] = ()
    inner: tuple[str, ...] = ()
    notes: tuple[tuple[tuple[int, int], MatchRejected], ...] = ()
    others: str = "Others"


def loop_nest(
    body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str], known: LoopBodies | None = None
) -> Kernel:
    """Returns the kernel of ops with expressions per element or along rows; ``known`` has formulas of ops met before."""
    group = build(body, metas, needed, known)
    return emit(group) if group.inner is None else rows_kernel(group)


def _unchanged(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    return program


@dataclass(frozen=True)
class Fusion:
    """One fusion.

    Attributes:
        name: Stable name.
        switch: Property of the BuildStrategy that turns it on.
        finder: What it looks for, and what becomes of it: :class:`Patterns`, :class:`Groups`, :class:`Proposals` or
            :class:`Rewriting`.
        kernel: ``(body, metas, values that it writes, in the op's order) -> Kernel``; by default the loop nest of the body's
            expressions. Raises :class:`CodegenUnsupported`.
        exact: Whether its kernel computes the same bits as the ops alone; a loop nest does.
        prepare: Rewrites the program before the search, so that patterns fit; adds the metadata of new values.
    """

    name: str
    switch: str
    finder: Finder
    kernel: Callable[[Sequence[FrozenOp], Mapping[str, Meta], Sequence[str]], Kernel] = loop_nest
    exact: bool = False
    prepare: Callable[[FrozenProgram, dict[str, Meta]], FrozenProgram] = _unchanged


def refuse(rejected: MatchRejected) -> Fused:
    """Rejects a match: with the rejection bound, what a proposal has in the place of a fused op."""
    raise rejected


@dataclass
class Log:
    """The fusions made and rejected, in order."""

    applied: list[Applied] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)


def member(op: FrozenOp) -> OpInfo:
    """Returns an op as reports show it."""
    return OpInfo(op.type, tuple(op.writes()), op.where)


_TAKEN = "fuse_together() around all of them, if they are forward operators; or enable_auto_fusion"


def kernel_of(op: FrozenOp, metas: Mapping[str, Meta]) -> Kernel:
    """Returns the kernel of a fused op: the same object for running, printing and counting."""
    if op.kernel is not None:
        carried: Kernel = op.kernel
        return carried
    assert op.make_kernel is not None
    made: Kernel = op.make_kernel(op.body, metas, list(op.writes()))
    return made


def kernels_of(frozen: FrozenProgram, metas: Mapping[str, Meta]) -> dict[tuple[Entry, ...], Kernel]:
    """Returns the kernels of all fused ops, by the ops' outputs."""
    return {op.outputs: kernel_of(op, metas) for op in frozen.ops if op.body}


def apply(
    fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log, later: frozenset[str] = frozenset()
) -> FrozenProgram:
    """Returns the program after one fusion.

    Args:
        fusion: The fusion.
        program: The frozen program.
        metas: Metadata of all its values; those of new ones are added.
        log: Gets the records of what was done, and of what was not.
        later: Switches of the fusions that come after it.
    """
    return fusion.finder.edit(fusion, fusion.prepare(program, metas), metas, log, later)


# -------------------------------------------------------------------------------------------------------------- finders
class Finder(ABC):
    """What a fusion looks for, and what becomes of it.

    Attributes:
        patterns: Functions that name ops and values; empty for a finder that has no patterns.
        chain: What a finder without patterns looks for, for the explanation of one that made nothing.
        general: Whether it joins whatever neighbours it can, rather than particular operators. Why it did not join two of them
            is reported even where other kernels hold both.
    """

    patterns: tuple[PatternFunction, ...] = ()
    chain: Chain | None = None
    general: bool = False

    @abstractmethod
    def edit(
        self, fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log, later: frozenset[str]
    ) -> FrozenProgram:
        """Returns the program with what it finds replaced; takes what :func:`apply` takes, the program prepared."""


class Search(Finder):
    """A finder that proposes groups of ops: each that is safe becomes one op with a kernel."""

    @abstractmethod
    def proposals(self, view: View) -> Iterable[Proposal]:
        """Yields groups of ops, each with what becomes of it; one is not tried whose ops are all in others before it."""

    def edit(
        self, fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log, later: frozenset[str]
    ) -> FrozenProgram:
        """Replaces every safe proposal; they are taken in their order and never overlap."""
        view = View(program, metas, later)
        taken: dict[int, int] = {}
        made: list[tuple[tuple[int, ...], FrozenOp]] = []
        records: list[Applied] = []
        refusals: dict[tuple[int, ...], Rejection] = {}
        for indices, fuse in self.proposals(view):
            members = tuple(member(view.ops[i]) for i in indices)
            # Matches are taken in order, so the first one that fits an op has it.
            others = [i for i in indices if i in taken]
            if len(others) == len(indices):
                # The same ops matched another pattern of this fusion before.
                continue
            try:
                # Also where an op is taken already: a reason of the match itself says more than that.
                fused, record = _make(fusion, view, indices, fuse, members)
                if others:
                    raise MatchRejected("TWO_GROUPS", f"{view.ops[others[0]].type} is in another match already", _TAKEN)
            except MatchRejected as unfit:
                refusals[indices] = _rejection(fusion, unfit, members)
                continue
            # An earlier pattern may have been rejected for the same ops.
            refusals.pop(indices, None)
            for i in indices:
                taken[i] = len(made)
            made.append((indices, fused))
            records.append(record)
        log.refused.extend(r for indices, r in refusals.items() if not self._is_resolved(indices, taken))
        if not made:
            return program
        done, dropped = _without_cycles(program, view, made)
        for number, record in enumerate(records):
            if number in dropped:
                log.refused.append(_rejection(fusion, MatchRejected("CYCLE"), record.members))
            else:
                log.applied.append(record)
                log.refused.extend(record.notes)
        return done

    def _is_resolved(self, indices: tuple[int, ...], taken: Mapping[int, int]) -> bool:
        """Returns whether a rejection need not be reported: other matches took its ops."""
        into = {taken.get(i) for i in indices}
        return None not in into and (not self.general or len(into) == 1)


@dataclass(frozen=True)
class Patterns(Search):
    """Finds the places where patterns fit; ``fuse`` returns the fused op of a match, or raises :class:`MatchRejected`."""

    # With no default: the base class's would make it optional.
    patterns: tuple[PatternFunction, ...] = field()
    fuse: Callable[[Match], Fused]

    def proposals(self, view: View) -> Iterator[Proposal]:
        found: dict[tuple[int, ...], Match] = {}
        # Of two patterns that match the same ops the first counts; else matches are tried in the order of their ops.
        for function in self.patterns:
            for match in find(Pattern(function), view):
                found.setdefault(match.indices, match)
        for indices, match in sorted(found.items(), key=lambda pair: pair[0]):
            yield indices, partial(self.fuse, match)


@dataclass(frozen=True)
class Groups(Search):
    """Asks a function for groups of ops that become one op each, and for neighbours that it does not group."""

    function: Callable[[View], Iterable[tuple[int, ...] | RejectedPair]]
    chain: Chain | None = None
    general = True

    def proposals(self, view: View) -> Iterator[Proposal]:
        for one in self.function(view):
            if isinstance(one, RejectedPair):
                yield one.indices, partial(refuse, MatchRejected(one.code, one.reason, reader=one.reader))
            else:
                yield one, partial(_together, view, one)


def _together(view: View, indices: tuple[int, ...]) -> Fused:
    return Fused("fusion_group", {"Inputs": ()}, {"Outs": tuple(view.needed(set(indices)))}, others="Inputs")


@dataclass(frozen=True)
class Proposals(Search):
    """Asks a function for groups of ops, each with what becomes of it."""

    function: Callable[[View], Iterable[Proposal]]
    chain: Chain | None = None

    def proposals(self, view: View) -> Iterable[Proposal]:
        return self.function(view)


@dataclass(frozen=True)
class Rewriting(Finder):
    """Replaces ops by ordinary ones, which later fusions take up.

    Attributes:
        function: ``(fusion, program, metas, log) -> program``; adds the metadata of new values, and its records to the log.
        chain: See :class:`Finder`.
    """

    function: Callable[[Fusion, FrozenProgram, dict[str, Meta], Log], FrozenProgram]
    chain: Chain | None = None

    def edit(
        self, fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log, later: frozenset[str]
    ) -> FrozenProgram:
        return self.function(fusion, program, metas, log)


# ------------------------------------------------------------------------------------------------- one op for many
def _without_cycles(
    program: FrozenProgram, view: View, made: Sequence[tuple[tuple[int, ...], FrozenOp]]
) -> tuple[FrozenProgram, set[int]]:
    """Replaces matches, except each that would close a cycle with the ones before it; returns the numbers of these, too."""
    dropped: set[int] = set()
    while True:
        kept = [number for number in range(len(made)) if number not in dropped]
        done = replace_matches(program, view, [made[number] for number in kept])
        if done is not None:
            return done, dropped
        # The first that closes one: every part of an acyclic set is acyclic, so that halving finds it. A match may close one by
        # itself, through the order of ops with effects.
        acyclic, cyclic = 0, len(kept)
        while cyclic - acyclic > 1:
            middle = (acyclic + cyclic) // 2
            if replace_matches(program, view, [made[number] for number in kept[:middle]]) is None:
                cyclic = middle
            else:
                acyclic = middle
        dropped.add(kept[acyclic])


def _rejection(fusion: Fusion, unfit: MatchRejected, members: tuple[OpInfo, ...]) -> Rejection:
    return Rejection(fusion.name, fusion.switch, unfit.code, members, unfit.reason, unfit.change)


def _make(
    fusion: Fusion,
    view: View,
    indices: tuple[int, ...],
    fuse: Callable[[], Fused],
    members: tuple[OpInfo, ...],
) -> tuple[FrozenOp, Applied]:
    inside = set(indices)
    if inside & view.forbidden:
        raise MatchRejected("FORBIDDEN")
    # Kernels of expressions have the bits of their ops; others state whether they do, by `exact`.
    if not (fusion.exact or fusion.kernel is loop_nest) and strict_numerics():
        raise MatchRejected("NUM_STRICT")
    ops = [view.ops[i] for i in indices]
    needed = view.needed(inside)
    result = fuse()
    # A fused op that is fused again hands over its members: one kernel computes all of them.
    body = result.body or tuple(b for op in ops for b in (op.body or (op,)))
    final = _final(result, needed)
    _check_inner(view, inside, ops, needed, final)
    blocker = view.between(inside)
    if blocker is not None:
        raise MatchRejected("CYCLE", reader=view.ops[blocker].type)
    written = _entries({s: _only(e, set(needed)) for s, e in result.outputs.items()}, needed, "Kept")
    kernel = _kernel(fusion, view, body, flat(written[0]))
    # The body of an already fused op has inner values that the program no longer has.
    made = {v for op in body for v in op.writes()}
    # A kernel may read values of which the ops need only the shape.
    loaded = [b.value for b in kernel.inputs]
    contents = [v for op in body for v in op.contents()]
    read = [v for v in dict.fromkeys((*contents, *loaded)) if v not in made]
    # What only the shape is read of is an input without content: its memory may be reused by then.
    shapes = [v for v in dict.fromkeys(v for op in ops for v in op.reads()) if v not in made and v not in read]
    fused = _fused_op(fusion, result, ops, body, (read, shapes), written, kernel)
    gone = tuple(v for op in ops for v in op.writes() if v not in needed)
    kept = tuple(v for v in needed if v not in final)
    notes = tuple(_rejection(fusion, why, tuple(member(view.ops[i]) for i in pair)) for pair, why in result.notes)
    return fused, Applied(fusion.name, fusion.switch, fused.type, members, gone, kept, kernel, notes)


def _final(result: Fused, needed: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for slot, entry in result.outputs.items():
        # Paddle's names for what the forward op keeps for its gradient.
        if slot.startswith("Intermediate") or slot in result.inner:
            continue
        found.update((entry,) if isinstance(entry, str) else entry or ())
    return found & set(needed)


def _check_inner(view: View, inside: set[int], ops: Sequence[FrozenOp], needed: Sequence[str], final: set[str]) -> None:
    """Checks that no other op reads an inner value; backward ops of the group's ops may: the value is kept for them."""
    backward = {f"{op.type}_grad" for op in ops}
    for value in needed:
        if value in final:
            continue
        if value in view.fetched:
            raise MatchRejected("FETCHED", value=value)
        if value in view.kept:
            raise MatchRejected("PERSISTABLE", value=value)
        for reader in view.outside(value, inside):
            other = view.ops[reader]
            if not (other.role & OpRole.Backward and other.type in backward):
                raise MatchRejected("EXTRA_READER", value=value, reader=other.type)


def _kernel(fusion: Fusion, view: View, body: Sequence[FrozenOp], written: Sequence[str]) -> Kernel:
    for op in body:
        for value in (*op.reads(), *op.writes()):
            meta = view.metas.get(value)
            if meta is None or UNKNOWN in meta.shape:
                raise MatchRejected("DYNAMIC", f"a size of '{value}' is known only when the program runs")
    try:
        if fusion.kernel is loop_nest:
            return loop_nest(body, view.metas, written, view.formulas)
        return fusion.kernel(body, view.metas, written)
    except CodegenUnsupported as error:
        raise MatchRejected(error.code, error.reason, reader=error.op.type if error.op is not None else "") from None


def _fused_op(
    fusion: Fusion,
    result: Fused,
    ops: Sequence[FrozenOp],
    body: tuple[FrozenOp, ...],
    read: tuple[list[str], list[str]],
    written: tuple[tuple[Entry, ...], list[str]],
    kernel: Kernel,
) -> FrozenOp:
    contents, shapes = read
    inputs, slots_in = _entries({s: _only(e, set(contents)) for s, e in result.slots.items()}, contents, result.others)
    if shapes:
        # Inputs only for the order and for metadata; their memory may be reused.
        inputs, slots_in = (*inputs, tuple(shapes)), [*slots_in, "Shapes*?"]
    outputs, slots_out = written
    definition = OpDef(result.type, f"{', '.join(slots_in)} -> {', '.join(slots_out)}", shape_only=("Shapes",))
    # Later stages ask for an op's phase: a group has the roles of all its members.
    role = 0
    for op in ops:
        role |= op.role
    pairs = tuple(name for op in ops for name in op.role_var)
    return FrozenOp(
        definition, inputs, outputs, dict(result.attrs), role, pairs, ops[-1].where, ops[-1].position,
        body=body, fusion=fusion.name, kernel=kernel, make_kernel=fusion.kernel,
    )  # fmt: skip


def _only(entry: str | tuple[str, ...] | None, wanted: set[str]) -> str | tuple[str, ...] | None:
    if isinstance(entry, tuple):
        return tuple(v for v in entry if v in wanted)
    return entry if entry in wanted else None


def _entries(
    slots: Mapping[str, str | tuple[str, ...] | None], wanted: Sequence[str], rest: str
) -> tuple[tuple[Entry, ...], list[str]]:
    known = {v for entry in slots.values() for v in ((entry,) if isinstance(entry, str) else entry or ())}
    others = tuple(v for v in wanted if v not in known)
    if others:
        slots = {**slots, rest: others}
    return tuple(slots.values()), [f"{slot}{'*' if isinstance(entry, tuple) else ''}?" for slot, entry in slots.items()]


def replace_matches(
    program: FrozenProgram, view: View, made: Sequence[tuple[tuple[int, ...], FrozenOp]]
) -> FrozenProgram | None:
    """Replaces ops by fused ones and sorts; returns ``None`` if they form a cycle.

    A fused op takes the position of its last member, or an earlier one if a reader requires it.
    """
    group_of = {i: g for g, (indices, _) in enumerate(made) for i in indices}
    nodes: list[FrozenOp] = [fused for _, fused in made]
    rank: list[int] = [max(indices) for indices, _ in made]
    for i, op in enumerate(view.ops):
        if i not in group_of:
            nodes.append(op)
            rank.append(i)
    maker = {v: n for n, op in enumerate(nodes) for v in op.writes()}
    # Kahn's algorithm over the fused program, with the program's order where the values leave a choice.
    waits = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for n, op in enumerate(nodes):
        for m in {maker[v] for v in op.reads() if v in maker and maker[v] != n}:
            readers[m].append(n)
            waits[n] += 1
    last_effect: int | None = None
    for n in sorted(range(len(nodes)), key=rank.__getitem__):
        if nodes[n].definition.effects or nodes[n].sub_blocks:
            # Ops that print or call Python keep their order.
            if last_effect is not None:
                readers[last_effect].append(n)
                waits[n] += 1
            last_effect = n
    ready = [(rank[n], n) for n in range(len(nodes)) if not waits[n]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(nodes[n])
        for reader in readers[n]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (rank[reader], reader))
    return program.edit(ops=tuple(order)) if len(order) == len(nodes) else None
