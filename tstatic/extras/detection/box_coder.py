"""Boxes as distances from prior boxes, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array, check_boxes
from tstatic.ir.attrs import one_of
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
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.shape._shapes import emit_one

ENCODE, DECODE = "encode_center_size", "decode_center_size"


def _infer(prior: Meta, given: Meta | None, target: Meta, *, code_type: str, axis: int) -> Meta:
    check_boxes(prior, "PriorBox")
    check_boxes(target, "TargetBox", 2 if code_type == ENCODE else 3)
    check_same_dtype((prior, target), ("PriorBox", "TargetBox"))
    if given is not None:
        check_same_dtype((prior, given), ("PriorBox", "PriorBoxVar"))
        check_has_shape(given, prior.shape if given.rank == 2 else (4,), "PriorBoxVar", why="as PriorBox, or [4]")
    if code_type == ENCODE:
        return target.with_shape((target.shape[0], prior.shape[0], 4))
    check_fit(
        UNKNOWN in (target.shape[1 - axis], prior.shape[0]) or target.shape[1 - axis] == prior.shape[0],
        (prior, target), ("PriorBox", "TargetBox"), "there must be one prior box for each target along the axis",
        f"{target.shape[1 - axis]} prior boxes", "choose the other axis, or check the boxes",
    )  # fmt: skip
    return target


def _coded(
    xp: Any, prior: Any, variance: Any, target: Any, code_type: str, normalized: bool, axis: int, factors: Any
) -> Any:
    one = 0.0 if normalized else 1.0
    if code_type == ENCODE:
        target, prior = target[:, None], prior[None]
        variance = variance if variance is None or variance.ndim == 1 else variance[None]
    else:
        prior = prior[None] if axis == 0 else prior[:, None]
        if variance is not None and variance.ndim == 2:
            variance = variance[None] if axis == 0 else variance[:, None]
    if variance is None and len(factors):
        variance = factors
    low, high = prior[..., :2], prior[..., 2:]
    size = high - low + one
    middle = low + size * 0.5
    shares = (1.0, 1.0) if variance is None else (variance[..., :2], variance[..., 2:])
    if code_type == ENCODE:
        at = (target[..., :2] + target[..., 2:]) * 0.5
        sides = target[..., 2:] - target[..., :2] + one
        parts = [(at - middle) / size / shares[0], xp.log(xp.abs(sides / size)) / shares[1]]
    else:
        at = shares[0] * target[..., :2] * size + middle
        half = xp.exp(shares[1] * target[..., 2:]) * size * 0.5
        parts = [at - half, at + half - one]
    return xp.concatenate(parts, -1)


def _ref(
    prior: Array, given: Array | None, target: Array, out: Array,
    *, code_type: str, box_normalized: bool, axis: int, variance: Sequence[float],
) -> None:  # fmt: skip
    np.copyto(out, _coded(np, prior, given, target, code_type, box_normalized, axis, np.array(variance, prior.dtype)))


def _lower(
    torch: Any, prior: Any, given: Any, target: Any,
    *, code_type: str, box_normalized: bool, axis: int, variance: Sequence[float], tables: Any = fresh,
) -> Any:  # fmt: skip
    factors = tables(torch, variance, prior.dtype, prior.device)
    return _coded(torch, prior, given, target, code_type, box_normalized, axis, factors)


register(OpDef(
    "box_coder", "PriorBox, PriorBoxVar?, TargetBox -> OutputBox",
    attrs={
        "code_type": Attr(ENCODE, "str", one_of(ENCODE, DECODE)), "box_normalized": True,
        "axis": Attr(0, "int", lambda v: None if v in (0, 1) else "0 or 1"),
        "variance": Attr((), "floats", lambda v: None if len(v) in (0, 4) else "four numbers, or none"),
    },
    infer=_infer, ref=_ref, lower=_lower,
    domain=Domain(
        cases=(
            Case(((3, 4), (3, 4), (2, 4))), Case(((3, 4), None, (2, 4)), {"variance": (0.1, 0.1, 0.2, 0.2)}),
            Case(((3, 4), (4,), (2, 3, 4)), {"code_type": DECODE, "box_normalized": False}),
            Case(((2, 4), (2, 4), (2, 3, 4)), {"code_type": DECODE, "axis": 1}),
            Case(((3, 4), None, (2, 3, 4)), {"code_type": DECODE}),
        ),
        values={"PriorBoxVar": ValueRange(0.1, 0.5)}, floats=FLOATS, ulps=256.0,
        check_grad="boxes are targets; as in Paddle, no gradient flows through them",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


def _coder(
    function: str, prior_box: Variable, prior_box_var: Any, target_box: Variable, code_type: str, box_normalized: bool,
    axis: int, name: str | None,
) -> Variable:  # fmt: skip
    attrs: dict[str, Any] = {
        "code_type": check_choice(code_type, (ENCODE, DECODE), "code_type", function),
        "box_normalized": check_type(box_normalized, bool, "box_normalized", function),
        "axis": check_int(axis, "axis", function, 0, 1),
    }
    ins: dict[str, Any] = {
        "PriorBox": check_variable(prior_box, "prior_box", function, FLOATS),
        "TargetBox": check_variable(target_box, "target_box", function, FLOATS),
    }
    if isinstance(prior_box_var, list | tuple):
        numbers = check_length(prior_box_var, 4, "prior_box_var", function, why="one per number of a box")
        attrs["variance"] = [check_number(v, "prior_box_var", function) for v in numbers]
    elif prior_box_var is not None:
        ins["PriorBoxVar"] = check_variable(prior_box_var, "prior_box_var", function, FLOATS)
    return emit_one("box_coder", ins, attrs, name=name)


@export("vision.ops.box_coder", op="box_coder")
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
    return _coder("box_coder", prior_box, prior_box_var, target_box, code_type, box_normalized, axis, name)


@export("fluid.layers.box_coder", op="box_coder")
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
    return _coder("box_coder", prior_box, prior_box_var, target_box, code_type, box_normalized, axis, name)
