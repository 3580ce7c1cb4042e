"""``static.nn``: layers that make their parameters, and control flow."""

import tstatic.nn
import tstatic.ops  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = namespace("static.nn")
globals().update(_names)
__all__ = sorted(_names)
__getattr__ = missing_in(__name__, __all__)
