"""Measures one peer as if it were two: how often is a difference called that is none? `python bench/same_twice.py --help`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from own_kernels import restart

from tstatic.benchlib import results, table
from tstatic.benchlib.machine import usable_cores
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.peers import PEERS, peer
from tstatic.benchlib.suite import Selection, Suite, chosen_rows
from tstatic.benchlib.timers import CpuTimer

SECOND = "tstatic as another"
"""The same function under another name; beside it there is the control, which every run measures."""


def main() -> int:
    """Measures rows of many ops; the exit code is 1 if a difference is called in 1 % of them or more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=240, help="how many, drawn evenly from those of all ops")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--skip", nargs="*", default=[], help="patterns of rows")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    peer(SECOND, usual=False)(PEERS["tstatic"].prepare)
    every = list(chosen_rows(Selection(ops=["*"], skip=given.skip)))
    step = max(1, len(every) // given.rows)
    rows = every[::step][: given.rows]
    suite = Suite(
        CpuTimer(given.threads), ["tstatic", SECOND], Setting(given.repeats), threads=given.threads, path=given.json
    )  # fmt: skip
    record = suite.run(rows, lambda row: print(table.line(row, ["tstatic", SECOND]), flush=True))
    judged = [(row["name"], j) for row in record["rows"] for _, j in results.judgements(row)]
    counts = Counter(j.finding for _, j in judged)
    called = [(name, j) for name, j in judged if j.finding in ("faster", "slower")]
    share = len(called) / max(1, len(judged))
    without = sum(abs(j.ratio - 1) > 0.03 for _, j in judged)
    lines = [
        f"# One peer measured as two, {report.today()}",
        "",
        f"- {len(judged)} rows: {counts['same']} the same, {len(called)} called different: **{100 * share:.2f} %**, "
        "wanted under 1 %",
        f"- {len(every)} rows to draw from" + (f", without {', '.join(given.skip)}" if given.skip else ""),
        f"- by the medians alone {without} of them would differ by more than 3 %",
        *(f"- called: {name}: {j.ratio:.3f} ({table.interval(j)})" for name, j in called),
        "",
        table.markdown(record),
    ]
    report.put(record, "\n".join(lines), given.json)
    return int(share >= 0.01)


if __name__ == "__main__":
    restart()
    sys.exit(main())
