"""``fluid.layers``: the layer functions, also under the module paths that 1.x scripts import them from.

* ``nn``, ``ops``, ``tensor``  functions of tensors
* ``control_flow``, ``io``, ``learning_rate_scheduler``  control flow, inputs, decays
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__, modules="control_flow io learning_rate_scheduler nn ops tensor")
