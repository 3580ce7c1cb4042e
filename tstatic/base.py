"""``paddle.base``: what 2.6 calls ``fluid``, module by module the same objects."""

import sys

from tstatic import fluid
from tstatic.fluid import *  # noqa: F403 - the same names
from tstatic.fluid import core  # noqa: F401 - the only one that is not loaded with its package
from tstatic.unsupported import missing_in

# ``import paddle.base.core`` and the like give the modules of ``fluid``; a path makes this a package, and holds no other.
__path__: list[str] = []
for _name in [name for name in sys.modules if name.startswith("tstatic.fluid.")]:
    sys.modules[_name.replace("tstatic.fluid.", "tstatic.base.", 1)] = sys.modules[_name]

__all__ = fluid.__all__

__getattr__ = missing_in(__name__, __all__)
