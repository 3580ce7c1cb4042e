"""Trains one layer of an LSTM, a GRU and a simple recurrence here and in torch eager, in turns: ``python -m bench.recurrence``.

Both train in one process, a few steps each in turn, so that whatever else runs on the machine slows both. torch's threads spin
for a while after a step, and would take the cores from the other's next one: each turn begins with a pause and a step that is
not counted. The quietest quarter of the turns (by torch's time) is a row of its own, beside the medians of all. With
``--threads 1`` the process has one core, and the processor time of a step hardly depends on what else runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

import bench.report as report
import tstatic as paddle
from bench.own_kernels import restart
from tstatic import nn, static

STEPS, BATCH, WIDTH = 50, 32, 256
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "SimpleRNN": nn.SimpleRNN}


def ours(kind: str, x: Any) -> Callable[[], Any]:
    """Returns a step of training with SGD on the mean square of the outputs."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        outputs, _ = KINDS[kind](WIDTH, WIDTH, time_major=True)(static.data("x", [STEPS, BATCH, WIDTH]))
        loss = paddle.mean(paddle.square(outputs))
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor()
    exe.run(startup)
    compiled = static.CompiledProgram(main)
    return lambda: exe.run(compiled, feed={"x": x}, fetch_list=[loss])


def theirs(kind: str, x: Any) -> Callable[[], Any]:
    """Returns the same step in torch eager."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layer = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "SimpleRNN": torch.nn.RNN}[kind](WIDTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    source = torch.from_numpy(x)

    def step() -> float:
        outputs, _ = layer(source)
        loss = outputs.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


PAUSE_S = 0.25
"""Longer than any threads spin: OpenMP's do for up to 0.2 s."""
TURN = 4


def turn(function: Callable[[], Any]) -> float:
    """Returns the median seconds of a few calls after a pause: on one core of the processor's time, else of the clock."""
    clock = time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
    time.sleep(PAUSE_S)
    function()
    found = []
    for _ in range(TURN):
        start = clock()
        function()
        found.append(clock() - start)
    return statistics.median(found)


def compare(kind: str, rounds: int) -> dict[str, Any]:
    """Returns medians and ratios of all turns, and of the quietest quarter."""
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, WIDTH)).astype("float32")
    mine, other = ours(kind, x), theirs(kind, x)
    for _ in range(3):
        mine(), other()
    pairs = [(turn(mine), turn(other)) for _ in range(rounds)]
    quiet = sorted(pairs, key=lambda pair: pair[1])[: max(1, rounds // 4)]

    def row(chosen: list[tuple[float, float]]) -> dict[str, float]:
        a, b = (statistics.median(side) for side in zip(*chosen, strict=True))
        return {"tstatic_s": a, "torch_s": b, "ratio": a / b}

    return {
        "kind": kind, "steps": STEPS, "batch": BATCH, "width": WIDTH, "rounds": rounds, "all": row(pairs),
        "quietest": row(quiet), "least": row([(min(a for a, _ in pairs), min(b for _, b in pairs))]),
    }  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """Returns the page."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    machine = result["machine"]
    lines = [
        f"# Training a recurrence, {result['date']}",
        "",
        f"Commit {result['commit']}; {versions}; {machine['cpu']}, {machine['cores']} cores, load {machine['load']}.",
        f"One layer, batch {BATCH}, {STEPS} steps, width {WIDTH}, forward, backward and SGD; "
        f"turns of {TURN} steps after pauses; {result['threads']}.",
        "",
        "| layer | turns | tstatic | torch eager | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        for name, label in (
            ("all", "median of all"),
            ("quietest", "median of the quietest quarter"),
            ("least", "least"),
        ):
            one = row[name]
            lines.append(
                f"| {row['kind']} | {label} | {one['tstatic_s'] * 1e3:.1f} ms | {one['torch_s'] * 1e3:.1f} ms | "
                f"{one['ratio']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def kernels() -> str:
    """Returns the processor whose kernels numpy's OpenBLAS uses: it may not know this one; ``OPENBLAS_CORETYPE`` names another."""
    found = [
        library.get("architecture", "?") for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"
    ]
    return found[0] if found else "?"


def main() -> None:
    """Runs all layers; writes a JSON file and a page if asked."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    threads = "one thread, processor time" if given.threads == 1 else f"{given.threads} threads, wall time"
    result = {
        "threads": threads, "date": report.today(), "commit": report.commit(), "machine": report.machine(),
        "versions": {"numpy": np.__version__, "OpenBLAS kernels": kernels(), "torch": torch.__version__},
        "rows": [compare(kind, given.rounds) for kind in given.kinds],
    }  # fmt: skip
    report.put(result, markdown(result), given.out)


if __name__ == "__main__":
    restart()
    main()
