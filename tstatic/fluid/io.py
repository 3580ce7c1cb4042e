"""``fluid.io``: saving, loading and data loading."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.io"))
