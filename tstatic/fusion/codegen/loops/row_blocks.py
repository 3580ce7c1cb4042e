"""Lines of a group along rows as loops over blocks of columns, one per level of sums and maxima that need each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tstatic.fusion.codegen.loops.lines import LANGUAGE, Lines, Reduction, nested

_NAME = re.compile(r"[A-Za-z_]\w*(?![\w=])")
"""A name; not that of an argument, as in ``mask=row_mask``."""

_PLACES = frozenset(["offsets", "columns", "mask"])
"""Names that differ from block to block."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One assignment.

    Attributes:
        name, text: ``name = text``.
        comment: The comment above it: the op that it belongs to.
        reads: Names of lines that it needs.
        level: How many passes over the row must be over before it can be computed.
        wide: Whether it has a value per element; otherwise one per row, which outlives the passes.
    """

    name: str
    text: str
    comment: str
    reads: tuple[str, ...]
    level: int
    wide: bool


class _Passes:
    """Lines by name and level; sums that come with the maximum that they are taken under are ``online``."""

    def __init__(self, lines: Lines, loads: Sequence[str], length: str) -> None:
        # A look-up needs no pass: its column is computed by itself.
        self.picked = {name: made for name, made in lines.reductions.items() if made.at}
        self.reductions = {name: made for name, made in lines.reductions.items() if not made.at}
        self.length = length
        self.lines: dict[str, _Line] = {}
        self.online: dict[str, str] = {}
        for name, made in self.reductions.items():
            # One sum takes the maximum along, in the pass that would find the maximum alone.
            if made.peak and made.peak not in self.online.values():
                self.online[name] = made.peak
        comment = ""
        for line in (*loads, *lines.lines):
            if line.startswith("#"):
                comment = line
                continue
            # Every line is one assignment: the writer makes no others.
            name, _, text = line.partition(" = ")
            self._add(name, text, comment)

    def _add(self, name: str, text: str, comment: str) -> None:
        made, picked = self.reductions.get(name), self.picked.get(name)
        if made is not None:
            # Online, it reads what is under the exponential, which itself needs the maximum and so comes a level later.
            text = made.under if name in self.online else made.text
        elif picked is not None:
            text = f"{picked.at} {picked.picked}"
        words = dict.fromkeys(_NAME.findall(text))
        reads = tuple(w for w in words if w in self.lines)
        level = max((self.lines[w].level for w in reads), default=0)
        # What depends on a place within the row differs from block to block.
        wide = not _PLACES.isdisjoint(words) or any(self.lines[w].wide for w in reads)
        if made is not None:
            # Its result is there after the pass that it is made in.
            level, wide = level + 1, False
        wide = wide and picked is None
        self.lines[name] = _Line(name, text, comment, reads, level, wide)

    def needed(self, names: Iterable[str]) -> list[str]:
        """Returns the lines with a value per element that some names are computed from, in order."""
        found: set[str] = set()
        # Each pass computes again what it needs of a row: registers hold one block, and the L2 cache the row.
        pending = list(names)
        while pending:
            line = self.lines[pending.pop()]
            if line.wide and line.name not in found:
                found.add(line.name)
                pending.extend(line.reads)
        return _written(line for line in self.lines.values() if line.name in found)

    def per_row(self, level: int) -> list[str]:
        """Returns the lines with one value per row that can be computed after a pass."""
        done: list[str] = []
        for line in self.lines.values():
            if line.level == level and not line.wide and line.name not in self.reductions:
                done += self._one(line.name) if line.name in self.picked else _written([line])
        return [line for i, line in enumerate(done) if not line.startswith("#") or line not in done[:i]]

    def _one(self, name: str) -> list[str]:
        """Returns what stands at one column of each row, computed for that column alone."""
        made = self.picked[name]
        lines = self.needed(self.lines[name].reads)
        # Names of the look-up's lines get its name as suffix: the same lines stand in the passes as well.
        own = {w for line in lines if not line.startswith("#") for w in (line.partition(" = ")[0],)} | _PLACES

        def here(text: str) -> str:
            return _NAME.sub(lambda word: f"{word[0]}_{name}" if word[0] in own else word[0], text)

        return [
            here(f"mask = row_mask & ({made.at} >= 0) & ({made.at} < {self.length})"),
            here(f"columns = tl.where(mask, {made.at}, 0)"),
            here(f"offsets = rows * {self.length} + columns"),
            *(line if line.startswith("#") else here(line) for line in lines),
            f"{name} = tl.where({here('mask')}, {here(made.picked)}, 0.0)",
        ]

    def sums(self, level: int) -> list[tuple[str, Reduction]]:
        """Returns the sums and maxima of a pass, without maxima that come with a sum."""
        return [
            (name, made)
            for name, made in self.reductions.items()
            if self.lines[name].level == level and name not in self.online.values()
        ]


def _written(lines: Iterable[_Line]) -> list[str]:
    """Returns lines as text; an op's comment stands above the first of its lines."""
    done: list[str] = []
    above = ""
    for line in lines:
        if line.comment and line.comment != above:
            done.append(line.comment)
            above = line.comment
        done.append(f"{line.name} = {line.text}")
    return done


def _loop(length: str, body: Sequence[str], back: bool = False) -> list[str]:
    # From the last block back to the first: a pass before ended there, and those are the blocks that the L2 cache still has.
    first = [f"first = ({length} - 1) // COLUMNS * COLUMNS - behind"] if back else []
    inside = [
        *first,
        "columns = first + tl.arange(0, COLUMNS)[None, :]",
        f"mask = row_mask & (columns < {length})",
        f"offsets = rows * {length} + columns",
        *body,
    ]
    return nested(f"for {'behind' if back else 'first'} in range(0, {length}, COLUMNS):", inside)


def passes(lines: Lines, loads: Sequence[str], stores: Sequence[str], length: str) -> list[str]:
    """Returns the body of a kernel whose program owns ``rows`` and goes over their columns in blocks.

    Sums and maxima of a pass see each element once; those that need their results come in the next pass, and the outputs in
    the last. A softmax's sum takes its maximum along, in one pass. Nothing is written before the last pass, so that an
    output may lie in the memory of an input.

    Args:
        lines: Of the group.
        loads: Lines that read its inputs.
        stores: Lines that write outputs with a value per element.
        length: Text of the number of elements of a row.
    """
    found = _Passes(lines, loads, length)
    last = max((found.lines[name].level for name in found.reductions), default=0)
    # Level by level: the passes that fill sums, then what is computed of them per row.
    body = found.per_row(0)
    for level in range(1, last + 1):
        before, inside, after = [], [], []
        wanted: list[str] = []
        for name, made in found.sums(level):
            wanted.extend(found.lines[name].reads)
            dtype = LANGUAGE[made.dtype.name]
            if name in found.online:
                lines.used.update(("_online", "_online_row"))
                both = f"max_{made.peak}, sum_{name}"
                # Not -inf: the difference of two of them would be NaN.
                before.append(f"max_{made.peak} = tl.full((ROWS, COLUMNS), {np.finfo(made.dtype.np).min!s}, {dtype})")
                before.append(f"sum_{name} = tl.zeros((ROWS, COLUMNS), {dtype})")
                inside.append(f"{both} = _online({both}, {made.under}, mask)")
                after.append(f"{made.peak}, {name} = _online_row({both})")
            elif made.function == "rsum":
                before.append(f"sum_{name} = tl.zeros((ROWS, COLUMNS), {dtype})")
                inside.append(f"sum_{name} += tl.where(mask, {made.text}, 0.0)")
                after.append(f"{name} = tl.sum(sum_{name}, 1)[:, None]")
            else:
                lines.used.update(("_maximum", "_row_max"))
                before.append(f'max_{name} = tl.full((ROWS, COLUMNS), float("-inf"), {dtype})')
                inside.append(f'max_{name} = _maximum(max_{name}, tl.where(mask, {made.text}, float("-inf")))')
                after.append(f"{name} = _row_max(max_{name})")
        body += [*before, *_loop(length, [*found.needed(wanted), *inside]), *after, *found.per_row(level)]
    if stores:
        wanted = [w for store in stores for w in _NAME.findall(store) if w in found.lines]
        # Sums are made in one direction only: strict numerics asks for the same order in whichever pass a sum is made.
        body += _loop(length, [*found.needed(wanted), *stores], back=last > 0)
    return body
