"""Weight decay as ops added to gradients: L1 and L2."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable


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
