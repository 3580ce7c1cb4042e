"""``nn.utils``: what is done to the parameters of layers."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
