"""The update lars_momentum: momentum whose rate is scaled per parameter by the ratio of norms."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import Attr, Case, Domain
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import torch_end, torch_start
from tstatic.ops.update._update import register_update
from tstatic.ops.update.common import POSITIVE, cases


def _lower(
    torch: Any, param: Any, grad: Any, velocity: Any, lr: Any, master: Any, *, mu: float, lars_coeff: float,
    lars_weight_decay: float, epsilon: float, rescale_grad: float,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    g = g * rescale_grad
    rate = lr.double().reshape(())
    p_norm, g_norm = p.double().norm(), g.double().norm()
    if lars_weight_decay > 0:
        adapts = (p_norm > 0) & (g_norm > 0)
        ratio = lars_coeff * p_norm / (g_norm + lars_weight_decay * p_norm + epsilon)
        rate = torch.where(adapts, rate * ratio, rate)
    v = mu * velocity.to(p.dtype) + rate.to(p.dtype) * (g + lars_weight_decay * p)
    new = p - v
    return torch_end([(param, new), (velocity, v), (master, new)])


# Y. You, I. Gitman and B. Ginsburg, 2017.
register_update(
    "lars_momentum",
    "Param, Grad, Velocity, LearningRate, MasterParam? -> ParamOut, VelocityOut, MasterParamOut?",
    {
        "mu": Attr(kind="float"),
        "lars_coeff": 0.001,
        "lars_weight_decay": 0.0005,
        "epsilon": 0.0,
        "multi_precision": MULTI_PRECISION,
        "rescale_grad": 1.0,
    },
    {
        "scaled": "grad * rescale_grad",
        "param_squares": "squares(param)",
        "grad_squares": "squares(scaled)",
        "local": "learningrate * lars_coeff * sqrt(param_squares)"
        " / (sqrt(grad_squares) + lars_weight_decay * sqrt(param_squares) + epsilon)",
        # Without decay, or with a norm of 0, it is plain momentum, as in Paddle.
        "rate": "where((lars_weight_decay > 0) & (param_squares > 0) & (grad_squares > 0), local, learningrate)",
        "VelocityOut": "velocity * mu + (scaled + param * lars_weight_decay) * rate",
        "ParamOut": "param - velocityout",
    },
    _lower,
    Domain(
        cases=(
            *cases("bbbs", {"mu": 0.9}, {"mu": 0.5, "lars_weight_decay": 0.1, "lars_coeff": 0.5, "epsilon": 0.25}),
            *cases("bbbs", {"mu": 0.9, "lars_weight_decay": 0.0}, {"mu": 0.9, "rescale_grad": 0.25, "lars_coeff": 0.1}),
            Case(((5, 6),) * 3 + ((), (5, 6)), {"mu": 0.9, "lars_weight_decay": 0.2, "multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE},
        ulps=16,
    ),
)
