"""A trace of training steps by torch's profiler: which kernels ran, how long, the gaps between them, and how long the host took."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from packfile import Json
from place import Gpu
from torch.profiler import ProfilerActivity, profile, record_function

STEP = "traced step"
TRACED = 3
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHING = ("cuda_runtime", "cuda_driver")
LAUNCHES = ("launch", "memcpy", "memset")
"""What calls that put work into a stream have in their names: others wait, ask or allocate."""
ON_HOST = ("cpu_op",)
"""What a dry run traces in the place of kernels: torch's operators."""
MOST_GAPS = 20


class NoKernelError(Exception):
    """A trace has nothing of the device, as where CUPTI is missing."""


def _activities(gpu: Gpu) -> list[Any]:
    return [ProfilerActivity.CPU, *([] if gpu.dry else [ProfilerActivity.CUDA])]


def trace(gpu: Gpu, step: Callable[[], Any], path: Path, count: int = TRACED) -> Json:
    """Traces steps, writes the profiler's own file, and returns what it says of them.

    A process should trace once, and measure nothing afterwards: a profiler that was on may leave launches slower, and a second one
    may see no kernels. There is no empty session beforehand either, for the same reason.

    Raises:
        NoKernelError: If it says nothing of the device; the file is there all the same.
    """
    gpu.wait()
    with profile(activities=_activities(gpu)) as made:
        for _ in range(count):
            with record_function(STEP):
                step()
        gpu.wait()
    # The results' folder never has half of a file.
    half = path.with_name(f".{path.name}")
    made.export_chrome_trace(str(half))
    os.replace(half, path)
    events = json.loads(path.read_text(errors="replace"), strict=False)["traceEvents"]
    kinds = (ON_HOST, ON_HOST) if gpu.dry else (ON_DEVICE, LAUNCHING)
    return {"file": path.name, "torch": torch.__version__, **summary(events, *kinds)}


def summary(
    events: Sequence[Mapping[str, Any]], on_device: Sequence[str] = ON_DEVICE, launching: Sequence[str] = LAUNCHING
) -> Json:
    """What a trace says: each step, its kernels by name, and the longest gaps of the last step.

    Args:
        events: ``traceEvents`` of a Chrome trace, whose times are in microseconds.
        on_device: Categories of what the device does.
        launching: Categories of the host's calls that put work there.

    Raises:
        NoKernelError: If no step has work of the device.
    """
    whole = [e for e in events if e.get("ph") == "X" and "dur" in e]
    steps = sorted((e for e in whole if e.get("name") == STEP and e.get("cat") == "user_annotation"), key=_begin)
    work = sorted((e for e in whole if e.get("cat") in on_device), key=_begin)
    calls = [e for e in whole if e.get("cat") in launching and (launching == on_device or _launches(e["name"]))]
    told = [_step(step, work, calls) for step in steps]
    if not any(one["kernels"] for one in told):
        kinds = sorted({str(e.get("cat")) for e in whole})
        raise NoKernelError(f"the trace has no kernel (CUPTI missing?), only events of the kinds {', '.join(kinds)}")
    within = [e for step in steps for e in _within(step, work)]
    return {
        "steps": told,
        "kernels": _by_name(within, len(steps)),
        "gaps": _gaps(_within(steps[-1], work))[:MOST_GAPS],
    }


def _begin(event: Mapping[str, Any]) -> float:
    return float(event["ts"])


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"]) + float(event["dur"])


def _launches(name: str) -> bool:
    return any(word in name.lower() for word in LAUNCHES)


def _within(step: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [e for e in events if _begin(step) <= _begin(e) < _end(step)]


def _step(step: Mapping[str, Any], work: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> Json:
    """Microseconds of a step: by the clock, of the device, between its kernels, and of the host up to its last launch."""
    mine, launched = _within(step, work), _within(step, calls)
    gaps = _gaps(mine)
    span = max(map(_end, mine)) - _begin(mine[0]) if mine else 0.0
    return {
        "wall_us": float(step["dur"]),
        "kernels": len(mine),
        "kernel_us": sum(float(e["dur"]) for e in mine),
        "device_us": span,
        "gap_us": sum(gap["us"] for gap in gaps),
        "gaps": len(gaps),
        "before_first_kernel_us": _begin(mine[0]) - _begin(step) if mine else None,
        "launches": len(launched),
        "host_us": max(map(_end, launched)) - _begin(step) if launched else None,
    }


def _gaps(work: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Where nothing runs between a step's kernels, longest first."""
    found, last = [], None
    for event in work:
        if last is not None and _begin(event) > _end(last):
            found.append(
                {"us": _begin(event) - _end(last), "behind": last["name"][:120], "before": event["name"][:120]}
            )
        if last is None or _end(event) > _end(last):
            last = event
    return sorted(found, key=lambda gap: -gap["us"])


def _by_name(work: Sequence[Mapping[str, Any]], steps: int) -> list[Json]:
    """Kernel -> how many a step has and their microseconds, the longest first."""
    rows: dict[str, Json] = {}
    for event in work:
        row = rows.setdefault(event["name"], {"name": event["name"][:200], "count": 0.0, "us": 0.0})
        row["count"] += 1 / steps
        row["us"] += float(event["dur"]) / steps
    return sorted(rows.values(), key=lambda row: -row["us"])


def table(name: str, found: Mapping[str, Any], most: int = 60) -> str:
    """The trace as text."""
    lines = [name, "       wall    kernels  of kernels     gaps  before first  host to last launch   (us)"]
    for one in found["steps"]:
        lines.append(
            f"  {one['wall_us']:9.1f} {one['kernels']:10d} {one['kernel_us']:11.1f} {one['gap_us']:8.1f}"
            f" {one['before_first_kernel_us'] or 0.0:13.1f} {one['host_us'] or 0.0:12.1f} ({one['launches']} launches)"
        )
    whole = sum(row["us"] for row in found["kernels"]) or 1.0
    lines.append("         us  share   count  kernel")
    for row in found["kernels"][:most]:
        lines.append(f"  {row['us']:9.1f} {100 * row['us'] / whole:5.1f} % {row['count']:6.1f}  {row['name'][:100]}")
    lines.append("  the longest gaps (us)")
    lines += [f"  {g['us']:9.1f}  {g['behind'][:60]} -> {g['before'][:60]}" for g in found["gaps"]]
    return "\n".join(lines)
