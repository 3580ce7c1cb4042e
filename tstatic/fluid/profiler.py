"""``fluid.profiler``: timing; its functions are not part of this release, and asking for one says what to use."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
