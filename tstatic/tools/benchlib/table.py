"""Results as text: one line for each row, CSV, Markdown, and a summary of what was found."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.display import counted
from tstatic.tools.benchlib import results
from tstatic.tools.benchlib.blocks import shown
from tstatic.tools.benchlib.statistics import Judgement, quantile

OWN = "tstatic"


def duration(seconds: float) -> str:
    """Returns a time with its unit and three digits."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= 0.9995 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


def interval(judgement: Judgement) -> str:
    """Returns the interval of a ratio."""
    if math.isinf(judgement.high) or judgement.low <= 0:
        return "too few samples"
    return f"{judgement.low:.2f} to {judgement.high:.2f}"


def cell(row: Mapping[str, Any], peer: str, other: str = OWN) -> str:
    """Returns what a row says of a peer: its median time, and the factor by which ``other`` is faster or slower than it."""
    entry = row["peers"].get(peer)
    if entry is None:
        return ""
    seconds = results.samples(row, peer)
    if not seconds:
        return str(entry["state"])
    text = duration(results.middle(seconds))
    judged = dict(results.judgements(row, other)).get(peer)
    if judged is not None:
        mark = {"faster": " +", "slower": " -", "undecided": " ?"}.get(judged.finding, " =")
        text += f" x{judged.ratio:.2f}{mark}"
    return text


MARKS = "Behind a peer's time: tstatic's time over it, and whether tstatic is faster (+), slower (-), the same (=), undecided (?)."


def line(row: Mapping[str, Any], peers: Sequence[str]) -> str:
    """Returns a row as one line of plain text."""
    cells = [f"{name} {cell(row, name)}" for name in peers]
    said = [f"blocks: {blocks(row)}"] if row.get("blocks") else []
    return "; ".join([row["name"], *cells, *said])


def blocks(row: Mapping[str, Any], peer: str = OWN) -> str:
    """Returns the kernels that a peer launched with their blocks; empty where it launched none."""
    return shown(row["peers"].get(peer, {}).get("kernels", ()))


def summary(record: Mapping[str, Any]) -> str:
    """Returns what was found: how often tstatic is faster, the same and slower, by peer."""
    machine = record["device"].get("name", record["machine"]["cpu"])
    lines = [f"{counted(len(record['rows']), 'row')} on {machine}, commit {record['commit']}"]
    names = dict.fromkeys(name for row in record["rows"] for name in row["peers"])
    for name in names:
        found = [j for row in record["rows"] for peer, j in results.judgements(row, OWN) if peer == name]
        states = [row["peers"][name]["state"] for row in record["rows"] if name in row["peers"]]
        counts = [f"{states.count(s)} {s}" for s in ("wrong", "error", "missing") if s in states]
        if found:
            by = [f"{sum(j.finding == f for j in found)} {f}" for f in ("faster", "same", "slower", "undecided")]
            mean = math.exp(sum(math.log(j.ratio) for j in found) / len(found))
            counts = [f"tstatic is {', '.join(by)} ({mean:.2f} of its time, geometric mean)", *counts]
        if counts:
            lines.append(f"{name}: {'; '.join(counts)}")
    return "\n".join([*lines, MARKS])


COLUMNS = (
    "name", "subject", "sizes", "dtype", "direction", "fusion", "peer", "state", "median_s", "p20_s", "p80_s", "samples", "inner",
    "tstatic_ratio", "low", "high", "finding", "bytes", "flops", "detail", "blocks",
)  # fmt: skip


def to_csv(record: Mapping[str, Any]) -> str:
    """Returns a line per row and peer."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in record["rows"]:
        judged = dict(results.judgements(row, OWN))
        for name, entry in row["peers"].items():
            seconds = results.samples(row, name)
            times: list[Any] = ["", "", ""]
            if seconds:
                times = [results.middle(seconds), quantile(seconds, 0.2), quantile(seconds, 0.8)]
            j = judged.get(name)
            ratio: list[Any] = ["", "", "", ""] if j is None else [j.ratio, j.low, j.high, j.finding]
            writer.writerow([
                row["name"], row["subject"], row["label"], row["dtype"], row["direction"], row["fusion"], name, entry["state"],
                *times, len(seconds), entry.get("inner", ""), *ratio, row["bytes"], row["flops"], entry["detail"],
                blocks(row, name),
            ])  # fmt: skip
    return out.getvalue()


def markdown(record: Mapping[str, Any]) -> str:
    """Returns a page with every row and every peer that was measured, those that tstatic loses among them."""
    names = list(dict.fromkeys(name for row in record["rows"] for name in row["peers"]))
    m = record["machine"]
    lines = [
        f"# Ops and fusions, {record['begun'][:10]}",
        "",
        f"- machine: {m['cpu']}, {m['cores']} cores, {m['memory_mib']} MiB, {m['system']}; {m['blas']}",
        f"- device: {', '.join(f'{k} {v}' for k, v in record['device'].items())}",
        f"- commit {record['commit']}; {', '.join(f'{n} {v}' for n, v in record['versions'].items())}; seed {record['seed']}",
        *[f"- {text}" for text in summary(record).splitlines()],
        "",
        f"| row | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    lines += [f"| {row['name']} | {' | '.join(cell(row, n) for n in names)} |" for row in record["rows"]]
    wrong = results.findings(record)
    return "\n".join([*lines, *(["", *(f"- {one}" for one in wrong)] if wrong else []), ""])
