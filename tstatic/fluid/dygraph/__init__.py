"""``fluid.dygraph``: layer classes under their 1.x names; there is no eager mode.

* ``nn``  the classes
"""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.fluid.dygraph import nn
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = namespace("fluid.dygraph")
globals().update(_names)
__all__ = ["nn", *sorted(_names)]
__getattr__ = missing_in(__name__, __all__)
