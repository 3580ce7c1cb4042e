"""``fluid.dygraph``: layer classes under their 1.x names; there is no eager mode.

* ``nn``  the classes
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__, modules="nn")
