"""``fluid.layers.io``: declaring inputs."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
