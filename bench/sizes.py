"""Feeds of many sizes: what a new one costs beside a first compilation, and many in turn beside one: ``python -m bench.sizes``.

All times are processor time, on one core, so that they hardly depend on what else runs. The first table compiles a fresh program
and feeds sizes that are new to it, in turns; a run of the same feed is subtracted. The second one trains on sizes in turn, each of
which was fed before, and in torch eager, which compiles nothing. Nets are small, so that what is around the arithmetic shows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bench.report as report
import tstatic as paddle
from bench.own_kernels import restart
from tstatic import nn, static

Step = Callable[[int], Any]
"""Trains on a batch, or a sequence, of so many rows."""


def _dense() -> tuple[Any, Callable[[int], Any]]:
    h = static.data("x", [None, 64])
    for _ in range(4):
        h = static.nn.fc(h, 64, activation="relu")
    return static.nn.fc(h, 10), lambda n: np.ones((n, 64), "float32")


def _convolutional() -> tuple[Any, Callable[[int], Any]]:
    h = static.data("x", [None, 3, 8, 8])
    for channels in (8, 16):
        h = static.nn.batch_norm(static.nn.conv2d(h, channels, 3, padding=1), act="relu")
        h = nn.functional.max_pool2d(h, 2, 2)
    return static.nn.fc(h, 10), lambda n: np.ones((n, 3, 8, 8), "float32")


def _encoder() -> tuple[Any, Callable[[int], Any]]:
    x = static.data("x", [None, None, 32])
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1), 2)
    return layer(x), lambda n: np.ones((2, n, 32), "float32")


def _lstm() -> tuple[Any, Callable[[int], Any]]:
    return nn.LSTM(16, 32)(static.data("x", [None, None, 16]))[0], lambda n: np.ones((2, n, 16), "float32")


NETS = {"dense": _dense, "convolutional": _convolutional, "encoder": _encoder, "LSTM": _lstm}


def ours(name: str) -> Step:
    """Returns a step of training with Adam on the mean square of a net's outputs, in a program of its own."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        y, feed = NETS[name]()
        loss = paddle.mean(paddle.square(y))
        paddle.optimizer.Adam(0.001).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    return lambda n: exe.run(main, feed={"x": feed(n)}, fetch_list=[loss])


def theirs() -> Step:
    """Returns the step of the dense net in torch eager."""
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = []
    for _ in range(4):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), 0.001)

    def step(n: int) -> float:
        loss = net(torch.ones(n, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def seconds(function: Callable[[], Any]) -> float:
    """Returns the processor time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def compiling(step: Step, n: int) -> float:
    """Returns the processor time of the first run of a size, less that of a later one."""
    first = seconds(lambda: step(n))
    return first - min(seconds(lambda: step(n)) for _ in range(3))


def new_sizes(name: str, rounds: int) -> dict[str, Any]:
    """Compares first compilations with those for new sizes, in turns."""
    compiling(ours(name), 3)  # what is compiled once for a process
    pairs = []
    for _ in range(rounds):
        step = ours(name)
        pairs.append((compiling(step, 3), statistics.median(compiling(step, n) for n in range(4, 9))))
    first, new = (statistics.median(side) for side in zip(*pairs, strict=True))
    least_first, least_new = (min(side) for side in zip(*pairs, strict=True))
    return {
        "net": name, "rounds": rounds, "first_s": first, "new_s": new, "ratio": statistics.median(b / a for a, b in pairs),
        "least_first_s": least_first, "least_new_s": least_new,
    }  # fmt: skip


def in_turn(step: Step, sizes: Sequence[int], steps: int) -> float:
    """Returns the median processor time of a step over sizes that were all fed before."""
    for n in sizes:
        step(n)
    found = []
    for i in range(steps):
        n = sizes[i % len(sizes)]
        found.append(seconds(lambda n=n: step(n)))  # type: ignore[misc]
    return statistics.median(found)


def many(counts: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """Compares sizes in turn with one size, of about the same number of rows on average."""
    rows = []
    for count in counts:
        # 64 rows and a few more or less: all sizes take about the same arithmetic.
        sizes = (
            [64]
            if count == 1
            else [32 + i * 64 // count for i in range(count)]
            if count <= 64
            else list(range(1, count + 1))
        )
        row: dict[str, Any] = {"sizes": count, "steps": max(steps, len(sizes)), "rows": sum(sizes) / len(sizes)}
        for peer, make in (("tstatic", lambda: ours("dense")), ("torch", theirs)):
            row[f"{peer}_s"] = in_turn(make(), sizes, row["steps"])
        alone = round(row["rows"])
        for peer, make in (("tstatic", lambda: ours("dense")), ("torch", theirs)):
            row[f"{peer}_one_s"] = in_turn(make(), [alone], steps)
        rows.append(row)
    return rows


def markdown(result: dict[str, Any]) -> str:
    """Returns the page."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    machine = result["machine"]
    lines = [
        f"# Feeds of many sizes, {result['date']}",
        "",
        f"Commit {result['commit']}; {versions}; {machine['cpu']}, {machine['cores']} cores, load {machine['load']}.",
        "Training with Adam, one thread, processor time.",
        "",
        "## A new size beside a first compilation",
        "",
        "| net | first | new size | ratio | least of both |",
        "|---|---|---|---|---|",
    ]
    for row in result["new"]:
        lines.append(
            f"| {row['net']} | {row['first_s'] * 1e3:.1f} ms | {row['new_s'] * 1e3:.1f} ms | {row['ratio']:.2f} | "
            f"{row['least_first_s'] * 1e3:.1f} ms, {row['least_new_s'] * 1e3:.1f} ms |"
        )
    lines += [
        "",
        "## Sizes in turn, all fed before: the dense net",
        "",
        "| sizes | rows on average | tstatic | tstatic, that size alone | torch eager | torch eager, that size alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["many"]:
        shown = (f"{row[k] * 1e3:.3f} ms" for k in ("tstatic_s", "tstatic_one_s", "torch_s", "torch_one_s"))
        lines.append(f"| {row['sizes']} | {row['rows']:.0f} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures all; writes a JSON file and a page if asked."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 64, 2000])
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    paddle.enable_static()
    result = {
        "date": report.today(), "commit": report.commit(), "machine": report.machine(),
        "versions": {"numpy": np.__version__, "torch": torch.__version__},
        "new": [new_sizes(name, given.rounds) for name in given.nets],
        "many": many(given.sizes, given.steps),
    }  # fmt: skip
    report.put(result, markdown(result), given.out)


if __name__ == "__main__":
    restart()
    main()
