"""Losses on class numbers: cross_entropy of scores, nll_loss, and label_smooth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.attrs import one_of
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import ANY_RANK, check_choice, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta, dtype_of, numel
from tstatic.ops.base import labels
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.scale import detach
from tstatic.ops.loss import _loss_onnx as _onnx
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_entropy


def _infer(x: Meta, label: Meta, weight: Meta | None, reduction: str) -> tuple[Meta, Meta]:
    infer_float(x)
    check_rank(x, range(2, ANY_RANK), "X", layout="[batch, classes, ...]", fix="reshape X to [1, classes]")
    labels.check_labels(label, x, False)
    full = labels.check_fitting(label, (x.shape[0], *x.shape[2:]), x)
    if weight is not None:
        check_same_dtype((x, weight), ("X", "Weight"))
        labels.check_weights(weight, x.shape[1], "Weight", "nll_loss")
    return x.with_shape(full if reduction == "none" else ()), x.with_shape(())


def _weights(label: Any, weight: Any, ignore: int, dtype: Any) -> tuple[Any, Any]:
    """Returns class numbers with ignored ones set to 0, and the factor of each loss (0 where it is ignored)."""
    counted = label != ignore
    # Ignored rows pick class 0 with the factor 0.
    index = np.where(counted, label, 0)
    factor = counted.astype(dtype)
    if weight is not None and weight.size:
        factor *= weight[index]
    return index, factor


def _at(shape: Sequence[int], index: Any) -> tuple[Any, ...]:
    """Returns the position of each label's class in a value of ``[batch, classes, ...]``."""
    rank = len(shape)
    grids = [
        np.arange(s).reshape([-1 if i == k else 1 for i in range(rank - 1)])
        for k, s in enumerate((shape[0], *shape[2:]))
    ]
    return (grids[0], index, *grids[1:])


def _loss(x: Any, label: Any, weight: Any, out: Any, total: Any, ignore: int, reduction: str) -> None:
    index, factor = _weights(label, weight, ignore, x.dtype)
    # The sum of weights, which the mean divides by, is kept for the backward op.
    count = np.add.reduce(factor, None)
    if total is not None:
        np.copyto(total, 0 if reduction == "none" else count)
    if out is None:
        return
    losses = -x[_at(x.shape, index)] * factor if x.size else np.zeros(label.shape, x.dtype)
    # 0 times an infinite log-probability is NaN.
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
    # Where every row is ignored the mean is the constant 0.
    share = dout if reduction != "mean" else dout / total if total != 0 else np.zeros_like(dout)
    # Each row and place picks one class, so no two values are written to one element.
    dx[_at(dx.shape, index)] = -factor * share


def _grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, ignore_index: int, reduction: str
) -> Calls:
    return [(_loss_grad, (*ins[1:], outs[0], ignore_index, reduction))]


def _factors(torch: Any, x: Any, label: Any, weight: Any, ignore: int) -> tuple[Any, Any]:
    wide = torch_wide(x)
    counted = label != ignore
    # Class 0 replaces ignored labels, which may be out of range; `gather` takes int64 only.
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
    if not x.numel():
        # Of no classes every label is ignored, and there is no class to put in the place of one.
        return torch.zeros_like(x)
    index, factor = _factors(torch, x, label, weight, ignore_index)
    share = dout.to(factor.dtype)
    if reduction == "mean":
        wide = total.to(factor.dtype)
        share = torch.where(wide == 0, torch.zeros_like(share), share / wide)
    values = (-factor * share).expand(label.shape).unsqueeze(1)
    return torch.zeros(x.shape, dtype=factor.dtype, device=x.device).scatter(1, index.unsqueeze(1), values).to(x.dtype)


_REF = CallRef(_calls)
# Of X the gradient needs the shape only, so its memory may be reused by then.
_GRAD = CallRef(_grad_calls, unread=(0,))
# Classes lie along axis 1 whatever the rank.
_CLASSES = labels.class_numbers(lambda x, *rest: x.shape[1])

register(OpDef(
    "nll_loss", "X, Label, Weight? -> Out, Total_weight~",
    attrs={
        "ignore_index": -100,
        "reduction": Attr("mean", "str", one_of(*labels.REDUCTIONS)),
    },
    infer=_infer, ref=_REF, lower=_lower, effects=True, indices=_CLASSES,
    grad=GradOp(
        f"X, Label, Weight?, Total_weight, Out{GRAD} -> X{GRAD}", ref=_GRAD, lower=_grad_lower, shape_only=("X",),
        indices=_CLASSES,
    ),
    amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4), (3,))), Case(((3, 4), (3,), (4,))), Case(((3, 4), (3,), (4,)), {"reduction": "sum"}),
            Case(((2, 3, 4), (2, 4), (3,)), {"reduction": "none"}), Case(((2, 3, 2, 2), (2, 2, 2), (3,))),
            Case(((4, 3), (4,), (3,)), {"ignore_index": 1}), Case(((1, 1), (1,), (1,))),
            Case(((0, 4), (0,)), {"reduction": "none"}), Case(((0, 4), (0,)), {"reduction": "sum"}),
        ),
        values={"Label": ValueRange(0, "X.1", dtype="int64"), "Weight": ValueRange(0.5, 2.0)}, ulps=16.0,
    ), onnx=_onnx.nll,
))  # fmt: skip


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
    check_choice(reduction, labels.REDUCTIONS, "reduction", "nll_loss")
    attrs = {"ignore_index": ignore_index, "reduction": reduction}
    ins = {"X": x, "Label": y, "Weight": None if weight is None else check_variable(weight, "weight", "nll_loss")}
    return emit_one("nll_loss", ins, attrs, name=name)


# --------------------------------------------------------------------------------------------------------- label_smooth
def _infer_smooth(x: Meta, prior: Meta | None) -> Meta:
    infer_float(x)
    check_rank(x, range(1, ANY_RANK), "X", layout="[..., classes]")
    if prior is not None:
        count = numel(prior.shape)
        check_fit(
            count == x.shape[-1] or UNKNOWN in (count, x.shape[-1]), (x, prior), ("X", "PriorDist"),
            "PriorDist of label_smooth needs one value per class", f"a prior of {x.shape[-1]} values",
            "pass labels with the classes along the last axis, and a prior [1, classes]",
        )  # fmt: skip
    return x


def _calls_smooth(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, epsilon: float) -> Calls:
    x, prior = ins
    out = outs[0]
    if out.size == 0:
        return []
    # The shares are rounded once, not per element.
    keep, share = np.asarray(1.0 - epsilon, out.dtype), np.asarray(epsilon / x.shape[-1], out.dtype)
    calls: Calls = [(np.multiply, (x, keep, out))]
    if prior is None:
        return [*calls, (np.add, (out, share, out))]
    part = scratch[0]
    flat = prior.reshape(part.shape, copy=False)
    return [*calls, (np.multiply, (flat, np.asarray(epsilon, out.dtype), part)), (np.add, (out, part, out))]


def _scratch_metas(ins: Sequence[Any], outs: Sequence[Any]) -> tuple[Meta, ...]:
    return () if ins[1] is None else (float_scratch(ins[0], (ins[1].numel,)),)


def _lower_smooth(torch: Any, x: Any, prior: Any, epsilon: float) -> Any:
    wide = torch_wide(x)
    rest = epsilon / max(x.shape[-1], 1) if prior is None else epsilon * prior.to(wide.dtype).reshape(-1)
    return (wide * (1.0 - epsilon) + rest).to(x.dtype)


def _grad(ctx: GradContext) -> list[OpSpec]:
    x, dout = ctx.inputs["X"][0], ctx.out_grads.get(ctx.outputs["Out"][0])
    if dout is None or x not in ctx.in_grads:
        return []
    return [OpSpec("scale", {"X": [dout]}, {"Out": [ctx.in_grads[x]]}, {"scale": 1.0 - ctx.attrs["epsilon"]})]


_REF_smooth = CallRef(_calls_smooth, _scratch_metas)

register(OpDef(
    "label_smooth", "X, PriorDist? -> Out", lod="X",
    attrs={"epsilon": Attr(0.0, "float", lambda v: None if 0 <= v <= 1 else "a number from 0 to 1")},
    infer=_infer_smooth, ref=_REF_smooth, lower=_lower_smooth, grad=_grad, amp="gray",
    domain=Domain(
        cases=(
            Case(((3, 4),), {"epsilon": 0.1}), Case(((3, 4), (1, 4)), {"epsilon": 0.25}),
            Case(((2, 3, 4), (4,)), {"epsilon": 0.5}), Case(((5,),), {"epsilon": 1.0}), Case(((1, 1),)),
            Case(((0, 3),), {"epsilon": 0.1}),
        ),
        ulps=8.0,
    ), onnx=_onnx.label_smooth,
))  # fmt: skip


def _build(label: Variable, prior_dist: Variable | None, epsilon: float, name: str | None) -> Variable:
    ins = {
        "X": check_variable(label, "label", "label_smooth"),
        "PriorDist": None if prior_dist is None else check_variable(prior_dist, "prior_dist", "label_smooth"),
    }
    return emit_one("label_smooth", ins, {"epsilon": epsilon}, name=name)


@export("nn.functional.label_smooth", op="label_smooth")
def label_smooth(
    label: Variable, prior_dist: Variable | None = None, epsilon: float = 0.1, name: str | None = None
) -> Variable:
    """Returns ``(1 - epsilon) * label + epsilon * prior``.

    Args:
        label: ``[..., classes]``, one-hot or any distribution.
        prior_dist: ``[1, classes]``; uniform if ``None``.
        epsilon: The share that is moved, from 0 to 1.
        name: Name of the layer.

    Example:
        >>> label = paddle.to_tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> y = paddle.nn.functional.label_smooth(label, epsilon=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.05, 0.95],
               [0.95, 0.05]], dtype=float32)
    """
    return _build(label, prior_dist, epsilon, name)


@export("fluid.layers.label_smooth", op="label_smooth")
def fluid_label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Returns :func:`label_smooth`, computed in ``dtype``.

    Args:
        label: ``[..., classes]``, one-hot or any distribution; converted to ``dtype`` first.
        prior_dist, epsilon: As in :func:`label_smooth`.
        dtype: A float type, that of the result.
        name: Name of the layer.

    Example:
        >>> label = paddle.to_tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> y = fluid.layers.label_smooth(label, epsilon=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.05, 0.95],
               [0.95, 0.05]], dtype=float32)
    """
    check_variable(label, "label", "label_smooth")
    if dtype_of(dtype) is not label.dtype:
        label = emit_one("cast", {"X": label}, {"in_dtype": label.dtype, "out_dtype": dtype_of(dtype)})
    return _build(label, prior_dist, epsilon, name)


# ---------------------------------------------------------------------------------------------- cross_entropy of scores
@export("nn.functional.cross_entropy", op="softmax_with_cross_entropy")
def cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
    use_softmax: bool = True,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Returns the cross entropy of scores (or, without ``use_softmax``, of probabilities) and labels.

    Args:
        input: Scores ``[..., classes, ...]`` with the classes along ``axis``.
        label: Class numbers of the shape of ``input`` without the axis or with size 1; or distributions of its full
            shape if ``soft_label``.
        weight: ``[classes]``: a factor for the loss of each class. The mean then divides by the sum of weights.
        ignore_index: Rows with this class number count nothing. The mean divides by the number of the others if
            ``ignore_index`` is 0 or more, and by the number of all rows if it is negative, as in Paddle's static mode;
            torch, and :func:`nll_loss` of ``log_softmax(input)``, always divide by the number of the others.
        reduction: ``"mean"`` or ``"sum"`` of all losses (``[]``), or ``"none"``.
        soft_label: Whether labels are distributions.
        axis: The axis of the classes.
        use_softmax: Whether ``input`` holds scores, not probabilities. The loss of a probability ``p`` is
            ``-log(max(p, t))`` with the dtype's smallest normal ``t``; if the probabilities are the direct result of a
            softmax along ``axis``, its input gets the gradient of the two together.
        label_smoothing: Share of the label that is spread evenly over the classes, which must be the last axis.
        name: Name of the last layer.

    Raises:
        ProgramError: For another ``reduction``, or soft labels with an ``ignore_index`` above 0.
        ShapeError: If ranks or sizes do not fit.

    Example:
        >>> x = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> label = paddle.to_tensor([0, 1])
        >>> y = paddle.nn.functional.cross_entropy(x, label)
        >>> static.Executor().run(fetch_list=[y])[0]
        array(0.41, dtype=float32)
    """
    labels.variables("cross_entropy", input=input, label=label)
    check_choice(reduction, labels.REDUCTIONS, "reduction", "cross_entropy")
    if soft_label and ignore_index > 0:
        raise _refuse(
            "soft labels cannot be ignored by number", "ignore_index=-100", ignore_index, "leave it out", label
        )
    # Labels without the axis of classes give losses without it.
    numbers = len(label.shape) == len(input.shape) - 1
    hot = labels.with_class_axis(input, label, axis, "cross_entropy")
    if label_smoothing > 0.0:
        hot, soft_label = _smoothed(input, hot, soft_label, axis, label_smoothing), True
    loss, _ = softmax_entropy(input, hot, soft_label, ignore_index, axis, use_softmax)
    factor = None
    if weight is not None:
        factor = _weights_class(
            input, hot, check_variable(weight, "weight", "cross_entropy"), soft_label, ignore_index, axis
        )
        loss = emit_one("elementwise_mul", {"X": loss, "Y": factor}, name=name if reduction == "none" else None)
    if reduction == "none":
        return emit_one("squeeze2", {"X": loss}, {"axes": (axis,)}, name=name) if numbers else loss
    # A row that is ignored has loss 0 and still counts.
    # Paddle's static mode divides by all rows where the ignored number is negative.
    if reduction == "sum" or (factor is None and (ignore_index < 0 or soft_label)):
        return labels.reduced(loss, reduction, name)
    if factor is None:
        factor = emit_one("cast", {"X": _counted(hot, ignore_index)}, {"out_dtype": loss.dtype})
    total, count = labels.reduced(loss, "sum"), labels.reduced(factor, "sum")
    # Where everything is ignored the sum is 0 too, and stays 0.
    empty = emit_one("equal", {"X": count, "Y": as_variable(0.0, like=count)})
    least = emit_one("elementwise_add", {"X": count, "Y": emit_one("cast", {"X": empty}, {"out_dtype": count.dtype})})
    return emit_one("elementwise_div", {"X": total, "Y": least}, name=name)


def _refuse(what: str, expected: str, received: Any, fix: str, var: Variable) -> ProgramError:
    return ProgramError(what, expected=expected, received=received, fix=fix, op="cross_entropy", var=var.name)


def _counted(label: Variable, ignore: int) -> Variable:
    """Returns which rows are not ignored, in the shape of ``label``."""
    return emit_one("not_equal", {"X": label, "Y": as_variable(ignore, like=label)})


def _smoothed(input: Variable, label: Variable, soft: bool, axis: int, share: float) -> Variable:
    rank = len(input.shape)
    if axis not in (-1, rank - 1):
        raise _refuse("labels are smoothed along the last axis only", "axis=-1", axis, "transpose the input", label)
    if not soft:
        flat = emit_one("squeeze2", {"X": label}, {"axes": (-1,)})
        label = emit_one("one_hot_v2", {"X": flat}, {"depth": input.shape[-1]})
    if label.dtype is not input.dtype:
        label = emit_one("cast", {"X": label}, {"out_dtype": input.dtype})
    return emit_one("label_smooth", {"X": label}, {"epsilon": float(share)})


def _weights_class(input: Variable, label: Variable, weight: Variable, soft: bool, ignore: int, axis: int) -> Variable:
    """Returns the factor of each row's loss, in the shape of the loss."""
    classes = input.shape[axis]
    labels.check_weights(weight, classes, "weight", "cross_entropy")
    # A distribution's factor is the mean of the weights under it.
    if soft:
        if not label.stop_gradient:
            # The loss has no gradient by its label; that of the factor alone would be a part of one.
            label = detach(label)
        if axis in (-1, len(input.shape) - 1):
            product = emit_one("matmul_v2", {"X": label, "Y": weight})
            return emit_one("unsqueeze2", {"X": product}, {"axes": (-1,)})
        shape = tuple(-1 if i == axis % len(input.shape) else 1 for i in range(len(input.shape)))
        column = emit_one("reshape2", {"X": weight}, {"shape": shape})
        product = emit_one("elementwise_mul", {"X": label, "Y": column})
        return emit_one("reduce_sum", {"X": product}, {"dim": (axis,), "keep_dim": True})
    # Ignored rows look up class 0, so that the index is in range, and their weight is multiplied by 0.
    counted = _counted(label, ignore)
    classes_only = emit_one(
        "elementwise_mul", {"X": label, "Y": emit_one("cast", {"X": counted}, {"out_dtype": label.dtype})}
    )
    index = emit_one("unsqueeze2", {"X": classes_only}, {"axes": (-1,)})
    picked = emit_one("gather_nd", {"X": weight, "Index": index})
    return emit_one(
        "elementwise_mul", {"X": picked, "Y": emit_one("cast", {"X": counted}, {"out_dtype": weight.dtype})}
    )
