"""Hierarchical sigmoid losses with parameters of their own: ``hsigmoid`` and ``nn.HSigmoidLoss``."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramError
from tstatic.extras.ranking.hierarchical_sigmoid import DENSE, FLOATS, hsigmoid_loss
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_rank, check_static_dim, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.layers import Layer
from tstatic.nn.param import LayerHelper, check_enabled
from tstatic.no_effect import no_effect


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


@export("nn.HSigmoidLoss", op="hierarchical_sigmoid")
class HSigmoidLoss(Layer):
    """Calls :func:`nn.functional.hsigmoid_loss` with a weight and a bias of its own.

    Args:
        feature_size: Number of features of the input.
        num_classes: Number of classes, at least 2; with a tree of one's own, of its inner nodes.
        weight_attr: ParamAttr, name or initializer of the weight ``[num_classes - 1, feature_size]``; Xavier by default.
        bias_attr: The same for the bias ``[num_classes - 1, 1]``; ``False`` for none.
        is_custom: Whether calls give the paths of a tree of one's own; weight and bias then have ``num_classes`` rows.
        is_sparse: Has no effect.
        name: Name of the loss.

    Example:
        >>> layer = paddle.nn.HSigmoidLoss(3, 2, weight_attr=paddle.nn.initializer.Constant(0.05))
        >>> loss = layer(paddle.to_tensor([[0.9, 0.9, 0.9]]), paddle.to_tensor([[1]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[loss])[0]
        array([[0.6279]], dtype=float32)
    """

    @no_effect(is_sparse=DENSE)
    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        function = "HSigmoidLoss"
        features = check_int(feature_size, "feature_size", function, 1)
        custom = check_type(is_custom, bool, "is_custom", function)
        self._num_classes = check_int(num_classes, "num_classes", function, 2)
        self._name = name
        nodes = num_classes if custom else num_classes - 1
        self.weight = self.create_parameter((nodes, features), weight_attr)
        self.bias = self.create_parameter((nodes, 1), bias_attr, is_bias=True)

    def forward(
        self, input: Variable, label: Variable, path_table: Variable | None = None, path_code: Variable | None = None
    ) -> Variable:
        """Returns the loss ``[batch, 1]`` of ``input`` ``[batch, feature_size]`` and ``label`` ``[batch, 1]``.

        Args:
            input, label: As of ``nn.functional.hsigmoid_loss``.
            path_table, path_code: ``[batch, longest path]``: the paths, with ``is_custom``.
        """
        return hsigmoid_loss(
            input, label, self._num_classes, self.weight, self.bias, path_table, path_code, name=self._name
        )
