"""Computes a mixed-precision program's float16 values in float32, for a device without float16 arithmetic.

Numpy converts float16 in software: a step with casts took 6 times as long as one without. Paddle's CPU build inserts no casts at
all. What is left is what the program says in float32: the same operators without the casts; a fetched float16 value is rounded
when it is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.types import DType, Meta, float16, float32


def wide_halves(program: FrozenProgram) -> FrozenProgram:
    """Replaces float16 by float32 in a program that neither is fed float16 nor keeps any in variables; others stay as they are."""
    low = {value for value, meta in program.metas.items() if meta.dtype is float16}
    bound = {*program.feeds, *program.reads.values(), *program.writes.values(), *program.constants}
    if not low or low & bound or any(op.sub_blocks or op.body or _holds_bits(op) for op in program.ops):
        return program
    metas = {value: meta.with_dtype(float32) if value in low else meta for value, meta in program.metas.items()}
    names, alias = dict(program.names), dict[str, str]()
    kept = program.roots()
    ops = []
    for op in program.ops:
        inputs = tuple(_renamed(entry, alias) for entry in op.inputs)
        op = replace(op, inputs=inputs, attrs={name: _wide(value) for name, value in op.attrs.items()})
        # The cast that ends a parameter's gradient stays: replicas exchange what the operator with that role writes.
        if op.type == "cast" and not op.role_var and _is_copy(op, metas) and not kept.intersection(op.writes()) - low:
            alias[op.writes()[0]] = op.reads()[0]
            continue
        ops.append(op)
    fetches = []
    for name, value in program.fetches:
        source = alias.get(value, value)
        if value in low:
            rounded = f"{value}@float16"
            if rounded not in metas:
                metas[rounded], names[rounded] = metas[source].with_dtype(float16), name
                attrs = {"in_dtype": float32, "out_dtype": float16}
                ops.append(FrozenOp(op_def("cast"), (source,), (rounded,), op_def("cast").complete(attrs)))
            source = rounded
        fetches.append((name, source))
    return program.edit(ops=tuple(ops), metas=metas, names=names, fetches=tuple(fetches))


def _is_copy(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    return metas[op.reads()[0]].dtype is metas[op.writes()[0]].dtype


def _holds_bits(op: FrozenOp) -> bool:
    """Whether an op makes float16 from values that it is given as bytes."""
    return "values" in op.attrs and op.attrs.get("dtype") is float16


def _wide(value: Any) -> Any:
    return float32 if isinstance(value, DType) and value is float16 else value


def _renamed(entry: Entry, alias: Mapping[str, str]) -> Entry:
    if entry is None:
        return None
    if isinstance(entry, str):
        return alias.get(entry, entry)
    return tuple(alias.get(name, name) for name in entry)
