"""An empty cache for each test, and what the log said of it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tstatic.fusion.engine import cache


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache and an empty folder for temporary files, in a process that has loaded nothing."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TSTATIC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    cache._reset_for_tests()
    yield tmp_path / "cache"
    cache._reset_for_tests()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "tstatic.kernels")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "tstatic.kernels"]
