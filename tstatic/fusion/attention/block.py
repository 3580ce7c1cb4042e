"""The kernel of an attention block: those of its parts, one after the other.

They are its products with their biases, the attention between them, and kernels along rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion.attention.causal import for_kernel
from tstatic.fusion.attention.dot_product_attention import RESULT, SAVED, STRIDES, core_kernel, made_again, saving_of
from tstatic.fusion.attention.parts import fitting_result, numpy_matmul
from tstatic.fusion.attention.search import Forward, backward_of, forward_of, gradients_of, operands_of
from tstatic.fusion.attention.sums import summed_together
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.gemm import gemm_kernel
from tstatic.fusion.codegen.matrix.layouts import Layout
from tstatic.fusion.codegen.matrix.products import multiplies, numpy_products, products_of
from tstatic.fusion.codegen.text.composite import compose, parts_of
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.fusion.codegen.text.script import Fitting
from tstatic.fusion.engine import loop_nest
from tstatic.fusion.engine.pattern import one
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.moves import Ends, at_back, in_front
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import GRAD
from tstatic.ir.types import Meta


def attention_block_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a block, or of its gradient: that of each part, one after the other.

    Raises:
        CodegenUnsupported: If a part has no kernel.
    """
    groups, middle, summing = groups_of(body, metas, needed)
    parts = []
    for number, ops in enumerate(groups):
        later = {v for group in groups[number + 1 :] for op in group for v in op.contents()}
        # The gradient of the softmax names the result by an attribute, and has no slot for it.
        later |= {str(op.attrs[RESULT]) for group in groups[number + 1 :] for op in group if RESULT in op.attrs}
        more = summing if ops is middle else []
        kept = [v for op in (*ops, *more) for v in op.writes() if v in needed or v in later]
        if ops is middle:
            parts.append(core_kernel(ops, metas, kept, more))
            continue
        make = gemm_kernel if any(multiplies(op) for op in ops) else loop_nest
        parts.append(make(ops, metas, kept))
    whole = for_kernel(body)
    return compose(parts, whole, metas, needed, _numpy, _fitting(whole, metas))


def groups_of(
    body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]
) -> tuple[list[list[FrozenOp]], list[FrozenOp], list[FrozenOp]]:
    """Returns the ops of a block part by part, the part that is the attention, and the sums over rows that it makes, too.

    Args:
        body: The ops, in the program's order.
        metas: Metadata of all values.
        needed: Values that are written to memory.
    """
    # As a program of its own, in which the same searches find the parts.
    view = View(FrozenProgram(tuple(body), metas, {}, (), (), {}, {}), metas)
    core, back = _core_of(view)
    layouts = [*back.layouts.values()]
    summing = [
        i for i, op in enumerate(body) if op.type == "elementwise_add_grad" and _sums_rows(op, layouts, metas, needed)
    ]
    # One way to leave partial sums for all of them: they are as many, and as wide.
    if len({metas[one(body[i].output(f"Y{GRAD}")) or ""].numel for i in summing}) > 1:
        summing = []
    behind: set[str] = set()
    before: list[FrozenOp] = []
    after: list[FrozenOp] = []
    for index, op in enumerate(body):
        if index in summing:
            continue
        if index in core:
            behind.update(op.writes())
        # What reads nothing of the attention can be computed in front of it.
        elif behind.isdisjoint(op.reads()):
            before.append(op)
        else:
            after.append(op)
            behind.update(op.writes())
    middle = [body[i] for i in sorted(core)]
    outer = [[part for ops in parts_of(some, metas) for part in _by_shape(ops, metas)] for some in (before, after)]
    return [*outer[0], middle, *outer[1]], middle, [body[i] for i in summing]


def _fitting(body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> Fitting | None:
    """Returns what the gradient's check is given as the attention's result."""
    softmax = next((op for op in body if SAVED in op.attrs), None)
    if softmax is None:
        return None
    batched = (op for op in body if op.type == "matmul_v2_grad" and len(metas[one(op.input("Y")) or ""].shape) > 2)
    mixed = next(batched, None)
    if mixed is None:
        return None
    shape = metas[one(mixed.input(f"Out{GRAD}")) or ""].shape
    result = Layout(str(softmax.attrs[RESULT]), shape, softmax.attrs[STRIDES])
    return fitting_result(body, mixed, result, str(softmax.attrs[SAVED]), metas)


def _by_shape(ops: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> list[list[FrozenOp]]:
    """Returns ops of which none is a product apart, where they work on several shapes: sums of gradients of different sizes."""
    if any(multiplies(op) for op in ops):
        return [[*ops]]
    groups: dict[tuple[int, ...], list[FrozenOp]] = {}
    place: dict[str, tuple[int, ...]] = {}
    for op in ops:
        own = max((metas[v].shape for v in (*op.contents(), *op.writes())), key=lambda shape: (len(shape), shape))
        shape = next((place[v] for v in op.reads() if v in place), own)
        # What is made of a group's values is in the group, whatever its own shape.
        place |= dict.fromkeys(op.writes(), shape)
        groups.setdefault(shape, []).append(op)
    return list(groups.values())


def _sums_rows(op: FrozenOp, layouts: Sequence[Layout], metas: Mapping[str, Meta], needed: Sequence[str]) -> bool:
    """Returns whether the programs that make an attention's gradients can leave the sums of an add's gradient.

    Args:
        op: The gradient of an add.
        layouts: Where the attention's gradients lie.
        metas: Metadata of all values.
        needed: Values that are written to memory.
    """
    given, bias = one(op.input(f"Out{GRAD}")), one(op.output(f"Y{GRAD}"))
    if given is None or bias is None or bias not in needed or not {*op.writes()} <= {bias}:
        return False
    return summed_together(layouts, given, bias, metas)


def _core_of(view: View) -> tuple[frozenset[int], Ends]:
    """Returns the ops of the attention, or of its gradient, in a body, with what moves operands and results; where these lie."""
    # The gradient has a softmax, too, that makes the weights again.
    gradient = any(SAVED in op.attrs for op in view.ops)
    for index, op in enumerate(view.ops):
        if op.type == "softmax" and not gradient:
            forward = forward_of(view, index)
            assert forward is not None, "a match has an attention"
            core, front, back = forward_core(view, forward, saving_of(view, one(op.input("X")) or ""))
            return frozenset(core | front.indices | back.indices), back
        if SAVED in op.attrs:
            core, front, back, _ = backward_core(view, index)
            return frozenset(core | front.indices | back.indices), back
    raise AssertionError("a match has an attention")


def forward_core(view: View, forward: Forward, saving: Sequence[int]) -> tuple[set[int], Ends, Ends]:
    """Returns the ops of an attention, with those that save its sums of powers, and its ends."""
    core = {*forward.indices, *saving}
    product, mixed = view.ops[forward.product], view.ops[forward.mixed]
    result = one(mixed.output("Out")) or ""
    return core, operands_of(view, product, mixed, tuple(core)), at_back(view, [result], core)


def backward_core(view: View, softmax: int) -> tuple[set[int], Ends, Ends, str]:
    """Returns the ops of an attention's gradient, its ends, and the gradient that arrives."""
    backward = backward_of(view, softmax)
    assert backward is not None, "the gradient was found before"
    core = {*made_again(view, backward), *backward.indices}
    product, mixed = view.ops[backward.product], view.ops[backward.mixed]
    # What moves gradients before what moves operands, which it may read, too.
    back = at_back(view, gradients_of(view, backward), core, scaled=True)
    front = operands_of(view, product, mixed, (*core, *back.indices))
    arriving = one(mixed.input(f"Out{GRAD}")) or ""
    given = in_front(view, [arriving], core)
    left = (*given.left, *front.left)
    return core, Ends(front.indices | given.indices, {**front.layouts, **given.layouts}, left), back, arriving


def _numpy(reference: Reference, op: FrozenOp) -> None:
    """Writes products of matrices and of batches of them, and what else an attention has that states no expressions."""
    if multiplies(op):
        try:
            products_of(op, reference.metas)
        except CodegenUnsupported:
            numpy_matmul(reference, op)
            return
        numpy_products(reference, op)
        return
    numpy_matmul(reference, op)
