"""The interpreter's tests with every kernel launched on a GPU instead: ``python bench/gpu/ring.py [pytest arguments]``.

Programs, tolerances and references are those of ``tests/interpret``; only the launches go elsewhere, with the tiles and
grids that a GPU gets. Needs torch, triton, pytest, hypothesis and tstatic with its libraries.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
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

import numpy as np  # noqa: E402

LIMIT_S = 540.0
ADDRESSES = "table:addresses"
NEEDED = (
    "numpy",
    "torch",
    "triton",
    "pytest",
    "hypothesis",
    "ml_dtypes",
    "msgspec",
    "safetensors",
    "threadpoolctl",
    "scipy",
)

Array = np.ndarray[Any, Any]


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
        return self.device.put(np.ascontiguousarray(array).reshape(-1).view(np.uint8), "uint8")


def _write_back(array: Array, after: Array) -> None:
    """Writes what changed, and only that: another array of the plan may share the rest of the memory."""
    memory = array.reshape(-1).view(np.uint8)
    changed = memory != after
    if changed.any():
        memory[changed] = after[changed]


def _as(whole: Any, array: Array) -> Any:
    import torch  # after the choice between compiling and interpreting

    kind = getattr(torch, array.dtype.name)
    return whole[: array.nbytes].view(kind)


class Plugin:
    """Lets pytest's tests launch on a device, and counts."""

    def __init__(self, fake: bool, limit_s: float) -> None:
        self.fake = fake
        self.end = time.monotonic() + limit_s
        self.failed: dict[str, str] = {}
        self.passed = self.skipped = 0
        self.launches: Launches | None = None
        self.facts: dict[str, Any] = {}
        self.stopped = ""
        self._before = 0

    def pytest_configure(self, config: Any) -> None:
        """After the conftest, which asks for the interpreter, and before anything imports triton."""
        if self.fake:
            os.environ["TRITON_INTERPRET"] = "1"
        else:
            assert "triton" not in sys.modules, "triton was imported as an interpreter"
            os.environ.pop("TRITON_INTERPRET", None)
        from device import Cuda, Fake

        from tstatic.devices import interpret
        from tstatic.fusion.codegen.kernel import Kernel

        device = Fake() if self.fake else Cuda()
        self.facts = device.facts()
        self.launches = Launches(device)
        interpret.bind = self.launches.bind
        if not self.fake:
            interpret.begin = lambda: None
        _with_gpu_tiles(Kernel)

    def pytest_runtest_setup(self, item: Any) -> None:
        """Remembers how much was launched before a test."""
        assert self.launches is not None
        self._before = self.launches.count

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts; a failed assertion of a test that launched nothing is about launches for the interpreter."""
        assert self.launches is not None
        if report.when == "call" and report.passed:
            self.passed += 1
        elif report.skipped:
            self.skipped += 1
        elif report.failed:
            if (
                report.when == "call"
                and self.launches.count == self._before
                and "AssertionError" in report.longreprtext
            ):
                report.outcome = "skipped"
                report.longrepr = (report.nodeid, 0, "Skipped: it launches nothing")
                self.skipped += 1
            else:
                self.failed[report.nodeid] = report.longreprtext[-1500:]

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        """Ends the run when its time is up: this test is taken as done, and no other is begun."""
        if time.monotonic() <= self.end:
            return None
        self.stopped = self.stopped or f"the time was up before {item.nodeid}"
        item.session.shouldstop = self.stopped
        return True


def _with_gpu_tiles(kernel: Any) -> None:
    """Has every kernel planned as for a GPU, also where tests ask for the interpreter's few large programs."""
    plain = kernel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        plan = self.plan
        object.__setattr__(self, "plan", lambda few: plan(False))

    kernel.__init__ = made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 1 where a test failed, 2 where something is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fake", action="store_true", help="stay in the interpreter, with a GPU's tiles: no GPU needed"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which no test is begun")
    parser.add_argument("--output-json", type=Path, help="where to write")
    args, rest = parser.parse_known_args(arguments)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"cannot run: {sys.executable} lacks {', '.join(missing)}", file=sys.stderr)
        return 2
    os.environ["TSTATIC_CPU_BACKEND"] = "interpret"
    os.chdir(ROOT)
    import pytest  # may be absent, which was said above

    plugin = Plugin(args.fake, args.limit)
    begun = time.monotonic()
    paths = [] if any(not a.startswith("-") and Path(a.split("::")[0]).exists() for a in rest) else ["tests/interpret"]
    code = int(pytest.main(["-q", "-p", "no:cacheprovider", *paths, *rest], plugins=[plugin]))
    assert plugin.launches is not None
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "facts": plugin.facts,
        "seconds": time.monotonic() - begun, "passed": plugin.passed, "skipped": plugin.skipped,
        "kernels": len(plugin.launches.modules), "launched": plugin.launches.count, "stopped": plugin.stopped,
        "failed": plugin.failed,
    }  # fmt: skip
    name = f"gpu-tests-{datetime.datetime.now(datetime.UTC).date().isoformat()}.json"
    path = args.output_json or ROOT / "bench" / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{plugin.passed} tests, {len(plugin.launches.modules)} kernels, {plugin.launches.count} calls; written to {path}"
    )
    return 1 if plugin.failed else 2 if code not in (0, 1) else int(bool(plugin.stopped))


if __name__ == "__main__":
    sys.exit(main())
