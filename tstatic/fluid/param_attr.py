"""``fluid.param_attr``: settings of one parameter."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.param_attr"))
