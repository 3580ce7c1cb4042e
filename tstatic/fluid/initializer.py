"""``fluid.initializer``: how parameters get their first value."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.initializer"))
assert static
