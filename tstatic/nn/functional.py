"""``nn.functional``: functions without parameters of their own."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
