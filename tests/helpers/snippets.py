"""The Python snippets of a Markdown page; as a script it prints the first one of the page that it is given."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
ONE_SCRIPT = "<!-- one script -->"
"""A line of a page whose snippets are one script: each goes on where the one before ended."""
_END = "-- end of a block --\n"


def python_blocks(page: Path) -> list[str]:
    """Returns the text of each ```` ```python ```` block of ``page``, in order."""
    return [text for text, _ in samples(page)]


def samples(page: Path) -> list[tuple[str, str]]:
    """Returns the text of each block, and what the page says it prints: a ```` ```text ```` block right behind it."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def scripts(page: Path) -> list[tuple[str, str]]:
    """Returns each script of a page, and what it prints: a block by itself, or all blocks of a page that is one script."""
    found = samples(page)
    if ONE_SCRIPT not in page.read_text(encoding="utf-8").splitlines():
        return found
    # What each block prints is told apart, so that a line which one block lacks and another has too much is noticed.
    return [
        (
            "\n".join(f"{text}print({_END!r}, end='')\n" for text, _ in found),
            "".join(printed + _END for _, printed in found),
        )
    ]


if __name__ == "__main__":
    blocks = python_blocks(Path(sys.argv[1]))
    if not blocks:
        sys.exit(f"{sys.argv[1]} has no ```python block")
    print(blocks[0], end="")
