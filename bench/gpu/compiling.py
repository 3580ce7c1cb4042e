"""Compiles kernels before they are launched, in a process of its own: ``compiling.py FOLDER NUMBER``.

Many such processes share the jobs of ``FOLDER/jobs.json``: each takes the next that nobody has taken. What they compile lies in
Triton's cache, where the launch finds it. A kernel's jobs need numpy and triton alone, and no GPU: the chip is named. A job of
torch.compile needs torch and the GPU.
"""

from __future__ import annotations

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


def _by_path(name: str) -> ModuleType:
    """A file of ``tstatic/chips`` that needs the standard library alone: tstatic itself may not be importable here."""
    stem = f"tstatic_chips_{name}"
    if stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(stem, HERE.parents[1] / "tstatic" / "chips" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[stem])
    return sys.modules[stem]


worker = _by_path("aot_worker")
_key = worker.alike
_made: list[Any] = []


def load(text: str, name: str) -> ModuleType:
    """Imports a kernel's module from a file that is named by its content: Triton reads the source there."""
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="kernels-"))
    module: ModuleType = worker.load(text, Path(_made[0].name))
    return module


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
                found.setdefault(worker.alike(job), job)
    return sorted(found.values(), key=lambda job: -len(job["text"]))


def _types(variant: Mapping[str, Any]) -> dict[str, str]:
    named = {name: entry["dtype"] for part in ("inputs", "outputs") for name, entry in variant[part].items()}
    named |= {name: dtype for name, (_, dtype) in variant["partials"].items()}
    return named | {name: table["dtype"] for name, table in variant["tables"].items()}


def compile_kernel(job: Json) -> None:
    """Compiles a launch for the active driver's chip; the launch will find it in the cache."""
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="kernels-"))
    worker.compile_launch({**job, "launcher": True}, Path(_made[0].name))


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
        worker.use_chip(plan["capability"])
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
