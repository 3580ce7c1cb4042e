"""``paddle.base``: what 2.6 calls ``fluid``, module by module the same objects."""

import sys

from tstatic.fluid import *  # noqa: F403 - the same names
from tstatic.fluid import __all__ as __all__
from tstatic.unsupported import missing_in

# ``import paddle.base.core`` and the like give the modules of ``fluid``; a path makes this a package, and holds no other.
__path__: list[str] = []
for _name, _module in [(n, m) for n, m in sys.modules.items() if n.startswith("tstatic.fluid.")]:
    sys.modules[_name.replace("tstatic.fluid.", "tstatic.base.", 1)] = _module

__getattr__ = missing_in(__name__, __all__)
