"""``paddle.base``: what 2.6 calls ``fluid``."""

from tstatic.fluid import *  # noqa: F403 - the same names
from tstatic.fluid import core, framework

__all__ = ["core", "framework"]
