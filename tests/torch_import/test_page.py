"""The table of docs/from_torch.md is that of the registry."""

from __future__ import annotations

import re
from pathlib import Path

from tstatic.interop import from_torch as _converters  # noqa: F401 - it registers them
from tstatic.interop.conversion import CONVERTERS

PAGE = Path(__file__).parents[2] / "docs" / "from_torch.md"


def rows() -> list[str]:
    """The table's rows: a module's sentence, and the operators without their overloads."""
    found: dict[str, set[str]] = {}
    for name, convert in CONVERTERS.items():
        found.setdefault(convert.__module__, set()).add(name.split(".")[1])
    return [
        f"| {module.rpartition('aten_')[2]} | {', '.join(f'`{n}`' for n in sorted(names))} |"
        for module, names in sorted(found.items())
    ]


def test_the_page_lists_the_operators_that_are_converted() -> None:
    stated = re.findall(r"^\| [a-z]+ \| `.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert stated == rows(), "\n".join(["the table of docs/from_torch.md should be:", *rows()])
