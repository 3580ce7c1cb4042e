"""``fluid.initializer``: how parameters get their first value."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
