"""``cross_entropy`` of scores, with class weights, ignored labels and smoothing."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.loss import _labels as labels
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_entropy
from tstatic.ops.shape._shapes import emit_one


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
            ``ignore_index`` is 0 or more, and by the number of all rows if it is negative, as in Paddle's static mode.
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
    labels.check_reduction(reduction, "cross_entropy")
    if soft_label and ignore_index > 0:
        raise _refuse(
            "soft labels cannot be ignored by number", "ignore_index=-100", ignore_index, "leave it out", label
        )
    numbers = len(label.shape) == len(input.shape) - 1
    hot = labels.with_class_axis(input, label, axis, "cross_entropy")
    if label_smoothing > 0.0:
        hot, soft_label = _smoothed(input, hot, soft_label, axis, label_smoothing), True
    loss, _ = softmax_entropy(input, hot, soft_label, ignore_index, axis, use_softmax)
    factor = None
    if weight is not None:
        factor = _weights(input, hot, check_variable(weight, "weight", "cross_entropy"), soft_label, ignore_index, axis)
        loss = emit_one("elementwise_mul", {"X": loss, "Y": factor}, name=name if reduction == "none" else None)
    if reduction == "none":
        return emit_one("squeeze2", {"X": loss}, {"axes": (axis,)}, name=name) if numbers else loss
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
    """Which rows are not ignored; the shape of ``label``."""
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


def _weights(input: Variable, label: Variable, weight: Variable, soft: bool, ignore: int, axis: int) -> Variable:
    """The factor of each row's loss; the shape of the loss."""
    classes = input.shape[axis]
    if len(weight.shape) != 1 or (-1 not in (classes, weight.shape[0]) and classes != weight.shape[0]):
        raise ShapeError(
            "'weight' of cross_entropy needs one value per class",
            expected=f"shape [{classes}]",
            received=list(weight.shape),
            fix="pass one weight per class",
            op="cross_entropy",
            var=weight.name,
        )
    if soft:
        if axis in (-1, len(input.shape) - 1):
            product = emit_one("matmul_v2", {"X": label, "Y": weight})
            return emit_one("unsqueeze2", {"X": product}, {"axes": (-1,)})
        shape = tuple(-1 if i == axis % len(input.shape) else 1 for i in range(len(input.shape)))
        column = emit_one("reshape2", {"X": weight}, {"shape": shape})
        product = emit_one("elementwise_mul", {"X": label, "Y": column})
        return emit_one("reduce_sum", {"X": product}, {"dim": (axis,), "keep_dim": True})
    counted = _counted(label, ignore)
    classes_only = emit_one(
        "elementwise_mul", {"X": label, "Y": emit_one("cast", {"X": counted}, {"out_dtype": label.dtype})}
    )
    index = emit_one("unsqueeze2", {"X": classes_only}, {"axes": (-1,)})
    picked = emit_one("gather_nd", {"X": weight, "Index": index})
    return emit_one(
        "elementwise_mul", {"X": picked, "Y": emit_one("cast", {"X": counted}, {"out_dtype": weight.dtype})}
    )
