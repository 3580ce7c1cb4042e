"""Folds a program for a page: name scopes, repeated layers and lines become groups that open; rows say what stands below what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tstatic.ir.opdef import EMPTY
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator
from tstatic.viz.graphviz import Graph, rows_by_dot
from tstatic.viz.layout import Layered

LONG = 24
"""Items of a group from which those of one line of the user's are folded."""
MOST = 40
"""Items of a group at most: more are folded by number."""
WIDE = 8
"""Items side by side at most."""
REPEATED = 6
"""Ops that a repetition covers at least: fewer are read faster than a title."""
LONGEST_LAYER = 600
"""Items of a repeated layer at most."""
FAR = 8
"""Rows that an edge crosses at most to count for the order of a row."""
BY_DOT = 100
"""Ops of a program from which Graphviz orders the rows, where it is installed."""

DEEPEST = 24
"""Scopes within one another that are boxes of their own: one more box holds all that is deeper."""

_MARKS = re.compile(r"__\w+__")
"""Name scopes that are marks for the fusions (``static.no_fuse``), not names."""
_NUMBER = re.compile(r"\d+")


@dataclass(eq=False)
class Group:
    """Ops that are one box when folded.

    Attributes:
        title: What it is called.
        kind: ``root``, ``phase``, ``scope``, ``repeat``, ``layer``, ``line`` or ``part``.
        items: Numbers of ops, and groups, in the program's order.
        rows: Numbers of items, from top to bottom and from left to right.
        links: Pairs of items of which the second reads what the first makes.
        open: Whether it is open when the page opens.
    """

    title: str
    kind: str
    items: list[int | Group]
    rows: list[list[int]] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    open: bool = False

    def ops(self) -> Iterator[int]:
        """Yields the numbers of all its ops."""
        pending: list[int | Group] = list(reversed(self.items))
        while pending:
            item = pending.pop()
            if isinstance(item, Group):
                pending.extend(reversed(item.items))
            else:
                yield item

    def groups(self) -> Iterator[Group]:
        """Yields itself and all groups inside, outermost first."""
        pending = [self]
        while pending:
            one = pending.pop()
            yield one
            pending.extend(item for item in reversed(one.items) if isinstance(item, Group))


def edges_of(block: Block) -> dict[tuple[int, int], list[str]]:
    """Returns (op that makes values, op that reads them) -> names of the values, by numbers of ops."""
    made: dict[str, int] = {}
    found: dict[tuple[int, int], list[str]] = {}
    for number, op in enumerate(block.ops):
        for name in dict.fromkeys(op.input_arg_names):
            if name in made and made[name] != number:
                found.setdefault((made[name], number), []).append(name)
        made.update((name, number) for name in op.output_arg_names if name != EMPTY)
    return found


def fold(block: Block, most_open: int) -> Group:
    """Returns the main block as a tree of groups.

    Args:
        block: The block.
        most_open: Boxes that are seen at most when the page opens; phases are open always.
    """
    ops = block.ops
    phases: dict[str, list[int]] = {}
    for number, op in enumerate(ops):
        phases.setdefault(phase_of(op), []).append(number)
    root = Group("program", "root", [Group(name, "phase", _by_scope(ops, row, 0)) for name, row in phases.items()])
    for group in list(root.groups()):
        _open_up(group)
    _set_links(root, list(edges_of(block)))
    _set_rows(root, len(ops))
    _open(root, most_open)
    return root


def phase_of(op: Operator) -> str:
    """Returns ``forward``, ``backward`` or ``update``."""
    if op.role & (OpRole.Optimize | OpRole.LRSched):
        return "update"
    return "backward" if op.role & OpRole.Backward else "forward"


# --------------------------------------------------------------------------------------------------------------- folding
def _by_scope(ops: Sequence[Operator], row: Sequence[int], depth: int) -> list[int | Group]:
    """Folds ops that follow one another and have one name scope; then what repeats, and what is still long."""
    items: list[int | Group] = []
    last = ""
    run: list[int] = []

    def end() -> None:
        if run and last:
            inner = _by_scope(ops, tuple(run), depth + 1) if depth < DEEPEST else _folded(ops, [*run])
            first, *further = last.split("/")
            items.append(Group("/".join([first, *(["..."] if further[1:] else []), *further[-1:]]), "scope", inner))
        else:
            items.extend(run)
        run.clear()

    for number in row:
        parts = [part for part in ops[number].namescope.split("/") if part and not _MARKS.fullmatch(part)]
        scope = "/".join(parts[depth : depth + 1 if depth < DEEPEST else None])
        if scope != last:
            end()
            last = scope
        run.append(number)
    end()
    return _folded(ops, items)


def _folded(ops: Sequence[Operator], items: list[int | Group]) -> list[int | Group]:
    return _short(ops, _by_repeats(ops, items))


def _by_repeats(ops: Sequence[Operator], items: list[int | Group]) -> list[int | Group]:
    """Folds runs of equal sequences of types: the longest first, then what is before and behind it."""
    names: dict[object, int] = {}
    signs = np.array([names.setdefault(_sign(ops, item), len(names)) for item in items], np.int64)
    done: list[int | Group] = []
    pending = [(0, len(items))]
    while pending:
        start, stop = pending.pop()
        found = _longest(signs[start:stop])
        if found is None:
            done.extend(items[start:stop])
            continue
        at, period, times = found
        at += start
        if at > start or at + period * times < stop:
            # In order: what is before is taken from the stack first.
            pending += [(at + period * times, stop), (at, at + period * times), (start, at)]
            pending = [(a, b) for a, b in pending if b > a]
            continue
        done.append(_repetition(ops, items[at : at + period * times], period, times))
    return done


def _repetition(ops: Sequence[Operator], items: list[int | Group], period: int, times: int) -> Group:
    first = [ops[i].type if isinstance(i, int) else i.title for i in items[:period]]
    kinds = list(dict.fromkeys(first))
    title = f"{times} × {', '.join(kinds[:4])}{', …' if len(kinds) > 4 else ''}"
    if period == 1:
        return Group(title, "repeat", items)
    cut = [items[k * period : (k + 1) * period] for k in range(times)]
    layers = [Group(f"{k} of {times}", "layer", _short(ops, _by_repeats(ops, one))) for k, one in enumerate(cut, 1)]
    return Group(title, "repeat", list(layers))


def _sign(ops: Sequence[Operator], item: int | Group) -> object:
    """Returns what equal layers have in common: types in order, and titles without numbers."""
    if isinstance(item, Group):
        return _NUMBER.sub("", item.title), tuple(ops[i].type for i in item.ops())
    return ops[item].type


def _longest(signs: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """Returns (start, period, times) of the repetition that covers most; of equal ones that of the shortest period."""
    best: tuple[int, int, int] | None = None
    count = len(signs)
    for period in range(1, min(count // 2, LONGEST_LAYER) + 1):
        if best is not None and best[1] * best[2] >= count - count % period:
            break
        same = np.concatenate([[False], signs[:-period] == signs[period:], [False]])
        ends = np.flatnonzero(same[1:] != same[:-1])
        starts, lengths = ends[::2], ends[1::2] - ends[::2]
        if not len(lengths):
            continue
        at = int(lengths.argmax())
        times = 1 + int(lengths[at]) // period
        covered = times * period
        if times > 1 and covered >= REPEATED and (best is None or covered > best[1] * best[2]):
            best = int(starts[at]), period, times
    return best


def _short(ops: Sequence[Operator], items: list[int | Group]) -> list[int | Group]:
    """Folds long lists: by the user's lines, then by number."""
    if len(items) > LONG:
        items = _runs(items, lambda i: ops[i].where if isinstance(i, int) else None)
    while len(items) > MOST:
        size = max(MOST // 2, -(-len(items) // MOST))
        cut = [items[k : k + size] for k in range(0, len(items), size)]
        items = [Group(_span(part), "part", part) if len(part) > 1 else part[0] for part in cut]
    return items


def _runs(items: list[int | Group], key: Callable[[int | Group], object]) -> list[int | Group]:
    found: list[int | Group] = []
    run: list[int | Group] = []
    last: object = None
    for item in [*items, None]:
        now = key(item) if item is not None else None
        if run and (item is None or now != last or now is None):
            whole = len(run) > 2 and last is not None
            found += [Group(_place(last), "line", run)] if whole else run
            run = []
        last = now
        if item is not None:
            run.append(item)
    return found


def _place(where: object) -> str:
    """Returns a line of the user's without its folders."""
    file, line = where if isinstance(where, tuple) else (where, "")
    return f"{str(file).replace(chr(92), '/').rpartition('/')[2]}:{line}"


def _span(items: Sequence[int | Group]) -> str:
    numbers = [i for item in items for i in ([item] if isinstance(item, int) else item.ops())]
    return f"ops {min(numbers)} to {max(numbers)}"


def _open_up(group: Group) -> None:
    """Replaces a group that is all of its parent's content by what it holds: a box around everything says nothing."""
    while len(group.items) == 1 and isinstance(group.items[0], Group) and group.items[0].kind in ("part", "line"):
        group.items = group.items[0].items


# ------------------------------------------------------------------------------------------------------- rows and links
def _set_links(root: Group, edges: Sequence[tuple[int, int]]) -> None:
    """Gives each group the links between its items: an edge belongs to the innermost group that holds both of its ops."""
    path: dict[int, tuple[tuple[Group, int], ...]] = {}
    pending: list[tuple[Group, tuple[tuple[Group, int], ...]]] = [(root, ())]
    while pending:
        group, above = pending.pop()
        for number, item in enumerate(group.items):
            here = (*above, (group, number))
            if isinstance(item, Group):
                pending.append((item, here))
            else:
                path[item] = here
    links: dict[Group, dict[tuple[int, int], None]] = {}
    for a, b in edges:
        for (group, i), (other, j) in zip(path[a], path[b], strict=False):
            if group is not other:
                break
            if i != j:
                links.setdefault(group, {})[i, j] = None
                break
    for group, found in links.items():
        group.links = list(found)


def _set_rows(root: Group, count: int) -> None:
    groups = list(root.groups())
    for group in groups:
        group.rows = _layers(group)
    root.rows = [list(range(len(root.items)))]
    rest = [g for g in groups if g is not root and len(g.items) > 2]
    by_dot = rows_by_dot([Graph(g.rows, g.links) for g in rest]) if count > BY_DOT else None
    for at, group in enumerate(rest):
        group.rows = _wrapped(by_dot[at] if by_dot is not None else _ordered(group))


def _layers(group: Group) -> list[list[int]]:
    """Returns the items by the longest chain of links that ends in them; a link against the program's order does not count."""
    depth = [0] * len(group.items)
    for i, j in sorted(group.links, key=lambda link: link[1]):
        if i < j:
            depth[j] = max(depth[j], depth[i] + 1)
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for number, row in enumerate(depth):
        rows[row].append(number)
    return rows


def _ordered(group: Group) -> list[list[int]]:
    """Returns the rows, each ordered so that few links cross."""
    if all(len(row) < 2 for row in group.rows):
        return group.rows
    graph = Layered()
    row_of = {number: at for at, row in enumerate(group.rows) for number in row}
    node = {number: graph.node(row_of[number], 100.0) for number in row_of}
    for i, j in group.links:
        if 0 < row_of[j] - row_of[i] <= FAR:
            graph.edge(node[i], node[j])
    graph.place()
    number_of = {n: number for number, n in node.items()}
    return [[number_of[n] for n in row if n in number_of] for row in graph.rows]


def _wrapped(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row[k : k + WIDE]) for row in rows for k in range(0, len(row), WIDE)]


def _open(root: Group, most: int) -> None:
    """Opens groups from the outside, while no more boxes are seen than may be: equal layers all or none, lists of one type last."""
    seen = 0
    pending: list[Group] = [root]
    late: list[Group] = []
    while pending or late:
        group = pending.pop(0) if pending else late.pop(0)
        if group.kind not in ("root", "phase"):
            if seen + len(group.items) - 1 > most:
                continue
            seen -= 1
        group.open = True
        seen += len(group.items)
        inner = [item for item in group.items if isinstance(item, Group)]
        layers = [item for item in inner if item.kind == "layer"]
        if seen + sum(len(item.items) - 1 for item in layers) > most:
            inner = [item for item in inner if item.kind != "layer"]
        for item in inner:
            plain = item.kind == "repeat" and not any(isinstance(one, Group) for one in item.items)
            (late if plain else pending).append(item)
