"""``fluid.optimizer``: the 1.x spellings of the update rules."""

from tstatic import static
from tstatic.ir.opdef import namespace
from tstatic.optimizer.optimizer import Optimizer as Optimizer

globals().update(namespace("fluid.optimizer"))
assert static
