"""``fluid.profiler``: timing."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.profiler"))
assert static
