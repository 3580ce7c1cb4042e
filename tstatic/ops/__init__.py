"""One op definition per op, beside its public functions, in a package per family. Importing this package fills the registry.

* ``elementwise``, ``reduce``, ``matmul``, ``conv``, ``norm``  arithmetic
* ``indexing``, ``shape``  reading, writing and moving elements
* ``random``, ``loss``, ``update``, ``control``  random numbers, losses and metrics, optimizer updates, branches and loops
* ``_call_ref``, ``_flat``, ``_low``  makers of references
* ``_rows``, ``_gradients``  rows of matrices, gradient rules
"""

from importlib import import_module
from pkgutil import walk_packages

from tstatic.ir.opdef import namespace
from tstatic.ir.program import Variable

for _module in sorted(m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg):
    import_module(_module)

# Methods of variables are ops too: the op definition's file spells them ``Variable.name``.
for _name, _function in namespace("Variable").items():
    setattr(Variable, _name, _function)
