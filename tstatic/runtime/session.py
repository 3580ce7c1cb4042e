"""A plan bound to arrays, a scope and a device, and one step of it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator
from tstatic.devices import blas, cpu, null
from tstatic.devices.buffer import Buffer
from tstatic.devices.pool import Call, pool_of, usable_cpus
from tstatic.devices.tile_chain import chain_steps, find_failed_op
from tstatic.errors import DeviceError, NumericsError
from tstatic.ir.evaluate import metas_of
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY
from tstatic.ir.rng import RngKey
from tstatic.ir.types import dtype_of
from tstatic.ir.where import show
from tstatic.plan.plan import Plan, Step
from tstatic.plan.streams import state_streams
from tstatic.runtime import random
from tstatic.runtime.feed import uninitialised
from tstatic.runtime.flat import flatten
from tstatic.runtime.generated import generated_work
from tstatic.runtime.interrupt import Writing, check_whole
from tstatic.runtime.scope import Scope, dtype_check
from tstatic.runtime.sub_block import BlockRunner, annotate, run_op

DEVICES: dict[str, Callable[..., cpu.BoundStep]] = {"cpu": cpu.prepare, "null": null.prepare}


class Session:
    """Binds a plan once, then replays it.

    Args:
        plan: What to run.
        scope: Where persistable variables live.
        device: ``"cpu"`` or ``"null"``.
        threads: Size of the thread pool; results do not depend on it.
        seed: The program's own ``random_seed``.
        uid: Identity of the program, for the run count.
        check_numerics: Raise on the first NaN or infinity.
        member: This replica's place among those that run together, whose collectives it takes part in.
        place: Number of the replica, which its random numbers depend on.
    """

    def __init__(
        self,
        plan: Plan,
        scope: Scope,
        device: str = "cpu",
        threads: int = 1,
        seed: int = 0,
        uid: int = 0,
        check_numerics: bool = False,
        communicator: Communicator | None = None,
        place: int = 0,
    ) -> None:
        self.plan = plan
        self.scope = scope
        self.device = device
        self.threads = max(1, min(threads, usable_cpus()))
        self.seed = seed
        self.uid = uid
        self.check_numerics = check_numerics
        self.communicator = communicator
        self.place = place
        self._at: tuple[str, Iterator[Any]] | None = None
        self.layout = -1
        self.runs = 0
        self._bound = False
        self._streams = state_streams(plan.program)
        self._late = {v for step in plan.steps if step.region == "update" for v in step.op.writes()}
        self._commits = [[(var, v) for var, v in plan.commits if (v in self._late) is late] for late in (False, True)]
        self._blas = any(
            step.op.definition.cost is not None or step.op.definition.amp == "white" for step in plan.steps
        )
        # A program without feeds that leaves nothing but state (a startup program) runs once; its arena is not kept.
        self._transient = not plan.program.feeds and bool(plan.program.writes)
        self._writing = Writing(scope, plan.program.writes, "a step")

    # ------------------------------------------------------------------------------------------------------------- bind
    def bind(self) -> None:
        """Allocates the arena and turns every step into ready calls.

        Raises:
            FeedError: If a persistable variable that the program reads has no value in the scope.
        """
        plan = self.plan
        self._bound = False
        flatten(self.scope, self._streams)
        self.arena: Buffer | None = Buffer(plan.arena_bytes, "an arena of temporaries")
        self.arena.touch()
        self.arrays: dict[str, Any] = {}
        self.keys: list[RngKey] = []
        self.runners: list[BlockRunner] = []
        # One object per place: numpy is slower when input and output are two views of the same bytes.
        views: dict[Any, np.ndarray[Any, Any]] = {}
        for value, slot in plan.storage.items():
            if slot.kind in ("arena", "feed"):
                assert slot.meta is not None
                place = (slot.offset, slot.meta)
                if place not in views:
                    views[place] = self._view(slot.offset, slot.meta)
                self.arrays[value] = views[place]
            elif slot.kind == "const":
                self.arrays[value] = plan.program.constants[value]
            elif slot.kind == "state":
                self.arrays[value] = self._state(slot.of, value)
            elif slot.kind == "object":
                self.arrays[value] = []
        workspaces = [cpu.Workspace() for _ in range(self.threads)]
        works: list[tuple[Step, cpu.BoundStep]] = []
        for step in plan.steps:
            if step.how == "view":
                self._bind_view(step.op)
                continue
            if step.how == "dynamic":
                work = self._dynamic(step.op)
            else:
                generated = self.plan.kernels.get(step.op.outputs) if step.how == "kernel" else None
                work = generated_work(generated, self.arrays) if generated is not None else self._prepare(step.op)
            for workspace in workspaces:
                workspace.reserve(work.scratch_bytes)
            works.append((step, work))
        for workspace in workspaces:
            workspace.allocate()
        self.workspaces = workspaces
        self.calls: dict[str, list[Call]] = {"main": [], "update": []}
        self.op_of_call: dict[str, list[Any]] = {"main": [], "update": []}
        pool = pool_of(self.threads)
        for region, group in itertools.groupby(works, key=lambda pair: pair[0].region):
            check = self.check_numerics and region == "main"
            for chain in chain_steps(
                ((work, step.op) for step, work in group), self.threads, apart=check or plan.options.apart
            ):
                calls, op_of_call = chain.bind(workspaces, pool)
                if check:
                    op = chain.works[0][1]
                    calls.append((self._check, (op,)))
                    op_of_call.append(op)
                self.calls[region] += calls
                self.op_of_call[region] += op_of_call
        self._feeds = [(name, self.arrays[name]) for name in plan.program.feeds]
        self.layout = self.scope.layout
        self._bound = True

    def _view(self, offset: int, meta: Any) -> np.ndarray[Any, Any]:
        assert self.arena is not None
        view: np.ndarray[Any, Any] = (
            self.arena.array[offset : offset + meta.nbytes].view(meta.dtype.np).reshape(meta.shape)
        )
        return view

    def _state(self, var: str, value: str) -> np.ndarray[Any, Any]:
        array = self.scope.array(var)
        if array is None:
            raise uninitialised(self.plan, var)
        meta = self.plan.storage[value].meta
        if meta is not None:
            dtype_check(var, meta.dtype, dtype_of(array.dtype))
        return array

    def _bind_view(self, op: FrozenOp) -> None:
        source, result = op.inputs[0], op.outputs[0]
        assert isinstance(source, str)
        assert isinstance(result, str)
        assert op.definition.view is not None
        self.arrays[result] = op.definition.view(
            self.arrays[source], **op.definition.pick(op.definition.view, op.attrs)
        )

    def _entry(self, entry: Entry) -> Any:
        if entry is None:
            return None
        if isinstance(entry, str):
            return self.arrays[entry]
        return [None if v == EMPTY else self.arrays[v] for v in entry]

    def _reserved(self, op: FrozenOp) -> dict[str, Any]:
        reserved: dict[str, Any] = {}
        if op.definition.random or op.sub_blocks:
            key = RngKey(0, self.place, op.position, 0, 0)
            self.keys.append(key)
            reserved["rng"] = key
            if op.sub_blocks:
                runner = BlockRunner(op, key)
                self.runners.append(runner)
                reserved["run_block"] = runner
        if op.definition.collective:
            reserved["group"] = self.communicator
        return reserved

    def _prepare(self, op: FrozenOp) -> cpu.BoundStep:
        ins = [self._entry(e) for e in op.inputs]
        outs = [self._entry(e) for e in op.outputs]
        return DEVICES[self.device](op.definition, ins, outs, op.attrs, metas_of, self._reserved(op))

    def _dynamic(self, op: FrozenOp) -> cpu.BoundStep:
        """An op whose result's size is known when it is there: its arrays are made and found by name as it runs."""
        work = cpu.BoundStep()
        work.spans = None
        call: Call = run_op, (op, self.arrays, self._reserved(op))
        work.add(lambda arrays: [call])
        return work

    def _check(self, op: FrozenOp) -> None:
        for value in op.writes():
            array = self.arrays.get(value)
            if isinstance(array, np.ndarray) and dtype_of(array.dtype).is_float:
                finite = np.isfinite(array)
                if not finite.all():
                    bad = int(array.size - np.count_nonzero(finite))
                    raise NumericsError(
                        f"'{value}' holds {bad} NaN or infinite values",
                        expected="finite values (FLAGS_check_nan_inf is on)",
                        received=f"{bad} of {array.size} elements are not finite",
                        fix="look at the inputs of this operator; lower the learning rate or clip gradients",
                        op=op.type,
                        var=value,
                        where=show(op.where),
                    )

    # -------------------------------------------------------------------------------------------------------------- run
    def stale(self) -> bool:
        """Whether the scope's storage changed since binding."""
        return not self._bound or self.layout != self.scope.layout

    def run(self, feeds: Mapping[str, np.ndarray[Any, Any]], iterations: int = 1) -> list[np.ndarray[Any, Any]]:
        """Runs the plan ``iterations`` times on one feed and returns copies of the fetched values.

        An error leaves the scope as it was before the iteration in which it happened.
        """
        if self.stale():
            self.bind()
        if self._blas:
            with blas.OneThread():
                return self.replay(feeds, iterations)
        return self.replay(feeds, iterations)

    def replay(self, feeds: Mapping[str, np.ndarray[Any, Any]], iterations: int) -> list[np.ndarray[Any, Any]]:
        """As :meth:`run`, for a caller who has bound it and limits BLAS."""
        results: list[np.ndarray[Any, Any]] = []
        assert self.arena is not None
        check_whole(self.scope, self.plan.program.reads, "this run")
        self.arena.touch()
        for workspace in self.workspaces:
            workspace.touch()
        with np.errstate(all="ignore"):
            for name, slot in self._feeds:
                np.copyto(slot, feeds[name])
            for i in range(iterations):
                results = self._step(last=i == iterations - 1)
                if i < iterations - 1 and self.stale():
                    # A state variable got new storage (a first value, or another size).
                    self.bind()
                    for name, slot in self._feeds:
                        np.copyto(slot, feeds[name])
        self.runs += 1
        if self._transient:
            self.drop()
        return results

    def _step(self, last: bool) -> list[np.ndarray[Any, Any]]:
        count = self._run_count()
        if self.keys:
            seed = random.current(self.seed)
            for key in self.keys:
                key.seed = seed
                key.run = count
        for runner in self.runners:
            runner.restart()
        self._execute("main")
        fetched: list[Any] = []
        late: list[tuple[int, str]] = []
        if last:
            for i, (_, value) in enumerate(self.plan.program.fetches):
                if self.plan.storage[value].kind == "state" or value in self._late:
                    late.append((i, value))
                    fetched.append(np.empty_like(self.arrays[value]))
                else:
                    fetched.append(np.array(self.arrays[value]))
        pending = self._pending(late=False)
        if self.communicator is not None:
            self.communicator.commit()
        if self.calls["update"] or pending:
            with self._writing:
                if self.communicator is None:
                    self.scope.touched()
                self._execute("update")
                self._commit([*pending, *self._pending(late=True)])
                self.scope.runs[self.uid] = (random.epoch(), count + 1)
        else:
            self.scope.runs[self.uid] = (random.epoch(), count + 1)
        for i, value in late:
            np.copyto(fetched[i], self.arrays[value])
        return fetched

    def _run_count(self) -> int:
        epoch, count = self.scope.runs.get(self.uid, (random.epoch(), 0))
        return count if epoch == random.epoch() or self.seed else 0

    def _execute(self, region: str) -> None:
        calls = self.calls[region]
        running = iter(calls)
        self._at = region, running
        try:
            for function, args in running:
                function(*args)
            return
        except Exception as raised:
            index = len(calls) - operator.length_hint(running) - 1
            error, op = find_failed_op(raised, self.op_of_call[region][index])
        # Outside the handler, so that the error keeps its own cause and context.
        annotate(error, op)
        if region == "update":
            raise DeviceError(
                "a step failed while it wrote parameters",
                expected="an update that cannot fail",
                received=f"{type(error).__name__}: {error}",
                fix="load the last good checkpoint before going on",
                op=op.type,
                where=show(op.where),
            ) from error
        raise error

    def current_op(self) -> str:
        """The op that is running now, with the user's line; empty between runs."""
        region, running = self._at or ("main", iter(()))
        op_of_call = self.op_of_call[region] if self._bound else []
        index = len(op_of_call) - operator.length_hint(running) - 1
        if not 0 <= index < len(op_of_call) or self._at is None:
            return ""
        owner = op_of_call[index]
        ops = [owner] if isinstance(owner, FrozenOp) else [op for ends in owner for _, op in ends]
        return " or ".join(dict.fromkeys(f"in operator '{op.type}' at {show(op.where)}" for op in ops[:3]))

    def _pending(self, late: bool) -> list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]:
        """What the commit copies: (variable, value, new storage if the old one does not fit).

        Args:
            late: Values that the update region makes, which are not there before; else the others.
        """
        done = []
        for var, value in self._commits[late]:
            source = self.arrays[value]
            old = self.scope.array(var)
            fits = old is not None and old.shape == source.shape and old.dtype == source.dtype
            done.append((var, source, None if fits else np.empty(source.shape, source.dtype)))
        return done

    def _commit(self, pending: Sequence[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]) -> None:
        for var, source, fresh in pending:
            if fresh is None:
                target = self.scope.array(var)
                assert target is not None
                np.copyto(target, source)
            else:
                np.copyto(fresh, source)
                self.scope.publish(var, fresh)

    def release(self) -> None:
        """Gives the memory of temporaries back to the system; what is bound stays bound where the system allows it."""
        if not self._bound or self.arena is None:
            return
        if not self.arena.can_release:
            self.drop()
            return
        self.arena.release()
        for workspace in self.workspaces:
            workspace.release()

    def drop(self) -> None:
        """Frees the arena and everything bound to it; the next run binds anew."""
        self._bound = False
        if self.arena is not None:
            self.arena.forget()
        self.arena = None
        self.arrays = {}
        self.calls = {"main": [], "update": []}
        self.workspaces = []
        self._feeds = []
        self.keys = []
        self.runners = []

    @property
    def held_bytes(self) -> int:
        """Bytes of arena and scratch that are allocated now."""
        if not self._bound or self.arena is None:
            return 0
        return self.arena.held_bytes + sum(w.held_bytes for w in self.workspaces)
