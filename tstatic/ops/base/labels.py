"""What the losses on class numbers share: checks of labels, and the negative logarithm of picked probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import INTEGERS, check_dtype, check_has_shape, check_same_dtype, same_shape
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import GRAD, GradContext, Index, OpSpec, op_def
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.traits import Softmax
from tstatic.ir.types import DType, Meta, Shape
from tstatic.ops.base.rows import row_axis
from tstatic.ops.base.shapes import emit_one

REDUCTIONS = ("sum", "mean", "none")
"""What losses accept as ``reduction``."""


def floor_of(dtype: DType) -> float:
    """Returns the least probability that losses take the logarithm of: the smallest normal number of the dtype.

    A softmax gives exactly 0 for logits far below the largest, and the infinite loss of one row would spoil a sum.
    """
    return float(ml_dtypes.finfo(dtype.np).smallest_normal)


# -------------------------------------------------------------------------------------------------------------- checks
def check_labels(label: Meta, like: Meta, soft: bool, what: str = "X") -> None:
    """Refuses labels that are not class numbers, or, if ``soft``, not floats of the type of the scores.

    Raises:
        DTypeError: Says which dtypes are accepted.
    """
    if soft:
        check_same_dtype((like, label), (what, "Label"))
    else:
        fix = "convert class numbers with paddle.cast(label, 'int64'), or pass soft_label=True for distributions"
        check_dtype(label, INTEGERS, "Label", fix=fix)


def check_fitting(label: Meta, wanted: Shape, scores: Meta, what: str = "X") -> Shape:
    """Returns the common shape of labels and what they should look like.

    Raises:
        ShapeError: If ranks or known sizes differ.
    """
    check_fit(
        same_shape(label.shape, wanted), (scores, label), (what, "Label"), f"the shape of Label does not fit {what}",
        f"Label of shape {list(wanted)}",
        "reshape Label; class numbers have size 1 along the axis of the classes, soft labels the full size",
    )  # fmt: skip
    # An unknown size, -1, gives way to a known one.
    return tuple(max(a, b) for a, b in zip(label.shape, wanted, strict=True))


def check_weights(weight: Meta | Variable, classes: int, arg: str, function: str) -> None:
    """Refuses weights that are not one value per class.

    Raises:
        ShapeError: Names the shape.
    """
    check_has_shape(weight, (classes,), arg, function, why="one value per class", fix="pass one weight per class")


def class_numbers(classes: Callable[..., int | None]) -> tuple[Index, ...]:
    """States that ``Label`` holds class numbers, with ``ignore_index`` for rows to be ignored.

    Args:
        classes: ``(*inputs, **attrs) -> number of classes``; ``None`` for soft labels.
    """
    fix = "check the labels that are fed, or the number of classes ({size})"
    return (Index("Label", classes, ignore="ignore_index", fix=fix),)


# ------------------------------------------------------------------------------------------------------- probabilities
def pick_loss(p: Any, label: Any, match: Any, loss: Any, ignore: int, floor: float) -> None:
    """Computes ``loss = -log(max(p[label], floor))`` by row; 0 in ignored rows.

    Args:
        p: ``[rows, length]``.
        label: ``[rows]``.
        match: Gets ``p[label]``, ``[rows]``, 1 in ignored rows; or ``None``.
        loss: ``[rows]`` or ``None``.
        ignore: The label to be ignored.
        floor: What :func:`floor_of` says.
    """
    ignored = label == ignore
    # Ignored rows pick class 0, whose value 1 replaces: log(1) is 0.
    index = np.where(ignored, 0, label)
    picked = p[np.arange(len(p)), index] if p.shape[1] else np.ones(len(p), p.dtype)
    picked[ignored] = 1
    if match is not None:
        np.copyto(match, picked)
    if loss is not None:
        # After the match is kept: it is the probability itself, of which the backward op takes the floor anew.
        np.maximum(picked, floor, out=picked)
        np.log(picked, picked)
        np.multiply(picked, -1, out=loss)
        # Minus log(1) is -0.
        np.copyto(loss, 0, where=ignored)


def pick_loss_grad(picked: Any, label: Any, dloss: Any, dp: Any, ignore: int, floor: float) -> None:
    """Computes ``dp[label] = -dloss / max(p[label], floor)`` by row, else and in ignored rows 0; ``picked`` is ``p[label]``."""
    # One value per row is not 0, so the many are cleared and the few computed.
    dp.fill(0)
    rows = np.flatnonzero(label != ignore)
    dp[rows, label[rows]] = -dloss[rows] / np.maximum(picked[rows], floor)


def picked_grad(p: Any, label: Any, dloss: Any, dp: Any, ignore: int, floor: float) -> None:
    """Does what :func:`pick_loss_grad` does, where the probabilities themselves are at hand."""
    index = np.where(label == ignore, 0, label)
    picked = p[np.arange(len(p)), index] if p.size else np.ones(len(p), p.dtype)
    pick_loss_grad(picked, label, dloss, dp, ignore, floor)


def soft_loss(p: Any, label: Any, work: Any, loss: Any, floor: float) -> None:
    """Computes ``loss = -sum(label * log(max(p, floor)))`` by row."""
    # The floor also keeps 0 * log(0) a 0: a class that the label gives no weight costs nothing.
    np.maximum(p, floor, out=work)
    np.log(work, work)
    np.vecdot(work, label, out=loss)
    np.multiply(loss, -1, loss)


def soft_loss_grad(p: Any, label: Any, dloss: Any, dp: Any, floor: float) -> None:
    """Computes ``dp = -label / max(p, floor) * dloss`` by row; ``dp`` may be ``p``, not ``label``."""
    np.maximum(p, floor, out=dp)
    np.true_divide(label, dp, dp)
    np.multiply(dp, dloss[:, None], dp)
    np.multiply(dp, -1, dp)


# ------------------------------------------------------------------------------------------------------- joint gradient
def softmax_input(p: Variable, axis: int) -> Variable | None:
    """Returns what ``p`` is the softmax of, if it is one along ``axis`` and neither was written since; else ``None``.

    A loss on ``p`` takes it as its input ``SoftmaxX``, of which it reads nothing: the gradient goes there directly. The
    gradient by way of ``p``, ``-1 / p`` and then times ``p``, is lost where ``p`` is 0.
    """
    block = p.block
    if default_main_program().current_block() is not block:
        return None
    at, written = row_axis(len(p.shape), axis), set[str]()
    # Backwards, so that the first op found is the last that wrote ``p``; what later ops wrote is known by then.
    for op in reversed(block.ops):
        written.update(op.output_arg_names)
        if p.name not in written:
            continue
        known = op_def(op.type).trait(Softmax)
        if known is None or not op.attrs.get("use_softmax", True) or op.outputs[known.output] != (p.name,):
            return None
        (name,) = op.inputs[known.input]
        same_axis = row_axis(len(p.shape), op.attrs["axis"]) == at
        return block._find_var_recursive(name) if same_axis and name not in written else None
    return None


def joint_gradient(ctx: GradContext, x: str, loss: str, softmax: str) -> list[OpSpec] | None:
    """Returns the gradient of a loss on probabilities by the softmax's input; ``None`` where none is wanted or arrives.

    Args:
        ctx: What the rule of the loss was called with.
        x: The slot of the probabilities.
        loss: The slot of the loss.
        softmax: A variable that holds the probabilities.
    """
    logits, (label,) = ctx.inputs.get("SoftmaxX"), ctx.inputs["Label"]
    wanted, arriving = ctx.in_grads.get(logits[0]) if logits else None, ctx.out_grads.get(ctx.outputs[loss][0])
    # No gradient flows through probabilities that stop it; one that is asked for has to arrive there.
    if wanted is None or arriving is None or ctx.inputs[x][0] not in ctx.in_grads or ctx.inputs[x][0] in ctx.asked:
        return None
    specs: list[OpSpec] = []
    # The loss on probabilities takes labels without the axis of classes; the op that is appended does not.
    if ctx.meta(label).rank < ctx.meta(ctx.inputs[x][0]).rank:
        column = ctx.fresh(label)
        specs.append(OpSpec("unsqueeze2", {"X": [label]}, {"Out": [column]}, {"axes": (-1,)}))
        label = column
    ins = {"Label": [label], "Softmax": [softmax], f"Loss{GRAD}": [arriving]}
    kept = {n: v for n, v in ctx.attrs.items() if n in ("soft_label", "ignore_index", "axis")}
    specs.append(
        OpSpec("softmax_with_cross_entropy_grad", ins, {f"Logits{GRAD}": [wanted]}, {**kept, "use_softmax": True})
    )
    return specs


# ----------------------------------------------------------------------------------------------------------- functions
def with_class_axis(scores: Variable, label: Variable, axis: int, function: str) -> Variable:
    """Returns ``label`` with an axis of size 1 (or the classes) where the scores have the classes.

    Raises:
        ShapeError: If the ranks do not fit.
    """
    rank = len(scores.shape)
    if rank > 0 and len(label.shape) == rank - 1:
        return emit_one("unsqueeze2", {"X": label}, {"axes": (axis,)})
    check_fit(
        rank > 0 and len(label.shape) == rank, (scores, label), ("the scores", "label"),
        f"'label' of {function} has a rank that does not fit the scores",
        f"rank {rank}, or {rank - 1} for class numbers" if rank else "scores of rank 1 or more", "reshape the label",
        function,
    )  # fmt: skip
    return label


def reduced(loss: Variable, reduction: str, name: str | None = None) -> Variable:
    """Returns the mean or sum ``[]`` of all elements, or ``loss`` itself for ``"none"``."""
    if reduction == "none":
        return loss
    attrs = {"dim": (0,), "reduce_all": True}
    return emit_one(f"reduce_{reduction}", {"X": loss}, attrs, name=name, prefix=reduction)


def variables(function: str, **named: Any) -> list[Variable]:
    """Checks that the arguments are Variables, and returns them."""
    return [check_variable(value, name, function) for name, value in named.items()]
