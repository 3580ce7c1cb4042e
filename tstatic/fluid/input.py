"""``fluid.input``: the layers that look up rows."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
