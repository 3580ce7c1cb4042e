"""``fluid.regularizer``: weight decay."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.regularizer"))
assert static
