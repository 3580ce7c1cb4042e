"""The update decayed_adagrad: Adagrad whose sum of squares is a running mean."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import Case, Domain
from tstatic.ir.opdef import ValueRange as Range
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import torch_end, torch_start
from tstatic.ops.update._update import register_update
from tstatic.ops.update.common import POSITIVE, cases


def _lower(
    torch: Any, param: Any, grad: Any, moment: Any, lr: Any, master: Any, *, decay: float, epsilon: float
) -> Any:
    p, g = torch_start(torch, param, grad, master)
    m = decay * moment.to(p.dtype) + (1 - decay) * g * g
    new = p - lr.to(p.dtype).reshape(()) * g / (torch.sqrt(m) + epsilon)
    return torch_end([(param, new), (moment, m), (master, new)])


register_update(
    "decayed_adagrad",
    "Param, Grad, Moment, LearningRate, MasterParam? -> ParamOut, MomentOut, MasterParamOut?",
    {"decay": 0.95, "epsilon": 1e-6, "multi_precision": MULTI_PRECISION},
    {
        "MomentOut": "moment * decay + grad * grad * (1 - decay)",
        "ParamOut": "param - grad * learningrate / (sqrt(momentout) + epsilon)",
    },
    _lower,
    Domain(
        cases=(
            *cases("bbbs", {}, {"decay": 0.5, "epsilon": 1e-2}),
            Case(((5, 6),) * 3 + ((1,), (5, 6)), {"multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE, "Moment": Range(0.01, 2.0)},
        ulps=8,
    ),
)
