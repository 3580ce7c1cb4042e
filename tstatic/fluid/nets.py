"""``fluid.nets``: small composed networks."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
