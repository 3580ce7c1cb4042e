"""``paddle.framework``: default dtypes, seeds and parameter settings under the module path that scripts import.

* ``random``  seeds of programs

``paddle.framework.core`` is ``fluid.core``.
"""

import sys

from tstatic.fluid import core
from tstatic.ir.export import facade

# ``import paddle.framework.core`` gives the one module that there is.
sys.modules[f"{__name__}.core"] = core

__getattr__, __dir__ = facade(
    __name__,
    modules="random",
    others={
        "tstatic.fluid": "core",
        "tstatic.places": "CPUPlace, CUDAPinnedPlace, CUDAPlace",
        "tstatic.static.mode": "in_dynamic_mode",
    },
)
