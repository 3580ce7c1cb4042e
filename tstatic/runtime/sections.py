"""Steps whose sizes a run finds: bound for each size that comes up, and looked up when it comes again."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from tstatic import flags, records
from tstatic.devices import Device
from tstatic.devices.base import Memory
from tstatic.devices.step import BoundStep, ReadyStep, Region, Schedule, Stream, Workspace, of_calls
from tstatic.errors import OutOfMemoryError
from tstatic.ir.evaluate import check_place, meta_of
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY
from tstatic.ir.recording import recorded_late
from tstatic.ir.types import UNKNOWN, Meta, uint8
from tstatic.plan.memory import Lifetime, aligned, place
from tstatic.plan.plan import Plan
from tstatic.plan.shapes import infer_op
from tstatic.runtime.arenas import GROWTH, Arenas, User
from tstatic.runtime.out_of_memory import of_op, of_section
from tstatic.runtime.sub_block import annotate, run_op, run_op_in_place, run_update
from tstatic.shield import shield

MOST_BYTES = 32 << 20
"""About how many bytes the bound sizes of a session take at most, beside the memory that they work in; the size used least
recently is forgotten first. A step takes about 1.5 kB. Where feeds decide sizes, the bound is ``FLAGS_plan_cache_bytes``."""

_ARRAY_BYTES = 300
"""About what an array takes beside its memory: numpy's object, its sizes and strides, its entries in tables."""

_NO_CALLS = Schedule()
"""Of the steps that run with the first of their group; nobody adds to it."""


@dataclass(slots=True)
class _Member:
    """An op of a section: that of a step, or one of those that a fused op replaced."""

    number: int
    op: FrozenOp
    reserved: Mapping[str, Any]
    writes: Sequence[str]


@dataclass(eq=False, slots=True)
class Sized:
    """A section bound for some sizes.

    Attributes:
        arrays: Value -> array, of all values that lie in the section's memory.
        copies: Value given to the section -> the array that its calls read.
        schedules: Number of a step -> the calls that run with it.
        own_bytes: About what its arrays take, without the memory that they lie in.
        memory, workspaces: What it works in, and its threads' scratch; other sizes may use the same.
        span: The first byte of the memory that it works in, and the byte after the last.
        feeds: For which sizes of the feeds it was bound.
        nbytes: About what it takes, as it was last measured.
        behind: The keys of what lies behind it, which is not found without it.
    """

    arrays: dict[str, Any]
    copies: list[tuple[str, Any]]
    schedules: dict[int, Schedule]
    own_bytes: int
    memory: Memory
    span: tuple[int, int]
    workspaces: Sequence[Workspace]
    feeds: Hashable
    nbytes: int = 0
    behind: list[tuple[Any, ...]] = field(default_factory=list)

    def fill(self, device: Device, byte: int) -> None:
        """Writes a byte everywhere into the memory that it works in."""
        start, stop = self.span
        device.fill(device.view(self.memory, start, Meta((stop - start,), uint8)), byte)
        for workspace in self.workspaces:
            workspace.fill(byte)

    def measure(self) -> int:
        """Measures again what it takes, which grows when its calls first run; returns by how much it grew."""
        schedules = (one for one in self.schedules.values() if one is not _NO_CALLS)
        before, self.nbytes = self.nbytes, self.own_bytes + sum(one.kept_bytes for one in schedules)
        return self.nbytes - before


class Owner(User, Protocol):
    """The session, as far as its sections are concerned.

    Attributes:
        feed_sizes: What identifies the sizes that are fed now.
        on_growth: Learns of bytes that were added for the fed sizes, or taken from them.
    """

    feed_sizes: Hashable
    on_growth: Callable[[Hashable, int], None] | None


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
        read: What its members read and do not make.
        inside: What they make that lies in the section's memory, not where the plan puts it.
        last: Value -> index of the last member that reads it; the number of members if something outside does.
        views: The values that were views of others when it was last bound, and of which; most sizes have the same.
        places: For those views: value -> the first and the last member that accesses its memory.
        now: What it is bound to in this run; ``None`` where its steps run one by one.
        memory, nbytes: The memory of the largest size and its bytes, unless it lies in the session's arena.
    """

    members: list[_Member]
    given: list[str] = field(default_factory=list)
    sources: list[_Section] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    inside: frozenset[str] = frozenset()
    last: dict[str, int] = field(default_factory=dict)
    views: dict[str, str] | None = None
    places: list[tuple[str, int, int]] = field(default_factory=list)
    now: Sized | None = None
    memory: Memory | None = None
    nbytes: int = 0

    @property
    def numbers(self) -> list[int]:
        """The numbers of its steps."""
        return list(dict.fromkeys(one.number for one in self.members))


class _Turn:
    """A step of a section, as a session calls it.

    Attributes:
        begin: Chooses the calls of the section, if the step is its first.
        schedule: What it runs now.
        alone: The same for a step that runs by itself.
    """

    __slots__ = ("alone", "begin", "schedule", "sections")

    def __init__(self, sections: Sections) -> None:
        self.sections = sections
        self.begin: Callable[[], None] | None = None
        self.schedule = self.alone = Schedule()

    def run(self) -> None:
        """Runs the step, after its section's sizes have been looked up if it is the first."""
        if self.begin is not None:
            self.begin()
        schedule = self.schedule
        # The iterator's remaining length tells which call failed, as in a session.
        running = iter(schedule.calls)
        self.sections.at = schedule, running
        try:
            for function, args in running:
                function(*args)
            return
        except Exception as raised:
            error, op = schedule.failed(raised, len(schedule.calls) - operator.length_hint(running) - 1)
            error = of_op(error, op)
            annotate(error, op)
        finally:
            self.sections.at = None
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
        owner: The session.
        arena: The memory of what its plan places.
        arenas: The memory that it shares with others.

    Attributes:
        kept_bytes: About how many bytes all that is bound to sizes takes, without the memory that it works in.
        at: The calls of the step that runs now, and those that are left.
    """

    def __init__(
        self, plan: Plan, device: Device, arrays: MutableMapping[str, Any], reserved: Callable[[FrozenOp], dict[str, Any]],
        threads: int, check: bool, owner: Owner, arena: Memory, arenas: Arenas,
    ) -> None:  # fmt: skip
        self._plan, self._device, self._arrays, self._reserved = plan, device, arrays, reserved
        self._threads, self._check = threads, check
        self._owner, self._arena, self._arenas = owner, arena, arenas
        self._is_open = any(plan.storage[v].kind == "dynamic" for v in plan.program.feeds)
        self.at: tuple[Schedule, Iterator[Any]] | None = None
        self._known: OrderedDict[tuple[Any, ...], Sized] = OrderedDict()
        # Sizes of the feeds -> the keys of what was bound for them.
        self._fed: dict[Hashable, dict[tuple[Any, ...], None]] = {}
        self.kept_bytes = 0
        self._sections: list[_Section] = []
        self._turns: dict[int, _Turn] = {}
        self._members = [
            _Member(number, op, {}, op.writes())
            for number, step in enumerate(plan.steps)
            if step.how == "dynamic" and step.region == "main"
            for op in step.op.body or (step.op,)
        ]
        self._irregular = {one.number for one in self._members if not self._is_regular(one)}
        if device.binds_sizes:
            self._arrange(self._members)

    # ------------------------------------------------------------------------------------------------------------- bind
    def bind_step(self, number: int, stream: Stream) -> BoundStep:
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
            turn.alone = turn.schedule = Schedule()
            turn.alone.add([(run, (op, self._arrays, reserved))], op)
            return of_calls([(turn.run, ())])
        work: BoundStep = self._device.bind_dynamic(op, self._arrays, reserved, run, stream)
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
                turn = self._turns.setdefault(number, _Turn(self))
                turn.begin = partial(self._choose, number, section) if number == first else None

    def _split(self, section: _Section, number: int) -> None:
        """Divides a section anew, and those behind it, now that step ``number`` is known to have sizes that depend on values."""
        self._irregular.add(number)
        at = self._sections.index(section)
        for one in (turn for late in self._sections[at:] for turn in map(self._turns.get, late.numbers)):
            assert one is not None
            one.begin, one.schedule = None, one.alone
        del self._sections[at:]
        # Keys hold the sections that were just divided, which no run will ask for again.
        self.forget()
        self._arrange([one for one in self._members if one.number >= section.numbers[0]])

    def _describe(self, section: _Section, maker: Mapping[str, _Section]) -> None:
        made = {v for one in section.members for v in one.writes}
        storage = self._plan.storage
        section.inside = frozenset(v for v in made if v not in storage or storage[v].kind == "dynamic")
        section.read = list(dict.fromkeys(v for one in section.members for v in one.op.reads() if v not in made))
        inside = set(section.numbers)
        for index, one in enumerate(section.members):
            if not one.reserved:
                one.reserved = self._reserved(one.op)
            for value in one.op.reads():
                section.last[value] = index
                slot = self._plan.storage.get(value)
                if value in made or slot is None or (slot.kind != "dynamic" and slot.kind != "object"):
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
        # None first: if binding fails, sections behind must not find what this one was bound to before.
        before, section.now = section.now, None
        given = [arrays[v] for v in section.given]
        sources = [one.now for one in section.sources]
        if not all(isinstance(a, np.ndarray) for a in given) or None in sources:
            # A tensor array has no size of its own, nor has what is made of it.
            for turn in map(self._turns.__getitem__, section.numbers):
                turn.schedule = turn.alone
            return
        # Recorded runs have calls of their own: each step's alone.
        key = (section, records.recorder is None, *sources, *[(a.shape, a.dtype) for a in given])
        found = self._known.get(key)
        if found is None:
            try:
                found = self._bind_sizes(section)
            except _UnknownError as unknown:
                self._split(section, unknown.number)
                # The step may begin a section again, a shorter one: its sizes are still to be looked up.
                if (begin := self._turns[number].begin) is not None:
                    begin()
                return
            self._keep(key, found)
        else:
            self._known.move_to_end(key)
        found.memory.touch()
        for workspace in found.workspaces:
            workspace.touch()
        # In front of the copies below, which it would overwrite.
        if flags.memory_is_filled or flags.filling.get() is not None:
            found.fill(self._device, flags.fill_byte() or 0)
        for value, array in found.copies:
            np.copyto(array, arrays[value])
        if found is not before:
            arrays.update(found.arrays)
            for one, schedule in found.schedules.items():
                self._turns[one].schedule = schedule
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
        if views != section.views:
            section.views, section.places = views, _accesses(section, views)
        lifetimes += [Lifetime(v, metas[v].nbytes, first, last) for v, first, last in section.places]
        offsets, nbytes = place(lifetimes, self._plan.options.reuse)
        try:
            memory, start = self._room(section, nbytes)
        except OutOfMemoryError as error:
            raise of_section(error, section.members[0].op) from error.__cause__
        shared: dict[tuple[int, Meta], Any] = {}
        inside: dict[str, Any] = {}
        for one in lifetimes:
            # One array object per address: numpy is slower if input and output are two views of the same bytes.
            at = start + offsets[one.name], metas[one.name]
            if at not in shared:
                shared[at] = self._device.view(memory, *at)
            inside[one.name] = shared[at]
        works = self._works(section, inside, views)
        need = max((work.scratch_bytes for _, work, _ in works), default=0)
        workspaces = self._arenas.workspaces(self._threads, need)
        with recorded_late():
            schedules = self._schedules(section, works, workspaces)
        copies = [(v, inside.pop(v)) for v in given]
        own = sum(work.own_bytes for _, work, _ in works) + (len(inside) + len(copies)) * _ARRAY_BYTES
        return Sized(
            inside, copies, schedules, own, memory, (start, start + nbytes), workspaces, self._owner.feed_sizes
        )  # fmt: skip

    def _room(self, section: _Section, nbytes: int) -> tuple[Memory, int]:
        """Returns memory for a section, and the byte in it from which on it is the section's."""
        if section is self._sections[0]:
            # Behind what the plan places, in the memory that plans take turns in: most programs have one section.
            start = aligned(self._plan.arena_bytes)
            arena = self._arenas.widen(self._owner, start + nbytes, self._arena, start)
            if arena is not None:
                return arena, start
        before = section.memory
        if before is None or section.nbytes < nbytes:
            # What is bound to the smaller one stays bound to it; only its pages go.
            section.nbytes = max(nbytes, 0 if before is None else GROWTH * section.nbytes)
            section.memory = self._device.allocate(section.nbytes, purpose="results whose sizes depend on values")
            if before is not None and before.can_release:
                before.release()
            elif before is not None:
                self._drop([key for key, one in self._known.items() if one.memory is before])
        assert section.memory is not None
        return section.memory, 0

    def _infer(self, section: _Section) -> dict[str, Meta]:
        """Returns the metadata of all that a section reads and makes."""
        arrays = self._arrays
        metas = {v: meta_of(arrays[v]) for v in section.read}
        inside = section.inside
        for one in section.members:
            infer_op(one.op, metas)
            for value in one.writes:
                meta = metas.get(value)
                if meta is None or UNKNOWN in meta.shape:
                    raise _UnknownError(one.number)
                if value not in inside:
                    check_place(arrays[value], meta.shape, one.op.type)
        return metas

    def _views(self, section: _Section, metas: Mapping[str, Meta]) -> dict[str, str]:
        """Returns the values that are views of others that the section makes, and of which."""
        made: set[str] = set()
        found: dict[str, str] = {}
        samples: dict[str, Any] = {}
        for one in section.members:
            op, view = one.op, one.op.definition.view
            made.update(v for v in one.writes if v in section.inside)
            if view is None or any(op.inputs[1:]):
                continue
            source, result = op.inputs[0], op.outputs[0]
            if not isinstance(source, str) or not isinstance(result, str):
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
    ) -> list[tuple[int, BoundStep, FrozenOp]]:
        """Binds the ops of a section to its arrays; adds those of views."""
        outside, device, stream = self._arrays, self._device, self._device.stream()

        def array(one: Entry) -> Any:
            # A tuple never names a value.
            found = inside.get(one)  # type: ignore[arg-type]
            if found is not None or one is None:
                return found
            if isinstance(one, str):
                return outside[one]
            return [None if v == EMPTY else inside[v] if v in inside else outside[v] for v in one]

        works = []
        for member in section.members:
            op = member.op
            if (result := next(iter(op.outputs), None)) in views:
                view = op.definition.view
                assert view is not None
                assert isinstance(result, str)
                shown = partial(view, **op.definition.pick(view, op.attrs))
                inside[result] = device.derive(inside[views[result]], shown)
                continue
            ins, outs = list(map(array, op.inputs)), list(map(array, op.outputs))
            works.append((member.number, device.bind(op, ins, outs, member.reserved, stream), op))
        return works

    def _schedules(
        self, section: _Section, works: Sequence[tuple[int, BoundStep, FrozenOp]], workspaces: Sequence[Workspace]
    ) -> dict[int, Schedule]:
        """Returns the calls of each step; steps between which none of another kind lies run with the first of them."""
        apart = self._check or self._plan.options.no_chaining or records.recorder is not None
        region = Region(self._threads, workspaces, ordered=apart)
        stream = self._device.stream()
        found: dict[int, Schedule] = dict.fromkeys(section.numbers, _NO_CALLS)
        # Steps of known sizes may lie between two of the section, and nothing may run before them that reads what they make.
        groups: Iterable[list[tuple[int, BoundStep, FrozenOp]]]
        if apart:
            groups = (list(group) for _, group in itertools.groupby(works, key=lambda one: one[0]))
        else:
            groups = _adjacent(works, found.keys())
        for group in groups:
            steps = [ReadyStep(op, stream, work) for _, work, op in group]
            found[group[0][0]] = self._device.schedule(steps, region)
        return found

    # ----------------------------------------------------------------------------------------------------------- memory
    def _keep(self, key: tuple[Any, ...], sized: Sized) -> None:
        """Keeps what was bound, and forgets what was used least recently where all take too much."""
        with shield:
            # Under the shield: a signal between these lines would leave a size that is kept and not counted.
            self._known[key] = sized
            self._fed.setdefault(sized.feeds, {})[key] = None
            for source in key:
                if isinstance(source, Sized):
                    source.behind.append(key)
            self._account(sized.feeds, sized.measure())
        most = int(flags.flag("FLAGS_plan_cache_bytes")) if self._is_open else MOST_BYTES
        # The size of this run is the last one: it stays, even if it takes more than all may.
        while self.kept_bytes > most and len(self._known) > 1:
            self._drop([next(iter(self._known))])

    def _drop(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Forgets what was bound, and what lies behind it."""
        gone = list(keys)
        with shield:
            while gone:
                key = gone.pop()
                one = self._known.pop(key, None)
                if one is None:
                    continue
                # Their keys hold this one, and so can never come up again.
                gone += one.behind
                fed = self._fed[one.feeds]
                del fed[key]
                if not fed:
                    del self._fed[one.feeds]
                self._account(one.feeds, -one.nbytes)

    def _account(self, feeds: Hashable, nbytes: int) -> None:
        self.kept_bytes += nbytes
        if self._owner.on_growth is not None:
            self._owner.on_growth(feeds, nbytes)

    def forget(self, *feeds: Hashable) -> None:
        """Forgets what was bound for some sizes of the feeds; without an argument all."""
        self._drop([key for one in feeds or [*self._fed] for key in self._fed.get(one, ())])

    def measure(self, feeds: Hashable) -> None:
        """Measures again what is bound for some sizes of the feeds."""
        with shield:
            self._account(feeds, sum(self._known[key].measure() for key in self._fed.get(feeds, ())))

    def memories(self) -> Iterator[Memory | Workspace]:
        """Yields the memory that bound sizes work in; some more than once."""
        for one in self._known.values():
            yield one.memory
            yield from one.workspaces


def _accesses(section: _Section, views: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """Returns what a section makes, with the first and the last member that accesses its memory under any name."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, one in enumerate(section.members):
        for value in one.writes:
            if value in section.inside:
                root = value
                while root in views:
                    root = views[root]
                first.setdefault(root, index)
                last[root] = max(last.get(root, index), section.last.get(value, index))
    return [(v, first[v], last[v]) for v in first]


def _adjacent(
    works: Sequence[tuple[int, BoundStep, FrozenOp]], numbers: Collection[int]
) -> Iterator[list[tuple[int, BoundStep, FrozenOp]]]:
    """Yields works in groups between which no step of another kind lies."""
    group: list[tuple[int, BoundStep, FrozenOp]] = []
    for one in works:
        # Of most sections all steps follow each other.
        if group and one[0] > group[-1][0] + 1 and not all(n in numbers for n in range(group[-1][0], one[0])):
            yield group
            group = []
        group.append(one)
    if group:
        yield group
