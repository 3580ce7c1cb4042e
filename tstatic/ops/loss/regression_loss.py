"""Losses on distances and on the order of scores: huber_loss, kldiv_loss, rank_loss, margin_rank_loss, and compositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.attrs import one_of
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import DERIVE, GRAD, Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import Meta, bool_
from tstatic.ops.base import labels
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sum import sum_calls, sum_scratch
from tstatic.ops.loss import _loss_onnx as _onnx
from tstatic.ops.loss.binary_loss import SAME, alike


# ---------------------------------------------------------------------------------------------------------- huber_loss
def _huber_infer(x: Meta, y: Meta) -> tuple[Meta, Meta]:
    out = alike(x, y)
    return out, out


def _huber(torch: Any, x: Any, y: Any, delta: float) -> Any:
    a, b = map(torch_wide, (x, y))
    return (b - a).to(x.dtype), torch.nn.functional.huber_loss(a, b, reduction="none", delta=delta).to(x.dtype)


# The residual is an output because the backward op reads nothing else: clipped to delta, it is the slope.
register(OpDef(
    "huber_loss", "X, Y -> Residual~, Out",
    attrs={"delta": Attr(1.0, "float", lambda v: None if v > 0 else "a number above 0")}, infer=_huber_infer,
    pointwise={
        "Residual": "y - x",
        "Out": "where(abs(y - x) <= delta, 0.5 * (y - x) * (y - x), delta * (abs(y - x) - 0.5 * delta))",
    },
    grad=GradOp(
        f"Residual, Out{GRAD} -> X{GRAD}, Y{GRAD}",
        pointwise={
            f"X{GRAD}": "-dout * minimum(maximum(residual, -delta), delta)",
            f"Y{GRAD}": "dout * minimum(maximum(residual, -delta), delta)",
        },
        grad=DERIVE,
    ),
    lower=_huber, amp="black",
    # The distances lie in (0.2, 4): clear of the bends at delta, on both sides of them.
    domain=Domain(
        cases=tuple(Case(c.shapes, {"delta": 5.0 if i % 2 else 0.05}) for i, c in enumerate(SAME)),
        values={"X": ValueRange(-2.0, -0.1), "Y": ValueRange(0.1, 2.0)}, ulps=12.0,
    ),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- kldiv_loss
KL_WORDS = ("mean", "sum", "batchmean", "none")


def _kl_infer(x: Meta, target: Meta, reduction: str, one_d: bool) -> Meta:
    out = alike(x, target)
    return out if reduction == "none" else out.with_shape((1,) if one_d else ())


def _kl_count(shape: Sequence[int], reduction: str) -> int:
    """Returns what the sum is divided by."""
    if reduction == "mean":
        return int(np.prod(shape, dtype=np.int64))
    return shape[0] if reduction == "batchmean" and len(shape) else 1


def _kl_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta], *, reduction: str) -> tuple[Meta, ...]:
    x = ins[0]
    mask = Meta(x.shape, bool_)
    if reduction == "none":
        return (mask,)
    return mask, float_scratch(x, x.shape), *sum_scratch(x, range(x.rank))


def _kl_losses(x: Any, target: Any, out: Any, mask: Any) -> None:
    """Computes ``target * (log(target) - x)``, and 0 where the target is not above 0."""
    # The logarithm is NaN or minus infinity where the target is not above 0; the mask replaces what becomes of it.
    np.log(target, out)
    np.subtract(out, x, out)
    np.multiply(out, target, out)
    np.less_equal(target, 0, out=mask)
    np.copyto(out, 0, where=mask)


def _kl_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, reduction: str) -> Calls:
    x, target = ins
    out = outs[0]
    if reduction == "none":
        return [(_kl_losses, (x, target, out, scratch[0]))]
    total = sum_calls(scratch[1], range(x.ndim), out, scratch[2:])
    divide: Calls = []
    if reduction != "sum":
        divide = [(np.true_divide, (out, np.asarray(_kl_count(x.shape, reduction), out.dtype), out))]
    return [(_kl_losses, (x, target, scratch[1], scratch[0])), *total, *divide]


def _kl_grad(target: Any, dloss: Any, dx: Any, count: int, mask: Any) -> None:
    np.multiply(target, dloss, dx)
    if count != 1:
        # The sign goes with the count: one pass for both.
        np.true_divide(dx, np.asarray(-count, dx.dtype), dx)
    else:
        np.multiply(dx, -1, dx)
    np.less_equal(target, 0, out=mask)
    np.copyto(dx, 0, where=mask)


def _kl_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, reduction: str) -> Calls:
    x, target, dloss = ins
    seed = dloss if reduction == "none" else dloss.reshape((1,) * x.ndim, copy=False)
    return [(_kl_grad, (target, seed, outs[0], _kl_count(x.shape, reduction), scratch[0]))]


def _kl_lower(torch: Any, x: Any, target: Any, reduction: str, one_d: bool) -> Any:
    a, t = map(torch_wide, (x, target))
    # A target that is NaN is not masked.
    losses = torch.where(t <= 0, torch.zeros_like(a), t * (t.log() - a))
    if reduction == "none":
        return losses.to(x.dtype)
    out = losses.sum() / _kl_count(x.shape, reduction) if reduction != "sum" else losses.sum()
    return (out.reshape(1) if one_d else out).to(x.dtype)


def _kl_grad_lower(torch: Any, x: Any, target: Any, dloss: Any, reduction: str) -> Any:
    t, g = map(torch_wide, (target, dloss))
    inner = torch.where(t <= 0, torch.zeros_like(t), -t * g.reshape(t.shape if reduction == "none" else ()))
    return (inner / _kl_count(x.shape, reduction) if _kl_count(x.shape, reduction) != 1 else inner).to(x.dtype)


_KL = CallRef(_kl_calls, _kl_scratch_metas)
# The gradient by X is -target: of X it needs the shape only.
_KL_GRAD = CallRef(_kl_grad_calls, lambda ins, outs: (Meta(ins[0].shape, bool_),), unread=(0,))

register(OpDef(
    "kldiv_loss", "X, Target -> Loss",
    attrs={
        "reduction": Attr("mean", "str", one_of(*KL_WORDS)),
        # The 1.x name gives a reduced loss the shape [1], the 2.x name [].
        "one_d": False,
    },
    infer=_kl_infer, ref=_KL, lower=_kl_lower,
    grad=GradOp(f"X, Target, Loss{GRAD} -> X{GRAD}", ref=_KL_GRAD, lower=_kl_grad_lower, shape_only=("X",)),
    amp="black", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 4), (3, 4)), {"reduction": "none"}), Case(((3, 4), (3, 4))),
            Case(((2, 3, 4), (2, 3, 4)), {"reduction": "batchmean"}),
            Case(((3, 4), (3, 4)), {"reduction": "sum", "one_d": True}), Case(((5,), (5,)), {"reduction": "batchmean"}),
            Case(((), ()), {"reduction": "none"}), Case(((0, 3), (0, 3)), {"reduction": "sum"}), Case(((1,), (1,))),
            Case(((6, 120), (6, 120))),
        ),
        values={"Target": ValueRange(-0.3, 1.0, avoid=(0.0,))}, ulps=24.0,
    ), onnx=_onnx.kl_div,
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export("nn.functional.kl_div", op="kldiv_loss")
def kl_div(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Returns ``label * (log(label) - input)``, 0 where the label is not above 0.

    Args:
        input: Log-probabilities of any shape.
        label: Probabilities of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"batchmean"`` (the sum divided by the first size), all ``[]``, or ``"none"``.
        name: Name of the layer.

    Example:
        >>> x = paddle.log(paddle.to_tensor([[0.5, 0.5]]))
        >>> label = paddle.to_tensor([[0.25, 0.75]])
        >>> y = paddle.nn.functional.kl_div(x, label, reduction="sum")
        >>> static.Executor().run(fetch_list=[y])[0]
        array(0.1308, dtype=float32)
    """
    check_choice(reduction, KL_WORDS, "reduction", "kl_div")
    x, y = labels.variables("kl_div", input=input, label=label)
    if {x.dtype.name, y.dtype.name} == {"float32", "float64"}:
        x, y = (v if v.dtype == "float64" else emit_one("cast", {"X": v}, {"out_dtype": "float64"}) for v in (x, y))
    return emit_one("kldiv_loss", {"X": x, "Target": y}, {"reduction": reduction}, name=name, prefix="kl_div")


@export("fluid.layers.kldiv_loss", op="kldiv_loss")
def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Returns :func:`kl_div`; a reduced loss has shape ``[1]``.

    Args:
        x: Log-probabilities of any shape.
        target: Probabilities of the same shape.
        reduction: ``"mean"``, ``"sum"``, ``"batchmean"`` or ``"none"``.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes differ.
    """
    check_choice(reduction, KL_WORDS, "reduction", "kldiv_loss")
    a, b = labels.variables("kldiv_loss", x=x, target=target)
    return emit_one("kldiv_loss", {"X": a, "Target": b}, {"reduction": reduction, "one_d": True}, name=name)


def _huber_loss(x: Variable, y: Variable, delta: float, name: str | None) -> Variable:
    return emit_one("huber_loss", {"X": x, "Y": y}, {"delta": delta}, name=name)


@export("nn.functional.smooth_l1_loss", op="huber_loss")
def smooth_l1_loss(
    input: Variable, label: Variable, reduction: str = "mean", delta: float = 1.0, name: str | None = None
) -> Variable:
    """Returns half the squared distance up to ``delta``, and ``delta * (distance - delta / 2)`` beyond it.

    Args:
        input: Floats of any shape.
        label: The same shape.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        delta: Where the loss turns linear.
        name: Name of the last layer.

    Example:
        >>> x, label = paddle.to_tensor([0.5, 3.0]), paddle.to_tensor([0.0, 1.0])
        >>> y = paddle.nn.functional.smooth_l1_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.125, 1.5  ], dtype=float32)
    """
    check_choice(reduction, labels.REDUCTIONS, "reduction", "smooth_l1_loss")
    x, y = labels.variables("smooth_l1_loss", input=input, label=label)
    return labels.reduced(_huber_loss(x, y, delta, name if reduction == "none" else None), reduction, name)


@export("fluid.layers.huber_loss", op="huber_loss")
def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Returns :func:`smooth_l1_loss` of each element.

    Args:
        input: Floats of any shape.
        label: The same shape.
        delta: Where the loss turns linear; positive.

    Raises:
        ShapeError: If the shapes differ.
        ProgramError: If ``delta`` is out of range.
    """
    x, y = labels.variables("huber_loss", input=input, label=label)
    return _huber_loss(x, y, delta, None)


@export("fluid.layers.smooth_l1")
def fluid_smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Returns for each row the sum of ``0.5 * (sigma * d) ** 2``, or ``abs(d) - 0.5 / sigma ** 2`` beyond ``1 / sigma ** 2``.

    Args:
        x: ``[batch, ...]``.
        y: The same shape.
        inside_weight: Factors of ``d = x - y``.
        outside_weight: Factors of the losses.
        sigma: 1 if ``None``.

    Returns:
        ``[batch, 1]``.
    """
    a, b = labels.variables("smooth_l1", x=x, y=y)
    square = float(sigma if sigma is not None else 1.0) ** 2
    helper = LayerNamer("smooth_l1_loss")
    if inside_weight is not None:
        weight = check_variable(inside_weight, "inside_weight", "smooth_l1")
        a, b = (helper.emit("elementwise_mul", {"X": v, "Y": weight}) for v in (a, b))
    # sigma^2 times the Huber loss that turns linear at 1 / sigma^2 is the loss above.
    loss = helper.emit("huber_loss", {"X": a, "Y": b}, {"delta": 1.0 / square})
    loss = helper.emit("scale", {"X": loss}, {"scale": square})
    if outside_weight is not None:
        weight = check_variable(outside_weight, "outside_weight", "smooth_l1")
        loss = helper.emit("elementwise_mul", {"X": loss, "Y": weight})
    rest = tuple(range(1, len(a.shape)))
    result: Variable = loss
    if rest:
        result = helper.emit("reduce_sum", {"X": loss}, {"dim": rest})
    result = helper.emit("unsqueeze2", {"X": result}, {"axes": (1,)})
    return result


# ------------------------------------------------------------------------------------------------- squares, magnitudes
@export("nn.functional.square_error_cost", "fluid.layers.square_error_cost", op="square")
def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Returns ``(input - label) ** 2``; the operands broadcast.

    Args:
        input: Floats or integers of any shape.
        label: A shape that broadcasts with that of ``input``.

    Example:
        >>> x = paddle.to_tensor([1.0, 5.0])
        >>> y = paddle.nn.functional.square_error_cost(x, paddle.to_tensor([3.0, 4.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([4., 1.], dtype=float32)
    """
    x, y = labels.variables("square_error_cost", input=input, label=label)
    helper = LayerNamer("square_error_cost")
    difference = helper.emit("elementwise_sub", {"X": x, "Y": y})
    result: Variable = helper.emit("square", {"X": difference})
    return result


def _of_difference(
    type: str, function: str, input: Variable, label: Variable, reduction: str, name: str | None
) -> Variable:
    """Emits an op on the difference, and its reduction; the last of the two has the name."""
    check_choice(reduction, labels.REDUCTIONS, "reduction", function)
    x, y = labels.variables(function, input=input, label=label)
    difference = emit_one("elementwise_sub", {"X": x, "Y": y})
    loss = emit_one(type, {"X": difference}, name=name if reduction == "none" else None)
    return labels.reduced(loss, reduction, name)


@export("nn.functional.mse_loss", op="square")
def mse_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Returns the squared distance, or its mean or sum ``[]``; the operands broadcast.

    Args:
        input: Floats of any shape.
        label: A shape that broadcasts with that of ``input``.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.

    Example:
        >>> x, label = paddle.to_tensor([0.5, 3.0]), paddle.to_tensor([0.0, 1.0])
        >>> y = paddle.nn.functional.mse_loss(x, label)
        >>> static.Executor().run(fetch_list=[y])[0]
        array(2.125, dtype=float32)
    """
    return _of_difference("square", "mse_loss", input, label, reduction, name)


@export("fluid.layers.mse_loss", op="square")
def fluid_mse_loss(input: Variable, label: Variable) -> Variable:
    """Returns the mean squared distance, of shape ``[1]``.

    Args:
        input: Floats of any shape.
        label: A shape that broadcasts with it.

    Raises:
        ShapeError: If the shapes do not broadcast.
    """
    attrs = {"dim": (0,), "reduce_all": True, "one_d": True}
    return emit_one("reduce_mean", {"X": square_error_cost(input, label)}, attrs)


@export("nn.functional.l1_loss", op="abs")
def l1_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Returns the distance, or its mean or sum ``[]``; the operands broadcast.

    Args:
        input: Floats of any shape.
        label: A shape that broadcasts with that of ``input``.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.

    Example:
        >>> x, label = paddle.to_tensor([0.5, 3.0]), paddle.to_tensor([0.0, 1.0])
        >>> y = paddle.nn.functional.l1_loss(x, label)
        >>> static.Executor().run(fetch_list=[y])[0]
        array(1.25, dtype=float32)
    """
    return _of_difference("abs", "l1_loss", input, label, reduction, name)


@export("nn.functional.dice_loss", "fluid.layers.dice_loss")
def dice_loss(input: Variable, label: Variable, epsilon: float | Variable = 1e-5, name: str | None = None) -> Variable:
    """Returns the mean over the batch of ``1 - 2 * overlap / (sum of both + epsilon)``, ``[]``.

    Args:
        input: Probabilities ``[batch, ..., classes]``.
        label: Class numbers ``[batch, ..., 1]``.
        epsilon: Keeps the quotient finite: a number, or a Variable of one.
        name: Name of the last layer.

    Raises:
        ShapeError: If the ranks differ, or the number of classes is unknown.
    """
    x, y = labels.variables("dice_loss", input=input, label=label)
    check_fit(
        len(x.shape) == len(y.shape) >= 2 and y.shape[-1] == 1 and x.shape[-1] >= 1, (x, y), ("input", "label"),
        "the shapes given to dice_loss do not fit", "input [batch, ..., classes] and label [batch, ..., 1]",
        "reshape the label; give the input a known number of classes", "dice_loss",
    )  # fmt: skip
    flat = emit_one("squeeze2", {"X": y}, {"axes": (-1,)})
    hot = emit_one("cast", {"X": emit_one("one_hot_v2", {"X": flat}, {"depth": x.shape[-1]})}, {"out_dtype": x.dtype})
    # Per image, over places and classes; the mean over the batch comes last.
    rest = {"dim": tuple(range(1, len(x.shape)))}
    overlap = emit_one("reduce_sum", {"X": emit_one("elementwise_mul", {"X": x, "Y": hot})}, rest)
    sums = [emit_one("reduce_sum", {"X": v}, rest) for v in (x, hot)]
    both = emit_one("elementwise_add", {"X": sums[0], "Y": sums[1]})
    if isinstance(epsilon, Variable):
        both = emit_one("elementwise_add", {"X": both, "Y": epsilon})
    else:
        both = emit_one("scale", {"X": both}, {"bias": float(epsilon)})
    share = emit_one("elementwise_div", {"X": emit_one("scale", {"X": overlap}, {"scale": 2.0}), "Y": both})
    return labels.reduced(emit_one("scale", {"X": share}, {"scale": -1.0, "bias": 1.0}), "mean", name)


# ------------------------------------------------------------------------------------------------------ order of scores
# As `SAME`, for three inputs.
_THREE = tuple(Case((s, s, s)) for s in ((7,), (3, 1), (), (0, 1), (1,), (2, 3, 4), (2, 0, 3), (131,)))

register(OpDef(
    "rank_loss", "Label, Left, Right -> Out", infer=alike,
    # log(1 + exp(d)) - label * d with d = left - right, without overflow.
    pointwise={"Out": "maximum(left - right, 0) + log1p(exp(-abs(left - right))) - label * (left - right)"},
    grad=GradOp(
        f"Label, Left, Right, Out{GRAD} -> Left{GRAD}, Right{GRAD}",
        pointwise={
            f"Left{GRAD}": "dout * (sigmoid(left - right) - label)",
            f"Right{GRAD}": "dout * (label - sigmoid(left - right))",
        },
        grad=DERIVE,
    ),
    lower=lambda torch, label, left, right: _rank(torch, label, left, right), amp="black",
    domain=Domain(cases=_THREE, values={"Label": ValueRange(0.0, 1.0)}, ulps=16.0),
))  # fmt: skip


def _rank(torch: Any, label: Any, left: Any, right: Any) -> Any:
    y, a, b = map(torch_wide, (label, left, right))
    # torch's usual threshold of 20 drops log1p(exp(-20)) = 2e-9, which float64 still has.
    return (torch.nn.functional.softplus(a - b, threshold=80.0) - y * (a - b)).to(label.dtype)


def _margin_infer(x1: Meta, x2: Meta, label: Meta) -> tuple[Meta, Meta]:
    out = alike(x1, x2, label)
    return out, out


# At the margin itself there is no gradient, as with relu.
register(OpDef(
    "margin_rank_loss", "X1, X2, Label -> Activated~, Out", attrs={"margin": 0.0}, infer=_margin_infer, paddle=ABSENT,
    pointwise={
        "Activated": "where(margin - label * (x1 - x2) > 0, 1, 0)", "Out": "maximum(margin - label * (x1 - x2), 0)",
    },
    grad=GradOp(
        f"Label, Activated, Out{GRAD} -> X1{GRAD}, X2{GRAD}",
        pointwise={f"X1{GRAD}": "-dout * label * activated", f"X2{GRAD}": "dout * label * activated"}, grad=DERIVE,
    ),
    amp="black",
    # The product of label and difference lies in (0.5, 4): clear of the margins, on both sides of them.
    domain=Domain(
        cases=tuple(Case(c.shapes, {"margin": 5.0 if i % 2 else 0.25}) for i, c in enumerate(_THREE)),
        values={"X1": ValueRange(1.0, 2.0), "X2": ValueRange(-2.0, 0.0), "Label": ValueRange(0.5, 1.0)}, ulps=12.0,
    ),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export("fluid.layers.rank_loss", op="rank_loss")
def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(left - right)) - label * (left - right)``; all ``[batch, 1]``.

    Args:
        label: 1 where ``left`` should rank higher, 0 where ``right`` should, or a probability.
        left, right: Scores.
        name: Name of the layer.
    """
    y, a, b = labels.variables("rank_loss", label=label, left=left, right=right)
    return emit_one("rank_loss", {"Label": y, "Left": a, "Right": b}, name=name)


@export("fluid.layers.margin_rank_loss", op="margin_rank_loss")
def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Returns ``max(0, margin - label * (left - right))``; all of one shape, ``label`` 1 or -1.

    Args:
        label: 1 where ``left`` should be larger, else -1.
        left, right: Scores.
        margin: By how much it should be larger.
        name: Name of the layer.
    """
    y, a, b = labels.variables("margin_rank_loss", label=label, left=left, right=right)
    return emit_one("margin_rank_loss", {"X1": a, "X2": b, "Label": y}, {"margin": margin}, name=name)


@export("nn.functional.margin_ranking_loss")
def margin_ranking_loss(
    input: Variable,
    other: Variable,
    label: Variable,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``max(0, margin - label * (input - other))``.

    Args:
        input: Scores of any shape.
        other: Scores that broadcast with ``input``.
        label: 1 where ``input`` should be larger, else -1; broadcasts.
        margin: By how much it should be larger.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.

    Example:
        >>> a, b = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([3.0, 0.5])
        >>> sign = paddle.to_tensor([1.0, 1.0])
        >>> y = paddle.nn.functional.margin_ranking_loss(a, b, sign, margin=0.5, reduction="none")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2.5, 0. ], dtype=float32)
    """
    check_choice(reduction, labels.REDUCTIONS, "reduction", "margin_ranking_loss")
    a, b, y = labels.variables("margin_ranking_loss", input=input, other=other, label=label)
    difference = emit_one("elementwise_sub", {"X": b, "Y": a})
    loss = emit_one("elementwise_mul", {"X": difference, "Y": y})
    if margin != 0.0:
        loss = emit_one("scale", {"X": loss}, {"bias": float(margin)})
    loss = emit_one("relu", {"X": loss}, name=name if reduction == "none" else None)
    return labels.reduced(loss, reduction, name)


@export("fluid.layers.bpr_loss")
def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Returns the mean over all other classes ``j`` of ``log(1 + exp(x[j] - x[label]))``.

    Args:
        input: Scores ``[batch, classes]`` with a known number of classes, at least 2.
        label: Class numbers ``[batch, 1]``.
        name: Name of the layer.

    Returns:
        ``[batch, 1]``.
    """
    x, y = labels.variables("bpr_loss", input=input, label=label)
    check_fit(
        len(x.shape) == 2 and x.shape[1] >= 2, [x], ["input"],
        "'input' of bpr_loss must be a matrix with at least 2 known columns", "shape [batch, classes]",
        "give static.data a known number of classes", "bpr_loss",
    )  # fmt: skip
    classes = x.shape[1]
    flat = emit_one("reshape2", {"X": y}, {"shape": (-1,)})
    # A product with a one-hot row picks the label's score, so that this is differentiable as well.
    hot = emit_one("cast", {"X": emit_one("one_hot_v2", {"X": flat}, {"depth": classes})}, {"out_dtype": x.dtype})
    rows = {"dim": (1,), "keep_dim": True}
    right = emit_one("reduce_sum", {"X": emit_one("elementwise_mul", {"X": x, "Y": hot})}, rows)
    # softplus(x[j] - x[label]) for all classes; that of the label itself, log(2), is masked out.
    losses = emit_one("softplus", {"X": emit_one("elementwise_sub", {"X": x, "Y": right})})
    others = emit_one("scale", {"X": hot}, {"scale": -1.0, "bias": 1.0})
    total = emit_one("reduce_sum", {"X": emit_one("elementwise_mul", {"X": losses, "Y": others})}, rows)
    return emit_one("scale", {"X": total}, {"scale": 1.0 / (classes - 1)}, name=name, prefix="bpr_loss")
