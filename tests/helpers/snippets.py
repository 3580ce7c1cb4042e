"""The Python snippets of a Markdown page; as a script it prints the first one of the page that it is given."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[str]:
    """Returns the text of each ```` ```python ```` block of ``page``, in order."""
    return [text for text, _ in samples(page)]


def samples(page: Path) -> list[tuple[str, str]]:
    """Returns the text of each block, and what the page says it prints: a ```` ```text ```` block right behind it."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    blocks = python_blocks(Path(sys.argv[1]))
    if not blocks:
        sys.exit(f"{sys.argv[1]} has no ```python block")
    print(blocks[0], end="")
