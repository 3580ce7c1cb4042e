"""One op definition per op, beside its public functions; files by family. Importing this package fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

from tstatic.ir.opdef import namespace
from tstatic.ir.program import Variable

for _module in sorted(m.name for m in iter_modules(__path__) if not m.ispkg):
    import_module(f"{__name__}.{_module}")

# Methods of variables are ops too: the op definition's file spells them ``Variable.name``.
for _name, _function in namespace("Variable").items():
    setattr(Variable, _name, _function)
