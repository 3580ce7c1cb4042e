"""``fluid.layers.learning_rate_scheduler``: learning rates computed by ops of the program."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.layers.learning_rate_scheduler"))
