"""The rows that follow first contact: their order, their goals, what is said of peers, and the run of all parts."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.scripts import hidden, run, script
from tests.bench.test_contact import Doubling, Stub, StubOfValues, load, pack
from tests.helpers.patience import pace

packfile, runner, rows, auto, scripts = (script(name) for name in ("packfile", "runner", "rows", "auto", "parts"))

CEILINGS = {"bytes_per_s": 4.0e12, "flops_per_s": 8.0e14}


def timed(seconds: float, **peers: float) -> dict[str, Any]:
    """A row of first contact that moves 4 MB: a microsecond at the ceiling."""
    made = {name: {"median_s": s} for name, s in peers.items()}
    time = {"median_s": seconds, "unwritten": {}, "compared": {"right": True}, "peers": made}
    return {"what": "case", "bytes": 4_000_000, "check": {"right": True}, "time": time}


def test_the_distance_is_that_of_the_goal_that_is_furthest() -> None:
    goal = rows.Goal(0.8, {"eager": 2.0, "compiled": 1.0})
    assert goal.distance(timed(1.25e-6), 4e12) == pytest.approx(1.0)
    assert goal.distance(timed(1.25e-6, eager=2.5e-6), 4e12) == pytest.approx(1.0)
    assert goal.distance(timed(1.25e-6, eager=1.25e-6, compiled=1.25e-6), 4e12) == pytest.approx(2.0)
    assert goal.distance(timed(5e-6, compiled=5e-6), 4e12) == pytest.approx(4.0)
    wrong = timed(1.25e-6) | {"check": {"right": False}, "time": {}}
    assert goal.distance(wrong, 4e12) == math.inf


def test_a_row_that_the_peers_own_kernel_serves_is_its_equal_within_two_hundredths() -> None:
    goal = rows.Goal(0.0, {"eager": 1.10})
    served = timed(1e-6, eager=1e-6) | {"way": "library"}
    assert goal.distance(timed(1e-6, eager=1e-6) | {"way": "generated 64x64x64"}, 4e12) == pytest.approx(1.10)
    assert goal.distance(served, 4e12) == pytest.approx(0.98)
    assert goal.distance(timed(1.03e-6, eager=1e-6) | {"way": "library"}, 4e12) > 1
    text = rows.table_row({"name": "gemm/x/0.mul", "predicted_s": 1e-6, **served}, 0.98)
    assert "  = peer  eager x1.00" in text
    assert text.endswith("goal reached")


def test_every_kind_of_row_has_a_goal() -> None:
    from tests.bench.scripts import BENCH

    text = (BENCH / "gpu" / "peers.py").read_text()
    names = [
        n for n in script("peers").PEERS if f'"{n.rpartition("/")[0]}' in text or n.startswith(("bn_", "compiler/"))
    ]
    assert len(names) > 15
    for name in names:
        direction = "backward" if name.endswith("/1") and not name.startswith("adamw") else "forward"
        type = "x_grad" if direction == "backward" else "x"
        assert rows.goal_of(f"{name}.{type}") is not rows.DEFAULT, name


def test_the_furthest_rows_come_first_and_unknown_ones_before_all() -> None:
    cases = [{"name": name} for name in ("auto/a/0.x", "auto/b/0.x", "auto/c/0.x", "auto/d/0.x")]
    known = [timed(s) | {"name": n} for n, s in (("auto/a/0.x", 2e-6), ("auto/b/0.x", 9e-6), ("auto/c/0.x", 4e-6))]
    order = rows.ordered(cases, known, 4e12)
    assert [case["name"] for _, case in order] == ["auto/d/0.x", "auto/b/0.x", "auto/c/0.x", "auto/a/0.x"]
    assert order[0][0] == math.inf


def go(device: Any, given: dict[str, Any], folder: Path, peer: Any = None, **settings: Any) -> list[dict[str, Any]]:
    lines = packfile.Lines(folder, "rows", 0.0)
    bench = rows.Rows(device, given["arrays"], load, lambda case: peer)
    order = [(2.0, case) for case in given["cases"]]
    code = rows.run(bench, order, lines, ceilings=CEILINGS, say=lambda text: None, **settings)
    assert code == (runner.LOST if getattr(device, "gone", False) else 0)
    return [line for line in lines.read() if line["what"] == "row"]


class Drifting(StubOfValues):
    """The second time that a kernel is timed in a round it takes a tenth longer."""

    def race(self, competitors: Any, expected: float) -> dict[str, Any]:
        return {
            name: {"median_s": expected * (1.1 if name == rows.AGAIN else 1.0), "p20_s": expected, "p80_s": expected}
            for name in competitors
        }


def test_a_row_says_its_noise_and_why_peers_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = script("wheels")
    monkeypatch.setattr(wheels, "PACKAGES", {"liger": "no_such_package", "json": "json"})
    monkeypatch.setattr(wheels, "WHEELS", {"0": {"liger": lambda *ins: None, "json": lambda *ins: 1 / 0}})
    # Names of packages are looked up by the module that `race` imports, which is this one.
    monkeypatch.setitem(sys.modules, "wheels", wheels)
    given = pack("right")
    monkeypatch.setattr(_Tensors, "view", lambda self, shape: self, raising=False)
    [row] = go(Drifting(), given, tmp_path, Doubling())
    assert row["time"]["noise"] == pytest.approx(0.1)
    peers = row["time"]["peers"]
    assert rows.AGAIN not in peers
    assert peers["liger"]["error"] == "peer missing: no_such_package is not installed"
    assert peers["json"]["error"].startswith("ZeroDivisionError")
    assert len(peers["eager"]["ratios"]) == rows.ROUNDS
    text = rows.table_row(row, 1.5)
    assert "noise 10.0 %" in text
    assert "peer missing" in text
    assert text.endswith("behind its goal by x1.50")


_Tensors = type(StubOfValues().put([0.0], "float32"))


def test_a_run_that_was_ended_goes_on_behind_the_row_that_ended_it(tmp_path: Path) -> None:
    given = pack("right", "right", "right")
    device = Stub()

    def before(step: str) -> None:
        device.gone = True

    device.before = before
    assert [row["name"] for row in go(device, given, tmp_path)] == ["0.right"]
    assert [row["name"] for row in go(Stub(), given, tmp_path)] == ["0.right", "1.right", "2.right"]
    # A number that JSON lacks would end other readers.
    for line in (tmp_path / "rows.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda text: pytest.fail(text))


def test_the_time_limit_stops(tmp_path: Path) -> None:
    assert go(Stub(), pack("right"), tmp_path, end=0.0) == []
    lines = packfile.Lines(tmp_path, "rows", 0.0).read()
    assert [line["why"] for line in lines if line["what"] == "stopped"] == ["the time was up after 0 of 1 rows"]


# ---------------------------------------------------------------------------------------------------------- all parts
SCRIPT = """
import pathlib, sys, time
results = pathlib.Path(sys.argv[1])
with (results / "calls").open("a") as file:
    file.write(pathlib.Path(__file__).stem + " " + " ".join(sys.argv[2:]) + "\\n")
{body}
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Scripts in the places of the three parts: each takes the body that it is given."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.setattr(scripts, "HERE", folder)
    results = tmp_path / "results"
    results.mkdir()

    def made(contact: str = "", ring: str = "", rows: str = "", budget: float = 200.0) -> Any:
        for name, body in (("contact", contact), ("ring", ring), ("rows", rows)):
            (folder / f"{name}.py").write_text(SCRIPT.format(body=body))
        code = auto.Auto(results, tmp_path / "pack.npz", budget, False).run()
        calls = results / "calls"
        begun = [line.split()[0] for line in calls.read_text().splitlines()] if calls.exists() else []
        lines = packfile.Lines(results, "auto", 0.0).read()
        return SimpleNamespace(code=code, begun=begun, lines=lines)

    return made


def test_parts_run_in_their_order(parts: Any) -> None:
    done = parts()
    assert (done.code, done.begun) == (0, ["contact", "ring", "ring", "rows"])
    assert [(line["part"], line["code"]) for line in done.lines if line["what"] == "part"] == [
        ("contact", 0), ("programs", 0), ("tests", 0), ("rows", 0)
    ]  # fmt: skip


def test_a_part_that_fails_keeps_no_other_from_running(parts: Any) -> None:
    done = parts(contact="sys.exit(1)", ring="raise OSError")
    assert (done.code, done.begun) == (1, ["contact", "ring", "ring", "rows"])


def test_no_gpu_is_said_by_the_exit_code(parts: Any) -> None:
    assert parts(contact="sys.exit(2)", ring="sys.exit(2)", rows="sys.exit(2)").code == 2


def test_a_part_that_hangs_is_ended(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "CONTACT_S", 2.0 * pace())  # the script has begun by then
    monkeypatch.setattr(scripts, "GRACE_S", 0.3)
    done = parts(contact="time.sleep(1000)")
    assert (done.code, done.begun) == (1, ["contact", "ring", "ring", "rows"])
    assert [line.get("code") for line in done.lines if line["what"] == "part"] == [None, 0, 0, 0]


def test_rows_that_end_their_process_are_begun_anew(parts: Any) -> None:
    died = "n = sum(line.startswith('rows') for line in (results / 'calls').open())\nsys.exit(0 if n > 2 else 139)"
    done = parts(rows=died)
    assert (done.code, done.begun) == (0, ["contact", "ring", "ring", "rows", "rows", "rows"])


def test_rows_that_say_nothing_any_more_are_begun_anew(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "PATIENCE_S", 2.0 * pace())  # a script that is begun anew has ended by then
    hang = "n = sum(line.startswith('rows') for line in (results / 'calls').open())\ntime.sleep(0 if n > 1 else 100)"
    done = parts(rows=hang)
    assert (done.code, done.begun) == (0, ["contact", "ring", "ring", "rows", "rows"])


def test_without_time_a_part_is_not_begun(parts: Any) -> None:
    done = parts(budget=1.0)
    assert "rows" not in done.begun
    assert done.code != 0


@pytest.mark.slow
def test_rows_run_in_the_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "pack.npz"
    run("gpu/pack.py", str(file), "--tiny", "--only", "elewise/relu-full-fp32")
    run("gpu/rows.py", str(tmp_path), "--pack", str(file), "--dry-run")
    [row] = [line for line in packfile.Lines(tmp_path, "rows", 0.0).read() if line["what"] == "row"]
    assert runner.good(row)
    assert row["behind_before"] is None, "there was no first contact"
    assert {"eager", "compiled"} <= set(row["time"]["peers"])
    assert "behind its goal" in (tmp_path / "rows.txt").read_text()


def test_a_library_that_is_missing_is_a_line(tmp_path: Path) -> None:
    run("gpu/rows.py", str(tmp_path), "--dry-run", code=2, **hidden(tmp_path / "hide", "torch"))
    [error] = [line for line in packfile.Lines(tmp_path, "rows", 0.0).read() if line["what"] == "error"]
    assert "No module named 'torch" in error["error"]
