"""Losses on distances between vectors, compositions of other functions: pairwise distances, triplets, cosines, pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.ir.checks import FLOATS, NUMBERS, check_callable, check_choice, check_dtype, check_number, check_same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ops.base.labels import REDUCTIONS, reduced, variables
from tstatic.ops.elementwise.activation_piecewise import relu
from tstatic.ops.elementwise.arithmetic import minimum
from tstatic.ops.elementwise.logic import equal, where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import sqrt, square
from tstatic.ops.functions.operators import eq
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_entropy
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.reduce.reduction import mean
from tstatic.ops.reduce.reduction import sum as total
from tstatic.ops.reduce.vector_norm import norm
from tstatic.ops.shape.reshape import reshape


@export("nn.functional.pairwise_distance")
def pairwise_distance(
    x: Variable, y: Variable, p: float = 2.0, epsilon: float = 1e-6, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the norm of order ``p`` of ``x - y + epsilon`` along the last axis.

    Args:
        x, y: Floats, ``[..., size]``, that broadcast.
        p: A number, or infinity for the largest magnitude.
        epsilon: Added to each difference, so that the norm of equal vectors has a gradient.
        keepdim: Keep the last axis with size 1.
        name: Name of the last layer.

    Example:
        >>> x, y = paddle.to_tensor([[0.0, 0.0], [1.0, 2.0]]), paddle.to_tensor([[3.0, 4.0], [1.0, 1.0]])
        >>> d = paddle.nn.functional.pairwise_distance(x, y)
        >>> static.Executor().run(fetch_list=[d])[0]
        array([5., 1.], dtype=float32)
    """
    a, b = variables("pairwise_distance", x=x, y=y)
    order = check_number(p, "p", "pairwise_distance", finite=False)
    difference = a - b
    if epsilon != 0.0:
        difference = difference + check_number(epsilon, "epsilon", "pairwise_distance")
    return norm(difference, order, -1, keepdim, name)


# ------------------------------------------------------------------------------------------------------------- triplets
def _triplet(
    function: str,
    triplet: tuple[Variable, Variable, Variable],
    distance: Callable[[Variable, Variable], Any],
    margin: float,
    swap: bool,
    reduction: str,
    name: str | None,
) -> Variable:
    check_choice(reduction, REDUCTIONS, "reduction", function)
    check_number(margin, "margin", function, least=0.0)
    args = ("input", "positive", "negative")
    x, positive, negative = variables(function, **dict(zip(args, triplet, strict=True)))
    check_same_shape((x, positive, negative), args, function)
    near, far = distance(x, positive), distance(x, negative)
    # The negative may be nearer to the positive than to the anchor; the smaller distance counts.
    if swap:
        far = minimum(far, distance(positive, negative))
    loss = relu(near - far + margin, name if reduction == "none" else None)
    return reduced(loss, reduction, name)


@export("nn.functional.triplet_margin_loss")
def triplet_margin_loss(
    input: Variable,
    positive: Variable,
    negative: Variable,
    margin: float = 1.0,
    p: float = 2,
    epsilon: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``max(0, d(input, positive) - d(input, negative) + margin)`` with ``d`` as :func:`pairwise_distance`.

    Args:
        input: The vectors that are compared, ``[..., size]``.
        positive: Vectors that should be near, of the same shape.
        negative: Vectors that should be far, of the same shape.
        margin: By how much farther they should be; at least 0.
        p, epsilon: Order and least difference of :func:`pairwise_distance`.
        swap: Measure ``negative`` from ``positive`` where that is nearer.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` (``[...]``).
        name: Name of the last layer.

    Raises:
        ShapeError: If the shapes differ.
        ProgramError: If ``margin`` is negative.

    Example:
        >>> x, near, far = (paddle.to_tensor([v]) for v in ([0.0, 0.0], [0.0, 1.0], [1.5, 0.0]))
        >>> loss = paddle.nn.functional.triplet_margin_loss(x, near, far)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(0.5, dtype=float32)
    """

    def distance(a: Variable, b: Variable) -> Variable:
        # Added before the norm: it keeps the slope of the root finite where both vectors are equal.
        return pairwise_distance(a, b, p, epsilon)

    triplet = (input, positive, negative)
    return _triplet("triplet_margin_loss", triplet, distance, margin, swap, reduction, name)


@export("nn.functional.triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(
    input: Variable,
    positive: Variable,
    negative: Variable,
    distance_function: Callable[[Variable, Variable], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns :func:`triplet_margin_loss` with a distance of your own.

    Args:
        input: The vectors that are compared.
        positive: Vectors that should be near, of the same shape.
        negative: Vectors that should be far, of the same shape.
        distance_function: Takes two Variables and returns their distances; :func:`pairwise_distance` if ``None``.
        margin: By how much farther they should be; at least 0.
        swap: Measure ``negative`` from ``positive`` where that is nearer.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer.

    Raises:
        ShapeError: If the shapes differ.
        ProgramError: If ``margin`` is negative.

    Example:
        >>> x, near, far = (paddle.to_tensor([v]) for v in ([0.0, 0.0], [0.0, 1.0], [1.5, 0.0]))
        >>> loss = paddle.nn.functional.triplet_margin_with_distance_loss(x, near, far)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(0.5, dtype=float32)
    """
    function = "triplet_margin_with_distance_loss"
    distance = pairwise_distance
    if distance_function is not None:
        distance = check_callable(distance_function, "distance_function", function, "a function of two Variables")
    return _triplet(function, (input, positive, negative), distance, margin, swap, reduction, name)


# ------------------------------------------------------------------------------------------------------ pairs of vectors
@export("nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Variable,
    input2: Variable,
    label: Variable,
    margin: float = 0,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``1 - cos`` of pairs with label 1, and ``max(0, cos - margin)`` of pairs with label -1.

    Args:
        input1, input2: Floats, ``[batch, size]`` or ``[size]``.
        label: 1 for pairs that should be alike, -1 for others; numbers ``[batch]`` or ``[1]``.
        margin: The cosine that unlike pairs may have.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"`` (``[batch]``).
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the shapes do not fit.

    Example:
        >>> a, b = paddle.to_tensor([[1.0, 0.0], [1.0, 0.0]]), paddle.to_tensor([[0.0, 2.0], [3.0, 0.0]])
        >>> label = paddle.to_tensor([1, -1])
        >>> loss = paddle.nn.functional.cosine_embedding_loss(a, b, label, margin=0.5, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([1. , 0.5], dtype=float32)
    """
    function = "cosine_embedding_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    check_number(margin, "margin", function)
    a, b, sign = variables(function, input1=input1, input2=input2, label=label)
    check_dtype(a, FLOATS, "input1", function)
    check_dtype(sign, NUMBERS, "label", function)
    check_same_shape((a, b), ("input1", "input2"), function)
    check_fit(
        len(sign.shape) == 1 and 1 <= len(a.shape) <= 2, (a, sign), ("input1", "label"),
        f"the shapes given to {function} do not fit", "inputs [batch, size] or [size], and label [batch]",
        "reshape the inputs or the label", function,
    )  # fmt: skip
    # The small number keeps the quotient of a vector of zeros finite.
    lengths = sqrt((total(square(a), -1) + 1e-11) * (total(square(b), -1) + 1e-11))
    cosine = total(a * b, -1) / lengths
    loss = where(eq(sign, 1), 1.0 - cosine, 0.0) + where(eq(sign, -1), relu(cosine - margin), 0.0)
    return reduced(loss, reduction, name)


@export("nn.functional.npair_loss")
def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float | Variable = 0.002) -> Variable:
    """Returns the cross entropy of the products of all anchors with all positives, plus weight decay; ``[]``.

    Each row's distribution is even over the positives that have its label. The decay is ``l2_reg / 4`` times the mean squared
    length of the anchors plus that of the positives.

    Args:
        anchor: Floats ``[batch, size]``.
        positive: The same shape.
        labels: Class numbers ``[batch]``.
        l2_reg: Factor of the decay: a number, or a Variable of one.

    Raises:
        ShapeError: If the shapes do not fit.

    Example:
        >>> anchor, positive = paddle.to_tensor([[1.0], [0.0]]), paddle.to_tensor([[1.0], [0.0]])
        >>> loss = paddle.nn.functional.npair_loss(anchor, positive, paddle.to_tensor([0, 1]), l2_reg=0.0)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(0.5032, dtype=float32)
    """
    a, b, classes = variables("npair_loss", anchor=anchor, positive=positive, labels=labels)
    if not isinstance(l2_reg, Variable):
        check_number(l2_reg, "l2_reg", "npair_loss")
    check_same_shape((a, b), ("anchor", "positive"), "npair_loss")
    check_fit(
        len(a.shape) == 2 and len(classes.shape) == 1, (a, classes), ("anchor", "labels"),
        "the shapes given to npair_loss do not fit", "anchor [batch, size] and labels [batch]",
        "reshape the vectors or the labels", "npair_loss",
    )  # fmt: skip
    alike = cast(equal(reshape(classes, [-1, 1]), reshape(classes, [1, -1])), a.dtype)
    # A class may occur several times in a batch: its rows share the weight, and each row sums to 1.
    target = alike / total(alike, 1, keepdim=True)
    entropy, _ = softmax_entropy(matmul(a, b, transpose_y=True), target, True, -100, -1, True)
    decay = mean(total(square(a), 1)) + mean(total(square(b), 1))
    # 0.25 is Paddle's `Beta`.
    loss: Variable = decay * (0.25 * l2_reg) + mean(entropy)
    return loss


@export("fluid.layers.npair_loss")
def fluid_npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Returns :func:`npair_loss` with shape ``[1]``.

    Args:
        anchor, positive, labels, l2_reg: As there.
    """
    return reshape(npair_loss(anchor, positive, labels, l2_reg), [1])
