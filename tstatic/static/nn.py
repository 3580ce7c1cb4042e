"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic import nn, ops
from tstatic.ir.opdef import namespace

globals().update(namespace("static.nn"))
__all__ = sorted(namespace("static.nn"))  # noqa: PLE0605 - the names are those of the registry
assert nn and ops
