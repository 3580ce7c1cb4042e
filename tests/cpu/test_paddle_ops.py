"""A program that Paddle 2.6.2 saved for each op type that described calls use gives here what it gave there."""

from __future__ import annotations

import base64
import json
import lzma
from typing import Any

import pytest

from tests.parity.saved import calls
from tests.parity.saved.record_ops import KEPT, types_of, unpacked
from tstatic import static
from tstatic.errors import CheckpointError
from tstatic.ir.composed import composed_op
from tstatic.ir.opdef import OPS

SIGNS = "vectors are determined up to their sign, which is chosen here (docs/paddle_differences.md)"
KNOWN: dict[str, str] = {
    "linalg.eigh(f32[2353 special])": SIGNS,
    "linalg.pca_lowrank(f32[2353 special], 2, False)": SIGNS,
    "linalg.qr(f32[5245 special], 'r')": SIGNS,
    "programs.py_func_gradient(f32[3,2])": "it calls functions of the process that saved it",
}
"""Call -> why its program does not load here, or gives something else."""


def kept() -> list[dict[str, Any]]:
    """The recorded programs, with feeds and results."""
    rows = json.loads(lzma.decompress(KEPT.read_bytes()))
    for row in rows:
        row["model"] = base64.b64decode(row["model"])
        row["values"], row["feed"] = (
            {name: unpacked(one) for name, one in row[part].items()} for part in ("values", "feed")
        )
        row["results"] = [unpacked(one) for one in row["results"]]
    return rows  # type: ignore[no-any-return]


def test_programs_of_every_operator_answer_here_as_there() -> None:
    import tstatic as paddle

    found = {row["id"]: calls.read(paddle, row) for row in kept()}
    other = {name: text.partition("\n")[0] for name, text in found.items() if text}
    assert {name: text for name, text in other.items() if name not in KNOWN} == {}
    assert sorted(KNOWN.keys() - other.keys()) == [], "these programs mean the same by now: take them out of KNOWN"


def test_every_operator_that_paddle_writes_is_known_or_named() -> None:
    types = {type for row in kept() for type in types_of(row["model"])} - {"feed", "fetch"}
    assert len(types) > 260
    lacking = {type for type in types if type not in OPS and composed_op(type, (), ()) is None}
    for row in kept():
        missing = sorted(lacking & {*types_of(row["model"])})
        if missing:
            with pytest.raises(CheckpointError) as caught:
                static.Program.parse_from_string(row["model"])
            assert all(f"'{type}'" in str(caught.value) for type in missing)
            assert row["id"] in KNOWN
