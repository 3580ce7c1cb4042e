"""Losses as functions that have parameters: ``hsigmoid``."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_rank, check_static_dim, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.param import LayerHelper, check_enabled
from tstatic.no_effect import no_effect
from tstatic.ops.loss.hierarchical_sigmoid import DENSE, FLOATS


@no_effect(is_sparse=DENSE)
@export("fluid.layers.hsigmoid", op="hierarchical_sigmoid")
def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Builds a layer that returns the hierarchical sigmoid loss; see ``nn.functional.hsigmoid_loss``.

    Args:
        input: ``[batch, features]``, float32 or float64, the number of features known.
        label: Class numbers ``[batch, 1]``, int64.
        num_classes: Number of classes, at least 2; with ``is_custom`` the number of the tree's inner nodes.
        param_attr: ParamAttr, name or initializer of the weight ``[num_classes - 1, features]``.
        bias_attr: The same for the bias ``[num_classes - 1, 1]``; ``False`` for none.
        name: Name of the layer.
        path_table, path_code: ``[batch, longest path]``, int64: the paths of a tree of one's own.
        is_custom: Whether these are given; weight and bias then have ``num_classes`` rows.
        is_sparse: Has no effect.

    Returns:
        ``[batch, 1]``.

    Raises:
        ProgramError: If the paths are given without ``is_custom``, or ``is_custom`` without them.
        ProgramTypeError, ShapeError, DTypeError: Where another argument does not fit.

    Example:
        >>> x, label = paddle.to_tensor([[0.9, 0.9, 0.9]]), paddle.to_tensor([[1]])
        >>> loss = fluid.layers.hsigmoid(x, label, 2, param_attr=fluid.initializer.Constant(0.05))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[loss])[0]
        array([[0.6279]], dtype=float32)
    """
    function = "hsigmoid"
    check_rank(check_variable(input, "input", function, FLOATS), 2, "input", function, layout="[batch, features]")
    features = check_static_dim(input.shape[1], input, "axis 1 (the features)", function)
    check_int(num_classes, "num_classes", function, 2)
    given = path_table is not None and path_code is not None
    if check_type(is_custom, bool, "is_custom", function) != given or (path_table is None) != (path_code is None):
        raise ProgramError(
            "a tree of one's own is given by is_custom=True, path_table and path_code",
            expected="all three, or none of them",
            received=f"is_custom={is_custom}, path_table={path_table!r}, path_code={path_code!r}",
            fix="pass all three, or only num_classes for the complete tree",
            op=function,
        )
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper("hierarchical_sigmoid", name=name)
    nodes = num_classes if is_custom else num_classes - 1
    ins = {"X": input, "Label": label, "PathTable": path_table, "PathCode": path_code}
    ins["W"] = helper.create_parameter(param_attr, (nodes, features), input.dtype)
    ins["Bias"] = helper.create_parameter(bias_attr, (nodes, 1), input.dtype, is_bias=True)
    found = {slot: value for slot, value in ins.items() if value is not None}
    out: Variable = helper.emit("hierarchical_sigmoid", found, {"num_classes": num_classes})
    return out
