"""Times a training step of a linear layer with its cross entropy, and what memory it takes, beside torch and torch.compile.

``python bench/gpu/linear_loss.py RESULTS`` runs each competitor at each shape in a process of its own, adds a line to
``RESULTS/linear_loss.jsonl`` for each, and prints a table. Needs tstatic, torch and triton. ``--dry-run`` runs a small shape on the
CPU, and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import apart  # noqa: E402 - found through the line above

Row = dict[str, Any]
Step = Callable[[], float]

SHAPES = ((8192, 768, 50304), (8192, 4096, 128256))
"""Rows, depth and classes: GPT-2 124M, and a model of 8 billion parameters."""
SMALL = ((8192, 8, 32),)
COMPETITORS = ("tstatic", "tstatic, whole", "torch", "torch.compile")
LEAST_SHARE = 3
"""Of the memory of torch.compile, chunks should take a third at most, in no more time."""
WARM, TIMED = 3, 10


def arrays(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The layer's input, its table and the labels."""
    rows, depth, classes = shape
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, np.float32) * 0.05 for s in ((rows, depth), (classes, depth)))
    return x, w, rng.integers(0, classes, (rows, 1))


def _workspace() -> int:
    """Bytes that torch holds for cuBLAS, whatever runs; it gives them back."""
    import torch

    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return int(before - torch.cuda.memory_allocated())


def _tstatic(shape: Sequence[int], chunks: bool, dry: bool) -> tuple[Step, Row]:
    """A step of the static program, the bytes that it holds, and those that its plan says."""
    from plan_count import paddle, planned, static

    paddle.enable_static()
    x, w, label = arrays(shape)
    main, startup = static.Program(), static.Program()
    start = paddle.nn.initializer.Constant(0.0)
    kind = "float32" if dry else "bfloat16"
    with static.program_guard(main, startup):
        # The input is a parameter, too, so that its gradient is wanted.
        given = [
            static.create_parameter(list(a.shape), kind, name=name, default_initializer=start)
            for name, a in (("x", x), ("w", w))
        ]
        labels = static.data("label", list(label.shape), "int64")
        logits = paddle.matmul(*given, transpose_y=True)
        losses = paddle.nn.functional.softmax_with_cross_entropy(paddle.cast(logits, "float32"), labels)
        loss = paddle.mean(losses)
        paddle.optimizer.SGD(1e-3).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = strategy.fuse_gemm_epilogue = strategy.fuse_all_optimizer_ops = True
    strategy.fuse_linear_cross_entropy = chunks
    place = paddle.CPUPlace() if dry else paddle.CUDAPlace(0)
    executor, compiled = static.Executor(place), static.CompiledProgram(main, strategy)
    executor.run(startup)
    for name, array in (("x", x), ("w", w)):
        static.global_scope().find_var(name).get_tensor().set(array.astype(given[0].dtype.np), place)
    feed = {"label": label}
    step = lambda: float(executor.run(compiled, feed=feed, fetch_list=[loss])[0])  # noqa: E731
    step()
    planned_bytes = planned(main, strategy, {"label": label.shape}, [loss.name]).arena_bytes
    row = {"bytes": planned_bytes, "planned_bytes": planned_bytes}
    if not dry:
        import torch

        # What the allocator held at most, beside the two parameters and cuBLAS's memory; torch's steps are counted so, too.
        given_bytes = sum(a.size * given[0].dtype.itemsize for a in (x, w))
        row["bytes"] = torch.cuda.max_memory_allocated() - given_bytes - _workspace()
    return step, row


def _torch(shape: Sequence[int], compiled: bool, dry: bool) -> tuple[Step, Row]:
    """A step of torch; its bytes are counted while it runs."""
    import torch

    device, kind = ("cpu", torch.float32) if dry else ("cuda", torch.bfloat16)
    x, w, label = (torch.from_numpy(a).to(device) for a in arrays(shape))
    given = [torch.nn.Parameter(a.to(kind)) for a in (x, w)]
    del x, w
    optimizer = torch.optim.SGD(given, 1e-3)

    def loss_of(x: Any, w: Any) -> Any:
        return torch.nn.functional.cross_entropy((x @ w.T).float(), label[:, 0])

    run = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        loss = run(*given)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    step()
    if dry:
        return step, {"bytes": None}
    # Beside the parameters and cuBLAS's memory: labels, gradients, what a step makes.
    torch.cuda.reset_peak_memory_stats()
    step()
    most = torch.cuda.max_memory_allocated()
    return step, {"bytes": most - sum(p.nbytes for p in given) - _workspace()}


def measured(name: str, shape: Sequence[int], dry: bool) -> Row:
    """Seconds of a step, its bytes beside the parameters, and the last loss."""
    if name.startswith("tstatic"):
        step, row = _tstatic(shape, name == "tstatic", dry)
    else:
        step, row = _torch(shape, name == "torch.compile", dry)
    for _ in range(1 if dry else WARM):
        step()
    seconds = []
    for _ in range(2 if dry else TIMED):
        # The loss is fetched: the device has done its work then.
        begun = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - begun)
    return {"name": name, "shape": list(shape), "median_s": statistics.median(seconds), "loss": loss, **row}


def table(rows: Sequence[Row]) -> str:
    """The table: milliseconds, gigabytes, and both over those of torch.compile."""
    lines = []
    for shape in dict.fromkeys(tuple(row["shape"]) for row in rows):
        found = {row["name"]: row for row in rows if tuple(row["shape"]) == shape}
        peer = found.get("torch.compile", {})
        lines.append("linear + cross entropy " + " x ".join(map(str, shape)))
        for name, row in found.items():
            if "error" in row:
                lines.append(f"  {name:<16} {row['error']}")
                continue
            text = f"  {name:<16} {row['median_s'] * 1e3:9.2f} ms"
            if peer.get("median_s"):
                text += f"  x{row['median_s'] / peer['median_s']:.2f}"
            if row["bytes"]:
                text += f"  {row['bytes'] / 1e9:7.2f} GB"
                text += f"  x{row['bytes'] / peer['bytes']:.2f}" if peer.get("bytes") else ""
            lines.append(text)
    return "\n".join(lines)


def behind(rows: Sequence[Row]) -> list[str]:
    """What is not as wanted, in words."""
    bad = []
    for row in rows:
        peer = next((p for p in rows if p["name"] == "torch.compile" and p["shape"] == row["shape"]), {})
        if row["name"] != "tstatic" or "error" in row or not peer.get("bytes"):
            continue
        if row["bytes"] * LEAST_SHARE > peer["bytes"]:
            bad.append(f"{row['shape']}: {row['bytes'] / peer['bytes']:.2f} of torch.compile's memory")
        if row["median_s"] > peer["median_s"]:
            bad.append(f"{row['shape']}: {row['median_s'] / peer['median_s']:.2f} times torch.compile's time")
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 2 where there is no device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder of results")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one competitor at one shape")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only so many shapes, the smallest first")
    parser.add_argument("--dry-run", action="store_true", help="small shapes on the CPU: no GPU needed")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SHAPE"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    shapes = SMALL if args.dry_run else SHAPES
    if args.one:
        print(json.dumps(measured(args.one[0], shapes[int(args.one[1])], args.dry_run)))
        return 0
    if not args.dry_run:
        import torch

        if not torch.cuda.is_available():
            print("no rows: there is no GPU", file=sys.stderr)
            return 2
    args.results.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for number, shape in enumerate(shapes[: args.shapes]):
        for name in COMPETITORS[: 3 if args.dry_run else None]:
            command = [sys.executable, __file__, str(args.results), "--one", name, str(number)]
            command += ["--dry-run"] * args.dry_run
            given = {"name": name, "shape": list(shape)}
            last = lambda said: (said.strip().splitlines() or [""])[-1]  # noqa: E731
            rows.append(apart.row_of(command, given, args.limit, args.results / "linear_loss.jsonl", last))
    print(table(rows))
    print("\n".join(f"behind: {text}" for text in behind(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
