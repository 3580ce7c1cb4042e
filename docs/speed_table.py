"""Speeds on record: for each network and peer the newest result that measured both, the lost ones among them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tstatic.benchlib import results

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- speed: made from bench/results by `make docs` -->", "<!-- end of speed -->"
TABLES = ("cpu-", "nets-", "small-steps-")
"""Results of `bench/cpu.py` on record."""
ALONE = ("null",)
"""What stands in such results and is not a peer: the device that computes nothing."""


class MixedKernelsError(ValueError):
    """Raised if a table would hold times of several sets of numpy's kernels."""


def kernels(result: Any) -> str:
    """Returns the processor, and the library and kernels of numpy's matrix products, with which a result was measured."""
    machine = result.get("machine", {})
    return f"{machine.get('cpu', '?')}, {machine.get('blas', '?')}"


def read(folder: Path = RESULTS) -> list[tuple[str, Any]]:
    """Returns date and result of every file that was measured with the kernels of the newest one, oldest first."""
    found = _read(folder)
    return [(date, result) for date, result in found if kernels(result) == kernels(found[-1][1])]


def _read(folder: Path) -> list[tuple[str, Any]]:
    files = [file for file in folder.glob("*.json") if file.name.startswith(TABLES)]
    named = [(re.sub(r"^.*?(?=\d{4}-)", "", file.stem), file) for file in files]
    return [
        (date, json.loads(file.read_text(encoding="utf-8"))) for date, file in sorted(named, key=lambda pair: pair[0])
    ]


def ratios(found: list[tuple[str, Any]]) -> dict[tuple[str, str], tuple[float, str]]:
    """Returns (title, peer) -> tstatic's median time over the peer's, and the date, on as many threads as the result has.

    A pair that other processes disturbed in every turn counts only where no other was measured; its date then ends in ``*``.
    "tstatic on torch" is a peer of its own.

    Raises:
        MixedKernelsError: If the results were measured with several sets of kernels.
    """
    if len(sets := {kernels(result) for _, result in found}) > 1:
        raise MixedKernelsError(
            f"one table takes times of one machine and one set of kernels; these are of {sorted(sets)}"
        )
    newest: dict[tuple[str, str], tuple[float, str]] = {}
    for quiet in (False, True):
        for date, result in found:
            for case in result["cases"].values():
                for peer, ratio in _of_case(case, max(result["threads"]), quiet):
                    newest[case["title"], peer] = ratio, date + "*" * (not quiet)
    return newest


def _of_case(case: Any, threads: int, quiet: bool) -> Iterator[tuple[str, float]]:
    rows = [r for r in case.get("rows", ()) if "missing" not in r and (not quiet or r.get("quiet_turns", 0) > 0)]
    mine = next((r for r in rows if r["name"] == "tstatic" and r["threads"] == threads), None)
    for name in dict.fromkeys(r["name"] for r in rows):
        if mine is None or name == "tstatic" or name.startswith(ALONE):
            continue
        # A peer with fewer threads only (Paddle, a bare loop) may be quicker with them: its best counts.
        best = min(r["median_s"] for r in rows if r["name"] == name and r["threads"] <= threads)
        if name in ("torch", "torch fused", "tstatic on torch"):
            best = min((r["median_s"] for r in rows if r["name"] == name and r["threads"] == threads), default=best)
        yield name, mine["median_s"] / best


def lines(found: list[tuple[str, Any]]) -> list[str]:
    """Returns the table in Markdown, and what it says of rows that are lost."""
    newest = ratios(found)
    titles = list(dict.fromkeys(title for title, _ in newest))
    peers = list(dict.fromkeys(peer for _, peer in newest))
    made = [f"| step of | {' | '.join(peers)} | measured |", "|---|" + "---|" * (len(peers) + 1)]
    for title in titles:
        pairs = [newest.get((title, peer)) for peer in peers]
        cells = [f"{one[0]:.2f}{'*' * one[1].endswith('*')}" if one else "" for one in pairs]
        dates = sorted({one[1][:10] for one in pairs if one})
        made.append(f"| {title} | {' | '.join(cells)} | {', '.join(dates)} |")
    lost = sum(ratio > 1.005 for ratio, _ in newest.values())
    said = f"{len(newest)} pairs; tstatic is slower in {lost} of them."
    disturbed = any(date.endswith("*") for _, date in newest.values())
    return [*made, "", said + " (* other processes ran in every turn.)" * disturbed]


def ops_lines(record: Any, file: str) -> list[str]:
    """Returns how often tstatic is faster and slower than each peer in a result of `tstatic bench`, and every row that it loses."""
    judged = [(row, peer, one) for row in record["rows"] for peer, one in results.judgements(row)]
    peers = list(dict.fromkeys(peer for row in record["rows"] for peer in row["peers"]))
    made = [
        "| peer | rows timed | tstatic faster | the same | slower | undecided | not timed |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer in peers:
        found = [one.finding for _, name, one in judged if name == peer]
        states = [row["peers"][peer]["state"] for row in record["rows"] if peer in row["peers"]]
        others = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states) if s != "ok")
        counts = [str(found.count(word)) for word in ("faster", "same", "slower", "undecided")]
        if peer != "tstatic":
            made.append(f"| {peer} | {len(found)} | {' | '.join(counts)} | {others} |")
    lost = sorted((-one.ratio, row["name"], peer) for row, peer, one in judged if one.finding == "slower")
    folded = [
        "<details>", f"<summary>The {len(lost)} pairs in which tstatic is slower</summary>", "",
        "| row | peer | tstatic's time over the peer's |", "|---|---|---|",
        *(f"| {name} | {peer} | {-ratio:.2f} |" for ratio, name, peer in lost), "", "</details>",
    ]  # fmt: skip
    machine = f"{record['machine']['cpu']}, {record['machine']['cores']} cores"
    return [
        f"`tstatic bench` of {record['begun'][:10]} ({machine}; every row and its times: `{file}`):",
        "",
        *made,
        "",
        *_reasons(file),
        *(folded if lost else ["tstatic is slower in no pair."]),
    ]


def _reasons(file: str) -> list[str]:
    """Returns what names the profile of the rows that lose, if there is one beside a result."""
    profile = ROOT / file.replace("ops-", "passes-")
    if profile == ROOT / file or not profile.exists():
        return []
    return [
        f"`{file.replace('ops-', 'passes-')}` has a profile of each row that takes more than 1.2 times as long as torch: an",
        "operator of numpy is a chain of calls that each pass over whole arrays or blocks, and products are as fast as the library",
        "behind numpy.", "",
    ]  # fmt: skip


MOST_ROWS = 12
"""The most rows of the README's table; the page of speeds has all."""
SHORT_PEERS = {"torch": "torch eager", "paddle": "Paddle 2.6.2"}
"""The peers in the README."""
INTRODUCTION = """# Speed on the CPU

Training steps, and some inference: tstatic's median time over that of torch eager, torch with its fused attention and optimizer,
tstatic's own operators run by torch, Paddle 2.6.2 and a bare loop of numpy calls, on two cores, each pair in turns within one run
(below 1, tstatic is faster; above 1, it is slower). Each number is the newest on record. `make bench` measures them again, and
`make docs` makes this page of `bench/results`. `tstatic bench` measures operators and fusions ([benchmarks](benchmarks.md)); times
on a GPU stand in [GPU status](gpu_status.md).
"""


def short(title: str) -> str:
    """Returns the name of a network: its title up to the sizes of its input."""
    return re.split(r"[,:]", title)[0].partition(" conv")[0]


def short_lines(found: list[tuple[str, Any]]) -> list[str]:
    """Returns the README's table: networks beside torch eager and Paddle; those that lose most first."""
    newest = ratios(found)
    titles = [t for t in dict.fromkeys(title for title, _ in newest) if (t, "torch") in newest]
    titles.sort(key=lambda title: -newest[title, "torch"][0])
    made = [f"| Training step of | {' | '.join(SHORT_PEERS.values())} | measured |", "|---|---|---|---|"]
    for title in titles[:MOST_ROWS]:
        pairs = [newest.get((title, peer)) for peer in SHORT_PEERS]
        cells = [f"{one[0]:.2f}{'*' * one[1].endswith('*')}" if one else "" for one in pairs]
        dates = sorted({one[1][:10] for one in pairs if one})
        made.append(f"| {short(title)} | {' | '.join(cells)} | {dates[-1]} |")
    return made


def speed_page(folder: Path = RESULTS) -> str:
    """Returns ``speed.md``: all networks and peers, and the operators that lose."""
    made = [INTRODUCTION, *lines(read(folder))]
    newest = max(folder.glob("ops-*.json"), default=None)
    if newest is not None:
        made += [
            "",
            "## Operators and fusions",
            "",
            *ops_lines(results.read(newest), f"bench/results/{newest.stem}.md"),
        ]
    return "\n".join(made) + "\n"


def readme(file: Path = ROOT / "README.md", folder: Path = RESULTS) -> str:
    """Returns the README with its table made anew."""
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, "", *short_lines(read(folder)), "", END]) + after
