"""The layout of the flat buffers of parameters, their states and gradients: reverse order of gradient completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.operator import OpRole
from tstatic.ir.traits import Numbers

PAD = 1024
"""Every tensor begins at a multiple of this number of elements, so that a block of a kernel never holds two tensors; the padding
between them is zero and stays zero."""


def state_buffers(program: FrozenProgram) -> dict[str, list[str]]:
    """Returns which variables share a buffer.

    Args:
        program: The program with its updates, fused or not.

    Returns:
        Slot of the update (``Param``, ``Moment1``, ...) -> variables in order.
    """
    updates = [op for op in _members(program.ops) if op.definition.update]
    if not updates:
        return {}
    variable = {value: var for var, value in program.reads.items()}
    found: dict[str, dict[str, None]] = {}
    # In every slot the same order of parameters: the same offset finds a parameter and all its states.
    for op in _sorted(updates, program):
        for slot, _ in op.definition.state:
            value = _one(op, slot)
            # Scalars that the op updates, such as the powers of the betas, do not get a buffer.
            if value in variable and slot not in op.definition.slots_of(Numbers):
                found.setdefault(slot, {})[variable[value]] = None
    return {slot: list(names) for slot, names in found.items()}


def gradient_buffers(program: FrozenProgram) -> list[list[str]]:
    """Returns, for each fused update, the gradients that it reads from memory, each once, in the order of the parameters."""
    found = []
    for fused in program.ops:
        updates = [op for op in fused.body if op.definition.update]
        if updates:
            inside = {v: op for op in fused.body for v in op.writes()}
            grads = (_one(op, "Grad") for op in _sorted(updates, program))
            # If the fused op scales a gradient itself, it reads the unscaled gradient.
            raw = (str(inside[g].inputs[0]) if g in inside else g for g in grads)
            found.append(list(dict.fromkeys(raw)))
    return found


def _members(ops: Sequence[FrozenOp]) -> Iterator[FrozenOp]:
    for op in ops:
        if op.body:
            yield from _members(op.body)
        else:
            yield op


def _one(op: FrozenOp, slot: str) -> str:
    if slot not in {s.name for s in op.definition.inputs}:
        return ""
    entry = op.input(slot)
    return entry if isinstance(entry, str) else ""


def _sorted(updates: Sequence[FrozenOp], program: FrozenProgram) -> list[FrozenOp]:
    variable = {value: var for var, value in program.reads.items()}
    # Gradients that lie together are complete one after another: a bucket of neighbours is exchanged while the rest is
    # computed. Parameters without a gradient come last.
    ready = _ready(program)
    return sorted(updates, key=lambda op: -ready.get(variable.get(_one(op, "Param"), ""), -1))


def _ready(program: FrozenProgram) -> Mapping[str, int]:
    """Returns parameter -> position of the backward op that completes its gradient."""
    found: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        if op.role & OpRole.Backward:
            found.update(dict.fromkeys(op.role_var[::2], index))
    return found
