"""A program as a picture: SVG text of our own, ops from top to bottom with the values between them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tstatic.errors import ProgramError
from tstatic.formats.text import role_text, value_text
from tstatic.ir import edit
from tstatic.ir.opdef import EMPTY
from tstatic.ir.program import Operator, Parameter, Variable
from tstatic.viz.layout import Layered
from tstatic.viz.picture import Picture, owners, picture, role_of
from tstatic.where import show

if TYPE_CHECKING:
    from tstatic.ir.program import Block, Program

MARGIN = 24.0
LINE = 13.0
"""Height of a line of text."""
EM = 0.602
"""Width of a character of a monospaced font, in font sizes."""
ROW = 30.0
"""Space between rows, for edges."""
MAX_NAME = 34
MOST = 6
"""Boxes drawn for what one op alone reads, or for what it makes and nothing near reads; the rest is one box with a list."""
WEAK = 0.05
"""How strongly a parameter or an input pulls at its op: the chain of values stays straight."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = """
.tst{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;font-size:11px;fill:#1f2933}
.tst-h{font-family:system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:15px;font-weight:600}
.tst-n{font-family:system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11.5px;fill:#52606d}
.tst-s{font-size:9.5px;fill:#52606d}
.tst-b{font-weight:700;font-size:12px}
.tst-e{fill:none;stroke:#9aa5b1;stroke-width:1.2}
.tst-eg{fill:none;stroke:#eab08a;stroke-width:1.2}
.tst-l{stroke:#cbd2d9;stroke-width:1;stroke-dasharray:5 4}
.tst-g:hover rect{stroke-width:2.6}
""".strip()
_COLOURS = {
    "forward": ("#dceafc", "#3576c4"),
    "backward": ("#fde8d7", "#d9702b"),
    "optimize": ("#dcf3e1", "#2f8f4e"),
    "rate": ("#eee3fa", "#8250c4"),
    "value": ("#ffffff", "#9aa5b1"),
    "data": ("#d7f3f5", "#0f8b95"),
    "parameter": ("#fdf1c7", "#b98900"),
    "state": ("#eef1f4", "#7b8794"),
    "outer": ("#ffffff", "#7b8794"),
    "reference": ("#ffffff", "#b8c1cb"),
}
_LEGEND = (
    ("forward", "forward op"), ("backward", "backward op"), ("optimize", "update op"), ("rate", "learning-rate op"),
    ("data", "input"), ("parameter", "parameter"), ("state", "state"), ("value", "value"), ("reference", "value from elsewhere"),
)  # fmt: skip


def svg(program: Program, max_ops: int = 600) -> str:
    """Draws a program as an SVG document: forward, backward and update ops in different colours.

    Ops stand below what they read. A value that is read far below its op is drawn again there, dashed; what an optimizer
    keeps for itself, and values made for backward ops only, stand in the tooltips, which also have shapes, dtypes,
    attributes and the user's lines. Bodies of control flow follow below the main block.

    Args:
        program: Any program.
        max_ops: Ops drawn at most; a longer program is cut after a whole layer, and the picture says so.

    Raises:
        ProgramError: If ``max_ops`` is not a positive int.
    """
    if isinstance(max_ops, bool) or not isinstance(max_ops, int) or max_ops < 1:
        raise ProgramError(
            "the number of ops that a picture may show is not usable",
            expected="an int of at least 1",
            received=repr(max_ops),
            fix="leave max_ops out, or pass for example 600",
        )
    canvas = Canvas()
    used: set[str] = set()
    left = max_ops
    below = 96.0
    skipped = 0
    made_by = {inner: (op, b) for b in program.blocks for inner, op in owners(b).items()}
    for block in program.blocks:
        if block.idx and not block.ops:
            continue
        if left < 1:
            skipped += 1
            continue
        shown = picture(block, left)
        left -= len(shown.ops)
        if len(program.blocks) > 1:
            below = canvas.heading(below, _block_title(block, made_by))
        below = _Panel(canvas, block, shown, used).draw(below)
    if skipped:
        below = canvas.note(below, f"{skipped} more blocks are not drawn (max_ops = {max_ops})")
    canvas.head(program_title(program), used)
    return canvas.document(below)


def program_title(program: Program) -> str:
    """Returns the heading of a picture: how much there is in a program."""
    parameters = program.all_parameters()
    elements = sum(max(p.meta.numel, 0) for p in parameters)
    ops = sum(len(b.ops) for b in program.blocks)
    return f"{ops:,} ops, {len(parameters):,} parameters ({elements:,} numbers), {len(list(program.list_vars())):,} variables"


def _block_title(block: Block, made_by: dict[int, tuple[Operator, Block]]) -> str:
    found = made_by.get(block.idx)
    if found is None:
        return f"block {block.idx}"
    op, outer = found
    return f"block {block.idx}, owned by {op.type} of block {outer.idx} ({show(op.where)})"


# --------------------------------------------------------------------------------------------------------------- texts
def clean(text: str) -> str:
    """Escapes text for XML: markup, and characters that XML forbids."""
    text = _FORBIDDEN.sub(lambda m: f"\\x{ord(m.group()):02x}", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def short(name: str, limit: int = MAX_NAME) -> str:
    """Writes a name on one line and cuts out its middle when it is long."""
    name = _FORBIDDEN.sub(lambda m: f"\\x{ord(m.group()):02x}", name)
    name = name.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return name if len(name) <= limit else f"{name[: limit // 2]}…{name[-(limit - limit // 2 - 1) :]}"


def text_width(text: str, size: float) -> float:
    """Returns the width of monospaced text; East Asian characters are twice as wide."""
    return EM * size * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def meta_text(var: Variable | None) -> str:
    """Returns dtype and shape of a variable: ``float32[?, 8]``."""
    if var is None:
        return "?"
    shape = "?" if var._shape is None else ", ".join("?" if s < 0 else str(s) for s in var._shape)
    return f"{'?' if var._dtype is None else var._dtype.name}[{shape}]"


def op_tooltip(op: Operator, index: int) -> str:
    """Returns all there is to say about an op: its number, slots, attributes, role and line."""
    lines = [f"op {index}: {op.type}"]
    for side, slots in (("in", op.inputs), ("out", op.outputs)):
        for slot, row in slots.items():
            for name in row:
                if name != EMPTY:
                    lines.append(f"{side} {slot}: {name}  {meta_text(op.block._find_var_recursive(name))}")
    lines += [f"{name} = {short(value_text(value), 80)}" for name, value in op.attrs.items()]
    if op.role:
        lines.append(f"role: {role_text(op.role)}")
    lines.append(f"at {show(op.where)}")
    return "\n".join(lines)


def _variable_tooltip(name: str, var: Variable | None, made_by: str) -> str:
    lines = [name, meta_text(var)]
    if isinstance(var, Parameter):
        lines.append("parameter" if var.trainable else "parameter, not trained")
    elif var is not None and var.persistable:
        lines.append("lives in the scope between runs")
    elif var is not None and var.is_data:
        lines.append("fed")
    if made_by:
        lines.append(made_by)
    if var is not None and var.made_at is not None:
        lines.append(f"at {show(var.made_at)}")
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------------------- canvas
class Canvas:
    """Collects the parts of the document and how wide it gets."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = 760.0

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "") -> None:
        middle = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text class="tst {kind}" x="{x:.1f}" y="{y:.1f}"{middle}>{clean(text)}</text>')

    def heading(self, top: float, text: str) -> float:
        self.text(MARGIN, top + 18, short(text, 140), "tst-h")
        return top + 34

    def note(self, top: float, text: str) -> float:
        self.text(MARGIN, top + 14, text, "tst-n")
        return top + 30

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, lines: list[tuple[str, str]], tooltip: str,
        mark: str = "",
    ) -> None:  # fmt: skip
        """Draws a box with centred lines of text and a tooltip; ops have corners, values are round; ``mark`` names an op."""
        fill, stroke = _COLOURS[kind]
        is_op = kind in ("forward", "backward", "optimize", "rate")
        dashed = ' stroke-dasharray="4 3"' if kind in ("reference", "outer") else ""
        bold = 1.6 if kind in ("parameter", "data") or is_op else 1
        self.parts.append(
            f'<g class="tst-g"{mark}><title>{clean(tooltip)}</title><rect x="{x - width / 2:.1f}" y="{y:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" rx="{5 if is_op else height / 2:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{bold}"{dashed}/>'
        )
        start = y + (height - LINE * len(lines)) / 2 + LINE - 3.2
        for at, (line, style) in enumerate(lines):
            self.text(x, start + LINE * at, line, style, "middle")
        self.parts.append("</g>")

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws the frame around the boxes of a group."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8" fill="#52606d" fill-opacity="0.05" '
            f'stroke="#9aa5b1" stroke-width="1"/>'
        )

    def curve(self, points: list[tuple[float, float]], kind: str) -> None:
        """Draws an edge: straight down through each point, curved between them, with an arrow at the end."""
        (x, y), *rest = points
        path = [f"M{x:.1f} {y:.1f}"]
        for to_x, to_y in rest:
            bend = (to_y - y) / 2
            path.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
            x, y = to_x, to_y
        self.parts.append(f'<path class="{kind}" d="{"".join(path)}" marker-end="url(#{kind}a)"/>')

    def head(self, title: str, used: set[str]) -> None:
        self.text(MARGIN, 30, title, "tst-h")
        x, y = MARGIN, 46.0
        for kind, label in _LEGEND:
            if kind not in used:
                continue
            width = 26 + 6.2 * len(label)
            if x + width > self.width - MARGIN:
                x, y = MARGIN, y + 20
            fill, stroke = _COLOURS[kind]
            dashed = ' stroke-dasharray="4 3"' if kind == "reference" else ""
            radius = 3 if kind in ("forward", "backward", "optimize", "rate") else 6
            self.parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="18" height="12" rx="{radius}" fill="{fill}" '
                f'stroke="{stroke}" stroke-width="1.3"{dashed}/>'
            )
            self.text(x + 23, y + 10, label, "tst-n")
            x += width + 10

    def document(self, height: float) -> str:
        width, height = self.width, height + MARGIN
        arrows = "".join(
            f'<marker id="{kind}a" viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="6.5" markerHeight="6.5" orient="auto">'
            f'<path d="M0 .6 8 4 0 7.4z" fill="{colour}"/></marker>'
            for kind, colour in (("tst-e", "#9aa5b1"), ("tst-eg", "#eab08a"))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style><defs>{arrows}</defs>'
            f'<rect width="100%" height="100%" fill="#fbfcfd"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


@dataclass(slots=True)
class _Box:
    kind: str
    lines: list[tuple[str, str]]
    tooltip: str
    mark: str = ""
    height: float = field(init=False)
    width: float = field(init=False)

    def __post_init__(self) -> None:
        sizes = {"tst-b": 12.0, "tst-s": 9.5, "": 11.0}
        self.height = 10 + LINE * len(self.lines)
        self.width = max(48.0, 22 + max(text_width(line, sizes[style]) for line, style in self.lines))


class _Panel:
    """One block: makes its boxes, lays them out, draws them."""

    def __init__(self, canvas: Canvas, block: Block, shown: Picture, used: set[str]) -> None:
        self.canvas = canvas
        self.block = block
        self.shown = shown
        self.used = used
        self.graph = Layered()
        self.boxes: dict[int, _Box] = {}
        self.number = {id(op): i for i, op in enumerate(block.ops)}

    def add(self, row: int, box: _Box) -> int:
        node = self.graph.node(row, box.width)
        self.boxes[node] = box
        self.used.add(box.kind)
        return node

    def op_box(self, at: int) -> _Box:
        item = self.shown.ops[at]
        lines = [(short(item.op.type), "tst-b")]
        if item.updates:
            more = f" +{len(item.updates) - 1}" if len(item.updates) > 1 else ""
            lines.append((f"updates {short(item.updates[0], 26)}{more}", "tst-s"))
        inner = edit.sub_blocks(item.op)
        if inner:
            lines.append((f"block {', '.join(map(str, inner))}", "tst-s"))
        number = self.number[id(item.op)]
        # Pages that carry the picture find an op by its block and its place there.
        return _Box(role_of(item.op), lines, op_tooltip(item.op, number), f' data-op="{self.block.idx}.{number}"')

    def value_box(self, name: str, kind: str, made_by: str) -> _Box:
        var = self.block._find_var_recursive(name)
        if kind == "value" and isinstance(var, Parameter):
            kind = "parameter"
        elif kind == "value" and var is not None and var.persistable:
            kind = "state"
        return _Box(kind, [(short(name), ""), (short(meta_text(var)), "tst-s")], _variable_tooltip(name, var, made_by))

    def source_boxes(self, sources: list[tuple[str, str]]) -> list[_Box]:
        """Makes one box per source; the many references of a large sum share one."""
        far = [name for name, kind in sources if kind == "reference"]
        listed = far if len(far) > MOST else []
        boxes = [self.value_box(name, kind, "") for name, kind in sources if not (listed and kind == "reference")]
        return [*boxes, self.list_box(listed, "reference")] if listed else boxes

    def list_box(self, names: list[str], kind: str) -> _Box:
        lines = [(f"{len(names)} values", ""), (short(names[0], 22) + ", …", "tst-s")]
        rows = [f"{name}  {meta_text(self.block._find_var_recursive(name))}" for name in names]
        return _Box(kind, lines, "\n".join(rows))

    def draw(self, top: float) -> float:
        """Draws everything below ``top``; returns where the next thing may begin."""
        graph, shown = self.graph, self.shown
        ops = [self.add(2 * item.layer + 1, self.op_box(at)) for at, item in enumerate(shown.ops)]
        for at, item in enumerate(shown.ops):
            for box in self.source_boxes(item.sources):
                graph.edge(self.add(2 * item.layer, box), ops[at], WEAK)
        unread: dict[int, list[str]] = {}
        for name, at, readers in shown.values:
            if not readers:
                unread.setdefault(at, []).append(name)
        for name, at, readers in shown.values:
            rest = unread.get(at, [])
            if not readers and len(rest) > MOST:
                unread[at] = []
                box = self.list_box(rest, "value")
            elif not readers and not rest:
                continue
            else:
                op = shown.ops[at].op
                box = self.value_box(name, "value", f"made by op {self.number[id(op)]}: {op.type}")
            value = self.add(2 * shown.ops[at].layer + 2, box)
            graph.edge(ops[at], value)
            for reader in readers:
                graph.edge(value, ops[reader])
        left, right = graph.place()
        tops, below = self.heights(top)
        shift = MARGIN - left
        self.canvas.width = max(self.canvas.width, right - left + 2 * MARGIN)
        shift += max(0.0, (self.canvas.width - 2 * MARGIN - (right - left)) / 2)
        if shown.backward:
            y = tops[2 * shown.backward + 1] - ROW / 2
            self.canvas.parts.append(f'<path class="tst-l" d="M{MARGIN:.1f} {y:.1f}H{shift + right:.1f}"/>')
            self.canvas.text(MARGIN, y - 5, "backward", "tst-n")
        for path in graph.paths:
            self.edge(path, tops, shift)
        for node, box in self.boxes.items():
            row = graph.row[node]
            y = tops[row] + (self.row_height(row) - box.height) / 2
            self.canvas.box(graph.x[node] + shift, y, box.width, box.height, box.kind, box.lines, box.tooltip, box.mark)
        if shown.left:
            below = self.canvas.note(
                below, f"The first {shown.shown:,} of {shown.layers:,} layers are drawn: {shown.left:,} ops are left out. "
                f"Pass a larger max_ops to see them."
            )  # fmt: skip
        return below

    def row_height(self, row: int) -> float:
        return max((self.boxes[n].height for n in self.graph.rows[row] if n in self.boxes), default=0.0)

    def heights(self, top: float) -> tuple[list[float], float]:
        tops = []
        for row in range(len(self.graph.rows)):
            tops.append(top)
            height = self.row_height(row)
            top += height + (ROW if height else 0.0)
        return tops, top

    def edge(self, path: list[int], tops: list[float], shift: float) -> None:
        graph = self.graph
        points = []
        for at, node in enumerate(path):
            row, x = graph.row[node], graph.x[node] + shift
            middle = tops[row] + self.row_height(row) / 2
            if at == 0:
                points.append((x, middle + self.boxes[node].height / 2))
            elif at == len(path) - 1:
                points.append((x, middle - self.boxes[node].height / 2))
            else:
                points += [(x, tops[row]), (x, tops[row] + self.row_height(row))]
        ends = {self.boxes[path[0]].kind, self.boxes[path[-1]].kind}
        self.canvas.curve(points, "tst-eg" if "backward" in ends else "tst-e")
