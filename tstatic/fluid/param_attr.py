"""``fluid.param_attr``: settings of one parameter."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = namespace("fluid.param_attr")
globals().update(_names)
__all__ = sorted(_names)
__getattr__ = missing_in(__name__, __all__)
