"""A launch of its own for each test, and a fleet before its ``init``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tstatic.comm.rendezvous import launch
from tstatic.distributed import fleet

# Nothing here depends on how kernels run.
if os.environ.get("TSTATIC_CPU_BACKEND") == "interpret":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*os.environ]:
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("PADDLE_", "SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)
    launch._reset_for_tests()
    before = dict(vars(fleet.fleet))
    yield
    vars(fleet.fleet).update(before)
    launch._reset_for_tests()
