"""``fluid.layers.control_flow``: branches and loops under the module path that 1.x scripts import."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = {**namespace("fluid.layers"), **namespace("fluid.layers.control_flow")}
globals().update(_names)
__all__ = sorted(_names)
__getattr__ = missing_in(__name__, __all__)
