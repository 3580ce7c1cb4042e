"""Faults of a runtime that queues its work, to plant in runs on the fake device; each is one thing left out or done too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tstatic.comm import group
from tstatic.comm.transport import Part
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.devices import queued
from tstatic.devices.fake import FakeDevice
from tstatic.devices.graphs import LateGraph
from tstatic.devices.step import ReadyStep
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan import memory, plan
from tstatic.runtime import binding, feed, fetch, scratch, session

Session = session.Session
Plant = Callable[[pytest.MonkeyPatch], None]


def missing_wait(patch: pytest.MonkeyPatch) -> None:
    """One wait of a step for a step in another stream."""
    right = queued.waits

    def fewer(steps: Sequence[queued.Queued]) -> list[list[int]]:
        found = right(steps)
        last = max((i for i, js in enumerate(found) if js), default=-1)
        return [js[1:] if i == last else js for i, js in enumerate(found)]

    patch.setattr(queued, "waits", fewer)


def early_reuse(patch: pytest.MonkeyPatch) -> None:
    """A value's slot of the arena is given away with the step before its last reader."""
    right = memory.place

    def early(lifetimes: Sequence[memory.Lifetime], reuse: bool = True) -> Any:
        short = [memory.Lifetime(b.name, b.nbytes, b.first, max(b.first, b.last - 1)) for b in lifetimes]
        return right(short, reuse)

    patch.setattr(plan, "place", early)


def unordered_scratch(patch: pytest.MonkeyPatch) -> None:
    """Steps in two streams that share scratch memory do not wait for each other."""
    patch.setattr(scratch.Scratch, "spans", lambda self, step: [])


def host_read(patch: pytest.MonkeyPatch) -> None:
    """The host reads a fetched value where it lies."""
    patch.setattr(Session, "_to_host", lambda self, value: np.array(value))
    patch.setattr(fetch.StagedFetches, "send", lambda self: [np.array(one) for one in self._arrays])


def read_before_copy(patch: pytest.MonkeyPatch) -> None:
    """The host reads pinned memory that a queued copy has yet to fill."""
    right = GlooTransport._sum

    def summed(self: GlooTransport, part: Part, *args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(part.lane.device, "synchronize", lambda streams=None: None)
            right(self, part, *args)

    patch.setattr(GlooTransport, "_sum", summed)


def pinned_overwritten(patch: pytest.MonkeyPatch) -> None:
    """One staging buffer for two feeds: the second is written there before the copy of the first has run."""
    right = feed.pinned_slots

    def staged(device: FakeDevice, arrays: Any, purpose: str) -> Any:
        memory, slots = right(device, arrays, purpose)
        shared = [
            device.view(memory, 0, Meta(one.shape, dtype_of(one.dtype))) if one.nbytes <= slots[0].nbytes else one
            for one in slots
        ]
        return memory, shared

    patch.setattr(feed, "pinned_slots", staged)


def early_event(patch: pytest.MonkeyPatch) -> None:
    """The event of a step is recorded before its work is queued."""
    right = queued.in_order

    def early(device: FakeDevice, steps: Sequence[queued.Queued]) -> Any:
        return [sorted(calls, key=lambda call: call[0] != device.record) for calls in right(device, steps)]

    patch.setattr(queued, "in_order", early)


def stale_pointer(patch: pytest.MonkeyPatch) -> None:
    """A captured graph is replayed although a variable has other storage since."""
    patch.setattr(Session, "stale", lambda self: self.bound is None)


def collective_without_wait(patch: pytest.MonkeyPatch) -> None:
    """A replica goes on before the others' work on its arrays is done."""
    patch.setattr(group.Collective, "_wait", lambda self, events: None)


def freed_memory(patch: pytest.MonkeyPatch) -> None:
    """The arena is freed when the main region is done, and fetches and updates still read it."""
    right = Session.execute

    def execute(self: session.Session, bound: binding.Binding, region: str) -> None:
        right(self, bound, region)
        if region in ("main", "whole"):
            self.device.synchronize(self.streams)
            self.device.free(bound.arena)

    patch.setattr(Session, "execute", execute)


def early_fetch(patch: pytest.MonkeyPatch) -> None:
    """A fetch waits for the stream of copies, which does not wait for the streams that compute."""
    patch.setattr(queued, "joining", lambda device, stream, first: [])
    patch.setattr(LateGraph, "_join", lambda self: None)


def feed_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """The first readers of a feed do not wait for its copy."""
    right = binding.Binding._fences

    def nothing(self: binding.Binding, name: str) -> list[ReadyStep]:
        return [one if one.writes is None else replace(one, writes=[]) for one in right(self, name)]

    patch.setattr(binding.Binding, "_fences", nothing)
    patch.setattr(LateGraph, "_fork", lambda self: None)
