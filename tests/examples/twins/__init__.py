"""Torch programs that train as the examples do: one module per script.

Each has ``losses(steps)``, which returns the losses of the example's own program and of its twin: from the same parameters, over
the same batches and noise, in float32, without dropout.

Where a value is within rounding of a kink of relu, one program lets its gradient through and the other does not, and from there on
their courses differ as those of two seeds do: torch's own in float32 and float64 part by 1e-2 within ten steps of the residual
network at its full rate. So batches and learning rates are small, and ``SEED`` is one of which no value comes near a kink.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic import static


def value(name: str) -> np.ndarray:
    """Returns a variable of the global scope."""
    variable = static.global_scope().find_var(name)
    assert variable is not None, name
    return np.array(variable.get_tensor())


def copy_parameters(program: static.Program, module: Any) -> None:
    """Gives a torch module the parameters of a program; its layers must stand in the order in which the program's were made."""
    import torch

    mine = [(layer, name, p) for layer in module.modules() for name, p in layer.named_parameters(recurse=False)]
    given = [p for p in program.all_parameters() if p.trainable]  # the others are running statistics
    for (layer, name, parameter), own in zip(mine, given, strict=True):
        values = value(own.name)
        if isinstance(layer, torch.nn.Linear) and name == "weight":
            values = values.T
        assert values.shape == tuple(parameter.shape), f"{own.name} {values.shape} is no {name} of {layer}"
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.copy()))
