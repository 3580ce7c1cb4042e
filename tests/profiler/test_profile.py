"""``tstatic.profiler.profile``: rows, parts of steps, traces, and that nothing is paid while nothing is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_hot_step import own_calls, trained
from tests.profiler.nets import Net
from tstatic import devices, io, profiler, records, static
from tstatic.devices.cpu.copy_speed import copy_speed
from tstatic.errors import ProgramError
from tstatic.profiler import chrome_trace, step_parts, tables
from tstatic.records import Machine, Record

pytestmark = pytest.mark.numpy_device("the host's clock times what ends when its calls return")


@pytest.fixture(scope="module")
def found() -> profiler.recording.Profile:
    net = Net(width=64)
    net.run()
    with profiler.profile() as made:
        for _ in range(3):
            net.run()
    return made


def test_rows_have_calls_bytes_and_shares(found: Any) -> None:
    rows = {row.name: row for row in found.by_op()}
    assert (rows["gelu"].calls, rows["momentum"].calls, rows["mul"].calls) == (3, 12, 6)
    # gelu reads and writes [512, 64] float32; momentum reads a parameter, its gradient, its velocity and a rate, and writes two.
    assert rows["gelu"].nbytes == 3 * 2 * 512 * 64 * 4
    # Of what was averaged, the gradient needs the shape only.
    assert rows["reduce_mean_grad"].nbytes == 3 * (1 + 512 * 64) * 4
    parameters = [64 * 64, 64, 64 * 64, 64]
    assert rows["momentum"].nbytes == 3 * sum(5 * 4 * n + 4 for n in parameters)
    machine = found.machines[rows["gelu"].device]
    assert machine.bandwidth > 1e8
    assert copy_speed(1) is copy_speed(1), "measured once"
    assert rows["gelu"].share_of(machine) == pytest.approx(
        rows["gelu"].nbytes / (rows["gelu"].total / 1e9) / machine.bandwidth
    )
    for rows_of_kind in (found.by_op(), found.by_line(), found.by_place()):
        assert sum(row.total for row in rows_of_kind) == sum(event.length for event in found.ops)
        assert [row.total for row in rows_of_kind] == sorted((row.total for row in rows_of_kind), reverse=True)
    lines = {row.name.rpartition("/")[2]: row for row in found.by_line()}
    assert all(name.startswith("nets.py:") for name in lines)
    assert found.by_kernel() == []


def test_the_parts_of_steps_add_up(found: Any) -> None:
    steps = found.steps()
    assert steps.count == 3
    assert sum(part.total for part in steps.parts) == steps.total
    names = [part.name for part in steps.parts]
    assert names[:4] == [step_parts.BIND, step_parts.FORWARD, step_parts.BACKWARD, step_parts.UPDATE]
    assert step_parts.RUNTIME in names
    assert steps.runs == {}
    assert steps.device_parts == ()


def test_views_of_a_profile(found: Any, tmp_path: Path) -> None:
    text = str(found)
    assert text.startswith("3 steps in ")
    assert "where a step goes" in text
    assert "bandwidth" in text
    assert "measured: a copy of large arrays" in text
    assert "... and " in found.table(top=2)
    assert repr(found).count("\n") == 0
    assert f"{len(found.ops)} records of operators, most in {found.by_op()[0].name}>" in repr(found)
    page = found._repr_html_()
    assert "<caption>By operator</caption>" in page
    assert "momentum" in page
    found.save_json(tmp_path / "found.json")
    data = json.loads((tmp_path / "found.json").read_text())
    assert data["steps"] == 3
    assert sum(one["share"] for one in data["operators"]) == pytest.approx(1)
    assert sum(one["total_ns"] for one in data["parts"]) == data["total_ns"]
    assert data["operators"][0]["bandwidth_share"] > 0
    assert data["kernels"] == []


def test_an_empty_profile_says_so() -> None:
    with profiler.profile() as empty:
        pass
    assert repr(empty) == "<Profile: 0 steps in 0.000 ms, 0.000 ms each, 0 records of operators>"
    assert empty.by_op() == []
    assert "0 steps" in str(empty)
    assert empty.to_dict()["operators"] == []
    with profiler.profile() as outer, pytest.raises(ProgramError, match="another profiler records"), profiler.profile():
        pass
    assert records.recorder is None
    assert outer.events == []


def test_a_trace_has_threads_steps_and_data(tmp_path: Path) -> None:
    class Rows(io.Dataset):
        def __getitem__(self, index: int) -> Any:
            return np.full(8, index, np.float32)

        def __len__(self) -> int:
            return 6

    x = static.data("x", [None, 8])
    out, exe = paddle.tanh(x), static.Executor("cpu")
    loader = io.DataLoader(Rows(), feed_list=[x], batch_size=2, places=paddle.CPUPlace(), return_list=False)
    write = profiler.export_chrome_tracing(str(tmp_path), "mine")
    with profiler.Profiler(on_trace_ready=write) as recorded:
        for feed in loader:
            exe.run(feed=feed, fetch_list=[out])
            recorded.step()
    (file,) = tmp_path.iterdir()
    rows = json.loads(file.read_text())["traceEvents"]
    kinds = {row["cat"] for row in rows if row["ph"] == "X"}
    assert {"step", "data", "load", "run", "op", "compile"} <= kinds
    assert sum(row["name"] == "DataLoader" for row in rows) == 3
    named = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    assert {"MainThread", "tstatic reader"} <= set(named.values())
    made = {named[row["tid"]] for row in rows if row.get("cat") == "load"}
    assert made == {"tstatic reader"}
    tanh = next(row for row in rows if row["name"] == "tanh")
    assert tanh["args"]["bytes"] == 2 * 2 * 8 * 4
    parts = {part.name for part in step_parts.steps_of(recorded.events).parts}
    assert {step_parts.DATA, step_parts.COMPILE} <= parts


def test_what_a_first_run_prepares_is_not_called_the_run() -> None:
    x = static.data("x", [None, 8])
    for _ in range(40):
        x = paddle.tanh(x)
    exe = static.Executor("cpu")
    with profiler.profile() as made:
        for _ in range(2):
            exe.run(feed={"x": np.ones((2, 8), "float32")}, fetch_list=[x])
    prepared = [event for event in made.events if event.name == "bind the plan"]
    assert [event.kind for event in prepared] == ["compile"]
    compiling = next(part for part in made.steps().parts if part.name == step_parts.COMPILE)
    assert compiling.total >= prepared[0].length + sum(e.length for e in made.events if e.name == "compile")


def test_replicas_and_their_collectives_are_told_apart() -> None:
    net = Net(width=16, places=2)
    net.run()
    with profiler.profile() as made:
        net.run()
    shared = [event for event in made.ops if step_parts.part_of(event) == step_parts.COLLECTIVES]
    assert len({event.thread for event in shared}) == 2
    assert all(made.recorder.threads[event.thread] for event in shared)
    assert {chrome_trace.category(event) for event in shared} == {"collective"}
    assert step_parts.COLLECTIVES in {part.name for part in made.steps().parts}


def test_bytes_of_tiles_are_those_of_the_op_once() -> None:
    net = Net(width=512, threads=2)
    net.run()
    with profiler.profile() as made:
        net.run()
    gelu = [event for event in made.ops if event.name == "gelu"]
    assert sum(event.nbytes for event in gelu) == 2 * 512 * 512 * 4
    assert {row.name: row.calls for row in made.by_op()}["gelu"] == 1


def test_sizes_that_runs_decide_are_those_of_each_run() -> None:
    x = static.data("x", [4])
    out = paddle.nonzero(x)
    exe = static.Executor("cpu")
    with profiler.profile() as made:
        for ones in (1, 3):
            exe.run(feed={"x": np.array([1] * ones + [0] * (4 - ones), "float32")}, fetch_list=[out])
    sizes = [event.nbytes for event in made.ops]
    assert sizes == [16 + 8, 16 + 24]


def test_exclusive_parts_count_time_side_by_side_once() -> None:
    def event(start: int, end: int) -> Record:
        return Record("op", "x", start, end, 1)

    groups = [("a", [event(0, 10), event(5, 20)]), ("b", [event(15, 30)]), ("c", [event(2, 3)])]
    assert step_parts._exclusive(groups) == [("a", 20), ("b", 10), ("c", 0)]
    assert tables.merged([event(-5, 1), event(0, 2)]) == 7


def test_shares_refer_to_the_machine() -> None:
    row = tables.Row("x", [500, 500], 3000)
    assert row.bandwidth == 3e9
    assert row.share_of(Machine(6e9, "", "")) == 0.5
    assert row.share_of(None) is None
    assert tables.Row("x", [1]).share_of(Machine(1.0, "", "")) is None


def test_torch_on_the_cpu_has_the_cpus_bandwidth() -> None:
    pytest.importorskip("torch")
    found = [one.machine(1) for one in (devices.HOST, devices.DEVICES["torch"])]
    assert found[0] == found[1]
    assert found[0].source.startswith("measured")


# ------------------------------------------------------------------------------------------------------ nothing when off
def test_nothing_is_left_of_a_recording() -> None:
    step = trained(paddle.optimizer.Adam)
    before = own_calls(step)
    with profiler.profile() as made:
        step()
    assert made.ops
    assert own_calls(step) == before


def test_a_recorded_op_costs_one_call_of_the_clock() -> None:
    """Bound once: an op's own calls, and one that C runs; three functions a run."""
    net = Net(width=8)
    net.run()
    sessions = [kept.bound.sessions[0] for kept in net.exe._cache._entries.values()]
    (session,) = (one for one in sessions if one.bound is not None and one.bound.schedules["update"].calls)
    schedules, recorder = session.bound.schedules, session.bound.recorded
    bound = {name: list(one.calls) for name, one in schedules.items()}
    with profiler.profile():
        net.run()
        recorded = {name: one.calls for name, one in recorder._regions.items()}
        for name, calls in recorded.items():
            owners = schedules[name].op_of_call
            ops = sum(a is not b for a, b in zip(owners, [None, *owners], strict=False))
            assert len(calls) == len(bound[name]) + ops + 2
            assert sum(function is next for function, _ in calls) == ops
    assert {name: list(one.calls) for name, one in schedules.items()} == bound
    assert recorder.recorder is None


def test_views_that_are_asked_for_say_why_they_are_empty(capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(width=8)
    with profiler.Profiler(on_trace_ready=lambda p: None) as recorded:
        net.run()
    views = [profiler.SummaryView.KernelView, profiler.SummaryView.MemoryView, profiler.SummaryView.DistributedView]
    recorded.summary(views=[*views, profiler.SummaryView.MemoryManipulationView])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "DistributedView: no collective was recorded",
        "KernelView: no generated kernel ran; on a CPU fused operators run as those that they replace",
        "MemoryView: ask for it with Profiler(profile_memory=True)",
        "MemoryManipulationView: copies and fills are not recorded one by one; ModelView has them in sum",
    ]
    recorded.summary(views=[profiler.SummaryView.ModelView, profiler.SummaryView.DeviceView])
    text = capsys.readouterr().out
    assert "Model Summary" in text
    assert "backward" in text
    assert "Device Summary" in text
    with pytest.raises(paddle.errors.TstaticError, match="views"):
        recorded.summary(views=["KernelView"])  # type: ignore[list-item]
