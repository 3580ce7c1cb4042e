"""Losses on two classes: ``sigmoid_cross_entropy_with_logits``, ``bce_loss``, ``log_loss``, ``hinge_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_choice, check_same_dtype, check_same_shape
from tstatic.ir.opdef import DERIVE, GRAD, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.traits import ManyCalls
from tstatic.ir.types import Meta, bool_
from tstatic.ops.base import labels
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.torch_out import filled
from tstatic.ops.loss import _loss_onnx as _onnx

_SLOTS = ("the first input", "another input")


def alike(x: Meta, *others: Meta | None) -> Meta:
    """Infers the output of an op on floats of one shape and dtype.

    Raises:
        ShapeError, DTypeError: If they differ.
    """
    shape = infer_float(x).shape
    for other in others:
        if other is None:
            continue
        check_same_dtype((x, other), _SLOTS)
        check_same_shape((x, other), _SLOTS)
        # An unknown size, -1, gives way to a known one.
        shape = tuple(max(a, b) for a, b in zip(shape, other.shape, strict=True))
    return x.with_shape(shape)


# ----------------------------------------------------------------------------------- sigmoid_cross_entropy_with_logits
def _count(label: Any, ignore: int) -> int:
    # Where all are ignored the losses are 0, and 0 / 1 stays 0.
    return max(int(np.count_nonzero(label != ignore)), 1)


def _sigmoid_loss(
    x: Any, label: Any, weight: Any, out: Any, ignore: int, normalize: bool, work: Any, mask: Any
) -> None:
    """Computes ``(1 - label) * x + weight * softplus(-x)``, each part without overflow.

    With ``s = log1p(exp(-abs(x)))``, whose exponential is at most 1, that is ``x - x * label + weight * s`` where ``x`` is not
    negative, and ``-x * (label + weight - 1) + weight * s`` elsewhere. Without a weight both are ``max(x, 0) - x * label + s``.
    Infinite scores are NaN and infinite where they are in Paddle's formula, which has no weight in its linear part.
    """
    np.absolute(x, work)
    np.multiply(work, -1, work)
    np.exp(work, work)
    np.log1p(work, work)
    if weight is not None:
        np.multiply(work, weight, work)
        np.multiply(x, label, out)
        np.subtract(x, out, out)
        np.less(x, 0, out=mask)
        np.add(label, weight, out=out, where=mask)
        np.subtract(out, 1, out=out, where=mask)
        np.multiply(out, x, out=out, where=mask)
        np.multiply(out, -1, out=out, where=mask)
    else:
        np.multiply(x, label, out)
        np.subtract(work, out, work)
        np.maximum(x, 0, out=out)
    np.add(out, work, out)
    # Copied, not multiplied by 0: an ignored element may be NaN or infinite.
    np.equal(label, ignore, out=mask)
    np.copyto(out, 0, where=mask)
    if normalize:
        np.true_divide(out, np.asarray(_count(label, ignore), out.dtype), out)


def _sigmoid_loss_grad(
    x: Any, label: Any, weight: Any, dout: Any, dx: Any, ignore: int, normalize: bool, mask: Any
) -> None:
    """Computes ``(sigmoid(x) - label) * dout``, or ``(1 - label - weight * sigmoid(-x)) * dout``."""
    if weight is None:
        # exp(-x) may overflow to infinity, whose reciprocal is the right 0.
        np.multiply(x, -1, dx)
        np.exp(dx, dx)
        np.add(dx, 1, dx)
        np.reciprocal(dx, dx)
        np.subtract(dx, label, dx)
    else:
        np.exp(x, dx)
        np.add(dx, 1, dx)
        np.true_divide(weight, dx, dx)
        np.add(dx, label, dx)
        np.subtract(1, dx, dx)
    np.multiply(dx, dout, dx)
    np.equal(label, ignore, out=mask)
    np.copyto(dx, 0, where=mask)
    if normalize:
        np.true_divide(dx, np.asarray(_count(label, ignore), dx.dtype), dx)


def _sigmoid_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, normalize: bool, ignore_index: int
) -> Calls:
    return [(_sigmoid_loss, (*ins, outs[0], ignore_index, normalize, *scratch))]


def _sigmoid_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return float_scratch(ins[0], ins[0].shape), Meta(ins[0].shape, bool_)


def _sigmoid_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, normalize: bool, ignore_index: int
) -> Calls:
    return [(_sigmoid_loss_grad, (*ins, outs[0], ignore_index, normalize, *scratch))]


def _sigmoid_lower(torch: Any, x: Any, label: Any, weight: Any, normalize: bool, ignore_index: int) -> Any:
    if not normalize and weight is None and x.dtype == label.dtype and x.itemsize > 2:
        return logit_entropy(torch, x, label).masked_fill_(label == ignore_index, 0)
    w, y, p = map(torch_wide, (x, label, weight))
    if p is None:
        loss = logit_entropy(torch, w, y)
    else:
        linear = torch.where(w < 0, -w * (y + p - 1), w - w * y)
        loss = linear - p * torch.nn.functional.logsigmoid(w.abs())
    return _counted(torch, loss, label, normalize, ignore_index).to(x.dtype)


def logit_entropy(torch: Any, x: Any, label: Any) -> Any:
    """Returns ``max(x, 0) - x * label + log(1 + exp(-abs(x)))`` in new memory: NaN where Paddle's formula is.

    torch's own call computes ``(1 - label) * x - log(sigmoid(x))``, which is infinite for ``x = inf`` and ``label = 0.3``.
    """
    loss = x.clamp(min=0).sub_(x * label)
    return loss.sub_(torch.nn.functional.logsigmoid(x.abs()))


def _sigmoid_grad_lower(
    torch: Any, x: Any, label: Any, weight: Any, dout: Any, normalize: bool, ignore_index: int
) -> Any:
    # On equal types nothing is widened, and each step after the first writes in place.
    if not normalize and weight is None and x.dtype == label.dtype == dout.dtype and x.itemsize > 2:
        return torch.sigmoid(x).sub_(label).mul_(dout).masked_fill_(label == ignore_index, 0)
    w, y, p, g = map(torch_wide, (x, label, weight, dout))
    inner = torch.sigmoid(w) - y if p is None else 1 - y - p * torch.sigmoid(-w)
    return _counted(torch, inner * g, label, normalize, ignore_index).to(x.dtype)


def _counted(torch: Any, value: Any, label: Any, normalize: bool, ignore: int) -> Any:
    value = torch.where(label == ignore, torch.zeros_like(value), value)
    return value / (label != ignore).sum().clamp(min=1) if normalize else value


# The normaliser counts over everything.
_SPLIT = Split(ELEMENTS, FIRST, unless="normalize")
_SIGMOID = CallRef(_sigmoid_calls, _sigmoid_scratch_metas)
# Computed within its output, so it needs the mask only.
_SIGMOID_GRAD = CallRef(_sigmoid_grad_calls, lambda ins, outs: (Meta(ins[0].shape, bool_),))

register(OpDef(
    "sigmoid_cross_entropy_with_logits", "X, Label, pos_weight? -> Out", lod="X",
    attrs={"normalize": False, "ignore_index": -100}, infer=alike, ref=_SIGMOID, lower=_sigmoid_lower, split=_SPLIT,
    grad=GradOp(
        f"X, Label, pos_weight?, Out{GRAD} -> X{GRAD}", ref=_SIGMOID_GRAD, lower=_sigmoid_grad_lower, split=_SPLIT,
        traits=(ManyCalls("torch has no call for the gradient, nor one that leaves ignored labels out"),),
    ),
    amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4), (3, 4))), Case(((3, 4), (3, 4), (3, 4))), Case(((2, 3, 4), (2, 3, 4)), {"normalize": True}),
            Case(((5,), (5,), (5,)), {"normalize": True}), Case(((), ())), Case(((0, 3), (0, 3))), Case(((1,), (1,))),
            Case(((7, 20), (7, 20))),
        ),
        values={"X": ValueRange(-4.0, 4.0), "Label": ValueRange(0.0, 1.0), "pos_weight": ValueRange(0.5, 3.0)},
        ulps=16.0,
    ), onnx=_onnx.sigmoid_cross_entropy,
    traits=(ManyCalls("torch's call is infinite for infinite scores where Paddle's formula is NaN"),),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------- pointwise on two inputs
# Ranks 0 to 3, no element, one element; 131 is not a multiple of a vector register.
SAME = tuple(Case((s, s)) for s in ((7,), (3, 4), (), (0,), (1,), (2, 3, 4), (2, 0, 3), (131,)))


# As in Paddle and torch: logarithms are at least -100, and the gradient divides by at least 1e-12, so that a certain answer
# which is wrong costs much, but not infinitely much. log1p(-x) keeps the digits of 1 - x where x is small.
register(OpDef(
    "bce_loss", "X, Label -> Out", infer=alike,
    pointwise={"Out": "-(label * maximum(log(x), -100) + (1 - label) * maximum(log1p(-x), -100))"},
    grad=GradOp(
        f"X, Label, Out{GRAD} -> X{GRAD}",
        pointwise={f"X{GRAD}": "dout * (x - label) / maximum((1 - x) * x, 1e-12)"}, grad=DERIVE,
    ),
    lower=lambda torch, x, label, *, out=None: _bce(torch, x, label, out=out), amp="black",
    domain=Domain(cases=SAME, values={"X": ValueRange(0.2, 0.8), "Label": ValueRange(0.0, 1.0)}, ulps=24.0),
))  # fmt: skip


def _bce(torch: Any, x: Any, label: Any, *, out: Any = None) -> Any:
    # Not torch's own call: on a GPU it asserts that both are from 0 to 1, so that one NaN ends the process's use of the GPU.
    wide, y = map(torch_wide, (x, label))
    right = wide.log().clamp_(min=-100).mul_(y)
    wrong = torch.log1p(-wide).clamp_(min=-100).mul_(1 - y)
    return filled(out, right.add_(wrong).neg_().to(x.dtype))


# Paddle's formula: epsilon keeps both logarithms finite, so a right answer costs a little less than 0.
register(OpDef(
    "log_loss", "Predicted, Labels -> Loss", attrs={"epsilon": 1e-4}, infer=alike,
    pointwise={"Loss": "-labels * log(predicted + epsilon) - (1 - labels) * log(1 - predicted + epsilon)"},
    grad=GradOp(
        f"Predicted, Labels, Loss{GRAD} -> Predicted{GRAD}",
        pointwise={
            f"Predicted{GRAD}": "dloss * ((1 - labels) / (1 - predicted + epsilon) - labels / (predicted + epsilon))",
        },
        grad=DERIVE,
    ),
    amp="black",
    domain=Domain(cases=SAME, values={"Predicted": ValueRange(0.3, 0.7), "Labels": ValueRange(0.0, 1.0)}, ulps=24.0),
))  # fmt: skip
register(OpDef(
    "hinge_loss", "Logits, Labels -> Loss", infer=alike,
    pointwise={"Loss": "maximum(1 - (2 * labels - 1) * logits, 0)"},
    grad=GradOp(
        f"Logits, Labels, Loss{GRAD} -> Logits{GRAD}",
        pointwise={f"Logits{GRAD}": "where(1 - (2 * labels - 1) * logits > 0, dloss * (1 - 2 * labels), 0)"},
        grad=DERIVE,
    ),
    amp="black",
    # Away from the kink at a product of 1: labels near 1 with scores below 0.9.
    domain=Domain(cases=SAME, values={"Logits": ValueRange(-2.0, 0.9), "Labels": ValueRange(0.4, 1.0)}, ulps=12.0),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export("fluid.layers.sigmoid_cross_entropy_with_logits", op="sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = -100, name: str | None = None, normalize: bool = False
) -> Variable:
    """Returns the cross entropy of independent probabilities ``sigmoid(x)``, one per element.

    Args:
        x: Scores.
        label: Probabilities of the shape of ``x``.
        ignore_index: Elements with this label have loss 0.
        name: Name of the layer.
        normalize: Divide by the number of elements that are not ignored.

    Example:
        >>> x = paddle.to_tensor([[0.0], [2.0]])
        >>> loss = fluid.layers.sigmoid_cross_entropy_with_logits(x, paddle.to_tensor([[1.0], [0.0]]))
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([[0.6931],
               [2.1269]], dtype=float32)
    """
    a, b = labels.variables("sigmoid_cross_entropy_with_logits", x=x, label=label)
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    return emit_one("sigmoid_cross_entropy_with_logits", {"X": a, "Label": b}, attrs, name=name)


@export("nn.functional.binary_cross_entropy_with_logits", op="sigmoid_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    logit: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    pos_weight: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Returns the cross entropy of independent probabilities ``sigmoid(logit)``.

    Args:
        logit: Scores of any shape.
        label: Probabilities of the same shape.
        weight: Factors of the losses; broadcasts.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        pos_weight: Factors of the loss of the positive class; broadcasts.
        name: Name of the last layer.

    Example:
        >>> x, label = paddle.to_tensor([0.0, 2.0]), paddle.to_tensor([0.0, 1.0])
        >>> y = paddle.nn.functional.binary_cross_entropy_with_logits(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.6931, 0.1269], dtype=float32)
    """
    function = "binary_cross_entropy_with_logits"
    check_choice(reduction, labels.REDUCTIONS, "reduction", function)
    x, y = labels.variables(function, logit=logit, label=label)
    factor = None
    if pos_weight is not None:
        # 1 + (pos_weight - 1) * label: the factor is pos_weight for label 1, and 1 for label 0.
        extra = emit_one("scale", {"X": check_variable(pos_weight, "pos_weight", function)}, {"bias": -1.0})
        factor = emit_one("scale", {"X": emit_one("elementwise_mul", {"X": y, "Y": extra})}, {"bias": 1.0})
    plain = reduction == "none" and weight is None
    ins = {"X": x, "Label": y, "pos_weight": factor}
    loss = emit_one("sigmoid_cross_entropy_with_logits", ins, name=name if plain else None)
    return _finished(loss, weight, reduction, function, name)


def _finished(loss: Variable, weight: Variable | None, reduction: str, function: str, name: str | None) -> Variable:
    if weight is not None:
        ins = {"X": loss, "Y": check_variable(weight, "weight", function)}
        # The name belongs to the last op, which makes what the caller gets.
        loss = emit_one("elementwise_mul", ins, name=name if reduction == "none" else None)
    return labels.reduced(loss, reduction, name)


@export("nn.functional.binary_cross_entropy", op="bce_loss")
def binary_cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns the cross entropy of independent probabilities; logarithms are at least -100.

    Args:
        input: Probabilities of any shape.
        label: Probabilities of the same shape.
        weight: Factors of the losses; broadcasts.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.

    Example:
        >>> p, label = paddle.to_tensor([0.5, 0.9]), paddle.to_tensor([0.0, 1.0])
        >>> y = paddle.nn.functional.binary_cross_entropy(p, label, reduction="none")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.6931, 0.1054], dtype=float32)
    """
    check_choice(reduction, labels.REDUCTIONS, "reduction", "binary_cross_entropy")
    x, y = labels.variables("binary_cross_entropy", input=input, label=label)
    plain = reduction == "none" and weight is None
    loss = emit_one("bce_loss", {"X": x, "Label": y}, name=name if plain else None, prefix="binary_cross_entropy")
    return _finished(loss, weight, reduction, "binary_cross_entropy", name)


@export("nn.functional.log_loss", "fluid.layers.log_loss", op="log_loss")
def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Returns ``-label * log(input + epsilon) - (1 - label) * log(1 - input + epsilon)``; all of one shape.

    Args:
        input: Probabilities of any shape.
        label: 0 or 1, same shape and dtype.
        epsilon: Added to what the logarithms are taken of.
        name: Name of the layer.

    Example:
        >>> p = paddle.to_tensor([[0.9], [0.5]])
        >>> y = paddle.nn.functional.log_loss(p, paddle.to_tensor([[1.0], [0.0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.1052],
               [0.6929]], dtype=float32)
    """
    x, y = labels.variables("log_loss", input=input, label=label)
    return emit_one("log_loss", {"Predicted": x, "Labels": y}, {"epsilon": epsilon}, name=name)


@export("nn.functional.sigmoid_focal_loss")
def sigmoid_focal_loss(
    logit: Variable,
    label: Variable,
    normalizer: Variable | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "sum",
    name: str | None = None,
) -> Variable:
    """Returns the cross entropy of ``sigmoid(logit)``, less for what is classified well already.

    With ``p`` the probability of the right class, each loss is ``a * (1 - p) ** gamma * cross entropy``, where ``a`` is
    ``alpha`` for label 1 and ``1 - alpha`` for label 0.

    Args:
        logit: Scores of any shape.
        label: 0 or 1, same shape and dtype.
        normalizer: A number ``[]`` or ``[1]`` that losses are divided by.
        alpha: Weight of the positive class.
        gamma: How fast easy elements lose weight.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.
    """
    check_choice(reduction, labels.REDUCTIONS, "reduction", "sigmoid_focal_loss")
    x, y = labels.variables("sigmoid_focal_loss", logit=logit, label=label)
    loss = emit_one("sigmoid_cross_entropy_with_logits", {"X": x, "Label": y})
    # 1 - p = q + y - 2 q y with q the probability of label 1.
    q = emit_one("sigmoid", {"X": x})
    both = emit_one("scale", {"X": emit_one("elementwise_mul", {"X": q, "Y": y})}, {"scale": -2.0})
    wrong = emit_one("elementwise_add", {"X": emit_one("elementwise_add", {"X": q, "Y": y}), "Y": both})
    share = emit_one("scale", {"X": y}, {"scale": 2.0 * alpha - 1.0, "bias": 1.0 - alpha})
    loss = emit_one("elementwise_mul", {"X": share, "Y": loss})
    loss = emit_one("elementwise_mul", {"X": emit_one("pow", {"X": wrong}, {"factor": float(gamma)}), "Y": loss})
    if normalizer is not None:
        ins = {"X": loss, "Y": check_variable(normalizer, "normalizer", "sigmoid_focal_loss")}
        loss = emit_one("elementwise_div", ins, name=name if reduction == "none" else None)
    return labels.reduced(loss, reduction, name)
