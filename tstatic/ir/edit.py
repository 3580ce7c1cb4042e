"""Copies of programs: clone, clone for test, prune."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tstatic.errors import ProgramTypeError
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Program, Variable

_TRAINING = OpRole.Backward | OpRole.Optimize | OpRole.LRSched


def _copy_op(op: Operator, block: Block) -> Operator:
    return Operator(
        block, op.type, dict(op.inputs), dict(op.outputs), dict(op.attrs), role=op.role, role_var=op.role_var,
        where=op.where, position=op.position, namescope=op.namescope, device=op.device, updates=op.updates,
    )  # fmt: skip


def _copy(program: Program) -> Program:
    copied = Program()
    copied._seed = program._seed
    copied.blocks = []
    for block in program.blocks:
        new = Block(copied, block.idx, block.parent_idx, block.forward_block_idx)
        new.built = block.built
        new.grad_prefix = block.grad_prefix
        for name, var in block.vars.items():
            new.vars[name] = copy.copy(var)
            new.vars[name].block = new
        new.ops = [_copy_op(op, new) for op in block.ops]
        copied.blocks.append(new)
    copied.current_block_idx = program.current_block_idx
    copied.learning_rates = dict(program.learning_rates)
    copied.loss_name = program.loss_name
    copied.mixed_precision = program.mixed_precision
    copied.distributed, copied.collectives = program.distributed, program.collectives
    copied.readers = list(program.readers)
    copied._is_test = program._is_test
    copied._appending_grad_times = program._appending_grad_times
    copied.error_clips = dict(program.error_clips)
    # The program's own mark alone: under as_paddle the class has one for all programs.
    if "fetches_convert" in vars(program):
        copied.fetches_convert = True
    copied.feed_names, copied.fetch_names = program.feed_names, program.fetch_names
    copied._from_file = program._from_file
    return copied


def clone(program: Program, for_test: bool = False) -> Program:
    """Returns a deep copy with the same names; ``for_test`` leaves out training ops and freezes dropout and statistics."""
    copied = _copy(program)
    if not for_test:
        return copied
    copied._is_test = True
    # Schedules belong to the ops that are left out.
    copied.learning_rates = {}
    copied.loss_name = None
    for block in copied.blocks:
        block.ops = [op for op in block.ops if not op.role & _TRAINING]
        for op in block.ops:
            if "is_test" in op.definition.attrs:
                op.attrs["is_test"] = True
    _drop_unused(copied, keep_data=True)
    return copied


def sub_blocks(op: Operator) -> list[int]:
    """Returns the indices of the blocks that an op owns."""
    return [
        op.attrs[n] for n, spec in op.definition.attrs.items() if spec.kind == "block" and op.attrs.get(n) is not None
    ]


def used_blocks(program: Program) -> set[int]:
    """Returns the indices of the blocks that block 0 reaches."""
    found = {0}
    stack = [0]
    while stack:
        for op in program.blocks[stack.pop()].ops:
            for index in sub_blocks(op):
                if index not in found:
                    found.add(index)
                    stack.append(index)
    return found


def _drop_unused(program: Program, keep_data: bool) -> None:
    reached = used_blocks(program)
    for block in program.blocks:
        if block.idx not in reached:
            # Emptied but kept: attributes refer to blocks by their indices.
            block.ops = []
    ops = [op for block in program.blocks for op in block.ops]
    touched = {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
    touched |= _offsets(program, touched)
    for block in program.blocks:
        # Scripts feed labels to test programs, too, where nothing reads them.
        block.vars.drop([n for n, v in block.vars.items() if n not in touched and not (keep_data and v.is_data)])
    program._touch()


def _offsets(program: Program, touched: Iterable[str]) -> set[str]:
    """Returns the names of the row offsets of variables."""
    return {offsets for block in program.blocks for n in touched if n in block.vars for offsets in block.vars[n].lod}


def target_names(targets: Any) -> list[str]:
    """Returns the names of prune targets, which may be Variables, names, or the op that writes them.

    Raises:
        ProgramTypeError: For anything else.
    """
    names: list[str] = []
    for target in targets if isinstance(targets, list | tuple) else [targets]:
        if isinstance(target, Variable):
            names.append(target.name)
        elif isinstance(target, str):
            names.append(target)
        elif isinstance(target, Operator):
            names.extend(target.output_arg_names)
        else:
            raise ProgramTypeError(
                "All targets of Program._prune_with_input() can only be Variable or Operator, but received "
                f"{type(target).__name__}",
                expected="a Variable, a name or an Operator",
                received=repr(target),
                fix="pass the variables to keep",
            )
    return names


def prune(
    program: Program, feeds: Sequence[str], targets: Any, keeps: Callable[[Operator], bool | None] | None = None
) -> Program:
    """Returns a copy with only those ops of block 0 that the targets need; fed names need no producer.

    Args:
        program: The program; it is not changed.
        feeds: Names that are fed.
        targets: Variables, names, or the op that writes them.
        keeps: Says of an op whether it stays, ``None`` if what reads its results decides.
    """
    copied = _copy(program)
    block = copied.global_block()

    def reads(op: Operator) -> set[str]:
        owned = [inner for index in sub_blocks(op) for inner in copied.blocks[index].ops]
        return {name for one in (op, *owned) for name in one.input_arg_names}

    results = set(target_names(targets))
    # What is fetched has its row offsets fetched with it.
    results |= _offsets(copied, results)
    wanted = set(results)
    kept: list[Operator] = []
    # Backwards: readers come before what makes their inputs.
    for op in reversed(block.ops):
        stays = keeps(op) if keeps is not None else None
        if stays or (stays is None and not wanted.difference(feeds).isdisjoint(op.output_arg_names)):
            kept.append(op)
            wanted |= reads(op)
    block.ops = kept[::-1]
    used = results.union(*(reads(op).union(op.output_arg_names) for op in kept))
    used |= _offsets(copied, used)
    block.vars.drop([n for n in block.vars if n not in used])
    copied._touch()
    return copied
