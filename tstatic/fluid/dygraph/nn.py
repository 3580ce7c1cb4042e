"""``fluid.dygraph.nn``: layer classes under their 1.x names."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
