"""A process of ``ring.py`` that runs tests: ``ring_worker.py FOLDER NUMBER``.

``FOLDER/job.json`` says which; of these it takes those that no other worker has taken. Needs what the tests need, and adds to the
lines of results: ``begin`` before a test, ``test`` behind it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]

from packfile import Json, Lines, described  # noqa: E402 - found through the line above
from supervisor import LOST, Claims  # noqa: E402

JOB = "job.json"
DEFAULTS = {"tests": "tests/interpret", "programs": "tests/gpu"}
"""Results -> the folder of their tests."""
SEEDS = HERE.parent / "out" / "seeds"
"""Where ``pack.py`` puts the documents whose samples run, so that they travel with the kernels."""
ADDRESSES = "table:addresses"

Array = Any
"""A numpy array: numpy is imported where it is used, since it may be absent."""


class Launches:
    """What takes the place of ``tstatic.devices.interpret.bind_launches``: arrays go to the device, and come back when it is done.

    Args:
        device: Of ``device.py``.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.count = 0
        self.modules: set[str] = set()
        self._told: set[str] = set()

    def new_modules(self) -> set[str]:
        """Names of the modules that were launched first since the last question."""
        new, self._told = self.modules - self._told, set(self.modules)
        return new

    def bind_launches(
        self, module: ModuleType, launches: Sequence[tuple[Any, ...]], arrays: Mapping[str, Any]
    ) -> list[Any]:
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
            for call in self.device.bind_launches(module, [launch], tensors):
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
    """Lets pytest's tests launch on a device, takes those that are nobody's, and adds lines for each.

    Args:
        dry_run: Stay in the interpreter.
        end: When no test is begun any more (``time.time``).
        add: Adds a line.
        claims: Shared by the workers.
        passed: Names of the tests that come last.

    Attributes:
        nothing_launched: Whether a failed assertion of a test that launched nothing says nothing about the device.
    """

    nothing_launched = True

    def __init__(
        self, dry_run: bool, end: float, add: Callable[..., None], claims: Claims, passed: Collection[str] = ()
    ) -> None:
        self.dry_run = dry_run
        self.passed = frozenset(passed)
        self.end = end
        self.add = add
        self.claims = claims
        self.device: Any = None
        self.launches = Launches(None)
        self._before = 0
        self._failed = False

    def pytest_configure(self, config: Any) -> None:
        """After the conftest, which asks for the interpreter, and before anything imports triton."""
        if self.dry_run:
            os.environ["TRITON_INTERPRET"] = "1"
        else:
            assert "triton" not in sys.modules, "triton was imported as an interpreter"
            os.environ.pop("TRITON_INTERPRET", None)
        self.reach()
        from tstatic.devices import interpret
        from tstatic.fusion.codegen.kernel import Kernel

        interpret.bind_launches = self.launches.bind_launches
        if not self.dry_run:
            interpret.begin = lambda: None
        _with_gpu_tiles(Kernel)

    def reach(self) -> None:
        """Finds the device, or raises an error that says why not."""
        from device import Cuda, DryRun

        self.device = DryRun() if self.dry_run else Cuda()
        self.launches.device = self.device
        if self.claims.take("facts"):
            self.add("facts", **self.device.facts())

    def pytest_runtestloop(self, session: Any) -> bool:
        """Runs the tests that no other worker has taken, as long as there is time."""
        for item in () if session.config.option.collectonly else ordered(session.items, self.passed):
            # Outside of the root folder tests of several files have one name.
            if not self.claims.take("test", f"{item.path} {item.nodeid}"):
                continue
            if time.time() > self.end:
                if self.claims.take("stopped"):
                    self.add("stopped", why=f"the time was up before {item.nodeid}")
                break
            self._before, self._failed = self.launches.count, False
            self.add("begin", name=item.nodeid)
            # What is next is not known yet: another worker may take it.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            self._look_at_the_device(item.nodeid)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _look_at_the_device(self, name: str) -> None:
        """Ends the process when it has lost the device: all later tests would fail for what this one did."""
        for module in self.launches.new_modules():
            self.claims.take("kernel", module)
        try:
            self.device.wait()
        except Exception as error:
            if not self._failed:
                why = f"the device was lost: {described(error)}"
                self.add("test", name=name, outcome="failed", seconds=0.0, launched=0, error=why[:300], why=why[-1500:])
            # What a library does at the end of a process may hang without the device.
            os._exit(LOST)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Adds the line; a failed assertion of a test that launched nothing is about launches for the interpreter."""
        launched = self.launches.count - self._before
        about_launches = self.nothing_launched and not launched
        if report.when == "call" and report.failed and about_launches and "AssertionError" in report.longreprtext:
            report.outcome = "skipped"
            report.longrepr = (report.nodeid, 0, "Skipped: it launches nothing")
        if report.when != "call" and report.passed:
            return
        # A test that fails and cannot be cleaned up after has two lines.
        self._before = self.launches.count
        self._failed |= report.failed
        words = (
            {"error": _exception(report), "why": _causes(report) + report.longreprtext[-1500:]} if report.failed else {}
        )
        self.add(
            "test", name=report.nodeid, outcome=report.outcome, seconds=report.duration, launched=launched, **words
        )

    def pytest_internalerror(self, excrepr: Any) -> None:
        """An error of a hook, such as a device that is not there."""
        self._error("pytest", str(excrepr).strip()[-1500:])

    def pytest_collectreport(self, report: Any) -> None:
        """A file of tests that cannot be imported, for want of a library or whatever else, is a line."""
        if report.failed:
            self._error("collect", report.longreprtext[-1500:], name=report.nodeid)

    def _error(self, stage: str, error: str, **more: str) -> None:
        """Adds a line, if no other worker said the same."""
        if self.claims.take("error", more.get("name", error)):
            self.add("error", stage=stage, error=error, **more)


class Programs(Plugin):
    """Takes tests whose programs run on the GPU by themselves, and adds lines for each."""

    nothing_launched = False

    def pytest_configure(self, config: Any) -> None:
        """Before anything is collected: without a GPU, the tests would run on what stands in for one."""
        self.reach()


def ordered(items: Sequence[Any], passed: Collection[str]) -> list[Any]:
    """Tests that passed in the last record come behind all others."""
    return sorted(items, key=lambda item: item.nodeid in passed)


def _causes(report: Any) -> str:
    """The exceptions that others were raised from, the first one first: they stand far before the end of a traceback."""
    chain = getattr(report.longrepr, "chain", ())
    told = [str(crash.message)[:300] for _, crash, _ in chain[:-1] if crash is not None]
    return "".join(f"{text}\n" for text in told)


def _exception(report: Any) -> str:
    """What was raised, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext.strip().rpartition("\n")[2] if crash is None else crash.message
    if causes := _causes(report).split("\n")[0]:
        text = f"{causes[:110]} <- {text}"
    return " ".join(text.split())[:300]


def _with_gpu_tiles(kernel: Any) -> None:
    """Has every kernel planned as for a GPU, also where tests ask for the interpreter's few large programs."""
    from tstatic.target import DEFAULT_TARGET

    plain = kernel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        plan = self.plan
        object.__setattr__(self, "plan", lambda target: plan(DEFAULT_TARGET))

    kernel.__init__ = made


def run(job: Json, plugin: Plugin) -> int:
    """Runs pytest with settings of its own; what a plugin or a library is missing for is told by the tests that need it."""
    os.environ.pop("TSTATIC_CPU_BACKEND", None)
    os.environ.pop("TRITON_INTERPRET", None)
    if plugin.nothing_launched:
        os.environ["TSTATIC_CPU_BACKEND"] = "interpret"
    elif SEEDS.is_dir():
        os.environ.setdefault("TSTATIC_SEEDS", str(SEEDS))
    os.chdir(ROOT)
    import pytest  # may be absent

    rest = job["arguments"]
    named = any(not a.startswith("-") and Path(a.split("::")[0]).exists() for a in rest)
    settings = ["-c", str(HERE / "ring.ini"), "--rootdir", str(ROOT), "--continue-on-collection-errors"]
    paths = [] if named else [DEFAULTS[job["name"]]]
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *settings, *paths, *rest], plugins=[plugin]))


def main(folder: Path, number: int) -> int:
    """Runs; returns pytest's exit code, or 2 where it could not run."""
    job = json.loads((folder / JOB).read_text())
    claims = Claims(folder)
    add = functools.partial(Lines(Path(job["results"]), job["name"], job["begun"]).add, worker=number)
    plugin = (Programs if job["name"] == "programs" else Plugin)(
        job["dry_run"], job["end"], add, claims, job.get("passed", ())
    )  # fmt: skip
    try:
        code = run(job, plugin)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if claims.take("error", described(error)):
            add("error", stage="tests", error=described(error))
        code = 2
    claims.done(number).touch()
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
