"""Has processes compile the kernels of a plan before it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import compiling
from contact import usable_cores
from packfile import Json

from tstatic.fusion.codegen.kernel import STOPPED, Launch

HERE = Path(__file__).resolve().parent
COMPILE_S = 120.0


def jobs_of(plan: Any) -> list[Json]:
    """What is to be compiled for a plan: each launch once, large texts first."""
    jobs: dict[str, Json] = {}
    for made in plan.kernels.values():
        kernel = made.kernel
        types = {b.value: b.dtype.name for b in (*kernel.inputs, *kernel.outputs)}
        types |= {n: dtype.name for n, (_, dtype) in made.calls.partials.items()}
        for launch in made.calls.launches:
            if not isinstance(launch, Launch):
                continue
            arguments = [
                {"pointer": types.get(a, "bool" if a == STOPPED else "int64")} if isinstance(a, str) else {"value": a}
                for a in launch.arguments
            ]
            job = {
                "case": kernel.name, "text": kernel.text, "kernel": kernel.name, "function": launch.function,
                "arguments": arguments, "constants": dict(launch.constants), "options": dict(launch.options),
            }  # fmt: skip
            jobs.setdefault(compiling._key(job), job)
    return sorted(jobs.values(), key=lambda job: -len(job["text"]))


def compiled_beforehand(plan: Any, capability: int) -> Json:
    """Has processes compile the kernels of a plan, and says how many there were and which failed.

    Args:
        plan: The plan.
        capability: Of the chip, such as 90.
    """
    wanted = jobs_of(plan)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = max(1, min(usable_cores() - 1, len(wanted)))
        plan_of_jobs = {
            "capability": capability,
            "pack": "",
            "kernel_processes": count,
            "kernels": wanted,
            "peers": [],
        }
        (folder / compiling.JOBS).write_text(json.dumps(plan_of_jobs))
        command = [sys.executable, str(HERE / "compiling.py"), name]
        running = [subprocess.Popen([*command, str(n)], stderr=subprocess.DEVNULL) for n in range(count)]
        end = time.time() + COMPILE_S
        for process in running:
            try:
                process.wait(timeout=max(0.1, end - time.time()))
            except subprocess.TimeoutExpired:
                process.kill()
        lines = [json.loads(x) for path in folder.glob("done-*.jsonl") for x in path.read_text().splitlines()]
    failed = [line["error"][:200] for line in lines if "error" in line]
    return {
        "kernels": len(plan.kernels),
        "compiled": len(lines) - len(failed),
        "jobs": len(wanted),
        "failed": failed[:5],
    }
