"""Shows and clicks in front of embeddings, as logarithms or left out (`cvm`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_dtype, check_has_shape, check_rank, check_same_dtype, check_type
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.shapes import emit_one

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float64")


def _infer(x: Meta, cvm: Meta, *, use_cvm: bool) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_same_dtype((x, cvm), ("X", "CVM"))
    check_rank(x, 2, "X", layout="[batch, features]")
    width = x.shape[1]
    check_fit(
        width == UNKNOWN or width >= 2, (x,), ("X",), "the first two features are shows and clicks",
        "at least two features", "put shows and clicks in front",
    )  # fmt: skip
    check_has_shape(cvm, (x.shape[0], 2), "CVM", why="shows and clicks of each row")
    return x if use_cvm or width == UNKNOWN else x.with_shape((x.shape[0], width - 2))


def _ref(x: Array, cvm: Array, out: Array, *, use_cvm: bool) -> None:
    if use_cvm:
        out[:, 2:] = x[:, 2:]
        np.log1p(x[:, :2], out=out[:, :2])
        out[:, 1] -= out[:, 0]
    else:
        np.copyto(out, x[:, 2:])


def _lower(torch: Any, x: Any, cvm: Any, *, use_cvm: bool) -> Any:
    if not use_cvm:
        return x[:, 2:].clone()
    show, click = torch.log1p(x[:, :1]), torch.log1p(x[:, 1:2])
    return torch.cat([show, click - show, x[:, 2:]], 1)


def _grad_ref(x: Array, cvm: Array, dy: Array, dx: Array, *, use_cvm: bool) -> None:
    # Not a derivative: Paddle writes the counts there for the table of embeddings, which adds them up.
    dx[:, :2] = cvm
    dx[:, 2:] = dy[:, 2:] if use_cvm else dy


def _grad_lower(torch: Any, x: Any, cvm: Any, dy: Any, *, use_cvm: bool) -> Any:
    return torch.cat([cvm, dy[:, 2:] if use_cvm else dy], 1)


register(OpDef(
    "cvm", "X, CVM -> Y", attrs={"use_cvm": True}, lod="X", infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp("X, CVM, Y@GRAD -> X@GRAD", ref=_grad_ref, lower=_grad_lower, shape_only=("X",)),
    domain=Domain(
        cases=(Case(((3, 4), (3, 2))), Case(((2, 3), (2, 2)), {"use_cvm": False}), Case(((0, 2), (0, 2)))),
        # A difference of nearly equal logarithms: numpy and torch are up to 512 ulps apart in 1,000 rows.
        values={"X": ValueRange(0.1, 3.0)}, floats=FLOATS, ulps=1024.0,
        check_grad="the gradients of shows and clicks are the shows and clicks themselves",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("static.nn.continuous_value_model", "fluid.layers.continuous_value_model", op="cvm")
def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Replaces the shows and clicks in front of embeddings by logarithms, or leaves them out.

    Column 0 becomes ``log(show + 1)``, column 1 ``log(click + 1) - log(show + 1)``. As in Paddle, the gradients of these
    columns are the values of ``cvm``, which a table of embeddings counts.

    Args:
        input: ``[batch, features]``, of which the first two are shows and clicks; float32 or float64.
        cvm: ``[batch, 2]``: shows and clicks.
        use_cvm: ``False`` leaves the two columns out.

    Returns:
        ``[batch, features]``, or two columns less.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> x = paddle.to_tensor([[0.0, 0.0, 0.7]])
        >>> y = fluid.layers.continuous_value_model(x, paddle.ones([1, 2]), use_cvm=False)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.7]], dtype=float32)
    """
    function = "continuous_value_model"
    ins = {"X": check_variable(input, "input", function, FLOATS), "CVM": check_variable(cvm, "cvm", function, FLOATS)}
    return emit_one("cvm", ins, {"use_cvm": check_type(use_cvm, bool, "use_cvm", function)})
