"""Writes a result as one page of HTML that loads nothing: a summary, plots, and a table with every row and every peer."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.display import html_table, size
from tstatic.tools.benchlib import plots, results, table

OWN = "tstatic"
STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1a1a1a; --soft: #666; --grid: #ddd; --good: #0b6bcb; --bad: #b3261e;
  --p0: #0b6bcb; --p1: #b3261e; --p2: #2f7d32; --p3: #8a5a00; --p4: #6a3fb5; --p5: #00696b; }
@media (prefers-color-scheme: dark) { :root { --back: #161616; --ink: #eee; --soft: #aaa; --grid: #3a3a3a; --good: #7bb8ff;
  --bad: #ff9d94; --p0: #7bb8ff; --p1: #ff9d94; --p2: #8fd694; --p3: #f0c36a; --p4: #c3a6ff; --p5: #6fd6d8; } }
body { background: var(--back); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .small { fill: var(--soft); }
svg .grid { stroke: var(--grid); } svg .one { stroke: var(--ink); stroke-width: 1.4; }
svg .roof { stroke: var(--ink); stroke-width: 2; }
svg .bar { stroke-width: 2; } svg .good { fill: var(--good); stroke: var(--good); }
svg .bad { fill: var(--bad); stroke: var(--bad); }
svg .even { fill: var(--back); stroke: var(--soft); stroke-width: 1.5; } svg .line { fill: none; stroke-width: 1.6; }
svg .p0 { stroke: var(--p0); } svg .p1 { stroke: var(--p1); } svg .p2 { stroke: var(--p2); }
svg .p3 { stroke: var(--p3); } svg .p4 { stroke: var(--p4); } svg .p5 { stroke: var(--p5); }
svg circle.p0, svg polygon.p0 { fill: var(--p0); } svg circle.p1, svg polygon.p1 { fill: var(--p1); }
svg circle.p2, svg polygon.p2 { fill: var(--p2); } svg circle.p3, svg polygon.p3 { fill: var(--p3); }
svg circle.p4, svg polygon.p4 { fill: var(--p4); } svg circle.p5, svg polygon.p5 { fill: var(--p5); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { border-bottom: 1px solid var(--grid); padding: .25rem .6rem; text-align: left; vertical-align: top; }
pre { white-space: pre-wrap; } .wrong { font-weight: bold; }
"""


def page(record: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()) -> str:
    """Returns the page.

    Args:
        record: The result.
        earlier: Results before it, for the history; the order does not matter.
    """
    peers = list(dict.fromkeys(name for row in record["rows"] for name in row["peers"]))
    others = [name for name in peers if name != OWN]
    parts = [f"<h1>Benchmark of {record['begun'][:10]}</h1>", f"<pre>{html.escape(table.summary(record))}</pre>"]
    wrong = results.findings(record)
    if wrong:
        items = "".join(f"<li>{html.escape(one)}</li>" for one in wrong)
        parts.append(f'<h2>Wrong results and errors</h2><ul class="wrong">{items}</ul>')
    if not record["complete"]:
        parts.append("<p>The run was stopped before its last row.</p>")
    for name in others:
        drawn = plots.ratios(record, name)
        if drawn:
            parts.append(f"<h2>{OWN} and {html.escape(name)}</h2>{drawn}")
    drawn, missing = plots.roofline(record, peers)
    if drawn:
        parts.append(f"<h2>Roofline</h2>{drawn}<p>{_left_out(missing)}</p>")
    ordered = sorted([*earlier, record], key=lambda one: str(one["begun"]))
    drawn = plots.history(ordered, others)
    if drawn:
        parts.append(f"<h2>History</h2>{drawn}<p>Of the rows that all of these results have.</p>")
    parts += [f'<h2>All rows</h2><div class="wide">{_rows(record, peers)}</div>', f"<h2>Machine</h2>{_facts(record)}"]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tstatic benchmark, {record['begun'][:10]}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _left_out(missing: int) -> str:
    if not missing:
        return "Every row is in it."
    return f"{missing} rows are not in it: an op of theirs states no count of floating-point operations, or has none."


def _rows(record: Mapping[str, Any], peers: Sequence[str]) -> str:
    bandwidth = record.get("roofs", {}).get("bytes_per_s")
    lines = []
    for row in record["rows"]:
        seconds = results.samples(row, OWN)
        share = ""
        if seconds and bandwidth:
            share = f"{100 * row['bytes'] / results.middle(seconds) / bandwidth:.0f} %"
        control = f"{100 * results.control_of(row):.1f} %" if results.CONTROL in row else ""
        lines.append(
            (
                row["name"],
                *(table.cell(row, name) for name in peers),
                size(row["bytes"]),
                share,
                control,
                table.blocks(row),
            )
        )
    columns = ("row", *peers, "bytes at least", "of the copy rate", "control", "blocks of tstatic's kernels")
    return html_table(table.MARKS + " Control: how much two measurements of one peer differ.", columns, lines)


def _facts(record: Mapping[str, Any]) -> str:
    groups = ("machine", "device", "versions", "setting", "roofs")
    rows = [(f"{group}: {key}", value) for group in groups for key, value in record.get(group, {}).items()]
    rows += [(key, record[key]) for key in ("commit", "seed", "begun")]
    return html_table("", ("", ""), rows)
