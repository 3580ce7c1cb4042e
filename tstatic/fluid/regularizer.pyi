# Made from the registry of public names by `make api`.
from tstatic.nn.regularizer import L1Decay as L1Decay
from tstatic.nn.regularizer import L1Decay as L1DecayRegularizer
from tstatic.nn.regularizer import L2Decay as L2Decay
from tstatic.nn.regularizer import L2Decay as L2DecayRegularizer

__all__ = [
    "L1Decay",
    "L1DecayRegularizer",
    "L2Decay",
    "L2DecayRegularizer",
]
