"""The commands bench and compare: files they write, exit codes, what wrong calls are told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.cases import answer, tstatic

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")

SIZES = """
[[op]]
op = "relu"
shapes = { X = [4, 6] }
directions = ["fwd", "fwd_bwd"]
"""
QUICK = ("--shapes", "own.toml", "--repeats", "11", "--time", "0.01", "--peers", "tstatic,numpy")
OFF = """
import numpy as np
from tstatic.benchlib.peers import Competitor, peer

@peer("off", usual=False)
def off(case, timer, sets):
    return Competitor([lambda: None] * sets, lambda: [np.asarray(a + 1) for a in case.expected])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of sizes, a module with a peer, and a result."""
    where = tmp_path_factory.mktemp("bench")
    (where / "own.toml").write_text(SIZES)
    (where / "own_peers.py").write_text(OFF)
    done = tstatic(where, "bench", *QUICK, "--json", "r.json", "--html", "r.html", "--csv", "r.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    (where / "text").write_text(done.stdout)
    return where


def test_bench_shows_a_line_per_row_and_writes_what_is_asked_for(folder: Path) -> None:
    text = (folder / "text").read_text()
    assert "relu [4, 6] float32 fwd; tstatic " in text
    assert "result written to r.json" in text
    assert all(c.isprintable() or c == "\n" for c in text), "no control bytes where there is no terminal"
    result = json.loads((folder / "r.json").read_text())
    assert result["complete"]
    assert {"machine", "versions", "commit", "seed", "setting", "device", "roofs"} <= set(result)
    assert [row["direction"] for row in result["rows"]] == ["fwd", "fwd_bwd"]
    assert all(len(row["peers"]["numpy"]["seconds"]) == 11 for row in result["rows"])
    with (folder / "r.csv").open() as file:
        assert [line["peer"] for line in csv.DictReader(file)] == ["tstatic", "numpy"] * 2
    assert (folder / "r.html").read_text().startswith("<!doctype html>")


def test_bench_continues_its_file_and_refuses_another_setting(folder: Path) -> None:
    before = (folder / "r.json").read_text()
    done = tstatic(folder, "bench", *QUICK, "--json", "r.json", "--history", "r.json", "--html", "again.html")
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "r.json").read_text())["rows"] == json.loads(before)["rows"]
    other = tstatic(folder, "bench", *QUICK, "--json", "r.json", "--seed", "4")
    assert other.returncode == 2
    assert "seed: 0 and 4" in other.stderr


def test_a_wrong_peer_of_ones_own_module_is_a_finding(folder: Path) -> None:
    call = ("bench", *QUICK[:-1], "tstatic,off", "--load", "own_peers", "--json", "-", "--only", "*fwd")
    done = tstatic(folder, *call)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"][0]["peers"]["off"]["state"] == "wrong"
    assert "seconds" not in found["rows"][0]["peers"]["off"]


def test_bench_lists_rows_and_peers_without_measuring(folder: Path) -> None:
    done = tstatic(folder, "bench", "--list", "--op", "gemm_epilogue,softmax", "--direction", "fwd", "--json", "-")
    found = json.loads(done.stdout)
    assert {row["subject"] for row in found["rows"]} == {"softmax", "linear_gelu"}
    assert found["registered_peers"][:2] == ["tstatic", "unfused"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--op", "sofmax"), "did you mean 'softmax'"),
        (("--op", "while"), "has no row of its own"),
        (("--peers", "nunpy"), "did you mean 'numpy'"),
        (("--direction", "back"), "--direction takes fwd, bwd, fwd_bwd"),
        (("--dtype", "float31"), "float31"),
        (("--device", "tpu"), "--device takes cpu or cuda"),
        (("--shapes", "none.toml"), "there is no file of sizes"),
        (("--history", "none.json"), "there is no result"),
        (("--load", "no_such_module"), "no_such_module"),
        (("--only", "nothing*"), "no row is left"),
    ],
)
def test_wrong_calls_of_bench_say_what_is_wrong(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = tstatic(folder, "bench", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "typer" not in done.stderr


def test_without_a_gpu_bench_says_what_was_looked_for(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = tstatic(folder, "bench", "--device", "cuda", "--op", "relu")
    assert done.returncode == 3
    assert "a CUDA device that torch finds" in done.stderr


def test_compare_finds_regressions(folder: Path) -> None:
    result = json.loads((folder / "r.json").read_text())
    # What this machine measures may be noise alone: times of our own, which differ by 1 %, decide.
    for row in result["rows"]:
        row["peers"]["tstatic"]["seconds"] = [1e-5 * (1 + 0.01 * (i % 2)) for i in range(11)]
        row["control"]["seconds"] = [1e-5 * (1 + 0.01 * (i % 2)) for i in range(11)]
    (folder / "quiet.json").write_text(json.dumps(result))
    assert not answer(folder, "compare", "quiet.json", "quiet.json")["regressed"]
    for row in result["rows"]:
        row["peers"]["tstatic"]["seconds"] = [3 * s for s in row["peers"]["tstatic"]["seconds"]]
        row["control"]["seconds"] = [3 * s for s in row["control"]["seconds"]]
    (folder / "slow.json").write_text(json.dumps(result))
    found = answer(folder, "compare", "quiet.json", "slow.json", code=1)
    assert [one["finding"] for one in found["changes"]] == ["slower"] * 2
    assert answer(folder, "compare", "quiet.json", "slow.json", "--threshold", "400")["regressed"] is False
    text = tstatic(folder, "compare", "slow.json", "quiet.json")
    assert text.returncode == 0
    assert text.stdout.startswith("0 worse, 2 better")
    result["machine"]["cpu"] = "another"
    (folder / "other.json").write_text(json.dumps(result))
    assert "different machines" in answer(folder, "compare", "quiet.json", "other.json", code=2)["error"]
    assert tstatic(folder, "compare", "quiet.json", "other.json", "--force").returncode == 1
    assert tstatic(folder, "compare", "quiet.json", "own.toml").returncode == 2
