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
from tstatic.profiler.summary import summary

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
        lengths.append(sorted((e.queue, e.start - first, e.name, e.length) for e in found.ops))
    for (queue, start, *same), (other, when, *wanted) in zip(*lengths, strict=True):
        # Both ends of a distance are rounded to a nanosecond.
        assert (queue, *same) == (other, *wanted)
        assert abs(start - when) <= 1


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
    assert {"fake: collectives", "fake, place 1: collectives"} <= named


def moments(found: profiler.Profile, place: str) -> tuple[int, int]:
    """Nanoseconds in which collectives of a place were exposed and hidden, moment by moment."""
    ops = [e for e in found.ops if e.queue.rpartition(": ")[0] == place]
    ends = sorted({when for e in ops for when in (e.start, e.end)})
    exposed = hidden = 0
    for start, end in itertools.pairwise(ends):
        now = {e.queue.endswith(": collectives") for e in ops if e.start <= start and end <= e.end}
        exposed += (end - start) * (now == {True})
        hidden += (end - start) * (now == {True, False})
    return exposed, hidden


def test_collectives_of_each_place_are_exposed_or_hidden() -> None:
    """Gradients go one by one, so that the backward part hides all but the last."""
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 0})
    try:
        with devices.use("fake"):
            net = Net(width=64, places=2)
            net.run()
            with profiler.profile() as found:
                net.run()
    finally:
        paddle.set_flags({"FLAGS_fuse_parameter_memory_size": -1})
    both = found.steps().exchanges
    assert [one.place for one in both] == ["fake", "fake, place 1"]
    for one in both:
        assert (one.exposed, one.hidden) == moments(found, one.place)
        assert min(one.exposed, one.hidden) > 10_000, one
        assert one.total < one.runs
    lines = found.table().splitlines()
    for one in both:
        at = next(i for i, line in enumerate(lines) if line.startswith(f"collectives of {one.place}:"))
        assert lines[at + 1].split()[:2] == ["exposed", f"{one.exposed / 1e6:.3f}"]
        assert lines[at + 2].split()[:2] == ["hidden", f"{one.hidden / 1e6:.3f}"]
    assert found.to_dict()["collectives"][1] == {
        "place": "fake, place 1", "device": "fake", "runs_ns": both[1].runs, "exposed_ns": both[1].exposed,
        "hidden_ns": both[1].hidden,
    }  # fmt: skip
    told = summary(found.recorder, ["DistributedView"], True, "total", False, False, "ns")
    (overlap,) = (line.split() for line in told if line.startswith("Overlap of fake, place 1 "))
    assert overlap[5:] == [f"{both[1].hidden:.4f}", f"{100 * both[1].hidden / both[1].total:.2f}"]


def test_what_another_place_does_hides_nothing() -> None:
    def record(op: Any, place: str, stream: str, start: int, end: int, run: int = 0) -> records.Record:
        return records.Record("op", op.type, start, end, 0, op, run, queue=f"{place}: {stream}", device=place)

    with devices.use("fake"):
        net = Net(width=16, places=2)
        net.run()
        with profiler.profile() as found:
            net.run()
    ops = {event.name: event.op for event in found.ops}
    product, total = ops["mul_grad"], ops["c_allreduce_sum"]
    made = [
        record(total, "a", "collectives", 0, 100),
        record(product, "b", "compute 0", 0, 100),
        record(product, "a", "compute 0", 40, 60),
        record(product, "a", "compute 1", 50, 70),
        record(product, "a", "compute 0", 80, 300, run=1),
    ]
    (one,) = step_parts.exchanges_of(made)
    assert (one.place, one.exposed, one.hidden) == ("a", 70, 30)
    without = [event for event in made if event.queue != "a: compute 1"]
    assert step_parts.exchanges_of(without)[0].hidden == 20, "the table would not see what hides a collective"


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
    overlap = next(line for line in text.splitlines() if line.startswith("Communication of fake ")).split()[3]
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
