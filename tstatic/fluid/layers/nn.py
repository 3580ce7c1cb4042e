"""``fluid.layers.nn``: the layer functions under the module path that 1.x scripts import."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__, "fluid.layers", "fluid.layers.nn")
