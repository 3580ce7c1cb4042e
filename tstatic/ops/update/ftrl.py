"""The update ftrl: follow the regularised leader, per coordinate."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import Case, Domain
from tstatic.ir.opdef import ValueRange as Range
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import torch_end, torch_start
from tstatic.ops.update._update import register_update
from tstatic.ops.update.common import POSITIVE, cases


def _lower(
    torch: Any, param: Any, square: Any, linear: Any, grad: Any, lr: Any, master: Any, *, l1: float, l2: float,
    lr_power: float,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    old = square.to(p.dtype)
    new_square = old + g * g
    rate = lr.to(p.dtype).reshape(())
    # As in Paddle, no penalty is exactly 0.
    l1, l2 = l1 + 1e-10, l2 + 1e-10
    new_linear = linear.to(p.dtype) + g - (new_square**-lr_power - old**-lr_power) / rate * p
    shrunk = (l1 * torch.sign(new_linear) - new_linear) / (new_square**-lr_power / rate + 2 * l2)
    new = torch.where(new_linear.abs() > l1, shrunk, torch.zeros_like(shrunk))
    return torch_end([(param, new), (square, new_square), (linear, new_linear), (master, new)])


# H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013.
register_update(
    "ftrl",
    "Param, SquaredAccumulator, LinearAccumulator, Grad, LearningRate, MasterParam? "
    "-> ParamOut, SquaredAccumulatorOut, LinearAccumulatorOut, MasterParamOut?",
    {"l1": 0.0, "l2": 0.0, "lr_power": -0.5, "multi_precision": MULTI_PRECISION},
    {
        # The usual power is a root: sqrt is rounded correctly, pow is not.
        "old": "where(lr_power == -0.5, sqrt(squaredaccumulator), pow(squaredaccumulator, -lr_power))",
        "grown": "squaredaccumulator + grad * grad",
        "root": "where(lr_power == -0.5, sqrt(grown), pow(grown, -lr_power))",
        "LinearAccumulatorOut": "linearaccumulator + grad - (root - old) / learningrate * param",
        "shrunk": "(sign(linearaccumulatorout) * (l1 + 1e-10) - linearaccumulatorout)"
        " / (root / learningrate + 2 * (l2 + 1e-10))",
        "ParamOut": "where(abs(linearaccumulatorout) > l1 + 1e-10, shrunk, 0)",
        "SquaredAccumulatorOut": "grown",
    },
    _lower,
    Domain(
        cases=(
            *cases("bbbbs", {}, {"l1": 0.1, "l2": 0.3}, {"lr_power": -0.3, "l1": 0.05}),
            Case(((5, 6),) * 4 + ((1,), (5, 6)), {"multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE, "SquaredAccumulator": Range(0.1, 2.0), "LinearAccumulator": Range(0.5, 2.0)},
        # 2.7 ulps seen.
        ulps=64,
    ),
)
