"""Renders an explanation as a self-contained HTML page: properties, kernels, and the program drawn before and after."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tstatic.ir.program import Program
from tstatic.static.explain import BANDWIDTH, Drawing, Explanation, Note
from tstatic.viz.svg import clean, svg
from tstatic.where import show

STYLE = r"""
:root{color-scheme:light dark;--paper:#ffffff;--ink:#1f2933;--soft:#52606d;--line:#d5dbe1;--shade:#f3f5f7;
--mark:#1f6fc4;--good:#1d7a3d;--bad:#b3471d}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e4e8ec;--soft:#9fadba;--line:#36404a;--shade:#1e242b;
--mark:#7ab5f2;--good:#6fce8d;--bad:#f0926a}
[role=tabpanel] svg{filter:invert(.92) hue-rotate(180deg)}}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0 auto;max-width:1500px;padding:1.2rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.8rem 0 .5rem}h3{font-size:1rem;margin:.2rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;font-size:.86em;
overflow-wrap:anywhere}
pre{background:var(--shade);padding:.7rem;overflow:auto;max-height:34rem;tab-size:4}pre code{overflow-wrap:normal;
font-size:.92em}
.note,.ops span{color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}.card{border:1px solid var(--line);border-radius:8px;
padding:.5rem .9rem}
.card span{display:block;color:var(--soft);font-size:.85rem}.card b{font-variant-numeric:tabular-nums}
[role=tablist]{display:flex;gap:.3rem}
[role=tab]{font:inherit;padding:.3rem 1rem;border:1px solid var(--line);border-bottom:0;border-radius:8px 8px 0 0;
background:var(--shade);color:var(--soft);cursor:pointer}
[role=tab][aria-selected=true]{background:var(--paper);color:var(--ink);font-weight:600}
.views{display:grid;grid-template-columns:minmax(0,1fr) 22rem;gap:.8rem;border:1px solid var(--line);padding:.6rem}
@media (max-width:60rem){.views{grid-template-columns:minmax(0,1fr)}}
[role=tabpanel]{overflow:auto;max-height:75vh;grid-column:1;grid-row:1}
#verdict{grid-column:-2/-1;overflow-wrap:anywhere}@media (max-width:60rem){#verdict{grid-column:1}}
#verdict li{margin:.5rem 0}#verdict ul{padding-left:1.1rem}
.kind{font-size:.78rem;font-weight:700;text-transform:uppercase;color:var(--soft)}.kind-applied{color:var(--good)}
.kind-refused{color:var(--bad)}
a{color:var(--mark)}
:focus-visible{outline:3px solid var(--mark);outline-offset:1px}
g[data-op]{cursor:pointer}g[data-op].is-applied>rect{stroke-width:3}g[data-op].is-refused>rect{stroke-dasharray:7 3;
stroke-width:2.4}
g[data-op].chosen>rect{stroke:#c2185b;stroke-width:4}
article{border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;margin:.6rem 0}article:target{
border-color:var(--mark);border-width:2px}
.ops{margin:.3rem 0;padding-left:1.2rem}
details>summary{cursor:pointer}
table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.4rem 0}th,td{text-align:left;vertical-align:top;
padding:.25rem .5rem;border-bottom:1px solid var(--line)}
tr.set td:first-child{font-weight:700}
""".strip()

SCRIPT = r"""
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const verdict = document.getElementById("verdict");
  const tabs = Array.from(document.querySelectorAll("[role=tab]"));
  let chosen = null;

  function element(parent, tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    parent.appendChild(made);
    return made;
  }

  function choose(view, focus) {
    for (const tab of tabs) {
      const mine = tab.id === "tab-" + view;
      tab.setAttribute("aria-selected", String(mine));
      tab.setAttribute("tabindex", mine ? "0" : "-1");
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !mine;
      if (mine && focus) tab.focus();
    }
  }

  function show(view, node) {
    const found = data[view][node.getAttribute("data-op")];
    if (chosen) chosen.classList.remove("chosen");
    chosen = node;
    node.classList.add("chosen");
    verdict.textContent = "";
    if (!found) {
      element(verdict, "p", "An operator of a control-flow body: fusions work on the main block.");
      return;
    }
    element(verdict, "h3", found.label);
    if (found.where) element(verdict, "p", found.where, "note");
    const list = element(verdict, "ul", "");
    for (const [kind, text, change, target] of found.notes) {
      const item = element(list, "li", "");
      element(item, "div", kind, "kind kind-" + kind);
      element(item, "div", text);
      if (change) element(item, "div", "To allow it: " + change + ".");
      if (target) element(item, "a", "more below").setAttribute("href", "#" + target);
    }
  }

  for (const view of ["before", "after"]) {
    const panel = document.getElementById("panel-" + view);
    if (!panel) continue;
    for (const node of panel.querySelectorAll("[data-op]")) {
      const found = data[view][node.getAttribute("data-op")];
      const kinds = found ? found.notes.map((note) => note[0]) : [];
      for (const kind of ["applied", "refused"]) if (kinds.includes(kind)) node.classList.add("is-" + kind);
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", found ? found.label : "operator of a body");
      node.addEventListener("click", () => show(view, node));
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        show(view, node);
      });
    }
  }

  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => choose(tab.id.slice(4), false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) choose(tabs[(at + step + tabs.length) % tabs.length].id.slice(4), true);
    });
  });
})();
""".strip()
"""Shows an operator's notes when it is selected."""


def page(explanation: Explanation, max_ops: int = 600) -> str:
    """Returns the page.

    All text from the user (names, files, attributes) is escaped; the page loads nothing and runs only its own script.

    Args:
        explanation: The explanation to show.
        max_ops: Most ops drawn in each picture.
    """
    drawing = explanation.drawing()
    panels: dict[str, str] = {}
    if drawing is not None:
        panels = {v: _panel(v, p, max_ops) for v, p in (("before", drawing.before), ("after", drawing.after))}
    digest = base64.b64encode(hashlib.sha256(f"\n{SCRIPT}\n".encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = [
        "<h1>What the strategy did</h1>",
        f'<p class="note">{clean(explanation.note)}</p>' if explanation.note else "",
        _summary(explanation),
        _pictures(panels) if panels else "",
        _applied(explanation),
        _refused(explanation),
        _precision(explanation),
        _properties(explanation),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>tstatic: what the strategy did</title>",
            f"<style>\n{STYLE}\n</style>",
            "</head>",
            "<body>",
            *[part for part in body if part],
            f'<script type="application/json" id="data">{_data(drawing, panels)}</script>',
            f"<script>\n{SCRIPT}\n</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


# -------------------------------------------------------------------------------------------------------------- sections
def _summary(explanation: Explanation) -> str:
    t = explanation.traffic
    rows = (
        ("Launches a step", t.launches_before, t.launches_after),
        ("Bytes a step", t.bytes_before, t.bytes_after),
    )
    cards = [
        f'<div class="card"><span>{name}</span><b>{before:,} → {after:,}</b></div>' for name, before, after in rows
    ]
    made, not_made = len(explanation.applied), len(explanation.refused)
    cards.append(f'<div class="card"><span>Fusions</span><b>{made} made, {not_made} refused</b></div>')
    cards.append(f'<div class="card"><span>Kernels here</span><b>{clean(explanation.kernel_kind)}</b></div>')
    return f'<section class="cards">{"".join(cards)}</section>'


def _pictures(panels: Mapping[str, str]) -> str:
    return "\n".join(
        [
            '<section aria-label="The program">',
            "<h2>The program</h2>",
            '<div role="tablist" aria-label="Before and after the fusions">',
            '<button role="tab" id="tab-before" aria-controls="panel-before" aria-selected="true">before</button>',
            '<button role="tab" id="tab-after" aria-controls="panel-after" aria-selected="false" tabindex="-1">after</button>',
            "</div>",
            '<div class="views">',
            *panels.values(),
            '<aside id="verdict" aria-live="polite"><p>Choose an operator in the drawing: click on it, or move there with '
            "Tab and press Enter.</p></aside>",
            "</div>",
            "</section>",
        ]
    )


def _panel(view: str, program: Program, max_ops: int) -> str:
    drawn = svg(program, max_ops)
    # Each drawing has its own arrow heads: ids must be unique in a page.
    drawn = re.sub(r' id="(tst-eg?a)"', rf' id="\1-{view}"', drawn)
    drawn = re.sub(r'"url\(#(tst-eg?a)\)"', rf'"url(#\1-{view})"', drawn)
    drawn = drawn.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    hidden = "" if view == "before" else " hidden"
    return f'<div role="tabpanel" id="panel-{view}" aria-labelledby="tab-{view}" tabindex="0"{hidden}>\n{drawn}</div>'


def _members(members: Iterable[Any]) -> str:
    rows = []
    for m in members:
        where = show(m.where) if m.where is not None else ""
        at = f" <span>{clean(where)}</span>" if where else ""
        rows.append(f"<li><code>{clean(m.type)}</code> → <code>{clean(', '.join(m.outputs))}</code>{at}</li>")
    return f'<ul class="ops">{"".join(rows)}</ul>'


def _applied(explanation: Explanation) -> str:
    # The plain data has a kernel's bytes, lower bound and launches; all forms of the report use it.
    rows = explanation.to_dict()["fusions"]["applied"]
    parts = []
    for i, (made, row) in enumerate(zip(explanation.applied, rows, strict=True)):
        parts.append(f'<article id="applied-{i}"><h3><code>{clean(made.op)}</code> by {clean(made.switch)}</h3>')
        parts.append(_members(made.members))
        if made.gone:
            parts.append(f"<p>No longer in memory: <code>{clean(', '.join(made.gone))}</code>.</p>")
        if made.kept:
            parts.append(
                f"<p>Also written, since its gradient reads it: <code>{clean(', '.join(made.kept))}</code>.</p>"
            )
        if "source" in row:
            parts.append(_kernel(row["source"]))
        elif (into := explanation.taken_into(made)) is not None:
            parts.append(
                f"<p>It is computed by the kernel of <code>{clean(into.op)}</code>, by {clean(into.switch)}.</p>"
            )
        parts.append("</article>")
    return _listing("Fusions made", parts, len(rows))


def _precision(explanation: Explanation) -> str:
    if not explanation.precision:
        return ""
    rows = [f"<li>{clean(str(one))} <span>{clean(show(one.where))}</span></li>" for one in explanation.precision]
    return _listing("Mixed precision", [f'<ul class="ops">{"".join(rows)}</ul>'], len(rows))


def _listing(title: str, parts: Sequence[str], count: int | None = None) -> str:
    """Returns a section with a heading, and with the number of its entries if they are counted."""
    heading = title if count is None else f"{title} ({count})"
    none = ["<p>None.</p>"] if count == 0 else []
    return "\n".join([f'<section aria-label="{title}"><h2>{heading}</h2>', *parts, *none, "</section>"])


def _kernel(source: Mapping[str, Any]) -> str:
    launches = []
    for one in source["launches"]:
        constants = ", ".join(f"{n} = {v}" for n, v in one["constants"].items())
        cells = (one["function"], " × ".join(map(str, one["grid"])), constants, one["num_warps"], f"{one['bytes']:,}")
        launches.append("<tr>" + "".join(f"<td>{clean(str(c))}</td>" for c in cells) + "</tr>")
    return "\n".join(
        [
            f'<details class="kernel"><summary>kernel <code>{clean(source["name"])}</code></summary>',
            f"<p>Template <b>{clean(source['template'])}</b>; moves at least {source['bytes']:,} bytes: "
            f"{source['floor_us']:.3f} µs at {BANDWIDTH / 1e12:.1f} TB/s; {len(launches)} launch{'es' * (len(launches) != 1)}.</p>",
            "<table><thead><tr><th>function</th><th>grid</th><th>constants</th><th>warps</th><th>bytes</th></tr></thead>"
            f"<tbody>{''.join(launches)}</tbody></table>",
            f"<pre><code>{clean(source['text'])}</code></pre>",
            "</details>",
        ]
    )


def _refused(explanation: Explanation) -> str:
    parts = []
    for i, no in enumerate(explanation.refused):
        parts.append(
            f'<article id="refused-{i}"><h3><code>{clean(no.code)}</code> {clean(no.switch)}</h3>{_members(no.members)}'
            f"<p>{clean(no.reason)}.</p><p><b>To allow it:</b> {clean(no.change)}.</p></article>"
        )
    return _listing("Fusions refused", parts, len(explanation.refused))


def _properties(explanation: Explanation) -> str:
    plain = explanation.to_dict()
    parts = []
    for strategy in dict.fromkeys(v.strategy for v in explanation.verdicts):
        rows = []
        for v in explanation.verdicts:
            if v.strategy == strategy:
                value = repr(plain[strategy][v.name]["value"])
                mark = "" if v.value == v.default else ' class="set"'
                cells = f"<td><code>{clean(v.name)}</code></td><td><code>{clean(value)}</code></td>"
                rows.append(f"<tr{mark}>{cells}<td>{clean(v.status)}</td><td>{clean(v.reason)}</td></tr>")
        parts.append(
            f"<details{' open' if strategy == 'BuildStrategy' else ''}><summary>{clean(strategy)}</summary><table><thead><tr>"
            f"<th>property</th><th>value</th><th>status</th><th>what it did</th></tr></thead><tbody>{''.join(rows)}</tbody>"
            "</table></details>"
        )
    return _listing("Properties", parts)


# ------------------------------------------------------------------------------------------------------------------ data
def _data(drawing: Drawing | None, panels: Mapping[str, str]) -> str:
    """Returns the notes on all drawn ops, as JSON that is safe inside a script element."""
    data: dict[str, Any] = {}
    if drawing is not None:
        data = {
            "before": _notes(drawing.before, drawing.notes_before, panels["before"]),
            "after": _notes(drawing.after, drawing.notes_after, panels["after"]),
        }
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _notes(program: Program, notes: Mapping[int, Sequence[Note]], panel: str) -> dict[str, Any]:
    ops = program.global_block().ops
    found = {}
    # Quotes in the user's text are escaped, so only the drawing itself has these marks.
    for i in map(int, re.findall(r' data-op="0\.(\d+)"', panel)):
        op = ops[i]
        label = f"{op.type} → {', '.join(op.output_arg_names)}"
        where = show(op.where) if op.where is not None else ""
        rows = [[n.kind, n.text, n.change, f"{n.kind}-{n.record}" if n.record >= 0 else ""] for n in notes.get(i, ())]
        found[f"0.{i}"] = {"label": label, "where": where, "notes": rows}
    return found
