"""Times whole training steps on a GPU, fused and unfused, beside twins of torch and torch.compile, with losses and memory.

``python bench/gpu/steps.py RESULTS`` runs each competitor for each model in a process of its own, adds a line to
``RESULTS/steps.jsonl`` for each, and prints a table. The kernels of a plan are compiled beforehand, by as many processes as there
are cores. Needs tstatic, torch and triton. ``--dry-run`` runs a small model on the CPU, and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import apart  # noqa: E402 - found through the line above
import checks  # noqa: E402
import models  # noqa: E402
import place  # noqa: E402
import torch  # noqa: E402
import twins  # noqa: E402
from place import Gpu  # noqa: E402
from plan_count import paddle  # noqa: E402

Row = dict[str, Any]

COMPETITORS = ("tstatic", "tstatic, unfused", "torch", "torch.compile")
MODELS = ("gpt-bf16", "gpt")
WARM, TIMED = 5, 20


# ------------------------------------------------------------------------------------------------------------------ run
def step_of(name: str, model: str, gpu: Gpu) -> twins.Step:
    """A competitor's step; all begin with the same weights, and take the same precision."""
    if name.startswith("tstatic"):
        place = paddle.CPUPlace() if gpu.dry else None
        return twins.Program(gpu, model, twins.feed_of(models.GPT), fused=name == "tstatic", place=place).step()
    precision = "lowered" if model.endswith("bf16") else "float32"
    mode = "default" if name == "torch.compile" else ""
    return twins.torch_step(gpu, twins.first_weights(model), mode, precision, models.MODELS[model].tf32)


def measured(name: str, model: str, dry: bool) -> Row:
    """Milliseconds of a step, the first and the last loss, and the most that the device's allocator held."""
    with place.first(dry) as gpu, checks.sized("gpt", dry):
        step = step_of(name, model, gpu).warmed(2 if dry else 1 + WARM)
        row = {"name": name, "model": model, **step.timed(2 if dry else TIMED), **step.facts, "losses": step.losses}
        if not dry:
            held = gpu.allocated()
            row |= {"held_bytes": held["most_allocated"], "reserved_bytes": held["most_reserved"]}
    assert all(math.isfinite(one) for one in step.losses), step.losses
    return row


def table(rows: Sequence[Row]) -> str:
    """Milliseconds and what the others take in multiples of them, the memory, and the losses."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        lines.append(models.MODELS[model].title)
        mine = next(
            (r["median_s"] for r in rows if r["model"] == model and r["name"] == "tstatic" and "error" not in r), None
        )
        for row in (r for r in rows if r["model"] == model):
            if "error" in row:
                lines.append(f"  {row['name']:<18} {row['error'][-600:]}")
                continue
            text = f"  {row['name']:<18} {row['median_s'] * 1e3:8.2f} ms"
            text += f"  x{row['median_s'] / mine:.2f}" if mine else ""
            text += f"  {row['held_bytes'] / 1e9:6.2f} GB" if "held_bytes" in row else ""
            text += f"  plan {row['planned_bytes'] / 1e9:.2f} GB" if "planned_bytes" in row else ""
            text += f"  loss {row['losses'][0]:.4f} {row['losses'][-1]:.4f}  first step {row['first_step_s']:.1f} s"
            text += (
                f" (kernels {row['compile_s']:.1f} s, {row['compiled']} of {row['jobs']})" if "compile_s" in row else ""
            )
            lines.append(text + "".join(f"\n    not compiled: {one}" for one in row.get("failed", ())))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 1 where a competitor did not run, 2 where there is no device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder of results")
    parser.add_argument("--only", default="", help="competitors of these models (a,b)")
    parser.add_argument("--names", help="only these competitors (a;b)")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one competitor and one model")
    parser.add_argument("--dry-run", action="store_true", help="a small model on the CPU: no GPU needed")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        print(json.dumps(measured(*args.one, args.dry_run)))
        return 0
    if not args.dry_run and not torch.cuda.is_available():
        print("no steps: there is no GPU", file=sys.stderr)
        return 2
    args.results.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for model in args.only.split(",") if args.only else MODELS:
        for name in args.names.split(";") if args.names else COMPETITORS:
            if args.dry_run and name == "torch.compile":
                continue
            command = [sys.executable, __file__, str(args.results), "--one", name, model] + ["--dry-run"] * args.dry_run
            given = {"name": name, "model": model}
            rows.append(
                apart.row_of(
                    command, given, args.limit, args.results / "steps.jsonl", lambda said: said.strip()[-1500:]
                )
            )
    print(table(rows))
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
