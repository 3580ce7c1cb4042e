"""Whole training steps beside torch: a dry run of a small model on the CPU, and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.scripts import run, script

steps = script("steps")


@pytest.mark.slow
def test_a_dry_run_trains_all_and_fused_equals_unfused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said = run("gpu/steps.py", str(tmp_path), "--dry-run", "--only", "gpt").stdout
    rows = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows] == ["tstatic", "tstatic, unfused", "torch"]
    assert not [r["error"] for r in rows if "error" in r]
    fused, unfused, torch = (r["losses"] for r in rows)
    assert fused == pytest.approx(unfused, rel=1e-5)
    assert fused[-1] < fused[0]
    assert torch[-1] < torch[0]
    assert said.count(" ms") == 3


def row(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": "gpt", "median_s": 1e-3, "losses": [2.0, 1.0], "first_step_s": 3.0, **more}


def test_the_table_says_times_memory_and_what_failed() -> None:
    more = {"planned_bytes": 2e9, "held_bytes": 3e9, "compile_s": 9.0, "compiled": 3, "jobs": 4, "failed": ["why"]}
    told = steps.table([row("tstatic", **more), row("torch", median_s=2e-3), {**row("torch.compile"), "error": "no"}])
    assert "1.00 ms  x1.00    3.00 GB  plan 2.00 GB  loss 2.0000 1.0000" in told
    assert "(kernels 9.0 s, 3 of 4)\n    not compiled: why" in told
    assert "2.00 ms  x2.00" in told
    assert told.endswith("torch.compile      no")
