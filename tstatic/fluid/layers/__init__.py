"""``fluid.layers``: the layer functions, also under the module paths that 1.x scripts import them from.

* ``nn``, ``ops``, ``tensor``  functions of tensors
* ``control_flow``, ``io``, ``learning_rate_scheduler``  control flow, inputs, decays
"""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.fluid.layers import control_flow, io, learning_rate_scheduler, nn, ops, tensor
from tstatic.ir.opdef import namespace
from tstatic.unsupported import missing_in

_names = namespace("fluid.layers")
globals().update(_names)
__all__ = ["control_flow", "io", "learning_rate_scheduler", "nn", "ops", "tensor", *sorted(_names)]
__getattr__ = missing_in(__name__, __all__)
