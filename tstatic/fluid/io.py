"""``fluid.io``: saving, loading and data loading."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.io"))
assert static
