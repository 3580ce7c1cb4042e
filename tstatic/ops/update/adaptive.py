"""The adaptive updates beside Adam: adamax, adagrad, adadelta, rmsprop, lamb."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import Case, Domain
from tstatic.ir.opdef import ValueRange as Range
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import torch_end, torch_start
from tstatic.ops.update._update import register_update
from tstatic.ops.update.common import ADAM_VALUES, MOMENTS, ONE, POSITIVE, POWERS, ROW, cases


# -------------------------------------------------------------------------------------------------------------- adamax
def _adamax_lower(
    torch: Any,
    param: Any,
    grad: Any,
    lr: Any,
    m: Any,
    norm: Any,
    pow1: Any,
    master: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> Any:
    p, g = torch_start(torch, param, grad, master)
    new_m = beta1 * m.to(p.dtype) + (1 - beta1) * g
    new_norm = torch.maximum(g.abs(), beta2 * norm.to(p.dtype) + epsilon)
    # In float64: 1 - beta1^t loses digits where the power is near 1.
    rate = (lr.double() / (1 - pow1.double())).to(p.dtype).reshape(())
    new = p - rate * new_m / new_norm
    return torch_end([(param, new), (m, new_m), (norm, new_norm), (master, new)])


register_update(
    "adamax",
    "Param, Grad, LearningRate, Moment, InfNorm, Beta1Pow, MasterParam? -> ParamOut, MomentOut, InfNormOut, MasterParamOut?",
    {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "multi_precision": MULTI_PRECISION},
    {
        "MomentOut": "moment * beta1 + grad * (1 - beta1)",
        # As in Paddle, epsilon is added to the old norm: it is never 0.
        "InfNormOut": "maximum(abs(grad), infnorm * beta2 + epsilon)",
        "ParamOut": "param - momentout / infnormout * (learningrate / (1 - beta1pow))",
    },
    _adamax_lower,
    Domain(
        cases=(
            *cases("bbsbbs", {}, {"beta1": 0.5, "beta2": 0.7, "epsilon": 1e-3}),
            Case(((5, 6), (5, 6), (1,), (5, 6), (5, 6), (1,), (5, 6)), {"multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE, "InfNorm": Range(0.1, 2.0), "Beta1Pow": ONE},
        ulps=16,
    ),
)


# ------------------------------------------------------------------------------------------------------------- adagrad
def _adagrad_lower(torch: Any, param: Any, grad: Any, moment: Any, lr: Any, master: Any, *, epsilon: float) -> Any:
    p, g = torch_start(torch, param, grad, master)
    s = moment.to(p.dtype) + g * g
    new = p - lr.to(p.dtype).reshape(()) * g / (torch.sqrt(s) + epsilon)
    return torch_end([(param, new), (moment, s), (master, new)])


register_update(
    "adagrad",
    "Param, Grad, Moment, LearningRate, MasterParam? -> ParamOut, MomentOut, MasterParamOut?",
    {"epsilon": 1e-6, "multi_precision": MULTI_PRECISION},
    {
        "MomentOut": "moment + grad * grad",
        "ParamOut": "param - grad * learningrate / (sqrt(momentout) + epsilon)",
    },
    _adagrad_lower,
    Domain(
        cases=(
            *cases("bbbs", {}, {"epsilon": 1e-2}),
            Case(((5, 6), (5, 6), (5, 6), (1,), (5, 6)), {"multi_precision": True}),
            Case(((5, 6), (1, 6), (5, 6), (1,), None, None, (1,))),
        ),
        values={"LearningRate": POSITIVE, "Moment": Range(0.01, 2.0), "Rows": ROW},
        ulps=8,
    ),
    rows=True,
)


# ------------------------------------------------------------------------------------------------------------ adadelta
def _adadelta_lower(
    torch: Any, param: Any, grad: Any, square_grad: Any, square_update: Any, lr: Any, master: Any, *, rho: float,
    epsilon: float,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    old = square_update.to(p.dtype)
    e = rho * square_grad.to(p.dtype) + (1 - rho) * g * g
    u = -torch.sqrt(old + epsilon) / torch.sqrt(e + epsilon) * g
    d = rho * old + (1 - rho) * u * u
    new = p + (u if lr is None else lr.to(p.dtype).reshape(()) * u)
    return torch_end([(param, new), (square_grad, e), (square_update, d), (master, new)])


register_update(
    "adadelta",
    "Param, Grad, AvgSquaredGrad, AvgSquaredUpdate, LearningRate?, MasterParam? "
    "-> ParamOut, AvgSquaredGradOut, AvgSquaredUpdateOut, MasterParamOut?",
    {"rho": 0.95, "epsilon": 1e-6, "multi_precision": MULTI_PRECISION},
    {
        "AvgSquaredGradOut": "avgsquaredgrad * rho + grad * grad * (1 - rho)",
        "step": "sqrt(avgsquaredupdate + epsilon) / sqrt(avgsquaredgradout + epsilon) * grad",
        "AvgSquaredUpdateOut": "avgsquaredupdate * rho + step * step * (1 - rho)",
        "ParamOut": "param - step * learningrate",
    },
    _adadelta_lower,
    Domain(
        cases=(
            *cases("bbbbs", {}, {"rho": 0.5, "epsilon": 1e-2}),
            *cases("bbbb", {}),
            Case(((5, 6),) * 4 + ((1,), (5, 6)), {"multi_precision": True}),
        ),
        values={
            "LearningRate": POSITIVE,
            "AvgSquaredGrad": Range(0.01, 2.0),
            "AvgSquaredUpdate": Range(0.01, 2.0),
        },
        ulps=16,
    ),
)


# ------------------------------------------------------------------------------------------------------------- rmsprop
def _rmsprop_lower(
    torch: Any, param: Any, square: Any, grad: Any, moment: Any, lr: Any, mean: Any, master: Any, *, decay: float,
    momentum: float, epsilon: float, centered: bool,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    s = decay * square.to(p.dtype) + (1 - decay) * g * g
    a = mean
    below = s
    if centered:
        a = decay * mean.to(p.dtype) + (1 - decay) * g
        below = s - a * a
    m = momentum * moment.to(p.dtype) + lr.to(p.dtype).reshape(()) * g / torch.sqrt(below + epsilon)
    new = p - m
    return torch_end([(param, new), (moment, m), (square, s), (mean, a), (master, new)])


register_update(
    "rmsprop",
    "Param, MeanSquare, Grad, Moment, LearningRate, MeanGrad?, MasterParam? "
    "-> ParamOut, MomentOut, MeanSquareOut, MeanGradOut?, MasterParamOut?",
    {"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False, "multi_precision": MULTI_PRECISION},
    {
        "MeanSquareOut": "meansquare * decay + grad * grad * (1 - decay)",
        "MeanGradOut": "where(centered, meangrad * decay + grad * (1 - decay), meangrad)",
        "spread": "where(centered, meansquareout - meangradout * meangradout, meansquareout)",
        # epsilon is within the root, as in Paddle; torch's RMSprop adds it outside.
        "MomentOut": "moment * momentum + grad * learningrate / sqrt(spread + epsilon)",
        "ParamOut": "param - momentout",
    },
    _rmsprop_lower,
    Domain(
        cases=(
            *cases("bbbbs", {}, {"momentum": 0.9, "epsilon": 1e-2}),
            *cases("bbbbsb", {"centered": True, "momentum": 0.5}, {"epsilon": 1e-3}),
            Case(((5, 6),) * 4 + ((1,), None, (5, 6)), {"multi_precision": True}),
        ),
        # The centred root needs a mean square above the squared mean.
        values={"LearningRate": POSITIVE, "MeanSquare": Range(2.0, 4.0), "MeanGrad": Range(-0.5, 0.5)},
        ulps=16,
    ),
    needs={"centered": "MeanGrad"},
)


# ---------------------------------------------------------------------------------------------------------------- lamb
# Y. You et al., "Large Batch Optimization for Deep Learning", 2020.
LAMB = {
    **MOMENTS,
    "adam": "moment1out / (1 - beta1pow) / (sqrt(moment2out / (1 - beta2pow)) + epsilon)",
    # Without decay nothing is added: 0 times an infinite parameter is NaN.
    "direction": "where(weight_decay != 0, adam + param * weight_decay, adam)",
    "param_squares": "squares(param)",
    "direction_squares": "squares(direction)",
    # A norm of 0 has no ratio: the step stays as it is.
    "ratio": "where((param_squares > 0) & (direction_squares > 0), sqrt(param_squares) / sqrt(direction_squares), 1)",
    "ParamOut": "param - direction * (learningrate * where(always_adapt | (weight_decay != 0), ratio, 1))",
    **POWERS,
}


def _lamb_lower(
    torch: Any, param: Any, grad: Any, lr: Any, m: Any, v: Any, pow1: Any, pow2: Any, master: Any, *,
    weight_decay: float, beta1: float, beta2: float, epsilon: float, always_adapt: bool,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    # The second pass reads the moments as they are kept.
    new_m = (beta1 * m.to(p.dtype) + (1 - beta1) * g).to(m.dtype)
    new_v = (beta2 * v.to(p.dtype) + (1 - beta2) * g * g).to(v.dtype)
    m_hat = new_m.to(p.dtype) / (1 - pow1.double().reshape(())).to(p.dtype)
    v_hat = new_v.to(p.dtype) / (1 - pow2.double().reshape(())).to(p.dtype)
    r = m_hat / (torch.sqrt(v_hat) + epsilon) + weight_decay * p
    p_norm, r_norm = p.double().norm(), r.double().norm()
    adapts = (p_norm > 0) & (r_norm > 0) & (always_adapt or weight_decay != 0)
    ratio = torch.where(adapts, p_norm / r_norm, 1.0)
    new = p - (lr.double().reshape(()) * ratio).to(p.dtype) * r
    pairs = [(param, new), (m, new_m), (v, new_v), (pow1, pow1 * beta1), (pow2, pow2 * beta2), (master, new)]
    return torch_end(pairs)


register_update(
    "lamb",
    "Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow, MasterParam?, SkipUpdate? "
    "-> ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut, MasterParamOut?",
    {
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-6,
        "multi_precision": MULTI_PRECISION,
        # Off: a parameter without decay takes plain Adam steps.
        "always_adapt": False,
    },
    LAMB,
    _lamb_lower,
    Domain(
        cases=(
            *cases("bbsbbss", {"weight_decay": 0.1}, {"epsilon": 1e-2}, {"always_adapt": True}),
            Case(((5, 6), (5, 6), (1,), (5, 6), (5, 6), (1,), (1,), (5, 6)), {"weight_decay": 0.01}),
            Case(((7,), (7,), (1,), (7,), (7,), (1,), (1,), None, (1,)), {"weight_decay": 0.01}),
        ),
        values=ADAM_VALUES,
        # Two norms of the whole parameter are in the ratio, and torch adds them up in another order.
        ulps=64,
    ),
)
