"""``fluid.optimizer``: the 1.x spellings of the update rules."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace
from tstatic.optimizer.optimizer import Optimizer as Optimizer

globals().update(namespace("fluid.optimizer"))
