"""Compiles kernels before they are launched, in a process of its own: ``compiling.py FOLDER NUMBER``.

Many such processes share the jobs of ``FOLDER/jobs.json``: each takes the next that nobody has taken. What they compile lies in
Triton's cache, where the launch finds it. A kernel's jobs need numpy and triton alone, and no GPU: the chip is named. A job of
torch.compile needs torch and the GPU.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from packfile import Json, described  # noqa: E402 - found through the line above

JOBS = "jobs.json"
_WIDTH = {"bool": "i1"}


def load(text: str, name: str) -> ModuleType:
    """Imports a kernel's module from a file that is named by its content: Triton reads the source there."""
    stem = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if stem in sys.modules:
        return sys.modules[stem]
    path = Path(_folder(), f"{stem}.py")
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[stem]
        raise
    return module


_made: list[Any] = []


def _folder() -> str:
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="kernels-"))
    name: str = _made[0].name
    return name


# ----------------------------------------------------------------------------------------------------------------- jobs
def jobs_of(cases: list[Json]) -> list[Json]:
    """What is to be compiled for some cases: each launch once, large texts first."""
    found: dict[str, Json] = {}
    for case in cases:
        for variant in (case["check"], case["time"]):
            types = _types(variant)
            ways = variant.get("ways", {}).values()
            launches = [launch for way in (variant["launches"], *ways) for launch in way]
            for launch in (one for one in launches if "function" in one):
                job = {
                    "case": case["name"], "text": variant["text"], "kernel": variant["kernel"], "function": launch["function"],
                    "arguments": [{"pointer": types[a]} if isinstance(a, str) else {"value": a} for a in launch["arguments"]],
                    "constants": launch["constants"], "options": launch["options"],
                }  # fmt: skip
                found.setdefault(_key(job), job)
    return sorted(found.values(), key=lambda job: -len(job["text"]))


def _types(variant: Mapping[str, Any]) -> dict[str, str]:
    named = {name: entry["dtype"] for part in ("inputs", "outputs") for name, entry in variant[part].items()}
    named |= {name: dtype for name, (_, dtype) in variant["partials"].items()}
    return named | {name: table["dtype"] for name, table in variant["tables"].items()}


def _key(job: Json) -> str:
    """The same for jobs that Triton would compile once: numbers count by being 1, by 16 dividing them, and by their width."""
    shapes = [
        [v == 1, isinstance(v, float), v % 16 == 0, abs(v) < 2**31] if (v := a.get("value")) is not None else a
        for a in job["arguments"]
    ]
    rest = [job["text"], job["function"], job["constants"], job["options"]]
    return hashlib.sha256(json.dumps([shapes, *rest]).encode()).hexdigest()


class _Dtype:
    """What Triton reads of a tensor's type, without torch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dtype) and other.name == self.name


_DTYPES: dict[str, _Dtype] = {}


class _Pointer:
    """Stands where a tensor will: all of torch's begin at a multiple of 16."""

    def __init__(self, dtype: str) -> None:
        self.dtype = _DTYPES.setdefault(dtype, _Dtype(dtype))

    @staticmethod
    def data_ptr() -> int:
        return 0

    @staticmethod
    def ptr_range() -> int:
        return 0


class _Chip:
    """Triton's driver of a chip that this process does not touch."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    @staticmethod
    def get_current_device() -> int:
        return 0

    @staticmethod
    def get_current_stream(device: int) -> int:
        return 0


def compile_kernel(job: Json) -> None:
    """Compiles a launch for the active driver's chip; the launch will find it in the cache."""
    function = getattr(load(job["text"], job["kernel"]), job["function"])
    values = [_Pointer(a["pointer"]) if "pointer" in a else a["value"] for a in job["arguments"]]
    function.warmup(*values, grid=(1,), **job["constants"], **job["options"])


def compile_peer(job: Json, pack: Path, device: Any) -> None:
    """Has torch.compile make what a row is compared with, at the size that is timed; its own cache keeps it."""
    from packfile import read_head
    from runner import Bench, peer_of

    case = next(c for c in read_head(pack)["cases"] if c["name"] == job["peer"])
    peer = peer_of(case)
    if peer is None:
        raise LookupError("torch's version of this row is not known")
    for calls in peer.compiled_calls(device, case["time"], [Bench(device, {}).tensors(case["time"], tables=False)]):
        for call in calls:
            call()
    device.wait()


# -------------------------------------------------------------------------------------------------------------- process
def main(folder: Path, number: int) -> None:
    """Takes jobs until none is left; says in a line of its own file what became of each."""
    plan = json.loads((folder / JOBS).read_text())
    peers = number >= plan["kernel_processes"]
    if not peers:
        os.environ.pop("TRITON_INTERPRET", None)
        from triton.runtime import driver

        driver.set_active(_Chip(plan["capability"]))
    with (folder / f"done-{number}.jsonl").open("a") as done:
        for place, job in enumerate(plan["peers" if peers else "kernels"]):
            try:
                os.close(os.open(folder / f"{'peer' if peers else 'kernel'}-{place}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            begun = time.perf_counter()
            line: Json = {"job": place, "peers": peers}
            try:
                if peers:
                    from device import Cuda  # needs torch, which kernels' jobs do without

                    compile_peer(job, Path(plan["pack"]), Cuda())
                else:
                    compile_kernel(job)
            except (Exception, SystemExit) as error:
                line["error"] = described(error)
            line["seconds"] = time.perf_counter() - begun
            done.write(json.dumps(line) + "\n")
            done.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
