"""Modules under more than one name: each name gives the same object, whose body runs once.

A module that moved keeps its old name: scripts import it, and pickles of its instances name it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from tstatic.errors import MissingPackageError

MOVED = {
    "benchlib": "tools.benchlib",
    "cli": "tools.cli",
    "dataset": "extras.dataset",
    "distribution": "extras.distribution",
    "interop": "tools.interop",
    "metric.detection_map": "extras.detection.evaluator",
    "metric.evaluators": "extras.structured.evaluators",
    "nn.layer.structured": "extras.structured.layers",
    "nn.layer.vision": "extras.detection.layers",
    "nn.static_structured": "extras.structured.static_layers",
    "ops.detection": "extras.detection",
    "ops.graph": "extras.graph",
    "ops.spectral": "extras.spectral",
    "ops.structured": "extras.structured",
    "profiler": "tools.profiler",
    "testing": "tools.testing",
    "vision": "extras.vision",
}
"""Name below this package -> where the module, or the package with all that lies in it, is now."""
MERGED = {
    "static.explain_layout": "static.explain_html",
    "static.explain_script": "static.explain_html",
    "static.explain_style": "static.explain_html",
}
"""The same for modules whose content went into another one, which users know by its own name."""
WINGS = (f"{__package__}.extras", f"{__package__}.tools")
"""Packages that nothing else needs."""
_NOW = MOVED | MERGED
_PUBLIC = {now: old for old, now in MOVED.items()}


def place_of(module: str) -> str:
    """Returns where a module lies: its own name, unless it moved.

    Args:
        module: Its full name: ``tstatic.vision.models``.
    """
    return renamed(module, _NOW)


def public_of(module: str) -> str:
    """Returns the name under which users know a module, from where it lies."""
    return renamed(module, _PUBLIC)


def renamed(module: str, names: Mapping[str, str]) -> str:
    """Returns another name of a module: that of the longest name in a table, below the package, that it has or lies below."""
    package, _, below = module.partition(".")
    parts = below.split(".")
    for length in range(len(parts), 0, -1):
        found = names.get(".".join(parts[:length]))
        if found is not None:
            return ".".join((package, found, *parts[length:]))
    return module


def absent(name: str, error: ImportError) -> ImportError:
    """Returns the error for a name in a wing of the library that is not there; the given one if that is not the reason.

    Args:
        name: What was asked for: a module, a public name, or the type of an operator.
        error: What importing its module raised.
    """
    if error.name not in WINGS:
        return error
    return MissingPackageError(
        f"'{name}' lies in '{error.name}', which is not there",
        expected=f"the whole of tstatic, with '{error.name}'",
        received=str(error),
        fix=f"install tstatic as a whole, or leave out what needs '{name}'",
    )


class SameModule(importlib.abc.InspectLoader):
    """Loads a module under a further name.

    Args:
        name: Its own name.
        find: Imports and returns it; by default what its own name says.
    """

    def __init__(self, name: str, find: Callable[[], ModuleType] | None = None) -> None:
        self._name = name
        self._find = partial(importlib.import_module, name) if find is None else find
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = self._find()
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the further name's spec into a module that is loaded already.
        module.__spec__ = self._spec

    # For ``python -m``, and for tools that read sources.
    def get_code(self, fullname: str) -> CodeType | None:
        loader = self._loader()
        return None if loader is None else loader.get_code(self._name)

    def get_source(self, fullname: str) -> str | None:
        loader = self._loader()
        return None if loader is None else loader.get_source(self._name)

    def _loader(self) -> importlib.abc.InspectLoader | None:
        found = importlib.util.find_spec(self._name)
        loader = None if found is None else found.loader
        return loader if isinstance(loader, importlib.abc.InspectLoader) else None


class _Moved(importlib.abc.MetaPathFinder):
    """Answers imports of modules that moved."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_BELOW) or (now := place_of(name)) == name:
            return None
        try:
            found = importlib.util.find_spec(now)
        except ImportError as error:
            raise absent(name, error) from None
        if found is None:
            return None
        return ModuleSpec(name, SameModule(now), origin=found.origin, is_package=bool(found.submodule_search_locations))


_BELOW = f"{__package__}."


def install() -> None:
    """Makes old names of modules known to the import system."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        # First: what lies below a package that moved would be found by the package's path, and run once more.
        sys.meta_path.insert(0, _Moved())


__all__ = ["MERGED", "MOVED", "WINGS", "SameModule", "absent", "install", "place_of", "public_of", "renamed"]
