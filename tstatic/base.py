"""``paddle.base``: what 2.6 calls ``fluid``, module by module the same objects."""

import sys
from importlib import import_module
from pkgutil import walk_packages

from tstatic import fluid
from tstatic.fluid import *  # noqa: F403 - the same names
from tstatic.unsupported import missing_in

# ``import paddle.base.core`` and the like give the modules of ``fluid``; a path makes this a package, and holds no other.
__path__: list[str] = []
for _found in walk_packages(fluid.__path__, "tstatic.fluid."):
    sys.modules[_found.name.replace("tstatic.fluid.", "tstatic.base.", 1)] = import_module(_found.name)

__all__ = fluid.__all__

__getattr__ = missing_in(__name__, __all__)
