"""``nn.functional``: filled from the spellings that stand beside the op cards."""

from tstatic import ops
from tstatic.ir.opdef import namespace

globals().update(namespace("nn.functional"))
__all__ = sorted(namespace("nn.functional"))  # noqa: PLE0605 - the names are those of the registry
assert ops
