"""``paddle.metric``: accuracy and area under the curve as ops of the program."""

import tstatic.static  # noqa: F401 - fills the registry of spellings
from tstatic.ir.opdef import namespace

globals().update(namespace("metric"))
__all__ = sorted(namespace("metric"))
