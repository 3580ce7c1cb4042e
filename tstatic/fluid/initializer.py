"""``fluid.initializer``: how parameters get their first value."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = namespace("fluid.initializer")
globals().update(_names)
__all__ = sorted(_names)
__getattr__ = missing_in(__name__, __all__)
