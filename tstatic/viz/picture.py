"""What a picture of a block shows: ops in layers, the values between them, and which of them are left to tooltips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tstatic.ir import edit
from tstatic.ir.opdef import EMPTY
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Parameter, Variable

ACROSS = 8
"""Ops side by side in one layer; what does not fit goes below."""
REACH = 4
"""Layers that an edge may span; a value read further away is drawn again, as a reference."""

FAN = 6
"""Readers that a value may have before those beyond the next layer get a reference instead of an edge."""


def role_of(op: Operator) -> str:
    """Returns the part of the program that an op belongs to, which is also the name of its colour."""
    for bit, name in ((OpRole.LRSched, "rate"), (OpRole.Optimize, "optimize"), (OpRole.Backward, "backward")):
        if op.role & bit:
            return name
    return "forward"


@dataclass(slots=True)
class Shown:
    """An op in the picture.

    Attributes:
        op: The op.
        layer: Its layer.
        updates: Names of variables that it reads and writes in place, drawn as part of it.
        sources: Variables drawn above it for it alone: inputs, parameters, references to far values.
    """

    op: Operator
    layer: int
    updates: list[str] = field(default_factory=list)
    sources: list[tuple[str, str]] = field(default_factory=list)
    """(name, kind): ``"data"``, ``"parameter"``, ``"state"``, ``"outer"`` or ``"reference"``."""


@dataclass(slots=True)
class Picture:
    """A block as a graph.

    Attributes:
        ops: The ops that are drawn.
        values: (name, index in ``ops`` of the op that makes it, indices of those that read it nearby).
        layers: Layers of the whole block; ``shown`` of them are drawn.
        left: Number of ops that are not drawn.
        backward: First layer of backward ops, or ``None``.
    """

    ops: list[Shown]
    values: list[tuple[str, int, list[int]]]
    layers: int
    shown: int
    left: int
    backward: int | None


def picture(block: Block, max_ops: int) -> Picture:
    """Lays a block's ops into layers and decides what is drawn; at most ``max_ops`` ops, in whole layers."""
    makers = _makers(block)
    layers, backward = _layers(block, makers)
    count: dict[int, int] = {}
    for layer in layers:
        count[layer] = count.get(layer, 0) + 1
    shown = total = 0
    for layer in sorted(count):
        if shown and total + count[layer] > max_ops:
            break
        total += count[layer]
        shown = layer + 1
    chosen = [i for i, layer in enumerate(layers) if layer < shown]
    place = {op: at for at, op in enumerate(chosen)}
    ops = [Shown(block.ops[i], layers[i]) for i in chosen]
    readers: dict[tuple[int, str], list[int]] = {}
    popular: dict[tuple[int, str], int] = {}
    for i in chosen:
        for name, maker in makers[i].items():
            popular[maker, name] = popular.get((maker, name), 0) + 1

    def near(maker: int, name: str, reader: int) -> bool:
        reach = REACH if popular[maker, name] <= FAN else 1
        return maker in place and layers[reader] - layers[maker] <= reach

    for at, i in enumerate(chosen):
        _connect(block, i, ops[at], makers[i], near, readers, at)
    values = []
    for at, i in enumerate(chosen):
        op = block.ops[i]
        for slot, row in op.outputs.items():
            quiet = op.definition.output_slots[slot].intermediate
            for name in row:
                found = readers.get((i, name), [])
                if name != EMPTY and name not in ops[at].updates and (found or not quiet):
                    values.append((name, at, found))
    return Picture(
        ops, values, max(layers, default=-1) + 1, shown, len(block.ops) - len(ops),
        backward if backward is not None and backward < shown else None,
    )  # fmt: skip


def _makers(block: Block) -> list[dict[str, int]]:
    """Returns per op: name of an input -> the op of this block that wrote it last."""
    last: dict[str, int] = {}
    found = []
    for i, op in enumerate(block.ops):
        found.append({n: last[n] for n in op.input_arg_names if n in last})
        for name in op.output_arg_names:
            last[name] = i
    return found


def _layers(block: Block, makers: list[dict[str, int]]) -> tuple[list[int], int | None]:
    """Returns the layer of each op: below those that it reads from, backward ops below all forward ones."""
    layers: list[int] = []
    used: dict[int, int] = {}
    forward_end = 0
    backward: int | None = None
    for i, op in enumerate(block.ops):
        is_backward = role_of(op) == "backward"
        layer = max((layers[p] + 1 for p in makers[i].values()), default=0)
        if is_backward:
            layer = max(layer, forward_end)
        while used.get(layer, 0) >= ACROSS:
            layer += 1
        used[layer] = used.get(layer, 0) + 1
        layers.append(layer)
        if role_of(op) == "forward":
            forward_end = max(forward_end, layer + 1)
        if is_backward:
            backward = layer if backward is None else min(backward, layer)
    # What reads nothing (a constant, the seed of the gradients) stands just above its first reader.
    first: dict[int, int] = {}
    for i, row in enumerate(makers):
        for p in row.values():
            first[p] = min(first.get(p, layers[i]), layers[i])
    for p, layer in first.items():
        if not makers[p] and layer - 1 > layers[p]:
            layers[p] = layer - 1
    return layers, backward


def _connect(
    block: Block, i: int, shown: Shown, makers: dict[str, int], near: Callable[[int, str, int], bool],
    readers: dict[tuple[int, str], list[int]], at: int,
) -> None:  # fmt: skip
    op = block.ops[i]
    writes = set(op.output_arg_names)
    quiet_update = role_of(op) == "optimize"
    for name in dict.fromkeys(op.input_arg_names):
        if name == EMPTY:
            continue
        var = block._find_var_recursive(name)
        kept = var is not None and (var.persistable or name not in block.vars)
        if name in writes and kept:
            shown.updates.append(name)
        elif name in makers and not (kept and quiet_update):
            maker = makers[name]
            if near(maker, name, i):
                readers.setdefault((maker, name), []).append(at)
            elif not _is_quiet(block.ops[maker], name):
                shown.sources.append((name, "reference"))
        elif not (kept and quiet_update):
            # Of an optimizer's op, learning rate and moments are left to the tooltip.
            shown.sources.append((name, _kind(var)))


def _is_quiet(maker: Operator, name: str) -> bool:
    """Returns whether a value was made for the backward op only (a mask, saved statistics)."""
    return any(name in row and maker.definition.output_slots[slot].intermediate for slot, row in maker.outputs.items())


def _kind(var: Variable | None) -> str:
    if var is None:
        return "outer"
    if isinstance(var, Parameter):
        return "parameter"
    if var.persistable:
        return "state"
    return "data" if var.is_data else "outer"


def owners(block: Block) -> dict[int, Operator]:
    """Returns block number -> the op of ``block`` that owns it."""
    return {inner: op for op in block.ops for inner in edit.sub_blocks(op)}
