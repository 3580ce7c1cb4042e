"""The user's own file and line behind a call (the functions stand at the bottom layer, where errors need them too)."""

from tstatic.where import Where, show, user_line

__all__ = ["Where", "show", "user_line"]
