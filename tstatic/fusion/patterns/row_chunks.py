"""Writes a group's ops over chunks of rows: slices of what has rows, the ops on each, and what puts the results together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.row_groups import SUM, WHOLE, WIDE, RowGroup, reshaped
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta


class Chunks:
    """Writes the ops of one group.

    Args:
        view: The program.
        metas: Metadata of all its values; those of new ones are added.
        names: Value -> variable, likewise.
        group: The group.
        sizes: Rows of each chunk.

    Attributes:
        ops: Those of the last pass.
        wide: The rows of classes of all chunks.
    """

    def __init__(
        self, view: View, metas: dict[str, Meta], names: dict[str, str], group: RowGroup, sizes: Sequence[int]
    ) -> None:
        self.view, self.metas, self.names, self.group = view, metas, names, group
        self.sizes = sizes
        self.ops: list[FrozenOp] = []
        self.wide: set[str] = set()
        self.flat: dict[str, str] = {}
        self.slices: dict[tuple[str, int], str] = {}

    def run(self, members: Sequence[int], visible: Collection[str]) -> list[FrozenOp]:
        """Returns the ops of one pass over all chunks.

        Args:
            members: What is computed of each chunk, in the program's order.
            visible: Results that others read, which are put together under their own names.
        """
        self.ops = []
        parts: dict[str, list[str]] = {v: [] for v in visible}
        totals: dict[str, str] = {}
        inside = {v for i in members for v in self.view.ops[i].writes()}
        for number in range(len(self.sizes)):
            local: dict[str, str] = {}
            for index in members:
                self._one(index, number, local, inside)
                self._collect(index, number, local, parts, totals)
        for value, pieces in parts.items():
            if self.group.kinds[value] != SUM:
                self._join(self.view.ops[self.view.maker[value]], value, pieces)
        return self.ops

    def _one(self, index: int, number: int, local: dict[str, str], inside: Collection[str]) -> None:
        """Writes one op of one chunk."""
        op = self.view.ops[index]

        def placed(value: str) -> str:
            kind = self.group.kinds.get(value, WHOLE)
            if value in inside:
                return local[value]
            return value if kind in (WHOLE, SUM) else self._slice(op, value, number)

        source = reshaped(self.view, op)
        if source is not None:
            # A chunk has two axes whatever shape the whole is given.
            local.update(dict.fromkeys(op.writes(), local[source]))
            return
        inputs = tuple(_each(entry, placed) for entry in op.inputs)
        outputs: list[Entry] = []
        for entry in op.outputs:
            kind = self.group.kinds.get(entry) if isinstance(entry, str) else None
            if not isinstance(entry, str) or kind is None:
                outputs.append(None)
                continue
            meta = self.metas[entry]
            shape = meta.shape if kind == SUM else self.group.shape(kind, self.sizes[number])
            local[entry] = self._new(f"{entry}@CHUNK{number}", meta.with_shape(shape))
            outputs.append(local[entry])
            if kind == WIDE:
                self.wide.add(local[entry])
        # A chunk has two axes: that of the classes is the last, with the rows in front of it.
        changed = {name: to for name, to in (("axis", -1), ("x_num_col_dims", 1)) if name in op.attrs}
        # What puts the chunks together completes a parameter's gradient, and no chunk does.
        self.ops.append(replace(op, inputs=inputs, outputs=tuple(outputs), attrs={**op.attrs, **changed}, role_var=()))

    def _collect(
        self, index: int, number: int, local: Mapping[str, str], parts: dict[str, list[str]], totals: dict[str, str]
    ) -> None:
        """Notes a chunk's results, and adds sums over its rows to those of the chunks before."""
        op = self.view.ops[index]
        for value in op.writes():
            if value not in parts:
                continue
            parts[value].append(local[value])
            if self.group.kinds[value] != SUM:
                continue
            before = totals.get(value)
            if before is None:
                totals[value] = local[value]
                continue
            # One after the other, in the order of the rows: the sum has the same bits in every run.
            last = number == len(self.sizes) - 1
            out = value if last else self._new(f"{value}@TOTAL{number}", self.metas[value])
            pairs = self._completed(op, value) if last else ()
            # In the place of the sum so far: a new one would take the room that the next chunk needs.
            self._add(op, "elementwise_add", (before, local[value]), out, {}, pairs)
            totals[value] = out

    def _completed(self, op: FrozenOp, value: str) -> tuple[str, ...]:
        """Returns the (parameter, gradient) of an op's pairs that a value completes."""
        pairs = [*zip(op.role_var[::2], op.role_var[1::2], strict=False)]
        name = self.view.program.names.get(value, value)
        return next(((p, g) for p, g in pairs if g == name), ())

    def _join(self, op: FrozenOp, value: str, pieces: Sequence[str]) -> None:
        """Puts the rows of all chunks together."""
        flat = self.group.shape(self.group.kinds[value], self.group.rows)
        meta = self.metas[value]
        pairs = self._completed(op, value)
        if meta.shape == flat:
            self._add(op, "concat", (tuple(pieces),), value, {"axis": 0}, pairs)
            return
        # Of two axes, as chunks are: a reshape gives it its own ones.
        whole = self._new(f"{value}@FLAT", meta.with_shape(flat))
        self._add(op, "concat", (tuple(pieces),), whole, {"axis": 0})
        self._add(op, "reshape2", (whole,), value, {"shape": meta.shape}, pairs)

    def _slice(self, op: FrozenOp, value: str, number: int) -> str:
        """Returns the rows of one chunk of a value; a view where the value lies in memory row by row."""
        # The backward pass reads what the forward one has cut.
        known = self.slices.get((value, number))
        if known is not None:
            return known
        meta = self.metas[value]
        kind = self.group.kinds[value]
        shape = self.group.shape(kind, self.group.rows)
        flat = value
        if meta.shape != shape:
            flat = self.flat.get(value, "")
            if not flat:
                flat = self.flat[value] = self._new(f"{value}@ROWS", meta.with_shape(shape))
                self._add(op, "reshape2", (value,), flat, {"shape": shape})
        start = sum(self.sizes[:number])
        end = start + self.sizes[number]
        part = self._new(f"{value}@ROWS{number}", meta.with_shape(self.group.shape(kind, self.sizes[number])))
        self._add(op, "slice", (flat,), part, {"axes": (0,), "starts": (start,), "ends": (end,)})
        self.slices[value, number] = part
        return part

    def _new(self, name: str, meta: Meta) -> str:
        while name in self.metas:
            name += "_"
        self.metas[name] = meta
        self.names[name] = name
        return name

    def _add(
        self,
        like: FrozenOp,
        kind: str,
        inputs: Sequence[Entry],
        out: str,
        attrs: Mapping[str, Any],
        pairs: tuple[str, ...] = (),
    ) -> None:
        """Appends an op at the user's line of another one."""
        definition = op_def(kind)
        empty: tuple[Entry, ...] = (None,) * (len(definition.inputs) - len(inputs))
        outputs = (out, *(None,) * (len(definition.outputs) - 1))
        attrs = definition.complete(attrs)
        made = FrozenOp(definition, (*inputs, *empty), outputs, attrs, like.role, pairs, like.where, like.position)
        self.ops.append(made)


def _each(entry: Entry, change: Callable[[str], str]) -> Entry:
    if entry is None:
        return None
    return change(entry) if isinstance(entry, str) else tuple(change(v) for v in entry)
