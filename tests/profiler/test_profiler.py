"""What a recording says about real runs, and that nothing else changes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tests.profiler import described
from tests.profiler.nets import Net
from tstatic import fluid, profiler, records, static
from tstatic.errors import CheckpointError, ProgramError, TstaticError, UnsupportedError
from tstatic.profiler import tables

SILENT = {"on_trace_ready": lambda _: None}


@pytest.fixture(autouse=True)
def _nothing_records_before_and_after() -> Any:
    assert records.recorder is None
    yield
    assert records.recorder is None


def _ops(found: Any) -> dict[str, int]:
    rows = tables.rows_of([e for e in found.events if e.kind == "op"], lambda e: e.name)
    return {name: len(row.times) for name, row in rows.items()}


def test_schedules_are_those_of_paddle() -> None:
    recorded = json.loads(Path(described.__file__).with_name("recorded.json").read_text(encoding="utf-8"))
    assert described.states(profiler) == recorded["2.6.2"]


@pytest.mark.parametrize(("threads", "places"), [(1, 1), (2, 1), (1, 2)], ids=["alone", "threads", "places"])
def test_a_recording_has_every_op_of_every_run_and_changes_no_result(threads: int, places: int) -> None:
    plain, mine = Net(threads=threads, places=places), Net(threads=threads, places=places)
    wanted = [plain.run() for _ in range(4)]
    found = [mine.run()]
    with profiler.Profiler(**SILENT) as recorded:
        found += [mine.run(), mine.run()]
    found.append(mine.run())
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    counts = _ops(recorded)
    assert counts["gelu"] == counts["gelu_grad"] == 2 * places
    assert counts["momentum"] == 2 * 4 * places
    assert counts["mul"] == 2 * 2 * places
    runs = [e for e in recorded.events if e.kind == "run"]
    assert len(runs) == 2
    within = [e for e in recorded.events if e.kind == "op"]
    # Work that runs late has a clock of its own (test_late_work.py).
    assert all(e.queue or any(r.start <= e.start <= e.end <= r.end for r in runs) for e in within)
    # The ops of one thread never take more than the runs; how much less depends on what else the machine does.
    if threads == places == 1 and not within[0].queue:
        assert 0 < tables.merged(within) <= tables.merged(runs)


def test_tiles_are_recorded_on_the_threads_that_ran_them() -> None:
    net = Net(width=512, threads=2)
    net.run()
    with profiler.Profiler(**SILENT) as recorded:
        net.run()
    threads = {e.thread for e in recorded.events if e.kind == "op"}
    assert len(threads) <= 2
    assert _ops(recorded)["gelu"] == 1


def test_compilations_shapes_and_memory_are_recorded() -> None:
    with profiler.Profiler(record_shapes=True, profile_memory=True, **SILENT) as recorded:
        net = Net(width=64)
        net.run()
    compiled = [e.name == "bind the plan" for e in recorded.events if e.kind == "compile"]
    assert sorted(compiled) == [False, False, True, True]
    shapes = {tuple(m.shape for m in e.metas) for e in recorded.events if e.name == "gelu"}
    assert shapes == {((512, 64),)}
    assert max(size for _, size in recorded._finished("test").held) > 0


def test_a_failing_op_is_named_while_a_recording_goes_on() -> None:
    x = static.data("x", [None, 4])
    y = static.data("y", [None], "int64")
    out = paddle.nn.functional.cross_entropy(paddle.tanh(x), y)
    exe = static.Executor()
    feed = {"x": np.ones((3, 4), np.float32), "y": np.array([0, 9, 1])}
    messages = []
    for recorded in (False, True):
        one = profiler.Profiler(**SILENT)
        if recorded:
            one.start()
        with pytest.raises(TstaticError) as caught:
            exe.run(feed=feed, fetch_list=[out])
        messages.append(str(caught.value))
        one.stop()
    assert messages[0] == messages[1]
    assert "softmax_with_cross_entropy" in messages[0]


def test_nothing_is_recorded_outside_of_recorded_steps() -> None:
    net = Net(width=8)
    handed: list[int] = []
    with profiler.Profiler(scheduler=(2, 4), on_trace_ready=lambda p: handed.append(p.step_num)) as recorded:
        for _ in range(6):
            net.run()
            recorded.step()
    assert handed == [4]
    assert _ops(recorded)["gelu"] == 2
    assert [e.name for e in recorded.events if e.kind == "step"] == ["ProfileStep#2", "ProfileStep#3"]


def test_traces_are_those_that_browsers_show(tmp_path: Path) -> None:
    net = Net(width=8)
    folder = tmp_path / "deep" / "er"
    handler = profiler.export_chrome_tracing(str(folder), worker_name="worker")
    with profiler.Profiler(profile_memory=True, on_trace_ready=handler) as recorded, profiler.RecordEvent("mine"):
        net.run()
    (file,) = folder.iterdir()
    assert file.name.startswith("worker_time_")
    assert file.name.endswith(".paddle_trace.json")
    rows = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    assert {"gelu", "momentum", "Executor.run", "temporaries"} <= {row["name"] for row in rows}
    assert {row["ph"] for row in rows} == {"X", "C", "M"}
    (gelu,) = (row for row in rows if row["name"] == "gelu")
    assert "nets.py" in gelu["args"]["at"]
    recorded.export(str(tmp_path / "again.json"))
    assert len(json.loads((tmp_path / "again.json").read_text())["traceEvents"]) >= len(rows)


@pytest.mark.numpy_device("streams of devices are threads of their own", not_on=("fake",))
def test_recordings_in_paddles_format_are_trees(tmp_path: Path) -> None:
    net = Net(width=8)
    net.run()
    with profiler.Profiler(on_trace_ready=profiler.export_protobuf(str(tmp_path), "worker")) as recorded:
        with profiler.RecordEvent("mine"):
            net.run()
        recorded.step()
    (file,) = tmp_path.iterdir()
    result = profiler.load_profiler_result(str(file))
    assert (result.get_version(), result.get_span_indx()) == ("1.0.2", 0)
    (root,) = result.get_data().values()
    step = root.children_node[0]
    assert (root.name, step.name, step.type.name) == ("root node", "ProfileStep#0", "ProfileStep")
    run = step.children_node[0].children_node[0]
    assert (step.children_node[0].name, run.name) == ("mine", "Executor.run")
    ran = {e.name for e in run.children_node if e.type.name == "Operator"}
    assert ran == {e.op.type for e in recorded.events if e.op is not None}
    assert all(step.start_ns <= e.start_ns <= e.end_ns <= step.end_ns for e in run.children_node)
    result.save(str(tmp_path / "again.pb"))
    assert (tmp_path / "again.pb").read_bytes() == file.read_bytes()


def test_paddles_own_recordings_are_read(tmp_path: Path) -> None:
    (tmp_path / "theirs.pb").write_bytes(bytes.fromhex(described.TRACE))
    result = profiler.load_profiler_result(str(tmp_path / "theirs.pb"))
    (root,) = result.get_data().values()
    assert root.end_ns == 2**64 - 1
    assert [e.name for e in root.children_node] == ["ProfileStep#0", "ProfileStep#1"]
    assert [(e.name, e.type.name) for e in root.children_node[0].children_node] == [("mine", "PythonUserDefined")]
    assert result.get_extra_info()[str(root.children_node[0].thread_id)] == "MainThread"


@given(st.data())
def test_damaged_recordings_are_named(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(bytes.fromhex(described.TRACE))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("traces") / "damaged.pb"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(CheckpointError):
        profiler.load_profiler_result(str(path)).get_data()
    with pytest.raises(CheckpointError, match=r"cannot read the recording .*nothing\.pb"):
        profiler.load_profiler_result(str(path.with_name("nothing.pb")))


def test_the_summary_has_a_row_per_op_type_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(width=8)
    with profiler.Profiler(profile_memory=True, **SILENT) as recorded:
        for _ in range(3):
            with profiler.RecordEvent("step"):
                net.run()
    recorded.summary(time_unit="us")
    text = capsys.readouterr().out
    for title in ("Overview Summary", "Operator Summary", "Memory Summary", "UserDefined Summary"):
        assert title in text
    row = next(line.split() for line in text.splitlines() if line.startswith("momentum "))
    assert row[1] == "12"
    total, average, most, least = (float(v) for v in row[2:6])
    assert least <= average <= most <= total
    assert average == pytest.approx(total / 12, abs=1e-3)
    assert any(line.startswith("  momentum at ") for line in text.splitlines())
    recorded.summary(views=profiler.SummaryView.UDFView, op_detail=False)
    text = capsys.readouterr().out
    assert "UserDefined" in text
    assert "Operator" not in text
    recorded.summary(sorted_by=profiler.SortedKeys.CPUMax, thread_sep=True, op_detail=False)
    assert "Operator Summary, thread " in capsys.readouterr().out


def test_step_info_has_mean_time_and_rate() -> None:
    one = profiler.Profiler(timer_only=True)
    one.start()
    one.step(num_samples=10)
    one.step(num_samples=30)
    words = one.step_info("images").split()
    assert (words[0], words[2], words[3], words[5]) == ("batch_cost:", "s", "ips:", "images/s")
    assert float(words[1]) >= 0
    assert one.step_info() == ""
    one.step()
    assert one.step_info().endswith(" steps/s")
    one.stop()


def test_events_of_ones_own_work_as_decorators_and_by_hand() -> None:
    @profiler.RecordEvent("called")
    def double(x: int) -> int:
        return 2 * x

    by_hand = profiler.RecordEvent("by hand")
    assert double(2) == 4  # nothing records, nothing happens
    with profiler.Profiler(**SILENT) as recorded:
        assert [double(i) for i in range(3)] == [0, 2, 4]
        by_hand.begin()
        by_hand.end()
        by_hand.end()
    assert [e.name for e in recorded.events] == ["called"] * 3 + ["by hand"]


@pytest.mark.parametrize("key", [None, "default", "calls", "total", "max", "min", "ave"])
def test_fluid_profiler_prints_a_table(key: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(width=16)
    with fluid.profiler.profiler("All", key, str(tmp_path / "trace")):
        net.run()
        net.run()
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if "Event Summary" in line) + 4
    rows = [line.split() for line in lines[start:] if line]
    column = {"calls": 1, "total": 2, "ave": 3, "max": 4, "min": 5}.get(str(key))
    if column is not None:
        values = [float(row[column]) for row in rows]
        assert values == sorted(values, reverse=key != "min")
    assert {"mul", "gelu", "momentum"} <= {row[0] for row in rows}
    assert json.loads((tmp_path / "trace").read_text())["traceEvents"]


def test_fluid_functions_start_stop_and_forget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(width=16)
    fluid.profiler.start_profiler("CPU")
    fluid.profiler.start_profiler("CPU")
    net.run()
    fluid.profiler.reset_profiler()
    fluid.profiler.stop_profiler("total", str(tmp_path / "trace"))
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "trace").exists()
    with pytest.raises(ValueError, match="state"):
        fluid.profiler.start_profiler("TPU")
    with pytest.raises(ValueError, match="sorted_key"):
        fluid.profiler.stop_profiler("speed")
    with pytest.raises(UnsupportedError, match="nsys"), fluid.profiler.cuda_profiler("file"):
        pass


def test_what_is_refused() -> None:
    with pytest.raises(ProgramError, match="names no steps"):
        profiler.Profiler(scheduler=(3, 3))
    with pytest.raises(ProgramError, match="record"):
        profiler.make_scheduler(closed=0, ready=0, record=0)
    with pytest.raises(ProgramError, match="no finished recording"):
        profiler.Profiler(**SILENT).summary()
    with profiler.Profiler(**SILENT) as first:
        with pytest.raises(ProgramError, match="another profiler records"):
            profiler.Profiler(**SILENT).start()
        paddle.tanh(paddle.ones([2]))
    assert first.events == []
