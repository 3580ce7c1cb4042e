"""A whole program as a picture that fits a page: name scopes, repeated layers and lines are boxes, open where there is room."""

from __future__ import annotations

from dataclasses import dataclass, field

from tstatic.display import counted
from tstatic.ir.program import Block, Operator, Program
from tstatic.viz.folding import Group, fold
from tstatic.viz.picture import role_of
from tstatic.viz.svg import LINE, MARGIN, Canvas, meta_text, op_tooltip, program_title, short, text_width
from tstatic.where import show

WIDTH, HEIGHT = 1400.0, 1000.0
"""The size that a picture should not exceed: a page in landscape, whose text is still read when it is printed."""
OPEN = (90, 60, 40, 25, 15, 8, 0)
"""Boxes that are seen at most: the first number with which the picture fits is taken."""
PAD = 10.0
"""Space inside a frame."""
GAP = 16.0
"""Space between boxes side by side, and for edges between rows."""
TITLE = 20.0


@dataclass(slots=True)
class _Shape:
    """A box, or a frame with boxes inside.

    Attributes:
        ops: Numbers of the ops that it shows.
        lines: (text, style) of its text.
        title: A frame's title; empty for a box.
        inside: (shape, x, y) from the frame's top left corner.
        links: Pairs of places in ``inside`` of which the second reads what the first makes.
        broken: Whether a column of it goes on beside itself, so that edges run back to the top.
    """

    ops: list[int]
    width: float
    height: float
    lines: list[tuple[str, str]] = field(default_factory=list)
    title: str = ""
    inside: list[tuple[_Shape, float, float]] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    broken: bool = False


def overview(program: Program) -> str:
    """Draws a program as an SVG document of one page.

    Groups of ops are boxes that say how many ops they hold; as many of them are open as there is room for. Forward, backward and
    update stand side by side. Bodies of control flow are part of their op.

    Args:
        program: Any program.
    """
    block = program.global_block()
    root = _root(block, OPEN[0])
    for most in OPEN[1:]:
        if not root.broken and root.width <= WIDTH - 2 * MARGIN and root.height <= HEIGHT:
            break
        root = _root(block, most)
    canvas = Canvas()
    title = program_title(program)
    canvas.width = max(canvas.width, root.width + 2 * MARGIN, text_width(title, 15.0) + 2 * MARGIN)
    _draw(canvas, block, root, MARGIN, 80.0)
    canvas.head(title, {role_of(op) for op in block.ops})
    return canvas.document(80.0 + root.height)


# ---------------------------------------------------------------------------------------------------------------- shapes
def _root(block: Block, most: int) -> _Shape:
    tree = fold(block, most)
    phases = [_of(block, item) for item in tree.items]
    made = _Shape(list(range(len(block.ops))), 0.0, 0.0)
    x = 0.0
    for phase in phases:
        made.inside.append((phase, x, 0.0))
        x += phase.width + 2 * GAP
        made.height = max(made.height, phase.height)
        made.broken = made.broken or phase.broken
    made.width = max(0.0, x - 2 * GAP)
    made.links = [(i, j) for i, j in tree.links if j == i + 1]
    return made


def _of(block: Block, item: int | Group) -> _Shape:
    if isinstance(item, int):
        return _op(block, block.ops[item], item)
    numbers = list(item.ops())
    if item.open:
        return _frame(block, item, numbers)
    lines = [(short(item.title), "tst-b"), (counted(len(numbers), "op"), "tst-s")]
    return _box(numbers, lines)


def _op(block: Block, op: Operator, number: int) -> _Shape:
    lines = [(short(op.type), "tst-b")]
    name = next(iter(op.output_arg_names), "")
    if name and role_of(op) == "forward":
        lines.append((short(meta_text(block._find_var_recursive(name)), 24), "tst-s"))
    return _box([number], lines)


def _box(numbers: list[int], lines: list[tuple[str, str]]) -> _Shape:
    widest = max(text_width(text, 12.0 if style == "tst-b" else 9.5) for text, style in lines)
    return _Shape(numbers, max(60.0, widest + 18), 8 + LINE * len(lines), lines)


def _frame(block: Block, group: Group, numbers: list[int]) -> _Shape:
    """Stacks the rows of an open group; those that do not fit on the page below one another go on beside the first."""
    made = _Shape(numbers, 0.0, 0.0, title=f"{short(group.title, 40)}: {counted(len(numbers), 'op')}")
    shapes = {at: _of(block, item) for at, item in enumerate(group.items)}
    columns: list[list[list[int]]] = [[]]
    below = TITLE + PAD
    for row in group.rows:
        height = max(shapes[at].height for at in row)
        if columns[-1] and below + height > HEIGHT - TITLE:
            columns.append([])
            below = TITLE + PAD
        columns[-1].append(row)
        below += height + GAP
    place: dict[int, int] = {}
    left = PAD
    for column in columns:
        widths = [sum(shapes[at].width for at in row) + GAP * (len(row) - 1) for row in column]
        top = TITLE + PAD
        for row, width in zip(column, widths, strict=True):
            height = max(shapes[at].height for at in row)
            x = left + (max(widths) - width) / 2
            for at in row:
                place[at] = len(made.inside)
                made.inside.append((shapes[at], x, top + (height - shapes[at].height) / 2))
                x += shapes[at].width + GAP
            top += height + GAP
        left += max(widths, default=0.0) + GAP
        made.height = max(made.height, top - GAP + PAD)
    made.links = [(place[i], place[j]) for i, j in group.links]
    made.width = max(left - GAP + PAD, text_width(made.title, 11.5) + 2 * PAD)
    made.broken = len(columns) > 1 or any(one.broken for one in shapes.values())
    return made


# --------------------------------------------------------------------------------------------------------------- drawing
def _draw(canvas: Canvas, block: Block, shape: _Shape, x: float, y: float) -> None:
    if shape.lines:
        kind = role_of(block.ops[shape.ops[0]])
        canvas.box(x + shape.width / 2, y, shape.width, shape.height, kind, shape.lines, _tooltip(block, shape))
        return
    if shape.title:
        canvas.frame(x, y, shape.width, shape.height)
        canvas.text(x + PAD, y + TITLE - 5, shape.title, "tst-n")
    for i, j in shape.links:
        (one, x1, y1), (other, x2, y2) = shape.inside[i], shape.inside[j]
        if not shape.title:  # phases stand side by side
            middle = y + TITLE / 2
            canvas.curve([(x + x1 + one.width, middle), (x + x2, middle)], "tst-e")
        else:
            start = (x + x1 + one.width / 2, y + y1 + one.height)
            canvas.curve([start, (x + x2 + other.width / 2, y + y2)], "tst-e")
    for inner, left, top in shape.inside:
        _draw(canvas, block, inner, x + left, y + top)


def _tooltip(block: Block, shape: _Shape) -> str:
    if len(shape.ops) == 1:
        return op_tooltip(block.ops[shape.ops[0]], shape.ops[0])
    rows = [f"{number}: {block.ops[number].type} at {show(block.ops[number].where)}" for number in shape.ops[:30]]
    return "\n".join([*rows, *([f"and {len(shape.ops) - 30} more"] if len(shape.ops) > 30 else [])])
