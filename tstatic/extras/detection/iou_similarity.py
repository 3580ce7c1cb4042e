"""How much boxes of two sets overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array, check_boxes, overlaps
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_same_dtype, check_type
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.shapes import emit_one


def _infer(x: Meta, y: Meta) -> Meta:
    check_boxes(x, "X")
    check_boxes(y, "Y")
    check_same_dtype((x, y), ("X", "Y"))
    return x.with_shape((x.shape[0], y.shape[0]))


def _ref(x: Array, y: Array, out: Array, *, box_normalized: bool) -> None:
    np.copyto(out, overlaps(np, x[:, None], y[None], 0.0 if box_normalized else 1.0))


def _lower(torch: Any, x: Any, y: Any, *, box_normalized: bool) -> Any:
    return overlaps(torch, x[:, None], y[None], 0.0 if box_normalized else 1.0)


register(OpDef(
    "iou_similarity", "X, Y -> Out", attrs={"box_normalized": True}, lod="X", infer=_infer, ref=_ref, lower=_lower,
    domain=Domain(
        cases=(Case(((4, 4), (3, 4))), Case(((2, 4), (5, 4)), {"box_normalized": False}), Case(((0, 4), (2, 4)))),
        floats=FLOATS, ulps=64.0, check_grad="overlaps assign boxes; as in Paddle, no gradient flows through them",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("fluid.layers.iou_similarity", op="iou_similarity")
def iou_similarity(x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None) -> Variable:
    """Returns the intersection over union of each box of ``x`` with each of ``y``.

    Args:
        x: ``[n, 4]``: left, top, right, bottom; float32 or float64, also with a LoD.
        y: ``[m, 4]``.
        box_normalized: Whether coordinates are fractions of the image; if not, both ends of a side are pixels of the box.
        name: Name of the layer.

    Returns:
        ``[n, m]``.

    Raises:
        ShapeError, DTypeError: If one of the two holds no boxes.

    Example:
        >>> a, b = paddle.to_tensor([[0.0, 0.0, 2.0, 2.0]]), paddle.to_tensor([[1.0, 0.0, 3.0, 2.0]])
        >>> static.Executor().run(fetch_list=[fluid.layers.iou_similarity(a, b)])[0].round(4)
        array([[0.3333]], dtype=float32)
    """
    function = "iou_similarity"
    ins = {"X": check_variable(x, "x", function, FLOATS), "Y": check_variable(y, "y", function, FLOATS)}
    return emit_one(
        function, ins, {"box_normalized": check_type(box_normalized, bool, "box_normalized", function)}, name=name
    )
