"""What the losses on class numbers share: checks of labels, and the negative logarithm of picked probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, IndexRangeError, ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ir.where import show, user_line
from tstatic.ops._shapes import single

HUGE = 1e20
"""What the losses on probabilities give for the logarithm of 0, as Paddle does; an infinity would spoil a sum."""


# -------------------------------------------------------------------------------------------------------------- checks
def need_labels(label: Meta, like: Meta, soft: bool, what: str = "X") -> None:
    """Raises DTypeError unless labels are class numbers, or, if soft, floats of the type of the scores."""
    if soft and label.dtype is not like.dtype:
        raise DTypeError(
            f"soft labels must have the dtype of {what}",
            expected=like.dtype.name,
            received=label.dtype.name,
            fix=f"convert them with paddle.cast(label, '{like.dtype.name}')",
        )
    if not soft and not label.dtype.is_integer:
        raise DTypeError(
            "Label must hold class numbers",
            expected="int64 or int32 (or soft_label=True)",
            received=label.dtype.name,
            fix="convert it with paddle.cast(label, 'int64'), or pass soft_label=True for distributions",
        )


def need_fitting(label: Shape, wanted: Shape, scores: Shape, what: str = "X") -> Shape:
    """The common shape of labels and what they should look like.

    Raises:
        ShapeError: If ranks or known sizes differ.
    """
    fits = len(label) == len(wanted) and all(a == b or UNKNOWN in (a, b) for a, b in zip(label, wanted, strict=True))
    if not fits:
        raise ShapeError(
            f"the shape of Label does not fit {what}",
            expected=f"Label of shape {list(wanted)}",
            received=f"Label of shape {list(label)} for {what} of shape {list(scores)}",
            fix="reshape Label; class numbers have size 1 along the axis of the classes, soft labels the full size",
        )
    return tuple(max(a, b) for a, b in zip(label, wanted, strict=True))


def check_classes(label: Any, classes: int, ignore: int) -> None:
    """Raises IndexRangeError for a class number outside ``[0, classes)`` that is not the ignored one."""
    if not label.size:
        return
    least, most = int(label.min()), int(label.max())
    if least >= 0 and most < classes:
        return
    wrong = label[((label < 0) | (label >= classes)) & (label != ignore)]
    if wrong.size:
        raise IndexRangeError(
            "Label holds a class number that is out of range",
            expected=f"integers from 0 to {classes - 1}, or {ignore} for rows to be ignored",
            received=int(wrong.reshape(-1)[0]),
            fix=f"check the labels that are fed, or the number of classes ({classes})",
        )


# ------------------------------------------------------------------------------------------------------- probabilities
def pick_loss(p: Any, label: Any, match: Any, loss: Any, ignore: int) -> None:
    """``loss = -log(p[label])`` by row, at most :data:`HUGE`; 0 in ignored rows.

    Args:
        p: ``[rows, length]``.
        label: ``[rows]``.
        match: Gets ``p[label]``, ``[rows]``, 1 in ignored rows; or ``None``.
        loss: ``[rows]`` or ``None``.
        ignore: The label to be ignored.
    """
    ignored = label == ignore
    index = np.where(ignored, 0, label)
    picked = p[np.arange(len(p)), index] if p.shape[1] else np.ones(len(p), p.dtype)
    picked[ignored] = 1
    if match is not None:
        np.copyto(match, picked)
    if loss is not None:
        np.log(picked, picked)
        np.negative(picked, picked)
        np.minimum(picked, HUGE, out=loss)
        np.copyto(loss, 0, where=ignored)


def pick_loss_grad(picked: Any, label: Any, dloss: Any, dp: Any, ignore: int) -> None:
    """``dp[label] = -dloss / p[label]`` by row, 0 elsewhere and in ignored rows; ``picked`` is ``p[label]``."""
    dp.fill(0)
    rows = np.flatnonzero(label != ignore)
    dp[rows, label[rows]] = -dloss[rows] / picked[rows]


def picked_grad(p: Any, label: Any, dloss: Any, dp: Any, ignore: int) -> None:
    """:func:`pick_loss_grad` where the probabilities themselves are at hand."""
    index = np.where(label == ignore, 0, label)
    picked = p[np.arange(len(p)), index] if p.size else np.ones(len(p), p.dtype)
    pick_loss_grad(picked, label, dloss, dp, ignore)


def soft_loss(p: Any, label: Any, work: Any, loss: Any) -> None:
    """``loss = -sum(label * log(p))`` by row, with no logarithm below minus :data:`HUGE`."""
    np.log(p, work)
    np.maximum(work, -HUGE, out=work)
    np.vecdot(work, label, out=loss)
    np.negative(loss, loss)


def soft_loss_grad(p: Any, label: Any, dloss: Any, dp: Any) -> None:
    """``dp = -label / p * dloss`` by row."""
    np.true_divide(label, p, dp)
    np.multiply(dp, dloss[:, None], dp)
    np.negative(dp, dp)


# ----------------------------------------------------------------------------------------------------------- functions
def with_class_axis(scores: Variable, label: Variable, axis: int, function: str) -> Variable:
    """``label`` with an axis of size 1 (or the classes) where the scores have the classes.

    Raises:
        ShapeError: If the ranks do not fit.
    """
    rank = len(scores.shape)
    if rank > 0 and len(label.shape) == rank - 1:
        return single("unsqueeze2", {"X": label}, {"axes": (axis,)})
    if rank == 0 or len(label.shape) != rank:
        raise ShapeError(
            f"'label' of {function} has a rank that does not fit the scores",
            expected=f"rank {rank}, or {max(rank - 1, 0)} for class numbers" if rank else "scores of rank 1 or more",
            received=f"scores of shape {list(scores.shape)}, label of shape {list(label.shape)}",
            fix="reshape the label",
            op=function,
            var=label.name,
            where=show(user_line()),
        )
    return label


def check_reduction(reduction: Any, function: str, allowed: Sequence[str] = ("sum", "mean", "none")) -> str:
    """Raises ProgramError unless ``reduction`` is one of the allowed words."""
    if reduction not in allowed:
        raise ProgramError(
            f"The value of 'reduction' in {function} should be {', '.join(map(repr, allowed))}",
            expected=f"one of {', '.join(map(repr, allowed))}",
            received=repr(reduction),
            fix="pass one of these words",
            op=function,
            where=show(user_line()),
        )
    return str(reduction)


def reduced(loss: Variable, reduction: str, name: str | None = None) -> Variable:
    """The mean or sum ``[]`` of all elements, or ``loss`` itself for ``"none"``."""
    if reduction == "none":
        return loss
    attrs = {"dim": (0,), "reduce_all": True}
    return single(f"reduce_{reduction}", {"X": loss}, attrs, name=name, prefix=reduction)


def variables(function: str, **named: Any) -> list[Variable]:
    """The arguments as Variables, checked."""
    return [check_variable(value, name, function) for name, value in named.items()]
