"""Losses on scores and signs or class numbers that ask for a margin, compositions of other functions."""

from __future__ import annotations

from tstatic.ir.checks import FLOATS, INTEGERS, NUMBERS, check_choice, check_dtype, check_number, check_same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ops.elementwise.activation import log_sigmoid
from tstatic.ops.elementwise.activation_piecewise import relu
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.operators import eq
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.indexing.along_axis import index_sample
from tstatic.ops.indexing.gather import gather
from tstatic.ops.loss._labels import REDUCTIONS, check_weights, reduced, variables
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
    own = margin**power / classes
    if weight is None:
        loss = mean(relu(short) ** power, 1) - own
    else:
        (weights,) = variables(function, weight=weight)
        check_weights(weights, classes, "weight", function)
        factor = reshape(gather(weights, y), [-1, 1])
        loss = mean(relu(factor * short) ** power, 1) - reshape(factor, [-1]) * own
    return reduced(loss, reduction, name)
