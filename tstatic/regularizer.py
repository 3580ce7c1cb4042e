"""``paddle.regularizer``: weight decay."""

from tstatic.nn.regularizer import L1Decay, L2Decay, WeightDecayRegularizer

__all__ = ["L1Decay", "L2Decay", "WeightDecayRegularizer"]
