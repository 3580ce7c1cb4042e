"""Binds a plan to memory, arrays and a device: what a session runs until its scope's storage changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.comm.group import Communicator
from tstatic.devices import Array, Device
from tstatic.devices.base import Event, Memory
from tstatic.devices.step import BoundStep, ReadyStep, Region, Schedule, Stream, Workspace, of_calls
from tstatic.forks import away
from tstatic.fusion.codegen.kernel import RNG
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY
from tstatic.ir.recording import Call
from tstatic.ir.rng import RngKey
from tstatic.ir.types import dtype_of
from tstatic.plan.flat_buffers import state_buffers
from tstatic.plan.plan import Plan, Step, StepRegion
from tstatic.plan.report import Seen
from tstatic.progress import tracked
from tstatic.runtime import timeline
from tstatic.runtime.arenas import Arenas
from tstatic.runtime.checks import Before, Bound, before_kernel, decided, late_checks, may_ask_words
from tstatic.runtime.feed import StagedFeeds, uninitialised
from tstatic.runtime.fetch import StagedFetches
from tstatic.runtime.finite import check_finite
from tstatic.runtime.flatten import flatten, move_values
from tstatic.runtime.foreseen import foreseen
from tstatic.runtime.generated import add_shared, bind_view, generated_work
from tstatic.runtime.recorded import RecordedCalls, RegionName
from tstatic.runtime.scope import Scope, dtype_check
from tstatic.runtime.scratch import Scratch
from tstatic.runtime.sections import Owner, Sections
from tstatic.runtime.storage import Blocks, place_values
from tstatic.runtime.sub_block import BlockRunner, run_collective, store_entry


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """What a session was made with, and what lasts as long as it does.

    Attributes:
        plan: The plan.
        scope: The scope of the persistable variables.
        device: The device that runs the plan.
        threads: Threads that share the work of a step.
        check_numerics: Whether each step's results are searched for NaN.
        communicator: Runs this replica's collectives with the other replicas; ``None`` for a program on one place.
        place: Number of the replica.
        arenas: Memory that it shares with sessions that run when it does not.
        streams: One for copies, one for collectives, and those over which the other steps are spread.
        began, ended: The first and the last event of a run on a device whose work runs late.
    """

    plan: Plan
    scope: Scope
    device: Device
    threads: int
    check_numerics: bool
    communicator: Communicator | None
    place: int
    arenas: Arenas
    streams: list[Stream]
    began: Event
    ended: Event

    def waiting(self) -> list[Call]:
        """Returns calls that wait for the first stream, and so for what it waits for."""
        first = self.streams[0]
        # The event before the wait: `device_seconds` reads its time when the wait is over.
        return [(self.device.record, (self.ended, first)), (self.device.synchronize, ([first],))]


class Binding:
    """What a plan is bound to.

    Args:
        setting: What the session was made with.
        owner: The session.

    Attributes:
        arena: The memory of the plan's temporaries.
        workspaces: The scratch memory of each thread.
        arrays: Value -> array.
        blocks: The foreign blocks of the plan.
        sections: The steps whose sizes a run finds.
        checks: The checks of positions on a device whose work runs late; ``None`` elsewhere.
        undecided: Whether the update is queued before the host knows whether the main region succeeded.
        keys, runners: What each run tells seed and number: of steps that draw, and of bodies of control flow.
        numbers: Where kernels find them; ``None`` if none draws.
        schedules: ``main``, and ``update``, which writes state -> its calls.
        whole: The calls of both, if the update is queued before the host knows of bad positions.
        recorded: Those calls with marks, for a profiler.
        feeds: Name and array of each feed; ``open_feeds``: names of those whose first size each run decides.
        staged: Sends feeds to a device whose work runs late; ``None`` elsewhere.
        staged_numbers: Sends what random numbers depend on, likewise.
        fetched: Brings fetched values with the one wait of a run, if the update is queued before the host knows of anything.
        foreseen: What the host knows of the sums that a run of several places leaves out; ``None`` if it leaves out none.
        bad: A truth value in device memory that keeps an update from changing anything; ``None`` if nothing is checked there.
        targets: Variable -> its storage, of those that are committed.
        pending: What each run commits; ``None`` before the first.
        own_bytes: Bytes of arrays that only steps have.
        layout: The scope's layout that it was bound to.

    Raises:
        FeedError: If a persistable variable that the program reads has no value in the scope.
    """

    def __init__(self, setting: Setting, owner: Owner) -> None:
        plan, device, scope = setting.plan, setting.device, setting.scope
        self._setting = setting
        with timeline.part("upload"):
            move_values(scope, (*plan.program.reads, *plan.program.writes), device)  # which flat buffers are made of
            flatten(scope, state_buffers(plan.program), device)
        self.arena = setting.arenas.take(owner, plan.arena_bytes)
        self.arena.touch()
        self.arrays: dict[str, Any] = {}
        self.blocks = Blocks(plan, device.watch())
        self.keys: list[RngKey] = []
        self.runners: list[BlockRunner] = []
        place_values(plan, self.arena, device, self._state, self.blocks, self.arrays)
        self._scratch = Scratch(plan, self.arena, device)
        self.sections = Sections(
            plan, device, self.arrays, self._reserved, setting.threads, setting.check_numerics, owner, self.arena,
            setting.arenas,
        )  # fmt: skip
        # Before the steps, which bind the checks of what they read.
        self.checks = late_checks(plan, device)
        self.undecided = not setting.check_numerics and may_ask_words(plan, self.checks, setting.communicator)
        works = self._bind_steps()
        self.own_bytes = sum(work.own_bytes for _, work, *_ in works)
        # After all steps: they share the workspaces, which are as large as the largest need.
        need = max((work.scratch_bytes for _, work, *_ in works), default=0)
        self.workspaces: Sequence[Any] = setting.arenas.workspaces(setting.threads, need)
        # Empty first: `_fences` asks whether another region comes before.
        self.schedules: dict[RegionName, Schedule] = {"main": Schedule(), "update": Schedule()}
        for region, group in itertools.groupby(works, key=lambda bound: bound[0].region):
            self.schedules[region] = self._schedule(region, list(group))
        # Where the host does not wait between the regions, nothing keeps them from being one graph.
        self.whole = self._whole(works) if self.undecided and works and setting.communicator is None else None
        self.recorded = RecordedCalls(plan, device, setting.threads, setting.streams, setting.place, self.arrays)
        self.feeds = [(name, self.arrays[name]) for name in plan.program.feeds if name in self.arrays]
        self.open_feeds = [name for name in plan.program.feeds if name not in self.arrays]
        self.numbers = self.arrays.get(RNG)
        self.staged = StagedFeeds(device, self.feeds, setting.streams[0]) if device.deferred else None
        self.staged_numbers = (
            None if self.staged is None or self.numbers is None
            else StagedFeeds(device, [("numbers", self.numbers)], setting.streams[0])
        )  # fmt: skip
        self.fetched = self._fetched()
        together = self.undecided and setting.communicator is not None
        self.foreseen = foreseen(plan.program, self.arrays, device) if together else None
        self.bad = self.checks.bad if self.undecided and self.checks is not None else None
        self.targets: dict[str, Array] = {}
        self.pending: list[tuple[str, Array, Array | None]] | None = None
        # Last: binding itself moves values, which must not make the plan stale.
        self.layout = scope.layout

    # ------------------------------------------------------------------------------------------------------------- steps
    @timeline.part("bind operators and kernels")
    def _bind_steps(self) -> list[Bound]:
        """Binds each step to its arrays, in the plan's order."""
        plan, device = self._setting.plan, self._setting.device
        works: list[Bound] = []
        for number, step in enumerate(tracked("preparing operators", plan.steps, len(plan.steps), lambda s: s.op.type)):
            if step.how == "joined" or (step.how == "view" and bind_view(device, step.op, self.arrays)):
                self.blocks.bound(number, None)
                continue
            stream = self._stream_of(step.op, len(works))
            work, before = self._bind_step(number, step, stream)
            self.blocks.bound(number, work)
            works.append((step, work, stream, before))
        self.blocks.finish()
        return works

    def _bind_step(self, number: int, step: Step, stream: Stream) -> tuple[BoundStep, Before]:
        device, checks = self._setting.device, self.checks
        before: Before = [], [], []
        if step.op.definition.collective:
            return of_calls(self._collective(step, stream)), before
        if step.how == "dynamic":
            return self.sections.bind_step(number, stream), before
        generated = self._setting.plan.kernels.get(step.op.outputs) if step.how == "kernel" else None
        if generated is not None:
            add_shared(generated, self.arrays, device, None if checks is None else checks.bad)
            before = before_kernel(step, self.arrays, device, checks, stream)
            partials, copies = self._scratch.partials(generated, step), self._scratch.copies(generated, step)
            return generated_work(generated, self.arrays, device, stream, partials, copies), before
        ins, outs = [self.entry(e) for e in step.op.inputs], [self.entry(e) for e in step.op.outputs]
        if step.region == "main" and checks is not None:
            ins, before = checks.bind_op(step.op, ins, stream)
        scratch = self._scratch.of(step)
        if step.region == "update" and self.undecided and checks is not None and checks.bad is not None:
            return device.bind_unless(checks.bad, step.op, ins, outs, stream, scratch), before
        return device.bind(step.op, ins, outs, self._reserved(step.op), stream, scratch), before

    def entry(self, entry: Entry) -> Any:
        """Returns what stands in a slot: an array, a list of them, or ``None``."""
        if entry is None:
            return None
        if isinstance(entry, str):
            return self.arrays[entry]
        return [None if v == EMPTY else self.arrays[v] for v in entry]

    def _state(self, var: str, value: str) -> Array:
        plan = self._setting.plan
        array = self._setting.scope.array(var)
        if array is None:
            raise uninitialised(plan, var)
        if (meta := plan.storage[value].meta) is not None:
            dtype_check(var, meta.dtype, dtype_of(array.dtype))
        return array

    def _reserved(self, op: FrozenOp) -> dict[str, Any]:
        reserved: dict[str, Any] = {}
        if op.definition.random or op.sub_blocks or any(one.definition.random for one in op.body):
            # Filled in by each step: seed and run are not known here, and binding costs more than a step.
            key = RngKey(0, self._setting.place, op.position, 0, 0)
            self.keys.append(key)
            reserved["rng"] = key
            if op.sub_blocks:
                runner = BlockRunner(op, key)
                self.runners.append(runner)
                reserved["run_block"] = runner
        return reserved

    def _stream_of(self, op: FrozenOp, number: int) -> Stream:
        """Returns the stream of an op: collectives have one for each ring, the others take turns over the compute streams."""
        streams, device, communicator = self._setting.streams, self._setting.device, self._setting.communicator
        computing = streams[2 : 2 + device.compute_streams]
        if not op.definition.collective:
            return computing[number % len(computing)]
        if op.attrs.get("same_stream"):
            return computing[0]
        if communicator is None or not op.attrs.get("ring"):
            return streams[1]
        stream = communicator.of_ring(op.attrs["ring"]).stream
        if stream not in streams:
            streams.append(stream)  # what waits for the session, or drops its work, knows them by this list
        return stream

    # ------------------------------------------------------------------------------------------------------- collectives
    def _collective(self, step: Step, stream: Stream) -> list[Call]:
        """Returns the calls of a collective, which its op definition binds to the replica's communicator."""
        if step.how == "dynamic":
            return [(away, (self._run_collective, step.op))]
        op, device, communicator = step.op, self._setting.device, self._setting.communicator
        ins, outs = ([self.entry(e) for e in entries] for entries in (op.inputs, op.outputs))
        if communicator is not None:
            communicator = communicator.of_ring(op.attrs.get("ring", 0)).on(stream)
        calls = device.bind_collective(op, ins, outs, communicator)
        if op.attrs.get("waits"):
            calls = [*calls, (device.synchronize, ([stream],))]
        # A replica that waits for the others computes nothing, and another one may fork meanwhile.
        return [(away, (f, *args)) for f, args in calls]

    def _run_collective(self, op: FrozenOp) -> None:
        """Runs a collective whose inputs' sizes are known only when they have been computed."""
        device, storage = self._setting.device, self._setting.plan.storage
        assert self._setting.communicator is not None
        # The sizes of the inputs are there only when what makes them has run.
        device.synchronize(self._setting.streams)
        found = run_collective(op, [self.entry(e) for e in op.inputs], self._setting.communicator)
        # Noted before `store_entry` puts the results, which have other memory, in their place.
        settled = {v: self.arrays[v] for v in op.writes() if storage[v].kind == "arena"}
        for entry, out in zip(op.outputs, found, strict=True):
            store_entry(entry, out, self.arrays)
        for value, place in settled.items():
            device.copy(place, self.arrays[value])
            self.arrays[value] = place

    # ---------------------------------------------------------------------------------------------------------- schedule
    def _schedule(self, name: StepRegion, works: Sequence[Bound]) -> Schedule:
        """Returns the calls of a region."""
        setting, late = self._setting, self._setting.device.deferred
        searched = setting.check_numerics and name == "main"
        steps = [self._ready(bound, searched, late) for bound in works]
        behind: list[Call] = []
        if late:
            if name == "main" and self.undecided and setting.communicator is not None:
                steps, behind = decided(self.checks, works, steps, setting.communicator, setting.streams[0])
            steps = [*self._fences(name), *steps]
            if name == "main" or any(step.how == "dynamic" for step, *_ in works):
                behind += self.checks.finish(setting.streams[0]) if self.checks is not None and name == "main" else []
                # The host commits only what succeeded, and finds arrays of unknown sizes only when they have been computed.
                behind += [] if self.undecided else setting.waiting()
        return self._scheduled(steps, searched, behind)

    def _scheduled(self, steps: Sequence[ReadyStep], searched: bool = False, behind: Sequence[Call] = ()) -> Schedule:
        setting, options = self._setting, self._setting.plan.options
        region = Region(
            setting.threads, self.workspaces, setting.streams, self.arrays, options.no_chaining, searched, behind,
            options.graphs,
        )  # fmt: skip
        return setting.device.schedule(steps, region)

    def _whole(self, works: Sequence[Bound]) -> Schedule:
        """Returns the calls of both regions, between which the host does not wait."""
        setting = self._setting
        assert self.checks is not None
        main = [self._ready(one, False, True) for one in works if one[0].region == "main"]
        update = [self._ready(one, False, True) for one in works if one[0].region == "update"]
        # All that the update writes waits for the main region, and for its checks.
        told = ReadyStep(
            None, setting.streams[0], before=self.checks.finish(setting.streams[0]), reads=None, writes=None
        )
        return self._scheduled([self._feeds_are_there(), *main, told, *update])

    def _ready(self, bound: Bound, searched: bool, late: bool) -> ReadyStep:
        setting = self._setting
        step, work, stream, (before, reads, writes) = bound
        find = (check_finite, (setting.device, step.op, self.arrays, stream, setting.plan))
        if late:
            drawn = [setting.device.span(self.arrays[RNG])] if step.op.body and RNG in self.arrays else []
            reads, writes = [*reads, *drawn], [*writes, *self._scratch.spans(step)]
        split = setting.device.splits(step.op, step.how != "dynamic")
        if split and step.op.definition.collective and setting.communicator is not None:
            split = "" if setting.communicator.may_be_captured(step.op) else split
        return ReadyStep(step.op, stream, work, before, [find] if searched else [], reads, writes, split)

    def _fences(self, name: StepRegion) -> list[ReadyStep]:
        """Returns the points in a region's order that have no work of their own."""
        first = self._setting.streams[0]
        found = []
        if not any(one.calls for one in self.schedules.values()):
            found.append(self._feeds_are_there())
        if name == "update" and self.undecided:
            # The host does not wait in between: all that the update writes waits for the end of the main region.
            found.append(ReadyStep(None, first, reads=None, writes=None))
        return found

    def _fetched(self) -> StagedFetches | None:
        if not self.undecided:
            return None
        setting, arrays = self._setting, [self.arrays[v] for _, v in self._setting.plan.program.fetches]
        made = StagedFetches(setting.device, arrays, setting.streams[0])
        return made if made.fits else None

    def _feeds_are_there(self) -> ReadyStep:
        """Returns the point at which feeds, and what random numbers depend on, have been copied: their readers wait for it."""
        setting = self._setting
        read = (*setting.plan.program.feeds, RNG)
        spans = [setting.device.span(self.arrays[v]) for v in read if v in self.arrays]
        return ReadyStep(None, setting.streams[0], writes=spans)

    @property
    def beside_bytes(self) -> int:
        """Bytes of the device that are bound beside the arena: constants, and what checks keep."""
        constants = (self.arrays[v] for v, slot in self._setting.plan.storage.items() if slot.kind == "const")
        found: int = sum(array.nbytes for array in constants)
        return found + (0 if self.checks is None else self.checks.nbytes)

    def forget_graphs(self) -> None:
        """Destroys what was captured: no run will launch it again."""
        for schedule in (*self.schedules.values(), self.whole):
            if schedule is not None:
                schedule.free()

    def memories(self) -> Iterator[Memory | Workspace]:
        """Yields the memory that it is bound to, which other sessions may share."""
        yield self.arena
        yield from self.workspaces
        yield from self.sections.memories()

    @property
    def seen(self) -> Seen:
        """What runs showed of the memory beside the arena."""
        device, blocks = self._setting.device, self.blocks
        scratch = sum(one.held_bytes for one in self.workspaces) + device.library_bytes()
        pools = device.pool_bytes(self._setting.streams)
        return Seen(blocks.beside_bytes, blocks.seen_bytes, self.beside_bytes, scratch, pools)

    def free(self) -> None:
        """Frees memory of its own; nothing refers to the arena afterwards.

        Calls and their arrays hold the arena's memory on a device whose arrays count who uses them.
        """
        if self.staged is not None:
            self.staged.free()
        if self.staged_numbers is not None:
            self.staged_numbers.free()
        if self.fetched is not None:
            self.fetched.free()
        if self.checks is not None:
            self.checks.free()
        if self.foreseen is not None:
            self.foreseen.free()
        self.forget_graphs()
        self.arrays.clear()
        self.pending, self.targets, self.numbers, self.bad = None, {}, None, None
        self.schedules, self.whole = {"main": Schedule(), "update": Schedule()}, None
