"""Programs of tstatic as Paddle saves them, translated as :mod:`tstatic.formats.paddle_program` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.formats import paddle_proto as proto
from tstatic.ir.attrs import LOD, Attr
from tstatic.ir.opdef import OpDef, OpSpec, op_def
from tstatic.ir.paddle_form import SAME, PaddleOp
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.types import UNKNOWN, VAR_KINDS, DType, Meta

VERSION = 2_006_002
"""The version of Paddle that written programs claim to be of."""
_VAR_NUMBERS = {str(kind): number for number, kind in VAR_KINDS.items()}


def write(program: Program) -> bytes:
    """Returns a program as Paddle 2.6 saves one; its ``feed_names`` and ``fetch_names`` become feed and fetch operators.

    Raises:
        ProgramError: If an operator has no counterpart in Paddle, or an attribute has no place in the format; all are named.
    """
    writing = _Writing(program)
    blocks = [writing.block(block) for block in program.blocks]
    if writing.lacking:
        raise ProgramError(
            f"Paddle has no counterpart of {len(writing.lacking)} operators: {', '.join(writing.lacking)}",
            expected="operators of Paddle 2.6",
            received=", ".join(writing.lacking),
            fix="save without format='paddle', or build this part from other operators",
            op=next(iter(writing.lacking)),
        )
    return proto.write_program(proto.ProgramDesc(blocks, proto.Version(VERSION)))


class _Writing:
    """One program that is written."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lacking: dict[str, str] = {}
        self.made = 0

    def block(self, block: Block) -> proto.BlockDesc:
        # Paddle has the offsets of sequences with the values, not as variables.
        offsets = {name for var in block.vars.values() for name in var.lod}
        variables = [self.variable(var) for var in block.vars.values() if var.name not in offsets]
        ops: list[proto.OpDesc] = []

        def fresh(meta: Meta) -> str:
            name = f"paddle_form_{self.made}.tmp_0"
            self.made += 1
            tensor = proto.TensorDesc(proto.DTYPE_NUMBERS[meta.dtype.name], meta.shape)
            kind = proto.VarType(proto.DENSE, lod_tensor=proto.LoDTensorDesc(tensor))
            variables.append(proto.VarDesc(name, kind, stop_gradient=True))
            return name

        feeds, fetches = (self.program.feed_names, self.program.fetch_names) if block.idx == 0 else ((), ())
        if feeds or fetches:
            variables.append(proto.VarDesc("feed", proto.VarType(proto.FEED), True))
            variables.append(proto.VarDesc("fetch", proto.VarType(proto.FETCH), True))
        for column, name in enumerate(feeds):
            ops.append(_op("feed", {"X": ["feed"]}, {"Out": [name]}, [_int("col", column)]))
        for op in block.ops:
            form = op.definition.paddle or SAME
            forward = op_def(op.definition.of) if op.definition.of else op.definition
            lacks = forward.paddle.lacks if forward.paddle is not None else ()
            written = [v for n in op.output_arg_names if (v := block._find_var_recursive(n)) is not None]
            read = [v for n in op.input_arg_names if (v := block._find_var_recursive(n)) is not None]
            shapes = {v.name: v._shape for v in (*read, *written)}
            dtypes = {v.name: v._dtype for v in (*read, *written) if v._dtype is not None}
            found = PaddleOp(op.type, op.inputs, op.outputs, dict(op.attrs), shapes, dtypes, {}, fresh)
            if form.absent:
                self.lacking[op.type] = op.type
                continue
            if any(spec.kind == "function" for spec in op.definition.attrs.values()):
                raise ProgramError(
                    f"operator '{op.type}' calls Python functions, which are not part of what is saved",
                    expected="operators that compute from their inputs alone",
                    received=op.type,
                    fix="save the part of the program before it, or build this part from other operators",
                    op=op.type,
                )
            role = [_int("op_role", op.role), _text("op_device", op.device)]
            specs = form.write(found) if form.write is not None else [found.made()]
            for spec in _empty(op, written) or specs:
                attrs = self.attributes(spec, op.definition if spec.type == op.type else None, lacks)
                ops.append(_op(spec.type, spec.inputs, spec.outputs, [*attrs, *role]))
        for column, name in enumerate(fetches):
            ops.append(_op("fetch", {"X": [name]}, {"Out": ["fetch"]}, [_int("col", column)]))
        return proto.BlockDesc(block.idx, block.parent_idx, variables, ops, block.forward_block_idx)

    def variable(self, var: Variable) -> proto.VarDesc:
        number = _VAR_NUMBERS.get(var.type, 17)
        kind = proto.VarType(number)
        if number in (proto.DENSE, 8, 13):
            dtype = 5 if var._dtype is None else proto.DTYPE_NUMBERS[var._dtype.name]
            tensor = proto.TensorDesc(dtype, var._shape or ())
            holder = proto.LoDTensorDesc(tensor, var.lod_level)
            name = {proto.DENSE: "lod_tensor", 13: "tensor_array"}.get(number, "selected_rows")
            setattr(kind, name, tensor if name == "selected_rows" else holder)
        return proto.VarDesc(
            var.name, kind, var.persistable, var.need_check_feed, isinstance(var, Parameter), var.stop_gradient
        )  # fmt: skip

    def attributes(self, spec: OpSpec, definition: OpDef | None, lacks: Sequence[str]) -> list[proto.Attr]:
        done = []
        for name, value in spec.attrs.items():
            if name in lacks:
                continue
            known = None if definition is None else definition.attrs.get(name)
            if definition is not None and definition.paddle is not None and name in definition.paddle.whole:
                if value != int(value):
                    raise _no_place(spec.type, name, value)
                done.append(_int(name, int(value)))
            elif value is not None:
                done.append(_attribute(spec.type, name, value, known))
        return done


def _empty(op: Operator, results: Sequence[Variable]) -> list[OpSpec]:
    """Returns ops that make results without elements, which many kernels of Paddle refuse to make; nothing for other results."""
    shapes = [var._shape for var in results]
    blocks = any(spec.kind == "block" for spec in op.definition.attrs.values())
    if blocks or op.definition.effects or not all(s is not None and 0 in s and UNKNOWN not in s for s in shapes):
        return []
    return [
        OpSpec("fill_constant", {}, {"Out": [var.name]}, {"shape": shape, "dtype": var._dtype, "value": 0.0})
        for var, shape in zip(results, shapes, strict=True)
    ]


def _op(
    type: str, inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: list[proto.Attr]
) -> proto.OpDesc:
    ins, outs = (
        [proto.Slot(name, list(row)) for name, row in side.items() if not name.endswith(LOD)]
        for side in (inputs, outputs)
    )
    return proto.OpDesc(ins, outs, type, attrs)


def _int(name: str, value: int) -> proto.Attr:
    if -(2**31) <= value < 2**31:
        return proto.Attr(name, 0, i=value)
    return proto.Attr(name, 9, l=value)


def _text(name: str, value: str) -> proto.Attr:
    return proto.Attr(name, 2, s=value)


def _attribute(op: str, name: str, value: Any, spec: Attr | None) -> proto.Attr:
    """Returns an attribute in the type that Paddle has for values of its kind."""
    kind = "any" if spec is None else spec.kind
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, DType):
        return _int(name, proto.DTYPE_NUMBERS[value.name])
    if kind == "block" and type(value) is int:
        return proto.Attr(name, 8, block_idx=value)
    if isinstance(value, bool) and kind != "number":
        return proto.Attr(name, 6, b=value)
    if isinstance(value, float) or (isinstance(value, int) and kind in ("float", "number")):
        return proto.Attr(name, 1, f=_narrow(value))
    if isinstance(value, int):
        return _int(name, value)
    if isinstance(value, str):
        return _text(name, value)
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return proto.Attr(name, 12, float64s=value.tolist())
    if isinstance(value, list | tuple):
        return _row(op, name, value, kind)
    raise _no_place(op, name, value)


def _narrow(value: float) -> float:
    """Returns a number for an attribute of 32 bits; the limits of whole numbers do not grow when they are rounded."""
    if isinstance(value, int) and abs(value) >= 2**31 - 1:
        near = np.float32(value)
        return float(np.nextafter(near, np.float32(0)) if abs(int(near)) > abs(value) else near)
    return float(value)


def _row(op: str, name: str, value: Sequence[Any], kind: str) -> proto.Attr:
    if (not value and kind == "strs") or (value and all(isinstance(v, str) for v in value)):
        return proto.Attr(name, 5, strings=list(value))
    if value and all(isinstance(v, bool) for v in value):
        return proto.Attr(name, 7, bools=value)
    if kind != "floats" and all(isinstance(v, int) for v in value):
        wide = any(not -(2**31) <= v < 2**31 for v in value)
        return proto.Attr(name, 11, longs=value) if wide else proto.Attr(name, 3, ints=value)
    if all(isinstance(v, int | float) for v in value):
        return proto.Attr(name, 4, floats=value)
    raise _no_place(op, name, value)


def _no_place(op: str, name: str, value: Any) -> ProgramError:
    return ProgramError(
        f"attribute '{name}' of operator '{op}' has no place in Paddle's format",
        expected="numbers, texts, dtypes, and lists of one kind of them",
        received=repr(value)[:120],
        fix="save without format='paddle', or set the attribute to a plain value",
        op=op,
    )
