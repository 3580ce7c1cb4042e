"""The short look at a GPU: run whole without one, killed in the middle, with parts that fail, hang or die, and its traces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.bench.scripts import BENCH, ROOT, run, script
from tests.helpers.patience import HANG, pace
from tstatic import places

packfile, brief, worker, scripts = (script(name) for name in ("packfile", "brief", "brief_worker", "parts"))


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = packfile.Lines(folder, name, 0.0).read()
    return found


def rows_of(folder: Path, name: str, what: str = "row") -> list[dict[str, Any]]:
    return [line for line in lines_of(folder, name) if line["what"] == what]


KEYS = {
    "trace": {"name", "median_s", "file", "steps", "kernels", "gaps", "facts"},
    "twins": {"name", "batch", "median_s", "losses", "first_step_s", "second_step_s"},
    "memory": {"most_bytes", "reported_bytes", "held_over_reported", "driver_bytes", "graphs"},
    "places": {"places", "right", "worst_loss_difference", "one", "several"},
    "collectives": {"name", "right"},
    "graphs": {"name", "same_bits", "graphs", "captured", "refused", "compile_log"},
}
"""Part -> what each of its rows tells."""


@pytest.mark.slow
def test_a_dry_run_measures_all_parts(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    results = tmp_path / "results"
    run("gpu/brief.py", str(results), "--dry-run", "--budget", str(2 * HANG))
    known = lines_of(results, "brief")
    assert [line for line in known if line["what"] == "error" or line.get("outcome", "passed") != "passed"] == []
    assert known[-1]["codes"] == dict.fromkeys(("contact", "ways", "programs", "tests", "rows"), 0)
    order = [line["name"].partition("/")[0] if line["what"] == "entry" else line["part"]
             for line in known if line["what"] in ("entry", "part")]  # fmt: skip
    assert list(dict.fromkeys(order)) == list(brief.SHARES), "the most knowledge comes first"
    assert {path.name for path in results.iterdir()} == {
        *(f"{name}.jsonl" for name in ("brief", *brief.SHARES)), "contact.txt", "rows.txt", "ways.txt", "trace.txt",
        *(f"trace-{name}.json" for name in ("captured", "uncaptured", "torch.compile")),
    }  # fmt: skip
    for name in brief.SHARES:
        assert rows_of(results, name, "error") == [], name
    for name, keys in KEYS.items():
        rows = rows_of(results, name)
        assert rows
        for row in rows:
            assert keys <= row.keys(), (name, keys - row.keys())
    _ceilings_and_kernels(results)
    _steps(results)


def _ceilings_and_kernels(results: Path) -> None:
    [ceilings], [launches] = rows_of(results, "ceilings", "ceilings"), rows_of(results, "ceilings")
    assert {"bytes_per_s", "flops_per_s"} <= ceilings.keys()
    assert all({"host_s", "eager_s", "graph_s"} <= launches[name].keys() for name in ("torch", "triton"))
    [taken] = rows_of(results, "contact", "ceilings")
    assert taken["flops_per_s"] == ceilings["flops_per_s"], "contact takes the ceilings that are known"
    cases = {row["name"] for row in rows_of(results, "contact", "case") if row["digest"]}
    ways, others = ({row["name"] for row in rows_of(results, name)} for name in ("ways", "rows"))
    assert (len(ways), len(others), ways & others, ways | others) == (2, 1, set(), cases)
    assert any(name.startswith("generated") for name in rows_of(results, "ways")[0]["time"]["peers"])
    assert all(row["outcome"] == "passed" for name in ("programs", "tests") for row in rows_of(results, name, "test"))


def _steps(results: Path) -> None:
    twins = rows_of(results, "twins")
    assert [f"{row['name']} x {row['batch']}" for row in twins] == brief.NAMES["twins"][:-1]
    base = [row for row in twins if row["name"] == "captured"]
    assert [(row["graphs"], row["captured"]) for row in base] == [(1, 1)] * 2
    assert [row["captured"] for row in twins if row["name"] == "uncaptured"] == [0, 0]
    others = [row for row in twins if row["name"] != "captured"]
    assert all(row["twin"] and row["compared_steps"] == len(row["losses"]) for row in others)
    assert [row["worst_loss_difference"] for row in others if row["name"] == "uncaptured"] == [0.0, 0.0]
    assert all(row["losses"][-1] < row["losses"][0] for row in twins)
    traces = rows_of(results, "trace")
    assert [row["name"] for row in traces] == ["captured", "uncaptured", "torch.compile"]
    for row in traces:
        assert json.loads((results / row["file"]).read_text())["traceEvents"]
        [step] = row["steps"]
        assert step["kernels"] > 100
        assert step["host_us"] > 0
    [memory] = rows_of(results, "memory")
    assert memory["most_bytes"] > memory["report"]["by_category"]["parameters"] > 0
    [both] = rows_of(results, "places")
    assert both["right"]
    assert [(row["name"], row["right"]) for row in rows_of(results, "collectives")] == [
        (name, True) for name in brief.NAMES["collectives"]
    ]
    graphs = rows_of(results, "graphs")
    assert [(row["name"], row["same_bits"]) for row in graphs] == [(name, True) for name in brief.NAMES["graphs"]]
    assert all(row["captured"] >= 1 for row in graphs)


@pytest.mark.torch
def test_sums_that_are_wrong_or_visit_the_host_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the faults the same rows are right: the dry run asserts that."""
    pytest.importorskip("torch")
    collectives, place = script("collectives"), script("place")
    assert list(collectives.CASES) == brief.NAMES["collectives"]
    with place.first(True) as gpu:
        paddle.set_flags({"FLAGS_collectives": "host"})
        try:
            row = collectives.places(gpu)
        finally:
            paddle.set_flags({"FLAGS_collectives": "auto"})
        assert row["worst_difference"] <= collectives.NEAR
        assert (row["right"], row["bytes_through_host"] > 0) == (False, True)
        fill = collectives.One.fill
        monkeypatch.setattr(collectives.One, "fill", lambda self, step: fill(self, min(step, 1)))
        for name in ("nccl eager", "nccl captured"):
            assert not collectives.CASES[name](gpu)["right"], name
        monkeypatch.setattr(collectives.One, "fill", fill)
        assert collectives.captured(gpu)["right"]
    assert collectives.apart([np.zeros(2)], [np.array([0.0, np.nan])]) == float("inf")


@pytest.mark.slow
def test_killed_in_the_middle_it_leaves_what_it_found(tmp_path: Path) -> None:
    """All that was told before the kill is there, whole, and says where it stood."""
    command = [sys.executable, str(BENCH / "gpu" / "brief.py"), str(tmp_path), "--dry-run", "--only", "ceilings,trace"]
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    process = subprocess.Popen(command, cwd=ROOT, env=kept, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + HANG
        while not begun(tmp_path)[1:] and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert begun(tmp_path) == ["ceilings/launches", "trace/captured"]
    assert [line["what"] for line in lines_of(tmp_path, "ceilings")] == ["facts", "ceilings", "row"]
    for name in ("brief", "ceilings"):
        for line in (tmp_path / f"{name}.jsonl").read_text().splitlines():
            json.loads(line)
    assert rows_of(tmp_path, "brief", "entry")[0]["outcome"] == "passed"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("trace")], "nothing is there by half"


def begun(folder: Path) -> list[str]:
    """What was begun so far."""
    return [line["name"] for line in rows_of(folder, "brief", "begin")]


# ------------------------------------------------------------------------------------------------ parts that go wrong
WORKER = """
import os, sys, time
sys.path[:0] = [{gpu!r}]
import brief_worker

class Measuring(brief_worker.Measuring):
    def trace(self, what, lines):
        if what == "captured":
            lines.add("row", name="before it")
            {trace}
        lines.add("row", name=what, process=os.getpid())

    def twins(self, what, lines):
        lines.add("row", name=what, process=os.getpid())

brief_worker.Measuring = Measuring
brief_worker.Worker._reach = lambda self, part: None
brief_worker.GRACE_S = {grace}
sys.exit(brief_worker.main(brief_worker.Path(sys.argv[1]), int(sys.argv[2])))
"""


def with_a_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch, trace: str, only: str = "trace,twins", **settings: Any
) -> int:
    """Runs parts in workers whose trace of a captured step does what it is told."""
    scripts_folder = folder / "scripts"
    scripts_folder.mkdir()
    text = WORKER.format(gpu=str(BENCH / "gpu"), trace=trace, grace=settings.pop("grace", 900.0))
    (scripts_folder / "brief_worker.py").write_text(text)
    monkeypatch.setattr(brief, "HERE", scripts_folder)
    made = brief.Brief(folder, folder / "pack.npz", settings.pop("budget", HANG), False, only.split(","))
    code: int = made.run()
    return code


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        ("raise RuntimeError('CUPTI missing')", "RuntimeError: CUPTI missing"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV ended the process"),
        ("sys.exit('no nvcc')", "SystemExit: no nvcc"),
    ],
)
def test_what_fails_or_dies_is_a_line_and_the_next_goes_on(
    trace: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_a_worker(tmp_path, monkeypatch, trace) == 1
    [error] = rows_of(tmp_path, "trace", "error")
    assert error["name"] == "captured"
    assert told in error["error"]
    assert "SIG" in told or "Traceback" in error["traceback"]
    assert [row["name"] for row in rows_of(tmp_path, "trace")] == ["before it", "uncaptured"]
    assert len(rows_of(tmp_path, "twins")) == len(brief.NAMES["twins"])
    outcomes = {row["name"]: row["outcome"] for row in rows_of(tmp_path, "brief", "entry")}
    assert [name for name, outcome in outcomes.items() if outcome != "passed"] == ["trace/captured"]


def test_each_trace_has_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler that was on leaves launches slower, and may see no kernels a second time."""
    assert with_a_worker(tmp_path, monkeypatch, "") == 0
    processes = [row["process"] for row in rows_of(tmp_path, "trace") if "process" in row]
    assert len(processes) == len({*processes}) == len(brief.NAMES["trace"])
    assert len({row["process"] for row in rows_of(tmp_path, "twins")} - {*processes}) == 1


def test_a_part_that_hangs_is_ended_when_its_share_of_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line says so, what it found before is there, and the rest of the part is left out; the next part runs."""
    budget = 60.0 * pace()
    monkeypatch.setattr(scripts, "GRACE_S", 0.0)
    monkeypatch.setitem(brief.SHARES, "trace", 0.02)
    assert with_a_worker(tmp_path, monkeypatch, "time.sleep(1000)", budget=budget, grace=0.1) == 1
    [error] = rows_of(tmp_path, "trace", "error")
    assert error["name"] == "captured"
    assert error["error"].startswith("it did not end within")
    assert [row["name"] for row in rows_of(tmp_path, "trace")] == ["before it"]
    [left] = [row for row in rows_of(tmp_path, "brief", "entry") if row["outcome"] == "skipped"]
    assert (left["name"], left["why"]) == ("trace/uncaptured", "no time was left for it")
    assert len(rows_of(tmp_path, "twins")) == len(brief.NAMES["twins"])


def test_without_a_gpu_it_ends_with_a_line_that_says_so(tmp_path: Path) -> None:
    if places.device_count():
        pytest.skip("there is a GPU")
    pytest.importorskip("triton")
    said = run("gpu/brief.py", str(tmp_path), code=2)
    assert "torch finds no CUDA device" in said.stderr
    assert [line["error"] for line in rows_of(tmp_path, "brief", "error")] == ["torch finds no CUDA device"]


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        brief.main(["--only", "trace,steps"])
    assert "received steps" in capsys.readouterr().err


def test_the_parts_that_are_not_run_keep_their_files(tmp_path: Path) -> None:
    for name in ("trace", "twins"):
        packfile.Lines(tmp_path, name, 0.0).add("row", name="old")
    brief.Brief(tmp_path, tmp_path / "pack.npz", 1.0, True, ["trace"])
    assert rows_of(tmp_path, "trace") == []
    assert len(rows_of(tmp_path, "trace-1")) == len(rows_of(tmp_path, "twins")) == 1


# ----------------------------------------------------------------------------------------------------- what changed
def case(name: str, text: str) -> dict[str, Any]:
    size = {"text": text, "launches": [{"grid": [1]}], "inputs": {}, "outputs": {}}
    return {"name": name, "check": size, "time": size}


def test_kernels_changed_since_a_record_are_those_it_has_not_as_they_are(tmp_path: Path) -> None:
    cases = [case("same", "a"), case("other text", "b"), case("new", "c"), case("was wrong", "d"), case("failed", "e")]
    record = packfile.Lines(tmp_path, "contact", 0.0)
    told = {"same": "a", "other text": "before", "was wrong": "d", "failed": "e"}
    for name, text in told.items():
        more = {"error": "lost"} if name == "failed" else {}
        record.add(
            "case", name=name, digest=packfile.digest(case(name, text)), check={"right": name != "was wrong"}, **more
        )
    found = [one["name"] for one in packfile.changed(cases, record.path)]
    assert found == ["other text", "new", "was wrong", "failed"]
    assert packfile.changed(cases, None) == cases
    grid = case("same", "a")
    grid["time"] = {**grid["time"], "launches": [{"grid": [2]}]}
    assert packfile.changed([grid], record.path) == [grid], "the launches count, too"


def test_contact_with_kernels_that_are_all_as_in_the_record_has_nothing_to_do(tmp_path: Path) -> None:
    cases = [case("same", "a")]
    packfile.write(tmp_path / "pack.npz", {"commit": "abc", "cases": cases, "skipped": {}}, {})
    record = packfile.Lines(tmp_path / "before", "contact", 0.0)
    record.add("case", name="same", digest=packfile.digest(cases[0]), check={"right": True})
    known = packfile.Lines(tmp_path, "ceilings", 0.0)
    known.add("ceilings", bytes_per_s=1.0, flops_per_s=2.0)
    given = ("--pack", str(tmp_path / "pack.npz"), "--since", str(record.path), "--ceilings", str(known.path))
    said = run("gpu/contact.py", str(tmp_path / "now"), *given).stdout
    assert "1 kernels of commit abc, 1 of them as in the last record" in said
    lines = lines_of(tmp_path / "now", "contact")
    assert [line["what"] for line in lines] == ["start", "ceilings", "pack", "compile", "end"]
    assert lines[2]["unchanged"] == 1


def test_tests_that_did_not_pass_in_the_record_come_first(tmp_path: Path) -> None:
    ring, ring_worker = script("ring"), script("ring_worker")
    record = packfile.Lines(tmp_path, "tests", 0.0)
    for name, outcome in (("a", "passed"), ("b", "failed"), ("b", "passed"), ("c", "skipped")):
        record.add("test", name=name, outcome=outcome)
    passed = ring._passed(record.path)
    assert passed == ["a"]
    assert ring._passed(None) == []

    class Item:
        def __init__(self, name: str) -> None:
            self.nodeid = self.path = name

    order = ring_worker.ordered([Item("a"), Item("b"), Item("c"), Item("d")], passed)
    assert [item.nodeid for item in order] == ["b", "c", "d", "a"]


def test_the_last_record_is_the_newest_folder_but_this_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "HERE", tmp_path / "gpu")
    for day in ("gpu-2026-11-26", "gpu-2026-12-01", "gpu-2026-12-02"):
        packfile.Lines(tmp_path / "results" / day, "contact", 0.0).add("start")
    found = scripts.last_record("contact.jsonl", tmp_path / "results" / "gpu-2026-12-02")
    assert found == tmp_path / "results" / "gpu-2026-12-01" / "contact.jsonl"
    assert scripts.last_record("none.jsonl", tmp_path) is None


def test_a_folder_that_is_too_large_to_be_carried_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = script("pack")
    arguments = [str(tmp_path / "pack.npz"), "--tiny", "--only", "elewise/relu-full-fp32"]
    assert pack.main(arguments) == 0
    with (tmp_path / "other").open("wb") as file:
        file.truncate(packfile.MOST_FOLDER_BYTES)
    assert pack.main(arguments) == 1
    assert "too large to be carried: 40." in capsys.readouterr().out
    assert packfile.MOST_FOLDER_BYTES <= 40 * 2**20


# ----------------------------------------------------------------------------------------------------------- a trace
def event(name: str, kind: str, begun: float, took: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "ts": begun, "dur": took, "pid": 0, "tid": 0, "args": {}}


def events() -> list[dict[str, Any]]:
    """Two steps as the profiler writes them: the kernels of a graph, a copy, two streams, and calls that launch nothing."""
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    for begun in (1000.0, 2000.0):
        found += [
            event("traced step", "user_annotation", begun, 200.0),
            event("traced step", "gpu_user_annotation", begun + 20, 80.0),
            event("cudaLaunchKernel", "cuda_runtime", begun + 5, 5.0),
            event("cuLaunchKernelEx", "cuda_driver", begun + 20, 10.0),
            event("cudaStreamSynchronize", "cuda_runtime", begun + 40, 150.0),
            event("product", "kernel", begun + 20, 30.0),
            event("norm", "kernel", begun + 60, 10.0),
            event("side", "kernel", begun + 65, 20.0),
            event("Memcpy DtoH", "gpu_memcpy", begun + 90, 10.0),
            event("aten::mm", "cpu_op", begun + 1, 15.0),
        ]
    return found


def test_a_trace_tells_kernels_gaps_and_the_hosts_time() -> None:
    pytest.importorskip("torch")
    tracing = script("tracing")
    found = tracing.summary(events())
    first, second = found["steps"]
    assert first == second == {
        "wall_us": 200.0, "kernels": 4, "kernel_us": 70.0, "device_us": 80.0, "gap_us": 15.0, "gaps": 2,
        "before_first_kernel_us": 20.0, "launches": 2, "host_us": 30.0,
    }  # fmt: skip
    assert [(row["name"], row["count"], row["us"]) for row in found["kernels"]] == [
        ("product", 1.0, 30.0), ("side", 1.0, 20.0), ("norm", 1.0, 10.0), ("Memcpy DtoH", 1.0, 10.0)
    ]  # fmt: skip
    assert [(gap["us"], gap["behind"], gap["before"]) for gap in found["gaps"]] == [
        (10.0, "product", "norm"), (5.0, "side", "Memcpy DtoH")
    ]  # fmt: skip
    text = tracing.table("captured", found)
    assert "42.9 %    1.0  product" in text
    assert "30.0 (2 launches)" in text


def test_a_trace_without_kernels_says_that_cupti_may_be_missing() -> None:
    pytest.importorskip("torch")
    tracing = script("tracing")
    with pytest.raises(tracing.NoKernelError, match="CUPTI missing"):
        tracing.summary([one for one in events() if one.get("cat") not in ("kernel", "gpu_memcpy")])


def test_trainings_that_differ_or_end_early_are_no_twins() -> None:
    pytest.importorskip("torch")
    twins = script("twins")
    losses = [10.0 - 0.1 * n for n in range(20)]
    assert twins.compared(losses, [x + 0.009 for x in losses])["twin"]
    assert not twins.compared(losses, [*losses[:19], losses[19] + 0.02])["twin"]
    assert not twins.compared(losses, losses[:19])["twin"]
    assert not twins.compared(losses, [float("nan")] * 20)["twin"]
