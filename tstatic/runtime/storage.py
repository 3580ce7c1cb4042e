"""Gives the values of a plan their arrays; steps bring the memory of foreign blocks, which is freed behind the last reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from tstatic.devices import Array, Device
from tstatic.devices.base import Memory
from tstatic.devices.step import Block, BoundStep, Watch
from tstatic.ir.recording import Call
from tstatic.plan.plan import Plan, Storage

NO_BLOCKS = nullcontext()
"""In the place of :meth:`Blocks.during`, where there are none."""


class Blocks:
    """The blocks of a plan.

    Args:
        plan: The plan; ``None``: no blocks.
        watch: What sees the memory that the device's library allocates; the first run is watched, so that later ones cost nothing
            more.

    Attributes:
        all: They.
        are_idle: Whether :meth:`during` does nothing: neither frees nor sees anything.
        seen_bytes: The most bytes that the library was seen to have allocated at one time; 0 before the first run.
    """

    def __init__(self, plan: Plan | None = None, watch: Watch | None = None) -> None:
        self._watch = watch
        self.seen_bytes = 0
        self.are_idle = watch is None
        self.all: list[Block] = []
        self._lifetimes = () if plan is None else plan.foreign
        self._dead: dict[int, list[Call]] = {}
        self._waiting: list[Call] = []
        self._at_end: list[Call] = []
        self._beside: dict[int, Callable[[], int]] = {}

    def array(self, device: Device, slot: Storage, arrays: Mapping[str, Any]) -> Array:
        """Returns the array of a value in a block: a new one, or one that another value has, perhaps in another shape."""
        assert slot.meta is not None
        if slot.of:
            array = arrays[slot.of]
            return (
                array
                if array.shape == slot.meta.shape
                else device.derive(array, partial(np.reshape, shape=slot.meta.shape))
            )
        block = device.block(slot.meta)
        (one,) = (one for one in self._lifetimes if one.name == slot.value)
        self.all.append(block)
        self.are_idle = False
        self._dead.setdefault(one.last, []).append((block.free, ()))
        return block

    def bound(self, number: int, work: BoundStep | None) -> None:
        """Frees the blocks of which step ``number`` is the last reader behind it, or behind the next if it is a mere view."""
        self._waiting += self._dead.pop(number, [])
        if work is None:
            return
        # Behind the step's own sums: its tiles, in whatever threads, have ended then.
        work.after += self._waiting
        self._waiting = []
        if work.beside is not None:
            self._beside[number] = work.beside

    def finish(self) -> None:
        """Ends binding: what is left was fetched or committed, and is kept to the end of a run."""
        self._at_end = [call for calls in (self._waiting, *self._dead.values()) for call in calls]

    @contextmanager
    def during(self) -> Iterator[None]:
        """Frees all blocks behind a run, whether it ends or fails."""
        try:
            if self._watch is None:
                yield
            else:
                with self._watch() as watched:
                    yield
                self._watch, self.seen_bytes = None, watched.most_bytes
                self.are_idle = not self.all
        # All of them: nobody knows how far the run came, and a block may be freed twice.
        except BaseException:
            for block in self.all:
                block.free()
            raise
        for function, args in self._at_end:
            function(*args)

    @property
    def beside_bytes(self) -> Mapping[int, int]:
        """Number of a step -> bytes that the device's library was seen to hold beside the step's results, in its first run."""
        return {number: tell() for number, tell in self._beside.items()}


def place_values(
    plan: Plan,
    arena: Memory,
    device: Device,
    state: Callable[[str, str], Array],
    blocks: Blocks,
    arrays: MutableMapping[str, Any],
) -> None:
    """Makes the arrays of all values but views, and of those whose size only a run decides.

    Args:
        plan: The plan.
        arena: Memory of the size that the plan states.
        device: Its device.
        state: ``(variable, value)`` -> the variable's array.
        blocks: Gets the foreign blocks.
        arrays: Gets the arrays by value.
    """
    # One array object per address: numpy is slower if input and output are two views of the same bytes.
    views: dict[Any, Array] = {}
    for value, slot in plan.storage.items():
        if slot.in_arena:
            assert slot.meta is not None
            place = (slot.offset, slot.meta)
            if place not in views:
                views[place] = device.view(arena, slot.offset, slot.meta)
            arrays[value] = views[place]
        elif slot.kind == "const":
            arrays[value] = device.upload(plan.program.constants[value])
        elif slot.kind == "state":
            arrays[value] = state(slot.of, value)
        elif slot.kind == "object":
            arrays[value] = []
        elif slot.kind == "foreign":
            arrays[value] = blocks.array(device, slot, arrays)
