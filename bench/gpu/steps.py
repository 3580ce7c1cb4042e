"""Times whole training steps on a GPU, fused and unfused, beside torch and torch.compile; losses and memory are told with them.

``python bench/gpu/steps.py RESULTS`` runs each competitor for each model in a process of its own, adds a line to
``RESULTS/steps.jsonl`` for each, and prints a table. The kernels of a plan are compiled beforehand, by as many processes as there
are cores. Needs tstatic, torch and triton. ``--dry-run`` runs a small model on the CPU, and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import apart  # noqa: E402 - found through the line above
import compiling  # noqa: E402
import models  # noqa: E402
from contact import usable_cores  # noqa: E402

Row = dict[str, Any]
Step = Callable[[], float]

COMPETITORS = ("tstatic", "tstatic, unfused", "torch", "torch.compile")
MODELS = ("gpt-bf16", "gpt")
SMALL = {"layers": 1, "width": 32, "heads": 2, "tokens": 16, "vocabulary": 64, "batch": 2}
WARM, TIMED = 5, 20
COMPILE_S = 120.0


def feed_of(sizes: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Tokens at random, and for each the one that follows."""
    ids = np.random.default_rng(0).integers(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"] + 1))
    return {"ids": ids[:, :-1], "label": ids[:, 1:, None]}


# -------------------------------------------------------------------------------------------------------------- tstatic
def _tstatic(model: str, fused: bool, dry: bool) -> tuple[Step, Row]:
    """A step of the static program, and what its plan says."""
    from plan_count import paddle, planned, static, strategy

    paddle.enable_static()
    one = models.MODELS[model]
    # The process is this competitor's alone.
    paddle.set_flags({"FLAGS_allow_tf32": one.tf32})
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        paddle.seed(1)
        loss = one.build(paddle)
    feed = feed_of(models.GPT)
    chosen = strategy(None if fused else "-")
    place = paddle.CPUPlace() if dry else paddle.CUDAPlace(0)
    begun = time.perf_counter()
    plan = planned(main, chosen, {n: a.shape for n, a in feed.items()}, [loss.name])
    row: Row = {"planned_bytes": plan.arena_bytes, "steps": len(plan.steps), "plan_s": time.perf_counter() - begun}
    if not dry:
        begun = time.perf_counter()
        row |= compiled_beforehand(plan)
        row["compile_s"] = time.perf_counter() - begun
    executor, compiled = static.Executor(place), static.CompiledProgram(main, chosen)
    executor.run(startup)
    low = {p.name for p in main.all_parameters() if str(p.dtype).endswith("bfloat16")}
    if low:
        paddle.static.amp.bf16.cast_parameters_to_bf16(place, main, to_bf16_var_names=low)
    step = lambda: float(executor.run(compiled, feed=feed, fetch_list=[loss])[0])  # noqa: E731
    row["report"] = lambda: compiled.memory_report({n: a.shape for n, a in feed.items()}, [loss], place=place)
    return step, row


def compiled_beforehand(plan: Any) -> Row:
    """Has processes compile the kernels of a plan, and says how many there were and which failed."""
    import torch

    from tstatic.fusion.codegen.kernel import STOPPED, Launch

    major, minor = torch.cuda.get_device_capability()
    jobs: dict[str, Row] = {}
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = max(1, min(usable_cores() - 1, len(jobs)))
        wanted = sorted(jobs.values(), key=lambda job: -len(job["text"]))
        plan_of_jobs = {
            "capability": 10 * major + minor,
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
    return {"kernels": len(plan.kernels), "compiled": len(lines) - len(failed), "jobs": len(jobs), "failed": failed[:5]}


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch(model: str, compiled: bool, dry: bool) -> tuple[Step, Row]:
    """A step of torch: the same network, its own fused attention and fused AdamW; bfloat16 as autocast has it."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    sizes = models.GPT
    width, heads = sizes["width"], sizes["heads"]

    class Block(nn.Module):
        """A block whose norms stand before attention and feed-forward."""

        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, h: Any) -> Any:
            b, t, _ = h.shape
            q, k, v = (p.view(b, t, heads, -1).transpose(1, 2) for p in self.qkv(self.ln1(h)).split(width, 2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + self.out(mixed.transpose(1, 2).reshape(b, t, width))
            return h + self.down(F.gelu(self.up(self.ln2(h)), approximate="tanh"))

    class Network(nn.Module):
        """Embeddings, blocks, and the tokens' table again as the head."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(sizes["vocabulary"], width)
            self.positions = nn.Parameter(torch.zeros(sizes["tokens"], width))
            self.blocks = nn.ModuleList(Block() for _ in range(sizes["layers"]))
            self.ln = nn.LayerNorm(width)
            nn.init.normal_(self.tokens.weight, std=0.02)

        def forward(self, ids: Any, label: Any) -> Any:
            h = self.tokens(ids) + self.positions
            for block in self.blocks:
                h = block(h)
            logits = F.linear(self.ln(h), self.tokens.weight)
            return F.cross_entropy(logits.float().flatten(0, 1), label.flatten())

    device = "cpu" if dry else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = models.MODELS[model].tf32
    torch.manual_seed(1)
    net = Network().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-4, weight_decay=0.1, fused=True)
    ids, label = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in feed_of(sizes).values())
    run = torch.compile(net) if compiled else net
    low = model.endswith("bf16")

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=low):
            loss = run(ids, label)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step, {}


# ------------------------------------------------------------------------------------------------------------------ run
def measured(name: str, model: str, dry: bool) -> Row:
    """Milliseconds of a step, the first and the last loss, and the most that the device's allocator held."""
    if dry:
        models.GPT.update(SMALL)
    make = (
        (lambda: _tstatic(model, name == "tstatic", dry))
        if name.startswith("tstatic")
        else (lambda: _torch(model, name == "torch.compile", dry))
    )
    begun = time.perf_counter()
    memory = None
    if not dry:
        import torch

        from tstatic.benchlib.gpu_memory import GpuMemory

        memory = GpuMemory(torch.cuda)
    step, row = make()
    report = row.pop("report", None)
    losses = [step()]
    row["first_step_s"] = time.perf_counter() - begun
    losses += [step() for _ in range(1 if dry else WARM)]
    seconds = []
    for _ in range(2 if dry else TIMED):
        begun = time.perf_counter()
        # The loss is fetched: the device has done its work then.
        losses.append(step())
        seconds.append(time.perf_counter() - begun)
    if memory is not None:
        row |= {"held_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
        if report is not None:
            row["memory"] = str(memory.compare(step, report))
    assert all(math.isfinite(one) for one in losses), losses
    return {"name": name, "model": model, "median_s": statistics.median(seconds), "losses": losses, **row}


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
    if not args.dry_run:
        import torch

        if not torch.cuda.is_available():
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
