"""The update rules that Paddle has in ``fluid`` and ``incubate`` only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.checks import check_number
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Variable
from tstatic.optimizer.optimizer import Optimizer


@export(
    "fluid.optimizer.LarsMomentum",
    "fluid.optimizer.LarsMomentumOptimizer",
    "incubate.optimizer.LarsMomentumOptimizer",
)
class LarsMomentum(Optimizer):
    """Momentum with a rate per parameter (You et al., 2017): ``r = lr * coeff * |p| / (|g| + wd * |p| + epsilon)``.

    v = mu * v + r * (g + wd * p); p -= v. The rate is ``learning_rate`` itself where wd, the parameter or the gradient is 0.

    Args:
        learning_rate, grad_clip, name: As of :class:`Optimizer`.
        momentum: mu: how much of the velocity stays.
        lars_coeff: coeff: how far a step goes, relative to the parameter's norm.
        lars_weight_decay: wd: factor of the parameter that is added to its gradient.
        parameter_list: Which parameters to update; all trainable ones by default.
        regularization: A float (L2) or a regularizer, added to the gradient beside ``lars_weight_decay``.
        exclude_from_weight_decay: Parts of names: a parameter whose name contains one has no ``lars_weight_decay``.
        epsilon: Keeps the divisor from 0; at least 0.
        multi_precision: Update a float32 copy of float16 and bfloat16 parameters.
        rescale_grad: Factor of gradients.

    Raises:
        ProgramError: If ``epsilon`` is negative.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = fluid.optimizer.LarsMomentum(learning_rate=10.0, momentum=0.9).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9915, 0.9887], dtype=float32), array([0.9755, 0.9673], dtype=float32)]
    """

    type = "lars_momentum"

    def __init__(
        self, learning_rate: Any, momentum: float, lars_coeff: float = 0.001, lars_weight_decay: float = 0.0005,
        parameter_list: Any = None, regularization: Any = None, grad_clip: Any = None, name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None, epsilon: float = 0.0, multi_precision: bool = False,
        rescale_grad: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._momentum = check_number(momentum, "momentum", self.type)
        self._coeff = float(lars_coeff)
        self._decay = float(lars_weight_decay)
        self._excluded = tuple(exclude_from_weight_decay or ())
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)
        self._multi_precision = multi_precision
        self._rescale = float(rescale_grad)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        attrs = {
            "mu": self._momentum, "lars_coeff": self._coeff, "epsilon": self._epsilon, "rescale_grad": self._rescale,
            "lars_weight_decay": 0.0 if any(part in param.name for part in self._excluded) else self._decay,
            "multi_precision": master is not None,
        }  # fmt: skip
        velocity = self._accumulator("velocity", param)
        return self._op(param, grad, lr, {"Velocity": velocity}, attrs, {"MasterParam": master})


@export("fluid.optimizer.Ftrl", "fluid.optimizer.FtrlOptimizer")
class Ftrl(Optimizer):
    """FTRL-proximal (McMahan et al., 2013): s' = s + g * g; l' = l + g - (s'^-power - s^-power) / lr * p.

    ``p = (l1 * sign(l') - l') / (s'^-power / lr + 2 * l2)`` where ``|l'| > l1``, else 0. Both sums start at 0.

    Args:
        learning_rate, grad_clip, name: As of :class:`Optimizer`.
        l1: At least 0; parameters whose sum stays below it are exactly 0.
        l2: At least 0; draws parameters towards 0.
        lr_power: Power of the sum of squares, at most 0; -0.5 is its root.
        parameter_list: Which parameters to update; all trainable ones by default.
        regularization: A float (L2) or a regularizer, added to the gradient.

    Raises:
        ProgramError: If ``l1`` or ``l2`` is negative, or ``lr_power`` is positive.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, -4.0]))
        >>> _ = fluid.optimizer.Ftrl(learning_rate=0.1, l1=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.8967, 1.0975], dtype=float32), array([0.826 , 1.1682], dtype=float32)]
    """

    type = "ftrl"

    def __init__(
        self, learning_rate: Any, l1: float = 0.0, l2: float = 0.0, lr_power: float = -0.5, parameter_list: Any = None,
        regularization: Any = None, grad_clip: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._l1 = check_number(l1, "l1", self.type, least=0)
        self._l2 = check_number(l2, "l2", self.type, least=0)
        self._power = check_number(lr_power, "lr_power", self.type, most=0)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        state = {
            "SquaredAccumulator": self._accumulator("squared", param),
            "LinearAccumulator": self._accumulator("linear", param),
        }
        master = self._master(param)
        attrs = {"l1": self._l1, "l2": self._l2, "lr_power": self._power, "multi_precision": master is not None}
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


@export("fluid.optimizer.DecayedAdagrad", "fluid.optimizer.DecayedAdagradOptimizer")
class DecayedAdagrad(Optimizer):
    """m = decay * m + (1 - decay) * g * g; p -= lr * g / (sqrt(m) + epsilon).

    Args:
        learning_rate, grad_clip, name: As of :class:`Optimizer`.
        decay: How much of the mean square stays; from 0 to below 1.
        epsilon: Added to the root; at least 0.
        parameter_list: Which parameters to update; all trainable ones by default.
        regularization: A float (L2) or a regularizer, added to the gradient.

    Raises:
        ProgramError: If ``decay`` or ``epsilon`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = fluid.optimizer.DecayedAdagrad(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.5528, 0.5528], dtype=float32), array([0.2325, 0.2325], dtype=float32)]
    """

    type = "decayed_adagrad"

    def __init__(
        self, learning_rate: Any, decay: float = 0.95, epsilon: float = 1e-6, parameter_list: Any = None,
        regularization: Any = None, grad_clip: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._decay = check_number(decay, "decay", self.type, least=0, below=1)
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        state = {"Moment": self._accumulator("moment", param)}
        attrs = {"decay": self._decay, "epsilon": self._epsilon, "multi_precision": master is not None}
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


@export("fluid.optimizer.Dpsgd", "fluid.optimizer.DpsgdOptimizer")
class Dpsgd(Optimizer):
    """Gradient descent for differential privacy (Abadi et al., 2016): ``p -= lr * (g / max(1, |g| / clip) + n / batch_size)``.

    n is one normal number per parameter and step, with the deviation ``clip * sigma``. As in Paddle, the gradient of the
    whole batch is clipped, not that of each sample. In data-parallel programs every replica draws a noise, and all add the sum.

    Args:
        learning_rate: As of :class:`Optimizer`.
        clip: Largest norm of a gradient; above 0.
        batch_size: Divides the noise; above 0.
        sigma: Deviation of the noise in units of ``clip``; at least 0.
        parameter_list: Which parameters to update; all trainable ones by default.

    Raises:
        ProgramError: If ``clip``, ``batch_size`` or ``sigma`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = fluid.optimizer.Dpsgd(learning_rate=0.1, clip=0.5, sigma=0.0).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.97, 0.96], dtype=float32), array([0.94, 0.92], dtype=float32)]
    """

    type = "dpsgd"

    def __init__(
        self, learning_rate: Any = 0.001, clip: float = 0.9, batch_size: float = 0.999, sigma: float = 1e-8,
        parameter_list: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameter_list)
        self._clip = check_number(clip, "clip", self.type, above=0)
        self._batch_size = check_number(batch_size, "batch_size", self.type, above=0)
        self._sigma = check_number(sigma, "sigma", self.type, least=0)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        attrs = {
            "clip": self._clip, "batch_size": self._batch_size, "sigma": self._sigma, "multi_precision": master is not None,
        }  # fmt: skip
        noise = self._noise(param) if self._sigma else None
        return self._op(param, grad, lr, {}, attrs, {"Noise": noise, "MasterParam": master})

    def _noise(self, param: Variable) -> Variable:
        """Draws a normal number for a parameter; the role of a gradient gives all replicas the same one."""
        program = param.block.program
        noise = program.global_block().create_var(
            name=names.generate(f"{param.name}_noise"), shape=(1,), dtype="float32", stop_gradient=True
        )
        with program._role_guard(OpRole.Backward, (noise.name, noise.name)):
            emit("gaussian_random", {}, {"shape": (1,), "dtype": "float32"}, outputs={"Out": noise})
        return noise
