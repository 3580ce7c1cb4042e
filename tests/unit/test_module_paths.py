"""Every module is reached by the path that its name says: ``import a.b.c as d`` and ``from a.b import c`` give the module."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import tstatic

PADDLE_NAMES = {
    "tstatic.distributed.fleet.fleet": "Paddle's `fleet.fleet` is the Fleet object, beside its module of that name",
    "tstatic.where": "Paddle's operator `where`, once it was asked for; the module is private to the library",
}
"""Modules whose path leads to something else, and why: names of Paddle's only."""

NOT_INSTALLED = {"triton", "onnx", "tensorboardX", "hypothesis", "typer", "rich"}


def loaded() -> dict[str, ModuleType]:
    """Imports all modules of the package; returns them, those that have no file included."""
    for found in pkgutil.walk_packages(tstatic.__path__, "tstatic."):
        if found.name.endswith("__main__"):
            continue  # it runs when it is imported
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            # A part for an optional package, which this environment lacks.
            if (error.name or "").partition(".")[0] not in NOT_INSTALLED:
                raise
    return {name: module for name, module in sys.modules.items() if name.startswith("tstatic.")}


def hidden(modules: dict[str, ModuleType]) -> Iterator[tuple[str, object]]:
    """Yields the modules whose path leads nowhere, or to something else, and to what."""
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        # What the two statements look up: the attribute of the package that was imported under its full name.
        found = getattr(modules.get(parent, sys.modules[parent]), last, None)
        if found is not module:
            yield name, found


def test_the_path_of_a_module_leads_to_it() -> None:
    """Guards against a name in a package's ``__init__`` that hides a submodule of the package."""
    modules = loaded()
    assert len(modules) > 500
    # Names of functions that are loaded when they are asked for hide nothing before.
    assert {name for name, _ in hidden(modules)} <= PADDLE_NAMES.keys()


def test_both_statements_give_the_module_of_a_device() -> None:
    import tstatic.devices.cpu.device as device
    from tstatic.devices import cpu

    assert device is sys.modules["tstatic.devices.cpu.device"]
    assert cpu is sys.modules["tstatic.devices.cpu"]


def test_a_name_that_hides_a_module_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = loaded()
    monkeypatch.setattr(modules["tstatic.plan"], "memory", modules["tstatic.plan.plan"])
    assert "tstatic.plan.memory" in dict(hidden(modules))
