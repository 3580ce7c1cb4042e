"""Hypothesis profiles, and a fresh world for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Before numpy and torch are imported: workers of xdist share the cores, so each keeps to one thread of BLAS.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

# An element that an operator or a kernel leaves unwritten is NaN, and not what another run put there: plans share memory. In the
# environment, so that processes that tests start have it, too.
os.environ.setdefault("FLAGS_init_allocated_mem", "1")

# One process either interprets kernels or compiles them: two runs of pytest, each with its own folders.
if os.environ.get("TSTATIC_CPU_BACKEND") in ("interpret", "torch+interpret"):
    os.environ["TRITON_INTERPRET"] = "1"
    # By name, so that a new folder is not run twice unasked: these files bind generated kernels, no others do.
    _tests = Path(__file__).parent
    _generated = ("interpret", "optimizer/test_averages.py", "structured/test_programs.py", "vision/test_models.py")
    collect_ignore = [
        f.name for f in _tests.iterdir() if f.is_dir() and not any(g.startswith(f.name) for g in _generated)
    ]
    for _named in _generated:
        _folder, _, _file = _named.partition("/")
        if _file:
            collect_ignore += [
                str(f.relative_to(_tests)) for f in (_tests / _folder).glob("test_*.py") if f.name != _file
            ]
else:
    collect_ignore = ["interpret"]

# A shell starts jobs in the background with interrupts ignored; tests send themselves some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import collector, costs, time_left
from tests.helpers.plain_draws import draw_plainly
from tstatic import flags, logs, places, records
from tstatic.ir import declare
from tstatic.runtime import scope

draw_plainly()

READ_SOURCES = {"measures", "source"}
"""Helpers that read the library's sources."""


def pytest_configure(config: pytest.Config) -> None:
    """Says once a minute how long the rest takes, and measures what it costs where it is asked to."""
    time_left.register(config)
    costs.register(config)
    collector.register(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests that read the library's sources first, and leaves out what looks at the numpy device elsewhere.

    A tree of a file is made once per process: side by side, most of these tests run in one.

    The marker says why, and may name the only backends (``not_on``) under which it does so, alone or with another (``fake+torch``).
    """
    items.sort(key=lambda item: READ_SOURCES.isdisjoint(vars(getattr(item, "module", item))))
    backend = os.environ.get("TSTATIC_CPU_BACKEND") or "numpy"
    if backend not in ("numpy", "interpret"):
        for item in items:
            marker = item.get_closest_marker("numpy_device")
            if marker is not None and {backend, *backend.split("+")} & {*marker.kwargs.get("not_on", (backend,))}:
                why = "; ".join(map(str, marker.args))
                item.add_marker(pytest.mark.skip(reason=f"CPU places run on '{backend}'{why and f': {why}'}"))


_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, max_examples=40, suppress_health_check=_SLOW)
# The same examples every time, and nothing remembered: a failure in CI is the change's fault and repeats anywhere.
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=_SLOW,
)
settings.register_profile("proof", deadline=None, max_examples=2000, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(autouse=True)
def _fresh_world(request: pytest.FixtureRequest) -> Iterator[None]:
    """Starts each test with empty default programs, scope, names, flags and place, and puts the environment back."""
    environment = dict(os.environ)
    if hasattr(request.module, "own_calls"):
        # Tests that count the calls of a run: to fill memory takes some.
        os.environ.update(FLAGS_init_allocated_mem="0")
    declare.reset_default_programs()
    scope.reset_global_scope()
    flags._reset_for_tests()
    places._reset_for_tests()
    logs.forget_warnings()
    records.recorder = None
    yield
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
