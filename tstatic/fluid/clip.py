"""``fluid.clip``: gradient clipping."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.clip"))
assert static
