"""``fluid.generator``: generators are not part of tstatic, and asking for one says what to use."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
