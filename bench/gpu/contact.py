"""First contact with a GPU, in 90 seconds: versions, ceilings, and one kernel per template and fusion, right and how fast.

``python bench/gpu/contact.py`` needs torch, triton, numpy, and the file that ``pack.py`` writes (which it makes itself where
tstatic can be imported). What it finds is on disk after every step: whenever it ends, the JSON file holds all until then.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import report  # noqa: E402 - found through the line above

LIMIT_S = 80.0
GRACE_S = 6.0
"""How long after the limit a call that does not return is given up."""

COPY_SHARE = 0.93
"""Part of a copy's speed that a streaming kernel reaches."""
MATRIX_SHARE = 0.86
LAUNCH_S = 2.0e-6
"""What a launch in a graph costs."""
ROTATE = 4
"""What is timed works on so many times the cache."""

Json = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------------- model
def predicted(variant: Mapping[str, Any], ceilings: Mapping[str, float]) -> float:
    """Seconds of a run: bytes or operations, whichever take longer, and the launches."""
    memory = variant["bytes"] / (COPY_SHARE * ceilings["bytes_per_s"])
    arithmetic = variant["flops"] / (MATRIX_SHARE * ceilings["flops_per_s"])
    return float(max(memory, arithmetic) + LAUNCH_S * len(variant["launches"]))


def load_module(text: str, name: str) -> ModuleType:
    """Imports a kernel's module through tstatic's cache, or from a temporary file where tstatic cannot be imported."""
    cache = _cache()
    module: ModuleType = cache.load(text, name) if cache is not None else _from_file(text, name)
    return module


@functools.cache
def _cache() -> Any:
    try:
        from tstatic.fusion import cache  # may be absent, or lack a library of its own here
    except ImportError:
        return None
    return cache


_files = tempfile.TemporaryDirectory(prefix="kernels-")


def _from_file(text: str, name: str) -> ModuleType:
    # By its content: two texts may have one name.
    path = Path(_files.name, f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py")
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


# -------------------------------------------------------------------------------------------------------------- a kernel
class Bench:
    """Runs the cases of a pack on a device.

    Args:
        device: Of ``device.py``.
        arrays: The pack's arrays.
        load: ``(text, name) -> module``.
    """

    def __init__(
        self, device: Any, arrays: Mapping[str, Any], load: Callable[[str, str], ModuleType] = load_module
    ) -> None:
        self.device = device
        self.arrays = arrays
        self.load = load

    def tensors(self, variant: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs (given, or drawn), outputs and partial sums (full of NaN), and tables."""
        device = self.device
        made: dict[str, Any] = {}
        for name, entry in variant["inputs"].items():
            if "array" in entry:
                made[name] = device.put(self.arrays[f"a{entry['array']}"], entry["dtype"])
            else:
                made[name] = device.draw(_count(entry), entry["dtype"], entry["kind"])
        for name, entry in variant["outputs"].items():
            made[name] = device.empty(_count(entry), entry["dtype"])
        for name, (count, dtype) in variant["partials"].items():
            made[name] = device.empty(count, dtype)
        for name, table in variant["tables"].items():
            numbers = (
                np.array([made[v].data_ptr() for v in table["values"]], np.int64)
                if "values" in table
                else self.arrays[f"a{table['array']}"]
            )
            made[name] = device.put(numbers, "int64")
        return made

    def check(self, variant: Mapping[str, Any]) -> Json:
        """Compares with the exact values: the worst output's distance as a multiple of what it may be."""
        module = self.load(variant["text"], variant["kernel"])
        tensors = self.tensors(variant)
        start = time.perf_counter()
        for call in self.device.bind(module, variant["launches"], tensors):
            call()
        self.device.wait()
        found: Json = {"first_run_s": time.perf_counter() - start, "errors": {}, "right": True}
        for name, entry in variant["outputs"].items():
            got, exact = self.device.get(tensors[name]), self.arrays[f"a{entry['array']}"].reshape(-1)
            error = _distance(got, exact)
            right = error <= entry["bound"]  # False for NaN
            found["errors"][name] = {"relative": error, "bound": entry["bound"], "right": right}
            found["right"] &= right
        # Reports stay short: of many equal ones the worst are kept.
        worst = sorted(found["errors"].items(), key=lambda pair: -_badness(pair[1]))
        found["errors"] = dict(worst[:8])
        return found

    def time(self, variant: Mapping[str, Any], expected: float) -> Json:
        """Times the kernel over tensors that do not fit in the cache, and looks for elements that nobody wrote."""
        module = self.load(variant["text"], variant["kernel"])
        count = min(16, max(1, -(-ROTATE * self.device.cache_bytes // max(1, variant["bytes"]))))
        start = time.perf_counter()
        sets = [self.tensors(variant) for _ in range(count)]
        calls = [self.device.bind(module, variant["launches"], tensors) for tensors in sets]
        found: Json = {"sets": count, **self.device.seconds(calls, expected)}
        found["wall_s"] = time.perf_counter() - start
        unwritten = {n: bad for n in variant["outputs"] if (bad := int((sets[0][n] != sets[0][n]).sum()))}
        found["unwritten"] = unwritten
        return found


def _count(entry: Mapping[str, Any]) -> int:
    return int(np.prod(entry["shape"], dtype=np.int64))


def _distance(got: Any, exact: Any) -> float:
    size = float(np.linalg.norm(exact.astype(np.float64)))
    return float(np.linalg.norm(got.astype(np.float64) - exact) / (size or 1.0))


def _badness(error: Mapping[str, Any]) -> float:
    relative = float(error["relative"])
    return float("inf") if relative != relative else relative / (error["bound"] or 1e-12)


# ------------------------------------------------------------------------------------------------------------------ run
def run(
    device: Any,
    pack: Mapping[str, Any],
    path: Path,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    load: Callable[[str, str], ModuleType] = load_module,
    say: Callable[[str], None] = print,
) -> Json:
    """The whole contact; the file at ``path`` is written anew after every step.

    Args:
        device: Of ``device.py``.
        pack: ``cases``, ``skipped`` and ``arrays``.
        path: Of the JSON file.
        limit_s: Seconds after which no further kernel is begun.
        clock: Seconds.
        load: Imports a kernel's text.
        say: Is told each line of the table.
    """
    begun = clock()
    result: Json = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "commit": report.commit(),
        "facts": device.facts(), "skipped": dict(pack["skipped"]), "cases": [], "stopped": "",
    }  # fmt: skip

    def save() -> None:
        result["seconds"] = clock() - begun
        write(result, path)

    save()
    bench = Bench(device, pack["arrays"], load)
    result["ceilings"] = device.ceilings()
    say(
        f"copy {result['ceilings']['bytes_per_s'] / 1e12:.2f} TB/s, matrix {result['ceilings']['flops_per_s'] / 1e12:.0f} TFLOP/s"
    )
    for number, case in enumerate(pack["cases"]):
        if clock() - begun > limit_s:
            result["stopped"] = f"the time was up after {number} of {len(pack['cases'])} kernels"
            break
        expected = predicted(case["time"], result["ceilings"])
        row: Json = {
            "name": case["name"], "fusion": case["fusion"], "template": case["template"],
            "launches": len(case["time"]["launches"]), "bytes": case["time"]["bytes"], "predicted_s": expected,
        }  # fmt: skip
        result["cases"].append(row)
        # What is predicted is on disk before anything is measured.
        save()
        try:
            row["check"] = bench.check(case["check"])
            if row["check"]["right"]:
                row["time"] = bench.time(case["time"], expected)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:2000]
            if type(error).__name__ == "DeviceLostError" or not _alive(device):
                result["stopped"] = f"the device was lost at {case['name']}"
        save()
        say(line(row))
        if result["stopped"]:
            break
    save()
    if result["stopped"]:
        say(result["stopped"])
    return result


def _alive(device: Any) -> bool:
    try:
        device.wait()
    except Exception:
        return False
    return True


def good(row: Mapping[str, Any]) -> bool:
    """Whether a kernel compiled, is right, and wrote all that it should."""
    return "time" in row and not row["time"]["unwritten"]


def line(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    expected = f"{row['predicted_s'] * 1e6:9.1f}"
    if "error" in row:
        return f"{row['name']:58} {expected} FAILED: {row['error'].splitlines()[0][:90]}"
    if not row["check"]["right"]:
        name, worst = next(iter(row["check"]["errors"].items()))
        return (
            f"{row['name']:58} {expected} WRONG: {name} is off by {worst['relative']:.1e}, allowed {worst['bound']:.1e}"
        )
    t = row["time"]
    text = f"{row['name']:58} {expected} {t['median_s'] * 1e6:9.1f} us  x{t['median_s'] / row['predicted_s']:.2f}"
    text += f"  {row['bytes'] / t['median_s'] / 1e12:.2f} TB/s"
    return text + (f"  UNWRITTEN: {t['unwritten']}" if t["unwritten"] else "")


def write(result: Mapping[str, Any], path: Path) -> None:
    """Writes the file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".tmp")
    staged.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(staged, path)


def read_pack(path: Path) -> Json:
    """The file that ``pack.py`` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != "head"}
        head: Json = json.loads(file["head"].tobytes())
    return {**head, "arrays": arrays}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs on the first GPU; 1 where a kernel is not good, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pack", type=Path, default=HERE.parent / "out" / "gpu-pack.npz", help="file of pack.py")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which no kernel is begun")
    parser.add_argument("--grace", type=float, default=GRACE_S, help="seconds after that when a call is given up")
    parser.add_argument("--output-json", type=Path, help="where to write")
    parser.add_argument("--fake", action="store_true", help="interpret the kernels and invent the times: no GPU needed")
    args = parser.parse_args(arguments)
    begun = time.monotonic()
    if args.fake:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton's first import
    from device import Cuda, DeviceLostError, Fake

    try:
        device = Fake() if args.fake else Cuda()
    except DeviceLostError as error:
        print(f"no contact: {error}", file=sys.stderr)
        return 2
    if not args.pack.exists():
        import pack as packing  # needs tstatic with all of its libraries

        packing.main([str(args.pack)])
    name = f"contact-{datetime.datetime.now(datetime.UTC).date().isoformat()}.json"
    path = args.output_json or HERE.parent / "results" / name
    left = args.limit - (time.monotonic() - begun)

    def give_up() -> None:
        print(f"a call does not return; what was found until then is in {path}", file=sys.stderr, flush=True)
        os._exit(3)

    watch = threading.Timer(max(0.0, left) + args.grace, give_up)
    watch.daemon = True
    watch.start()
    result = run(device, read_pack(args.pack), path, left, say=lambda text: print(text, flush=True))
    watch.cancel()
    bad = [row["name"] for row in result["cases"] if not good(row)]
    print(f"{len(result['cases']) - len(bad)} of {len(result['cases'])} kernels are good; written to {path}")
    return int(bool(bad) or bool(result["stopped"]))


if __name__ == "__main__":
    sys.exit(main())
