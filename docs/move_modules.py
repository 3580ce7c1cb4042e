"""Moves modules and packages of ``tstatic``, and rewrites who imports them: ``python docs/move_modules.py moves.txt``.

A line of the file is ``old new``, dotted names below ``tstatic``; a new name ``old.__init__`` makes a package of a module. Names
stay: give ``tstatic/aliases.py`` a row for each other line, so that what users import is found. Docstrings speak of public
names and are left alone; so are ``setup.py`` and ``pyproject.toml``.
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
    quoted = re.compile(r"""(?<=["'])tstatic\.[a-z_.]+(?=["':])""")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    # From the last to the first, since a statement may take more lines than before.
    for node in sorted(found, key=lambda one: -one.lineno):
        last = node.end_lineno or node.lineno
        before = "".join(lines[node.lineno - 1 : last])
        lines[node.lineno - 1 : last] = [_imports(before, node, moves)]
    return quoted.sub(lambda found: renamed(found[0], moves), "".join(lines))


def _imports(before: str, node: ast.Import | ast.ImportFrom, moves: dict[str, str]) -> str:
    if isinstance(node, ast.Import):
        for one in node.names:
            if one.name.partition(".")[0] == PACKAGE.name:
                before = before.replace(one.name, renamed(one.name, moves))
        return before
    if not node.module or node.module.partition(".")[0] != PACKAGE.name:
        return before
    # Names that are modules may have moved apart, and with other names; `as` keeps the one by which the file knows each.
    by_home: dict[str, list[str]] = {}
    for one in node.names:
        home, name = renamed(node.module, moves), one.name
        if (place := renamed(f"{node.module}.{name}", moves)) != f"{home}.{name}":
            home, _, name = place.rpartition(".")
        known = one.asname or one.name
        by_home.setdefault(home, []).append(name if name == known else f"{name} as {known}")
    if [*by_home] == [node.module]:
        return before
    indent, trailing = before[: len(before) - len(before.lstrip())], before.rpartition("#")
    comment = f"  #{trailing[2].rstrip()}" if trailing[1] and "\n" not in trailing[2].rstrip() else ""
    return "".join(f"{indent}from {home} import {', '.join(names)}{comment}\n" for home, names in by_home.items())


def main(table: str) -> None:
    """Moves what the table lists, and rewrites who imports it: the library, its tests, benches and examples."""
    rows = [line.split() for line in Path(table).read_text(encoding="utf-8").splitlines() if line.strip()]
    for old, new in rows:
        move(old, new)
    moves = {old: new for old, new in rows if new != f"{old}.__init__"}
    folders = (PACKAGE, *(ROOT / one for one in ("tests", "bench", "docs", "examples")))
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (made := rewritten(text, moves)) != text:
            path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
