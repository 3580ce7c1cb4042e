"""Shows rows while they are measured: a table that grows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tstatic.display import counted
from tstatic.progress import Progress
from tstatic.tools.benchlib import table
from tstatic.tools.cli.show import clean

Show = Callable[[dict[str, Any]], None]
SHOWN = 12
"""Rows that the table has while more are measured; all of them are printed at the end."""


@contextmanager
def live(peers: Sequence[str], total: int, quiet: bool = False) -> Iterator[Show]:
    """Yields a function that is told each row.

    Args:
        peers: Names, in the order of the columns.
        total: How many rows there are to be.
        quiet: Print nothing: standard output is for JSON.
    """
    if quiet:
        with Progress("measuring rows", total) as progress:
            yield lambda row: progress.advance(clean(row["subject"]))
    elif sys.stdout.isatty():
        with _on_terminal(peers, total) as show:
            yield show
    else:
        print(f"{counted(total, 'row')}. {table.MARKS}", flush=True)
        yield lambda row: print(clean(table.line(row, peers)), flush=True)


@contextmanager
def _on_terminal(peers: Sequence[str], total: int) -> Iterator[Show]:
    import rich.box  # optional, and takes 50 ms
    import rich.console
    import rich.live
    import rich.table
    import rich.text

    rows: list[dict[str, Any]] = []

    def drawn(shown: Sequence[dict[str, Any]], title: str) -> Any:
        made: Any = rich.table.Table(box=rich.box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for column in ("row", *peers):
            made.add_column(rich.text.Text(column), overflow="fold")
        for row in shown:
            made.add_row(*(rich.text.Text(clean(one)) for one in (row["name"], *(table.cell(row, p) for p in peers))))
        return made

    console = rich.console.Console()
    with rich.live.Live(console=console, transient=True, auto_refresh=False) as shown:

        def show(row: dict[str, Any]) -> None:
            rows.append(row)
            shown.update(drawn(rows[-SHOWN:], f"{len(rows)} of {total} rows"), refresh=True)

        yield show
    console.print(drawn(rows, counted(len(rows), "row")))
