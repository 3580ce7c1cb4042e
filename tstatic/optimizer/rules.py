"""The update rules, whose formulas are in the op definitions, and their 1.x spellings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.checks import check_number
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Variable
from tstatic.nn.regularizer import L2Decay, WeightDecayRegularizer
from tstatic.no_effect import no_effect
from tstatic.ops.update._slots import ROW_MASK
from tstatic.optimizer.optimizer import FUSED, Optimizer

ONE_POWER = "powers of the betas that several parameters share have the values that each would have"


@no_effect(name="the rule keeps no accumulators that it would name")
@export("optimizer.SGD")
class SGD(Optimizer):
    """p -= lr * g.

    Args:
        learning_rate, parameters, weight_decay, grad_clip: As of :class:`Optimizer`.
        multi_precision: Update a float32 copy of float16 and bfloat16 parameters.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.7, 0.6], dtype=float32), array([0.4, 0.2], dtype=float32)]
    """

    type = "sgd"

    def __init__(
        self, learning_rate: Any = 0.001, parameters: Any = None, weight_decay: Any = None, grad_clip: Any = None,
        multi_precision: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._multi_precision = multi_precision

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        return self._op(param, grad, lr, {}, {"multi_precision": master is not None}, {"MasterParam": master})


@no_effect(use_multi_tensor=FUSED)
@export("optimizer.Momentum")
class Momentum(Optimizer):
    """v = mu * v + g; p -= lr * v, or with Nesterov p -= lr * (g + mu * v). L2 decay happens inside the op.

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        momentum: mu: how much of the velocity stays.
        use_nesterov: Whether the step looks ahead.
        multi_precision: Update a float32 copy of float16 and bfloat16 parameters.
        rescale_grad: Factor of gradients.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.7, 0.6], dtype=float32), array([ 0.13, -0.16], dtype=float32)]
    """

    type = "momentum"

    def __init__(
        self, learning_rate: Any = 0.001, momentum: float = 0.9, parameters: Any = None, use_nesterov: bool = False,
        weight_decay: Any = None, grad_clip: Any = None, multi_precision: bool = False, rescale_grad: float = 1.0,
        use_multi_tensor: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._momentum = check_number(momentum, "momentum", self.type)
        self._nesterov = bool(use_nesterov)
        self._rescale = float(rescale_grad)
        self._multi_precision = multi_precision

    def _added_decay(self, param: Variable) -> WeightDecayRegularizer | None:
        chosen = super()._added_decay(param)
        return None if isinstance(chosen, L2Decay) else chosen

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        own = getattr(param, "regularizer", None)
        decay = own if own is not None else self.regularization
        inside = decay if isinstance(decay, L2Decay) else None
        master = self._master(param)
        attrs = {
            "mu": self._momentum, "use_nesterov": self._nesterov, "rescale_grad": self._rescale,
            "regularization_method": "l2_decay" if inside is not None else "",
            "regularization_coeff": inside.coeff if inside is not None else 0.0, "multi_precision": master is not None,
        }  # fmt: skip
        velocity = self._accumulator("velocity", param)
        return self._op(param, grad, lr, {"Velocity": velocity}, attrs, {"MasterParam": master})


class _AdamLike(Optimizer):
    """What the relatives of Adam share: betas, epsilon, and two moments with the powers of the betas."""

    def _set_betas(self, beta1: float, beta2: float, epsilon: float) -> None:
        self._beta1 = check_number(beta1, "beta1", self.type, least=0, below=1)
        self._beta2 = check_number(beta2, "beta2", self.type, least=0, below=1)
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)

    def _moments(self, param: Variable, power: str | None = None) -> dict[str, Variable]:
        return {
            "Moment1": self._accumulator("moment1", param),
            "Moment2": self._accumulator("moment2", param),
            "Beta1Pow": self._accumulator("beta1_pow_acc", param, self._beta1, (1,), power),
            "Beta2Pow": self._accumulator("beta2_pow_acc", param, self._beta2, (1,), power),
        }


@no_effect(use_multi_tensor=FUSED)
@export("optimizer.Adam")
class Adam(_AdamLike):
    """Adam (Kingma and Ba, 2014) with epsilon where Paddle has it.

    With ``lazy_mode``, rows of a table that the batch did not look up keep their value and moments. That needs a table that
    is only read by lookups with ``is_sparse`` (``sparse``) outside of control flow, and no weight decay that is added to its
    gradient; all other parameters are updated as a whole.

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        beta1, beta2: How much of the first and second moment stays; from 0 to below 1.
        epsilon: Added to the root of the second moment; at least 0.
        lazy_mode: See above.
        multi_precision: Update a float32 copy of float16 and bfloat16 parameters.

    Raises:
        ProgramError: If ``beta1``, ``beta2`` or ``epsilon`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Adam(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9, 0.9], dtype=float32), array([0.8, 0.8], dtype=float32)]
    """

    type = "adam"

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8, parameters: Any = None,
        weight_decay: Any = None, grad_clip: Any = None, lazy_mode: bool = False, multi_precision: bool = False,
        use_multi_tensor: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._set_betas(beta1, beta2, epsilon)
        self._lazy = bool(lazy_mode)
        self._multi_precision = multi_precision

    def _attrs(self, param: Variable) -> dict[str, Any]:
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon, "lazy_mode": self._lazy}

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        state = self._moments(param, "float32" if param.dtype.is_low else None)
        attrs = {**self._attrs(param), "multi_precision": master is not None}
        optional = {"MasterParam": master, ROW_MASK: self._row_masks.get(param.name)}
        return self._op(param, grad, lr, state, attrs, optional)


@export("optimizer.AdamW")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017): ``p *= 1 - lr * coeff`` before the Adam step.

    ``lazy_mode`` acts as in :class:`Adam`; rows that are left alone do not decay either.

    Args:
        learning_rate, beta1, beta2, epsilon, parameters, grad_clip, lazy_mode, multi_precision, name: As of
            :class:`Adam`.
        weight_decay: coeff; a number.
        lr_ratio: Takes a parameter, returns a factor of its learning rate.
        apply_decay_param_fun: Takes a parameter's name, returns whether it decays; all do if ``None``.

    Raises:
        ProgramTypeError: If ``weight_decay`` is not a number.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.AdamW(learning_rate=0.1, weight_decay=0.5).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.85, 0.85], dtype=float32), array([0.7075, 0.7075], dtype=float32)]
    """

    type = "adamw"

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8, parameters: Any = None,
        weight_decay: float = 0.01, lr_ratio: Callable[[Variable], float] | None = None,
        apply_decay_param_fun: Callable[[str], bool] | None = None, grad_clip: Any = None, lazy_mode: bool = False,
        multi_precision: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, None, grad_clip, lazy_mode, multi_precision, name=name
        )
        self._coeff = check_number(weight_decay, "weight_decay", self.type)
        self._lr_ratio = lr_ratio
        self._decays = apply_decay_param_fun

    def _attrs(self, param: Variable) -> dict[str, Any]:
        decays = self._decays is None or bool(self._decays(param.name))
        ratio = 1.0 if self._lr_ratio is None else float(self._lr_ratio(param))
        return {**super()._attrs(param), "coeff": self._coeff, "with_decay": decays, "lr_ratio": ratio}


@export("optimizer.Adamax")
class Adamax(_AdamLike):
    """Adam with the infinity norm (Kingma and Ba, 2014, section 7.1).

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        beta1, beta2: How much of the moment and of the norm stays; from 0 to below 1.
        epsilon: Keeps the norm from 0; at least 0.

    Raises:
        ProgramError: If ``beta1``, ``beta2`` or ``epsilon`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Adamax(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9, 0.9], dtype=float32), array([0.8, 0.8], dtype=float32)]
    """

    type = "adamax"

    def __init__(
        self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
        parameters: Any = None, weight_decay: Any = None, grad_clip: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._set_betas(beta1, beta2, epsilon)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        power = self._accumulator("beta1_pow_acc", param, self._beta1, (1,))
        state = {"Moment": self._accumulator("moment", param), "InfNorm": self._accumulator("inf_norm", param)}
        attrs = {
            "beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon, "multi_precision": master is not None,
        }  # fmt: skip
        return self._op(param, grad, lr, state, attrs, {"Beta1Pow": power, "MasterParam": master})

    def _finish(self, params: Any, before: int) -> None:
        # The op reads the power; one scale op per parameter moves it on, as in Paddle.
        for param in params:
            power = self._accumulator("beta1_pow_acc", param, self._beta1, (1,))
            with param.block.program._role_guard(OpRole.Optimize, (param.name,)):
                if self._skip_update is None:
                    emit("scale", {"X": power}, {"scale": self._beta1}, outputs={"Out": power})
                else:
                    moved = emit("scale", {"X": power}, {"scale": self._beta1})
                    emit("where", {"Condition": self._skip_update, "X": power, "Y": moved}, outputs={"Out": power})


@export("optimizer.Adagrad")
class Adagrad(Optimizer):
    """s += g * g; p -= lr * g / (sqrt(s) + epsilon) (Duchi et al., 2011).

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        epsilon: At least 0.
        initial_accumulator_value: First value of s.

    Raises:
        ProgramError: If ``epsilon`` is negative.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9, 0.9], dtype=float32), array([0.8293, 0.8293], dtype=float32)]
    """

    type = "adagrad"

    def __init__(
        self, learning_rate: Any, epsilon: float = 1e-6, parameters: Any = None, weight_decay: Any = None,
        grad_clip: Any = None, name: str | None = None, initial_accumulator_value: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)
        self._initial = float(initial_accumulator_value)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        master = self._master(param)
        state = {"Moment": self._accumulator("moment", param, self._initial)}
        attrs = {"epsilon": self._epsilon, "multi_precision": master is not None}
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


@export("optimizer.Adadelta")
class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012), with the learning rate applied.

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        epsilon: Added to the mean squares; at least 0.
        rho: How much of the mean squares stays; from 0 to below 1.

    Raises:
        ProgramError: If ``epsilon`` or ``rho`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Adadelta(learning_rate=1.0).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9955, 0.9955], dtype=float32), array([0.991, 0.991], dtype=float32)]
    """

    type = "adadelta"

    def __init__(
        self, learning_rate: Any = 0.001, epsilon: float = 1e-6, rho: float = 0.95, parameters: Any = None,
        weight_decay: Any = None, grad_clip: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)
        self._rho = check_number(rho, "rho", self.type, least=0, below=1)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        state = {
            "AvgSquaredGrad": self._accumulator("_avg_squared_grad", param),
            "AvgSquaredUpdate": self._accumulator("_avg_squared_update", param),
        }
        master = self._master(param)
        attrs = {"epsilon": self._epsilon, "rho": self._rho, "multi_precision": master is not None}
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


@export("optimizer.RMSProp")
class RMSProp(Optimizer):
    """RMSProp, with epsilon inside the root.

    Args:
        learning_rate, parameters, weight_decay, grad_clip, name: As of :class:`Optimizer`.
        rho: How much of the mean square stays; from 0 to below 1.
        epsilon: At least 0.
        momentum: How much of the last step stays.
        centered: Subtract the squared mean of the gradients from their mean square.

    Raises:
        ProgramError: If ``epsilon`` or ``rho`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.RMSProp(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.5528, 0.5528], dtype=float32), array([0.2325, 0.2325], dtype=float32)]
    """

    type = "rmsprop"

    def __init__(
        self, learning_rate: Any, rho: float = 0.95, epsilon: float = 1e-6, momentum: float = 0.0, centered: bool = False,
        parameters: Any = None, weight_decay: Any = None, grad_clip: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self._rho = check_number(rho, "rho", self.type, least=0, below=1)
        self._epsilon = check_number(epsilon, "epsilon", self.type, least=0)
        self._momentum = check_number(momentum, "momentum", self.type)
        self._centered = bool(centered)

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        state = {
            "Moment": self._accumulator("momentum", param),
            "MeanSquare": self._accumulator("mean_square", param),
            "MeanGrad": self._accumulator("mean_grad", param),
        }
        master = self._master(param)
        attrs = {
            "decay": self._rho, "epsilon": self._epsilon, "momentum": self._momentum, "centered": self._centered,
            "multi_precision": master is not None,
        }  # fmt: skip
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


@export("optimizer.Lamb")
class Lamb(_AdamLike):
    """LAMB (You et al., 2019): Adam's direction, scaled by the ratio of norms per parameter.

    Parameters without weight decay (``lamb_weight_decay=0``, or excluded by ``exclude_from_weight_decay_fn``) take plain
    Adam steps, unless ``always_adapt`` is on.

    Args:
        learning_rate, parameters, grad_clip, name: As of :class:`Optimizer`.
        lamb_weight_decay: Factor of the parameter that is added to the direction.
        beta1, beta2: How much of the first and second moment stays; from 0 to below 1.
        epsilon: Added to the root of the second moment; at least 0.
        exclude_from_weight_decay_fn: Takes a parameter, returns whether it has no weight decay.
        multi_precision: Update a float32 copy of float16 and bfloat16 parameters.
        always_adapt: See above.

    Raises:
        ProgramError: If ``beta1``, ``beta2`` or ``epsilon`` is out of range.

    Example:
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.Lamb(learning_rate=0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[w])[0] for _ in range(2)]
        [array([0.9, 0.9], dtype=float32), array([0.81, 0.81], dtype=float32)]
    """

    type = "lamb"

    def __init__(
        self, learning_rate: Any = 0.001, lamb_weight_decay: float = 0.01, beta1: float = 0.9, beta2: float = 0.999,
        epsilon: float = 1e-6, parameters: Any = None, grad_clip: Any = None,
        exclude_from_weight_decay_fn: Callable[[Variable], bool] | None = None, multi_precision: bool = False,
        always_adapt: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, parameters, None, grad_clip, name)
        self._decay = float(lamb_weight_decay)
        self._set_betas(beta1, beta2, epsilon)
        self._excludes = exclude_from_weight_decay_fn
        self._always_adapt = bool(always_adapt)
        self._multi_precision = multi_precision

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        excluded = self._excludes is not None and bool(self._excludes(param))
        master = self._master(param)
        state = self._moments(param)
        attrs = {
            "weight_decay": 0.0 if excluded else self._decay, "beta1": self._beta1, "beta2": self._beta2,
            "epsilon": self._epsilon, "always_adapt": self._always_adapt, "multi_precision": master is not None,
        }  # fmt: skip
        return self._op(param, grad, lr, state, attrs, {"MasterParam": master})


# ------------------------------------------------------------------------------------------------------- 1.x spellings
_TODAY = {"parameter_list": "parameters", "regularization": "weight_decay"}


def _signature(today: type[Optimizer], order: str) -> inspect.Signature:
    """Returns the parameters of 1.x, in its order, then those that came later or that only 1.x had.

    Args:
        today: The rule, which knows the defaults.
        order: The names of 1.x. Behind them, as of 2.4, come ``flatten_param_grads`` and ``align_size``.
    """
    old = {new: name for name, new in _TODAY.items()}
    own = {old.get(n, n): p.replace(name=old.get(n, n)) for n, p in inspect.signature(today).parameters.items()}
    more: dict[str, Any] = {"flatten_param_grads": False, "align_size": -1, "regularization": None}
    if today is Adam:
        more["use_global_beta_pow"] = False
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, value in more.items():
        own.setdefault(name, inspect.Parameter(name, plain, default=value))
    names = order.split()
    later = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for n, p in own.items() if n not in names]
    return inspect.Signature([*(own[n] for n in names), *later])


def _doc(today: type[Optimizer]) -> str:
    """Returns today's docstring, with the old names of arguments and the old spelling in its example."""
    decay = "``regularization`` for ``weight_decay``"
    if "weight_decay" not in inspect.signature(today).parameters:
        decay = "a ``regularization`` (a float for L2, or a regularizer) that is added to gradients"
    head = (
        f"1.x spelling of :class:`optimizer.{today.__name__}`, with ``parameter_list`` for ``parameters`` and\n{decay}."
    )
    text = inspect.cleandoc(today.__doc__ or "")
    for old, new in _TODAY.items():
        text = re.sub(rf"^(    (?:\w+, )*){new}\b", rf"\1{old}", text, flags=re.MULTILINE)
    text = text.replace(f"paddle.optimizer.{today.__name__}(", f"fluid.optimizer.{today.__name__}(")
    return f"{head}\n\n{text}"


def _legacy(today: type[Optimizer], order: str, *spellings: str) -> type[Optimizer]:
    """Makes a subclass that takes the parameters of 1.x, in its ``order``, and by keyword those that came later."""
    signature = _signature(today, order)
    own = set(inspect.signature(today).parameters)

    class Legacy(today):  # type: ignore[misc, valid-type]
        __doc__ = _doc(today)
        __signature__ = signature

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = {next((o for o, n in _TODAY.items() if n == name), name): value for name, value in kwargs.items()}
            try:
                bound = signature.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{today.__name__}Optimizer() {error}") from None
            settings = {_TODAY.get(name, name): value for name, value in bound.arguments.items()}
            super().__init__(**{name: value for name, value in settings.items() if name in own})
            if "weight_decay" not in own:
                self._set_decay(settings.get("weight_decay"))

    Legacy.__name__ = f"{today.__name__}Optimizer"
    Legacy.__qualname__ = Legacy.__name__
    shared = {"use_global_beta_pow": ONE_POWER} if today is Adam else {}
    no_effect(flatten_param_grads=FUSED, align_size=FUSED, **shared)(Legacy)
    for name in spellings:
        export(name)(Legacy)
    return Legacy


_legacy(
    SGD,
    "learning_rate parameter_list regularization grad_clip name",
    "fluid.optimizer.SGD",
    "fluid.optimizer.SGDOptimizer",
)
_legacy(
    Momentum,
    "learning_rate momentum parameter_list use_nesterov regularization grad_clip name",
    "fluid.optimizer.Momentum",
    "fluid.optimizer.MomentumOptimizer",
)
_legacy(
    Adam,
    "learning_rate beta1 beta2 epsilon parameter_list regularization grad_clip name lazy_mode use_global_beta_pow "
    "flatten_param_grads align_size",
    "fluid.optimizer.Adam",
    "fluid.optimizer.AdamOptimizer",
)
_legacy(
    Adamax,
    "learning_rate beta1 beta2 epsilon parameter_list regularization grad_clip name",
    "fluid.optimizer.Adamax",
    "fluid.optimizer.AdamaxOptimizer",
)
_legacy(
    Adagrad,
    "learning_rate epsilon parameter_list regularization grad_clip name initial_accumulator_value",
    "fluid.optimizer.Adagrad",
    "fluid.optimizer.AdagradOptimizer",
)
_legacy(
    Adadelta,
    "learning_rate epsilon rho parameter_list regularization grad_clip name",
    "fluid.optimizer.Adadelta",
    "fluid.optimizer.AdadeltaOptimizer",
)
_legacy(
    RMSProp,
    "learning_rate rho epsilon momentum centered parameter_list regularization grad_clip name",
    "fluid.optimizer.RMSProp",
    "fluid.optimizer.RMSPropOptimizer",
)
_legacy(
    Lamb,
    "learning_rate lamb_weight_decay beta1 beta2 epsilon parameter_list regularization grad_clip "
    "exclude_from_weight_decay_fn name",
    "fluid.optimizer.Lamb",
    "fluid.optimizer.LambOptimizer",
)
_legacy(
    AdamW,
    "learning_rate beta1 beta2 epsilon parameter_list regularization lr_ratio "
    "apply_decay_param_fun grad_clip lazy_mode multi_precision name",
    "fluid.optimizer.AdamW",
)
