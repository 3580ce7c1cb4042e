"""Measures what profiling costs: ``python -m bench.profiling``.

Each program trains in turns without and with a recording, in an order that is drawn anew in each round; a second turn without
one is the control, whose difference says what the machine adds. A turn is the least time of a few steps. Rows with ``null`` run
on a device that runs nothing, so that only the runtime is measured. The process has one core and counts its own processor time,
which hardly depends on what else runs; ``--threads`` gives it more, and counts the time of all its threads.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bench.report as report
import tstatic as paddle
from bench.own_kernels import restart
from tstatic import devices, nn, profiler, static

STEPS = 8
Step = Callable[[], Any]


def mlp(width: int, batch: int, layers: int) -> Step:
    """Returns a step of training dense layers with Adam."""
    x = static.data("x", [None, width])
    h = x
    for _ in range(layers):
        h = nn.functional.gelu(static.nn.layer_norm(static.nn.fc(h, width)))
    loss = paddle.mean(paddle.square(h))
    paddle.optimizer.Adam(0.01).minimize(loss)
    return _step(loss, {"x": np.random.default_rng(0).normal(size=(batch, width)).astype("float32")})


def many(count: int) -> Step:
    """Returns a run of many operators on small arrays."""
    h = static.data("x", [16, 16])
    for _ in range(count):
        h = paddle.tanh(h) + h
    return _step(paddle.mean(h), {"x": np.ones((16, 16), "float32")})


def _step(loss: Any, feed: dict[str, Any]) -> Step:
    exe, main = static.Executor(paddle.CPUPlace()), static.default_main_program()
    scope = static.Scope()
    exe.run(static.default_startup_program(), scope=scope)
    return lambda: exe.run(main, feed=feed, fetch_list=[loss], scope=scope)


CASES: dict[str, tuple[str, Callable[[], Step]]] = {
    "MLP, 4 layers of 512, batch 256": ("cpu", lambda: mlp(512, 256, 4)),
    "MLP, 4 layers of 64, batch 16": ("cpu", lambda: mlp(64, 16, 4)),
    "1,000 small operators": ("cpu", lambda: many(500)),
    "1,000 operators, null": ("null", lambda: many(500)),
    "20 operators, null": ("null", lambda: many(10)),
}


def turn(step: Step, repeat: int) -> float:
    """Returns the least seconds of a few steps, of the processor's time."""
    found = []
    for _ in range(STEPS):
        start = time.process_time()
        for _ in range(repeat):
            step()
        found.append((time.process_time() - start) / repeat)
    return min(found)


def recorded(step: Step, repeat: int) -> float:
    """Returns the same while a profiler records; the first step, which binds the calls once more, is not counted."""
    with profiler.profile():
        step()
        return turn(step, repeat)


def compare(name: str, rounds: int) -> dict[str, Any]:
    """Returns the medians of a case, and what a step and an operator cost more."""
    device, make = CASES[name]
    with (
        devices.use(device),
        static.program_guard(static.Program(), static.Program()),
        paddle.utils.unique_name.guard(),
    ):
        step = make()
        for _ in range(3):
            step()
        with profiler.profile() as found:
            step()
        ops = len(found.ops)
        start = time.process_time()
        step()
        repeat = max(1, round(0.02 / max(time.process_time() - start, 1e-6)))
        draw, turns = random.Random(0), {"off": [], "control": [], "on": []}
        for _ in range(rounds):
            order = list(turns)
            draw.shuffle(order)
            for kind in order:
                turns[kind].append(recorded(step, repeat) if kind == "on" else turn(step, repeat))
    off, control, on = (statistics.median(turns[kind]) for kind in ("off", "control", "on"))
    return {
        "name": name, "ops": ops, "off_s": off, "on_s": on, "rounds": rounds, "overhead": on / off - 1,
        "us_per_op": (on - off) / ops * 1e6, "control": control / off - 1, "turns": turns,
    }  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """Returns the page."""
    machine = result["machine"]
    lines = [
        f"# What profiling costs, {result['date']}",
        "",
        f"Commit {result['commit']}; {machine['cpu']}, {machine['cores']} cores, load {machine['load']}; "
        f"{result['threads']} thread(s), processor time. `python -m bench.profiling` says how it is measured.",
        "",
        "| program | records a step | step, off | step, on | overhead | per record | control (off against off) |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['ops']:,} | {row['off_s'] * 1e3:.3f} ms | {row['on_s'] * 1e3:.3f} ms | "
        f"{100 * row['overhead']:.1f} % | {row['us_per_op']:.2f} us | {100 * row['control']:.1f} % |"
        for row in result["rows"]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs all cases; writes a JSON file and a page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    result = {
        "date": report.today(), "commit": report.commit(), "machine": report.machine(), "threads": given.threads,
        "rows": [compare(name, given.rounds) for name in given.cases],
    }  # fmt: skip
    report.put(result, markdown(result), given.out)


if __name__ == "__main__":
    restart()
    main()
