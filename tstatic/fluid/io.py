"""``fluid.io``: saving and loading."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
