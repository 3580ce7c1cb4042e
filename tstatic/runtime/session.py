"""Binds a plan to arrays, a scope and a device, and runs it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tstatic import flags
from tstatic.comm.group import Communicator, ReplicaStoppedError
from tstatic.devices import HOST, Array, Device, read, records
from tstatic.devices.base import Event, Memory, QueuedWorkError, Stream
from tstatic.devices.cpu import blas
from tstatic.devices.cpu import device as cpu
from tstatic.devices.cpu.pool import pool_of, usable_cpus
from tstatic.devices.cpu.tile_chain import chain_steps, find_failed_op
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.forks import away, computing
from tstatic.fusion.codegen.kernel import RNG
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY
from tstatic.ir.recording import Call
from tstatic.ir.rng import RngKey, kernel_numbers
from tstatic.ir.tensor_array import TensorArray
from tstatic.ir.types import dtype_of
from tstatic.plan.flat_buffers import state_buffers
from tstatic.plan.plan import Plan, Step
from tstatic.progress import tracked
from tstatic.runtime import random
from tstatic.runtime.arenas import Arenas, held_bytes
from tstatic.runtime.checks import (
    Before,
    Bound,
    LateChecks,
    StoppedBeforeError,
    before_kernel,
    late_checks,
    may_ask_words,
)
from tstatic.runtime.feed import StagedFeeds, uninitialised
from tstatic.runtime.finite import check_finite
from tstatic.runtime.flatten import flatten, move_values
from tstatic.runtime.generated import add_shared, bind_view, generated_work
from tstatic.runtime.interrupt import Writing, check_whole
from tstatic.runtime.out_of_memory import explained, of_op
from tstatic.runtime.queues import Queued, accesses, in_order, is_hosted
from tstatic.runtime.recorded import NOT_QUEUED, RecordedCalls
from tstatic.runtime.scope import Scope, dtype_check
from tstatic.runtime.scratch import Scratch
from tstatic.runtime.sections import Sections
from tstatic.runtime.storage import NO_BLOCKS, Blocks, place_values
from tstatic.runtime.sub_block import BlockRunner, annotate, run_collective, store_entry
from tstatic.where import show


class Session:
    """Binds a plan once, then replays it.

    Args:
        plan: The plan to run.
        scope: The scope of the persistable variables.
        device: The device that runs the plan.
        threads: Size of the thread pool; results do not depend on it.
        seed: The program's own ``random_seed``.
        uid: Identity of the program, for the run count.
        check_numerics: Raise on the first NaN or infinity.
        communicator: Runs this replica's collectives with the other replicas.
        place: Number of the replica; its random numbers depend on it.
        arenas: Memory that it shares with sessions that run when it does not; its own if ``None``.
    """

    def __init__(
        self, plan: Plan, scope: Scope, device: Device = HOST, threads: int = 1, seed: int = 0, uid: int = 0,
        check_numerics: bool = False, communicator: Communicator | None = None, place: int = 0,
        arenas: Arenas | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.scope = scope
        self.device = device
        self.threads = max(1, min(threads, usable_cpus()))
        self.seed = seed
        self.uid = uid
        self.check_numerics = check_numerics
        self.communicator = communicator
        self.place = place
        # One for copies, one for collectives, and the streams over which the other steps are spread.
        self.streams: list[Stream] = [
            device.stream(),
            device.stream() if communicator is None else communicator.stream,
            *(device.stream() for _ in range(device.compute_streams)),
        ]
        self._joins = [device.event() for _ in self.streams[1:]]
        self._began, self._ended = device.event(), device.event()
        self.arena: Memory | None = None
        self.workspaces: Sequence[cpu.Workspace] = ()
        self._arenas = Arenas(device) if arenas is None else arenas
        self._staged: StagedFeeds | None = None
        self.sections: Sections | None = None
        self.feed_sizes: Hashable = None
        self.on_growth: Callable[[Hashable, int], None] | None = None
        self.checks: LateChecks | None = None
        self.undecided = False
        self._at: tuple[Sequence[Any], Iterator[Any]] | None = None
        self.layout = -1
        self.runs = self.own_bytes = 0
        self.calls: dict[str, list[Call]] = {"main": [], "update": []}
        self._bound = False
        self.blocks = Blocks()
        self._flat_buffers = state_buffers(plan.program)
        # What the update region writes is fetched and committed after it, not before parameters change.
        self._late = {v for step in plan.steps if step.region == "update" for v in step.op.writes()}
        self._commits = [[(var, v) for var, v in plan.commits if (v in self._late) is late] for late in (False, True)]
        self.settings = device.settings(self.threads)
        self._uses_blas = not device.deferred and any(blas.is_used_by(step.op) for step in plan.steps)
        # A startup program (no feeds, writes state) usually runs once; its arena is not kept.
        self._transient = not plan.program.feeds and bool(plan.program.writes)
        # Marks what is written as torn until it is complete, so that an interrupted update is noticed by the next read.
        self._writing = Writing(scope, plan.program.writes, "a step")

    # ------------------------------------------------------------------------------------------------------------- bind
    @explained
    @records.spanning("compile", "bind the plan")
    def bind(self) -> None:
        """Allocates the arena and binds every step to its arrays.

        Raises:
            FeedError: If a persistable variable that the program reads has no value in the scope.
        """
        plan, device = self.plan, self.device
        self._bound = False
        if self.communicator is not None:
            self.communicator.free()
        move_values(self.scope, (*plan.program.reads, *plan.program.writes), device)  # which flat buffers are made of
        flatten(self.scope, self._flat_buffers, device)
        self.arena = self._arenas.take(self, plan.arena_bytes)
        self.arena.touch()
        self.arrays: dict[str, Any] = {}
        self.blocks = Blocks(plan)
        self.keys: list[RngKey] = []
        self.runners: list[BlockRunner] = []
        place_values(plan, self.arena, device, self._state, self.blocks, self.arrays)
        self._scratch = Scratch(plan, self.arena, device)
        self.sections = Sections(
            plan, device, self.arrays, self._reserved, self.threads, self.check_numerics, self, self._arenas
        )
        self.checks = late_checks(plan, device)
        self.undecided = not self.check_numerics and self.communicator is None and may_ask_words(plan, self.checks)
        works: list[Bound] = []
        for number, step in enumerate(tracked("preparing operators", plan.steps, len(plan.steps), lambda s: s.op.type)):
            before: Before = [], [], []
            if step.how == "joined" or (step.how == "view" and bind_view(device, step.op, self.arrays)):
                self.blocks.bound(number, None)
                continue
            stream = self._stream_of(step.op, len(works))
            if step.op.definition.collective:
                work = cpu.of_calls(self._collective(step))
            elif step.how == "dynamic":
                work = self.sections.bind(number, stream)
            else:
                generated = self.plan.kernels.get(step.op.outputs) if step.how == "kernel" else None
                if generated is not None:
                    add_shared(generated, self.arrays, device, None if self.checks is None else self.checks.bad)
                    before = before_kernel(step, self.arrays, device, self.checks, stream)
                    partials, copies = self._scratch.partials(generated, step), self._scratch.copies(generated, step)
                    work = generated_work(generated, self.arrays, device, stream, partials, copies)
                else:
                    ins = [self._entry(e) for e in step.op.inputs]
                    if step.region == "main" and self.checks is not None:
                        ins, before = self.checks.bind(step.op, ins, stream)
                    work = self._prepare(step, ins, stream, self._scratch.of(step))
            self.blocks.bound(number, work)
            works.append((step, work, stream, before))
        self.blocks.finish()
        self.own_bytes = sum(work.own_bytes for _, work, *_ in works)
        scratch = max((work.scratch_bytes for _, work, *_ in works), default=0)
        self.workspaces = self._arenas.workspaces(self.threads, scratch)
        self.calls = {"main": [], "update": []}
        self.op_of_call: dict[str, list[Any]] = {"main": [], "update": []}
        self._queued: dict[str, tuple[list[Queued], list[Call]]] = {}
        self._recorded = RecordedCalls(plan, device, self.threads, self.streams, self.place, self.arrays)
        for region, group in itertools.groupby(works, key=lambda bound: bound[0].region):
            check = self.check_numerics and region == "main"
            (self._queue_region if device.deferred else self._chain_region)(region, list(group), check)
        self._feeds = [(name, self.arrays[name]) for name in plan.program.feeds if name in self.arrays]
        # Those whose first size each run decides.
        self._open_feeds = [name for name in plan.program.feeds if name not in self.arrays]
        self._numbers = self.arrays.get(RNG)
        self._staged = StagedFeeds(device, self._feeds) if device.deferred else None
        self.layout, self._bound = self.scope.layout, True

    def _chain_region(self, region: str, works: Sequence[Bound], check: bool) -> None:
        """Adds the calls of a region on a device whose calls return when their work is done."""
        pool = pool_of(self.threads)
        steps = []
        for step, work, _, (before, *_) in works:
            steps += [(cpu.of_calls(before), step.op)] if before else []
            steps.append((work, step.op))
        for chain in chain_steps(steps, self.threads, no_chaining=check or self.plan.options.no_chaining):
            calls, op_of_call = chain.bind(self.workspaces, pool)
            if check:
                op = chain.works[0][1]
                calls.append((check_finite, (self.device, op, self.arrays, self.streams[0], self.plan)))
                op_of_call.append(op)
            self.calls[region] += calls
            self.op_of_call[region] += op_of_call

    def _queue_region(self, region: str, works: Sequence[Bound], check: bool) -> None:
        """Adds the calls of a region that put its work into streams; at their end, the first stream waits for the others."""
        device = self.device
        queued = [] if any(self.calls.values()) else [self._after_feeds()]
        if region == "update" and self.undecided:
            # The host does not wait in between: all that the update writes waits for the end of the main region.
            queued.append(Queued(None, self.streams[0], [], None, None))
        for step, work, stream, (before, read_too, written_too) in works:
            calls = [*before, *(call for tile in work.bind(self.workspaces[0]) for call in tile), *work.after]
            if check:
                calls.append((check_finite, (device, step.op, self.arrays, stream, self.plan)))
            reads, writes = accesses(device, step.op, self.arrays, self.plan.options.no_chaining)
            if reads is not None and writes is not None:
                reads, writes = [*reads, *read_too], [*writes, *written_too, *self._scratch.spans(step)]
            queued.append(Queued(step.op, stream, calls, reads, writes))
        ordered = in_order(device, queued)
        joined = [
            call
            for event, stream in zip(self._joins, self.streams[1:], strict=True)
            for call in self._join(event, stream)
        ]
        # Errors of queued work carry their own op; those of calls that are not part of a graph have the op of the step.
        for hosted, group in itertools.groupby(
            zip(queued, ordered, strict=True), key=lambda one: check or is_hosted(one[0])
        ):
            steps = list(group)
            calls = [call for _, calls in steps for call in calls]
            op_of_call = [step.op for step, calls in steps for _ in calls]
            if not hosted:
                calls, op_of_call = [(device.replay, (device.capture(calls, self.streams),))], [steps[-1][0].op]
            self.calls[region] += calls
            self.op_of_call[region] += op_of_call
        if region == "main" or any(step.how == "dynamic" for step, *_ in works):
            joined += self.checks.finish(self.streams[0]) if self.checks is not None and region == "main" else []
            # The host commits only what succeeded, and finds arrays of unknown sizes only when they have been computed.
            joined += [] if self.undecided else self._waiting()
        self.calls[region] += joined
        self.op_of_call[region] += [works[-1][0].op] * len(joined)
        self._queued[region] = queued, joined

    def _waiting(self) -> list[Call]:
        """Returns calls that wait for the first stream, and so for what it waits for."""
        first = self.streams[0]
        return [(self.device.record, (self._ended, first)), (self.device.synchronize, ([first],))]

    @property
    def device_seconds(self) -> float | None:
        """The time of the last run between the first and the last event on the device; ``None`` if calls wait for their work."""
        return self.device.elapsed(self._began, self._ended) if self.device.deferred else None

    def _join(self, event: Event, stream: Stream) -> list[Call]:
        """Returns calls that make the first stream wait for the work in another one."""
        return [(self.device.record, (event, stream)), (self.device.wait, (event, self.streams[0]))]

    def _collective(self, step: Step) -> list[Call]:
        """Returns the calls of a collective, which its op definition binds to the replica's communicator."""
        if step.how == "dynamic":
            return [(away, (self._run_collective, step.op))]
        op = step.op
        ins, outs = ([self._entry(e) for e in entries] for entries in (op.inputs, op.outputs))
        # A replica that waits for the others computes nothing, and another one may fork meanwhile.
        return [(away, (f, *args)) for f, args in self.device.bind_collective(op, ins, outs, self.communicator)]

    def _run_collective(self, op: FrozenOp) -> None:
        """Runs a collective whose inputs' sizes are known only when they have been computed."""
        assert self.communicator is not None
        self.device.synchronize(self.streams)
        found = run_collective(op, [self._entry(e) for e in op.inputs], self.communicator)
        settled = {v: self.arrays[v] for v in op.writes() if self.plan.storage[v].kind == "arena"}
        for entry, out in zip(op.outputs, found, strict=True):
            store_entry(entry, out, self.arrays)
        for value, place in settled.items():
            self.device.copy(place, self.arrays[value])
            self.arrays[value] = place

    def _stream_of(self, op: FrozenOp, number: int) -> Stream:
        """Returns the stream of an op: collectives have one of their own, the others take turns over the compute streams."""
        return self.streams[1] if op.definition.collective else self.streams[2 + number % (len(self.streams) - 2)]

    def _after_feeds(self) -> Queued:
        """Returns a step that represents the copies of feeds and of what random numbers depend on: their readers wait for it."""
        feeds = [self.device.span(self.arrays[v]) for v in (*self.plan.program.feeds, RNG) if v in self.arrays]
        return Queued(None, self.streams[0], [], [], feeds)

    def _state(self, var: str, value: str) -> Array:
        array = self.scope.array(var)
        if array is None:
            raise uninitialised(self.plan, var)
        if (meta := self.plan.storage[value].meta) is not None:
            dtype_check(var, meta.dtype, dtype_of(array.dtype))
        return array

    def _entry(self, entry: Entry) -> Any:
        if entry is None:
            return None
        if isinstance(entry, str):
            return self.arrays[entry]
        return [None if v == EMPTY else self.arrays[v] for v in entry]

    def _reserved(self, op: FrozenOp) -> dict[str, Any]:
        reserved: dict[str, Any] = {}
        if op.definition.random or op.sub_blocks or any(one.definition.random for one in op.body):
            # Filled in by each step: seed and run are not known here, and binding costs more than a step.
            key = RngKey(0, self.place, op.position, 0, 0)
            self.keys.append(key)
            reserved["rng"] = key
            if op.sub_blocks:
                runner = BlockRunner(op, key)
                self.runners.append(runner)
                reserved["run_block"] = runner
        return reserved

    def _prepare(self, step: Step, ins: list[Any], stream: Stream, scratch: Array | None) -> Any:
        op = step.op
        outs = [self._entry(e) for e in op.outputs]
        if step.region == "update" and self.undecided:
            assert self.checks is not None
            return self.device.bind_unless(self.checks.bad, op, ins, outs, stream, scratch)
        return self.device.bind(op, ins, outs, self._reserved(op), stream, scratch)

    # -------------------------------------------------------------------------------------------------------------- run
    def stale(self) -> bool:
        """Returns whether the plan is not bound, or the scope's storage changed since."""
        return not self._bound or self.layout != self.scope.layout

    def run(self, feeds: Mapping[str, np.ndarray[Any, Any]], iterations: int = 1) -> list[np.ndarray[Any, Any]]:
        """Runs the plan ``iterations`` times on one feed, returns copies of fetched values; an error undoes its iteration alone."""
        if self.stale():
            self.bind()
        with self.settings():
            return self.replay(feeds, iterations)

    @explained
    def replay(self, feeds: Mapping[str, np.ndarray[Any, Any]], iterations: int) -> list[np.ndarray[Any, Any]]:
        """Runs as :meth:`run` does, for a caller that has bound the plan and is in the block of ``settings``."""
        results: list[np.ndarray[Any, Any]] = []
        assert self.arena is not None
        check_whole(self.scope, self.plan.program.reads, "this run")
        self.arena.touch()
        for workspace in self.workspaces:
            workspace.touch()
        device = self.device
        if device.deferred:
            self._arenas.enter(self)
            device.discard(self.streams)
            device.record(self._began, self.streams[0])
        if flags.memory_is_filled or flags.filling.get() is not None:
            self._arenas.fill(self.arena, self.plan.arena_bytes, flags.fill_byte() or 0, self.streams)
        sent = False
        if self._uses_blas:
            blas.hold()
        with computing(), np.errstate(all="ignore"), self.blocks.during() if self.blocks.all else NO_BLOCKS:
            for i in range(iterations):
                if not sent and self._staged is not None:
                    self._staged.send(feeds, self.streams[0])
                elif not sent:
                    for name, slot in self._feeds:
                        device.from_host(slot, feeds[name])
                if not sent:
                    for name in self._open_feeds:
                        self.arrays[name] = device.upload(feeds[name].copy())
                sent = True
                results = self._step(last=i == iterations - 1)
                if i < iterations - 1 and self.stale():
                    # A state variable got new storage (a first value, or another size).
                    self.bind()
                    sent = False
        self.runs += 1
        self._arenas.unfinished = None
        if self._recorded.recorder is not None:
            self._recorded.end_run(self._began, self._ended)
        if self._transient:
            self.drop()
        return results

    def _step(self, last: bool) -> list[np.ndarray[Any, Any]]:
        epoch = random.epoch()
        begun, count = self.scope.runs.get(self.uid, (epoch, 0))
        # `paddle.seed` restarts the count of programs without a seed of their own: they draw the same numbers again.
        if begun != epoch and not self.seed:
            count = 0
        if self.keys or self._numbers is not None:
            seed = random.current(self.seed)
            for key in self.keys:
                key.seed, key.run = seed, count
            if self._numbers is not None:
                # Kernels read them from memory, so that launches are the same in every step.
                self.device.from_host(self._numbers, kernel_numbers(seed, count, self.place), self.streams[0])
        for runner in self.runners:
            runner.restart()
        self._execute("main")
        if self.undecided:
            return self._update_undecided(epoch, count, last)
        if self.checks is not None and (bad := self.checks.error(count)) is not None:
            raise bad
        fetched: list[Any] = []
        late: list[tuple[int, str]] = []
        if last:
            for i, (_, value) in enumerate(self.plan.program.fetches):
                if self.plan.storage[value].kind == "state" or value in self._late:
                    late.append((i, value))
                    # Allocated now: an allocation that fails must do so before state is written.
                    fetched.append(np.empty(self.arrays[value].shape, self.arrays[value].dtype))
                else:
                    fetched.append(self._to_host(self.arrays[value]))
        early, late_commits = self._commits
        # New storage is allocated before the point of no return, too (docs/design/0002).
        pending = self._pending(early) if early else []
        if self.communicator is not None:
            # All replicas of all processes pass, or none writes state: after it, only updates and copies are left.
            away(self.communicator.commit)
        if self.calls["update"] or pending:
            with self._writing:
                if self.communicator is None:
                    self.scope.bump_version()
                self._execute("update")
                self._commit([*pending, *self._pending(late_commits)] if late_commits else pending)
                self.scope.runs[self.uid] = (epoch, count + 1)
        else:
            self.scope.runs[self.uid] = (epoch, count + 1)
        for i, value in late:
            array = self.arrays[value]
            np.copyto(fetched[i], self.device.to_host(array, self.streams[0]) if self.device.deferred else read(array))
        return fetched

    def _update_undecided(self, epoch: int, count: int, last: bool) -> list[np.ndarray[Any, Any]]:
        """Queues the update behind the main region, and learns with the results whether it changed anything."""
        values = [value for _, value in self.plan.program.fetches] if last else []
        # Before state is written, as all that may fail.
        fetched = [np.empty(self.arrays[value].shape, self.arrays[value].dtype) for value in values]
        pending = self._pending(self.plan.commits)
        with self._writing:
            self.scope.bump_version()
            failed: BaseException | None = None
            try:
                self._execute("update")
                failed = self._commit(pending, count)
            except StoppedBeforeError as stopped:
                failed = stopped.error
            if failed is None:
                self.scope.runs[self.uid] = (epoch, count + 1)
        if failed is not None:
            raise failed
        for array, value in zip(fetched, values, strict=True):
            np.copyto(array, self.device.to_host(self.arrays[value], self.streams[0]))
        return fetched

    def _to_host(self, value: Any) -> Any:
        """Returns a fetched value: a copy of an array, or a list of copies of a tensor array's elements."""
        if isinstance(value, TensorArray):
            # Ops with objects run on the host's arrays, and are done: such plans wait before they fetch.
            return [np.array(read(one)) for one in value]
        return self.device.to_host(value, self.streams[0])

    def _execute(self, region: str) -> None:
        calls, op_of_call = self.calls[region], self.op_of_call[region]
        if records.recorder is not None:
            queued = self._queued.get(region, NOT_QUEUED)
            calls, op_of_call = self._recorded.region(records.recorder, region, calls, op_of_call, queued)
        # The iterator's remaining length tells which call failed: a counter would cost an instruction of Python per call.
        running = iter(calls)
        self._at = op_of_call, running
        try:
            for function, args in running:
                function(*args)
            return
        except Exception as raised:
            index = len(calls) - operator.length_hint(running) - 1
            error, op = find_failed_op(raised, op_of_call[index])
        self._raise(region, error, op)  # outside the except block, so that the error keeps its own cause and context

    def _raise(self, region: str, error: BaseException, op: FrozenOp) -> NoReturn:
        """Raises the error of a call, or of the queued work for which it waited, with its op."""
        self.device.discard(self.streams)
        self._recorded.drop()
        if isinstance(error, QueuedWorkError):
            if error.stream is not None and error.stream not in self.streams:
                raise ReplicaStoppedError("this replica stopped because another one failed") from error
            op = error.op or op
            error = error.__cause__ or error
        error = of_op(error, op)
        annotate(error, op)
        early = any(step.op is op for step in self.plan.steps if step.region == "main")
        if region == "update" and self.undecided and early:
            raise StoppedBeforeError(error)
        if region == "update":
            kind, text = self.device.describe(error)
            raise DeviceError(
                "a step failed while it wrote parameters",
                expected="an update that cannot fail", received=f"{kind}: {text}",
                fix="load the last good checkpoint before going on", op=op.type, where=show(op.where),
            ) from error  # fmt: skip
        raise error

    def current_op(self) -> str:
        """Returns the op that is running now, with the user's line; empty between runs."""
        late = self.device.running(self.streams)
        if late is not None:
            return f"in operator '{late.type}' at {show(late.where)}"
        op_of_call, running = (self.sections and self.sections.at) or self._at or ((), iter(()))
        index = len(op_of_call) - operator.length_hint(running) - 1
        if not 0 <= index < len(op_of_call) or not self._bound:
            return ""
        owner = op_of_call[index]
        ops = [owner] if isinstance(owner, FrozenOp) else [op for ends in owner for _, op in ends]
        return " or ".join(dict.fromkeys(f"in operator '{op.type}' at {show(op.where)}" for op in ops[:3]))

    def is_computing(self) -> bool:
        """Returns whether the device runs queued work of this session now; ``False`` if the device cannot tell."""
        return self.device.running(self.streams) is not None

    def _pending(self, commits: Sequence[tuple[str, str]]) -> list[tuple[str, Array, Array | None]]:
        """Returns what the commit copies: (variable, value, new storage if the old one does not fit).

        Args:
            commits: (variable, value) pairs whose values are made in the main region, or those of the update region.
        """
        done = []
        for var, value in commits:
            source = self.arrays[value]
            old = self.scope.array(var)
            fits = old is not None and old.shape == source.shape and old.dtype == source.dtype
            done.append((var, source, None if fits else self.device.empty(source.shape, source.dtype)))
        return done

    def _commit(self, pending: Sequence[tuple[str, Array, Array | None]], runs: int = 0) -> IndexRangeError | None:
        """Copies values to their variables, after the updates; new storage is published once the device has written it.

        Args:
            pending: What :meth:`_pending` said.
            runs: How many runs came before, where the update was queued before the host knew of its checks.

        Returns:
            The error that a check found; then no variable was changed.
        """
        device, stream, asked = self.device, self.streams[0], self.checks if self.undecided else None
        for var, source, fresh in pending:
            target = self.scope.array(var) if fresh is None else fresh
            assert target is not None
            if asked is not None and fresh is None:
                device.copy_unless(asked.bad, target, source, stream)
            else:
                device.copy(target, source, stream)
        if device.deferred:
            try:
                for function, args in self._waiting():
                    function(*args)
            except QueuedWorkError as raised:
                self._raise("update", raised, self.plan.steps[-1].op)
        found = asked.error(runs) if asked is not None else None
        for var, _, fresh in pending if found is None else ():
            if fresh is not None:
                self.scope.publish(var, fresh)
        return found

    def release(self) -> None:
        """Gives the memory of temporaries back to the system; the plan stays bound if the system allows it."""
        if self._bound and self.arena is not None and not self.arena.can_release:
            self.drop()
        for memory in self.memories():
            memory.release()

    def drop(self) -> None:
        """Frees the arena and everything bound to it; the next run binds anew."""
        self._bound = False
        if self.sections is not None:
            self.sections.forget()
        self._arenas.leave(self)
        if self._staged is not None:
            self._staged.free()
        if self.communicator is not None:
            self.communicator.free()
        if self.checks is not None:
            self.checks.free()
        self.checks = self.arena = self._staged = self.sections = self._at = self._numbers = None
        # Calls and their arrays hold the arena's memory on a device whose arrays count who uses them.
        self.arrays, self._queued, self.calls = {}, {}, {"main": [], "update": []}
        self._recorded = RecordedCalls(self.plan, self.device, self.threads, self.streams, self.place, {})
        self.workspaces, self._feeds, self.keys, self.runners, self.blocks = (), [], [], [], Blocks()

    def memories(self) -> Iterator[Memory | cpu.Workspace]:
        """Yields the memory that it is bound to, which it may share with other sessions."""
        if self._bound and self.arena is not None and self.sections is not None:
            yield self.arena
            yield from self.workspaces
            yield from self.sections.memories()

    @property
    def held_bytes(self) -> int:
        """Bytes of arena and scratch memory that are allocated now, shared ones included."""
        return held_bytes([self])
