"""Programs of described calls, written by one side and run by the other; a call that ends a process is named, the rest goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.parity import generate
from tests.parity.record import PADDLE, outlived
from tests.parity.saved import calls
from tests.parity.saved.changing import OTHER_RESULTS

PYTHONS = {"paddle": str(PADDLE), "tstatic": sys.executable}


def described(step: int = 1) -> list[dict[str, Any]]:
    """Every so many-th described call whose result is the same in each run."""
    found = [
        c for c in generate.calls() if c["path"] not in ("training", "schedule", "network") and not c.get("build_only")
    ]
    return [c for c in found if not any(word in c["id"] for word in OTHER_RESULTS)][::step]


def saved(module: str, asked: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """A row of :func:`calls.save` for each call, or `id` and `left`: why there is none."""
    source, target = folder / "calls.json", folder / "saved.jsonl"
    source.write_text(json.dumps(asked))
    command = [PYTHONS[module], "-m", "tests.parity.saved.calls", "save", module, str(source), str(target)]
    rows = outlived(command, asked, target, lambda how: calls.packed({"id": "", "left": how}))
    return [{**calls.unpacked(row), "id": call["id"]} for row, call in zip(rows, asked, strict=True)]


def read(module: str, rows: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """What differs where a side runs the rows that the other one saved, by call; an empty text where nothing does."""
    source, target = folder / "rows.json", folder / "read.jsonl"
    asked = [{"id": row["id"], "row": calls.packed(row)} for row in rows]
    source.write_text(json.dumps(asked))
    command = [PYTHONS[module], "-m", "tests.parity.saved.calls", "read", module, str(source), str(target)]
    texts = outlived(command, asked, target, str)
    return {row["id"]: text for row, text in zip(rows, texts, strict=True)}
