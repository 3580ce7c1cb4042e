"""One set of warm ranks for the folder, and a launch of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.comm.pool import Pool
from tstatic.comm.rendezvous import launch

# Nothing here depends on how kernels run.
if os.environ.get("TSTATIC_CPU_BACKEND") == "interpret":
    collect_ignore_glob = ["test_*.py"]

_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*os.environ]:
        if name in _LAUNCHERS or name.startswith(("SLURM_", "PADDLE_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)
    launch._reset_for_tests()
    yield
    launch._reset_for_tests()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Processes that wait with torch imported, so that a trial starts in milliseconds."""
    with Pool() as made:
        yield made
