"""Builds the program as it runs: the user's, with fused ops in place of those that they replace."""

from __future__ import annotations

from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import EMPTY, OpDef
from tstatic.ir.program import Block, Operator, Program


def _named(op: FrozenOp, names: dict[str, str], inputs: bool) -> dict[str, tuple[str, ...]]:
    slots, entries = (op.definition.inputs, op.inputs) if inputs else (op.definition.outputs, op.outputs)
    found = {}
    for slot, entry in zip(slots, entries, strict=True):
        if entry is None or slot.name == "Shapes":
            continue
        row = (entry,) if isinstance(entry, str) else entry
        found[slot.name] = tuple(names.get(v, v) if v != EMPTY else v for v in row)
    return found


class _Shown(Operator):
    """An op with a definition of its own, as fused ops have."""

    __slots__ = ("own",)
    own: OpDef

    @property
    def definition(self) -> OpDef:
        return self.own


def _operator(op: FrozenOp, block: Block, names: dict[str, str]) -> Operator:
    shown = _Shown(
        block, op.type, _named(op, names, True), _named(op, names, False), dict(op.attrs),
        role=op.role, role_var=op.role_var, where=op.where, position=op.position,
    )  # fmt: skip
    shown.own = op.definition
    return shown


def as_program(program: Program, frozen: FrozenProgram) -> Program:
    """Returns a program for reading: the ops of the first block as they run, and the variables that they use.

    It cannot be run or saved: fused ops exist only in plans. The user's program is not changed.
    """
    copy = program.clone()
    block = copy.global_block()
    names = dict(frozen.names)
    known = {op.position: op for op in block.ops}
    ops = []
    for op in frozen.ops:
        same = known.get(op.position)
        # An op with a body of its own (control flow) is shown as the user wrote it.
        kept = same is not None and not op.body and same.type == op.type and op.sub_blocks
        ops.append(same if kept and same is not None else _operator(op, block, names))
    block.ops[:] = ops
    touched = {n for op in ops for n in (*op.input_arg_names, *op.output_arg_names)}
    for name in [n for n, v in block.vars.items() if n not in touched and not v.persistable and not v.is_data]:
        del block.vars[name]
    return copy
