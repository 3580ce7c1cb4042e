"""Writes what Paddle answers into a JSON file beside the tests, which then need no Paddle; runs on Python 3.7, too."""

from __future__ import annotations

import json
from pathlib import Path


def versions():
    """Returns the versions of the Paddle and the numpy that answer."""
    import numpy
    import paddle

    return {"paddle": paddle.__version__, "numpy": numpy.__version__}


def answers(names, run):
    """Returns name -> ``run(name)``; what Paddle refuses is printed and left out."""
    found = {}
    for name in names:
        try:
            found[name] = run(name)
        except Exception as error:
            print(name, type(error).__name__, str(error)[-600:])
    return found


def rounded(value, digits):
    """Returns the same, each float with so many digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    return [rounded(one, digits) for one in value] if isinstance(value, (list, tuple)) else value


def write(script, found, to="recorded.json", indent=0, sort_keys=True, **form):
    """Writes a file beside a script.

    Args:
        script: The script's ``__file__``.
        found: What is written.
        to: The file's name.
        indent, sort_keys, **form: As of ``json.dumps``.
    """
    text = json.dumps(found, indent=indent, sort_keys=sort_keys, **form)
    Path(script).with_name(to).write_text(text + "\n", encoding="utf-8")


def write_version(script, described, digits):
    """Replaces the part of ``recorded.json`` that belongs to the Paddle that runs this.

    Args:
        script: The script's ``__file__``.
        described: A module with ``of_2(paddle)`` and ``of_1(fluid)``.
        digits: How many digits of a float are kept.
    """
    import paddle

    if hasattr(paddle, "enable_static"):
        paddle.enable_static()
    found = described.of_2(paddle) if paddle.__version__.startswith("2") else described.of_1(paddle.fluid)
    path = Path(script).with_name("recorded.json")
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write(script, rounded({**known, paddle.__version__: found}, digits))
