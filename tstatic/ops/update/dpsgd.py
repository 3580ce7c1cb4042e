"""The update dpsgd: gradient descent with a clipped gradient and a noise, for differential privacy."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import Case, Domain
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import torch_end, torch_start
from tstatic.ops.update._update import register_update
from tstatic.ops.update.common import POSITIVE, cases


def _lower(
    torch: Any, param: Any, grad: Any, lr: Any, noise: Any, master: Any, *, clip: float, batch_size: float, sigma: float
) -> Any:
    p, g = torch_start(torch, param, grad, master)
    norm = g.double().norm()
    step = g / torch.where(norm > clip, norm / clip, 1.0).to(p.dtype)
    if sigma:
        step = step + (noise.double().reshape(()) * (clip * sigma / batch_size)).to(p.dtype)
    new = p - lr.to(p.dtype).reshape(()) * step
    return torch_end([(param, new), (master, new)])


# M. Abadi et al., "Deep Learning with Differential Privacy", 2016. As in Paddle, the gradient of the whole batch is clipped, and
# all elements of a parameter get the same noise.
register_update(
    "dpsgd",
    "Param, Grad, LearningRate, Noise?, MasterParam? -> ParamOut, MasterParamOut?",
    # Paddle's defaults.
    {"clip": 0.9, "batch_size": 0.999, "sigma": 1e-8, "multi_precision": MULTI_PRECISION},
    {
        "grad_squares": "squares(grad)",
        "shrink": "where(grad_squares > clip * clip, clip / sqrt(grad_squares), 1)",
        "shift": "where(sigma != 0, noise * (clip * sigma / batch_size), 0)",
        "ParamOut": "param - (grad * shrink + shift) * learningrate",
    },
    _lower,
    Domain(
        cases=(
            *cases("bbss", {"sigma": 0.5}, {"clip": 9.0, "sigma": 0.25, "batch_size": 4.0}),
            *cases("bbs", {"sigma": 0.0, "clip": 0.25}),
            Case(((5, 6), (5, 6), (1,), (1,), (5, 6)), {"sigma": 0.5, "multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE},
        ulps=16,
    ),
    needs={"sigma": "Noise"},
)
