"""Programs in Paddle's files: read as programs of tstatic, and written from them.

Slots, attributes and op types are Paddle's here too, so one translation serves all ops: it looks at the op definition and nothing
else. What an op spells in another way stands with it, as :attr:`~tstatic.ir.opdef.OpDef.paddle`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError, NotFoundError, ProgramError, TstaticError
from tstatic.ir import paddle_proto as proto
from tstatic.ir.attrs import LOD, Attr
from tstatic.ir.build import append_op
from tstatic.ir.composed import Composed, composed_op
from tstatic.ir.declare import declare_offsets
from tstatic.ir.opdef import OPS, OpDef, OpSpec, op_def
from tstatic.ir.paddle_form import SAME, PaddleOp
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.restore import restore
from tstatic.ir.rng import op_position
from tstatic.ir.schema import MAX_BLOCKS, BlockDesc, OpDesc, ParameterDesc, ProgramDesc, VarDesc
from tstatic.ir.types import DTYPES, UNKNOWN, VAR_KINDS, DType, Meta

VERSION = 2_006_002
"""The version of Paddle that written programs claim to be of."""
DTYPE_NUMBERS = {
    "bool": 0, "int16": 1, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6, "uint8": 20, "int8": 21,
    "bfloat16": 22, "complex64": 23, "complex128": 24,
}  # fmt: skip
_DTYPES = {number: DTYPES[name] for name, number in DTYPE_NUMBERS.items()}
_DENSE, _FEED, _FETCH, _STEP_SCOPES = 7, 9, 10, 11
_VAR_NUMBERS = {str(kind): number for number, kind in VAR_KINDS.items()}
_IGNORED = {
    "op_callstack", "op_namescope", "with_quant_attr", "use_cudnn", "use_mkldnn", "use_quantizer", "mkldnn_data_type",
    "workspace_size_MB", "exhaustive_search", "deterministic", "is_test", "force_fp32_output", "fuse_alpha", "fuse_beta",
    "fuse_brelu_threshold", "x_data_format", "y_data_format", "use_global_beta_pow", "trainer_id", "force_cpu",
    "use_calc_stream", "place_type", "skip_eager_deletion_vars", "remote_prefetch",
}  # fmt: skip
"""Attributes that choose a kernel or belong to Paddle's own passes, whatever their value is."""
_SAY_NOTHING: tuple[Any, ...] = (None, False, 0, 0.0, "", (), "AnyLayout", "NCHW", 1.0, (1.0,))
"""Values of attributes that an op does not have which change nothing: what is off, empty, or a scale of one."""


# ------------------------------------------------------------------------------------------------------------------- read
def is_paddle_program(data: bytes) -> bool:
    """Returns whether bytes begin as a program of Paddle does: with its first block."""
    return data[:1] == b"\x0a"


def read(data: bytes, path: object = "these bytes") -> Program:
    """Returns the program in a file of Paddle (``.pdmodel``, ``__model__``).

    Inputs and results of an inference model are its ``feed_names`` and ``fetch_names``.

    Raises:
        CheckpointError: If it is damaged, or has operators or attributes that tstatic lacks; all of them are named.
    """
    try:
        message = proto.read_program(data)
        return _Reading(message, path).program()
    except TstaticError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"this is not a whole program: {path}",
            expected="a program that Paddle saved",
            received=str(error)[:200],
            fix="take an older copy of the file, or save it again",
        ) from None


class _Reading:
    """One program that is read."""

    def __init__(self, message: proto.ProgramDesc, path: object) -> None:
        self.message = message
        self.path = path
        self.missing: dict[str, str] = {}
        self.feeds: dict[int, str] = {}
        self.fetches: dict[int, str] = {}
        # Names that something reads or fetches, and whether an op is built from others.
        self.read = {name for b in message.blocks for op in b.ops for slot in op.inputs for name in slot.arguments}
        self.composes = False

    def program(self) -> Program:
        if not 0 < len(self.message.blocks) < MAX_BLOCKS:
            raise ValueError(f"{len(self.message.blocks):,} blocks")
        for block in self.message.blocks:
            for op in block.ops:
                # Backward ops may be derived: op_def knows, and does so only where the forward op is there.
                if op.type not in ("feed", "fetch") and op.type not in self.missing and not self.has(op.type):
                    self.missing[op.type] = op.type
        if self.missing:
            names = [repr(name[:80]) for name in self.missing]
            raise CheckpointError(
                f"the program has {len(names)} types of operators that tstatic lacks: {', '.join(names[:50])}: {self.path}",
                expected="types of docs/ops.md",
                received=", ".join(names[:50]),
                fix="save the part of the program that does without them, or put those operators together from others",
                op=next(iter(self.missing))[:80],
            )
        # Two passes: what an op reads may depend on a constant that another block makes.
        blocks = [self.block(number, block) for number, block in enumerate(self.message.blocks)]
        feeds, fetches = (self.in_order(row) for row in (self.feeds, self.fetches))
        given = {var.name for var in blocks[0].vars}
        for var in blocks[0].vars:
            if var.name in feeds:
                var.is_data = var.stop_gradient = True
                var.need_check_feed = False
        if not given.issuperset((*feeds, *fetches)):
            raise ValueError("inputs or results that are not declared")
        desc = ProgramDesc(blocks=blocks, feeds=feeds, fetches=fetches)
        sequences = [var.name for var in blocks[0].vars if var.lod_level and var.name in feeds]
        ops = [block.ops for block in blocks]
        builds = bool(sequences) or self.composes
        if builds:
            for one in blocks:
                one.ops = []
        made = restore(desc, lambda *where: f"{self.path}: {_locate(*where)}", CheckpointError)
        if builds:
            for name in sequences:
                declare_offsets(made.global_block().vars[name])
            self.append(made, 0, ops, set())
            made._from_file = True
        return made

    def append(self, program: Program, index: int, ops: Sequence[Sequence[OpDesc]], done: set[int]) -> None:
        """Builds the ops of a block and of those inside.

        So the offsets of sequences go from the inputs to the results: in Paddle they are part of values; here they are variables,
        which the rules of the ops name. And some ops are built from others.
        """
        if index in done or not 0 <= index < len(ops):
            raise ValueError(f"block {index}, which is not one of its own")
        done.add(index)
        block = program.blocks[index]
        for var in block.vars.values():
            # Some kernels of Paddle leave notes in other dtypes than they declare; what the ops here say counts.
            var._dtype_is_inferred = not (var.persistable or var.is_data)
        for op in ops[index]:
            composed = composed_op(op.type, op.inputs, op.attrs) is not None
            for name, spec in {} if composed else op_def(op.type).attrs.items():
                if spec.kind == "block" and type(op.attrs.get(name)) is int:
                    self.append(program, op.attrs[name], ops, done)
            automatic = {"op_role": op.role, "op_role_var": tuple(op.role_var), "op_device": op.device}
            before = len(block.ops)
            try:
                append_op(block, op.type, op.inputs, op.outputs, {**op.attrs, **automatic})
            except (LookupError, ArithmeticError) as error:
                if isinstance(error, TstaticError):
                    raise
                raise ValueError(f"operator '{op.type}': {error}") from None
            for made in block.ops[before:]:
                made.where = None

    def has(self, type: str) -> bool:
        if type in OPS or ((builder := composed_op(type, (), ())) is not None and builder.in_files):
            return True
        try:
            return bool(type.endswith("_grad") and type.count("_grad") <= 2 and op_def(type))
        except NotFoundError:
            return False

    def in_order(self, row: Mapping[int, str]) -> list[str]:
        """Returns names in the order of their columns."""
        return [row[column] for column in sorted(row)]

    def block(self, number: int, block: proto.BlockDesc) -> BlockDesc:
        variables: dict[str, VarDesc] = {}
        for var in block.vars:
            kind = var.type.type if var.type is not None else _DENSE
            if kind not in (_FEED, _FETCH):
                variables[var.name] = self.variable(var, kind)
        if len({var.name for var in block.vars}) != len(block.vars):
            raise ValueError(f"a variable that block {number} has twice")
        read = {name for op in block.ops for slot in op.inputs for name in slot.arguments}
        constants = _Constants()
        ops: list[OpDesc] = []
        for op in block.ops:
            if op.type in ("feed", "fetch"):
                self.bound(op)
                continue
            made = self.op(number, len(ops), op, variables, read, constants)
            for cast in self.widened(made, variables):
                cast.position = op_position(number, len(ops))
                ops.append(cast)
            made.position = op_position(number, len(ops))
            constants.note(made)
            ops.append(made)
        return BlockDesc(
            vars=list(variables.values()), ops=ops, built=len(ops), parent=int(block.parent_idx),
            forward=int(block.forward_block_idx),
        )  # fmt: skip

    def widened(self, op: OpDesc, variables: dict[str, VarDesc]) -> list[OpDesc]:
        """Returns casts of whole numbers that an op of floats is given, whose inputs change."""
        definition = OPS.find(op.type)
        form = None if definition is None else definition.paddle
        casts: list[OpDesc] = []
        if form is None or form.wide is None:
            return casts
        for slot, row in op.inputs.items():
            for at, name in enumerate(row):
                var = variables.get(name)
                if var is not None and var.dtype and DTYPES[var.dtype].is_integer:
                    new = f"{name}.{form.wide.name}_{len(variables)}"
                    variables[new] = VarDesc(name=new, shape=var.shape, dtype=form.wide.name, stop_gradient=True)
                    attrs: dict[str, Any] = {"in_dtype": DTYPES[var.dtype], "out_dtype": form.wide}
                    casts.append(
                        OpDesc(type="cast", inputs={"X": [name]}, outputs={"Out": [new]}, position=0, attrs=attrs)
                    )
                    op.inputs[slot][at] = new
        return casts

    def bound(self, op: proto.OpDesc) -> None:
        """Notes an input or a result of the model."""
        feeds = op.type == "feed"
        names = [n for slot in (op.outputs if feeds else op.inputs) for n in slot.arguments]
        column = next((proto.value_of(attr) for attr in op.attrs if attr.name == "col"), 0)
        into = self.feeds if feeds else self.fetches
        if len(names) != 1 or type(column) is not int or column in into or not names[0]:
            raise ValueError(f"a {op.type} operator without a place of its own")
        into[column] = names[0]

    def variable(self, var: proto.VarDesc, kind: int) -> VarDesc:
        if not 0 < len(var.name) <= 65_536 or kind not in VAR_KINDS:
            raise ValueError(f"variable {var.name[:80]!r} of type {kind}")
        tensor, level = None, 0
        if var.type is not None:
            holder = var.type.lod_tensor or var.type.tensor_array
            tensor = var.type.selected_rows if holder is None else holder.tensor
            level = 0 if holder is None else holder.lod_level
        dtype = shape = None
        if tensor is not None:
            # Paddle multiplies unknown sizes, too: -6 is one of them.
            shape = [max(size, -1) for size in tensor.dims]
            dtype = _DTYPES.get(tensor.data_type)
            if len(shape) > 64 or not all(size <= 2**62 for size in shape) or not 0 <= level < 2**32:
                raise ValueError(f"variable {var.name[:80]!r} of shape {str(shape)[:80]} and level {level}")
            if dtype is None and kind == _DENSE:
                raise CheckpointError(
                    f"variable '{var.name[:80]}' has a dtype that tstatic lacks: {self.path}",
                    expected=f"one of {', '.join(DTYPE_NUMBERS)}",
                    received=f"type {tensor.data_type} of Paddle",
                    fix="convert it before the program is saved",
                    var=var.name[:80],
                )
        whole = shape is not None and dtype is not None and all(size > 0 for size in shape)
        return VarDesc(
            name=var.name, shape=shape, dtype=None if dtype is None else dtype.name, persistable=var.persistable,
            stop_gradient=var.stop_gradient, is_data=var.need_check_feed, need_check_feed=var.need_check_feed, lod_level=level,
            type=str(VAR_KINDS[kind]), parameter=ParameterDesc() if var.is_parameter and whole else None,
        )  # fmt: skip

    def op(
        self,
        block: int,
        index: int,
        op: proto.OpDesc,
        variables: dict[str, VarDesc],
        read: set[str],
        constants: _Constants,
    ) -> OpDesc:
        attrs = {attr.name: proto.value_of(attr) for attr in op.attrs}
        inputs, outputs = (
            {s.parameter: list(s.arguments) for s in row if s.arguments} for row in (op.inputs, op.outputs)
        )
        shapes = {n: v.shape for row in outputs.values() for n in row if (v := variables.get(n)) is not None}
        dtypes = {
            n: DTYPES[v.dtype]
            for row in (*inputs.values(), *outputs.values())
            for n in row
            if (v := variables.get(n)) is not None and v.dtype
        }
        found = PaddleOp(op.type, inputs, outputs, attrs, shapes, dtypes, constants.values)
        where = f"block {block}, op {index}"
        builder = composed_op(op.type, (), ())
        if builder is None:
            definition = op_def(op.type)
            form = definition.paddle or SAME
            try:
                spec = form.read(found) if form.read is not None else _same(found, definition)
            except LookupError as error:
                raise ValueError(f"operator '{op.type}' without {error}") from None
            definition = op_def(spec.type)
            own, lacking = _attributes(definition, spec.attrs)
            builder = composed_op(spec.type, spec.inputs, lacking)
        else:
            spec = found.made()
        if builder is None:
            known = {n: list(row) for n, row in spec.outputs.items()}
            for name in [n for n in known if n not in definition.output_slots]:
                # Notes that a kernel leaves for its gradient, for example.
                if not read.intersection(known[name]) and not set(known[name]) & set(self.fetches.values()):
                    del known[name]
            inputs = {n: list(row) for n, row in spec.inputs.items()}
            names = definition.attrs.keys()
        else:
            self.composes = True
            inputs, own, lacking = _composed(found, builder)
            kept = self.read | {
                n for row in outputs.values() for n in row if n in variables and variables[n].persistable
            }
            known = {n: list(row) for n, row in outputs.items() if kept.intersection(row)} or outputs
            names = dict.fromkeys(builder.attrs).keys()
        if lacking:
            told = ", ".join(f"{name} = {str(attrs.get(name))[:60]}" for name in lacking)
            raise CheckpointError(
                f"{self.path}: {where}: operator '{spec.type}' has attributes that tstatic lacks: {told}",
                expected=f"values that change nothing, or attributes among {', '.join(names) or 'none'}",
                received=told,
                fix="build this part of the program from other operators",
                op=spec.type,
            )
        role = attrs.get("op_role", 0)
        return OpDesc(
            type=spec.type,
            inputs=inputs,
            outputs=known,
            position=op_position(block, index),
            attrs=own,
            role=role if type(role) is int and 0 <= role < 2**31 else 0,
            role_var=list(attrs.get("op_role_var") or ()),
            device=str(attrs.get("op_device") or ""),
        )


def _attributes(definition: OpDef, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the attributes that an op has, and the names of others that say something."""
    done, lacking = {}, []
    # Backward ops carry the attributes of their forward ops in Paddle; here those that they use.
    stem = definition.type.removesuffix("_grad")
    forward = OPS[stem].attrs if stem != definition.type and stem in OPS else {}
    for name, value in given.items():
        spec = definition.attrs.get(name)
        if spec is not None:
            value = _taken(spec, value)
            if value is not None or spec.default is None:
                done[name] = value
        elif name not in forward and not _idle(name, value):
            lacking.append(name)
    return done, lacking


def _idle(name: str, value: Any) -> bool:
    """Returns whether an attribute that an op lacks changes nothing."""
    return (
        name in _IGNORED or name.startswith("op_") or _says_nothing(value) or (name.endswith("dtype") and value == -1)
    )


def _composed(op: PaddleOp, builder: Composed) -> tuple[dict[str, list[str]], dict[str, Any], list[str]]:
    """Returns inputs and attributes of an op that is built from others, and the names of attributes that have no meaning there."""
    inputs = {_spelled(slot, builder.slots): list(row) for slot, row in op.inputs.items()}
    attrs = {name: value for name, value in op.attrs.items() if not (name.endswith("dtype") and value == -1)}
    for slot in [slot for slot in inputs if slot not in builder.slots]:
        name, numbers = _attribute_of(slot), op.constants_of(slot)
        if name in builder.attrs and numbers is not None:
            del inputs[slot]
            attrs[name] = tuple(numbers)
    own = {name: value for name, value in attrs.items() if name in builder.attrs}
    return inputs, own, [name for name, value in attrs.items() if name not in own and not _idle(name, value)]


def _attribute_of(slot: str) -> str:
    """Returns the attribute that an input of numbers is instead of."""
    return slot.removesuffix("List").removesuffix("Tensor").lower()


def _same(op: PaddleOp, definition: OpDef) -> OpSpec:
    """Returns an op as it is, but for the spelling of slots and two habits of Paddle.

    Many ops take an attribute as an input, too: numbers that the program fills the input ``AxisTensor`` or ``ShapeTensorList`` with
    become the attribute ``axis`` or ``shape``. And a result that is declared as one element in a list needs ``one_d``.
    """
    # Ops of several ages spell a slot ``x`` or ``X``.
    inputs, outputs = (
        {_spelled(slot, known): row for slot, row in side.items()}
        for side, known in ((op.inputs, definition.input_slots), (op.outputs, definition.output_slots))
    )
    attrs = dict(op.attrs)
    for slot in [slot for slot in inputs if slot not in definition.input_slots]:
        name, numbers = _attribute_of(slot), op.constants_of(slot)
        if name in definition.attrs and numbers is not None:
            del inputs[slot]
            attrs[name] = tuple(numbers) if definition.attrs[name].kind in ("ints", "floats") else numbers[0]
    result = op.dtypes.get(next((row[0] for row in op.outputs.values() if row), ""))
    for name, value in attrs.items():
        # Kernels of whole numbers convert their attributes.
        if result is not None and result.is_integer and isinstance(value, float) and math.isfinite(value):
            known = definition.attrs.get(name)
            attrs[name] = int(value) if known is not None and known.kind == "number" else value
    if "one_d" in definition.attrs and "one_d" not in attrs:
        first = next((row[0] for row in op.outputs.values() if row), "")
        attrs["one_d"] = list(op.shapes.get(first) or ()) == [1]
    return op.made(inputs=inputs, outputs=outputs, attrs=attrs)


def _spelled(slot: str, known: Iterable[str]) -> str:
    """Returns a slot in the spelling that the op has here."""
    same = [name for name in known if name.lower() == slot.lower()]
    return slot if slot in same or len(same) != 1 else same[0]


class _Constants:
    """Numbers that a block's ops fill variables with, for ops that take as an attribute what Paddle gives as an input."""

    MOST = 64
    """Numbers in one variable."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, ...]] = {}

    def note(self, op: OpDesc) -> None:
        for name in (n for row in op.outputs.values() for n in row):
            self.values.pop(name, None)
        if op.type == "fill_constant" and not op.inputs:
            text, dtype, shape = op.attrs.get("str_value", ""), op.attrs.get("dtype"), op.attrs.get("shape", ())
            count = int(min(np.prod(shape, dtype=float), self.MOST + 1))
            whole = isinstance(dtype, DType) and not dtype.is_float
            if count <= self.MOST and not (whole and text and not text.lstrip("-").isdigit()):
                value = (int if whole else float)(text or op.attrs.get("value", 0.0))
                self.values[op.outputs["Out"][0]] = (value,) * count
        elif op.type == "assign_value" and isinstance(op.attrs.get("values"), tuple):
            self.values[op.outputs["Out"][0]] = op.attrs["values"]


def _says_nothing(value: Any) -> bool:
    return any(type(value) is type(nothing) and value == nothing for nothing in _SAY_NOTHING)


def _taken(spec: Attr, value: Any) -> Any:
    """Returns a value of Paddle in the kind that the attribute has here."""
    if spec.kind == "dtype":
        if type(value) is int and value != -1:
            if value not in _DTYPES:
                raise ValueError(f"dtype {value}, which tstatic lacks")
            return _DTYPES[value]
        return None if value == -1 else value
    if spec.kind == "bool" and type(value) is int:
        return bool(value)
    if spec.kind == "float" and isinstance(value, str):
        return float(value)
    if spec.kind == "int" and isinstance(value, float) and value == int(value):
        return int(value)
    return value


def _locate(kind: str, block: int, index: int) -> str:
    return {"program": "the program", "block": f"block {block}"}.get(kind, f"block {block}, {kind} {index}")


# ------------------------------------------------------------------------------------------------------------------ write
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
            tensor = proto.TensorDesc(DTYPE_NUMBERS[meta.dtype.name], meta.shape)
            kind = proto.VarType(_DENSE, lod_tensor=proto.LoDTensorDesc(tensor))
            variables.append(proto.VarDesc(name, kind, stop_gradient=True))
            return name

        feeds, fetches = (self.program.feed_names, self.program.fetch_names) if block.idx == 0 else ((), ())
        if feeds or fetches:
            variables.append(proto.VarDesc("feed", proto.VarType(_FEED), True))
            variables.append(proto.VarDesc("fetch", proto.VarType(_FETCH), True))
        for column, name in enumerate(feeds):
            ops.append(_op("feed", {"X": ["feed"]}, {"Out": [name]}, [_int("col", column)]))
        for op in block.ops:
            form = op.definition.paddle or SAME
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
                attrs = self.attributes(spec, op.definition if spec.type == op.type else None)
                ops.append(_op(spec.type, spec.inputs, spec.outputs, [*attrs, *role]))
        for column, name in enumerate(fetches):
            ops.append(_op("fetch", {"X": [name]}, {"Out": ["fetch"]}, [_int("col", column)]))
        return proto.BlockDesc(block.idx, block.parent_idx, variables, ops, block.forward_block_idx)

    def variable(self, var: Variable) -> proto.VarDesc:
        number = _VAR_NUMBERS.get(var.type, 17)
        kind = proto.VarType(number)
        if number in (_DENSE, 8, 13):
            dtype = 5 if var._dtype is None else DTYPE_NUMBERS[var._dtype.name]
            tensor = proto.TensorDesc(dtype, var._shape or ())
            holder = proto.LoDTensorDesc(tensor, var.lod_level)
            name = {_DENSE: "lod_tensor", 13: "tensor_array"}.get(number, "selected_rows")
            setattr(kind, name, tensor if name == "selected_rows" else holder)
        return proto.VarDesc(
            var.name, kind, var.persistable, var.need_check_feed, isinstance(var, Parameter), var.stop_gradient
        )  # fmt: skip

    def attributes(self, spec: OpSpec, definition: OpDef | None) -> list[proto.Attr]:
        done = []
        for name, value in spec.attrs.items():
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
        return _int(name, DTYPE_NUMBERS[value.name])
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
