"""The commands bench and compare: files they write, exit codes, what wrong calls are told."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.cases import answer, tstatic
from tests.helpers.snippets import python_blocks

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


# -------------------------------------------------------------------------- programs, kernels and blocks of one's own
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
SHORT = ("--repeats", "1", "--time", "0.01")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page shows."""
    where = tmp_path_factory.mktemp("page")
    for text in python_blocks(PAGE):
        if text.startswith("# ") and text.split()[1].endswith(".py"):
            (where / text.split()[1]).write_text(text, encoding="utf-8")
    assert {"train.py", "kernels.py"} <= {one.name for one in where.iterdir()}
    program = 'name = "linear_gelu"\ninputs = { x = [4, 6], w = [6, 5] }\nsteps = ["h = matmul_v2(X=x, Y=w)", "y = gelu(X=h)"]'
    (where / "small.toml").write_text(f'[[op]]\nop = "softmax"\nshapes = {{ X = [4, 6] }}\n[[program]]\n{program}\n')
    return where


def test_what_the_page_shows_of_ones_own_runs_as_it_stands(page: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").split("## Programs of your own")[1].split("## Method")[0]
    lines = [
        line
        for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(lines) == 5
    for line in lines:
        prompt, program, *arguments = shlex.split(line, comments=True)
        assert (prompt, program) == ("$", "tstatic")
        code = re.search(r"# exit code (\d)", line)
        if "cuda" in line:
            continue  # another test asks for the GPU that is not there
        # Small sizes, and no peer that takes seconds to import.
        less = ["--shapes", "small.toml"] if "--op" in line else []
        done = tstatic(
            page, *arguments, *less, *SHORT, *([] if "--peers" in line else ["--peers", "tstatic,unfused,numpy"])
        )
        assert done.returncode == (int(code[1]) if code else 0), (line, done.stdout, done.stderr)
        if "careless" in line:
            assert "kernels:careless: wrong: " in done.stdout
    (row,) = json.loads((page / "result.json").read_text())["rows"]
    assert row["name"] == "train.py, program 2 of 2 x [8, 16], y [8, 1] float32 fwd_bwd"
    assert [one["state"] for one in row["peers"].values()] == ["ok"] * 3


def test_a_program_by_paddle_save_is_measured_whatever_its_file_is_called(page: Path) -> None:
    (page / "saving.py").write_text(
        f"{(page / 'train.py').read_text()}\npaddle.save(static.default_main_program(), 'prog.json')\n"
    )
    assert tstatic(page, "run", "saving.py").returncode == 0
    done = tstatic(
        page, "bench", "prog.json", *SHORT, "--peers", "tstatic,unfused", "--feed", "x=3,16", "--feed", "y=3,1"
    )
    assert done.returncode == 0, done.stderr
    assert "prog.json x [3, 16], y [3, 1] float32 fwd_bwd; tstatic " in done.stdout
    assert "prog.json has no values for fc_0.w_0" in done.stderr
    assert answer(page, "summary", "prog.json")["operators"]["mul"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train.py", "--op", "relu"), "--op has no use here"),
        (("train.py", "--peer", "kernels.py:softmax"), "--peer has no use here"),
        (("--batch", "3"), "--batch has no use here"),
        (("nothing.py",), "there is no script and no saved program"),
        (("--op", "softmax", "--peer", "kernels.py:sofmax"), "did you mean 'softmax'"),
        (("--op", "softmax", "--block", "ROWS=7"), "not a power of two"),
        (("--op", "softmax", "--block", "ROWS"), "not a block size"),
        (("--op", "softmax", "--block", "ROWS=8", "--block", "ROWS=16"), "has a size already"),
        (("--op", "softmax", "--block", "ROWS=8"), "no generated kernel runs on this device"),
    ],
)
def test_wrong_calls_about_ones_own_say_what_is_wrong(page: Path, arguments: tuple[str, ...], said: str) -> None:
    done = tstatic(page, "bench", *arguments, *SHORT)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr


def test_rows_of_other_blocks_are_not_compared(folder: Path) -> None:
    """Guards the comparison: a row with blocks of its own is another row than the one that chose them."""
    result = json.loads((folder / "r.json").read_text())
    for row in result["rows"]:
        row["name"], row["blocks"] = f"{row['name']} BLOCK=64", {"BLOCK": 64}
    (folder / "blocks.json").write_text(json.dumps(result))
    done = tstatic(folder, "compare", "r.json", "blocks.json")
    assert done.returncode == 2
    assert "there is nothing to compare" in done.stderr


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
