"""``fluid.nets``: small composed networks."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.nets"))
assert static
