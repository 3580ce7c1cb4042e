"""Two commits against each other, in turns within one run: `python bench/commits.py OLD` compares OLD with the working tree."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report
from own_kernels import restart
from workers import HERE, Worker, WorkerError

CASES = ("mlp", "cnn", "gpt", "small", "infer", "tiny:500", "null:mlp")
MOST_MEAN, MOST_ROW = 1.03, 1.08
"""Ratios of new to old that a change may cost: the geometric mean over all rows, and any single one."""


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The repository as it was at a commit, with the benches of today, so that both run the same cases."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(root), commit], cwd=HERE, check=True)
        try:
            shutil.rmtree(root / "bench")
            shutil.copytree(HERE, root / "bench", ignore=shutil.ignore_patterns("results", "out"))
            yield root
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(root)], cwd=HERE, check=True)


def compare(old: Path, case: str, threads: int, rounds: int, turn_s: float) -> dict[str, Any]:
    """Times a case in both; the order changes with each round, and a round gives one ratio of medians."""
    scripts = {"old": str(old / "bench" / "peer_static.py"), "new": "peer_static.py"}
    workers = {name: Worker(sys.executable, script, ("tstatic",), threads) for name, script in scripts.items()}
    row: dict[str, Any] = {"case": case, "threads": threads}
    try:
        first = {}
        for name, worker in workers.items():
            first[name] = worker.ask(do="prepare", case=case, threads=threads)["first_value"]
            worker.ask(do="run", least=3, for_s=turn_s / 2)
        seconds: dict[str, list[list[float]]] = {"old": [], "new": []}
        for turn in range(rounds):
            for name in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                seconds[name].append(workers[name].ask(do="run", least=3, for_s=turn_s)["seconds"])
        medians = {name: [statistics.median(one) for one in found] for name, found in seconds.items()}
        ratios = [new / old for old, new in zip(medians["old"], medians["new"], strict=True)]
        least = {name: min(min(one) for one in found) for name, found in seconds.items()}
        row |= {
            "median_ratio": statistics.median(ratios),
            "ratios": ratios,
            "min_ratio": least["new"] / least["old"],
            "min_s": least,
            "first_values": first,
        }
    except WorkerError as error:
        row["missing"] = str(error)
    finally:
        for worker in workers.values():
            worker.close()
    return row


def markdown(result: dict[str, Any]) -> str:
    """The page of a result."""
    machine = result["machine"]
    lines = [
        f"# Commits {result['old']} and {result['new']}, {result['date']}",
        "",
        f"- machine: {', '.join(f'{k} {v}' for k, v in machine.items())}",
        f"- {result['rounds']} rounds in turns, {result['turn_s']:g} s each; a ratio below 1 means that the new commit is faster",
        "",
        "| case | threads | new / old, median of rounds | new / old, minima | old, least us | new, least us |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        if "missing" in row:
            lines.append(f"| {row['case']} | {row['threads']} | {row['missing']} | | | |")
            continue
        old, new = (row["min_s"][name] * 1e6 for name in ("old", "new"))
        lines.append(
            f"| {row['case']} | {row['threads']} | {row['median_ratio']:.3f} | {row['min_ratio']:.3f} | {old:.1f} | {new:.1f} |"
        )
    lines += ["", f"Geometric mean over all rows: **{result['mean']:.3f}** (at most {MOST_MEAN}), "
              f"largest row {result['largest']:.3f} (at most {MOST_ROW})."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the comparison and writes its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas: %(default)s")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of a turn (%(default)s)")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--output-json", type=Path, help="where to write; the page goes beside it")
    given = parser.parse_args()
    rows = []
    with checkout(given.old) as old:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=old, capture_output=True, text=True, check=True
        )
        for case in given.only.split(","):
            for threads in map(int, given.threads.split(",")):
                rows.append(compare(old, case, threads, given.rounds, given.turn))
                print(
                    json.dumps({k: v for k, v in rows[-1].items() if k not in ("ratios", "first_values")}), flush=True
                )
    ratios = [row["median_ratio"] for row in rows if "missing" not in row]
    if not ratios:
        sys.exit("nothing could be measured")
    result = {
        "date": report.today(), "old": commit.stdout.strip(), "new": report.commit(), "machine": report.machine(),
        "rounds": given.rounds, "turn_s": given.turn, "rows": rows,
        "mean": math.exp(statistics.mean(map(math.log, ratios))), "largest": max(ratios),
    }  # fmt: skip
    path = given.output_json or HERE / "results" / f"commits-{result['date']}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(result))
    print(f"geometric mean {result['mean']:.3f}, largest row {result['largest']:.3f}; wrote {path.with_suffix('.md')}")


if __name__ == "__main__":
    restart()
    main()
