"""``paddle.tensor``: the tensor functions, which are also names of the package itself."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("tensor"))
__all__ = sorted(namespace("tensor"))
