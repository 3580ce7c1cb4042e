"""The loss of clicks that a teacher has rated: two cross entropies of one score."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_number
from tstatic.ir.opdef import DERIVE, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.loss.binary_loss import alike, logit_entropy

_SOFTPLUS = "(maximum(x, 0.0) + log1p(exp(-abs(x))))"
# Paddle packs two answers into one label: below -1 no click, below 0 a click; from 0 and from 1 the same, with a rating added.
_CLICK = "where(label < -1.0, 0.0, where(label < 0.0, 1.0, where(label < 1.0, 0.0, 1.0)))"
_TEACHER = "where(label < 1.0, label, label - 1.0)"


def _loss(torch: Any, x: Any, label: Any) -> Any:
    wide, target = x.float() if x.itemsize == 2 else x, label.to(x.dtype).float() if x.itemsize == 2 else label
    clicked = ((target >= -1) & (target < 0)) | (target >= 1)
    loss = logit_entropy(torch, wide, clicked.to(wide.dtype))
    rated = torch.where(target < 1, target, target - 1)
    return torch.where(target < 0, loss, loss + logit_entropy(torch, wide, rated)).to(x.dtype)


register(OpDef(
    "teacher_student_sigmoid_loss", "X, Label -> Y",
    # As in Paddle the bounds cut the gradient only: beyond them it is 0, and the loss goes on.
    attrs={"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0}, infer=alike, amp="black",
    pointwise={
        "Y": f"{_SOFTPLUS} - x * {_CLICK} + where(label < 0.0, 0.0, {_SOFTPLUS} - x * {_TEACHER})",
    },
    grad=GradOp(
        "X, Label, Y@GRAD -> X@GRAD",
        pointwise={
            "X@GRAD": (
                "where((x >= soft_max_up_bound) | (x <= soft_max_lower_bound), 0.0, "
                f"dy * (where(label < 0.0, 1.0, 2.0) / (1.0 + exp(-x)) - {_CLICK} - where(label < 0.0, 0.0, {_TEACHER})))"
            )
        },
        grad=DERIVE,
    ),
    lower=lambda torch, x, label: _loss(torch, x, label),
    domain=Domain(
        cases=tuple(Case((s, s)) for s in ((7, 1), (3, 4), (0,), (131,))),
        values={"Label": ValueRange(-2.0, 2.0, avoid=(-1.0, 0.0, 1.0))}, ulps=32.0,
    ),
))  # fmt: skip


@export("fluid.layers.teacher_student_sigmoid_loss", op="teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """Returns the cross entropy of whether there was a click, plus that of a teacher's rating where there is one.

    A label below -1 says that there was neither a click nor a rating, one from -1 to 0 that there was a click without a
    rating; from 0 to 1 it is the rating without a click, and from 1 on 1 plus the rating of a click.

    Args:
        input: Scores, any shape; floats.
        label: Floats of that shape.
        soft_max_up_bound, soft_max_lower_bound: Scores outside of these bounds get no gradient.

    Raises:
        ShapeError, DTypeError: If the values differ in shape or dtype.

    Example:
        >>> x, label = paddle.to_tensor([[0.0], [0.0]]), paddle.to_tensor([[-2.0], [0.5]])
        >>> loss = fluid.layers.teacher_student_sigmoid_loss(x, label)
        >>> static.Executor().run(fetch_list=[loss])[0].ravel()
        array([0.6931, 1.3863], dtype=float32)
    """
    function = "teacher_student_sigmoid_loss"
    ins = {
        "X": check_variable(input, "input", function, FLOATS),
        "Label": check_variable(label, "label", function, FLOATS),
    }
    attrs = {
        "soft_max_up_bound": check_number(soft_max_up_bound, "soft_max_up_bound", function),
        "soft_max_lower_bound": check_number(soft_max_lower_bound, "soft_max_lower_bound", function),
    }
    return emit_one(function, ins, attrs)
