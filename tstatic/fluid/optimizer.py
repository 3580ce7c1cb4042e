"""``fluid.optimizer``: the 1.x spellings of the update rules."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.optimizer.optimizer import Optimizer
from tstatic.unsupported import missing_in

_names = namespace("fluid.optimizer")
globals().update(_names)
__all__ = ["Optimizer", *sorted(_names)]
__getattr__ = missing_in(__name__, __all__)
