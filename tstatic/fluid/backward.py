"""``fluid.backward``: gradients as ops."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("fluid.backward"))
assert static
