"""The update rules of optimizers as lines of kernels.

The arithmetic is that of ``tuned/update.py``, operation by operation: same order, same constants, nothing contracted
or reassociated, so that the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tstatic.ir.types import DType, float64

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """An update rule.

    Attributes:
        state: Slots beside the parameter, with their names in the text; their new values are called ``new_<name>``.
        lines: ``(attributes, compute type) -> (constants, lines)``; lines read ``p``, ``g``, ``rate`` and the state, and make
            ``new_p`` and the new state.
        powers: Slots of the numbers that the op moves on, with the attribute that they are multiplied by. With powers, a
            first launch computes ``rate``, ``epsilon`` and ``shrink`` per tensor: they move while other programs would read
            them.
        exact: ``attributes -> lines`` of the same in numpy, in float64, where a module runs alone: they read the same names
            and those of the powers, and make the new ones.
    """

    state: tuple[tuple[str, str], ...]
    lines: Callable[[Mapping[str, Any], DType], tuple[Numbers, list[str]]]
    exact: Callable[[Mapping[str, Any]], list[str]]
    powers: tuple[tuple[str, str], ...] = ()


def _sgd(attrs: Mapping[str, Any], dtype: DType) -> tuple[Numbers, list[str]]:
    return {}, ["new_p = p - g * rate"]


def _momentum(attrs: Mapping[str, Any], dtype: DType) -> tuple[Numbers, list[str]]:
    constants = {"mu": attrs["mu"]}
    lines = []
    if attrs["rescale_grad"] != 1:
        constants["scale"] = attrs["rescale_grad"]
        lines.append("g = g * scale")
    if attrs["regularization_method"] == "l2_decay" and attrs["regularization_coeff"]:
        constants["coefficient"] = attrs["regularization_coeff"]
        lines.append("g = g + p * coefficient")
    lines.append("new_velocity = velocity * mu + g")
    lines.append("step = new_velocity * mu + g" if attrs["use_nesterov"] else "step = new_velocity")
    lines.append("new_p = p - step * rate")
    return constants, lines


def _adam(attrs: Mapping[str, Any], dtype: DType) -> tuple[Numbers, list[str]]:
    beta1, beta2 = attrs["beta1"], attrs["beta2"]
    constants = {"beta1": beta1, "rest1": 1.0 - beta1, "beta2": beta2, "rest2": 1.0 - beta2}
    # The plain operators are approximate in 32 bits; in 64 bits they are exact, and the others do not exist.
    exact = dtype is float64
    root = "tl.sqrt(new_moment2)" if exact else "tl.sqrt_rn(new_moment2)"
    lines = [
        "new_moment1 = moment1 * beta1 + g * rest1",
        "new_moment2 = moment2 * beta2 + g * g * rest2",
        f"root = {root} + epsilon",
        "step = new_moment1 / root * rate" if exact else "step = tl.div_rn(new_moment1, root) * rate",
        "new_p = p * shrink - step" if attrs.get("with_decay") else "new_p = p - step",
    ]
    return constants, lines


def _exact_sgd(attrs: Mapping[str, Any]) -> list[str]:
    return ["new_p = p - rate * g"]


def _exact_momentum(attrs: Mapping[str, Any]) -> list[str]:
    decay = float(attrs["regularization_coeff"]) if attrs["regularization_method"] == "l2_decay" else 0.0
    lines = [f"g = {float(attrs['rescale_grad'])!r} * g + {decay!r} * p"]
    lines.append(f"new_velocity = {float(attrs['mu'])!r} * velocity + g")
    ahead = f"g + {float(attrs['mu'])!r} * new_velocity" if attrs["use_nesterov"] else "new_velocity"
    return [*lines, f"new_p = p - rate * ({ahead})"]


def _exact_adam(attrs: Mapping[str, Any]) -> list[str]:
    """D. P. Kingma and J. Ba, 2015, with the corrections in the step size; with decay, I. Loshchilov and F. Hutter, 2019."""
    names = ("beta1", "beta2", "epsilon")
    first, second, epsilon = (repr(float(attrs[n])) for n in names)
    decay = float(attrs["coeff"]) if attrs.get("with_decay") else 0.0
    moved = ("beta1", "beta2") if attrs["use_global_beta_pow"] else (f"beta1 * {first}", f"beta2 * {second}")
    return [
        f"step = rate * {float(attrs.get('lr_ratio', 1.0))!r}",
        f"new_moment1 = {first} * moment1 + (1 - {first}) * g",
        f"new_moment2 = {second} * moment2 + (1 - {second}) * g**2",
        "correct = np.sqrt(1 - beta2)",
        f"root = np.sqrt(new_moment2) + {epsilon} * correct",
        f"new_p = p * (1 - step * {decay!r}) - step * correct / (1 - beta1) * new_moment1 / root",
        f"new_beta1 = {moved[0]}",
        f"new_beta2 = {moved[1]}",
    ]


_MOMENTS = (("Moment1", "moment1"), ("Moment2", "moment2"))
_POWERS = (("Beta1Pow", "beta1"), ("Beta2Pow", "beta2"))

RULES: Mapping[str, Rule] = {
    "sgd": Rule((), _sgd, _exact_sgd),
    "momentum": Rule((("Velocity", "velocity"),), _momentum, _exact_momentum),
    "adam": Rule(_MOMENTS, _adam, _exact_adam, _POWERS),
    "adamw": Rule(_MOMENTS, _adam, _exact_adam, _POWERS),
}
"""Op type -> rule."""
