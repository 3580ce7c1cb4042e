"""Tests on a GPU: ``python bench/gpu/ring.py [RESULTS] [--programs] [pytest arguments]``.

The interpreter's tests with every kernel launched on a GPU instead: programs, tolerances and references are those of
``tests/interpret``; only the launches go elsewhere, with the tiles and grids that a GPU gets. With ``--programs``, in a process of
its own: the tests of ``tests/gpu``, whose programs run on ``CUDAPlace(0)`` as a user's do. Needs torch, triton, pytest, hypothesis
and those of tstatic's libraries that kernels need. A line of ``RESULTS/tests.jsonl`` (``programs.jsonl``) follows each test; what
goes wrong, a missing library too, ends as a line there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]

import report  # noqa: E402 - found through the line above
from contact import LIBRARIES, put_aside, version  # noqa: E402
from packfile import Lines, described  # noqa: E402

LIMIT_S = 540.0
SEEDS = HERE.parent / "out" / "seeds"
"""Where ``pack.py`` puts the documents whose samples run, so that they travel with the kernels."""
ADDRESSES = "table:addresses"

Array = Any
"""A numpy array: numpy is imported where it is used, since it may be absent."""


class Launches:
    """What takes the place of ``tstatic.devices.interpret.bind``: arrays go to the device, and come back when it is done.

    Args:
        device: Of ``device.py``.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.count = 0
        self.modules: set[str] = set()

    def bind(self, module: ModuleType, launches: Sequence[tuple[Any, ...]], arrays: Mapping[str, Any]) -> list[Any]:
        """Ready calls, as the interpreter's."""
        import numpy as np

        named = {a for launch in launches for a in launch[2] if isinstance(a, str)}
        # Of several values that begin at one address the largest covers the others.
        largest: dict[int, Array] = {}
        for a in arrays.values():
            if isinstance(a, np.ndarray) and a.nbytes > largest.get(a.ctypes.data, np.empty(0)).nbytes:
                largest[a.ctypes.data] = a
        addresses = [int(p) for name in named if str(name) == ADDRESSES for p in arrays[name]]
        taken = {p: largest[p] for p in addresses if p in largest}
        for name in named:
            array = arrays[name]
            taken.setdefault(array.ctypes.data, largest.get(array.ctypes.data, array))
        self.modules.add(module.__name__)
        return [(self._run, (module, launches, {n: arrays[n] for n in named}, taken))]

    def _run(
        self,
        module: ModuleType,
        launches: Sequence[tuple[Any, ...]],
        arrays: Mapping[str, Array],
        taken: Mapping[int, Array],
    ) -> None:
        import numpy as np

        self.count += 1
        there = {place: self._upload(array) for place, array in taken.items()}
        tensors: dict[str, Any] = {}
        for name, array in arrays.items():
            if str(name) == ADDRESSES:
                translated = [there[p].data_ptr() if p in there else p for p in (int(x) for x in array)]
                tensors[name] = _as(self._upload(np.array(translated, np.int64)), array)
            else:
                whole = there[array.ctypes.data]
                tensors[name] = _as(whole, array)
        for function, grid, arguments, constants, options in launches:
            launch = {
                "function": function,
                "grid": grid,
                "arguments": arguments,
                "constants": constants,
                "options": options,
            }
            for call in self.device.bind(module, [launch], tensors):
                call()
        self.device.wait()
        for place, array in taken.items():
            if array.nbytes:
                _write_back(array, there[place].detach().cpu().numpy())

    def _upload(self, array: Array) -> Any:
        """An array's bytes as a tensor, padded as memory of plans is."""
        import numpy as np

        return self.device.put(np.ascontiguousarray(array).reshape(-1).view(np.uint8), "uint8")


def _write_back(array: Array, after: Array) -> None:
    """Writes what changed, and only that: another array of the plan may share the rest of the memory."""
    import numpy as np

    memory = array.reshape(-1).view(np.uint8)
    changed = memory != after
    if changed.any():
        memory[changed] = after[changed]


def _as(whole: Any, array: Array) -> Any:
    import torch  # after the choice between compiling and interpreting

    kind = getattr(torch, array.dtype.name)
    return whole[: array.nbytes].view(kind)


class Plugin:
    """Lets pytest's tests launch on a device, counts, and adds a line for each.

    Attributes:
        default: The folder of its tests.
        nothing_launched: Whether a failed assertion of a test that launched nothing says nothing about the device.
    """

    default = "tests/interpret"
    nothing_launched = True

    def __init__(self, dry_run: bool, limit_s: float, lines: Lines) -> None:
        self.dry_run = dry_run
        self.lines = lines
        self.end = time.monotonic() + limit_s
        self.passed = self.skipped = self.failed = 0
        self.launches: Launches | None = None
        self.stopped = ""
        self._before = 0

    def pytest_configure(self, config: Any) -> None:
        """After the conftest, which asks for the interpreter, and before anything imports triton."""
        if self.dry_run:
            os.environ["TRITON_INTERPRET"] = "1"
        else:
            assert "triton" not in sys.modules, "triton was imported as an interpreter"
            os.environ.pop("TRITON_INTERPRET", None)
        from device import Cuda, DryRun

        from tstatic.devices import interpret
        from tstatic.fusion.codegen.kernel import Kernel

        device = DryRun() if self.dry_run else Cuda()
        self.lines.add("facts", **device.facts())
        self.launches = Launches(device)
        interpret.bind = self.launches.bind
        if not self.dry_run:
            interpret.begin = lambda: None
        _with_gpu_tiles(Kernel)

    def pytest_runtest_setup(self, item: Any) -> None:
        """Remembers how much was launched before a test."""
        assert self.launches is not None
        self._before = self.launches.count

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts; a failed assertion of a test that launched nothing is about launches for the interpreter."""
        assert self.launches is not None
        launched = self.launches.count - self._before
        about_launches = self.nothing_launched and not launched
        if report.when == "call" and report.failed and about_launches and "AssertionError" in report.longreprtext:
            report.outcome = "skipped"
            report.longrepr = (report.nodeid, 0, "Skipped: it launches nothing")
        if report.when != "call" and report.passed:
            return
        # A test that fails and cannot be cleaned up after has two lines.
        self.passed += report.passed
        self.skipped += report.skipped
        self.failed += report.failed
        words = {"why": report.longreprtext[-1500:]} if report.failed else {}
        self.lines.add(
            "test", name=report.nodeid, outcome=report.outcome, seconds=report.duration, launched=launched, **words
        )

    def pytest_internalerror(self, excrepr: Any) -> None:
        """An error of a hook, such as a device that is not there."""
        self.lines.add("error", stage="pytest", error=str(excrepr).strip()[-1500:])

    def pytest_collectreport(self, report: Any) -> None:
        """A file of tests that cannot be imported, for want of a library or whatever else, is a line."""
        if report.failed:
            self.failed += 1
            self.lines.add("error", stage="collect", name=report.nodeid, error=report.longreprtext[-1500:])

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        """Ends the run when its time is up: this test is taken as done, and no other is begun."""
        if time.monotonic() <= self.end:
            return None
        self.stopped = self.stopped or f"the time was up before {item.nodeid}"
        item.session.shouldstop = self.stopped
        return True


class Programs(Plugin):
    """Counts tests whose programs run on the GPU by themselves, and adds a line for each."""

    default = "tests/gpu"
    nothing_launched = False

    def pytest_configure(self, config: Any) -> None:
        """Before anything is collected: without a GPU, the tests would run on what stands in for one."""
        from device import Cuda, DryRun

        self.lines.add("facts", **(DryRun() if self.dry_run else Cuda()).facts())
        self.launches = Launches(None)


def _with_gpu_tiles(kernel: Any) -> None:
    """Has every kernel planned as for a GPU, also where tests ask for the interpreter's few large programs."""
    from tstatic.target import DEFAULT_TARGET

    plain = kernel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        plan = self.plan
        object.__setattr__(self, "plan", lambda target: plan(DEFAULT_TARGET))

    kernel.__init__ = made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 1 where a test failed, 2 where none could be run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, usage="ring.py [RESULTS] [options] [pytest arguments]")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    default = ROOT / "bench" / "results" / f"gpu-{today}"
    parser.add_argument(
        "--dry-run", action="store_true", help="stay in the interpreter, with a GPU's tiles: no GPU needed"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which no test is begun")
    parser.add_argument("--programs", action="store_true", help="the tests of tests/gpu, on CUDAPlace(0)")
    # Only as the first: behind an option of pytest a word is that option's.
    results = Path(given.pop(0)) if given and not given[0].startswith("-") else default
    args, rest = parser.parse_known_args(given)
    results = results.resolve()
    name = "programs" if args.programs else "tests"
    put_aside(results / f"{name}.jsonl")
    lines = Lines(results, name, time.time())
    lines.add(
        "start", date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), commit=report.commit(),
        python=sys.version.split()[0], libraries={name: version(name) for name in (*LIBRARIES, "pytest-timeout")},
    )  # fmt: skip
    plugin = (Programs if args.programs else Plugin)(args.dry_run, args.limit, lines)
    try:
        code = _tests(plugin, rest)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        lines.add("error", stage="tests", error=described(error))
        print(f"cannot run: {described(error)}", file=sys.stderr)
        code = 2
    launches = plugin.launches or Launches(None)
    lines.add(
        "end", passed=plugin.passed, skipped=plugin.skipped, failed=plugin.failed, kernels=len(launches.modules),
        launched=launches.count, stopped=plugin.stopped, code=code,
    )  # fmt: skip
    print(f"{plugin.passed} tests, {len(launches.modules)} kernels, {launches.count} calls; all is in {lines.path}")
    return 1 if plugin.failed else 2 if code not in (0, 1) else int(bool(plugin.stopped))


def _tests(plugin: Plugin, rest: Sequence[str]) -> int:
    """Runs pytest with settings of its own; what a plugin or a library is missing for is told by the tests that need it."""
    os.environ.pop("TSTATIC_CPU_BACKEND", None)
    if plugin.nothing_launched:
        os.environ["TSTATIC_CPU_BACKEND"] = "interpret"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
        if SEEDS.is_dir():
            os.environ.setdefault("TSTATIC_SEEDS", str(SEEDS))
    os.chdir(ROOT)
    import pytest  # may be absent

    paths = [] if any(not a.startswith("-") and Path(a.split("::")[0]).exists() for a in rest) else [plugin.default]
    settings = ["-c", str(HERE / "ring.ini"), "--rootdir", str(ROOT), "--continue-on-collection-errors"]
    # What ends pytest before its first test, such as a library that conftest.py lacks, is said on the standard error alone.
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = int(pytest.main(["-q", "-p", "no:cacheprovider", *settings, *paths, *rest], plugins=[plugin]))
    print(said.getvalue(), end="", file=sys.stderr)
    if code not in (0, 1) and said.getvalue().strip():
        plugin.lines.add("error", stage="pytest", error=said.getvalue().strip()[-1500:])
    return code


if __name__ == "__main__":
    sys.exit(main())
