"""``fluid.layers``: the layer functions."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.fluid.layers import control_flow as control_flow
from tstatic.fluid.layers import learning_rate_scheduler as learning_rate_scheduler
from tstatic.fluid.layers import nn as nn
from tstatic.fluid.layers import ops as ops
from tstatic.fluid.layers import tensor as tensor
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.layers"))
