"""Steps whose sizes a run finds: bound for each size that comes up, and looked up when it comes again."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tstatic.devices import Device, records
from tstatic.devices.base import Stream
from tstatic.devices.cpu import device as cpu
from tstatic.devices.cpu.buffer import Buffer
from tstatic.devices.cpu.pool import pool_of
from tstatic.devices.cpu.tile_chain import chain_steps, find_failed_op
from tstatic.flags import fill_byte
from tstatic.ir.evaluate import check_place, meta_of
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta
from tstatic.plan.memory import Lifetime, place
from tstatic.plan.plan import Plan
from tstatic.plan.shapes import infer_op
from tstatic.runtime.out_of_memory import of_op
from tstatic.runtime.sub_block import annotate, run_op, run_op_in_place, run_update

MOST_BYTES = 32 << 20
"""About how many bytes the bound sizes of a session take at most, beside the memory that they work in; the size used least
recently is forgotten first. A step takes about 1.5 kB."""

_CALL_BYTES, _ARRAY_BYTES = 400, 300

_GROWTH = 1.5
"""Memory that a larger size needs is allocated so many times as large as before, so that few sizes make it anew."""


@dataclass(slots=True)
class _Member:
    """An op of a section: that of a step, or one of those that a fused op replaced."""

    number: int
    op: FrozenOp
    reserved: Mapping[str, Any]


@dataclass(eq=False, slots=True)
class Sized:
    """A section bound for some sizes.

    Attributes:
        arrays: Value -> array, of all values that lie in the section's memory.
        copies: Value given to the section -> the array that its calls read.
        calls: Number of a step -> the calls that run with it, and the op of each as errors want it.
        nbytes: About what it takes, without the memory that it works in.
    """

    arrays: dict[str, Any]
    copies: list[tuple[str, Any]]
    calls: dict[int, tuple[list[Call], list[Any]]]
    nbytes: int


class _UnknownError(Exception):
    """Raised while a section is bound if a step's sizes depend on values after all; has its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(eq=False)
class _Section:
    """Steps whose sizes all follow from those of what the section is given.

    Attributes:
        members: Their ops, in order.
        given: Values from outside with sizes of their own, which each run puts elsewhere.
        sources: Earlier sections whose values it reads, where those lie.
        last: Value -> index of the last member that reads it; the number of members if something outside does.
        now: What it is bound to in this run; ``None`` where its steps run one by one.
        buffer, workspaces: Its memory, and that of its threads' scratch.
    """

    members: list[_Member]
    given: list[str] = field(default_factory=list)
    sources: list[_Section] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    now: Sized | None = None
    buffer: Buffer | None = None
    workspaces: list[cpu.Workspace] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """The numbers of its steps."""
        return list(dict.fromkeys(one.number for one in self.members))


class _Turn:
    """A step of a section, as a session calls it.

    Attributes:
        begin: Chooses the calls of the section, if the step is its first.
        calls, owners: What it runs now, and the op of each call as errors want it.
        alone: The same for a step that runs by itself.
    """

    __slots__ = ("alone", "begin", "calls", "owners")

    def __init__(self) -> None:
        self.begin: Callable[[], None] | None = None
        self.alone: tuple[list[Call], list[Any]] = [], []
        self.calls, self.owners = self.alone

    def run(self) -> None:
        """Runs the step, after its section's sizes have been looked up if it is the first."""
        if self.begin is not None:
            self.begin()
        # The iterator's remaining length tells which call failed, as in a session.
        running = iter(self.calls)
        try:
            for function, args in running:
                function(*args)
            return
        except Exception as raised:
            number = len(self.calls) - operator.length_hint(running) - 1
            error, op = find_failed_op(raised, self.owners[number])
            error = of_op(error, op)
            annotate(error, op)
        raise error  # outside the except block, so that the error keeps its own cause and context


class Sections:
    """The dynamic steps of a session.

    On a device whose arrays are numpy's and whose calls end when their work is done, steps between two whose sizes depend on
    values form a section: once the sizes of what it is given are known, so are all others, and it is bound as a plan is. Other
    steps, and those of other devices, run one by one.

    Args:
        plan: The session's plan.
        device: Its device.
        arrays: Value -> array; sections add theirs.
        reserved: Returns what a step's reference gets beside arrays and attributes.
        threads: Threads that share the work.
        check: Whether results are searched for NaN.
    """

    def __init__(
        self, plan: Plan, device: Device, arrays: MutableMapping[str, Any], reserved: Callable[[FrozenOp], dict[str, Any]],
        threads: int, check: bool,
    ) -> None:  # fmt: skip
        self._plan, self._device, self._arrays, self._reserved = plan, device, arrays, reserved
        self._threads, self._check = threads, check
        self._known: OrderedDict[tuple[Any, ...], Sized] = OrderedDict()
        self._held = 0
        self._sections: list[_Section] = []
        self._turns: dict[int, _Turn] = {}
        self._members = [
            _Member(number, op, {})
            for number, step in enumerate(plan.steps)
            if step.how == "dynamic" and step.region == "main"
            for op in step.op.body or (step.op,)
        ]
        self._irregular = {one.number for one in self._members if not self._is_regular(one)}
        if device.binds_sizes:
            self._arrange(self._members)

    # ------------------------------------------------------------------------------------------------------------- bind
    def bind(self, number: int, stream: Stream) -> cpu.BoundStep:
        """Returns the work of a dynamic step, other than a collective."""
        op = self._plan.steps[number].op
        kinds = {v: self._plan.storage[v].kind for v in op.writes()}
        placed = [v for v, kind in kinds.items() if kind == "arena"]
        run: Callable[..., None] = partial(run_op_in_place, placed) if placed else run_op
        if "state" in kinds.values():
            run = run_update
        reserved = self._reserved(op)
        if number in self._turns:
            turn = self._turns[number]
            turn.alone = [(run, (op, self._arrays, reserved))], [op]
            turn.calls, turn.owners = turn.alone
            return cpu.of_calls([(turn.run, ())])
        work: cpu.BoundStep = self._device.bind_dynamic(op, self._arrays, reserved, run, stream)
        return work

    def _is_regular(self, member: _Member) -> bool:
        """Returns whether the sizes of an op's results follow from those of its inputs, as far as a plan can tell."""
        definition = member.op.definition
        calls = any(spec.kind == "function" for spec in definition.attrs.values())
        ruled = definition.infer is not None and definition.dynamic is None
        own = definition.objects or definition.update or definition.collective or member.op.sub_blocks
        return ruled and not (calls or own)

    def _arrange(self, members: Sequence[_Member]) -> None:
        """Divides ops, from a section's first one to the last, into sections; an op whose sizes depend on values ends one."""
        found: list[list[_Member]] = [[]]
        for one in members:
            if one.number in self._irregular:
                found.append([])
            else:
                found[-1].append(one)
        maker = {v: section for section in self._sections for one in section.members for v in one.op.writes()}
        for section in (_Section(some) for some in found if some):
            self._describe(section, maker)
            maker |= {v: section for one in section.members for v in one.op.writes()}
            self._sections.append(section)
            first, *_ = section.numbers
            for number in section.numbers:
                turn = self._turns.setdefault(number, _Turn())
                turn.begin = partial(self._choose, number, section) if number == first else None

    def _split(self, section: _Section, number: int) -> None:
        """Divides a section anew, and those behind it, now that step ``number`` is known to have sizes that depend on values."""
        self._irregular.add(number)
        at = self._sections.index(section)
        for one in (turn for late in self._sections[at:] for turn in map(self._turns.get, late.numbers)):
            assert one is not None
            one.begin, (one.calls, one.owners) = None, one.alone
        del self._sections[at:]
        self._forget()
        self._arrange([one for one in self._members if one.number >= section.numbers[0]])

    def _describe(self, section: _Section, maker: Mapping[str, _Section]) -> None:
        made = {v for one in section.members for v in one.op.writes()}
        inside = set(section.numbers)
        for index, one in enumerate(section.members):
            if not one.reserved:
                one.reserved = self._reserved(one.op)
            for value in one.op.reads():
                section.last[value] = index
                slot = self._plan.storage.get(value)
                if value in made or slot is None or slot.kind not in ("dynamic", "object"):
                    continue
                if value in maker:
                    if maker[value] not in section.sources:
                        section.sources.append(maker[value])
                elif value not in section.given:
                    section.given.append(value)
        outside = {v for n, step in enumerate(self._plan.steps) if n not in inside for v in step.op.reads()}
        outside |= self._plan.program.roots()
        section.last |= dict.fromkeys(made & outside, len(section.members))

    # -------------------------------------------------------------------------------------------------------------- run
    def _choose(self, number: int, section: _Section) -> None:
        """Gives the steps of a section, of which step ``number`` is the first, their calls for the sizes of this run."""
        arrays = self._arrays
        before, section.now = section.now, None
        given = [arrays[v] for v in section.given]
        sources = [one.now for one in section.sources]
        if not all(isinstance(a, np.ndarray) for a in given) or None in sources:
            # A tensor array has no size of its own, nor has what is made of it.
            for turn in map(self._turns.__getitem__, section.numbers):
                turn.calls, turn.owners = turn.alone
            return
        key = (section, records.recorder is None, *sources, *[(a.shape, a.dtype) for a in given])
        found = self._known.get(key)
        if found is None:
            try:
                found = self._bind_sizes(section)
            except _UnknownError as unknown:
                self._split(section, unknown.number)
                if (begin := self._turns[number].begin) is not None:
                    begin()
                return
            self._keep(key, found)
        else:
            self._known.move_to_end(key)
        assert section.buffer is not None
        section.buffer.touch()
        for workspace in section.workspaces:
            workspace.touch()
        for value, array in found.copies:
            np.copyto(array, arrays[value])
        if found is not before:
            arrays.update(found.arrays)
            for one, calls in found.calls.items():
                turn = self._turns[one]
                turn.calls, turn.owners = calls
        section.now = found

    def _bind_sizes(self, section: _Section) -> Sized:
        """Binds a section to the sizes that its inputs have now.

        Raises:
            _UnknownError: If a step's sizes do not follow from them.
            TstaticError: If an op rejects its inputs' shapes.
        """
        metas = self._infer(section)
        views = self._views(section, metas)
        given = [v for v in section.given if v in section.last]
        lifetimes = [Lifetime(v, metas[v].nbytes, -1, section.last[v]) for v in given]
        lifetimes += _lifetimes(section, metas, views, self._is_inside)
        offsets, nbytes = place(lifetimes, self._plan.options.reuse)
        if section.buffer is None or section.buffer.array.nbytes < nbytes:
            section.buffer = self._larger(section.buffer, nbytes)
        shared: dict[tuple[int, Meta], Any] = {}
        inside: dict[str, Any] = {}
        for one in lifetimes:
            # One array object per address: numpy is slower if input and output are two views of the same bytes.
            at = offsets[one.name], metas[one.name]
            if at not in shared:
                shared[at] = self._device.view(section.buffer, *at)
            inside[one.name] = shared[at]
        works = self._works(section, inside, views)
        need = max((work.scratch_bytes for _, work, _ in works), default=0)
        if not section.workspaces or section.workspaces[0].need < need:
            section.workspaces = self._workspaces(section.workspaces, need)
        calls = self._calls(section, works)
        copies = [(v, inside.pop(v)) for v in given]
        count = sum(len(found) for found, _ in calls.values())
        return Sized(inside, copies, calls, count * _CALL_BYTES + (len(inside) + len(copies)) * _ARRAY_BYTES)

    def _infer(self, section: _Section) -> dict[str, Meta]:
        """Returns the metadata of all that a section reads and makes."""
        arrays = self._arrays
        made = {v for one in section.members for v in one.op.writes()}
        read = {v: None for one in section.members for v in one.op.reads() if v not in made}
        metas = {v: meta_of(arrays[v]) for v in read}
        for one in section.members:
            infer_op(one.op, metas)
            for value in one.op.writes():
                meta = metas.get(value)
                if meta is None or not meta.known:
                    raise _UnknownError(one.number)
                if not self._is_inside(value):
                    check_place(arrays[value], meta.shape, one.op.type)
        return metas

    def _is_inside(self, value: str) -> bool:
        """Returns whether a value that a section makes lies in the section's memory, not where the plan puts it."""
        slot = self._plan.storage.get(value)
        return slot is None or slot.kind == "dynamic"

    def _views(self, section: _Section, metas: Mapping[str, Meta]) -> dict[str, str]:
        """Returns the values that are views of others that the section makes, and of which."""
        made: set[str] = set()
        found: dict[str, str] = {}
        samples: dict[str, Any] = {}
        for one in section.members:
            op, view = one.op, one.op.definition.view
            made.update(v for v in op.writes() if self._is_inside(v))
            source, result = op.inputs[0] if op.inputs else None, op.outputs[0]
            if view is None or any(op.inputs[1:]) or not isinstance(source, str) or not isinstance(result, str):
                continue
            if source not in made or result not in made:
                continue
            # As a plan decides: the definition's own view, on memory that is never touched.
            sample = samples.get(source)
            if sample is None:
                sample = np.empty(metas[source].shape, metas[source].dtype.np)
            shown = view(sample, **op.definition.pick(view, op.attrs))
            if shown is not None and shown.shape == metas[result].shape and np.may_share_memory(shown, sample):
                found[result], samples[result] = source, shown
        return found

    def _works(
        self, section: _Section, inside: dict[str, Any], views: Mapping[str, str]
    ) -> list[tuple[int, cpu.BoundStep, FrozenOp]]:
        """Binds the ops of a section to its arrays; adds those of views."""
        outside, device, stream = self._arrays, self._device, self._device.stream()

        def entry(one: Entry) -> Any:
            if one is None:
                return None
            if isinstance(one, str):
                return inside[one] if one in inside else outside[one]
            return [None if v == EMPTY else inside[v] if v in inside else outside[v] for v in one]

        works = []
        for member in section.members:
            op = member.op
            if isinstance(op.outputs[0], str) and op.outputs[0] in views:
                view = op.definition.view
                assert view is not None
                shown = partial(view, **op.definition.pick(view, op.attrs))
                inside[op.outputs[0]] = device.derive(inside[views[op.outputs[0]]], shown)
                continue
            ins, outs = [entry(e) for e in op.inputs], [entry(e) for e in op.outputs]
            works.append((member.number, device.bind(op, ins, outs, member.reserved, stream), op))
        return works

    def _calls(
        self, section: _Section, works: Sequence[tuple[int, cpu.BoundStep, FrozenOp]]
    ) -> dict[int, tuple[list[Call], list[Any]]]:
        """Returns the calls of each step; a chain of steps runs with its first."""
        apart = self._check or self._plan.options.no_chaining or records.recorder is not None
        pool = pool_of(self._threads)
        calls: dict[int, tuple[list[Call], list[Any]]] = {n: ([], []) for n in section.numbers}
        # Steps of known sizes may lie between two of the section, and nothing may run before them that reads what they make.
        for group in _adjacent(works, set(calls)):
            if all(len(work.tile_binders) == 1 for _, work, _ in group):
                # Nothing to run side by side, so nothing to chain.
                for number, work, op in group:
                    (tile,) = work.bind(section.workspaces[0])
                    calls[number][0].extend((*tile, *work.after))
                    calls[number][1].extend([op] * (len(tile) + len(work.after)))
                continue
            numbers = iter(number for number, _, _ in group)
            for chain in chain_steps(((work, op) for _, work, op in group), self._threads, apart):
                first, *_ = [next(numbers) for _ in chain.works]
                made, owners = chain.bind(section.workspaces, pool)
                calls[first][0].extend(made)
                calls[first][1].extend(owners)
        return calls

    # ----------------------------------------------------------------------------------------------------------- memory
    def _keep(self, key: tuple[Any, ...], sized: Sized) -> None:
        """Keeps what was bound, and forgets what was used least recently where all take too much."""
        self._known[key] = sized
        self._held += sized.nbytes
        while self._held > MOST_BYTES and len(self._known) > 1:
            forgotten = {next(iter(self._known.values()))}
            # What lies behind a size that is forgotten is not found again.
            for stale in [k for k, one in self._known.items() if one in forgotten or not forgotten.isdisjoint(k)]:
                self._held -= self._known.pop(stale).nbytes

    def _larger(self, buffer: Buffer | None, nbytes: int) -> Buffer:
        """Returns memory for a larger size; what was bound to less is forgotten, so that its memory is freed."""
        if buffer is not None:
            self._forget()
            nbytes = int(nbytes * _GROWTH)
        made = Buffer(nbytes, "results whose sizes depend on values")
        if (byte := fill_byte()) is not None:
            made.array[...] = byte
        return made

    def _workspaces(self, before: Sequence[cpu.Workspace], nbytes: int) -> list[cpu.Workspace]:
        if before:
            self._forget()
        made = [cpu.Workspace() for _ in range(self._threads)]
        for workspace in made:
            workspace.reserve(int(nbytes * _GROWTH) if before else nbytes)
            workspace.allocate()
        return made

    def _forget(self) -> None:
        self._known.clear()
        self._held = 0

    def fill(self, byte: int) -> None:
        """Writes a byte everywhere into the memory that sections work in."""
        for section in self._sections:
            if section.buffer is not None:
                section.buffer.array[...] = byte
            for workspace in section.workspaces:
                workspace.fill(byte)

    def release(self) -> None:
        """Gives the memory that sections work in back to the system; they stay bound."""
        for section in self._sections:
            if section.buffer is not None:
                section.buffer.release()
            for workspace in section.workspaces:
                workspace.release()

    @property
    def kept_bytes(self) -> int:
        """About how many bytes all that is bound to sizes takes, without the memory that it works in."""
        return self._held

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that sections work in that are allocated now."""
        sections = self._sections
        return sum(one.buffer.held_bytes for one in sections if one.buffer is not None) + sum(
            workspace.held_bytes for one in sections for workspace in one.workspaces
        )


def _lifetimes(
    section: _Section, metas: Mapping[str, Meta], views: Mapping[str, str], is_inside: Callable[[str], bool]
) -> list[Lifetime]:
    """Returns the lifetimes of what a section makes; memory lives as long as its last reader under any name."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, one in enumerate(section.members):
        for value in one.op.writes():
            if is_inside(value):
                root = value
                while root in views:
                    root = views[root]
                first.setdefault(root, index)
                last[root] = max(last.get(root, index), section.last.get(value, index))
    return [Lifetime(v, metas[v].nbytes, first[v], last[v]) for v in first]


def _adjacent(
    works: Sequence[tuple[int, cpu.BoundStep, FrozenOp]], numbers: Collection[int]
) -> Iterator[list[tuple[int, cpu.BoundStep, FrozenOp]]]:
    """Yields works in groups between which no step of another kind lies."""
    group: list[tuple[int, cpu.BoundStep, FrozenOp]] = []
    for one in works:
        if group and not all(n in numbers for n in range(group[-1][0], one[0])):
            yield group
            group = []
        group.append(one)
    if group:
        yield group
