"""How numbers and texts are shown: sizes with units, and text as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(nbytes: float) -> str:
    """Returns a number of bytes with its unit and three digits: ``12.3 MB`` (1 MB is 1,000,000 bytes)."""
    for unit, name in UNITS:
        if abs(nbytes) >= 0.9995 * unit:
            scaled = nbytes / unit
            return f"{scaled:.{2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0}f} {name}"
    return f"{nbytes:.0f} byte{'s' * (round(nbytes) != 1)}"


def counted(number: int, noun: str) -> str:
    """Returns a number and what it counts, in the right number: ``1 block``, ``2 blocks``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def preformatted(text: str) -> str:
    """Returns text as a block of HTML that keeps its lines; nothing in it is markup."""
    return f'<pre style="overflow:auto;max-height:40em">{html.escape(text)}</pre>'


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table of HTML; nothing in its cells is markup."""
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
