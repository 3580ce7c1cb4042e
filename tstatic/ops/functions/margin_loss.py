"""Losses on scores and signs or class numbers that ask for a margin, compositions of other functions."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.checks import FLOATS, INTEGERS, NUMBERS, check_choice, check_dtype, check_number, check_same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.no_effect import no_effect
from tstatic.ops.base.labels import REDUCTIONS, check_weights, reduced, variables
from tstatic.ops.elementwise.activation import log_sigmoid
from tstatic.ops.elementwise.activation_piecewise import relu
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import acos, cos
from tstatic.ops.functions.operators import eq
from tstatic.ops.indexing.along_axis import index_sample
from tstatic.ops.indexing.embedding import one_hot
from tstatic.ops.indexing.gather import gather
from tstatic.ops.reduce.reduction import mean
from tstatic.ops.shape.reshape import reshape


@export("nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(
    input: Variable, label: Variable, margin: float = 1.0, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Returns ``input`` where the label is 1, and ``max(0, margin - input)`` where it is -1.

    Args:
        input: Distances of any shape.
        label: 1 for pairs that should be alike, -1 for others; floats that broadcast with ``input``.
        margin: The distance that unlike pairs should have.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer of a mean or a sum.

    Example:
        >>> x, label = paddle.to_tensor([0.25, 0.25, 2.0]), paddle.to_tensor([1.0, -1.0, -1.0])
        >>> loss = paddle.nn.functional.hinge_embedding_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([0.25, 0.75, 0.  ], dtype=float32)
    """
    function = "hinge_embedding_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    check_number(margin, "margin", function)
    x, y = variables(function, input=input, label=label)
    check_dtype(x, FLOATS, "input", function)
    check_dtype(y, FLOATS, "label", function, fix="convert the label with paddle.cast(label, input.dtype)")
    loss = where(eq(y, 1.0), x, 0.0) + where(eq(y, -1.0), relu(margin - x), 0.0)
    return reduced(loss, reduction, name)


@export("nn.functional.soft_margin_loss")
def soft_margin_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(-label * input))``, without overflow.

    Args:
        input: Scores of any shape.
        label: 1 or -1; numbers of the same shape.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the shapes differ.

    Example:
        >>> x, label = paddle.to_tensor([0.0, 2.0]), paddle.to_tensor([1.0, -1.0])
        >>> loss = paddle.nn.functional.soft_margin_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([0.6931, 2.1269], dtype=float32)
    """
    check_choice(reduction, REDUCTIONS, "reduction", "soft_margin_loss")
    x, y = variables("soft_margin_loss", input=input, label=label)
    check_dtype(x, FLOATS, "input", "soft_margin_loss")
    check_dtype(y, NUMBERS, "label", "soft_margin_loss")
    check_same_shape((x, y), ("input", "label"), "soft_margin_loss")
    # log_sigmoid, not log(1 + exp(..)): exp overflows float32 above 88.
    return reduced(-log_sigmoid(cast(y, x.dtype) * x), reduction, name)


@export("nn.functional.multi_label_soft_margin_loss")
def multi_label_soft_margin_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns the mean over the last axis of ``-label * log(sigmoid(x)) - (1 - label) * log(1 - sigmoid(x))``.

    Args:
        input: Scores ``x``, ``[..., classes]``.
        label: 1 or 0 for each class; floats of the same shape.
        weight: Factors that broadcast with ``input``, such as ``[classes]``.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` (``[...]``).
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the shapes differ.

    Example:
        >>> x, label = paddle.to_tensor([[0.0, 2.0]]), paddle.to_tensor([[1.0, 0.0]])
        >>> loss = paddle.nn.functional.multi_label_soft_margin_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([1.41], dtype=float32)
    """
    function = "multi_label_soft_margin_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    x, y = variables(function, input=input, label=label)
    check_dtype(x, FLOATS, "input", function)
    check_dtype(y, FLOATS, "label", function, fix="convert the label with paddle.cast(label, input.dtype)")
    check_same_shape((x, y), ("input", "label"), function)
    # log(1 - sigmoid(x)) loses all digits where the sigmoid rounds to 1: log_sigmoid(-x) does not.
    loss = -(y * log_sigmoid(x) + (1.0 - y) * log_sigmoid(-x))
    if weight is not None:
        loss = loss * variables(function, weight=weight)[0]
    return reduced(mean(loss, -1), reduction, name)


@export("nn.functional.multi_margin_loss")
def multi_margin_loss(
    input: Variable,
    label: Variable,
    p: int = 1,
    margin: float = 1.0,
    weight: Variable | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``sum(max(0, margin - x[label] + x[i]) ** p) / classes`` over the classes ``i`` beside the label.

    As in Paddle, the weight ``w`` of the label's class stands inside of the power, and the label's own share that is taken off is
    ``w * margin ** p``: with ``p`` 2 the label itself adds ``(w * w - w) * margin ** 2 / classes``.

    Args:
        input: Scores ``x``, ``[batch, classes]`` with a known number of classes.
        label: Class numbers ``[batch]``.
        p: The power.
        margin: By how much the label's score should be larger.
        weight: A factor for each class, ``[classes]``.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` (``[batch]``).
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the shapes do not fit. A class number out of range raises IndexRangeError when the program runs.

    Example:
        >>> x, label = paddle.to_tensor([[0.5, 1.0, -3.0]]), paddle.to_tensor([1])
        >>> loss = paddle.nn.functional.multi_margin_loss(x, label, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([0.1667], dtype=float32)
    """
    function = "multi_margin_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    check_number(margin, "margin", function)
    power = check_number(p, "p", function, finite=False)
    x, y = variables(function, input=input, label=label)
    check_dtype(x, FLOATS, "input", function)
    check_dtype(y, INTEGERS, "label", function)
    check_fit(
        len(x.shape) == 2 and x.shape[1] >= 1 and len(y.shape) == 1, (x, y), ("input", "label"),
        f"the shapes given to {function} do not fit", "input [batch, classes] and label [batch]",
        "reshape the label; give the input a known number of classes", function,
    )  # fmt: skip
    classes = x.shape[1]
    column = reshape(y, [-1, 1])
    short = margin - index_sample(x, column) + x
    # The mean runs over all classes; the label's own summand, margin^p / classes, is taken out again.
    own = margin**power / classes
    if weight is None:
        loss = mean(relu(short) ** power, 1) - own
    else:
        (weights,) = variables(function, weight=weight)
        check_weights(weights, classes, "weight", function)
        factor = reshape(gather(weights, y), [-1, 1])
        # As in Paddle: the weight counts within the power, and once in what is taken out.
        loss = mean(relu(factor * short) ** power, 1) - reshape(factor, [-1]) * own
    return reduced(loss, reduction, name)


@no_effect(group="every process holds all classes")
@export("nn.functional.margin_cross_entropy")
def margin_cross_entropy(
    logits: Variable,
    label: Variable,
    margin1: float = 1.0,
    margin2: float = 0.5,
    margin3: float = 0.0,
    scale: float = 64.0,
    group: Any = None,
    return_softmax: bool = False,
    reduction: str | None = "mean",
) -> Variable | tuple[Variable, Variable]:
    """Returns the cross entropy of cosines, with a margin for the label's: ``scale * (cos(margin1 * angle + margin2) - margin3)``.

    ArcFace has ``margin2``, CosFace ``margin3`` and SphereFace ``margin1``.

    Args:
        logits: Cosines of the angles between a feature and the centers of the classes, ``[batch, classes]``, with a known number of
            classes; a cosine of the label of 1 or -1 has no finite gradient.
        label: Class numbers, ``[batch]`` or ``[batch, 1]``.
        margin1, margin2, margin3: What the label's angle is multiplied by, what is added, and what is taken off its cosine.
        scale: What all cosines are multiplied by.
        group: Has no effect.
        return_softmax: Also return the probabilities ``[batch, classes]``.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` or ``None`` (``[batch, 1]``).

    Returns:
        The loss, or that and the probabilities.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit. A class number out of range raises IndexRangeError at run time.

    Example:
        >>> cosines, label = paddle.to_tensor([[0.5, 0.25]]), paddle.to_tensor([0])
        >>> loss = paddle.nn.functional.margin_cross_entropy(cosines, label, margin2=0.0, margin3=0.25, scale=8.0)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(0.6931, dtype=float32)
    """
    function = "margin_cross_entropy"
    check_choice(reduction, (*REDUCTIONS, None), "reduction", function)
    named = {"margin1": margin1, "margin2": margin2, "margin3": margin3, "scale": scale}
    times, plus, minus, by = (check_number(value, name, function) for name, value in named.items())
    x, y = variables(function, logits=logits, label=label)
    check_dtype(x, FLOATS, "logits", function)
    check_dtype(y, INTEGERS, "label", function)
    check_fit(
        len(x.shape) == 2 and x.shape[1] >= 1 and y.shape[1:] in ((), (1,)), (x, y), ("logits", "label"),
        f"the shapes given to {function} do not fit", "logits [batch, classes] and label [batch] or [batch, 1]",
        "reshape the label; give the logits a known number of classes", function,
    )  # fmt: skip
    column = reshape(y, [-1, 1])
    cosine = index_sample(x, column)
    # acos is NaN beyond 1: the caller normalises both sides, as in Paddle.
    moved = cos(acos(cosine) * times + plus) - minus
    own = cast(one_hot(reshape(y, [-1]), x.shape[1]), x.dtype)
    scores = (x + own * (moved - cosine)) * by
    probabilities, loss = emit("softmax_with_cross_entropy", {"Logits": scores, "Label": column})
    found = reduced(loss, reduction or "none")
    return (found, probabilities) if return_softmax else found
