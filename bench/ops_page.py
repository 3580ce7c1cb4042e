"""Writes the page of a result of `tstatic bench`, every row and every peer, beside it: `python bench/ops_page.py RESULT.json`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tstatic.benchlib import results, table


def main() -> int:
    """Writes a page for each file."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.with_suffix(".md").write_text(table.markdown(results.read(path)), encoding="utf-8")
        print(path.with_suffix(".md"))
    return 0 if len(sys.argv) > 1 else 2


if __name__ == "__main__":
    sys.exit(main())
