"""Times the rows of first contact that are furthest from their goals, with more peers and a control of the noise.

``python bench/gpu/rows.py RESULTS`` reads ``RESULTS/contact.jsonl``, takes its rows in the order of how far they are behind,
and adds a line to ``RESULTS/rows.jsonl`` for each; ``RESULTS/rows.txt`` is the table. A row that was begun before is left
out, so a run that was ended goes on where it stood. Needs torch, triton and numpy alone.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import packfile  # noqa: E402 - found through the line above
import runner  # noqa: E402
from packfile import Json, Lines, described  # noqa: E402

ROUNDS = 3
AGAIN = "again"
"""The kernel a second time, as a competitor of itself: what its ratio differs from 1 by is noise."""


SAME = 0.98
"""A peer's time over that of a row which the peer's own kernel serves, at least: nothing is won there, nor lost."""


@dataclass(frozen=True)
class Goal:
    """What a row should reach.

    Attributes:
        share: Of the speed of the best copy.
        ratios: Peer -> its time over the kernel's.
    """

    share: float
    ratios: Mapping[str, float] = field(default_factory=dict)

    def distance(self, row: Mapping[str, Any], bytes_per_s: float) -> float:
        """Returns how far a row is behind: 1 is the goal reached, 2 half of it; infinite where nothing right was timed."""
        if not runner.good(row):
            return float("inf")
        timed = row["time"]
        behind = [self.share / (row["bytes"] / timed["median_s"] / bytes_per_s)]
        for peer, wanted in self.ratios.items():
            seconds = timed["peers"].get(peer, {}).get("median_s")
            if seconds is not None:
                behind.append((SAME if runner.served_by_peer(row) else wanted) * timed["median_s"] / seconds)
        return max(behind)


GOALS = {
    ("elewise", "forward"): Goal(0.95, {"eager": 2.0, "compiled": 1.0}),
    ("elewise", "backward"): Goal(0.95, {"compiled": 1.05}),
    ("auto", "forward"): Goal(0.93, {"compiled": 1.0}),
    ("bn_act", "forward"): Goal(0.85, {"eager": 1.3, "compiled": 1.1}),
    ("bn_act", "backward"): Goal(0.85, {"eager": 1.3, "compiled": 1.1}),
    ("bn_add_act", "forward"): Goal(0.85, {"eager": 1.3, "compiled": 1.1}),
    ("bn_add_act", "backward"): Goal(0.85, {"eager": 1.3, "compiled": 1.1}),
    ("residual-LN", "forward"): Goal(0.92, {"compiled": 1.25, "liger": 1.0}),
    ("residual-LN", "backward"): Goal(0.75, {"compiled": 1.3, "liger": 1.5}),
    ("cross-entropy", "forward"): Goal(0.90, {"compiled": 1.6, "liger": 2.0}),
    ("softmax", "forward"): Goal(0.90, {"compiled": 1.6, "liger": 2.0}),
    ("softmax", "backward"): Goal(0.90, {"compiled": 1.6, "liger": 2.0}),
    ("relu_dwconv", "forward"): Goal(0.65, {"eager": 1.5, "compiled": 1.3}),
    ("relu_dwconv", "backward"): Goal(0.65, {"eager": 1.5, "compiled": 1.3}),
    ("gemm", "forward"): Goal(0.0, {"eager": 1.10}),
    ("gemm", "backward"): Goal(0.0, {"eager": 1.05}),
    ("gemm-4096", "forward"): Goal(0.0, {"eager": 1.10}),
    ("gemm-4096", "backward"): Goal(0.0, {"eager": 1.05}),
    ("gemm-infer-4096", "forward"): Goal(0.0, {"eager": 1.0}),
    ("gemm-infer-4096", "backward"): Goal(0.0, {"eager": 1.05}),
    ("attention", "forward"): Goal(0.0, {"cudnn": 0.9}),
    ("attention", "backward"): Goal(0.0, {"cudnn": 0.8}),
    ("attention-more", "forward"): Goal(0.0, dict.fromkeys(("eager", "compiled", "cudnn", "flash", "efficient"), 1.3)),
    ("attention-more", "backward"): Goal(0.0, dict.fromkeys(("eager", "compiled", "cudnn", "flash", "efficient"), 1.3)),
    ("attention-fp32", "forward"): Goal(0.0, {"efficient": 1.0}),
    ("attention-fp32", "backward"): Goal(0.0, {"efficient": 1.0}),
    ("attention-tf32", "forward"): Goal(0.0, {"efficient": 1.0}),
    ("attention-tf32", "backward"): Goal(0.0, {"efficient": 1.0}),
    ("adamw", "forward"): Goal(0.92, {"eager": 1.1}),
    ("all_optimizer", "forward"): Goal(0.92, {"eager": 1.1}),
}
"""(kind of row, direction) -> its goal."""
DEFAULT = Goal(0.85, {"compiled": 1.0})


def goal_of(name: str) -> Goal:
    """Returns the goal of a case by its name, ``kind/variant/number.op type``."""
    if name.count("/") < 2:
        return DEFAULT
    first, second, last = name.split("/", 2)
    kind = second.removesuffix("-4096") if first == "compiler" else first
    return GOALS.get((kind, "backward" if last.endswith("_grad") else "forward"), DEFAULT)


def ordered(cases: Sequence[Json], rows: Sequence[Mapping[str, Any]], bytes_per_s: float) -> list[tuple[float, Json]]:
    """Returns the cases, those furthest from their goals first; a case without a row comes before all that were measured."""
    measured = {row["name"]: row for row in rows}

    def distance(case: Json) -> float:
        row = measured.get(case["name"])
        return float("inf") if row is None else goal_of(case["name"]).distance(row, bytes_per_s)

    return sorted(((distance(case), case) for case in cases), key=lambda pair: -pair[0])


class Rows(runner.Bench):
    """Times a case in several rounds, its competitors in random order, with peers of other libraries and the kernel again."""

    def __init__(self, *args: Any, seed: int = 0, rounds: int = ROUNDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._random = random.Random(seed)
        self._rounds = rounds

    def race(
        self,
        competitors: dict[str, Any],
        failed: Json,
        case: Mapping[str, Any],
        sets: Sequence[Mapping[str, Any]],
        expected: float,
    ) -> dict[str, Json]:
        from wheels import WHEELS, missing  # torch may be absent

        variant = case["time"]
        module = self.load(variant["text"], variant["kernel"])
        competitors[AGAIN] = [self.device.bind_launches(module, variant["launches"], tensors) for tensors in sets]
        for way, launches in variant.get("ways", {}).items():
            try:
                for call in self.device.bind_launches(module, launches, sets[0]):
                    call()
                self.device.wait()
                right = self.peer(case) is None or self._against(self.peer(case), case, sets[0])["right"]
                if right:
                    competitors[way] = [self.device.bind_launches(module, launches, tensors) for tensors in sets]
                else:
                    failed[way] = {"error": "wrong results"}
            except Exception as error:
                self.device.wait()
                failed[way] = {"error": described(error)}
        for peer, maker in WHEELS.get(case["name"].rpartition(".")[0], {}).items():
            why = missing(peer)
            try:
                if not why:
                    shaped = [
                        {n: tensors[n].view(e["shape"]) for n, e in variant["inputs"].items()} for tensors in sets
                    ]
                    competitors[peer] = [[maker(*given.values())] for given in shaped]
            except Exception as error:
                self.device.wait()
                why = described(error)
            if why:
                failed[peer] = {"error": why}
        rounds = []
        for _ in range(self._rounds):
            names = list(competitors)
            self._random.shuffle(names)
            rounds.append(self.device.race({name: competitors[name] for name in names}, expected))
        return {name: _joined([one[name] for one in rounds], [one["kernel"] for one in rounds]) for name in competitors}


def _joined(rounds: Sequence[Json], kernel: Sequence[Json]) -> Json:
    """The median of all rounds, and the ratio to the kernel in each."""
    broken = next((one for one in rounds if "error" in one), None)
    if broken is not None:
        return broken
    found: Json = {**rounds[0], "median_s": statistics.median(one["median_s"] for one in rounds)}
    if all("median_s" in one for one in kernel):
        found["ratios"] = [one["median_s"] / base["median_s"] for one, base in zip(rounds, kernel, strict=True)]
    return found


def table_row(row: Mapping[str, Any], distance: float) -> str:
    """A row of the table: the runner's, then the noise, the goal and whether it is reached."""
    text = runner.table_row(row)
    timed = row.get("time", {})
    noise = timed.get("noise")
    text += "" if noise is None else f"  noise {100 * noise:.1f} %"
    lacking = [f"{name}: {peer['error']}" for name, peer in timed.get("peers", {}).items() if "error" in peer]
    text += "".join(f"  [{one[:70]}]" for one in lacking)
    return text + ("  goal reached" if distance <= 1 else f"  behind its goal by x{distance:.2f}")


def run(
    bench: runner.Bench,
    order: Sequence[tuple[float, Json]],
    lines: Lines,
    *,
    ceilings: Mapping[str, Any] = runner.USUAL,
    end: float = float("inf"),
    clock: Callable[[], float] = time.time,
    say: Callable[[str], None] = print,
) -> int:
    """Times the cases in their order; returns 0, or ``LOST`` where the device answers no more."""
    begun = {line["name"] for line in lines.read() if line["what"] == "begin"}
    left = [(before, case) for before, case in order if case["name"] not in begun]
    for number, (before, case) in enumerate(left):
        if clock() > end:
            lines.add("stopped", why=f"the time was up after {number} of {len(left)} rows")
            return 0
        expected = runner.predicted(case["time"], ceilings)
        row: Json = {
            "name": case["name"], "fusion": case["fusion"], "template": case["template"], "bytes": case["time"]["bytes"],
            "launches": len(case["time"]["launches"]), "predicted_s": expected,
            "behind_before": _finite(before), "way": case["time"].get("way", ""),
        }  # fmt: skip
        lines.add("begin", number=number, **row)
        try:
            row["check"] = bench.check(case["check"])
            if row["check"]["right"]:
                row["time"] = bench.time(case, expected, compiled=True)
                again = row["time"].get("peers", {}).pop(AGAIN, {})
                if "ratios" in again:
                    row["time"]["noise"] = max(abs(ratio - 1) for ratio in again["ratios"])
        except (Exception, SystemExit) as error:
            row["error"] = described(error)
        distance = goal_of(case["name"]).distance(row, ceilings["bytes_per_s"])
        lines.add("row", number=number, behind=_finite(distance), **row)
        say(table_row(row, distance))
        if "error" in row and not runner._alive(bench.device):
            return runner.LOST
    return 0


def _finite(distance: float) -> float | None:
    """JSON has no infinity."""
    return distance if distance < float("inf") else None


def _earlier(path: Path | None) -> list[Json]:
    """The lines of another file of results."""
    return [] if path is None else Lines(path.parent, path.stem, 0.0).read()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 2 where there is no device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder of results, with those of contact.py")
    parser.add_argument("--pack", type=Path, default=HERE.parent / "out" / "gpu-pack.npz", help="file of pack.py")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each row's competitors take their turns")
    parser.add_argument("--only", default="", help="rows whose name contains one of these words (a,b)")
    parser.add_argument("--name", default="rows", help="of the files of results")
    parser.add_argument(
        "--since", type=Path, help="a contact.jsonl of an earlier day: rows that this day's does not have"
    )
    parser.add_argument("--done", type=Path, help="a file of results whose rows are left out")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which no row is begun")
    parser.add_argument(
        "--dry-run", action="store_true", help="interpret the kernels and invent the times: no GPU needed"
    )
    args = parser.parse_args(arguments)
    begun = time.time()
    lines = Lines(args.results, args.name, begun)
    if args.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton's first import
    table = args.results / f"{args.name}.txt"

    def say(text: str) -> None:
        print(text, flush=True)
        with table.open("a") as file:
            file.write(text + "\n")

    try:
        from device import Cuda, DryRun

        device = DryRun() if args.dry_run else Cuda()
        pack = packfile.read(args.pack)
        lines.add("facts", **device.facts())
    except (Exception, SystemExit) as error:
        lines.add("error", stage="device", error=described(error))
        print(f"no rows: {described(error)}", file=sys.stderr)
        return 2
    contact = Lines(args.results, "contact", begun).read()
    ceilings = next((line for line in contact if line["what"] == "ceilings"), runner.USUAL)
    rows = [line for line in (*_earlier(args.since), *contact) if line["what"] == "case"]
    done = {line["name"] for line in _earlier(args.done) if line["what"] == "row"}
    cases = [case for case in pack["cases"] if any(word in case["name"] for word in args.only.split(","))]
    cases = [case for case in cases if case["name"] not in done]
    # What changed since then is measured, whatever it reached before.
    new = {case["name"] for case in packfile.changed(cases, args.since)} if args.since is not None else set()
    order = sorted(ordered(cases, rows, ceilings["bytes_per_s"]), key=lambda pair: pair[1]["name"] not in new)
    return run(
        Rows(device, pack["arrays"], rounds=args.rounds),
        order,
        lines,
        ceilings=ceilings,
        end=begun + args.limit,
        say=say,
    )


if __name__ == "__main__":
    sys.exit(main())
