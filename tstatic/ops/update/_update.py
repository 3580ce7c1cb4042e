"""What the op definitions of optimizer updates share: inference, tiles, and flat blocks in the type that is computed in."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir import traits
from tstatic.ir.checks import ANY_RANK, FLOATS, INTEGERS, check_dtype, check_has_shape, check_one_element, check_rank
from tstatic.ir.expr import Node, variables
from tstatic.ir.expr_numpy import Code, compile_numpy
from tstatic.ir.formula import Numbers, UpdateFormula, compiled, evaluate
from tstatic.ir.opdef import (
    PARTIAL_SUM,
    WHOLE,
    Case,
    Domain,
    OpDef,
    Slot,
    Tile,
    ValueRange,
    parse_slots,
    register,
)
from tstatic.ir.recording import CALL_BYTES, Call
from tstatic.ir.ref import Attrs, Calls, Metas, Ref, Slots
from tstatic.ir.split import POINTWISE, along, row_parts
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.base.low import square_sum, store
from tstatic.ops.update._moved import Moved, MovedCode, bind_moved, moved_code
from tstatic.ops.update._slots import ROW_MASK, ROWS, SCALARS, TENSORS
from tstatic.ops.update._torch import with_out, with_rows, with_skip
from tstatic.tuned._common import BLOCK

Array = np.ndarray[Any, Any]


MOST_CODES = 1024
"""Of how many attributes and types an update keeps its code: a program has one or two of each, unless attributes change in turn."""


@dataclass(frozen=True)
class _PassCode:
    """One pass of an update as numpy code over one block.

    Its inputs are the blocks of all slots, then the numbers; its outputs the blocks of all slots, then those of ``squared``.

    Attributes:
        numbers: Names of the numbers with their expressions.
        values: ``(values by name) -> the numbers``.
        squares: Name of each sum of squares -> position of what is squared among the slots, and then among ``squared``.
        squared: How many values that no slot holds are squared.
    """

    code: Code
    numbers: Mapping[str, Node]
    values: Numbers
    squares: Mapping[str, int]
    squared: int

    @property
    def registers(self) -> int:
        return len(self.code.registers) + self.squared


class UpdateRef(Ref):
    """The reference of an optimizer op: its formula over flat arrays, whatever the dtypes and strides are.

    C-contiguous arrays of the computed type are passed as they are. Others go through blocks in the scratch space,
    which are rounded once when they are written back.
    """

    def __init__(self, formula: UpdateFormula) -> None:
        self.inputs, self.outputs = formula.inputs, formula.outputs
        self.formula = formula
        self.attrs = None
        self.pairs = tuple((o.removesuffix("Out"), o) for o in self.outputs)
        self.powers = frozenset(o for i, o in self.pairs if i in formula.numbers)
        self._known: OrderedDict[tuple[object, ...], tuple[list[_PassCode], list[MovedCode]]] = OrderedDict()

    def _computed(self, named: Mapping[str, Any]) -> np.dtype[Any]:
        """Returns the type that is computed in."""
        master = named.get("MasterParam")
        dtype = named["Param"].dtype if master is None else master.dtype
        found: np.dtype[Any] = dtype_of(dtype).compute.np
        return found

    def _codes(self, named: Mapping[str, Any], attrs: Attrs) -> tuple[list[_PassCode], list[MovedCode]]:
        """Returns the formula as numpy code; what was compiled before is found again."""
        given = frozenset(n for n, a in named.items() if a is not None)
        # By text: 0.0 and -0.0, or 1 and True, are equal but give different code. Numbers that move have types of their own.
        types = tuple(named[i].dtype for i, o in self.pairs if o in self.powers and named.get(i) is not None)
        key = given, self._computed(named), types, repr(sorted(attrs.items()))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._compiled(named, attrs, given), self._moved(named, attrs, given)
            if len(self._known) > MOST_CODES:
                self._known.popitem(last=False)
        return found

    def _passes(self, named: Mapping[str, Any], attrs: Attrs) -> list[_PassCode]:
        """Returns the passes of the formula."""
        return self._codes(named, attrs)[0]

    def _moved(self, named: Mapping[str, Any], attrs: Attrs, given: frozenset[str]) -> list[MovedCode]:
        """Returns the code of the numbers that the update moves on."""
        moved = self.formula.bind_attributes(attrs, given).moved
        return [
            moved_code(node, slot, dtype_of(named[slot.removesuffix("Out")].dtype).np) for slot, node in moved.items()
        ]

    def _compiled(self, named: Mapping[str, Any], attrs: Attrs, given: frozenset[str]) -> list[_PassCode]:
        compute = self._computed(named)
        slots = list(self._bodies(named))
        # Formulas call the master `param`.
        places = {n.replace("MasterParam", "Param").lower(): i for i, n in enumerate(slots)}
        found = []
        for one in self.formula.bind_attributes(attrs, given).passes():
            outputs = {places[n.lower()]: node for n, node in one.outputs.items()}
            squares: dict[str, int] = {}
            for name, node in one.squares.items():
                # Squares of an expression take a block of their own, behind those of the slots.
                squares[name] = places[node.value] if node.op == "var" else len(slots) + len(outputs) - len(one.outputs)
                if node.op != "var":
                    outputs[squares[name]] = node
            inputs = {n: (i, compute) for i, n in enumerate((*places, *one.numbers))}
            unknown = {v for node in outputs.values() for v in variables(node)} - inputs.keys()
            if unknown:
                lacking = [n for n in (*self.inputs, *self.outputs) if n.lower() in unknown] or sorted(unknown)
                raise ProgramError(
                    f"an update lacks the slot '{lacking[0]}', which its attributes need",
                    expected=f"a variable in '{lacking[0]}'",
                    received=f"variables in {', '.join(n for n, a in named.items() if a is not None)}",
                    fix=f"give the operator '{lacking[0]}', or change its attributes",
                )
            # A new value may lie in the memory of the old one: parameters and moments are updated in place.
            pairs = {i: slots.index(o.removesuffix("Out")) for i, o in enumerate(slots) if o in self.outputs}
            code = compile_numpy(outputs, inputs, dict.fromkeys(outputs, compute), {}, pairs)
            assert not _reads_overwritten(code, pairs), "a term reads a slot after its new value was written"
            found.append(
                _PassCode(
                    code, one.numbers, compiled(list(one.numbers.values())), squares, len(outputs) - len(one.outputs)
                )
            )
        return found

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        """Returns blocks of the code, one for each array that cannot be used as it is, and the rows that a lazy update gathers."""
        named = self._named(ins, outs)
        param = named["Param"]
        assert param is not None
        compute = dtype_of(self._computed(named))
        # A size that is unknown makes the count negative.
        size = (min(max(param.numel, 0), BLOCK),)
        bodies = self._bodies(named)
        odd = [n for n, m in bodies.items() if n in self.inputs and m.dtype != compute]
        blocks = [
            Meta(size, dtype_of(d))
            for one in self._passes(named, attrs)
            for d in (*one.code.registers, *(compute.np,) * one.squared)
        ]
        blocks += [Meta(size, compute) for _ in odd]
        if self._by_rows(named, attrs):
            rows, width = _rows_of(param.shape)
            rows = min(rows, _rows_at_once(width))
            blocks += [Meta((rows, *param.shape[1:]), m.dtype) for _, m in self._tables(named)]
        return tuple(blocks)

    @staticmethod
    def _by_rows(named: Mapping[str, Any], attrs: Mapping[str, Any]) -> bool:
        """Returns whether only some rows are updated."""
        lazy = bool(attrs.get("lazy_mode")) and named.get(ROW_MASK) is not None
        return lazy or named.get(ROWS) is not None

    def _tables(self, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Returns the inputs of the parameter's shape, by slot."""
        other = (*SCALARS, ROW_MASK, ROWS, *(("Grad",) if named.get(ROWS) is not None else ()))
        return [(n, named[n]) for n in self.inputs if n not in other and named.get(n) is not None]

    def _bodies(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what the formula works on: no numbers, and the master parameter in the place of the parameter."""
        left_out = {
            *SCALARS,
            ROW_MASK,
            ROWS,
            *self.powers,
            *(("Param", "ParamOut") if named.get("MasterParam") is not None else ()),
        }
        return {n: a for n, a in named.items() if a is not None and n not in left_out}

    def _named(self, ins: Sequence[Any], outs: Sequence[Any]) -> dict[str, Any]:
        return dict(zip((*self.inputs, *self.outputs), (*ins, *outs), strict=True))

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        """Returns the one call of a step: it reads the numbers, then runs the arithmetic, which is bound here.

        Only the rows that are gathered are known no sooner than in the step.
        """
        named = self._named(ins, outs)
        step = _UpdateStep()
        if named["ParamOut"] is not None:
            compute = self._computed(named)
            codes = self._passes(named, attrs)
            step.passes = [
                _Pass(one, [np.empty((), compute) for _ in one.numbers], dict.fromkeys(one.squares, 0.0))
                for one in codes
            ]
            if self._by_rows(named, attrs):
                # A second pass needs sums over the whole parameter, which some of its rows do not give.
                assert len(step.passes) == 1
                # Which rows are gathered depends on values, so the calls are made in the step.
                step.passes[0].calls = [(self._update_rows, (named, step, scratch))]
            else:
                for one, calls in zip(step.passes, self._calls(named, step, scratch), strict=True):
                    one.calls = calls
        step.skip = named.get("SkipUpdate")
        step.read = [(TENSORS.get(n, n.lower()), named[n]) for n in self.formula.numbers if named.get(n) is not None]
        # A skipped step writes the old values where an output has memory of its own.
        step.kept = [
            (np.copyto, (named[target], named[source]))
            for source, target in self.pairs
            if named[target] is not None and named[target] is not named[source]
        ]
        # After the formula has read them: input and output may be one array.
        for moved in self._codes(named, attrs)[1]:
            step.moved.append(bind_moved(moved, named[moved.slot.removesuffix("Out")], named[moved.slot]))
        return [(step.run, ())]

    def _calls(self, named: Mapping[str, Any], step: _UpdateStep, scratch: Sequence[Array]) -> list[Calls]:
        """Returns the calls of each pass, over all blocks."""
        compute = self._computed(named)
        bodies = self._bodies(named)
        source = "Param" if named.get("MasterParam") is None else "MasterParam"
        target = f"{source}Out"
        assert target in bodies, f"{target} must be written"
        total = bodies[source].size
        odd = [n for n, a in bodies.items() if not (a.dtype == compute and a.flags.c_contiguous)]
        used = sum(one.code.registers for one in step.passes)
        own, spare = list(scratch[:used]), list(scratch[used:])
        buffers: dict[str, Array] = {}
        # Inputs come before outputs, so an output finds the buffer of the value that it replaces.
        for n in odd:
            known = buffers.get(n.removesuffix("Out")) if n in self.outputs else spare.pop() if spare else None
            buffers[n] = np.empty(min(total, BLOCK), compute) if known is None else known
        found: list[Calls] = []
        for turn, one in enumerate(step.passes):
            last = turn == len(step.passes) - 1
            registers, own = own[: one.code.registers], own[one.code.registers :]
            calls: Calls = []
            # Each block goes through all instructions while it is in the cache, so memory is read and written once.
            for at in range(0, total, BLOCK):
                part = slice(at, min(at + BLOCK, total))
                size = part.stop - at
                views = {n: buffers[n][:size] if n in buffers else a.reshape(-1)[part] for n, a in bodies.items()}
                for n in odd:
                    # A second pass reads what the first stored. The
                    # parameter's new value is not stored before the last pass.
                    if n in self.inputs or (turn and n != target):
                        calls.append(_load(views[n], bodies[n], part))
                calls += one.block([*views.values()], [r[:size] for r in registers])
                for n in odd:
                    if n in self.outputs and (last or n != target):
                        calls.append(_store(bodies[n], part, views[n]))
                # The parameter is the master rounded once, in the same block while it is in the cache.
                if last and source == "MasterParam":
                    calls.append(_store(named["ParamOut"], part, views[target]))
            found.append(calls)
        return found

    def _update_rows(self, named: Mapping[str, Any], step: _UpdateStep, scratch: Sequence[Array]) -> None:
        """Updates gathered rows in blocks, and puts them back."""
        tables = dict(self._tables(named))
        outs = [(o, named[o]) for i, o in self.pairs if i in tables and named[o] is not None]
        for o, out in outs:
            _copy_unless_same(tables[o.removesuffix("Out")], out)
        own, buffers = scratch[: len(scratch) - len(tables)], scratch[len(scratch) - len(tables) :]
        grad, by_rows = named["Grad"], named.get(ROWS) is not None
        for start, rows in _row_parts(named):
            for at in range(0, rows.size, max(1, buffers[0].shape[0])):
                index = rows[at : at + buffers[0].shape[0]]
                part = dict(named)
                for (n, table), buffer in zip(tables.items(), buffers, strict=True):
                    # Indices are in range; `clip` spares the buffer that `raise` needs for `out`.
                    part[n] = np.take(table, index, axis=0, out=buffer[: index.size], mode="clip")
                if by_rows:
                    part["Grad"] = grad[start + at : start + at + index.size]
                part |= {o: part[o.removesuffix("Out")] for o, _ in outs}
                (calls,) = self._calls(part, step, own)
                for function, args in calls:
                    function(*args)
                for o, out in outs:
                    out[index] = part[o]


def _row_parts(named: Mapping[str, Any]) -> Iterator[tuple[int, Array]]:
    """Yields the rows to update in parts, each with the place of its first row in ``Rows``."""
    rows, mask = named.get(ROWS), named.get(ROW_MASK)
    if rows is not None:
        yield 0, rows[: np.searchsorted(rows, named["Param"].shape[0])]
        return
    assert mask is not None
    for start in range(0, mask.size, BLOCK):
        # By blocks of the mask: a list of all rows would need memory for the largest table.
        found = np.flatnonzero(mask[start : start + BLOCK])
        found += start
        yield 0, found


@dataclass(slots=True)
class _Pass:
    """One pass over the blocks, bound to arrays.

    Attributes:
        numbers: Arrays of no dimension for the code's numbers.
        sums: Sums of squares of this step.
    """

    code: _PassCode
    numbers: list[Array]
    sums: dict[str, float]
    calls: Calls = field(default_factory=list)

    def block(self, views: list[Array], registers: Sequence[Array]) -> Calls:
        """Returns the calls over one block."""
        scratch, squared = registers[: len(self.code.code.registers)], registers[len(self.code.code.registers) :]
        outs = [*views, *squared]
        calls: Calls = self.code.code.bind_operands([*views, *self.numbers], outs, scratch)
        return [*calls, *((self.add_squares, (name, outs[at])) for name, at in self.code.squares.items())]

    def add_squares(self, name: str, values: Array) -> None:
        # A dot in the computed type per block; blocks are added in float64, in their order.
        self.sums[name] += square_sum(values)


class _UpdateStep:
    """One update bound to arrays.

    Attributes:
        passes: The formula with its arithmetic.
        skip: A truth value: this step changes nothing.
        read: Names and arrays of the numbers that are read in each step.
        kept: Calls in the place of all others in a step that changes nothing.
        moved: Numbers that the update moves on.
    """

    __slots__ = ("kept", "moved", "passes", "read", "skip")

    def __init__(self) -> None:
        self.passes: list[_Pass] = []
        self.skip: Array | None = None
        self.read: list[tuple[str, Array]] = []
        self.kept: Calls = []
        self.moved: list[Moved] = []

    def kept_bytes(self) -> int:
        """Returns about how many bytes its calls keep."""
        made = [*(one.calls for one in self.passes), *(one.calls for one in self.moved)]
        return CALL_BYTES * sum(len(calls) + 1 for calls in made)

    def run(self) -> None:
        """Runs one step."""
        # Nothing else is read: gradients of a skipped step may be NaN.
        if self.skip is not None and self.skip.item():
            for function, args in self.kept:
                function(*args)
            return
        known: dict[str, float] = {}
        # Numbers are computed in float64 and rounded once, to the type of the arrays.
        for name, array in self.read:
            known[name] = float(array.item())
        for one in self.passes:
            if one.numbers:
                try:
                    numbers = one.code.values(known)
                # Python raises where IEEE 754 has an infinity or NaN; the slow form gives those, and is rarely needed.
                except (ArithmeticError, ValueError):
                    numbers = evaluate(list(one.code.numbers.values()), known)
                for array, number in zip(one.numbers, numbers, strict=True):
                    array.fill(number)
            for name in one.sums:
                one.sums[name] = 0.0
            for function, args in one.calls:
                function(*args)
            known |= one.sums
        for moved in self.moved:
            if moved.constants:
                for constant, value in zip(moved.constants, moved.values(known), strict=True):
                    constant.fill(value)
            for function, args in moved.calls:
                function(*args)


def _reads_overwritten(code: Code, pairs: Mapping[int, int]) -> bool:
    """Returns whether an instruction reads an input whose memory an earlier one may have overwritten, as inputs may be outputs."""
    written: set[int] = set()
    for instruction in code.instructions:
        if any(o.kind == "in" and o.index in written for o in instruction.operands):
            return True
        target = instruction.operands[0 if instruction.function is np.copyto else -1]
        if target.kind == "out" and target.index in pairs:
            written.add(pairs[target.index])
    return False


def _load(view: Array, array: Array, part: slice) -> Call:
    """Returns the call that copies values of an array, by their positions in C order, to a flat buffer of another type."""
    if array.flags.c_contiguous:
        return np.copyto, (view, array.reshape(-1)[part], "unsafe")
    return _load_strided, (view, array, part)


def _load_strided(view: Array, array: Array, part: slice) -> None:
    view[...] = array.flat[part]


def _store(array: Array, part: slice, values: Array) -> Call:
    """Returns the call that writes flat values to positions in C order, rounded to the array's type."""
    if array.flags.c_contiguous:
        return np.copyto, (array.reshape(-1)[part], values, "unsafe")
    return store, (array, part, values)


def _rows_of(shape: Sequence[int]) -> tuple[int, int]:
    """Returns rows and their width; a row of a vector is one number."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def _rows_at_once(width: int) -> int:
    return max(1, BLOCK // max(width, 1))


def _copy_unless_same(x: Array, out: Array) -> None:
    # A plan makes several arrays over the memory of one value.
    if x is not out and not (x.ctypes.data == out.ctypes.data and x.strides == out.strides):
        np.copyto(out, x)


def _infer(
    op: str,
    inputs: tuple[Slot, ...],
    outputs: tuple[Slot, ...],
    needs: Mapping[str, str],
    *metas: Meta | None,
    **attrs: Any,
) -> tuple[Any, ...]:
    named = dict(zip((s.name for s in inputs), metas, strict=True))
    for attr, slot in needs.items():
        if attrs[attr] and named[slot] is None:
            raise ProgramError(
                f"'{op}' with {attr}={attrs[attr]} needs the slot '{slot}'",
                expected=f"a variable in '{slot}', of the parameter's shape",
                received="none",
                fix=f"give the operator '{slot}' and '{slot}Out', or leave {attr} off",
                op=op,
            )
    param = named["Param"]
    assert param is not None
    check_dtype(param, FLOATS, "Param", op, fix="set trainable=False for a parameter that is not a float")
    for name, meta in named.items():
        if meta is None:
            continue
        if name in SCALARS:
            check_one_element(meta, name, op)
        elif name == ROW_MASK:
            fix = "pass what operator 'embedding_rows' makes"
            check_rank(param, range(1, ANY_RANK), "Param", op, layout="[rows, ...]", fix="leave out the RowMask")
            check_has_shape(meta, param.shape[:1], name, op, why="one number per row of the parameter", fix=fix)
        elif name == ROWS:
            check_rank(meta, (1,), name, op, layout="[rows of the gradient]")
            check_dtype(meta, INTEGERS, name, op)
        elif name == "Grad" and (rows := named.get(ROWS)) is not None:
            want = (*rows.shape, *param.shape[1:])
            check_has_shape(
                meta, want, name, op, why="one row for each of Rows", fix="pass what 'embedding_grad_rows' makes"
            )
        else:
            fix = "make accumulators and gradients of the parameter's own shape"
            check_has_shape(meta, param.shape, name, op, why="that of the parameter", fix=fix)
    grad, master = named["Grad"], named.get("MasterParam")
    assert grad is not None
    # Beside a float32 copy the gradient may have either type.
    accepted = [m.dtype.name for m in (param, master) if m is not None]
    fix = f"convert the gradient to the parameter's dtype: paddle.cast(grad, '{param.dtype.name}')"
    check_dtype(grad, accepted, "Grad", op, fix=fix)
    return tuple(named.get(o.name.removesuffix("Out")) for o in outputs)


def _split(inputs: tuple[str, ...], outputs: tuple[str, ...], powers: frozenset[str], *metas: Meta | None) -> Any:
    param = metas[inputs.index("Param")]
    assert param is not None
    axis, parts = row_parts(param.shape, POINTWISE)
    # A few rows of a table are not worth cutting.
    if parts is None or (ROWS in inputs and metas[inputs.index(ROWS)] is not None):
        return None
    tiles: list[Tile] = []
    for i, part in enumerate(along(axis, p) for p in parts):
        row: list[Any] = []
        for name, meta in zip((*inputs, *outputs), metas, strict=True):
            if meta is None:
                row.append(None)
            elif name in powers:
                # Other tiles still read the power, so it is written when all are done; the first tile computes it.
                row.append(PARTIAL_SUM if i == 0 else None)
            elif name == ROW_MASK:
                row.append(part[:1])
            elif name == ROWS:
                row.append(None)
            else:
                row.append(WHOLE if name in SCALARS else part)
        tiles.append(tuple(row))
    return tiles


def register_update(
    type: str,
    slots: str,
    attrs: Mapping[str, Any],
    texts: Mapping[str, str],
    lower: Callable[..., Any],
    domain: Domain,
    needs: Mapping[str, str] | None = None,
    rows: bool = False,
    write: Callable[..., bool] | None = None,
) -> OpDef:
    """Registers the op definition of an update: outputs ``XOut`` are the new values of inputs ``X``, which they may overwrite.

    Args:
        type: Op type.
        slots: Its slots; ``SkipUpdate`` is added if absent: a truth value by which a step leaves all state as it is.
        attrs: Its attributes.
        texts: Its formula (:class:`~tstatic.ir.formula.UpdateFormula`); with a master parameter, ``param`` and ``ParamOut`` are
            the master's. If it needs one pass over the elements, the work may be cut.
        lower: The torch form, without ``SkipUpdate``.
        domain: Where tests may sample; the first case is tried with ``SkipUpdate``, too.
        needs: Attribute -> optional input slot that must be given if the attribute is true.
        rows: A gradient of zero leaves a row as it is (with ``lazy_mode``, where there is such an attribute): the slot
            :data:`ROWS` is added.
        write: Writes the results of ``lower`` in place, with few calls (:func:`~tstatic.ops.update._torch.with_out`).
    """
    if "SkipUpdate" not in slots:
        slots = slots.replace(" ->", ", SkipUpdate? ->", 1)
    if rows:
        slots = slots.replace(" ->", f", {ROWS}? ->", 1)
    ins, outs = parse_slots(slots)
    in_names, out_names = tuple(s.name for s in ins), tuple(s.name for s in outs)
    numbers = tuple(n for n in SCALARS if n in in_names and n != "SkipUpdate")
    formula = UpdateFormula(in_names, out_names, texts, numbers, {n: a for n, a in TENSORS.items() if n in in_names})
    ref = UpdateRef(formula)
    assert all(i in in_names for i, _ in ref.pairs), type

    form = with_skip(lower, ref.pairs, in_names)
    if rows:
        form = with_rows(form, ref.pairs, in_names)
    if write is not None:
        form = with_out(form, write, [i for i, n in enumerate(in_names) if n in ("SkipUpdate", ROWS)])

    def split(*metas: Any) -> list[Tile] | None:
        tiles: list[Tile] | None = _split(in_names, out_names, ref.powers, *metas)
        return tiles

    return register(
        OpDef(
            type,
            slots,
            attrs=attrs,
            infer=functools.partial(_infer, type, ins, outs, needs or {}),
            ref=ref,
            lower=form,
            # Sums of squares over the whole parameter come before its update, so a tile cannot do both.
            split=split if formula.single_pass else None,
            state=ref.pairs,
            traits=(traits.Numbers(tuple(i for i, o in ref.pairs if o in ref.powers)),),
            inplace=ref.pairs,
            update=True,
            formula=formula,
            uses_blas=not formula.single_pass,
            domain=_with_skip(domain, in_names.index("SkipUpdate")),
        )
    )


def _with_skip(domain: Domain, at: int) -> Domain:
    """Adds a case like the first in which the input at a position says whether the step is skipped."""
    skipped = [Case((*c.shapes, *(None,) * (at - len(c.shapes)), (1,)), c.attrs) for c in domain.cases[:1]]
    values = {**domain.values, "SkipUpdate": ValueRange(dtype="bool")}
    return replace(domain, cases=(*domain.cases, *skipped), values=values)
