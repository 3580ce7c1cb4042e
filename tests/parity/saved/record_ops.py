"""Keeps a program that Paddle saved for each op type that described calls use: ``python -m tests.parity.saved.record_ops``.

Paddle's own process builds, runs and saves them (``calls.py``); a call that ends its process is left out.
"""

from __future__ import annotations

import base64
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity.record import ROOT
from tests.parity.saved import both_ways
from tstatic.formats import paddle_proto

KEPT = ROOT / "tests" / "data" / "paddle-2.6" / "ops.json.xz"


def packed(array: Any) -> list[Any]:
    """An array as plain data."""
    array = np.asarray(array)
    return [str(array.dtype), list(array.shape), base64.b64encode(array.tobytes()).decode()]


def unpacked(row: list[Any]) -> np.ndarray[Any, Any]:
    """The array of :func:`packed`."""
    dtype, shape, data = row
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


def types_of(model: bytes) -> list[str]:
    """Op types of a saved program."""
    return [op.type for block in paddle_proto.read_program(model).blocks for op in block.ops]


def saved_there() -> list[dict[str, Any]]:
    """Programs that Paddle saved for the described calls."""
    with tempfile.TemporaryDirectory() as folder:
        rows = both_ways.saved("paddle", both_ways.described(), Path(folder))
    return [row for row in rows if "left" not in row]


def main() -> None:
    """Records anew."""
    seen: set[str] = set()
    kept = []
    # Small programs first; special values and truth values show differences that are chosen.
    rare = lambda row: any(word in row["id"] for word in ("special", "bool[", "i32[", "i64["))  # noqa: E731
    for row in sorted(saved_there(), key=lambda row: (rare(row), len(row["model"]), row["id"])):
        types = set(types_of(row["model"])) - seen
        plain = all(np.asarray(value).dtype != object for value in row["results"])  # not lists of tensors
        if types and plain:
            seen |= types
            kept.append({
                "id": row["id"], "model": base64.b64encode(row["model"]).decode(),
                "values": {name: packed(value) for name, value in row["values"].items()},
                "feed": {name: packed(value) for name, value in row["feed"].items()},
                "results": [packed(value) for value in row["results"]],
            })  # fmt: skip
    KEPT.write_bytes(lzma.compress(json.dumps(kept).encode(), preset=9))
    print(f"{len(kept)} programs of {len(seen)} op types in {KEPT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
