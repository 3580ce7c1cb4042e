"""DataLoader against torch's on the same data sets, in turns: `python bench/loader.py`; the page goes to `bench/results/`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import report
from own_kernels import restart
from workers import HERE, Worker

CASES = {
    "images:0": "images, no workers",
    "images:2": "images, 2 workers that stay",
    "images:2:new": "images, 2 workers started in each epoch",
    "rows:0": "rows, no workers",
    "rows:2": "rows, 2 workers that stay",
    "rows:2:new": "rows, 2 workers started in each epoch",
}
PEERS = ("tstatic", "torch")


def compare(case: str, rounds: int, turn_s: float) -> dict[str, Any]:
    """Times a case in both; the order changes with each round, and a round gives one ratio of medians."""
    workers = {name: Worker(sys.executable, "peer_loader.py", (name,), 1) for name in PEERS}
    try:
        versions = {name: worker.ask(do="facts") for name, worker in workers.items()}
        made = {name: worker.ask(do="prepare", case=case, threads=1) for name, worker in workers.items()}
        seconds: dict[str, list[float]] = {name: [] for name in PEERS}
        for turn in range(rounds):
            for name in PEERS if turn % 2 == 0 else PEERS[::-1]:
                workers[name].ask(do="run", least=1, for_s=0)
                seconds[name].append(statistics.median(workers[name].ask(do="run", least=2, for_s=turn_s)["seconds"]))
    finally:
        for worker in workers.values():
            worker.close()
    samples = made["tstatic"]["samples"]
    ratios = [torch / mine for mine, torch in zip(*(seconds[name] for name in PEERS), strict=True)]
    return {
        "case": case, "what": CASES[case], "batch": made["tstatic"]["batch"], "versions": versions, "ratios": ratios,
        "per_second": {name: samples / statistics.median(found) for name, found in seconds.items()},
        "speedup": statistics.median(ratios),
    }  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The page of a result."""
    versions = result["rows"][0]["versions"]["torch"]
    lines = [
        f"# DataLoader and torch's, {result['date']}",
        "",
        f"- commit {result['commit']}",
        f"- machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items())}",
        f"- versions: {', '.join(f'{k} {v}' for k, v in versions.items())}",
        f"- {result['rounds']} rounds in turns, {result['turn_s']:g} s each, one thread of arithmetic",
        "- both read the same data set, written in Python, and look at a part of each batch",
        "- the speed-up is the median of the rounds' ratios; above 1, tstatic is faster",
        "",
        "| what | batch | tstatic, samples/s | torch, samples/s | speed-up |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        mine, torch = (row["per_second"][name] for name in PEERS)
        lines.append(f"| {row['what']} | {row['batch']} | {mine:,.0f} | {torch:,.0f} | **{row['speedup']:.2f}** |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the comparison and writes its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas: %(default)s")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn (%(default)s)")
    parser.add_argument("--output-json", type=Path, help="where to write; the page goes beside it")
    given = parser.parse_args()
    before = report.machine()
    rows = []
    for case in given.only.split(","):
        rows.append(compare(case, given.rounds, given.turn))
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "versions"}), flush=True)
    result = {
        "date": report.today(), "commit": report.commit(), "machine": before, "rounds": given.rounds, "turn_s": given.turn,
        "rows": rows,
    }  # fmt: skip
    path = given.output_json or HERE / "results" / f"loader-{result['date']}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(result))
    print(f"wrote {path.with_suffix('.md')}")


if __name__ == "__main__":
    restart()
    main()
