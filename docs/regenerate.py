"""Writes the generated pages of this folder anew; ``--check`` only says which are stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tstatic import errors, flags

HERE = Path(__file__).parent


def errors_page() -> str:
    """Returns ``errors.md``: each class, what else it is, and when it is raised."""
    lines = [
        "# Errors",
        "",
        "Made from `tstatic/errors.py` by `make docs`; edit it there.",
        "",
        "A message has up to six parts: what is wrong, the operator and the variable concerned, what was expected,",
        "what was received, the file and line of the user's own statement, and a fix. They are attributes too:",
        "`error.what`, `error.op`, `error.var`, `error.expected`, `error.received`, `error.where`, `error.fix`.",
        "",
        "| Class | Is also a | When |",
        "|---|---|---|",
    ]
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    for one in classes:
        if one.__module__ != errors.__name__:
            continue
        also = ", ".join(f"`{base.__name__}`" for base in one.__bases__ if base is not Exception)
        when = " ".join((one.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")
        lines.append(f"| `{one.__name__}` | {also} | {when} |")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {"errors.md": errors_page, "flags.md": flags.markdown}


def stale() -> list[str]:
    """Returns the names of the pages that do not say what their source says."""
    return [
        name
        for name, make in PAGES.items()
        if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != make()
    ]


def main() -> int:
    """Writes what is stale, or with ``--check`` names it and returns 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check = parser.parse_args().check
    names = stale()
    for name in names:
        print(f"{name} is stale; run `make docs`" if check else f"wrote docs/{name}")
        if not check:
            (HERE / name).write_text(PAGES[name](), encoding="utf-8")
    return int(check and bool(names))


if __name__ == "__main__":
    sys.exit(main())
