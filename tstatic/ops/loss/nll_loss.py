"""``nll_loss``: minus the log-probability of each label's class, weighted by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import CallRef
from tstatic.ops.elementwise._unary import infer_float
from tstatic.ops.loss import _labels as labels
from tstatic.ops.shape._shapes import emit_one

WORDS = ("mean", "sum", "none")


def _infer(x: Meta, label: Meta, weight: Meta | None, reduction: str) -> tuple[Meta, Meta]:
    infer_float(x)
    if x.rank < 2:
        raise ShapeError(
            "X of nll_loss needs a batch and an axis of classes",
            expected="shape [batch, classes, ...]",
            received=list(x.shape),
            fix="reshape X to [1, classes]",
        )
    labels.check_labels(label, x, False)
    full = labels.check_fitting(label.shape, (x.shape[0], *x.shape[2:]), x.shape)
    if weight is not None:
        if weight.dtype is not x.dtype:
            raise DTypeError(
                "Weight of nll_loss must have the dtype of X",
                expected=x.dtype.name,
                received=weight.dtype.name,
                fix=f"convert it with paddle.cast(weight, '{x.dtype.name}')",
            )
        if weight.rank != 1 or (weight.shape[0] != x.shape[1] and -1 not in (weight.shape[0], x.shape[1])):
            raise ShapeError(
                "Weight of nll_loss needs one value per class",
                expected=[x.shape[1]],
                received=list(weight.shape),
                fix="pass one weight per class",
            )
    return x.with_shape(full if reduction == "none" else ()), x.with_shape(())


def _weights(label: Any, weight: Any, ignore: int, dtype: Any) -> tuple[Any, Any]:
    """Class numbers with ignored ones set to 0, and the factor of each loss (0 where it is ignored)."""
    counted = label != ignore
    index = np.where(counted, label, 0)
    factor = counted.astype(dtype)
    if weight is not None and weight.size:
        factor *= weight[index]
    return index, factor


def _at(shape: Sequence[int], index: Any) -> tuple[Any, ...]:
    """The position of each label's class in a value of ``[batch, classes, ...]``."""
    rank = len(shape)
    grids = [
        np.arange(s).reshape([-1 if i == k else 1 for i in range(rank - 1)])
        for k, s in enumerate((shape[0], *shape[2:]))
    ]
    return (grids[0], index, *grids[1:])


def _loss(x: Any, label: Any, weight: Any, out: Any, total: Any, ignore: int, reduction: str) -> None:
    labels.check_classes(label, x.shape[1], ignore)
    index, factor = _weights(label, weight, ignore, x.dtype)
    count = np.add.reduce(factor, None)
    if total is not None:
        np.copyto(total, 0 if reduction == "none" else count)
    if out is None:
        return
    losses = -x[_at(x.shape, index)] * factor if x.size else np.zeros(label.shape, x.dtype)
    np.copyto(losses, 0, where=label == ignore)
    if reduction == "none":
        np.copyto(out, losses)
        return
    result = np.add.reduce(losses, None)
    # Where every row is ignored the mean is 0.
    np.copyto(out, result if reduction == "sum" else result / count if count != 0 else np.zeros_like(result))


def _calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int, reduction: str
) -> Calls:
    return [(_loss, (*ins, *outs, ignore_index, reduction))]


def _loss_grad(label: Any, weight: Any, total: Any, dout: Any, dx: Any, ignore: int, reduction: str) -> None:
    dx.fill(0)
    if not dx.size:
        return
    index, factor = _weights(label, weight, ignore, dx.dtype)
    share = dout if reduction != "mean" else dout / total if total != 0 else np.zeros_like(dout)
    dx[_at(dx.shape, index)] = -factor * share


def _grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int, reduction: str
) -> Calls:
    return [(_loss_grad, (*ins[1:], outs[0], ignore_index, reduction))]


def _factors(torch: Any, x: Any, label: Any, weight: Any, ignore: int) -> tuple[Any, Any]:
    wide = x.float() if x.itemsize == 2 else x
    counted = label != ignore
    index = torch.where(counted, label, 0).long()
    return index, counted.to(wide.dtype) * (1 if weight is None or not weight.numel() else weight.to(wide.dtype)[index])


def _lower(torch: Any, x: Any, label: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    index, factor = _factors(torch, x, label, weight, ignore_index)
    picked = x.to(factor.dtype).gather(1, index.unsqueeze(1)).squeeze(1) if x.numel() else factor
    losses = -picked * factor
    total = factor.sum()
    if reduction == "none":
        out, total = losses, torch.zeros_like(total)
    else:
        out = (
            losses.sum()
            if reduction == "sum"
            else losses.sum() / torch.where(total == 0, torch.ones_like(total), total)
        )
    return out.to(x.dtype), total.to(x.dtype)


def _grad_lower(
    torch: Any, x: Any, label: Any, weight: Any, total: Any, dout: Any, ignore_index: int, reduction: str
) -> Any:
    index, factor = _factors(torch, x, label, weight, ignore_index)
    share = dout.to(factor.dtype)
    if reduction == "mean":
        wide = total.to(factor.dtype)
        share = torch.where(wide == 0, torch.zeros_like(share), share / wide)
    values = (-factor * share).expand(label.shape).unsqueeze(1)
    return torch.zeros(x.shape, dtype=factor.dtype, device=x.device).scatter(1, index.unsqueeze(1), values).to(x.dtype)


_REF = CallRef(_calls)
_GRAD = CallRef(_grad_calls, unread=(0,))

register(
    OpDef(
        "nll_loss",
        "X, Label, Weight? -> Out, Total_weight~",
        attrs={
            "ignore_index": -100,
            "reduction": Attr("mean", "str", lambda v: None if v in WORDS else f"one of {', '.join(WORDS)}"),
        },
        infer=_infer,
        ref=_REF,
        lower=_lower,
        effects=True,
        grad=GradOp(
            f"X, Label, Weight?, Total_weight, Out{GRAD} -> X{GRAD}",
            ref=_GRAD,
            lower=_grad_lower,
            shape_only=("X",),
        ),
        amp="black",
        domain=Domain(
            cases=(
                Case(((3, 4), (3,))),
                Case(((3, 4), (3,), (4,))),
                Case(((3, 4), (3,), (4,)), {"reduction": "sum"}),
                Case(((2, 3, 4), (2, 4), (3,)), {"reduction": "none"}),
                Case(((2, 3, 2, 2), (2, 2, 2), (3,))),
                Case(((4, 3), (4,), (3,)), {"ignore_index": 1}),
                Case(((1, 1), (1,), (1,))),
                Case(((0, 4), (0,)), {"reduction": "none"}),
                Case(((0, 4), (0,)), {"reduction": "sum"}),
            ),
            values={"Label": ValueRange(0, "X.1", dtype="int64"), "Weight": ValueRange(0.5, 2.0)},
            ulps=16.0,
        ),
    )
)


@export("nn.functional.nll_loss", op="nll_loss")
def nll_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns minus the log-probabilities of the labels.

    Args:
        input: Log-probabilities ``[batch, classes, ...]``.
        label: Class numbers ``[batch, ...]``.
        weight: ``[classes]``: a factor for the loss of each class; the mean divides by the sum of weights.
        ignore_index: Rows with this class number count nothing.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` (the shape of ``label``).
        name: Name of the layer.

    Example:
        >>> x = paddle.log(paddle.to_tensor([[0.25, 0.75], [0.5, 0.5]]))
        >>> label = paddle.to_tensor([1, 0])
        >>> y = paddle.nn.functional.nll_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.2877, 0.6931], dtype=float32)
    """
    x, y = labels.variables("nll_loss", input=input, label=label)
    attrs = {"ignore_index": ignore_index, "reduction": labels.check_reduction(reduction, "nll_loss")}
    ins = {"X": x, "Label": y, "Weight": None if weight is None else check_variable(weight, "weight", "nll_loss")}
    return emit_one("nll_loss", ins, attrs, name=name)
