"""Checks of positions while a plan runs, where a device or a kernel cannot raise.

On a device whose work runs late, positions are checked in front of the op, and the host is told together with the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator
from tstatic.devices import Array, Device
from tstatic.devices.base import ALIGNED, Memory
from tstatic.devices.step import BoundStep, HostArray, ReadyStep, Stream
from tstatic.errors import FeedError, IndexRangeError
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.indices import Limits, limited
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta, bool_, dtype_of, int64
from tstatic.plan.plan import Plan, Step
from tstatic.runtime.sub_block import annotate, fetch_entry, store_entry

Spans = list[tuple[int, int]]

Before = tuple[list[Call], Spans, Spans]
"""Calls in front of a step, and the memory that they, and the step with them, read and write besides the step's own."""


Bound = tuple[Step, BoundStep, Stream, Before]
"""A step and its work, the stream of the work, and what comes before it."""


class StoppedBeforeError(Exception):
    """Raised if work that was queued behind an update's decision failed before the update: no state was written.

    Attributes:
        error: The error of that work.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@dataclass(slots=True)
class _Check:
    """One check: what is asked of a value before the first op that reads it as positions.

    Attributes:
        op: That op.
        limits: What the values must stay within.
        source: The values.
        kept: The values as they were given: the source itself, if no step overwrites it.
        safe: The values that the ops read.
        wrong: One word: the number of bad values.
        copied: Whether ``kept`` is memory of its own.
    """

    op: FrozenOp
    limits: Limits
    source: Array
    kept: Array
    safe: Array
    wrong: Array
    copied: bool


class LateChecks:
    """The checks of a plan, and one word of device memory for each.

    A check writes its word anew in every run, so the words need no order among themselves; the host reads all in one copy
    and tells the first bad one in the program's order, as a device that stops at it would.

    Args:
        device: A device whose work runs late.
        ops: The plan's ops that may need a check.
        lasting: Values that no later step overwrites: they need no copy for the message.

    Attributes:
        bad: A truth value in device memory: whether some position of this run is bad; updates ask it. ``None`` where nothing
            is a position.
        told: The same on the host, behind :meth:`deciding`: whether a position of any replica is bad.
    """

    def __init__(self, device: Device, ops: Sequence[FrozenOp], lasting: Sequence[str]) -> None:
        self._device = device
        self.told: HostArray | None = None
        self._lasting = frozenset(lasting)
        self._checks: dict[tuple[str, Limits], _Check] = {}
        self._memory: list[Memory] = []
        self._seen: list[HostArray] = []
        # At most as many: values that several ops read in the same way share a check.
        most = sum(len(list(_entries(op))) for op in ops)
        self.words: Array | None = None
        self.bad: Array | None = None
        if most:
            meta = Meta((most,), int64)
            behind = -(-meta.nbytes // ALIGNED) * ALIGNED
            memory = device.allocate(behind + ALIGNED, purpose="error words")
            self._memory = [memory]
            self.bad = device.view(memory, behind, Meta((1,), bool_))
            self.words = device.view(memory, 0, meta)
            self._add_slot()

    def __bool__(self) -> bool:
        return bool(self._checks)

    @property
    def nbytes(self) -> int:
        """The bytes of the device that the checks keep: their words, and copies of positions."""
        words: int = self._memory[0].held_bytes if self._memory else 0
        copies: int = sum(one.safe.nbytes + (one.kept.nbytes if one.copied else 0) for one in self._checks.values())
        return words + copies

    def bind_op(self, op: FrozenOp, ins: Sequence[Any], stream: Stream) -> tuple[list[Any], Before]:
        """Binds the checks of one op.

        Args:
            op: The op.
            ins: Its arrays by slot.
            stream: The stream of its work.

        Returns:
            The arrays that the op is to read, and what comes before it.

        Raises:
            IndexRangeError: If there is nothing that positions could point to.
        """
        read: Spans = []
        written: Spans = []
        calls: list[Call] = []
        given = list(ins)
        device = self._device
        for at, place, array, limits in limited(op.definition, ins, op.attrs):
            if isinstance(array, Meta) or not array.size:
                continue  # a value inside of a group, which its kernel masks
            entry = op.inputs[at]
            value = entry if place is None else entry[place]  # type: ignore[index]
            assert isinstance(value, str)
            asked = limits.allowing(array.dtype)
            if asked is None:
                error = IndexRangeError(
                    f"{limits.what} holds a value that is out of range",
                    expected="no positions: what they point into has a size of 0",
                    received=f"positions of shape {list(array.shape)}",
                    fix=limits.fix or None,
                )
                annotate(error, op)
                raise error
            found = self._checks.get((value, limits))
            if found is None:
                assert self.words is not None
                kept = array if value in self._lasting else device.empty(array.shape, array.dtype)
                # Numbered in the program's order: the first word that is not 0 is the error that a device which stops at it would
                # raise.
                word = device.slice(self.words, len(self._checks), (1,))
                found = _Check(op, limits, array, kept, device.empty(array.shape, array.dtype), word, kept is not array)
                self._checks[value, limits] = found
                calls += device.limit(array, asked, found.kept, found.safe, word, stream)
                written += [device.span(one) for one in (found.safe, word)]
            else:
                read.append(device.span(found.safe))
            if place is None:
                given[at] = found.safe
            else:
                given[at] = [found.safe if i == place else one for i, one in enumerate(given[at])]
        return given, (calls, read, written)

    def deciding(self, stream: Stream, communicator: Communicator) -> list[Call]:
        """Returns calls that make :attr:`bad` hold on all replicas where one of them has a bad position, and tell the host.

        Args:
            stream: The stream for the work, behind all checks.
            communicator: The replica's.
        """
        device = self._device
        assert self.words is not None
        assert self.bad is not None
        pinned = device.allocate(ALIGNED, "pinned", "error words")
        self._memory.append(pinned)
        self.told = device.view(pinned, 0, Meta((1,), bool_))
        found = device.any_nonzero(self.words, self.bad, stream)
        return [*found, *communicator.deciding(self.bad, stream), device.copying(self.told, self.bad, stream)]

    @property
    def spans(self) -> tuple[Spans, Spans]:
        """The memory that :meth:`deciding` reads and writes."""
        return [self._device.span(self.words)], [self._device.span(self.bad)]

    def finish(self, stream: Stream) -> list[Call]:
        """Returns the calls that copy all words to the host and to :attr:`bad`, behind the checks."""
        if not self._checks:
            return []
        # What was decided for all replicas is more than what this one found.
        found = [] if self.told is not None else self._device.any_nonzero(self.words, self.bad, stream)
        # The copy goes to pinned memory, so that it needs no wait of its own: the host reads it when it waits for the results.
        return [*found, self._device.copying(self._seen[0], self.words, stream)]

    @property
    def refused_elsewhere(self) -> bool:
        """Whether a position of another replica is bad, so that no replica changed anything; what is copied must be there."""
        return self.told is not None and bool(self.told[0]) and not self.refuses()

    def _add_slot(self) -> None:
        assert self.words is not None
        pinned = self._device.allocate(self.words.nbytes, "pinned", "error words")
        self._memory.append(pinned)
        self._seen.append(self._device.view(pinned, 0, Meta(self.words.shape, int64)))

    def send(self, slot: int, stream: Stream) -> None:
        """Queues a copy of the words into a slot behind the first, where the next run does not overwrite them."""
        if self._checks:
            while len(self._seen) <= slot:
                self._add_slot()
            self._device.copy(self._seen[slot], self.words, stream)

    @property
    def only_lasting(self) -> bool:
        """Whether all positions are those that the run is fed, or constants."""
        return all(check.kept is check.source for check in self._checks.values())

    def refuses(self, slot: int = 0) -> bool:
        """Returns whether a word in a slot is bad; the words must be on the host."""
        return bool(self._checks) and bool(self._seen[slot].any())

    def error(self, runs: int, slot: int = 0) -> IndexRangeError | FeedError | None:
        """Returns the error of the first bad word, with the op and the line that built it; the words must be on the host.

        Args:
            runs: How many runs of the program came before.
            slot: Where the words are.
        """
        if not self.refuses(slot):
            return None
        bad = np.flatnonzero(self._seen[slot])
        check = list(self._checks.values())[int(bad[0])]
        try:
            check.limits.check(self._device.to_host(check.kept))
        except (IndexRangeError, FeedError) as error:
            annotate(error, check.op)
            error.noticed = f"after run {runs + 1} on the device '{self._device.name}'; it changed no variable"
            return error
        raise AssertionError("a device and the host disagree on a bad position")

    def free(self) -> None:
        """Frees the words."""
        for memory in self._memory:
            self._device.free(memory)
        self._memory, self._checks, self._seen, self.words, self.bad, self.told = [], {}, [], None, None, None


def _entries(op: FrozenOp) -> Iterator[Entry]:
    """Yields what stands in the slots that hold positions, each value of a list for itself."""
    for statement in op.definition.indices:
        entry = op.input(statement.slot)
        yield from entry if isinstance(entry, tuple) else [entry]


def late_checks(plan: Plan, device: Device) -> LateChecks | None:
    """Returns the checks of positions on a device whose work runs late; elsewhere an op checks its own."""
    if not device.deferred:
        return None
    steps = [one for one in plan.steps if one.region == "main" and one.how != "dynamic"]
    ops = [op for step in steps for op in (step.op.body or [step.op])]
    kinds = {v: plan.storage[plan.root[v]].kind for v in plan.storage}
    return LateChecks(device, ops, [v for v, kind in kinds.items() if kind == "feed" or kind == "const"])


def may_ask_words(plan: Plan, checks: LateChecks | None, communicator: Communicator | None = None) -> bool:
    """Returns whether updates may be queued before the host knows of a bad position; they ask the words on the device, if any.

    Otherwise the host waits before them: for sizes and errors that only values decide, for updates that draw numbers, and for
    collectives that it has a part in.

    Args:
        plan: The plan.
        checks: Its checks; ``None`` where the host makes them.
        communicator: Runs its collectives; ``None`` on one place.
    """
    if checks is None:
        return False
    for step in plan.steps:
        definition = step.op.definition
        if step.how == "dynamic" or step.op.sub_blocks or definition.objects:
            return False
        if definition.collective:
            # One of the update sends what its owner wrote, or left as it was.
            if communicator is None or not communicator.only_queues(step.op):
                return False
        elif definition.effects and not definition.indices:
            return False
        generated = plan.kernels.get(step.op.outputs) if step.how == "kernel" else None
        deaf = checks.words is not None and generated is not None and not generated.asks
        if step.region == "update" and (definition.random or deaf):
            return False
    return bool(plan.steps)


def decided(
    checks: LateChecks | None,
    works: Sequence[Bound],
    steps: Sequence[ReadyStep],
    communicator: Communicator,
    first: Stream,
) -> tuple[list[ReadyStep], list[Call]]:
    """Returns steps by which all replicas know whether a position of one of them is bad, and calls behind all of them.

    They learn it in front of the first sum behind the last check, so that nothing waits for a sum of its own; without one,
    behind all steps. There the streams of all meet: no replica updates unless all could.

    Args:
        checks: The checks of the plan.
        works: Its steps of the main region.
        steps: The same, as a device schedules them.
        communicator: The replica's.
        first: The stream that all others are joined to behind the steps.
    """
    if not checks:
        return [*steps], communicator.deciding(None, first)
    last = max((i for i, (_, _, _, (calls, *_)) in enumerate(works) if calls), default=-1)
    at = next((i for i, (step, *_) in enumerate(works) if i > last and step.op.definition.collective), None)
    if at is None:
        return [*steps], checks.deciding(first, communicator)
    stream = works[at][2]
    reads, writes = checks.spans
    calls = checks.deciding(stream, communicator.on(stream))
    told = ReadyStep(None, stream, before=calls, reads=reads, writes=writes, split=steps[at].split)
    return [*steps[:at], told, *steps[at:]], communicator.deciding(None, first)


def before_kernel(
    step: Step, arrays: Mapping[str, Any], device: Device, checks: LateChecks | None, stream: Stream
) -> Before:
    """Returns the checks of positions that a generated kernel reads: it cannot raise, and masks bad ones."""
    calls: list[Call] = []
    reads: Spans = []
    writes: Spans = []
    if step.region != "main" or not any(op.definition.indices for op in step.op.body):
        return calls, reads, writes
    known: dict[str, Any] = {v: arrays[v] for v in step.op.reads()}
    for op in step.op.body:
        ins = [fetch_entry(e, known) for e in op.inputs]
        if checks is not None:
            _, (more, read_too, written_too) = checks.bind_op(op, ins, stream)
            calls, reads, writes = calls + more, reads + read_too, writes + written_too
        else:
            found = limited(op.definition, ins, op.attrs)
            calls += [(_check_now, (device, op, one[3], one[2])) for one in found if not isinstance(one[2], Meta)]
        # Values inside of the group have no arrays; limits follow from their shapes.
        metas = [_metas(one) for one in ins]
        for entry, meta in zip(op.outputs, infer_outputs(op.definition, metas, op.attrs), strict=True):
            store_entry(entry, meta, known)
    return calls, reads, writes


def _check_now(device: Device, op: FrozenOp, limits: Limits, array: Array) -> None:
    try:
        limits.check(device.to_host(array))
    except (IndexRangeError, FeedError) as error:
        annotate(error, op)  # the member of the group, whose line the user knows
        raise


def _metas(slot: Any) -> Any:
    """Returns the metadata of what is in a slot: arrays, metadata, lists of them, or ``None``."""
    if isinstance(slot, list):
        return [_metas(one) for one in slot]
    return slot if slot is None or isinstance(slot, Meta) else Meta(slot.shape, dtype_of(slot.dtype))
