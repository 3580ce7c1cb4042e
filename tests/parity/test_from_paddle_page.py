"""The page on moving a script from Paddle lists what the code declines, which arguments differ, and what Paddle installs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.parity.chosen_signatures import CHOSEN
from tstatic.unsupported import UNSUPPORTED

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGE = (DOCS / "tutorials" / "from_paddle.md").read_text(encoding="utf-8")
REQUIRED = {
    "1.8.5": "opencv-python requests protobuf gast rarfile Pillow graphviz six funcsigs pyyaml decorator prettytable objgraph "
    "astor pathlib scipy numpy nltk matplotlib",
    "2.4.2": "requests numpy protobuf Pillow six decorator astor paddle-bfloat opt-einsum",
    "2.6.2": "httpx numpy Pillow decorator astor opt-einsum protobuf",
}
"""Version of Paddle -> the packages that the metadata of its wheel requires."""


def absent(page: str, stated: Sequence[str]) -> list[str]:
    """Returns what a page does not say; upper and lower case do not count."""
    return [text for text in stated if text.lower() not in page.lower()]


def test_declined_names_are_listed_with_what_to_use() -> None:
    assert absent(PAGE, [f"| {entry.why} | {entry.use} |" for entry in UNSUPPORTED]) == []


def test_arguments_that_differ_are_listed() -> None:
    assert absent(PAGE, [why for _, _, why in CHOSEN]) == []
    assert absent(PAGE, [f"`{path}`" for paths, _, _ in CHOSEN for path in paths.split()]) == []


def test_sections_of_differences_are_linked() -> None:
    headings = re.findall("^## (.+)$", (DOCS / "paddle_differences.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) > 10
    assert absent(PAGE, [f"[{heading}](../paddle_differences.md#" for heading in headings]) == []


def test_packages_of_paddle_are_listed() -> None:
    rows = dict(re.findall(r"^\| ([\w-]+) \| `[\w.]+` \| ([^|]+) \|$", PAGE, re.MULTILINE))
    for version, packages in REQUIRED.items():
        for package in packages.split():
            assert version.rpartition(".")[0] in rows[package], (version, package)


def test_what_is_left_out_is_found() -> None:
    assert absent("| It is so | Use this |", ["| it is so | use this |", "| another |"]) == ["| another |"]
