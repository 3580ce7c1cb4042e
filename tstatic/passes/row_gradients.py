"""Keeps gradients of large tables as the rows that a batch looked up, from the lookups to the update.

The backward op of a lookup makes a gradient of the whole table, zero but for a few rows, and everything up to the update reads
it: a step costs what the table costs. Where nothing needs the zeros, the rows alone say as much. The search is by meaning, not
by op type: an op may stand between lookup and update if, on samples, leaving out rows of zeros leaves out those rows of its
results and changes nothing else (casts, clipping, scaling, norms, checks for infinities).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import evaluate, infer_outputs
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, flat
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.ref import NO_REF
from tstatic.ir.traits import Pairwise, RowGradient
from tstatic.ir.types import Meta
from tstatic.ops.update._slots import ROW_MASK, ROWS

_LARGE = 1 << 16
"""Elements of a table from which rows are kept: a smaller one is updated sooner than rows are sorted."""

_SAMPLES = tuple(np.array(rows, np.float64) for rows in ([[3, 1], [2, 5]], [[-3, -1], [-2, -5]], [[0.5, -4], [-2, 1]]))
"""What an op is tried on, with and without a row of zeros between the rows."""


@dataclass
class _Table:
    """A table whose gradient may be kept as rows.

    Attributes:
        lookups: The backward ops of its lookups.
        values: Values that are zero outside of the rows looked up, as they are made.
        readers: Positions of the ops that read such values.
    """

    lookups: list[FrozenOp]
    values: dict[str, None] = field(default_factory=dict)
    readers: dict[int, None] = field(default_factory=dict)


def row_gradients(program: FrozenProgram) -> FrozenProgram:
    """Replaces gradients of whole tables by rows where nothing needs their zeros."""
    tables = {t: _Table(ops) for t, ops in _tables(program).items()}
    if not tables:
        return program
    roots = program.roots() | {v for op in program.ops if op.sub_blocks for v in op.reads()}
    readers: dict[str, list[int]] = {}
    for i, op in enumerate(program.ops):
        for value in set(op.reads()):
            readers.setdefault(value, []).append(i)
    makers = {v: op for op in program.ops for v in op.writes()}
    kept: dict[str, _Table] = {}
    for name, table in tables.items():
        if _follow(program, name, table, readers, makers, roots):
            kept[name] = table
    return _rewrite(program, kept) if kept else program


def _tables(program: FrozenProgram) -> dict[str, list[FrozenOp]]:
    """Returns the large tables by value, with the backward ops of their lookups, which agree on their attributes."""
    found: dict[str, list[FrozenOp]] = {}
    for op in program.ops:
        if not op.definition.has(RowGradient):
            continue
        table = _table(op)
        if (meta := program.metas.get(table)) is not None and meta.known and meta.numel >= _LARGE:
            found.setdefault(table, []).append(op)
    return {t: ops for t, ops in found.items() if len({(_makes(o).type, *_attrs(o).items()) for o in ops}) == 1}


def _makes(lookup: FrozenOp) -> OpDef:
    """Returns the op that makes the rows of a lookup's gradient."""
    return op_def(lookup.definition.needs(RowGradient).makes)


def _table(lookup: FrozenOp) -> str:
    entry = lookup.input(_makes(lookup).shape_only[0])
    assert isinstance(entry, str)
    return entry


def _attrs(lookup: FrozenOp) -> dict[str, Any]:
    """Returns the attributes of the op that makes the rows."""
    return {n: lookup.attrs[n] for n in _makes(lookup).attrs}


def _follow(
    program: FrozenProgram,
    name: str,
    table: _Table,
    readers: Mapping[str, list[int]],
    makers: Mapping[str, FrozenOp],
    roots: set[str],
) -> bool:
    """Collects what is made from a table's gradient up to its update; returns whether rows are enough for all of it.

    Args:
        program: The program.
        name, table: The table.
        readers: Value -> positions of the ops that read it.
        makers: Value -> the op that makes it.
        roots: Values that are needed as they are.
    """
    raw = [flat(op.outputs)[0] for op in table.lookups]
    start = raw[0]
    if len(raw) > 1:
        sums = {i for v in raw for i in readers.get(v, ())}
        if len(sums) != 1 or any(v in roots for v in raw):
            return False
        total = program.ops[sums.pop()]
        # Contributions from elsewhere, such as a product with the table, need the zeros.
        if not total.definition.has(Pairwise) or sorted(flat(total.inputs)) != sorted(raw):
            return False
        start = flat(total.outputs)[0]
    table.values[start] = None
    updated = False
    pending = [start]
    while pending:
        value = pending.pop()
        if value in roots:
            return False
        for i in readers.get(value, ()):
            op = program.ops[i]
            if _updates(op, name, value):
                mask = dict(_slots(op)).get(ROW_MASK)
                if mask is not None and not _same_rows(makers, mask, table.lookups):
                    return False
                updated = True
            else:
                made = _results(program, op, table.values)
                if made is None:
                    return False
                new = [v for v in made if v not in table.values]
                table.values.update(dict.fromkeys(new))
                pending += new
            table.readers[i] = None
    # Inputs of one op may have become rows after it was looked at.
    whole = all(
        _updates(program.ops[i], name) or _results(program, program.ops[i], table.values) is not None
        for i in table.readers
    )
    return updated and whole


def _slots(op: FrozenOp) -> Iterator[tuple[str, Entry]]:
    for slot, entry in zip(op.definition.inputs, op.inputs, strict=True):
        yield slot.name, entry


def _updates(op: FrozenOp, table: str, gradient: str | None = None) -> bool:
    """Returns whether an op updates the table by this gradient and leaves rows with a gradient of zero as they are."""
    named = dict(_slots(op))
    if ROWS not in named or named[ROWS] is not None or named["Param"] != table:
        return False
    if gradient is not None and (named["Grad"] != gradient or list(op.reads()).count(gradient) != 1):
        return False
    # Without lazy_mode, moments of all rows decay in every step.
    return "lazy_mode" not in op.attrs or (bool(op.attrs["lazy_mode"]) and named.get(ROW_MASK) is not None)


def _same_rows(made_by: Mapping[str, FrozenOp], mask: Entry, lookups: Sequence[FrozenOp]) -> bool:
    """Returns whether a mask of rows is made from what the lookups read: then the rows of the gradient say the same."""
    parts = [str(mask)]
    if (last := made_by.get(parts[0])) is not None and last.definition.has(Pairwise):
        parts = list(last.reads())
    counts = [made_by[v] for v in parts if v in made_by]
    read = [set(op.contents()) for op in lookups]
    return (
        len(counts) == len(parts)
        and len(parts) == len(lookups)
        and all(set(one.contents()) <= of for one, of in zip(counts, read, strict=True))
    )


def _results(program: FrozenProgram, op: FrozenOp, rows: Container[str]) -> list[str] | None:
    if op.sub_blocks:
        return None
    return results_by_rows(op.definition, op.inputs, op.outputs, op.attrs, program.metas.__getitem__, rows)


def results_by_rows(
    definition: OpDef,
    inputs: Sequence[Entry],
    outputs: Sequence[Entry],
    attrs: Mapping[str, Any],
    meta: Callable[[str], Meta],
    rows: Container[str],
) -> list[str] | None:
    """Returns which results of an op have rows of zeros where its inputs have, and are else the same without those rows.

    Args:
        definition, inputs, outputs, attrs: The op; an entry per slot.
        meta: Returns the metadata of a value.
        rows: The values that have the rows of zeros.

    Returns:
        Those results; ``None`` if another result depends on the rows of zeros.
    """
    if (
        definition.random or definition.objects or definition.dynamic or definition.collective or definition.update
        or definition.effects or definition.ref is NO_REF
    ):  # fmt: skip
        return None
    made: list[str] | None = None
    for sample in _SAMPLES:
        whole = np.concatenate([sample[:1], np.zeros((1, sample.shape[1])), sample[1:]])
        wanted = [e is not None for e in outputs]
        try:
            with np.errstate(all="ignore"):
                results = [
                    evaluate(definition, [_sample(meta, e, rows, one) for e in inputs], attrs, wanted)
                    for one in (whole, sample)
                ]
        except (TstaticError, ValueError, TypeError, IndexError):
            # The op is not for matrices of any number of rows.
            return None
        found = []
        for entry, *pair in zip(outputs, *results, strict=True):
            for value, long, short in zip(flat([entry]), *(_listed(v) for v in pair), strict=True):
                if long.shape == whole.shape and short.shape == sample.shape:
                    if long[1].any() or not np.array_equal(np.delete(long, 1, axis=0), short):
                        return None
                    found.append(value)
                elif long.shape != short.shape or not np.array_equal(long, short):
                    return None
        if made is not None and made != found:
            return None
        made = found
    return made


def _listed(value: Any) -> list[np.ndarray[Any, Any]]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _sample(meta: Callable[[str], Meta], entry: Entry, rows: Container[str], sample: np.ndarray[Any, Any]) -> Any:
    """Returns a value to try an input with: the sample for rows, one number for a number, a vector for any other tensor."""
    if entry is None:
        return None
    if not isinstance(entry, str):
        return [_sample(meta, one, rows, sample) for one in entry]
    known = meta(entry)
    if entry in rows:
        return sample.astype(known.dtype.np)
    return np.full(known.shape if known.numel == 1 else (3,), 0.75).astype(known.dtype.np)


def _rewrite(program: FrozenProgram, tables: Mapping[str, _Table]) -> FrozenProgram:
    metas, names = dict(program.metas), dict(program.names)
    rows_of: dict[str, str] = {}
    # The rows are made where the last lookup's gradient was, before all that reads them.
    last = {id(t.lookups[-1]): name for name, t in tables.items()}
    dropped = {id(op) for t in tables.values() for op in t.lookups}
    starts = {next(iter(t.values)) for t in tables.values()}
    ops: list[FrozenOp] = []
    for op in program.ops:
        if id(op) in last:
            name = last[id(op)]
            rows, made = _rows(op, name, tables[name], metas)
            rows_of[name], names[rows] = rows, rows
            ops.append(made)
        elif id(op) in dropped or starts.intersection(op.writes()):
            continue
        elif (param := dict(_slots(op)).get("Param")) in rows_of and op.definition.update:
            given = {ROWS: rows_of[str(param)], ROW_MASK: None}
            ops.append(replace(op, inputs=tuple(given.get(slot, entry) for slot, entry in _slots(op))))
        else:
            ops.append(op)
    return program.edit(ops=tuple(ops), metas=metas, names=names)


def _rows(op: FrozenOp, name: str, table: _Table, metas: dict[str, Meta]) -> tuple[str, FrozenOp]:
    """Returns the value of a table's rows, and the op that makes them and the rows of the gradient; notes their metadata."""
    makes, start = _makes(op), next(iter(table.values))
    rows = f"{start}@ROWS"
    inputs = tuple(
        tuple(flat([one.input(slot.name) for one in table.lookups])) if slot.many else op.input(slot.name)
        for slot in makes.inputs
    )
    read = [[metas[v] for v in entry] if isinstance(entry, tuple) else metas[str(entry)] for entry in inputs]
    metas[rows], found = infer_outputs(makes, read, _attrs(op))
    for value in table.values:
        metas[value] = metas[value].with_shape(found.shape)
    made = replace(op, definition=makes, inputs=inputs, outputs=(rows, start), attrs=_attrs(op), slot_names={})
    return rows, made
