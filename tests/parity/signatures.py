"""Records the signatures of Paddle's layers and functions: ``python -m tests.parity.signatures`` writes an installed Paddle's.

`make parity` runs it in Paddle's environment. Only the standard library and Paddle are imported.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "signatures.json"
MODULES = ("nn", "nn.functional", "nn.initializer", "nn.utils", "static.nn")
"""Modules below ``paddle`` whose signatures are compared."""
Parameters = list[list[str]]
"""``[name, default]`` of each parameter; ``[name]`` without a default, ``["*name"]`` and ``["**name"]`` for the rest."""


def parameters_of(function: Any) -> Parameters:
    """Returns the parameters of a function or of a class's constructor; defaults as Python writes them."""
    found = []
    for p in inspect.signature(function).parameters.values():
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        found.append([star + p.name] if p.default is p.empty else [p.name, repr(p.default)])
    return found


def installed() -> dict[str, dict[str, Parameters]]:
    """Returns module -> name -> parameters, of the Paddle that this process can import; ``Name.forward`` for layers."""
    found: dict[str, dict[str, Parameters]] = {}
    for name in MODULES:
        module = importlib.import_module(f"paddle.{name}")
        listed = found.setdefault(name, {})
        for each in sorted(set(module.__all__)):
            value = getattr(module, each)
            listed[each] = parameters_of(value)
            if inspect.isclass(value) and "forward" in vars(value):
                listed[f"{each}.forward"] = parameters_of(value.forward)[1:]
    return found


def ask(python: str) -> dict[str, dict[str, Parameters]]:
    """Returns what another environment's Paddle has."""
    code = "import json; from tests.parity.signatures import installed; print(json.dumps(installed()))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([python, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Parameters]] = json.loads(done.stdout.splitlines()[-1])
    return found


def save(signatures: dict[str, dict[str, Parameters]]) -> None:
    """Writes the record, a line per name."""
    parts = []
    for module, listed in signatures.items():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(given)}" for name, given in listed.items())
        parts.append(f"{json.dumps(module)}: {{\n{lines}\n}}")
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def load() -> dict[str, dict[str, Parameters]]:
    """Reads the record."""
    found: dict[str, dict[str, Parameters]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    save(ask(sys.argv[1]) if len(sys.argv) > 1 else installed())
