"""Renders an explanation as a self-contained HTML page: properties, kernels, and the program drawn before and after."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pkgutil import get_data
from typing import Any

from tstatic.display import size
from tstatic.errors import ProgramError
from tstatic.ir.program import Operator, Program
from tstatic.static.explain import COPIED, Drawing, Explanation, Note
from tstatic.static.explain.savings import Saving
from tstatic.target import Target
from tstatic.version import __version__
from tstatic.viz.folding import Group, edges_of, fold, phase_of
from tstatic.viz.svg import clean, short
from tstatic.where import show

MOST_LISTED = 40
"""Values or ops that a list in the page's data has at most."""


def _beside(file: str) -> str:
    """Returns the text of a file that lies beside this one."""
    # A checkout may have other line ends, and the digest of the page's policy covers every byte.
    return (get_data(__name__, file) or b"").decode().replace("\r\n", "\n")


STYLE = _beside("explain.css").strip()
"""For light and dark, wide and narrow windows."""
LAYOUT = _beside("explain_layout.js")
"""Functions within the script's own: ``measure``, ``arrange``, ``scale``, ``place``, ``seen``, ``column``."""
SCRIPT = _beside("explain.js").replace("  // HERE: explain_layout.js\n", LAYOUT).strip()
"""Draws the program as boxes that fold and unfold, and shows an operator's notes when it is chosen."""


def page(explanation: Explanation, max_ops: int = 60) -> str:
    """Returns the page.

    All text from the user (names, files, attributes) is escaped; the page loads nothing and runs only its own script.

    Args:
        explanation: The explanation to show.
        max_ops: Boxes that are open at most when the page opens; longer programs are folded, and all of them opens by clicks.

    Raises:
        ProgramError: If ``max_ops`` is not a positive int.
    """
    if isinstance(max_ops, bool) or not isinstance(max_ops, int) or max_ops < 1:
        raise ProgramError(
            "the number of boxes that are open at first is not usable",
            expected="an int of at least 1",
            received=repr(max_ops),
            fix="leave max_ops out, or pass for example 60",
        )
    drawing = explanation.drawing()
    # Only the script with this digest runs, newlines included: text of the user's that slipped through would not.
    digest = base64.b64encode(hashlib.sha256(f"\n{SCRIPT}\n".encode()).digest()).decode()
    # Nothing is loaded: the page has all that it shows.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = [
        "<h1>What the strategy did</h1>",
        _header(explanation, drawing),
        f'<p class="note">{clean(explanation.note)}</p>' if explanation.note else "",
        _summary(explanation),
        PICTURES if drawing is not None else "",
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
            f'<script type="application/json" id="data">{_data(explanation, drawing, max_ops)}</script>',
            f"<script>\n{SCRIPT}\n</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


PICTURES = """
<section aria-label="The program">
<h2>The program</h2>
<div class="bar">
<div role="tablist" aria-label="Before and after the fusions">
<button role="tab" id="tab-before" aria-controls="panel" aria-selected="true">before</button>
<button role="tab" id="tab-after" aria-controls="panel" aria-selected="false" tabindex="-1">after</button>
</div>
<div role="toolbar" aria-label="The drawing">
<button id="fit" title="Show the whole program (0)">fit</button>
<button id="larger" title="Zoom in (+)" aria-label="zoom in">+</button>
<button id="smaller" title="Zoom out (-)" aria-label="zoom out">−</button>
<button id="fold" title="Close all groups">fold all</button>
<button id="unfold" title="Open all groups">unfold all</button>
</div>
<label class="find">search <input type="search" id="search" placeholder="operator, variable or line" autocomplete="off"></label>
<output id="found" for="search"></output>
</div>
<div class="views">
<div role="tabpanel" id="panel" aria-labelledby="tab-before">
<svg id="scene" tabindex="0" role="group" aria-describedby="keys"><g id="camera"></g></svg>
<canvas id="minimap" width="170" height="120" aria-hidden="true"></canvas>
<noscript>The drawing needs JavaScript; the lists below do not.</noscript>
</div>
<aside id="verdict" aria-live="polite"><p>Choose an operator in the drawing: click on it, or move there with the arrow keys and
press Enter.</p></aside>
</div>
<p class="note" id="keys">One colour is one kernel; grey runs by itself; a dashed edge marks an operator that a fusion refused.
Drag to move, Ctrl and the wheel to zoom, click a title to fold. Keys: arrows go from box to box, Enter chooses or unfolds,
Escape folds, + and − zoom, 0 shows everything, / searches.</p>
</section>
""".strip()


# -------------------------------------------------------------------------------------------------------------- sections
def _summary(explanation: Explanation) -> str:
    t = explanation.traffic
    rows = (
        ("Launches a step", f"{t.launches_before:,}", f"{t.launches_after:,}", ""),
        (
            "Read and written a step",
            size(t.bytes_before),
            size(t.bytes_after),
            f"{t.bytes_before:,} → {t.bytes_after:,} bytes",
        ),
    )
    cards = [
        f'<div class="card"><span>{name}</span><b title="{exact}">{before} → {after}</b></div>'
        for name, before, after, exact in rows
    ]
    made, not_made = len(explanation.applied), len(explanation.refused)
    cards.append(f'<div class="card"><span>Fusions</span><b>{made} made, {not_made} refused</b></div>')
    cards.append(f'<div class="card"><span>Kernels here</span><b>{clean(explanation.kernel_kind)}</b></div>')
    return f'<section class="cards">{"".join(cards)}</section>'


def _header(explanation: Explanation, drawing: Drawing | None) -> str:
    """Returns the line that says what the page shows: the program, the date, the version, the strategy."""
    given = [v for v in explanation.verdicts if v.given and v.value != v.default]
    strategy = ", ".join(f"{v.name} = {v.value!r}" for v in given) or "nothing set"
    program = "" if drawing is None else repr(drawing.before)
    parts = [program, explanation.made_at, f"tstatic {__version__}"]
    shown = " · ".join(clean(part) for part in parts if part)
    return f'<p class="note" id="header">{shown}<br>strategy: <code>{clean(strategy)}</code></p>'


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
    first: dict[str, int] = {}
    for i, (made, row) in enumerate(zip(explanation.applied, rows, strict=True)):
        parts.append(f'<article id="applied-{i}"><h3><code>{clean(made.op)}</code> by {clean(made.switch)}</h3>')
        parts.append(_members(made.members))
        # A fusion that a later one absorbed saves nothing by itself.
        if explanation.saved and (made.kernel is not None or made.rewritten):
            parts.append(_saves(explanation.saved[i]))
        if made.gone:
            parts.append(f"<p>No longer in memory: <code>{clean(', '.join(made.gone))}</code>.</p>")
        if made.kept:
            parts.append(
                f"<p>Also written, since its gradient reads it: <code>{clean(', '.join(made.kept))}</code>.</p>"
            )
        if "source" in row:
            # Equal layers have equal kernels: hundreds of copies of one text would make a page of megabytes.
            same = first.setdefault(row["source"]["name"], i)
            parts.append(_kernel(row["source"], explanation.target, same if same != i else None))
        elif (into := explanation.taken_into(made)) is not None:
            parts.append(
                f"<p>It is computed by the kernel of <code>{clean(into.op)}</code>, by {clean(into.switch)}.</p>"
            )
        parts.append("</article>")
    total = sum(one.nbytes for one in explanation.saved)
    return _listing(
        "Fusions made", parts, len(rows), f"{size(total)} saved a step" if rows and explanation.saved else ""
    )


def _saves(saving: Saving) -> str:
    """Returns the paragraph that says what a fusion saves a step."""
    launches = f" and {saving.launches} launch{'es' * (saving.launches != 1)}" if saving.launches else ""
    memory = f"; {size(saving.memory)} less alive at the peak" if saving.memory else ""
    exact = f"{saving.nbytes:,} bytes"
    return f'<p class="saves">Saves <b title="{exact}">{size(saving.nbytes)}</b>{launches} a step{memory}.</p>'


def _precision(explanation: Explanation) -> str:
    if not explanation.precision:
        return ""
    rows = [f"<li>{clean(str(one))} <span>{clean(show(one.where))}</span></li>" for one in explanation.precision]
    return _listing("Mixed precision", [f'<ul class="ops">{"".join(rows)}</ul>'], len(rows))


def _listing(title: str, parts: Sequence[str], count: int | None = None, total: str = "") -> str:
    """Returns a section with a heading, and with the number of its entries if they are counted, and what they come to."""
    heading = title if count is None else f"{title} ({', '.join(filter(None, (str(count), total)))})"
    none = ["<p>None.</p>"] if count == 0 else []
    return "\n".join([f'<section aria-label="{title}"><h2>{heading}</h2>', *parts, *none, "</section>"])


def _kernel(source: Mapping[str, Any], target: Target, same: int | None) -> str:
    """Returns a kernel's launches and its text; a link to the fusion that has the ``same`` text instead, where one has."""
    launches = []
    floor = "in a time that is not known, as the chip's bandwidth is not"
    if target.bandwidth:
        floor = f"{source['floor_us']:.3f} µs at {COPIED * target.bandwidth / 1e12:.1f} TB/s"
    for one in source["launches"]:
        constants = ", ".join(f"{n} = {v}" for n, v in one["constants"].items())
        cells = (one["function"], " × ".join(map(str, one["grid"])), constants, one["num_warps"], f"{one['bytes']:,}")
        launches.append("<tr>" + "".join(f"<td>{clean(str(c))}</td>" for c in cells) + "</tr>")
    return "\n".join(
        [
            f'<details class="kernel"><summary>kernel <code>{clean(source["name"])}</code></summary>',
            f"<p>Template <b>{clean(source['template'])}</b>; moves at least {source['bytes']:,} bytes: "
            f"{floor}; {len(launches)} launch{'es' * (len(launches) != 1)}.</p>",
            "<table><thead><tr><th>function</th><th>grid</th><th>constants</th><th>warps</th><th>bytes</th></tr></thead>"
            f"<tbody>{''.join(launches)}</tbody></table>",
            f"<pre><code>{clean(source['text'])}</code></pre>"
            if same is None
            else f'<p>Its text is <a href="#applied-{same}">that of an earlier fusion</a>.</p>',
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
def _data(explanation: Explanation, drawing: Drawing | None, most_open: int) -> str:
    """Returns the drawings and the notes on all ops, as JSON that is safe inside a script element."""
    data: dict[str, Any] = {}
    if drawing is not None:
        colours = _colours(explanation)
        data = {
            "before": _view(drawing.before, drawing.notes_before, drawing.bytes_before, colours, most_open),
            "after": _view(drawing.after, drawing.notes_after, drawing.bytes_after, colours, most_open),
        }
    # Sorted, so that equal explanations give equal pages.
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    # These could end the script element; JSON reads their escapes as the same characters.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _colours(explanation: Explanation) -> list[int]:
    """Returns the number of its kernel for each fusion: fusions that one kernel computes share it."""
    # By identity: layers that are alike have equal records.
    own = {id(a): number for number, a in enumerate(a for a in explanation.applied if a.kernel is not None)}
    found = []
    for made in explanation.applied:
        into = made if made.kernel is not None else explanation.taken_into(made)
        # -1 is a rewriting: it has no kernel, and so no colour.
        found.append(own.get(id(into), -1))
    return found


def _view(
    program: Program,
    notes: Mapping[int, Sequence[Note]],
    sizes: Mapping[str, int],
    colours: Sequence[int],
    most_open: int,
) -> dict[str, Any]:
    block = program.global_block()
    edges = [
        # The bytes are those of all values; only the names are cut.
        [a, b, sum(sizes.get(n, 0) for n in row), [_value(n, sizes) for n in row[:MOST_LISTED]]]
        for (a, b), row in edges_of(block).items()
    ]
    # What no op makes has no box of its own, and is listed with its reader.
    made = {n for op in block.ops for n in op.output_arg_names}
    # The ops of one fusion share its note, which names all of them: each note is written once.
    told: dict[Note, int] = {}
    ops = []
    for i, op in enumerate(block.ops):
        row = notes.get(i, ())
        numbers = [told.setdefault(note, len(told)) for note in row]
        ops.append({**_op(op, row, made, sizes, colours, program), "notes": numbers})
    written = [[n.kind, n.text, n.change, f"{n.kind}-{n.record}" if n.record >= 0 else ""] for n in told]
    return {"ops": ops, "notes": written, "edges": edges, "tree": _tree(fold(block, most_open))}


def _op(
    op: Operator,
    notes: Sequence[Note],
    made: set[str],
    sizes: Mapping[str, int],
    colours: Sequence[int],
    program: Program,
) -> dict[str, Any]:
    mine = [colours[n.record] for n in notes if n.kind == "applied" and n.record >= 0]
    inner = [i for name, i in op.attrs.items() if name == "sub_block" and isinstance(i, int)]
    return {
        "type": op.type,
        "label": f"{op.type} → {', '.join(op.output_arg_names)}",
        "name": short(next(iter(op.output_arg_names), ""), 24),
        "phase": phase_of(op),
        "where": show(op.where) if op.where is not None else "",
        # Several kernels may compute an op (again), and a box has one colour.
        "colour": max(mine, default=-1),
        "reads": [_value(n, sizes) for n in dict.fromkeys(op.input_arg_names) if n not in made][:MOST_LISTED],
        "body": [inner_op.type for i in inner for inner_op in program.blocks[i].ops][:MOST_LISTED],
    }


def _value(name: str, sizes: Mapping[str, int]) -> str:
    return f"{name} ({size(sizes[name])})" if name in sizes else name


def _tree(group: Group) -> dict[str, Any]:
    return {
        "title": group.title, "kind": group.kind, "open": group.open, "rows": group.rows, "links": group.links,
        "items": [_tree(item) if isinstance(item, Group) else item for item in group.items],
    }  # fmt: skip
