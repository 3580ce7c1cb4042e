"""Devices whose work runs late: their records are exact, because the fake device's clock is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import first_gpu
from tests.profiler.nets import Net
from tstatic import devices, profiler, records, static
from tstatic.devices import fake
from tstatic.profiler import chrome_trace, step_parts, tables

pytestmark = pytest.mark.numpy_device("chooses its devices itself")


@pytest.fixture(autouse=True)
def _nothing_records() -> Iterator[None]:
    yield
    assert records.recorder is None


def sessions(net: Net) -> list[Any]:
    return [session for entry in net.exe._cache._entries.values() for session in entry.bound.sessions]


def test_times_of_ops_are_those_of_the_virtual_clock() -> None:
    with devices.use("fake"):
        net = Net(width=64)
        net.run()
        with profiler.profile(shapes=True) as found:
            net.run()
    cost = fake.DEVICE.costs["kernel"]
    checked = 0
    for event in found.ops:
        assert event.op is not None
        if event.op.definition.effects or event.op.definition.shape_only or event.name == "momentum":
            continue
        # gelu_grad reads all that it is given; the bytes of the record are those that the clock counted.
        assert event.length == round(cost.seconds(event.nbytes) * 1e9), event
        checked += 1
    assert checked >= 8
    gelu = next(event for event in found.ops if event.name == "gelu")
    assert gelu.nbytes == 2 * 512 * 64 * 4
    assert [m.shape for m in gelu.metas] == [(512, 64)]


def test_the_parts_of_a_run_add_up_to_the_time_between_its_events() -> None:
    with devices.use("fake"):
        net = Net(width=64)
        net.run()
        with profiler.profile() as found:
            net.run()
            one = max(session.device_seconds for session in sessions(net) if session.device_seconds)
            net.run()
    steps = found.steps()
    whole = [event for event in found.events if event.kind == "device"]
    assert len(whole) == 2
    assert whole[0].length == round(one * 1e9)
    assert steps.runs == {"fake": sum(event.length for event in whole)}
    assert sum(part.total for part in steps.device_parts) == steps.runs["fake"]
    assert {part.name for part in steps.device_parts} == {
        step_parts.FORWARD, step_parts.BACKWARD, step_parts.UPDATE, step_parts.GAPS,
    }  # fmt: skip
    assert sum(part.total for part in steps.parts) == steps.total
    for event in found.ops:
        # Begin and length are rounded to a nanosecond each.
        assert any(run.start <= event.start <= event.end <= run.end + 1 for run in whole), event
    shares = [row.share_of(found.machines["fake"]) for row in found.by_op()]
    assert all(share is not None and 0 < share < 1 for share in shares)


def test_the_order_that_was_drawn_changes_no_time() -> None:
    lengths = []
    for seed in (0, 5):
        with devices.use("fake"):
            fake.DEVICE.reseed(seed)
            net = Net(width=16)
            net.run()
            with profiler.profile() as found:
                net.run()
        first = min(event.start for event in found.ops)
        lengths.append(sorted((e.name, e.start - first, e.length, e.queue) for e in found.ops))
    assert lengths[0] == lengths[1]


def test_streams_collectives_and_replicas_have_rows_of_their_own() -> None:
    with devices.use("fake"):
        net = Net(width=16, places=2)
        plain = Net(width=16, places=2)
        wanted = [plain.run() for _ in range(2)]
        got = [net.run()]
        with profiler.profile() as found:
            got.append(net.run())
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
    shared = [event for event in found.ops if step_parts.part_of(event) == step_parts.COLLECTIVES]
    assert shared
    assert {event.queue for event in shared} == {"fake: collectives", "fake, place 1: collectives"}
    rows = chrome_trace.trace_of(found.recorder)["traceEvents"]
    assert sum(row.get("cat") == "collective" for row in rows) == len(shared)
    named = {row["args"]["name"] for row in rows if row["ph"] == "M"}
    assert {"host", "devices", "MainThread", "fake: compute 0", "fake, place 1: compute 2"} <= named


def test_runs_alone_keep_their_graph() -> None:
    with devices.use("fake"):
        net = Net(width=16)
        net.run()
        with profiler.profile(ops=False) as found:
            net.run()
    assert found.ops == []
    (whole,) = (event for event in found.events if event.kind == "device")
    assert whole.length > 0


def test_a_run_that_fails_is_no_run_of_the_device() -> None:
    ids = static.data("ids", [2], "int64")
    out = paddle.tanh(static.nn.embedding(ids, [4, 3]))
    with devices.use("fake"):
        exe = static.Executor("cpu")
        exe.run(static.default_startup_program())
        good = {"ids": np.array([1, 2])}
        exe.run(feed=good, fetch_list=[out])
        with profiler.profile() as found:
            with pytest.raises(paddle.errors.IndexRangeError):
                exe.run(feed={"ids": np.array([1, 9])}, fetch_list=[out])
            exe.run(feed=good, fetch_list=[out])
    assert [event.run for event in found.events if event.kind == "device"] == [1]
    assert sum(part.total for part in found.steps().device_parts) == found.steps().runs["fake"]


def test_a_gpu_is_timed_by_its_events() -> None:
    """On a machine without one, every pair of events is 1.5 ms apart."""
    with first_gpu() as gpu, devices.use(gpu.name):
        net = Net(width=16)
        net.run()
        with profiler.profile() as found:
            net.run()
            net.run()
    assert {row.name: row.calls for row in found.by_op()}["gelu"] == 2
    if gpu._cuda is not None:
        assert {event.length for event in found.ops} == {1_500_000}
    assert "events of the device, in runs without a graph" in found.machines[gpu.name].clock
    assert "the data sheet of H200" in found.table() or gpu._cuda is None


def test_tables_of_late_work_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with devices.use("fake"):
        net = Net(width=16, places=2)
        net.run()
        with profiler.Profiler(on_trace_ready=lambda p: None) as recorded:
            net.run()
            recorded.step()
    recorded.summary(time_unit="us", thread_sep=True)
    text = capsys.readouterr().out
    for title in ("Device Summary", "Model Summary", "Distributed Summary", "Operator Summary, thread fake: compute 1"):
        assert title in text
    overlap = next(line for line in text.splitlines() if line.startswith("Communication")).split()[1]
    assert float(overlap) > 0
    busy = tables.merged([e for e in recorded.events if e.kind == "op"])
    assert busy > 0


def test_numbers_of_runs_tell_them_apart() -> None:
    with devices.use("fake"):
        net = Net(width=16)
        net.run()
        with profiler.profile() as found:
            for _ in range(3):
                net.run()
    ordered = [event.run for event in found.ops]
    assert [key for key, _ in itertools.groupby(ordered)] == [0, 1, 2]
