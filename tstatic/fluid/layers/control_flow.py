"""``fluid.layers.control_flow``: branches and loops under the module path that 1.x scripts import."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__, "fluid.layers", "fluid.layers.control_flow")
