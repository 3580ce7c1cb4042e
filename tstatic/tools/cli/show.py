"""Prints the outcomes of commands: as tables in colours, as plain text, or as JSON."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tstatic.errors import TstaticError
from tstatic.tools.cli.outcome import Outcome, Table

WIDTH = 160
"""Columns where the output is not a terminal; in one, it is as wide as that is."""


FOLDED = 14
"""Columns of text that are wider than this are folded where a table is too wide."""


def clean(text: str) -> str:
    """Returns text in which control characters, which could move a terminal's cursor, are written as escapes."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(outcome: Outcome, as_json: bool) -> None:
    """Prints an outcome to standard output."""
    if as_json:
        print(json.dumps(outcome.data, indent=1, default=str))
        return
    if importlib.util.find_spec("rich") is None:
        print("\n\n".join(_plain(part) for part in outcome.parts))
        return
    _show_in_colours(outcome.parts)


def complain(text: str) -> None:
    """Prints what went wrong to standard error, if that can be written to."""
    with contextlib.suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr)


def said(error: TstaticError) -> str:
    """Returns an error's text without a line of the package that parsed the command line, which is not the user's."""
    lines = str(error).splitlines()
    return "\n".join(line for line in lines if not (line.startswith("  at:") and "site-packages" in line))


def _plain(part: str | Table) -> str:
    if isinstance(part, str):
        return clean(part)
    rows = [[*map(str, part.columns)], *([clean(str(cell)) for cell in row] for row in part.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([*filter(None, (clean(part.title),)), *(_line(row, widths) for row in rows)])


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _least_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns how narrow each column of a table may become: numbers stay in one line, texts fold."""
    found = []
    for i, column in enumerate(columns):
        cells = [row[i] for row in rows]
        whole = max(map(len, (column, *cells)))
        numbers = all(not cell or cell[0].isdigit() for cell in cells)
        found.append(whole if numbers else min(whole, FOLDED))
    return found


def _show_in_colours(parts: Sequence[str | Table]) -> None:
    import rich.box  # optional, and takes 50 ms
    import rich.console
    import rich.table
    import rich.text

    class Console(rich.console.Console):
        def on_broken_pipe(self) -> None:
            # Its own answer is exit code 1, but a reader that had enough changes nothing (`perform`).
            raise BrokenPipeError

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for i, part in enumerate(parts):
        if i:
            console.print()
        if isinstance(part, str):
            console.print(rich.text.Text(clean(part)), soft_wrap=True)
            continue
        if part.title:
            console.print(rich.text.Text(clean(part.title), style="bold"), soft_wrap=True)
        table: Any = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_header=any(part.columns))
        rows = [[clean(str(cell)) for cell in row] for row in part.rows]
        widths = _least_widths(part.columns, rows)
        for column, width in zip(part.columns, widths, strict=True):
            table.add_column(rich.text.Text(column), overflow="fold", min_width=width)
        for row in rows:
            table.add_row(*map(rich.text.Text, row))
        # A table that cannot be folded any further is wider than the terminal, which then breaks its lines.
        needed = sum(widths) + 3 * len(widths)
        console.print(table, width=max(console.width, needed), crop=False)
