"""The stubs for type checkers, as ``setup.py`` makes them from the sources."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("tstatic_setup", Path(__file__).parents[2] / "setup.py")
assert _spec is not None
assert _spec.loader is not None
_setup = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_setup)

PACKAGE: Path = _setup.PACKAGE
stubs, write, facades, index = _setup.stubs, _setup.write, _setup.facades, _setup.index
stub_path, modules = _setup.stub_path, _setup.modules
