"""Losses on the order of scores: ``rank_loss``, ``margin_rank_loss``, and functions composed of other ops."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.opdef import DERIVE, GRAD, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.loss import _labels as labels
from tstatic.ops.loss.binary_loss import alike
from tstatic.ops.shape._shapes import emit_one

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
    y, a, b = (v.float() if v.itemsize == 2 else v for v in (label, left, right))
    return (torch.nn.functional.softplus(a - b, threshold=80.0) - y * (a - b)).to(label.dtype)


def _margin_infer(x1: Meta, x2: Meta, label: Meta) -> tuple[Meta, Meta]:
    out = alike(x1, x2, label)
    return out, out


register(OpDef(
    "margin_rank_loss", "X1, X2, Label -> Activated~, Out", attrs={"margin": 0.0}, infer=_margin_infer,
    pointwise={
        "Activated": "where(margin - label * (x1 - x2) > 0, 1, 0)",
        "Out": "maximum(margin - label * (x1 - x2), 0)",
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
    """Returns ``log(1 + exp(left - right)) - label * (left - right)``; all ``[batch, 1]``."""
    y, a, b = labels.variables("rank_loss", label=label, left=left, right=right)
    return emit_one("rank_loss", {"Label": y, "Left": a, "Right": b}, name=name)


@export("fluid.layers.margin_rank_loss", op="margin_rank_loss")
def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Returns ``max(0, margin - label * (left - right))``; all of one shape, ``label`` 1 or -1."""
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
    labels.check_reduction(reduction, "margin_ranking_loss")
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
    classes = x.shape[-1] if x.shape else 0
    if len(x.shape) != 2 or classes < 2:
        raise ShapeError(
            "'input' of bpr_loss must be a matrix with at least 2 known columns",
            expected="shape [batch, classes]",
            received=list(x.shape),
            fix="give static.data a known number of classes",
            op="bpr_loss",
            var=x.name,
        )
    flat = emit_one("reshape2", {"X": y}, {"shape": (-1,)})
    hot = emit_one("cast", {"X": emit_one("one_hot_v2", {"X": flat}, {"depth": classes})}, {"out_dtype": x.dtype})
    rows = {"dim": (1,), "keep_dim": True}
    right = emit_one("reduce_sum", {"X": emit_one("elementwise_mul", {"X": x, "Y": hot})}, rows)
    losses = emit_one("softplus", {"X": emit_one("elementwise_sub", {"X": x, "Y": right})})
    others = emit_one("scale", {"X": hot}, {"scale": -1.0, "bias": 1.0})
    total = emit_one("reduce_sum", {"X": emit_one("elementwise_mul", {"X": losses, "Y": others})}, rows)
    return emit_one("scale", {"X": total}, {"scale": 1.0 / (classes - 1)}, name=name, prefix="bpr_loss")
