"""Programs in Paddle's files, read as programs of tstatic; :mod:`tstatic.formats.paddle_writing` writes them.

Slots, attributes and op types are Paddle's here too, so one translation serves all ops: it looks at the op definition and nothing
else. What an op spells in another way stands with it, as :attr:`~tstatic.ir.opdef.OpDef.paddle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.errors import CheckpointError, NotFoundError, TstaticError, reason
from tstatic.formats import paddle_proto as proto
from tstatic.formats.paddle_attributes import PADDLE_DTYPES, Constants, attributes, composed_parts, same_op
from tstatic.formats.restore import DAMAGE, restore
from tstatic.formats.schema import MAX_BLOCKS, BlockDesc, OpDesc, ParameterDesc, ProgramDesc, VarDesc
from tstatic.ir.budget import STEP, Budget, budget_of_program, building
from tstatic.ir.build import append_op
from tstatic.ir.composed import composed_op
from tstatic.ir.declare import declare_offsets
from tstatic.ir.names import FreeNames, guard
from tstatic.ir.opdef import GRAD, OPS, find_op_def, op_def
from tstatic.ir.paddle_form import SAME, PaddleOp
from tstatic.ir.program import Block, Program, Variable, hooks
from tstatic.ir.rng import op_position
from tstatic.ir.types import DTYPES, VAR_KINDS

_VARIABLE, _OP, _NUMBER = 300, 500, 48
"""Bytes that are counted for a variable, an op and a number of an attribute, beside their messages."""


# ------------------------------------------------------------------------------------------------------------------- read
def is_paddle_program(data: bytes) -> bool:
    """Returns whether bytes begin as a program of Paddle does: with its first block."""
    return data[:1] == b"\x0a"


def read(data: bytes, path: object = "these bytes") -> Program:
    """Returns the program in a file of Paddle (``.pdmodel``, ``__model__``).

    Inputs and results of an inference model are its ``feed_names`` and ``fetch_names``.

    Raises:
        CheckpointError: If it is damaged, or has operators or attributes that tstatic lacks; all of them are named.
        LoadLimitError: If reading it takes more memory or work than its size allows.
    """
    budget = budget_of_program(len(data), path)
    try:
        return _Reading(proto.read_program(data, budget), path, budget).program()
    except TstaticError:
        raise
    except DAMAGE as error:
        raise CheckpointError(
            f"this is not a whole program: {path}",
            expected="a program that Paddle saved",
            received=reason(error)[:200],
            fix="take an older copy of the file, or save it again",
        ) from None


@dataclass(frozen=True, slots=True)
class _Backward:
    """What a backward op that has no form here follows from.

    Attributes:
        forward: Its forward op.
        arriving: Results of the forward op, and the gradients that arrive for them.
        wanted: Inputs of the forward op, and the names of their gradients.
    """

    forward: OpDesc
    arriving: list[tuple[str, str]]
    wanted: list[tuple[str, str]]


class _Reading:
    """One program that is read."""

    def __init__(self, message: proto.ProgramDesc, path: object, budget: Budget) -> None:
        self.message = message
        self.path = path
        self.budget = budget
        self.missing: dict[str, str] = {}
        self.feeds: dict[int, str] = {}
        self.fetches: dict[int, str] = {}
        # Names that something reads or fetches -> the types of what does, and whether an op is built from others.
        self.read: dict[str, set[str]] = {}
        for op in (op for block in message.blocks for op in block.ops):
            for name in (name for slot in op.inputs for name in slot.arguments):
                self.read.setdefault(name, set()).add(op.type)
        self.composes = False
        # Variable of the first block -> the op that wrote it last; and derived backward ops -> what they follow from.
        self.writers: dict[str, proto.OpDesc] = {}
        self.backward: dict[int, _Backward] = {}

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
        made = restore(desc, lambda *where: f"{self.path}: {_locate(*where)}", self.budget, CheckpointError)
        if builds:
            for name in sequences:
                declare_offsets(made.global_block().vars[name])
            token = building.set(self.budget)
            try:
                # What is built between the file's variables has names that the file lacks.
                with guard(FreeNames({var.name for one in blocks for var in one.vars})):
                    self.append(made, 0, ops, set())
            finally:
                building.reset(token)
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
        depth, around = 1, block.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        for var in block.vars.values():
            # Some kernels of Paddle leave notes in other dtypes than they declare; what the ops here say counts.
            var._dtype_is_inferred = not (var.persistable or var.is_data)
        for op in ops[index]:
            derived = self.backward.get(id(op))
            composed = composed_op(op.type, op.inputs, op.attrs) is not None
            for name, spec in {} if composed or derived is not None else op_def(op.type).attrs.items():
                if spec.kind == "block" and type(op.attrs.get(name)) is int:
                    self.append(program, op.attrs[name], ops, done)
            automatic = {"op_role": op.role, "op_role_var": tuple(op.role_var), "op_device": op.device}
            before = len(block.ops)
            # Each name is looked up in the blocks around, too.
            self.budget.work(STEP * depth * sum(map(len, (*op.inputs.values(), *op.outputs.values()))))
            try:
                if derived is None:
                    append_op(block, op.type, op.inputs, op.outputs, {**op.attrs, **automatic})
                else:
                    _differentiate(self.budget, block, op.type, derived)
            except TstaticError:
                raise
            except DAMAGE as error:
                raise ValueError(f"operator '{op.type}': {reason(error)}") from None
            for made in block.ops[before:]:
                made.where = None

    def has(self, type: str) -> bool:
        if type in OPS or ((builder := composed_op(type, (), ())) is not None and builder.in_files):
            return True
        # Not op_def: looking for near names takes 5 ms, for each of thousands of types that nobody knows.
        if type.endswith("_grad") and type.count("_grad") <= 2 and find_op_def(type) is not None:
            return True
        stem = type.removesuffix("_grad")
        return stem != type and self.has(stem)

    def in_order(self, row: Mapping[int, str]) -> list[str]:
        """Returns names in the order of their columns."""
        return [row[column] for column in sorted(row)]

    def block(self, number: int, block: proto.BlockDesc) -> BlockDesc:
        variables: dict[str, VarDesc] = {}
        for var in block.vars:
            kind = var.type.type if var.type is not None else proto.DENSE
            if kind not in (proto.FEED, proto.FETCH):
                variables[var.name] = self.variable(var, kind)
        if len({var.name for var in block.vars}) != len(block.vars):
            raise ValueError(f"a variable that block {number} has twice")
        read = {name for op in block.ops for slot in op.inputs for name in slot.arguments}
        constants = Constants()
        ops: list[OpDesc] = []
        for op in block.ops:
            if op.type in ("feed", "fetch"):
                self.bound(op)
                continue
            made = self.op(number, len(ops), op, variables, read, constants)
            for cast in _widened(made, variables):
                cast.position = op_position(number, len(ops))
                ops.append(cast)
            made.position = op_position(number, len(ops))
            constants.note(made)
            ops.append(made)
            if number == 0:
                self.writers |= {name: op for slot in op.outputs for name in slot.arguments}
        return BlockDesc(
            vars=list(variables.values()), ops=ops, built=len(ops), parent=int(block.parent_idx),
            forward=int(block.forward_block_idx),
        )  # fmt: skip

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
        self.budget.step(_VARIABLE)
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
            dtype = PADDLE_DTYPES.get(tensor.data_type)
            if len(shape) > 64 or not all(size <= 2**62 for size in shape) or not 0 <= level < 2**32:
                raise ValueError(f"variable {var.name[:80]!r} of shape {str(shape)[:80]} and level {level}")
            if dtype is None and kind == proto.DENSE:
                raise CheckpointError(
                    f"variable '{var.name[:80]}' has a dtype that tstatic lacks: {self.path}",
                    expected=f"one of {', '.join(proto.DTYPE_NUMBERS)}",
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
        constants: Constants,
    ) -> OpDesc:
        forward = self.forward_of(op) if block == 0 and op.type.endswith("_grad") else None
        if forward is None:
            return self.same(block, index, op, variables, read, constants)
        if find_op_def(op.type) is not None or composed_op(op.type, (), ()) is not None:
            try:
                made = self.same(block, index, op, variables, read, constants)
                if composed_op(made.type, made.inputs, made.attrs) is not None or _complete(made):
                    return made
            except (CheckpointError, NotFoundError):
                pass
        # It has another form there, or none here: the forward op is differentiated instead.
        one = self.same(block, index, forward, variables, read, constants)
        results = {name for slot in forward.outputs for name in slot.arguments}
        arriving = [(name.partition(GRAD)[0], name) for name in _gradients(op.inputs)]
        arriving = [(name, grad) for name, grad in arriving if name in results]
        slots = {slot.parameter + GRAD: slot.arguments for slot in forward.inputs}
        wanted = [
            (name, grad)
            for slot in op.outputs
            for name, grad in zip(slots.get(slot.parameter, ()), slot.arguments, strict=False)
            if grad != "@EMPTY@"
        ]
        if not arriving or {grad for _, grad in wanted} != {*_gradients(op.outputs)} - {"@EMPTY@"}:
            raise CheckpointError(
                f"{self.path}: block {block}, op {index}: '{op.type}' is not the backward op of '{forward.type}' before it",
                expected="a gradient that arrives, and gradients of inputs of the forward operator",
                received=f"{[slot.parameter for slot in op.inputs]} and {[slot.parameter for slot in op.outputs]}"[
                    :200
                ],
                fix="build the program here, and load its values",
                op=op.type,
            )
        self.composes = True
        made = OpDesc(
            type=op.type, inputs={"X": [g for _, g in arriving]}, outputs={"Out": [g for _, g in wanted]}, role=1,
            position=op_position(block, index),
        )  # fmt: skip
        self.backward[id(made)] = _Backward(one, arriving, wanted)
        return made

    def forward_of(self, op: proto.OpDesc) -> proto.OpDesc | None:
        """Returns the op that a backward op belongs to: the one that wrote what its incoming gradients are of."""
        writers = (self.writers.get(name.partition(GRAD)[0]) for name in _gradients(op.inputs))
        return next((one for one in writers if one is not None and f"{one.type}_grad" == op.type), None)

    def same(
        self,
        block: int,
        index: int,
        op: proto.OpDesc,
        variables: dict[str, VarDesc],
        read: set[str],
        constants: Constants,
    ) -> OpDesc:
        # For every call: the backward ops of one forward op may ask for it again and again.
        self.budget.step(_OP)
        attrs = {}
        for attr in op.attrs:
            value = attrs[attr.name] = proto.value_of(attr)
            if isinstance(value, tuple):
                self.budget.spend(_NUMBER * len(value))
                self.budget.work(STEP * len(value))
        self.budget.work(STEP * sum(len(slot.arguments) for slot in (*op.inputs, *op.outputs)))
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
                spec = form.read(found) if form.read is not None else same_op(found, definition)
            except LookupError as error:
                raise ValueError(f"operator '{op.type}' without {error}") from None
            definition = op_def(spec.type)
            own, lacking = attributes(definition, spec.attrs)
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
            # Backward ops have the attributes of their forward ops, and may be given more than they need here.
            if op.type.endswith("_grad"):
                inputs = {n: row for n, row in inputs.items() if n in definition.input_slots}
            elif attrs.get("op_role") == 1:
                lacking = []
        else:
            self.composes = True
            inputs, own, lacking = composed_parts(found, builder)
            # Its backward op follows from those that it is built from, and reads no notes.
            own_backward = {f"{op.type}_grad"}
            known = {
                slot: list(row)
                for slot, row in outputs.items()
                if any(
                    self.read.get(n, set()) - own_backward or (n in variables and variables[n].persistable) for n in row
                )
            } or outputs
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


def _widened(op: OpDesc, variables: dict[str, VarDesc]) -> list[OpDesc]:
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
                casts.append(OpDesc(type="cast", inputs={"X": [name]}, outputs={"Out": [new]}, position=0, attrs=attrs))
                op.inputs[slot][at] = new
    return casts


def _differentiate(budget: Budget, block: Block, type: str, one: _Backward) -> None:
    """Builds a forward op once more, from copies of its inputs, and the gradients by these."""
    forward, asked = one.forward, {name for name, _ in one.wanted}
    # The way from the inputs to the results is looked for among all ops.
    budget.work(STEP * len(block.ops))
    aliases: dict[str, list[Variable]] = {}

    def fresh(name: str) -> Variable:
        like = block._var_recursive(name)
        var = block.create_var(
            name=f"{name}.again_{len(block.vars)}", shape=like._shape, dtype=like._dtype, stop_gradient=False
        )
        var._dtype_is_inferred = True
        return var

    def copied(name: str) -> str:
        if name not in asked:
            return name
        aliases.setdefault(name, []).append(fresh(name))
        append_op(block, "assign", {"X": [name]}, {"Out": [aliases[name][-1].name]})
        return aliases[name][-1].name

    inputs = {slot: [copied(name) for name in row] for slot, row in forward.inputs.items()}
    results = {name: fresh(name) for row in forward.outputs.values() for name in row}
    before = len(block.ops)
    append_op(
        block, forward.type, inputs,
        {slot: [results[name].name for name in row] for slot, row in forward.outputs.items()}, forward.attrs,
    )  # fmt: skip
    if any(op.definition.random or op.definition.effects for op in block.ops[before:]):
        raise NotFoundError(
            f"'{type}' belongs to an operator that draws numbers, and tstatic lacks it in Paddle's form",
            expected="backward operators in the form of docs/ops.md, or of operators that give the same each time",
            received=type,
            fix="build the program here, and load its values",
            op=type,
        )
    targets = [(results[name], block._var_recursive(grad)) for name, grad in one.arriving if name in results]
    sources = [var for row in aliases.values() for var in row]
    found = hooks.gradients([t for t, _ in targets], sources, [g for _, g in targets]) if targets and sources else []
    by_name = dict(zip((var.name for var in sources), found, strict=False))
    for name, grad in one.wanted:
        alias = aliases[name].pop(0) if aliases.get(name) else None
        if alias is not None and (value := by_name.get(alias.name)) is not None:
            append_op(block, "assign", {"X": [value.name]}, {"Out": [grad]})
        else:
            append_op(block, "fill_any_like", {"X": [name]}, {"Out": [grad]}, {"value": 0.0})


def _gradients(row: Sequence[proto.Slot]) -> list[str]:
    """Returns the names in slots of gradients."""
    return [name for slot in row if slot.parameter.endswith(GRAD) for name in slot.arguments]


def _complete(op: OpDesc) -> bool:
    """Returns whether a backward op has all inputs that its definition here needs for the gradients that it gives."""
    slots = op_def(op.type).inputs
    needed = {slot.removesuffix(GRAD) for slot in op.outputs} | {slot.name for slot in slots if not slot.optional}
    return all(slot.name in op.inputs for slot in slots if slot.name in needed)


def _locate(kind: str, block: int, index: int) -> str:
    return {"program": "the program", "block": f"block {block}"}.get(kind, f"block {block}, {kind} {index}")
