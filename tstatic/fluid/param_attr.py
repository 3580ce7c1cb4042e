"""``fluid.param_attr``: settings of one parameter."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
