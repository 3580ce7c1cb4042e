"""``fluid.initializer``: how parameters get their first value."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.initializer"))
