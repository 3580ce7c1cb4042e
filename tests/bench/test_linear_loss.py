"""The row of a linear layer with its loss: a dry run on the CPU, its table, and what is behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.scripts import script

linear_loss = script("linear_loss")


def row(name: str, seconds: float, size: float) -> dict[str, Any]:
    return {"name": name, "shape": [4, 2, 8], "median_s": seconds, "bytes": size, "loss": 1.0}


@pytest.mark.slow
def test_a_dry_run_measures_and_all_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert linear_loss.main([str(tmp_path), "--dry-run"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "linear_loss.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows] == ["tstatic", "tstatic, whole", "torch"]
    assert not [r["error"] for r in rows if "error" in r]
    assert [r["loss"] for r in rows] == pytest.approx([rows[0]["loss"]] * 3, rel=1e-5)
    assert rows[0]["bytes"] < rows[1]["bytes"], "chunks need less memory"
    assert "linear + cross entropy 8192 x 8 x 32" in capsys.readouterr().out


def test_what_is_behind_is_told() -> None:
    peer = row("torch.compile", 1e-3, 9e9)
    assert linear_loss.behind([row("tstatic", 1e-3, 3e9), peer]) == []
    told = linear_loss.behind([row("tstatic", 2e-3, 4.5e9), peer])
    assert told == ["[4, 2, 8]: 0.50 of torch.compile's memory", "[4, 2, 8]: 2.00 times torch.compile's time"]
    failed = {"name": "tstatic", "shape": [4, 2, 8], "error": "no"}
    assert linear_loss.behind([failed, peer]) == []
    text = linear_loss.table([row("tstatic", 2e-3, 4.5e9), peer])
    assert "2.00 ms  x2.00     4.50 GB  x0.50" in text
