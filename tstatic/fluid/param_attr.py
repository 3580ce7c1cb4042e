"""``fluid.param_attr``: settings of one parameter."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.param_attr"))
assert static
