"""Moves modules and packages of ``tstatic``, and rewrites who imports them: ``python docs/move_modules.py moves.txt``.

A line of the file is ``old new``, dotted names below ``tstatic``. Names stay: give ``tstatic/aliases.py`` a row for each, so that
what users import is found. Docstrings speak of public names and are left alone; so are tests, ``setup.py`` and ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tstatic.aliases import renamed

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tstatic"


def move(old: str, new: str) -> None:
    """Moves a file or a folder, as git sees it; what is not there any more was moved before."""
    for suffix in ("", ".py"):
        source, target = PACKAGE.joinpath(*old.split(".")), PACKAGE.joinpath(*new.split("."))
        source, target = source.with_name(source.name + suffix), target.with_name(target.name + suffix)
        if source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(source), str(target)], check=True, cwd=ROOT)


def rewritten(text: str, moves: dict[str, str]) -> str:
    """Returns a source with imports, and texts that are names of modules, as they read after the moves."""
    lines = text.splitlines(keepends=True)
    starts = {
        node.lineno - 1: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
    }
    quoted = re.compile(r"""(?<=["'])tstatic\.[a-z_.]+(?=["':])""")
    for number, node in starts.items():
        lines[number] = _imports(lines[number], node, moves)
    return quoted.sub(lambda found: renamed(found[0], moves), "".join(lines))


def _imports(line: str, node: ast.Import | ast.ImportFrom, moves: dict[str, str]) -> str:
    if isinstance(node, ast.Import):
        for one in node.names:
            if one.name.partition(".")[0] == PACKAGE.name:
                line = line.replace(one.name, renamed(one.name, moves))
        return line
    if not node.module or node.module.partition(".")[0] != PACKAGE.name:
        return line
    # `from package import module`, where the module alone was moved; a line with further names is left to the reader.
    places = {one.name: renamed(f"{node.module}.{one.name}", moves) for one in node.names}
    home = renamed(node.module, moves)
    if len(places) == 1 and node.names[0].name != "*":
        ((name, place),) = places.items()
        parent, _, leaf = place.rpartition(".")
        if leaf == name:
            home = parent
    return re.sub(rf"from {re.escape(node.module)} import", f"from {home} import", line)


def main(table: str) -> None:
    """Moves what the table lists, and rewrites the library."""
    rows = [line.split() for line in Path(table).read_text(encoding="utf-8").splitlines() if line.strip()]
    for old, new in rows:
        move(old, new)
    moves = dict(rows)
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (made := rewritten(text, moves)) != text:
            path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
