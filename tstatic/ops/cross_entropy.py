"""The 1.x losses on probabilities, ``cross_entropy`` and ``cross_entropy2``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.opdef import GRAD, Card, Case, Domain, GradOp, Values, register, spelled
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, Shape
from tstatic.ops import _labels as labels
from tstatic.ops._bound import Bound, Calls, float_scratch
from tstatic.ops._rows import by_rows, rows_needs, vector
from tstatic.ops._shapes import single
from tstatic.ops._unary import of_floats

PROBABILITIES = Values(0.25, 1.0)


# ------------------------------------------------------------------------------------------------------- cross_entropy
def _entropy_shape(x: Meta, label: Meta, soft: bool) -> Shape:
    of_floats(x)
    if x.rank < 1:
        raise ShapeError(
            "X of cross_entropy has rank 0",
            expected="probabilities of shape [..., classes]",
            received="shape []",
            fix="reshape X to [1, classes]",
        )
    labels.need_labels(label, x, soft)
    wanted = x.shape if soft else (*x.shape[:-1], 1)
    given = label.shape if soft or label.rank == x.rank else (*label.shape, 1)
    return (*labels.need_fitting(given, wanted, x.shape)[:-1], 1)


def _needs(ins: Sequence[Meta], outs: Sequence[Any], *, soft_label: bool) -> tuple[Meta, ...]:
    work = (float_scratch(ins[0], ins[0].shape),) if soft_label else ()
    return (*work, *rows_needs(ins[0], -1, 2))


def _calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, soft_label: bool, ignore_index: int
) -> Calls:
    x, label = ins
    values, _, store = vector(outs[0])

    if soft_label:

        def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
            return [(labels.soft_loss, (*read, scratch[0].reshape(read[0].shape), values))]

        return [*by_rows((x, label), (), -1, scratch[1:], run), *store]
    classes, load, _ = vector(label)

    def pick(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss, (read[0], classes, None, values, ignore_index))]

    checked: Calls = [*load, (labels.check_classes, (classes, x.shape[-1], ignore_index))]
    return [*checked, *by_rows((x,), (), -1, scratch, pick), *store]


def _grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, soft_label: bool, ignore_index: int
) -> Calls:
    x, label, dloss = ins
    values, load_loss, _ = vector(dloss)
    if soft_label:

        def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
            return [(labels.soft_loss_grad, (*read, values, written[0]))]

        return [*load_loss, *by_rows((x, label), outs, -1, scratch, run)]
    classes, load, _ = vector(label)

    def pick(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.picked_grad, (read[0], classes, values, written[0], ignore_index))]

    return [*load, *load_loss, *by_rows((x,), outs, -1, scratch, pick)]


def _lower(torch: Any, x: Any, label: Any, soft_label: bool, ignore_index: int) -> Any:
    wide = x.float() if x.itemsize == 2 else x
    logs = wide.log().clamp(min=-labels.HUGE)
    if soft_label:
        return (-(label.to(wide.dtype) * logs).sum(-1, keepdim=True)).to(x.dtype)
    column = label.reshape(*x.shape[:-1], 1).long()
    ignored = column == ignore_index
    loss = -logs.gather(-1, torch.where(ignored, 0, column)) if logs.numel() else wide.new_zeros(column.shape)
    return torch.where(ignored, torch.zeros_like(loss), loss).to(x.dtype)


def _grad_lower(torch: Any, x: Any, label: Any, dloss: Any, soft_label: bool, ignore_index: int) -> Any:
    p, dy = (v.float() if v.itemsize == 2 else v for v in (x, dloss))
    if soft_label:
        return (-label.to(p.dtype) / p * dy).to(x.dtype)
    column = label.reshape(*x.shape[:-1], 1)
    hot = (torch.arange(x.shape[-1], device=x.device) == column) & (column != ignore_index)
    return torch.where(hot, -dy / p, torch.zeros_like(p)).to(x.dtype)


_ENTROPY = Bound(2, _calls, _needs)
_ENTROPY_GRAD = Bound(3, _grad_calls, lambda ins, outs: rows_needs(ins[0], -1, 3))
_CASES = (
    Case(((3, 4), (3, 1))),
    Case(((3, 4), (3,))),
    Case(((2, 3, 4), (2, 3, 1))),
    Case(((3, 4), (3, 1)), {"ignore_index": 2}),
    Case(((4,), (1,))),
    Case(((0, 4), (0, 1))),
    Case(((2, 1), (2, 1))),
    Case(((6, 30), (6, 1))),
)

register(
    Card(
        "cross_entropy",
        "X, Label -> Y",
        attrs={"soft_label": False, "ignore_index": -100},
        infer=lambda x, label, soft_label: x.with_shape(_entropy_shape(x, label, soft_label)),
        ref=_ENTROPY,
        lower=_lower,
        scratch=_ENTROPY.scratch,
        effects=True,
        grad=GradOp(
            f"X, Label, Y{GRAD} -> X{GRAD}", ref=_ENTROPY_GRAD, lower=_grad_lower, scratch=_ENTROPY_GRAD.scratch
        ),
        amp="black",
        domain=Domain(cases=_CASES, values={"X": PROBABILITIES, "Label": Values(0, "X.-1", dtype="int64")}, ulps=16.0),
    )
)


# ------------------------------------------------------------------------------------------------------ cross_entropy2
def _infer2(x: Meta, label: Meta) -> tuple[Meta, Meta, Meta]:
    shape = _entropy_shape(x, label, False)
    return x.with_shape(shape), x.with_shape(shape), x.with_shape((*x.shape, 0))


def _calls2(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int) -> Calls:
    x, label = ins
    classes, load, _ = vector(label)
    loss, _, store = vector(outs[0]) if outs[0] is not None else (None, [], [])
    match, _, store_match = vector(outs[1]) if outs[1] is not None else (None, [], [])

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss, (read[0], classes, match, loss, ignore_index))]

    checked: Calls = [*load, (labels.check_classes, (classes, x.shape[-1], ignore_index))]
    return [*checked, *by_rows((x,), (), -1, scratch, run), *store, *store_match]


def _grad_calls2(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int) -> Calls:
    label, match, _, dloss = ins
    (classes, load, _), (picked, load_picked, _), (values, load_loss, _) = map(vector, (label, match, dloss))

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        return [(labels.pick_loss_grad, (picked, classes, values, written[0], ignore_index))]

    return [*load, *load_picked, *load_loss, *by_rows((), outs, -1, scratch, run)]


def _lower2(torch: Any, x: Any, label: Any, ignore_index: int) -> Any:
    column = label.reshape(*x.shape[:-1], 1).long()
    ignored = column == ignore_index
    picked = x.gather(-1, torch.where(ignored, 0, column)) if x.numel() else x.new_ones(column.shape)
    picked = torch.where(ignored, torch.ones_like(picked), picked)
    return _lower(torch, x, label, False, ignore_index), picked, x.new_empty((*x.shape, 0))


def _grad_lower2(torch: Any, label: Any, match: Any, xshape: Any, dloss: Any, ignore_index: int) -> Any:
    shape = xshape.shape[:-1]
    column = label.reshape(*shape[:-1], 1)
    hot = (torch.arange(shape[-1], device=label.device) == column) & (column != ignore_index)
    value = (-dloss.float() / match.float() if match.itemsize == 2 else -dloss / match).to(match.dtype)
    return torch.where(hot, value, torch.zeros_like(value))


_ENTROPY2 = Bound(2, _calls2, lambda ins, outs: rows_needs(ins[0], -1, 1))
_ENTROPY2_GRAD = Bound(4, _grad_calls2, lambda ins, outs: rows_needs(outs[0], -1, 1), unread=(2,))

register(
    Card(
        "cross_entropy2",
        "X, Label -> Y, MatchX~, XShape~",
        attrs={"ignore_index": -100},
        infer=_infer2,
        ref=_ENTROPY2,
        lower=_lower2,
        scratch=_ENTROPY2.scratch,
        effects=True,
        grad=GradOp(
            f"Label, MatchX, XShape, Y{GRAD} -> X{GRAD}",
            ref=_ENTROPY2_GRAD,
            lower=_grad_lower2,
            infer=lambda label, match, xshape, dloss: xshape.with_shape(xshape.shape[:-1]),
            scratch=_ENTROPY2_GRAD.scratch,
            shape_only=("XShape",),
        ),
        amp="black",
        domain=Domain(cases=_CASES, values={"X": PROBABILITIES, "Label": Values(0, "X.-1", dtype="int64")}, ulps=16.0),
    )
)


@spelled("fluid.layers.cross_entropy", op="cross_entropy2")
def fluid_cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100
) -> Variable:
    """Returns the cross entropy ``[..., 1]`` of probabilities.

    Args:
        input: Probabilities ``[..., classes]``.
        label: Class numbers ``[..., 1]``, or distributions ``[..., classes]`` if ``soft_label``.
        soft_label: Whether labels are distributions.
        ignore_index: Rows with this class number have loss 0.
    """
    x, y = labels.variables("cross_entropy", input=input, label=label)
    if soft_label:
        return single("cross_entropy", {"X": x, "Label": y}, {"soft_label": True, "ignore_index": ignore_index})
    return single("cross_entropy2", {"X": x, "Label": y}, {"ignore_index": ignore_index})
