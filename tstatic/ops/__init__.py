"""One op definition per op, beside its public functions, in a package per family; a module is loaded when it is asked for.

Three floors, each of which imports those below it:

* ``functions``  functions made of other functions, which define no op
* ``control``, ``elementwise``, ``shape``, ``indexing``, ``reduce``, ``matmul``, ``linalg``, ``conv``, ``norm``, ``random``,
  ``loss``, ``recurrent``, ``update``  families of ops, whose imports of each other have no circle
* ``base``  what families share: makers of references and torch forms, rules of gradients, functions that emit ops
"""

from tstatic.ops.base import expressions as _expressions  # noqa: F401 - expressions mean the same whichever ops are loaded
