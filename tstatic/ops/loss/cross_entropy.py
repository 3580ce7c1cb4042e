"""The 1.x losses on probabilities, ``cross_entropy`` and ``cross_entropy2``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.checks import ANY_RANK, check_rank
from tstatic.ir.opdef import GRAD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta, Shape
from tstatic.ops.base import labels
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.rows import by_rows, rows_scratch_metas, vector
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.loss import _loss_onnx as _onnx

# Not near 0, where the slope 1 / p is too steep for finite differences.
PROBABILITIES = ValueRange(0.25, 1.0)


# ------------------------------------------------------------------------------------------------------- cross_entropy
SLOTS = "X, Label, SoftmaxX?"
"""``SoftmaxX`` is what X is the softmax of: nothing of it is read, but the gradient goes to it rather than to X."""


def _entropy_shape(x: Meta, label: Meta, soft: bool) -> Shape:
    infer_float(x)
    check_rank(x, range(1, ANY_RANK), "X", layout="[..., classes]", fix="reshape X to [1, classes]")
    labels.check_labels(label, x, soft)
    wanted = x.shape if soft else (*x.shape[:-1], 1)
    column = label if soft or label.rank == x.rank else label.with_shape((*label.shape, 1))
    return (*labels.check_fitting(column, wanted, x)[:-1], 1)


# The logarithms need a buffer: X may have later readers.
def _scratch_metas(ins: Sequence[Meta], outs: Sequence[Any], *, soft_label: bool) -> tuple[Meta, ...]:
    work = (float_scratch(ins[0], ins[0].shape),) if soft_label else ()
    return (*work, *rows_scratch_metas(ins[0], -1, 2))


def _calls(
    ins: Sequence[Any],
    outs: Sequence[Any],
    scratch: Sequence[Any],
    *,
    soft_label: bool,
    ignore_index: int,
    given: Sequence[Meta],
) -> Calls:
    x, label, _ = ins
    values, _, store = vector(outs[0])
    # From the dtype of the program: `ins` may be float32 copies of 16-bit values.
    floor = labels.floor_of(given[0].dtype)

    if soft_label:

        def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
            return [(labels.soft_loss, (*read, scratch[0].reshape(read[0].shape), values, floor))]

        return [*by_rows((x, label), (), -1, scratch[1:], run), *store]
    classes, load, _ = vector(label)

    def pick(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss, (read[0], classes, None, values, ignore_index, floor))]

    return [*load, *by_rows((x,), (), -1, scratch, pick), *store]


def _grad_calls(
    ins: Sequence[Any],
    outs: Sequence[Any],
    scratch: Sequence[Any],
    *,
    soft_label: bool,
    ignore_index: int,
    given: Sequence[Meta],
) -> Calls:
    x, label, dloss = ins
    values, load_loss, _ = vector(dloss)
    floor = labels.floor_of(given[0].dtype)
    if soft_label:

        def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
            return [(labels.soft_loss_grad, (*read, values, written[0], floor))]

        return [*load_loss, *by_rows((x, label), outs, -1, scratch, run)]
    classes, load, _ = vector(label)

    def pick(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.picked_grad, (read[0], classes, values, written[0], ignore_index, floor))]

    return [*load, *load_loss, *by_rows((x,), outs, -1, scratch, pick)]


def _lower(torch: Any, x: Any, label: Any, source: Any, soft_label: bool, ignore_index: int) -> Any:
    # The floor is that of the input's dtype, also where the arithmetic is wider: it is part of the definition.
    floor = torch.finfo(x.dtype).tiny
    if soft_label:
        logs = torch_wide(x).clamp(min=floor).log_()
        return logs.mul_(label).sum(-1, keepdim=True).neg_().to(x.dtype)
    column = label.reshape(*x.shape[:-1], 1).long()
    ignored = column == ignore_index
    picked = torch_wide(x.gather(-1, torch.where(ignored, 0, column)) if x.numel() else x.new_ones(column.shape))
    return torch.where(ignored, 0, picked.clamp(min=floor).log_().neg_()).to(x.dtype)


def _grad_lower(torch: Any, x: Any, label: Any, dloss: Any, soft_label: bool, ignore_index: int) -> Any:
    floor, dy = torch.finfo(x.dtype).tiny, torch_wide(dloss)
    if soft_label:
        return torch.div(label, torch_wide(x).clamp(min=floor)).mul_(-dy).to(x.dtype)
    column = label.reshape(*x.shape[:-1], 1).long()
    ignored = column == ignore_index
    at, made = torch.where(ignored, 0, column), torch.zeros_like(x)
    if not x.numel():
        return made
    own = -dy / torch_wide(x.gather(-1, at)).clamp(min=floor)
    return made.scatter_(-1, at, torch.where(ignored, 0, own).to(x.dtype))


def _rule(ctx: GradContext) -> list[OpSpec]:
    x, label = ctx.inputs["X"], ctx.inputs["Label"]
    if x[0] not in ctx.in_grads:
        return []
    # Through the probabilities the gradient is -1 / p, then times p: lost where p is 0.
    joint = labels.joint_gradient(ctx, "X", "Y", x[0])
    if joint is not None:
        return joint
    ins = {"X": x, "Label": label, f"Y{GRAD}": [ctx.out_grads[ctx.outputs["Y"][0]]]}
    return [OpSpec("cross_entropy_grad", ins, {f"X{GRAD}": [ctx.in_grads[x[0]]]}, ctx.attrs)]


# SoftmaxX has no value at this point if nothing else needs it.
_ENTROPY = CallRef(_calls, _scratch_metas, unread=(2,))
# Scratch of three matrices: the probabilities, labels if they are distributions, and the gradient.
_ENTROPY_GRAD = CallRef(_grad_calls, lambda ins, outs: rows_scratch_metas(ins[0], -1, 3))
# A distribution holds no class numbers to check.
_CLASSES = labels.class_numbers(lambda x, label, *rest, soft_label: None if soft_label else x.shape[-1])
# Labels with and without their last axis, ignored ones, rank 1, no rows, one class, long rows.
_CASES = (
    Case(((3, 4), (3, 1), None)),
    Case(((3, 4), (3,), None)),
    Case(((2, 3, 4), (2, 3, 1), None)),
    Case(((3, 4), (3, 1), None), {"ignore_index": 2}),
    Case(((4,), (1,), None)),
    Case(((0, 4), (0, 1), None)),
    Case(((2, 1), (2, 1), None)),
    Case(((6, 30), (6, 1), None)),
)

register(
    OpDef(
        "cross_entropy", f"{SLOTS} -> Y", lod="X", attrs={"soft_label": False, "ignore_index": -100},
        infer=lambda x, label, source, soft_label: x.with_shape(_entropy_shape(x, label, soft_label)), ref=_ENTROPY,
        lower=_lower, shape_only=("SoftmaxX",), effects=True, grad=_rule, amp="black", indices=_CLASSES,
        domain=Domain(
            cases=_CASES, values={"X": PROBABILITIES, "Label": ValueRange(0, "X.-1", dtype="int64")}, ulps=16.0,
        ), onnx=lambda g, x, label, source, *, soft_label, ignore_index: _onnx.cross_entropy(g, x, label, soft_label, ignore_index),
    ),
    GradOp(f"X, Label, Y{GRAD} -> X{GRAD}", ref=_ENTROPY_GRAD, lower=_grad_lower, indices=_CLASSES),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------ cross_entropy2
def _infer2(x: Meta, label: Meta, source: Meta | None) -> tuple[Meta, Meta, Meta]:
    shape = _entropy_shape(x, label, False)
    # XShape holds no element: it tells the backward op the shape of X, of which it needs no values.
    return x.with_shape(shape), x.with_shape(shape), x.with_shape((*x.shape, 0))


def _calls2(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int, given: Sequence[Meta]
) -> Calls:
    x, label, _ = ins
    classes, load, _ = vector(label)
    loss, _, store = vector(outs[0]) if outs[0] is not None else (None, [], [])
    # The backward op needs the picked probabilities, not all of them: X may be freed.
    match, _, store_match = vector(outs[1]) if outs[1] is not None else (None, [], [])

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss, (read[0], classes, match, loss, ignore_index, labels.floor_of(given[0].dtype)))]

    return [*load, *by_rows((x,), (), -1, scratch, run), *store, *store_match]


def _grad_calls2(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int, given: Sequence[Meta]
) -> Calls:
    label, match, _, dloss = ins
    floor = labels.floor_of(given[1].dtype)
    (classes, load, _), (picked, load_picked, _), (values, load_loss, _) = map(vector, (label, match, dloss))

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss_grad, (picked, classes, values, written[0], ignore_index, floor))]

    return [*load, *load_picked, *load_loss, *by_rows((), outs, -1, scratch, run)]


def _lower2(torch: Any, x: Any, label: Any, source: Any, ignore_index: int) -> Any:
    column = label.reshape(*x.shape[:-1], 1).long()
    ignored = column == ignore_index
    picked = x.gather(-1, torch.where(ignored, 0, column)) if x.numel() else x.new_ones(column.shape)
    picked = torch.where(ignored, torch.ones_like(picked), picked)
    return _lower(torch, x, label, None, False, ignore_index), picked, x.new_empty((*x.shape, 0))


def _grad_lower2(torch: Any, label: Any, match: Any, xshape: Any, dloss: Any, ignore_index: int) -> Any:
    shape = xshape.shape[:-1]
    column = label.reshape(*shape[:-1], 1).long()
    # MatchX is 1 in ignored rows, whose gradient is 0 all the same.
    ignored = column == ignore_index
    made = match.new_zeros(shape)
    if not made.numel():
        return made
    own = -dloss / torch_wide(match).clamp(min=torch.finfo(match.dtype).tiny)
    return made.scatter_(-1, torch.where(ignored, 0, column), torch.where(ignored, 0, own).to(match.dtype))


def _rule2(ctx: GradContext) -> list[OpSpec]:
    x = ctx.inputs["X"][0]
    dloss = ctx.out_grads.get(ctx.outputs["Y"][0])
    if x not in ctx.in_grads or dloss is None:
        return []
    joint = labels.joint_gradient(ctx, "X", "Y", x)
    if joint is not None:
        return joint
    ins = {"Label": ctx.inputs["Label"], **{s: ctx.outputs[s] for s in ("MatchX", "XShape")}, f"Y{GRAD}": [dloss]}
    return [OpSpec("cross_entropy2_grad", ins, {f"X{GRAD}": [ctx.in_grads[x]]}, ctx.attrs)]


# SoftmaxX only names where the gradient goes.
_ENTROPY2 = CallRef(_calls2, lambda ins, outs: rows_scratch_metas(ins[0], -1, 1), unread=(2,))
# XShape lends its shape; its values, none, are not read.
_ENTROPY2_GRAD = CallRef(_grad_calls2, lambda ins, outs: rows_scratch_metas(outs[0], -1, 1), unread=(2,))

register(
    OpDef(
        "cross_entropy2", f"{SLOTS} -> Y, MatchX~, XShape~", lod="X", attrs={"ignore_index": -100}, infer=_infer2, ref=_ENTROPY2,
        lower=_lower2, shape_only=("SoftmaxX",), effects=True, grad=_rule2, amp="black",
        indices=labels.class_numbers(lambda x, label, source: x.shape[-1]),
        domain=Domain(
            cases=_CASES, values={"X": PROBABILITIES, "Label": ValueRange(0, "X.-1", dtype="int64")}, ulps=16.0,
        ), onnx=_onnx.cross_entropy2,
    ),
    GradOp(
        f"Label, MatchX, XShape, Y{GRAD} -> X{GRAD}", ref=_ENTROPY2_GRAD, lower=_grad_lower2,
        infer=lambda label, match, xshape, dloss: xshape.with_shape(xshape.shape[:-1]), shape_only=("XShape",),
        indices=labels.class_numbers(lambda label, match, xshape, dloss: xshape.shape[-2]),
    ),
)  # fmt: skip


@export("fluid.layers.cross_entropy", op="cross_entropy2")
def fluid_cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100
) -> Variable:
    """Returns the cross entropy ``[..., 1]`` of probabilities, ``-log(max(p, t))`` with the dtype's smallest normal ``t``.

    If they are the direct result of a softmax along the last axis, its input gets the gradient of the two together.

    Args:
        input: Probabilities ``[..., classes]``.
        label: Class numbers ``[..., 1]``, or distributions ``[..., classes]`` if ``soft_label``.
        soft_label: Whether labels are distributions.
        ignore_index: Rows with this class number have loss 0.

    Example:
        >>> p = paddle.to_tensor([[0.25, 0.75], [0.5, 0.5]])
        >>> label = paddle.to_tensor(np.array([[1], [0]]))
        >>> loss = fluid.layers.cross_entropy(p, label)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([[0.2877],
               [0.6931]], dtype=float32)
    """
    x, y = labels.variables("cross_entropy", input=input, label=label)
    ins = {"X": x, "Label": y, "SoftmaxX": labels.softmax_input(x, -1)}
    if soft_label:
        return emit_one("cross_entropy", ins, {"soft_label": True, "ignore_index": ignore_index})
    return emit_one("cross_entropy2", ins, {"ignore_index": ignore_index})
