"""Refuses ``tstatic.extras`` and ``tstatic.tools``, in every Python process that has this folder on its path."""

import importlib.abc
import sys


class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name in ("tstatic.extras", "tstatic.tools"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


sys.meta_path.insert(0, Refused())
