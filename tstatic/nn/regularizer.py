"""Weight decay as ops added to gradients: L1 and L2."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable


class WeightDecayRegularizer:
    """Base class of regularizers."""

    coeff: float

    def term(self, param: Variable) -> Any:
        """Emits the gradient of the penalty."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(coeff={self.coeff})"


@export("regularizer.L2Decay", "fluid.regularizer.L2Decay", "fluid.regularizer.L2DecayRegularizer")
class L2Decay(WeightDecayRegularizer):
    """Adds ``coeff * w`` to the gradient of ``w``."""

    def __init__(self, coeff: float = 0.0, regularization_coeff: float | None = None) -> None:
        self.coeff = float(coeff if regularization_coeff is None else regularization_coeff)

    def term(self, param: Variable) -> Any:
        return emit("scale", {"X": param}, {"scale": self.coeff})


@export("regularizer.L1Decay", "fluid.regularizer.L1Decay", "fluid.regularizer.L1DecayRegularizer")
class L1Decay(WeightDecayRegularizer):
    """Adds ``coeff * sign(w)`` to the gradient of ``w``."""

    def __init__(self, coeff: float = 0.0, regularization_coeff: float | None = None) -> None:
        self.coeff = float(coeff if regularization_coeff is None else regularization_coeff)

    def term(self, param: Variable) -> Any:
        return emit("scale", {"X": emit("sign", {"X": param})}, {"scale": self.coeff})
