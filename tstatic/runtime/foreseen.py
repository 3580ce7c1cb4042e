"""Knows on the host which sums a run leaves out, before the device does, so that a step does not wait for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.devices import Array, Device
from tstatic.devices.base import Memory
from tstatic.devices.step import HostArray, Stream
from tstatic.ir.frozen import FrozenOp, FrozenProgram, unfused
from tstatic.ir.types import Meta, dtype_of
from tstatic.runtime.sub_block import run_op

SKIP = "Skip"
"""The slot of collectives that holds the truth value by which a run leaves them out."""
_MOST = 64
"""Elements of a variable that the host follows: counters are small, and their values are copied in every run."""


class Foreseen:
    """The truth values by which a plan's collectives are left out, computed on the host from the variables that they depend on.

    Each run brings the variables' new values with its results. The first run, and one behind a write of anybody else, reads
    them from the device.

    Args:
        slices: The ops that compute the values, in order.
        wanted: Value -> its array on the device.
        leaves: Value -> the storage of the variable that it is.
        constants: Values that are known at compile time.
        device: The device.
    """

    def __init__(
        self,
        slices: Sequence[FrozenOp],
        wanted: Mapping[str, Array],
        leaves: Mapping[str, Array],
        constants: Mapping[str, HostArray],
        device: Device,
    ) -> None:
        self._ops, self._wanted, self._leaves, self._constants = slices, wanted, leaves, constants
        self._device = device
        self._memory: list[Memory] = []
        self._seen: dict[str, HostArray] = {}
        for value, array in leaves.items():
            memory = device.allocate(array.nbytes, "pinned", "counters")
            self._memory.append(memory)
            self._seen[value] = device.view(memory, 0, Meta(array.shape, dtype_of(array.dtype)))
        self._as_of: int | None = None
        # A sum over k runs has k cases.
        self._known: dict[bytes, dict[int, bool]] = {}

    def holds(self, writes: int, stream: Stream) -> dict[int, bool]:
        """Returns for each array, by its identity, whether it will hold in the run that begins.

        Args:
            writes: The scope's count of writes by others than runs of several places.
            stream: The stream in which a variable is read that somebody else may have written.
        """
        if self._as_of != writes:
            for value, array in self._leaves.items():
                self._seen[value][...] = self._device.to_host(array, stream)
        key = b"".join(one.tobytes() for one in self._seen.values())
        found = self._known.get(key)
        if found is None:
            env: dict[str, Any] = {**self._constants, **{v: np.array(a) for v, a in self._seen.items()}}
            for op in self._ops:
                run_op(op, env, {})
            found = {id(array): bool(env[value].flat[0]) for value, array in self._wanted.items()}
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found

    def send(self, writes: int, stream: Stream) -> None:
        """Queues copies of the variables' values behind what writes them; they are there when the run has ended."""
        for value, array in self._leaves.items():
            self._device.copy(self._seen[value], array, stream)
        self._as_of = writes

    def forget(self) -> None:
        """Makes the next run read the variables from the device: another session's run may have written them."""
        self._as_of = None

    def free(self) -> None:
        """Frees memory of its own."""
        for memory in self._memory:
            self._device.free(memory)
        self._memory, self._seen = [], {}


class Watched(Protocol):
    """A scope.

    Attributes:
        ran: What the last run of several places knew in advance.
    """

    ran: Foreseen | None


def takes_turn(scope: Watched, mine: Foreseen | None) -> None:
    """Begins a run on a scope: if another session's came last, the variables may have other values than after one's own."""
    if mine is not None and scope.ran is not mine:
        mine.forget()
    scope.ran = mine


def foreseen(program: FrozenProgram, arrays: Mapping[str, Array], device: Device) -> Foreseen | None:
    """Returns what the host computes of the values by which collectives are left out.

    ``None`` where none is, or where they depend on more than small variables, constants, and ops that follow from them alone.
    """
    wanted = {
        value: arrays[value]
        for op in program.ops
        if op.definition.collective
        for slot, value in zip(op.definition.inputs, op.inputs, strict=True)
        if slot.name == SKIP and isinstance(value, str)
    }
    if not wanted:
        return None
    plain = unfused(program)
    maker = {value: op for op in plain.ops for value in op.writes()}
    held = {value: var for var, value in plain.reads.items()}
    needed: dict[int, FrozenOp] = {}
    leaves: dict[str, Array] = {}
    constants: dict[str, HostArray] = {}
    open_ = list(wanted)
    while open_:
        value = open_.pop()
        op = maker.get(value)
        if value in held and value in arrays and arrays[value].size <= _MOST:
            leaves[value] = arrays[value]
        elif value in plain.constants:
            constants[value] = np.asarray(plain.constants[value])
        elif op is None or not _follows(op):
            return None
        elif id(op) not in needed:
            needed[id(op)] = op
            open_ += op.reads()
    ops = [op for op in plain.ops if id(op) in needed]
    return Foreseen(ops, wanted, leaves, constants, device)


def _follows(op: FrozenOp) -> bool:
    """Returns whether the results of an op follow from its inputs alone, on any machine."""
    definition = op.definition
    own = definition.random or definition.effects or definition.dynamic or definition.objects or definition.collective
    return not (own or definition.update or op.sub_blocks)


__all__ = ["SKIP", "Foreseen", "foreseen", "takes_turn"]
