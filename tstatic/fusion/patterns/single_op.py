"""Gives kernels of their own to ops that no fusion took: to those that draw or, so that alone they have a group's bits, to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.channels.batch_norm import batch_norm_kernel
from tstatic.fusion.codegen.define import draws, is_elementwise, works_on_rows
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.gemm import gemm_kernel
from tstatic.fusion.codegen.matrix.products import multiplies
from tstatic.fusion.codegen.update import update_kernel
from tstatic.fusion.engine import loop_nest
from tstatic.fusion.patterns.multi_tensor import is_update, leaves_rows
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import OpDef
from tstatic.ir.types import UNKNOWN, Meta

MakeKernel = Callable[[Sequence[FrozenOp], Mapping[str, Meta], Sequence[str]], Kernel]
"""``(body, metas, values that it writes) -> Kernel``."""

SINGLE_OP = "single_op"
"""What ops with such kernels have as their fusion's name: they are made where kernels run, whatever the strategy."""


def kernel_per_op(program: FrozenProgram, metas: Mapping[str, Meta]) -> FrozenProgram:
    """Returns the program with a kernel for every op that can have one, as ``FLAGS_numerics=strict`` asks for."""
    return program.edit(ops=tuple(one for op in program.ops for one in _with_kernels(op, metas)))


def kernel_per_draw(program: FrozenProgram, metas: Mapping[str, Meta]) -> FrozenProgram:
    """Returns the program with a kernel for every op that draws random numbers as kernels can.

    They are the reference's numbers in every bit. Without a kernel the host draws them, and copies them to the device.
    """
    if not any(draws(op.definition) for op in program.ops):
        return program
    ops = (_with_kernels(op, metas) if draws(op.definition) else (op,) for op in program.ops)
    return program.edit(ops=tuple(one for some in ops for one in some))


def _with_kernels(op: FrozenOp, metas: Mapping[str, Meta]) -> tuple[FrozenOp, ...]:
    """Returns an op with a kernel, as one op for each size of its results; the op itself if it has none."""
    made = _with_kernel(op, metas)
    if made is not op or op.body or not draws(op.definition):
        return (made,)
    # A mask of whole slices is smaller than the result: another loop, which draws the same numbers.
    parts = [_with_kernel(part, metas) for part in _apart(op)]
    return tuple(parts) if all(part.body for part in parts) else (op,)


def _apart(op: FrozenOp) -> Iterator[FrozenOp]:
    """Yields an op once for each of its results, which it makes alone."""
    for at, entry in enumerate(op.outputs):
        if entry is not None:
            yield replace(op, outputs=tuple(entry if i == at else None for i in range(len(op.outputs))))


def _with_kernel(op: FrozenOp, metas: Mapping[str, Meta]) -> FrozenOp:
    touched = [*op.reads(), *op.writes()]
    if any(v not in metas or UNKNOWN in metas[v].shape or 0 in metas[v].shape for v in touched):
        return op
    try:
        kernel, make = single_kernel(op, metas)
    except CodegenUnsupported:
        return op
    read = tuple(dict.fromkeys(b.value for b in kernel.inputs))
    # Inputs without content, of which the op needs the shape: their memory may be reused.
    shapes = tuple(v for v in dict.fromkeys(op.reads()) if v not in read)
    # Under the op's own type, as reports and errors call it.
    definition = OpDef(op.type, "Inputs*?, Shapes*? -> Outs*?", shape_only=("Shapes",))
    return FrozenOp(
        definition, (read, shapes), (tuple(op.writes()),), dict(op.attrs), op.role, op.role_var, op.where, op.position,
        body=(op,), fusion=SINGLE_OP, kernel=kernel, make_kernel=make,
    )  # fmt: skip


def single_kernel(op: FrozenOp, metas: Mapping[str, Meta]) -> tuple[Kernel, MakeKernel]:
    """Returns the kernel of an op that no fusion took, and what makes it: the same as in a group.

    Raises:
        CodegenUnsupported: If the op has none, because it states no expression or kernels cannot compute what it states.
    """
    make = _template(op)
    if make is None or op.body or op.sub_blocks:
        stated = op.definition.expression is not None or op.definition.rows is not None
        why = "has state, effects or sizes beside its expression" if stated else "states no expression"
        raise CodegenUnsupported("NOT_POINTWISE", f"{op.type} {why}", op)
    return make([op], metas, list(op.writes())), make


def _template(op: FrozenOp) -> MakeKernel | None:
    """Returns what makes the kernel of an op; ``None`` for an op that has none."""
    if multiplies(op):
        return gemm_kernel
    if is_update(op.definition):
        return None if leaves_rows(op) else update_kernel
    if op.definition.channels is not None:
        return batch_norm_kernel
    return loop_nest if is_elementwise(op.definition) or works_on_rows(op.definition) else None


__all__ = ["SINGLE_OP", "kernel_per_op", "single_kernel"]
