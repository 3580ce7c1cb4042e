"""``fluid.regularizer``: weight decay."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
