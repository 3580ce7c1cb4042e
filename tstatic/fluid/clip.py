"""``fluid.clip``: gradient clipping."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.clip"))
