"""``fluid.regularizer``: weight decay."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.regularizer"))
