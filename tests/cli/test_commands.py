"""Each command on a script and on saved programs: what it says, as JSON and as text, and its exit code."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.cases import SCRIPT, answer, tstatic, write_script
from tests.helpers import warm
from tstatic.cli.looking import _chosen
from tstatic.cli.outcome import CommandError

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, and what it saved."""
    where = tmp_path_factory.mktemp("cli")
    write_script(where)
    done = tstatic(where, "run", "net.py", ".")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss ") == 2
    return where


TARGETS = ("net.py", "trained", "model", "model.pdmodel", "old")


def test_explain_of_a_script_takes_the_program_that_trains(folder: Path) -> None:
    found = answer(folder, "explain", "net.py")
    assert found["program"] == "net.py, program 2 of 2"
    assert found["fusions"]["launches"]["before"] == found["fusions"]["launches"]["after"] > 10
    assert {one["switch"] for one in found["off"]} >= {"build_cinn_pass", "fuse_elewise_add_act_ops"}
    every = answer(folder, "explain", "net.py", "--all", "--first", "2")["fusions"]
    assert every["launches"]["after"] < every["launches"]["before"]
    assert every["applied"]
    startup = answer(folder, "explain", "net.py", "--program", "1")
    assert startup["program"] == "net.py, program 1 of 2"


def test_explain_as_text_answers_first_and_keeps_the_scripts_own_words_apart(folder: Path) -> None:
    done = tstatic(folder, "explain", "net.py", "--switch", "fuse_elewise_add_act_ops")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[1].startswith("launches: ")
    assert "fuse_elewise_add_act_ops (" in done.stdout
    assert "loss " not in done.stdout
    assert done.stderr.count("loss ") == 2, "the script's prints go to standard error"


def test_why_is_a_finding_unless_they_are_one_kernel(folder: Path) -> None:
    pair = ("--why", "fc_0.tmp_1", "gelu_0.tmp_0")
    apart = answer(folder, "explain", "net.py", *pair, code=1)
    assert apart["code"] == "OFF"
    assert "fuse_elewise_add_act_ops" in apart["text"]
    assert answer(folder, "explain", "net.py", "--all", *pair)["fused"]
    unknown = tstatic(folder, "explain", "net.py", "--why", "fc_0.tmp_11", "gelu_0.tmp_0")
    assert unknown.returncode == 2
    assert "did you mean 'fc_0.tmp_1'" in unknown.stderr
    assert "typer" not in unknown.stderr


def test_kernels_are_listed_shown_and_written(folder: Path) -> None:
    found = answer(folder, "kernels", "net.py", "--all", "--write", "kernels")
    assert len(found["kernels"]) >= 3
    files = sorted(p.stem for p in (folder / "kernels").iterdir())
    assert files == sorted({one["name"] for one in found["kernels"]})
    shown = tstatic(folder, "kernels", "net.py", "--all", "--show", "1")
    assert "@triton.jit" in shown.stdout
    ast.parse(shown.stdout)
    assert shown.stdout.strip() == (folder / "kernels" / f"{found['kernels'][0]['name']}.py").read_text().strip()
    none = tstatic(folder, "kernels", "net.py")
    assert none.returncode == 0
    assert "no kernels, because no fusion was made" in none.stdout


def test_a_kernel_is_shown_by_each_of_its_numbers_and_by_its_name() -> None:
    kernels: list[Any] = [SimpleNamespace(name=name) for name in ("first", "second", "7")]
    for name, number in (("1", 0), ("2", 1), ("3", 2), ("first", 0), ("second", 1), ("7", 2)):
        assert _chosen(kernels, name) is kernels[number]
    for name in ("0", "4", "-1", "third", ""):
        with pytest.raises(CommandError, match="a number from 1 to 3, or a name"):
            _chosen(kernels, name)


@pytest.mark.parametrize("target", TARGETS)
def test_every_kind_of_target(folder: Path, target: str) -> None:
    found = answer(folder, "summary", target)
    assert found["parameter_count"] == 6 * 8 + 8 + 8 * 3 + 3
    assert found["inputs"][0] == {"name": "x", "shape": [-1, 6], "dtype": "float32"}
    assert len(found["fetches"]) == 1


@pytest.mark.parametrize("target", ["net.py", "model"])
def test_memory_grows_with_the_batch(folder: Path, target: str) -> None:
    small, large = (answer(folder, "memory", target, "--batch", n) for n in ("4", "400"))
    assert large["peak_bytes"] > 20 * small["peak_bytes"]
    assert small["feed_shapes"]["x"] == [4, 6]
    assert answer(folder, "memory", target, "--feed", "x=9,6", "--batch", "9")["feed_shapes"]["x"] == [9, 6]


def test_memory_says_whether_it_fits(folder: Path) -> None:
    found = answer(folder, "memory", "model", "--fits", "H100")
    assert found["fit"]["fits"]
    assert found["fit"]["needed_bytes"] == found["total_bytes"] > found["peak_bytes"]
    short = tstatic(folder, "memory", "model", "--fits", "1 kB")
    assert short.returncode == 1
    assert "does not fit" in short.stdout
    wrong = tstatic(folder, "memory", "model", "--fits", "H10")
    assert wrong.returncode == 2
    assert "did you mean 'H100'" in wrong.stderr


@pytest.mark.parametrize("target", ["net.py", "trained", "model"])
def test_profile_counts_calls_and_writes_a_trace(folder: Path, target: str) -> None:
    runs = ("--runs", "2") if target != "net.py" else ()
    found = answer(folder, "profile", target, *runs, "--trace", "trace.json")
    gelu = next(one for one in found["operators"] if one["operator"] == "gelu")
    assert gelu["calls"] == 2
    assert 0.99 < sum(one["share"] for one in found["operators"]) < 1.01
    assert gelu["bytes"] > 0
    assert gelu["bandwidth_share"] > 0
    assert sum(one["total_ns"] for one in found["parts"]) == found["total_ns"]
    assert any(e["name"] == "gelu" for e in json.loads((folder / "trace.json").read_text())["traceEvents"])
    if target != "model":
        assert gelu["where"].startswith("net.py:")


def test_profile_shows_where_a_step_goes(folder: Path) -> None:
    shown = tstatic(folder, "profile", "model", "--runs", "2", "--nan")
    assert shown.returncode == 0
    for text in ("Where one of the 2 steps goes", "forward", "bandwidth", "measured: a copy", "No operator made a NaN"):
        assert text in shown.stdout


def test_profile_finds_the_first_nan(folder: Path) -> None:
    (folder / "nan.py").write_text(
        "import numpy as np, tstatic as paddle\n"
        "from tstatic import static\n"
        "y = paddle.log(static.data('x', [2])) * 2.0\n"
        "static.Executor('cpu').run(feed={'x': np.array([1, -1], 'float32')}, fetch_list=[y])\n"
    )
    assert tstatic(folder, "profile", "nan.py").returncode == 0
    found = tstatic(folder, "profile", "nan.py", "--nan")
    assert found.returncode == 1
    assert "'x' from -1 to 1" in found.stderr
    assert "nan.py:3" in found.stderr


def test_verify_compares_every_strategy(folder: Path) -> None:
    found = answer(folder, "verify", "trained", "--examples", "1", "--no-interpret")
    assert found["equal"]
    assert found["kernels"] == 0
    names = [one["strategy"] for one in found["strategies"]]
    assert names[0] == "all fusions"
    assert {"fuse_elewise_add_act_ops", "fuse_gemm_epilogue"} <= set(names)
    assert all(one["fusions"] for one in found["strategies"])
    text = tstatic(folder, "verify", "model", "--examples", "1", "--no-interpret")
    assert "No generated kernel ran" in text.stdout


WRONG = """
from dataclasses import replace
import numpy as np
from tstatic.fusion import engine
from tstatic.static import pipeline
import tstatic as paddle
from tstatic import static

kept = pipeline.unfused
def unfused(frozen):  # a fused operator that computes something else
    done = kept(frozen)
    if done.ops == frozen.ops:
        return done
    ops = [replace(op, attrs={**op.attrs, "bias": 9.0}) if op.type == "scale" else op for op in done.ops]
    return done.edit(ops=tuple(ops))
pipeline.unfused = unfused

y = paddle.exp(static.data("x", [4]) * 0.5 + 0.25)
static.Executor("cpu").run(feed={"x": np.ones(4, "float32")}, fetch_list=[y])
"""


def test_verify_finds_a_fusion_that_is_wrong(folder: Path) -> None:
    write_script(folder, WRONG, "wrong.py")
    found = answer(folder, "verify", "wrong.py", "--examples", "1", "--no-interpret", code=1)
    assert not found["equal"]
    failed = next(one for one in found["strategies"] if not one["equal"])
    assert "differs under another strategy" in failed["message"]
    assert "import tstatic" in failed["script"]


def test_compile_for_a_chip_that_is_not_here(folder: Path) -> None:
    found = answer(
        folder,
        "compile",
        "model",
        "--switch",
        "fuse_elewise_add_act_ops",
        "--chip",
        "sm_90",
        "--chip",
        "100",
        "--ptx",
        "ptx",
    )
    assert {one["chip"] for one in found["kernels"]} == {"sm_90", "sm_100"}
    assert all(one["registers"] > 0 and not one["error"] for one in found["kernels"])
    texts = [p.read_text() for p in sorted((folder / "ptx").iterdir())]
    assert len(texts) == len(found["kernels"])
    assert any(".target sm_90a" in text for text in texts)
    assert tstatic(folder, "compile", "model").stdout.count("no kernels") == 1


def test_cache_lists_counts_and_clears(folder: Path, tmp_path: Path) -> None:
    from tstatic.fusion.engine import cache

    place = {"TSTATIC_CACHE_DIR": str(tmp_path / "kernels")}
    assert answer(folder, "cache", **place)["kernels"] == []
    own = Path(answer(folder, "cache", "size", **place)["folder"])
    (own / f"pointwise_{'0' * 64}.py").write_text("x = 1\n")
    (own / "notes.txt").write_text("mine")
    listed = answer(folder, "cache", "list", **place)
    assert listed["bytes"] == 6
    assert [Path(one["file"]).name for one in listed["kernels"]] == [f"pointwise_{'0' * 64}.py"]
    assert "pointwise" in tstatic(folder, "cache", **place).stdout
    for number in range(25):
        (own / f"pointwise_{number:064}.py").write_text("x = 1\n")
    text = tstatic(folder, "cache", **place).stdout
    assert text.count("pointwise") == 20
    assert "and 5 that were used before" in text
    assert len(answer(folder, "cache", **place)["kernels"]) == 25
    assert answer(folder, "cache", "clear", **place)["removed_bytes"] == 25 * 6
    assert [p.name for p in own.iterdir()] == ["notes.txt"], "other files stay"
    assert listed["limit_bytes"] == cache.LIMIT_BYTES
    own.chmod(0o777)
    assert "others can write" in answer(folder, "cache", code=3, **place)["not_used_because"]


def test_selftest(folder: Path) -> None:
    found = answer(folder, "selftest")
    assert found["ok"]
    assert len(found["checks"]) == 5
    assert "kernels ran" in found["checks"][1]["detail"]
    plain = tstatic(folder, "selftest", "--no-interpret")
    assert "no generated kernel ran: it takes a GPU, or triton and torch" in plain.stdout
    assert plain.stderr == ""


def test_selftest_says_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from tstatic.cli import running

    def fails() -> None:
        raise AssertionError("3 is not 4")

    monkeypatch.setattr(running, "CHECKS", {"a sum is right": fails})
    outcome = running.selftest()
    assert outcome.code == 1
    assert outcome.data["checks"] == [{"check": "a sum is right", "ok": False, "detail": "3 is not 4"}]


def test_arguments_behind_two_dashes_are_the_scripts(folder: Path) -> None:
    write_script(folder, SCRIPT + "print(sys.argv)\n", "says.py")
    done = tstatic(folder, "summary", "says.py", "--", "--epochs", "3")
    assert "['says.py', '--epochs', '3']" in done.stderr, (
        "static.save fails in a folder that is not there" + done.stderr
    )


def test_data_parallel_scripts_are_explained_as_they_ran(tmp_path: Path) -> None:
    write_script(
        tmp_path,
        SCRIPT.replace(
            "for _ in range(2):",
            "build = static.BuildStrategy()\nbuild.fuse_elewise_add_act_ops = True\nmain = static.CompiledProgram("
            "static.default_main_program()).with_data_parallel(loss.name, build, places=static.cpu_places(2))\n"
            "for _ in range(2):",
        )
        .replace("exe.run(feed=", "exe.run(main, feed=")
        .replace("float(value)", "value"),
    )
    found = answer(tmp_path, "explain", "net.py")
    assert found["collectives"]
    assert found["BuildStrategy"]["fuse_elewise_add_act_ops"]["value"] is True
    assert [one["switch"] for one in found["fusions"]["applied"]] == ["fuse_elewise_add_act_ops"] * 2
    memory = answer(tmp_path, "memory", "net.py")
    assert len(memory["replicas"]) == 2
    assert memory["feed_shapes"] == {"x": [4, 6], "y": [4, 1]}, "the whole batch, which the places share"


@pytest.mark.parametrize("module", ["tstatic", "tstatic.as_paddle"])
def test_a_script_finds_the_modules_beside_it(tmp_path: Path, module: str) -> None:
    (tmp_path / "inside").mkdir()
    write_script(tmp_path / "inside", "import paddle\nSIZE = paddle.zeros([3]).shape\n", "beside.py")
    write_script(tmp_path / "inside", "import beside, sys\nprint(beside.SIZE, sys.argv[1:])\n", "main.py")
    arguments = ("run",) * (module == "tstatic") + ("inside/main.py", "-x", "--json")
    done = warm.run(module, *arguments, cwd=tmp_path, module=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(3,) ['-x', '--json']\n"


def test_explain_lists_the_compilations_of_a_script(folder: Path) -> None:
    text = SCRIPT.replace(
        'np.ones((4, 6), "float32"), "y": np.zeros((4, 1)', 'np.ones((4 + _, 6), "float32"), "y": np.zeros((4 + _, 1)'
    )
    write_script(folder, text, "sizes.py")
    found = answer(folder, "explain", "sizes.py")["compilations"]
    assert [(one["number"], [c["part"] for c in one["changes"]]) for one in found] == [
        (1, []),
        (2, ["feed 'x'", "feed 'y'"]),
    ]
    said = tstatic(folder, "explain", "sizes.py", "--verbose").stdout
    assert "compiled 2 times in " in said
    assert "    feed 'x': (4, 6) float32 -> (5, 6) float32" in said
