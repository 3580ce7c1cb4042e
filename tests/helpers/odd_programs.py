"""Programs of Paddle that lack one part, or have an absurd number in it: every op type that Paddle saved, each of its parts."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import lzma
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from tstatic.formats import paddle_proto as proto

OPS = Path(__file__).parents[1] / "data" / "paddle-2.6" / "ops.json.xz"
NUMBERS = (-(2**62), -(2**31), -1, 0, 10**6, 2**31 - 1, 2**62)
"""What a size or a number of an attribute becomes."""


@cache
def models() -> dict[str, bytes]:
    """Returns a program that Paddle saved for each op type that it writes."""
    rows = json.loads(lzma.decompress(OPS.read_bytes()))
    return {row["id"]: base64.b64decode(row["model"]) for row in rows}


def _plain(data: bytes) -> proto.ProgramDesc:
    """Returns a program without what is only told: the lines of calls and other attributes that nothing reads."""
    program = proto.read_program(data)
    for op in (op for block in program.blocks for op in block.ops):
        op.attrs = [attr for attr in op.attrs if not attr.name.startswith(("op_", "with_quant"))]
    return program


Case = tuple[str, Callable[[], bytes]]


def lacking(data: bytes) -> Iterator[Case]:
    """Yields what is missing, and the program without it: a slot, an attribute, an op, a variable, a type, a name or a block."""
    whole = _plain(data)
    for b, block in enumerate(whole.blocks):
        for field in ("vars", "ops"):
            for i in range(len(getattr(block, field))):
                yield f"block {b}, {field} {i}", partial(_without, whole, b, field, i)
        for i, op in enumerate(block.ops):
            place = f"block {b}, op {i} {op.type}"
            for field in ("inputs", "outputs", "attrs"):
                for k in range(len(getattr(op, field))):
                    yield f"{place}, {field} {k}", partial(_without, whole, b, "ops", i, field, k)
                yield f"{place}, all {field}", partial(_without, whole, b, "ops", i, field)
            for side in ("inputs", "outputs"):
                for k in range(len(getattr(op, side))):
                    yield f"{place}, names in {side} {k}", partial(_without, whole, b, "ops", i, side, k, "arguments")
        for i in range(len(block.vars)):
            yield f"block {b}, type of variable {i}", partial(_without, whole, b, "vars", i, "type")
    for b in range(len(whole.blocks)):
        yield f"block {b}", partial(proto.write_program, proto.ProgramDesc(whole.blocks[:b] + whole.blocks[b + 1 :]))


def _without(whole: proto.ProgramDesc, block: int, *path: Any) -> bytes:
    """Returns a program without what a path of fields and indices leads to; a list that it ends at is emptied."""
    program = copy.deepcopy(whole)
    place: Any = program.blocks[block]
    *way, last = path
    for step in way:
        place = place[step] if isinstance(step, int) else getattr(place, step)
    if isinstance(last, int):
        del place[last]
    else:
        setattr(place, last, [] if isinstance(getattr(place, last), list) else None)
    return proto.write_program(program)


def absurd(data: bytes) -> Iterator[Case]:
    """Yields what was changed, and the program: each whole number of an attribute, each size, by each of :data:`NUMBERS`."""
    whole = _plain(data)
    for number, (b, block) in itertools.product(NUMBERS, enumerate(whole.blocks)):
        for i, op in enumerate(block.ops):
            for attr, field in itertools.product(op.attrs, ("i", "l", "ints", "longs")):
                value = getattr(attr, field)
                if value is None or (not isinstance(value, int) and not len(value)):
                    continue
                new = number if field in ("l", "longs") else max(-(2**31), min(number, 2**31 - 1))
                yield (
                    f"block {b}, op {i} {op.type}, {attr.name} = {new}",
                    partial(_with_number, whole, attr, field, new if isinstance(value, int) else [new, *value[1:]]),
                )
        for var in block.vars:
            holder = var.type.lod_tensor if var.type is not None else None
            tensor = None if holder is None else holder.tensor
            for k in range(0 if tensor is None else len(tensor.dims)):
                assert tensor is not None
                dims = [number if k == n else one for n, one in enumerate(tensor.dims)]
                yield (
                    f"block {b}, variable {var.name} of sizes {dims}",
                    partial(_with_number, whole, tensor, "dims", dims),
                )


def _with_number(whole: proto.ProgramDesc, part: Any, field: str, value: Any) -> bytes:
    """Returns a program with another value in one field of one part."""
    old = getattr(part, field)
    setattr(part, field, value)
    try:
        return proto.write_program(whole)
    finally:
        setattr(part, field, old)
