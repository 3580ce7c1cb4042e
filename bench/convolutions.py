"""The three passes of 300 seeded convolutions against Paddle 2.6.2, on numpy alone: `python bench/convolutions.py --help`.

A pass is one op in a program of its own, timed in turns: tstatic, Paddle, tstatic, ... The page lists the shapes that are
slowest against Paddle; `--only NUMBER,NUMBER` measures some shapes anew.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from own_kernels import restart
from report import commit, machine
from workers import Worker, WorkerError, paddle_python

HERE = Path(__file__).resolve().parent
PASSES = ("forward", "dx", "dw")
SHAPES = 300
LARGEST, SMALLEST = 3e8, 1e5
"""Multiply-adds of a drawn convolution."""


def _draw(rng: random.Random) -> dict[str, Any]:
    """One convolution: of a residual net, depthwise, strided, of text as wide as its input, in groups, or of any shape."""
    kind = rng.choice(("square", "square", "pointwise", "depthwise", "strided", "wide", "groups", "any", "sequence"))
    batch = rng.choice((1, 2, 4, 8, 16, 32))
    channels, filters = (
        rng.choice((1, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)),
        rng.choice((4, 8, 16, 32, 64, 128, 256)),
    )
    height = rng.choice((4, 7, 8, 12, 14, 16, 20, 28, 32, 40, 56, 64, 96, 112))
    width, groups, dilation = height, 1, (1, 1)
    kernel = (3, 3)
    stride, pad = (1, 1), (1, 1)
    if kind == "square":
        kernel = (rng.choice((3, 5, 7)),) * 2
        pad = (kernel[0] // 2,) * 2
    elif kind == "pointwise":
        kernel, pad, stride = (1, 1), (0, 0), (rng.choice((1, 1, 2)),) * 2
    elif kind == "depthwise":
        groups = filters = channels = max(4, channels)
        kernel = (rng.choice((3, 5)),) * 2
        stride, pad = (rng.choice((1, 2)),) * 2, (kernel[0] // 2,) * 2
    elif kind == "strided":
        kernel, stride = (rng.choice((2, 3, 4, 5, 7)),) * 2, (2, 2)
        pad = (rng.choice((0, 1, kernel[0] // 2)),) * 2
    elif kind == "wide":
        channels, width = 1, rng.choice((16, 32, 64, 128, 256))
        kernel, pad = (rng.choice((2, 3, 4, 5)), width), (0, 0)
    elif kind == "groups":
        groups = rng.choice((2, 4, 8))
        channels, filters = max(groups, channels // groups * groups), max(groups, filters // groups * groups)
    elif kind == "sequence":
        height, width, kernel = 1, rng.choice((16, 50, 64, 100, 128, 256, 512)), (1, rng.choice((2, 3, 5, 7, 9)))
        pad, dilation = (0, rng.choice((0, kernel[1] // 2))), (1, rng.choice((1, 1, 2)))
    else:
        width = rng.choice((5, 9, 13, 17, 24, 30, 50))
        kernel = (rng.randint(1, 6), rng.randint(1, 6))
        stride, pad = (rng.randint(1, 3), rng.randint(1, 3)), (rng.randint(0, 2), rng.randint(0, 2))
        dilation = (rng.randint(1, 2), rng.randint(1, 2))
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip((height, width), pad, dilation, kernel, stride, strict=True)
    ]
    return {
        "kind": kind,
        "x": [batch, channels, height, width],
        "w": [filters, channels // groups, *kernel],
        "y": [batch, filters, *out],
        "depthwise": kind == "depthwise",
        "attrs": {
            "strides": list(stride), "paddings": list(pad), "dilations": list(dilation), "groups": groups,
            "padding_algorithm": "EXPLICIT", "data_format": "NCHW",
        },
    }  # fmt: skip


def work(one: dict[str, Any]) -> float:
    """Multiply-adds of one pass."""
    batch, filters, height, width = one["y"]
    _, depth, kh, kw = one["w"]
    return float(batch * filters * height * width * depth * kh * kw)


def shapes(count: int) -> list[dict[str, Any]]:
    """The first `count` drawn convolutions; always the same."""
    rng = random.Random(20261123)
    found: list[dict[str, Any]] = []
    while len(found) < count:
        one = _draw(rng)
        if min(one["y"]) > 0 and SMALLEST <= work(one) <= LARGEST:
            found.append({"number": len(found), **one})
    return found


def describe(one: dict[str, Any]) -> str:
    """A line that names a convolution."""
    a = one["attrs"]
    rest = "".join(
        f" {n[0]}{v}" for n, v in a.items() if isinstance(v, list) and v != ([0, 0] if n == "paddings" else [1, 1])
    )
    return f"{one['number']} {one['kind']} x{one['x']} w{one['w']}{rest}" + (
        f" g{a['groups']}" if a["groups"] > 1 else ""
    )


def measure(
    ours: Worker, theirs: Worker, one: dict[str, Any], threads: int, rounds: int, turn_s: float
) -> dict[str, Any]:
    """Medians of both peers in seconds for one pass, from turns; and whether their values agree."""
    case = "conv:" + json.dumps(one)
    peers = {"tstatic": ours, "paddle": theirs}
    values = {n: w.ask(do="prepare", case=case, threads=threads)["first_value"] for n, w in peers.items()}
    times: dict[str, list[float]] = {n: [] for n in peers}
    for worker in peers.values():
        worker.ask(do="run", least=2, for_s=0)
    for _ in range(rounds):
        for name, worker in peers.items():
            times[name].append(statistics.median(worker.ask(do="run", least=3, for_s=turn_s)["seconds"]))
    mine, other = (statistics.median(times[n]) for n in ("tstatic", "paddle"))
    return {
        "number": one["number"],
        "pass": one["pass"],
        "tstatic_s": mine,
        "paddle_s": other,
        "ratio": mine / other,
        "values": values,
    }


def page(result: dict[str, Any]) -> str:
    """The page: the distribution of ratios, per pass and kind, and the losers."""
    rows, by_number = result["rows"], {s["number"]: s for s in result["shapes"]}

    def line(name: str, some: list[dict[str, Any]]) -> str:
        found = sorted(r["ratio"] for r in some)
        at = [found[min(len(found) - 1, int(q * len(found)))] for q in (0.5, 0.9, 0.95)]
        over = [sum(r > limit for r in found) for limit in (1.5, 2, 5)]
        return (
            f"| {name} | {len(found)} | "
            + " | ".join(f"{v:.2f}" for v in (*at, found[-1]))
            + " | "
            + " | ".join(map(str, over))
            + " |"
        )

    m = result["machine"]
    lines = [
        f"# Convolutions against Paddle 2.6.2, {result['date']}", "",
        f"- machine: {m['cpu']}, {m['cores']} cores, {m['memory_mib']} MiB, {m['system']}",
        f"- commit {result['commit']}; tstatic {result['versions']['tstatic']}, paddle {result['versions']['paddle']}; "
        f"{result['threads']} threads; medians of {result['rounds']} turns of {result['turn_s']:g} s each; load when it began: "
        + ", ".join(f"{v:.2f}" for v in m["load"]),
        "- time of tstatic over time of Paddle; wanted: median at most 1.5, 95 % at most 2, none above 5", "",
        "| passes | count | median | 90 % | 95 % | largest | above 1.5 | above 2 | above 5 |",
        "|---|---|---|---|---|---|---|---|---|",
        line("all", rows),
        *(line(p, [r for r in rows if r["pass"] == p]) for p in PASSES),
        *(
            line(kind, [r for r in rows if by_number[r["number"]]["kind"] == kind])
            for kind in sorted({s["kind"] for s in by_number.values()})
        ),
        "", "## Slower than Paddle by more than 1.5", "",
        "| ratio | ms | Paddle's ms | pass | convolution |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in sorted((r for r in rows if r["ratio"] > 1.5), key=lambda r: -r["ratio"]):
        times = f"{row['tstatic_s'] * 1e3:.3g} | {row['paddle_s'] * 1e3:.3g}"
        lines.append(f"| {row['ratio']:.2f} | {times} | {row['pass']} | {describe(by_number[row['number']])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures and writes the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=SHAPES, help="how many (300)")
    parser.add_argument("--only", default="", help="numbers of shapes, with commas")
    parser.add_argument("--passes", default=",".join(PASSES), help="forward, dx, dw")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each peer (3)")
    parser.add_argument("--turn", type=float, default=0.02, help="seconds of a turn (0.02)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output-json", type=Path, help="where to write; the page goes beside it")
    options = parser.parse_args()
    python, missing = paddle_python()
    if missing:
        print(missing, file=sys.stderr)
        return 1
    drawn = shapes(options.shapes)
    if options.only:
        drawn = [drawn[int(n)] for n in options.only.split(",")]
    result: dict[str, Any] = {
        "date": datetime.date.today().isoformat(), "machine": machine(), "commit": commit(), "threads": options.threads,
        "rounds": options.rounds, "turn_s": options.turn, "shapes": drawn, "rows": [],
    }  # fmt: skip
    ours = Worker(sys.executable, "peer_static.py", ("tstatic",), options.threads)
    theirs = Worker(python, "peer_static.py", ("paddle",), options.threads)
    result["versions"] = {n: w.ask(do="facts")["version"] for n, w in (("tstatic", ours), ("paddle", theirs))}
    for one in drawn:
        for name in options.passes.split(","):
            try:
                row = measure(ours, theirs, {**one, "pass": name}, options.threads, options.rounds, options.turn)
            except WorkerError as error:
                print(f"{describe(one)} {name}: {error}", file=sys.stderr)
                return 1
            result["rows"].append(row)
            if options.only or row["ratio"] > 2:
                print(f"{row['ratio']:6.2f} {row['tstatic_s'] * 1e3:8.3f} ms {name:8}{describe(one)}", flush=True)
    for worker in (ours, theirs):
        worker.close()
    if options.output_json:
        options.output_json.write_text(json.dumps(result) + "\n")
        options.output_json.with_suffix(".md").write_text(page(result))
    print(page(result).split("## Slower")[0])
    return 0


if __name__ == "__main__":
    restart()
    sys.exit(main())
