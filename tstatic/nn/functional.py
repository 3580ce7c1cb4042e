"""``nn.functional``: filled from the spellings that stand beside the op cards."""

import tstatic.ops  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("nn.functional"))
__all__ = sorted(namespace("nn.functional"))
