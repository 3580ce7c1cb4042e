"""Negative log-likelihoods of Poisson and normal distributions, compositions of other functions."""

from __future__ import annotations

import math

from tstatic.ir.checks import FLOATS, check_choice, check_dtype, check_number, check_same_shape, same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ops.base.labels import REDUCTIONS, reduced, variables
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import clip
from tstatic.ops.elementwise.unary import exp, log, square
from tstatic.ops.shape.reshape import unsqueeze


@export("nn.functional.poisson_nll_loss")
def poisson_nll_loss(
    input: Variable,
    label: Variable,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``rate - label * log(rate)``, the negative log-likelihood of counts.

    Args:
        input: The logarithm of the rates, any shape; the rates themselves if ``log_input`` is false.
        label: The counts; floats of the same shape.
        log_input: Whether ``input`` is a logarithm.
        full: Add Stirling's approximation of ``log(label!)`` where ``label`` is above 1.
        epsilon: Added to a rate before its logarithm is taken; positive.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the shapes differ.
        ProgramError: If ``epsilon`` is not positive.

    Example:
        >>> x, count = paddle.to_tensor([0.0, 1.0]), paddle.to_tensor([3.0, 2.0])
        >>> loss = paddle.nn.functional.poisson_nll_loss(x, count, reduction="none")
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([1.    , 0.7183], dtype=float32)
    """
    function = "poisson_nll_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    check_number(epsilon, "epsilon", function, above=0.0)
    x, y = variables(function, input=input, label=label)
    check_dtype(x, FLOATS, "input", function)
    check_dtype(y, FLOATS, "label", function, fix="convert the counts with paddle.cast(label, input.dtype)")
    check_same_shape((x, y), ("input", "label"), function)
    loss = exp(x) - y * x if log_input else x - y * log(x + epsilon)
    if full:
        # Counts of at most 1 are not used, and would give the logarithm of 0.
        count = clip(y, min=1.0)
        # Stirling's approximation of log(label!).
        loss = loss + where(y > 1.0, count * log(count) - count + 0.5 * log(2 * math.pi * count), 0.0)
    return reduced(loss, reduction, name)


@export("nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(
    input: Variable,
    label: Variable,
    variance: Variable,
    full: bool = False,
    epsilon: float | Variable = 1e-6,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns ``(log(variance) + (input - label) ** 2 / variance) / 2``.

    Args:
        input: Expected values of any shape.
        label: Samples that broadcast with ``input``.
        variance: Positive floats of the shape of ``input``, or with size 1 for its last axis, or without that axis.
        full: Add the constant ``log(2 pi) / 2``.
        epsilon: Least variance, a number or a Variable of one; smaller ones count as this one, and get no gradient.
        reduction: ``"mean"`` or ``"sum"`` (``[]``), or ``"none"``.
        name: Name of the last layer of a mean or a sum.

    Raises:
        ShapeError: If the variance does not fit.

    Example:
        >>> x, y, variance = (paddle.to_tensor([v]) for v in (1.0, 3.0, 4.0))
        >>> loss = paddle.nn.functional.gaussian_nll_loss(x, y, variance)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(1.1931, dtype=float32)
    """
    function = "gaussian_nll_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    if not isinstance(epsilon, Variable):
        check_number(epsilon, "epsilon", function, above=0.0)
    x, y, spread = variables(function, input=input, label=label, variance=variance)
    for value, arg in ((x, "input"), (y, "label"), (spread, "variance")):
        check_dtype(value, FLOATS, arg, function)
    rows = tuple(x.shape[:-1])
    if len(spread.shape) == len(x.shape) - 1 and same_shape(spread.shape, rows):
        # One variance per row broadcasts over the last axis.
        spread = unsqueeze(spread, -1)
    check_fit(
        same_shape(spread.shape, x.shape) or same_shape(spread.shape, (*rows, 1)), (x, spread), ("input", "variance"),
        f"the shapes given to {function} do not fit", f"a variance of shape {list(x.shape)} or {[*rows, 1]}",
        "reshape the variance", function,
    )  # fmt: skip
    spread = clip(spread, min=epsilon)
    loss = 0.5 * (log(spread) + square(x - y) / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction, name)
