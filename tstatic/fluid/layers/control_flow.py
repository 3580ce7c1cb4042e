"""``fluid.layers.control_flow``: the layer functions under the module path that 1.x scripts import."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.layers"))
globals().update(namespace("fluid.layers.control_flow"))
