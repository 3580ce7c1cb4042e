"""``fluid.optimizer``: the 1.x spellings of the update rules."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__, others={"tstatic.optimizer.optimizer": "Optimizer"})
