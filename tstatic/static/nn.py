"""``static.nn``: layers that make their parameters, and control flow."""

import tstatic.nn
import tstatic.ops  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("static.nn"))
__all__ = sorted(namespace("static.nn"))
