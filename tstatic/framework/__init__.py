"""``paddle.framework``: default dtypes, seeds and parameter settings under the module path that scripts import.

* ``random``  seeds of programs

``paddle.framework.core`` is ``fluid.core``.
"""

import sys

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.fluid import core
from tstatic.framework import random
from tstatic.ir.opdef import namespace
from tstatic.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from tstatic.static.mode import in_dynamic_mode
from tstatic.unsupported import missing_in

# ``import paddle.framework.core`` gives the one module that there is.
sys.modules[f"{__name__}.core"] = core

_names = namespace("framework")
globals().update(_names)
__all__ = ["CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "core", "in_dynamic_mode", "random", *sorted(_names)]
__getattr__ = missing_in(__name__, __all__)
