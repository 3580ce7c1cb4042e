"""Layers of losses over many classes or centres as functions, with their parameters: ``nce`` and ``center_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.extras.ranking.nce import FLOATS, SAMPLERS
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INTEGERS,
    check_choice,
    check_int,
    check_length,
    check_number,
    check_rank,
    check_static_dim,
    check_type,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.param import LayerHelper, check_enabled
from tstatic.no_effect import no_effect
from tstatic.ops.shape.creation import assign, full


@no_effect(is_sparse="the gradient of the weight is dense")
@export("static.nn.nce", "fluid.layers.nce", op="nce")
def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Returns the noise-contrastive loss of each row: its true classes against classes that are drawn.

    With ``o`` the sigmoid of a class's score and ``b`` how often the sampler is expected to draw it, a true class costs
    ``-log(o / (o + b))`` and a drawn one ``-log(b / (o + b))``. The sum is divided by ``num_neg_samples + 1``.

    Args:
        input: ``[batch, features]``; float32 or float64, ``features`` known.
        label: True classes ``[batch, 1]``, or several per row; integers.
        num_total_classes: How many classes there are.
        sample_weight: ``[batch, 1]``: the weight of each row; 1 without it.
        param_attr: ParamAttr, name or initializer of the weight ``[num_total_classes, features]``.
        bias_attr: The same for the bias ``[num_total_classes, 1]``; ``False`` for none.
        num_neg_samples: Classes that are drawn for each row, with replacement; 10 if ``None``.
        name: Name of the layer.
        sampler: ``"uniform"``; ``"log_uniform"`` for classes in the order of their frequency; ``"custom_dist"``.
        custom_dist: The probability of each class, for ``sampler="custom_dist"``.
        seed: Replaces the program's seed if it is not 0.

    Returns:
        ``[batch, 1]``.

    Raises:
        ProgramError: For another sampler, or ``custom_dist`` without it or the other way round.
        ShapeError: If the shapes do not fit, or ``custom_dist`` has another length.

    Example:
        >>> x, label = static.data("x", [None, 8]), static.data("label", [None, 1], "int64")
        >>> cost = static.nn.nce(x, label, num_total_classes=1000, num_neg_samples=5, sampler="log_uniform")
        >>> loss = paddle.mean(cost)
        >>> cost.shape
        (-1, 1)
    """
    function = "nce"
    check_variable(input, "input", function, FLOATS)
    check_variable(label, "label", function, INTEGERS)
    check_rank(input, 2, "input", function, layout="[batch, features]")
    features = check_static_dim(input.shape[1], input, "axis 1 (the features)", function)
    classes = check_int(num_total_classes, "num_total_classes", function, 1)
    count = 10 if num_neg_samples is None else check_int(num_neg_samples, "num_neg_samples", function, 1)
    check_choice(sampler, SAMPLERS, "sampler", function)
    check_int(seed, "seed", function)
    if (custom_dist is not None) != (sampler == "custom_dist"):
        raise ProgramError(
            "'custom_dist' and sampler='custom_dist' of nce belong together",
            expected="both, or neither",
            received=f"sampler={sampler!r}, custom_dist={'given' if custom_dist is not None else None}",
            fix="pass custom_dist=probabilities with sampler='custom_dist'",
            op=function,
        )
    probabilities = None
    if custom_dist is not None:
        numbers = [
            check_number(p, "custom_dist", function, least=0.0)
            for p in check_length(list(custom_dist), classes, "custom_dist", function, why="one per class")
        ]
        check_number(sum(numbers), "the sum of custom_dist", function, above=0.0)
        probabilities = assign(np.array(numbers, "float32"))
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function, name=name)
    ins = {
        "Input": input, "Label": label,
        "Weight": helper.create_parameter(param_attr, (classes, features), input.dtype),
        "Bias": helper.create_parameter(bias_attr, (classes, 1), input.dtype, is_bias=True),
        "SampleWeight": sample_weight, "CustomDistProbs": probabilities,
    }  # fmt: skip
    attrs = {
        "num_total_classes": classes, "num_neg_samples": count, "sampler": SAMPLERS.index(sampler), "seed": seed,
    }  # fmt: skip
    cost: Variable = helper.emit(function, ins, attrs) / (count + 1)
    return cost


@export("fluid.layers.center_loss", op="center_loss")
def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Returns half of the squared distance of each row to the centre of its class (Wen et al., 2016).

    A run moves the centre of a class by ``alpha * sum(row - centre) / (1 + rows)`` over the rows of that class.

    Args:
        input: Features ``[batch, features]``; float32 or float64, ``features`` known.
        label: Class of each row, ``[batch, 1]`` or ``[batch]``; integers.
        num_classes: How many classes there are.
        alpha: How fast centres move: a number, or a Variable ``[1]``.
        param_attr: ParamAttr, name or initializer of the centres ``[num_classes, features]``.
        update_center: Whether a run moves the centres.

    Returns:
        ``[batch, 1]``.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.

    Example:
        >>> x, label = paddle.to_tensor([[3.0, 4.0], [1.0, 0.0]]), paddle.to_tensor([[1], [0]])
        >>> zeros = paddle.nn.initializer.Constant(0.0)
        >>> loss = fluid.layers.center_loss(x, label, num_classes=2, alpha=0.1, param_attr=zeros)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[loss])[0].ravel()
        array([12.5,  0.5], dtype=float32)
    """
    function = "center_loss"
    check_variable(input, "input", function, FLOATS)
    check_variable(label, "label", function, INTEGERS)
    check_rank(input, 2, "input", function, layout="[batch, features]")
    features = check_static_dim(input.shape[1], input, "axis 1 (the features)", function)
    classes = check_int(num_classes, "num_classes", function, 1)
    check_type(update_center, bool, "update_center", function)
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function)
    centers = helper.create_parameter(param_attr, (classes, features), input.dtype)
    centers.stop_gradient = True
    if isinstance(alpha, Variable):
        rate = check_variable(alpha, "alpha", function, FLOATS)
    else:
        rate = full([1], check_number(alpha, "alpha", function), input.dtype)
    ins = {"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": rate}
    attrs = {"cluster_num": classes, "need_update": update_center}
    loss: Variable = emit(function, ins, attrs, outputs={"CentersOut": centers})[0]
    return loss
