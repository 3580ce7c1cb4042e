"""Finds the parts of a session's arena that its steps need only while they run."""

from __future__ import annotations

from tstatic.devices import Array, Device
from tstatic.devices.base import Memory
from tstatic.fusion.codegen.kernel import KernelLocal
from tstatic.ir.types import Meta, uint8
from tstatic.plan.plan import Generated, Plan, Step, copy_offsets


class Scratch:
    """The scratch memory of a plan's steps.

    Args:
        plan: The plan, which has offset and size of each.
        arena: The memory that the offsets refer to.
        device: Its device.
    """

    def __init__(self, plan: Plan, arena: Memory, device: Device) -> None:
        # By identity: comparing two steps compares their ops.
        self._parts = {id(plan.steps[i]): part for i, part in plan.scratch.items()}
        self._metas = {v: meta for v in plan.gapped if (meta := plan.storage[v].meta) is not None}
        self._arena = arena
        self._device = device

    def of(self, step: Step) -> Array | None:
        """Returns the memory of a step as bytes; ``None`` if it needs none."""
        if id(step) not in self._parts:
            return None
        offset, nbytes = self._parts[id(step)]
        return self._device.view(self._arena, offset, Meta((nbytes,), uint8))

    def spans(self, step: Step) -> list[tuple[int, int]]:
        """Returns the addresses of a step's memory: other steps have values, or scratch memory of their own, in the same place."""
        found = self.of(step)
        return [] if found is None else [self._device.span(found)]

    def partials(self, found: Generated, step: Step) -> dict[KernelLocal, Array]:
        """Returns the buffers that the launches of a step's kernel share."""
        offsets, _ = found.calls.partial_offsets
        start = self._start(step)
        return {
            name: self._device.view(self._arena, start + offsets[name], Meta((count,), dtype))
            for name, (count, dtype) in found.calls.partials.items()
        }

    def copies(self, found: Generated, step: Step) -> dict[str, Array]:
        """Returns the memory of copies of what a step's kernel reads and what lies in the arena with gaps."""
        start = self._start(step) + found.calls.partial_offsets[1]
        offsets, _ = copy_offsets(step.op, self._metas.keys(), self._metas)
        return {v: self._device.view(self._arena, start + at, self._metas[v]) for v, at in offsets.items()}

    def _start(self, step: Step) -> int:
        # A step without scratch asks for no part of it, so any offset will do.
        return self._parts.get(id(step), (0, 0))[0]
