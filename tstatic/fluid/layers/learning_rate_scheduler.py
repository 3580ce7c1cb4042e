"""``fluid.layers.learning_rate_scheduler``: learning rates computed by ops of the program."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.layers.learning_rate_scheduler"))
assert static
