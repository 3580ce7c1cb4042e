"""The table of docs/from_torch.md is that of the registry."""

from __future__ import annotations

import re
from pathlib import Path

from tstatic.interop import from_torch as _converters  # noqa: F401 - it registers them
from tstatic.interop.conversion import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "from_torch.md"


def rows() -> list[str]:
    """The table's rows: a family, and its operators without their overloads."""
    return [
        f"| {family} | {', '.join(f'`{n}`' for n in sorted({name.split('.')[1] for name in own}))} |"
        for family, own in sorted(FAMILIES.items())
    ]


def test_the_page_lists_the_operators_that_are_converted() -> None:
    stated = re.findall(r"^\| [a-z]+ \| `.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert stated == rows(), "\n".join(["the table of docs/from_torch.md should be:", *rows()])
