"""Collects the ops of a gradient rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tstatic.ir.opdef import GradContext, OpSpec


class Emitter:
    """Collects the ops of a gradient rule; ``None`` means a value that is zero everywhere."""

    def __init__(self, ctx: GradContext) -> None:
        self.ctx = ctx
        self.specs: list[OpSpec] = []

    def input(self, slot: str) -> str:
        """Name of the forward op's input."""
        return self.ctx.inputs[slot][0]

    def incoming(self, slot: str) -> str | None:
        """Name of the gradient that arrives for an output slot."""
        names = self.ctx.outputs.get(slot)
        return self.ctx.out_grads.get(names[0]) if names else None

    def wanted(self, slot: str) -> str | None:
        """Name to write the gradient of an input slot to."""
        names = self.ctx.inputs.get(slot)
        return self.ctx.in_grads.get(names[0]) if names else None

    def emit(
        self, type: str, inputs: Mapping[str, str], out: str | None = None, slot: str = "Out", **attrs: Any
    ) -> str:
        """Appends an op; returns the name of its output."""
        out = out if out is not None else self.ctx.fresh(type)
        self.specs.append(OpSpec(type, {n: [v] for n, v in inputs.items()}, {slot: [out]}, attrs))
        return out

    def zeros(self, like: str, out: str | None = None) -> str:
        """Appends zeros of a value's shape."""
        return self.emit("fill_any_like", {"X": like}, out, value=0.0)
