"""Weight decay as ops added to gradients: L1 and L2."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Parameter, Variable


class WeightDecayRegularizer:
    """Base class of regularizers.

    Example:
        >>> class Half(paddle.regularizer.WeightDecayRegularizer):
        ...     def term(self, param):
        ...         return paddle.full_like(param, 0.5)
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> _ = paddle.optimizer.SGD(learning_rate=1.0, weight_decay=Half()).minimize(paddle.sum(w))
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> static.Executor().run(fetch_list=[w])[0]
        array([-0.5], dtype=float32)
    """

    coeff: float

    def term(self, param: Variable) -> Any:
        """Emits the gradient of the penalty."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(coeff={self.coeff})"


@export("fluid.regularizer.append_regularization_ops", "fluid.optimizer.append_regularization_ops")
def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Variable, Variable | None]],
    regularization: WeightDecayRegularizer | None = None,
) -> list[tuple[Variable, Variable | None]]:
    """Adds weight decay to gradients, which keep their names; optimizers do this themselves.

    Args:
        parameters_and_grads: (parameter, gradient) pairs; those without a gradient stay as they are.
        regularization: For parameters without a regularizer of their own; ``None`` adds nothing to those.

    Returns:
        The pairs.

    Raises:
        ProgramTypeError: If ``regularization`` is not a regularizer.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(2.0))
        >>> pairs = static.append_backward(paddle.sum(w))
        >>> ((_, grad),) = fluid.regularizer.append_regularization_ops(pairs, fluid.regularizer.L2Decay(0.5))
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> static.Executor().run(fetch_list=[grad])[0]
        array([2.], dtype=float32)
    """
    kinds = (WeightDecayRegularizer, NoneType)
    check_type(regularization, kinds, "regularization", "append_regularization_ops", expected="a regularizer")
    for param, grad in parameters_and_grads:
        own = param.regularizer if isinstance(param, Parameter) else None
        chosen = own if own is not None else regularization
        if grad is None or chosen is None:
            continue
        with param.block.program._role_guard(OpRole.Optimize, (param.name, grad.name)):
            emit("sum", {"X": [grad, chosen.term(param)]}, outputs={"Out": grad})
    return list(parameters_and_grads)


@export("regularizer.L2Decay", "fluid.regularizer.L2Decay", "fluid.regularizer.L2DecayRegularizer")
class L2Decay(WeightDecayRegularizer):
    """Adds ``coeff * w`` to the gradient of ``w``.

    Args:
        coeff: The factor; a number.
        regularization_coeff: Its name in Paddle 1.x; it counts if it is given.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Assign([1.0, -2.0]))
        >>> optimizer = paddle.optimizer.SGD(learning_rate=1.0, weight_decay=paddle.regularizer.L2Decay(0.1))
        >>> _ = optimizer.minimize(paddle.sum(w))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([-0.1, -2.8], dtype=float32)
    """

    def __init__(self, coeff: float = 0.0, regularization_coeff: float | None = None) -> None:
        self.coeff = float(coeff if regularization_coeff is None else regularization_coeff)

    def term(self, param: Variable) -> Any:
        return emit("scale", {"X": param}, {"scale": self.coeff})


@export("regularizer.L1Decay", "fluid.regularizer.L1Decay", "fluid.regularizer.L1DecayRegularizer")
class L1Decay(WeightDecayRegularizer):
    """Adds ``coeff * sign(w)`` to the gradient of ``w``.

    Args:
        coeff: The factor; a number.
        regularization_coeff: Its name in Paddle 1.x; it counts if it is given.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Assign([1.0, -2.0]))
        >>> optimizer = paddle.optimizer.SGD(learning_rate=1.0, weight_decay=paddle.regularizer.L1Decay(0.1))
        >>> _ = optimizer.minimize(paddle.sum(w))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([-0.1, -2.9], dtype=float32)
    """

    def __init__(self, coeff: float = 0.0, regularization_coeff: float | None = None) -> None:
        self.coeff = float(coeff if regularization_coeff is None else regularization_coeff)

    def term(self, param: Variable) -> Any:
        return emit("scale", {"X": emit("sign", {"X": param})}, {"scale": self.coeff})
