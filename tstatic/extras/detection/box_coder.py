"""Boxes as distances from prior boxes, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, check_boxes
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    check_choice,
    check_has_shape,
    check_int,
    check_length,
    check_number,
    check_same_dtype,
    check_type,
)
from tstatic.ir.composed import composed
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN
from tstatic.ops.elementwise.unary import abs, exp, log
from tstatic.ops.shape.creation import assign
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.reshape import unsqueeze

ENCODE, DECODE = "encode_center_size", "decode_center_size"


def _coded(
    prior: Variable, given: Variable | None, target: Variable, code_type: str, normalized: bool, axis: int,
    factors: Sequence[float], name: str | None = None,
) -> Variable:  # fmt: skip
    function, encode = "box_coder", code_type == ENCODE
    check_boxes(prior, "PriorBox", 2, function)
    check_boxes(target, "TargetBox", 2 if encode else 3, function)
    check_same_dtype((prior, target), ("PriorBox", "TargetBox"), function)
    if given is not None:
        check_same_dtype((prior, given), ("PriorBox", "PriorBoxVar"), function)
        wanted = prior.shape if len(given.shape) == 2 else (4,)
        check_has_shape(given, wanted, "PriorBoxVar", function, why="as PriorBox, or [4]")
    if not encode:
        along = target.shape[1 - axis]
        check_fit(
            UNKNOWN in (along, prior.shape[0]) or along == prior.shape[0], (prior, target), ("PriorBox", "TargetBox"),
            "there must be one prior box for each target along the axis", f"{along} prior boxes",
            "choose the other axis, or check the boxes", function,
        )  # fmt: skip
    variance = assign(np.array(factors, prior.dtype.np)) if given is None and len(factors) else given
    one = 0.0 if normalized else 1.0
    if encode:
        target, axis = unsqueeze(target, 1), 0
    prior = unsqueeze(prior, axis)
    if variance is not None and len(variance.shape) == 2:
        variance = unsqueeze(variance, axis)
    low, high = prior[..., :2], prior[..., 2:]
    size = high - low + one
    middle = low + size * 0.5
    first, second = target[..., :2], target[..., 2:]
    if encode:
        parts = [((first + second) * 0.5 - middle) / size, log(abs((second - first + one) / size))]
        if variance is not None:
            parts = [parts[0] / variance[..., :2], parts[1] / variance[..., 2:]]
    else:
        if variance is not None:
            first, second = variance[..., :2] * first, variance[..., 2:] * second
        at, half = first * size + middle, exp(second) * size * 0.5
        parts = [at - half, at + half - one]
    out = concat(parts, -1, name)
    # Boxes are targets: as in Paddle, no gradient flows through them.
    out.stop_gradient = True
    return out


@composed("box_coder")
def _box_coder(
    PriorBox: Variable, TargetBox: Variable, PriorBoxVar: Variable | None = None, *, code_type: str = ENCODE,
    box_normalized: bool = True, axis: int = 0, variance: Sequence[float] = (),
) -> dict[str, Variable]:  # fmt: skip
    check_choice(code_type, (ENCODE, DECODE), "code_type", "box_coder")
    check_int(axis, "axis", "box_coder", 0, 1)
    if len(variance):
        check_length(variance, 4, "variance", "box_coder", why="one per number of a box")
    return {"OutputBox": _coded(PriorBox, PriorBoxVar, TargetBox, code_type, box_normalized, axis, variance)}


def _coder(
    prior_box: Variable, prior_box_var: Any, target_box: Variable, code_type: str, box_normalized: bool,
    axis: int, name: str | None,
) -> Variable:  # fmt: skip
    function = "box_coder"
    check_choice(code_type, (ENCODE, DECODE), "code_type", function)
    normalized = check_type(box_normalized, bool, "box_normalized", function)
    at = check_int(axis, "axis", function, 0, 1)
    prior = check_variable(prior_box, "prior_box", function, FLOATS)
    target = check_variable(target_box, "target_box", function, FLOATS)
    if isinstance(prior_box_var, list | tuple):
        numbers = check_length(prior_box_var, 4, "prior_box_var", function, why="one per number of a box")
        factors = [check_number(v, "prior_box_var", function) for v in numbers]
        return _coded(prior, None, target, code_type, normalized, at, factors, name)
    given = None if prior_box_var is None else check_variable(prior_box_var, "prior_box_var", function, FLOATS)
    return _coded(prior, given, target, code_type, normalized, at, (), name)


@export("vision.ops.box_coder")
def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = ENCODE,
    box_normalized: bool = True,
    axis: int = 0,
    name: str | None = None,
) -> Variable:
    """Writes boxes as distances from prior boxes, or turns such distances back to boxes.

    Args:
        prior_box: ``[m, 4]``: left, top, right, bottom; float32 or float64.
        prior_box_var: What distances are divided by: ``[m, 4]``, a list of four numbers, or ``None``.
        target_box: Boxes ``[n, 4]`` to encode, or distances ``[n, m, 4]`` to decode.
        code_type: ``"encode_center_size"`` or ``"decode_center_size"``.
        box_normalized: Whether coordinates are fractions of the image; if not, both ends of a side are pixels of the box.
        axis: Of distances: 0 if there is a prior box for each entry of axis 1, 1 for axis 0.
        name: Name of the layer.

    Returns:
        ``[n, m, 4]``.

    Raises:
        ShapeError, DTypeError: If the boxes do not fit together.
        ProgramError: For another ``code_type``.

    Example:
        >>> prior, box = paddle.to_tensor([[0.0, 0.0, 2.0, 2.0]]), paddle.to_tensor([[1.0, 1.0, 3.0, 3.0]])
        >>> code = paddle.vision.ops.box_coder(prior, [1.0, 1.0, 1.0, 1.0], box)
        >>> static.Executor().run(fetch_list=[code])[0]
        array([[[0.5, 0.5, 0. , 0. ]]], dtype=float32)
    """
    return _coder(prior_box, prior_box_var, target_box, code_type, box_normalized, axis, name)


@export("fluid.layers.box_coder")
def fluid_box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = ENCODE,
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Writes boxes as distances from prior boxes, or turns such distances back; arguments as of :func:`box_coder`.

    Args:
        prior_box, prior_box_var, target_box, code_type, box_normalized, name, axis: As there.
    """
    return _coder(prior_box, prior_box_var, target_box, code_type, box_normalized, axis, name)
