"""Writes a script that imports every public module and uses every public name: ``python -m tests.api.every_module``.

Type checkers read it against the wheel, without the sources (``make typed-wheel``).
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

from tests.api import stubs

RECORDED = Path(__file__).parents[1] / "unit" / "modules.txt"


def public_modules() -> list[str]:
    """Modules of which no part of the name begins with an underscore: those on record, those with files, and facades."""
    names = {*RECORDED.read_text(encoding="utf-8").split(), *stubs.modules(), *stubs.facades()}
    return sorted(name for name in names if not any(part.startswith("_") for part in name.split(".")))


def public_names(module: str) -> list[str]:
    """What ``__all__`` lists; without one, the functions and classes that a module defines."""
    found = importlib.import_module(module)
    own = (n for n, v in vars(found).items() if n[0] != "_" and getattr(v, "__module__", "") == found.__name__)
    return sorted(getattr(found, "__all__", own))


def script() -> str:
    """A module without names is imported all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [(f"m{i}", name, public_names(name)) for i, name in enumerate(public_modules())]
    imports = [f"import {name} as {short}" for short, name, _ in rows]
    imports += [
        f"from {name} import {', '.join(f'{one} as {short}_{one}' for one in names)}"
        for short, name, names in rows
        if names
    ]
    uses = [f"print({', '.join([short, *(f'{short}_{one}' for one in names)])})" for short, _, names in rows]
    return "\n".join((*imports, *uses)) + "\n"


if __name__ == "__main__":
    print(script(), end="")
