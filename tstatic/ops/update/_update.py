"""What the op definitions of optimizer updates share: inference, tiles, and flat blocks in the type that is computed in."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, Attr, Domain, OpDef, Slot, Tile, parse_slots, register
from tstatic.ir.ref import Attrs, Call, Calls, Metas, Ref, Slots
from tstatic.ir.split import POINTWISE, along, row_parts
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.ops._flat import store
from tstatic.tuned._common import BLOCK
from tstatic.tuned.update import Scalars

Array = np.ndarray[Any, Any]


SCALARS = ("LearningRate", "Beta1Pow", "Beta2Pow", "SkipUpdate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor")
"""Input slots that hold one number."""

MULTI_PRECISION = Attr.idle(False, "the slot MasterParam says whether there is a float32 copy")

ROW_MASK = "RowMask"
"""Input slot of updates with ``lazy_mode``: one number per row of the parameter; rows where it is zero are left alone."""


def same_sizes(a: Meta, b: Meta) -> bool:
    """Whether two shapes agree as far as they are known."""
    return a.rank == b.rank and all(x == y or UNKNOWN in (x, y) for x, y in zip(a.shape, b.shape, strict=True))


@dataclass(frozen=True)
class Values:
    """Flat arrays of one block of an update, by slot name; ``p`` is the master parameter where there is one."""

    named: Mapping[str, Array]
    p: Array
    out_p: Array

    def __getitem__(self, slot: str) -> Array:
        return self.named[slot]


@dataclass(frozen=True)
class Rule:
    """One pass of an update over the blocks of its arrays.

    Attributes:
        scalars: Names of the numbers that the calls use.
        numbers: ``(attributes and numbers of the scalar slots) -> values`` of ``scalars``; runs once in every step. It may
            set further entries of its argument.
        calls: ``(arrays, scalars, attributes, scratch blocks) -> calls`` that update one block; runs once per plan, so only
            attributes may decide here, never numbers.
    """

    scalars: tuple[str, ...]
    numbers: Callable[[dict[str, Any]], Sequence[float]]
    calls: Callable[[Values, Scalars, dict[str, Any], Sequence[Array]], Calls]


TENSORS = {"Beta1Tensor": "beta1", "Beta2Tensor": "beta2", "EpsilonTensor": "epsilon"}
"""Scalar slots that take the place of an attribute."""


class UpdateRef(Ref):
    """The reference of an optimizer op: one rule over flat arrays, whatever the dtypes and strides are.

    C-contiguous arrays of the computed type are passed as they are. Others go through blocks in the scratch space,
    which are rounded once when they are written back.

    Args:
        slots: Slots of the op definition.
        rules: The rule on flat arrays: one pass, or several over all blocks. Only the last may write the parameter.
        blocks: Scratch blocks that the rule needs.
        powers: Output slot -> (input slot, attribute): a number that is multiplied by an attribute.
    """

    def __init__(self, slots: str, rules: Sequence[Rule], blocks: int, powers: Mapping[str, tuple[str, str]]) -> None:
        self.inputs, self.outputs = (tuple(s.name for s in side) for side in parse_slots(slots))
        self.rules = tuple(rules)
        self.blocks = blocks
        self.powers = powers
        self.attrs = None
        self.pairs = tuple((o.removesuffix("Out"), o) for o in self.outputs)

    def _computed(self, named: Mapping[str, Any]) -> np.dtype[Any]:
        """The type that is computed in."""
        master = named.get("MasterParam")
        dtype = named["Param"].dtype if master is None else master.dtype
        found: np.dtype[Any] = dtype_of(dtype).compute.np
        return found

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        """Blocks of the rule, one for each array that cannot be used as it is, and the rows that a lazy update gathers."""
        named = self._named(ins, outs)
        param = named["Param"]
        assert param is not None
        compute = dtype_of(self._computed({n: m for n, m in named.items() if m is not None and n in self.inputs}))
        block: Meta = Meta((min(max(param.numel, 0), BLOCK),), compute)
        bodies = self._bodies(named)
        odd = [n for n, m in bodies.items() if n in self.inputs and m.dtype != compute]
        found = (block,) * (self.blocks + len(odd))
        if not self._lazy(named, attrs):
            return found
        rows, width = _rows_of(param.shape)
        return (
            *found,
            *(Meta((min(rows, _rows_at_once(width)), *param.shape[1:]), m.dtype) for _, m in self._tables(named)),
        )

    @staticmethod
    def _lazy(named: Mapping[str, Any], attrs: Mapping[str, Any]) -> bool:
        return bool(attrs.get("lazy_mode")) and named.get(ROW_MASK) is not None

    def _tables(self, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The inputs of the parameter's shape, by slot."""
        return [(n, named[n]) for n in self.inputs if n not in (*SCALARS, ROW_MASK) and named.get(n) is not None]

    def _bodies(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """What the rule works on: no numbers, and the master parameter in the place of the parameter."""
        left_out = {
            *SCALARS,
            ROW_MASK,
            *self.powers,
            *(("Param", "ParamOut") if named.get("MasterParam") is not None else ()),
        }
        return {n: a for n, a in named.items() if a is not None and n not in left_out}

    def _named(self, ins: Sequence[Any], outs: Sequence[Any]) -> dict[str, Any]:
        return dict(zip((*self.inputs, *self.outputs), (*ins, *outs), strict=True))

    def bind(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        """Returns the one call of a step: it reads the numbers, then runs the arithmetic, which is bound here.

        Only the rows that a lazy update gathers are known no sooner than in the step.
        """
        named = self._named(ins, outs)
        step = _UpdateStep(dict(attrs))
        if named["ParamOut"] is not None:
            compute = self._computed(named)
            step.passes = [_Pass(rule, {n: np.empty((), compute) for n in rule.scalars}) for rule in self.rules]
            if self._lazy(named, attrs):
                assert len(step.passes) == 1
                step.passes[0].calls = [(self._update_rows, (named, step, scratch))]
            else:
                for one, calls in zip(step.passes, self._calls(named, step, scratch), strict=True):
                    one.calls = calls
        step.skip = named.get("SkipUpdate")
        step.read = [(TENSORS.get(n, n), named[n]) for n in SCALARS if n != "SkipUpdate" and named.get(n) is not None]
        step.kept = [
            (np.copyto, (named[target], named[source]))
            for source, target in self.pairs
            if named[target] is not None and named[target] is not named[source]
        ]
        # After the rule has read them: input and output may be one array.
        for target, (source, attr) in self.powers.items():
            if named[target] is not None:
                factor = np.full((), 1.0 if attrs.get("use_global_beta_pow") else attrs[attr], named[source].dtype)
                if not attrs.get("use_global_beta_pow"):
                    step.factors.append((factor, attr))
                step.after.append((np.multiply, (named[source], factor, named[target])))
        return [(step.run, ())]

    def _calls(self, named: Mapping[str, Any], step: _UpdateStep, scratch: Sequence[Array]) -> list[Calls]:
        """The calls of each pass, over all blocks."""
        compute = self._computed(named)
        bodies = self._bodies(named)
        source = "Param" if named.get("MasterParam") is None else "MasterParam"
        target = f"{source}Out"
        assert target in bodies, f"{target} must be written"
        total = bodies[source].size
        odd = [n for n, a in bodies.items() if not (a.dtype == compute and a.flags.c_contiguous)]
        own, spare = scratch[: self.blocks], list(scratch[self.blocks :])
        buffers: dict[str, Array] = {}
        # Inputs come before outputs, so an output finds the buffer of the value that it replaces.
        for n in odd:
            known = buffers.get(n.removesuffix("Out")) if n in self.outputs else spare.pop() if spare else None
            buffers[n] = np.empty(min(total, BLOCK), compute) if known is None else known
        found: list[Calls] = []
        for turn, one in enumerate(step.passes):
            last = turn == len(step.passes) - 1
            calls: Calls = []
            for at in range(0, total, BLOCK):
                part = slice(at, min(at + BLOCK, total))
                views = {
                    n: buffers[n][: part.stop - at] if n in buffers else a.reshape(-1)[part] for n, a in bodies.items()
                }
                for n in odd:
                    if n in self.inputs or (turn and n != target):
                        calls.append(_load(views[n], bodies[n], part))
                calls += one.rule.calls(Values(views, views[source], views[target]), one.scalars, step.known, own)
                for n in odd:
                    if n in self.outputs and (last or n != target):
                        calls.append(_store(bodies[n], part, views[n]))
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
        mask = named[ROW_MASK]
        for start in range(0, mask.size, BLOCK):
            rows = np.flatnonzero(mask[start : start + BLOCK])
            rows += start
            for at in range(0, rows.size, max(1, buffers[0].shape[0])):
                index = rows[at : at + buffers[0].shape[0]]
                part = dict(named)
                for (n, table), buffer in zip(tables.items(), buffers, strict=True):
                    part[n] = np.take(table, index, axis=0, out=buffer[: index.size], mode="clip")
                part |= {o: part[o.removesuffix("Out")] for o, _ in outs}
                (calls,) = self._calls(part, step, own)
                for function, args in calls:
                    function(*args)
                for o, out in outs:
                    out[index] = part[o]


@dataclass(slots=True)
class _Pass:
    rule: Rule
    scalars: dict[str, Array]
    calls: Calls = field(default_factory=list)


class _UpdateStep:
    """One update bound to arrays.

    Attributes:
        known: The attributes, and the numbers that are read in each step.
        passes: The rules with their arithmetic.
        skip: A truth value: this step changes nothing.
        read: Names and arrays of the numbers.
        kept: Calls in the place of all others in a step that changes nothing.
        factors, after: Numbers that an attribute, or what is read for it, gives, and the calls that multiply by them.
    """

    __slots__ = ("after", "factors", "kept", "known", "passes", "read", "skip")

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self.passes: list[_Pass] = []
        self.skip: Array | None = None
        self.read: list[tuple[str, Array]] = []
        self.kept: Calls = []
        self.factors: list[tuple[Array, str]] = []
        self.after: Calls = []

    def run(self) -> None:
        """One step."""
        if self.skip is not None and self.skip.item():
            for function, args in self.kept:
                function(*args)
            return
        known = self.known
        for name, array in self.read:
            known[name] = float(array.item())
        for one in self.passes:
            for scalar, number in zip(one.scalars.values(), one.rule.numbers(known), strict=True):
                scalar.fill(number)
            for function, args in one.calls:
                function(*args)
        for factor, attr in self.factors:
            factor.fill(known[attr])
        for function, args in self.after:
            function(*args)


def _load(view: Array, array: Array, part: slice) -> Call:
    """The call that copies values of an array, by their positions in C order, to a flat buffer of another type."""
    if array.flags.c_contiguous:
        return np.copyto, (view, array.reshape(-1)[part], "unsafe")
    return _load_strided, (view, array, part)


def _load_strided(view: Array, array: Array, part: slice) -> None:
    view[...] = array.flat[part]


def _store(array: Array, part: slice, values: Array) -> Call:
    """The call that writes flat values to positions in C order, rounded to the array's type."""
    if array.flags.c_contiguous:
        return np.copyto, (array.reshape(-1)[part], values, "unsafe")
    return store, (array, part, values)


def _rows_of(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and their width; a row of a vector is one number."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def _rows_at_once(width: int) -> int:
    return max(1, BLOCK // max(width, 1))


def _copy_unless_same(x: Array, out: Array) -> None:
    if x is not out and not (x.ctypes.data == out.ctypes.data and x.strides == out.strides):
        np.copyto(out, x)


def _infer(op: str, inputs: tuple[Slot, ...], outputs: tuple[Slot, ...], *metas: Meta | None) -> tuple[Any, ...]:
    named = dict(zip((s.name for s in inputs), metas, strict=True))
    param = named["Param"]
    assert param is not None
    if not param.dtype.is_float:
        raise DTypeError(
            "only floating-point parameters can be updated",
            expected="a float dtype",
            received=f"Param of {param.dtype.name}",
            fix="set trainable=False for this parameter",
            op=op,
        )
    for name, meta in named.items():
        if meta is None:
            continue
        if name in SCALARS:
            if meta.known and meta.numel != 1:
                raise ShapeError(
                    f"'{name}' of '{op}' must be one number",
                    expected="shape [] or [1]",
                    received=list(meta.shape),
                    fix="pass a Variable with one element",
                    op=op,
                )
        elif name == ROW_MASK:
            if param.rank == 0 or not same_sizes(meta, param.with_shape(param.shape[:1])):
                raise ShapeError(
                    f"'{ROW_MASK}' of '{op}' must have one number per row of the parameter",
                    expected=list(param.shape[:1]),
                    received=list(meta.shape),
                    fix="pass what operator 'embedding_rows' makes",
                    op=op,
                )
        elif not same_sizes(meta, param):
            raise ShapeError(
                f"'{name}' of '{op}' has another shape than the parameter",
                expected=list(param.shape),
                received=list(meta.shape),
                fix="make accumulators and gradients of the parameter's own shape",
                op=op,
            )
    grad, master = named["Grad"], named.get("MasterParam")
    assert grad is not None
    if grad.dtype is not param.dtype and not (master is not None and grad.dtype is master.dtype):
        raise DTypeError(
            f"the gradient given to '{op}' has another dtype than the parameter",
            expected=param.dtype.name,
            received=grad.dtype.name,
            fix=f"convert the gradient with paddle.cast(grad, '{param.dtype.name}')",
            op=op,
        )
    return tuple(named.get(o.name.removesuffix("Out")) for o in outputs)


def _split(inputs: tuple[str, ...], outputs: tuple[str, ...], powers: frozenset[str], *metas: Meta | None) -> Any:
    param = metas[inputs.index("Param")]
    assert param is not None
    axis, parts = row_parts(param.shape, POINTWISE)
    if parts is None:
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
            else:
                row.append(WHOLE if name in SCALARS else part)
        tiles.append(tuple(row))
    return tiles


def register_update(
    type: str,
    slots: str,
    attrs: Mapping[str, Any],
    rules: Sequence[Rule],
    blocks: int,
    lower: Callable[..., Any],
    domain: Domain,
    powers: Mapping[str, tuple[str, str]] | None = None,
) -> OpDef:
    """Registers the op definition of an update: outputs ``XOut`` are the new values of inputs ``X``, which they may overwrite.

    Args:
        type: Op type.
        slots: Its slots.
        attrs: Its attributes.
        rules: The rule on flat arrays, in passes; with one pass the work may be cut.
        blocks: Scratch blocks that the rule needs.
        lower: The torch form.
        domain: Where tests may sample.
        powers: Output slot -> (input slot, attribute) of numbers that the op itself moves on.
    """
    ins, outs = parse_slots(slots)
    in_names, out_names = tuple(s.name for s in ins), tuple(s.name for s in outs)
    pairs = tuple((o.removesuffix("Out"), o) for o in out_names)
    assert all(i in in_names for i, _ in pairs), type
    powers = powers or {}
    ref = UpdateRef(slots, rules, blocks, powers)

    def split(*metas: Any) -> list[Tile] | None:
        tiles: list[Tile] | None = _split(in_names, out_names, frozenset(powers), *metas)
        return tiles

    return register(
        OpDef(
            type,
            slots,
            attrs=attrs,
            infer=functools.partial(_infer, type, ins, outs),
            ref=ref,
            lower=lower,
            split=split if len(rules) == 1 else None,
            state=pairs,
            numbers=tuple(source for source, _ in powers.values()),
            inplace=pairs,
            update=True,
            # Passes before the last sum squares.
            uses_blas=len(rules) > 1,
            domain=domain,
        )
    )


# --------------------------------------------------------------------------------------------------------------- torch
def torch_start(torch: Any, param: Any, grad: Any, master: Any) -> tuple[Any, Any]:
    """Parameter and gradient in the type that is computed in."""
    p = param if master is None else master
    wide = torch.float32 if p.dtype in (torch.float16, torch.bfloat16) else p.dtype
    return p.to(wide), grad.to(wide)


def torch_end(torch: Any, skip: Any, pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Outputs from (old, new) pairs: rounded to the old one's type, and the old ones where the step is skipped."""
    done: list[Any] = []
    for old, new in pairs:
        if old is None:
            done.append(None)
            continue
        rounded = new.to(old.dtype).reshape(old.shape)
        done.append(rounded if skip is None else torch.where(skip.reshape(()), old, rounded))
    return tuple(done)
