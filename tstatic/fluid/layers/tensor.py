"""``fluid.layers.tensor``: the layer functions under the module path that 1.x scripts import."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.layers"))
globals().update(namespace("fluid.layers.tensor"))
assert static
