"""Writes the frozen signatures anew, and the stubs; ``--check`` only says whether the signatures are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.api import stubs, surface  # noqa: E402 - the line above makes it importable for a script

SIGNATURES = Path(__file__).with_name("signatures.txt")


def wanted() -> dict[Path, str]:
    """Returns every generated file that is in git: path -> text."""
    return {SIGNATURES: "\n".join(surface.lines()) + "\n"}


def stale() -> list[Path]:
    """Returns the files that do not say what the package says."""
    return [p for p, text in wanted().items() if not p.exists() or p.read_text(encoding="utf-8") != text]


def main() -> int:
    """Writes what is stale, or with ``--check`` names it and returns 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    check = parser.parse_args().check
    texts = wanted()
    paths = stale()
    if not check:
        stubs.write()
    for path in paths:
        print(f"{path.relative_to(ROOT)} is stale; run `make api`" if check else f"wrote {path.relative_to(ROOT)}")
        if not check:
            path.write_text(texts[path], encoding="utf-8")
    return int(check and bool(paths))


if __name__ == "__main__":
    sys.exit(main())
