"""What moves values between the places of a process: its numbers, and how often a step takes them to the host."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.recording_transport import RecordingTransport, Tally
from tests.parallel.golden import Net, Training, strategy
from tstatic import devices, static
from tstatic.comm import group
from tstatic.comm.transport import Part, choice
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.comm.transport.host import HostTransport
from tstatic.devices.fake import FakeDevice
from tstatic.ir.types import dtype_of
from tstatic.runtime.replica_threads import ReplicaThreads

Reduce = static.BuildStrategy.ReduceStrategy.Reduce


def wide(width: int) -> Net:
    """Two layers; gradients of 64 x ``width`` decide whether the places divide their sum."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        h = static.nn.fc(static.data("X", [None, 64]), width, activation="tanh")
        loss = paddle.mean(paddle.square(static.nn.fc(h, 4)))
        paddle.optimizer.AdamW(0.01).minimize(loss)
    return Net(main, startup, loss)


def step_of(width: int, places: int, build: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What the second step of a training was counted to do, and the parameters after it."""
    tallies: list[Tally] = []

    def recording(size: int, through_host: bool) -> RecordingTransport:
        made = RecordingTransport(HostTransport(size, through_host))
        tallies.append(made.tally)
        return made

    monkeypatch.setattr(choice, "HostTransport", recording)
    training = Training(wide(width), places, build)
    feed = {"X": np.linspace(-1, 1, 64 * 2 * places, dtype=np.float32).reshape(2 * places, 64)}
    training.step(feed)
    for tally in tallies:
        tally.taken()
    training.step(feed)
    found = [one for one in (tally.taken() for tally in tallies) if one[0]]
    values = [training.value(name.name).tobytes() for name in training.net.main.all_parameters()]
    training.exe.close()
    (counted,) = found
    return *counted, values


# Each kind's calls of one step, on 2 and on 4 places. All are made by the device: a place neither copies to the host nor waits.
# Where the host does not wait before an update, streams meet in a sum of no arrays, and the processes need not agree.
COUNTED: dict[str, tuple[int, dict[str, Any], list[dict[str, int]]]] = {
    "small": (8, {}, [{"sum": 1, "agree": 1}] * 2),
    "divided": (1024, {}, [{"sum": 2, "agree": 1}, {"sum": 4, "agree": 1}]),
    "owners": (
        8,
        {"reduce_strategy": Reduce, "fuse_broadcast_ops": True},
        [{"sum": 1, "send": 2, "agree": 1}, {"sum": 1, "send": 4, "agree": 1}],
    ),
}


@pytest.mark.numpy_device("the CPU's bits are compared with", not_on=("torch", "fake"))
@pytest.mark.parametrize("places", [2, 4])
@pytest.mark.parametrize("name", COUNTED)
def test_places_of_a_device_meet_without_the_host(name: str, places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    width, switches, told = COUNTED[name]
    plain = step_of(width, places, strategy(**switches), monkeypatch)
    with devices.use("fake"):
        calls, host_bytes, waits, values = step_of(width, places, strategy(**switches), monkeypatch)
    expected = dict(told[places == 4])
    assert plain == (expected, 0, 0, values), "the CPU's bits"
    del expected["agree"]
    expected["sum"] += 1
    assert (calls, host_bytes, waits) == (expected, 0, 0)


@pytest.mark.torch
@pytest.mark.parametrize("places", [2, 4])
def test_where_ops_are_torchs_sums_stay_on_the_device(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with devices.use("fake+torch"):
        calls, host_bytes, waits, _ = step_of(8, places, strategy(), monkeypatch)
    assert (calls, host_bytes, waits) == ({"sum": 2}, 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_each_place_gets_its_row_of_the_sum_in_the_order_of_the_places(name: str, dtype: str) -> None:
    device = FakeDevice(1) if name == "fake" else devices.HOST
    drawn = np.random.default_rng(0).standard_normal((3, 3, 2, 5)) * 100
    values = [one.astype(dtype_of(dtype).np) for one in drawn]
    together = group.Group(3)
    lanes = [together.communicator(r, device) for r in range(3)]
    outs = [device.empty((2, 5), values[0].dtype) for _ in range(3)]
    parts = [Part(lane, [device.upload(v.copy())]) for lane, v in zip(lanes, values, strict=True)]
    assert together.transport.shared("scatter", 30)
    for r in range(3):
        for function, args in together.transport.scatter(parts, r, outs):
            function(*args)
    for r, out in enumerate(outs):
        low = values[0].dtype.itemsize == 2
        a, b, c = (v[r].astype(np.float32) if low else v[r] for v in values)
        assert device.to_host(out, lanes[r].stream).tobytes() == ((a + b) + c).astype(values[0].dtype).tobytes()


class Tripled:
    """A group of three processes that hold the same values."""

    rank, size = 0, 3

    def all_reduce(self, arrays: Any, block: int = 0, look: Any = None) -> None:
        for a in arrays:
            a *= 3


@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_a_replica_that_binds_anew_is_seen_by_those_that_do_not(name: str) -> None:
    """The last replica to arrive keeps its calls, those between processes too, for as long as all have the same arrays."""
    device = FakeDevice(1) if name == "fake" else devices.HOST
    together = group.Group(2, GlooTransport(Tripled()))
    lanes = [together.communicator(r, device) for r in range(2)]
    arrays = [device.upload(np.full(4, v, np.float32)) for v in (1, 2, 10)]
    first, second, third = (
        group.Sum(lane, [a], None, "sum", 0) for lane, a in zip((*lanes, lanes[1]), arrays, strict=True)
    )

    def late() -> None:
        while 1 not in together.waiting:
            time.sleep(0)  # who arrives last does the work
        first()

    threads = ReplicaThreads(2, together)
    try:
        threads.run([late, second], 60.0)
        threads.run([late, third], 60.0)
    finally:
        threads.close()
    found = [device.to_host(a, lane.stream).tolist() for a, lane in zip(arrays, (*lanes, lanes[1]), strict=True)]
    assert found == [[57.0] * 4, [9.0] * 4, [57.0] * 4]


def test_a_transport_learns_that_a_place_failed() -> None:
    heard: list[BaseException] = []
    recording = RecordingTransport(HostTransport(2))
    recording.abort = heard.append
    together = group.Group(2, transport=recording)
    planted = ValueError("planted")

    def fail() -> None:
        raise planted

    threads = ReplicaThreads(2, together)
    try:
        with pytest.raises(ValueError, match="planted"):
            threads.run([fail, together.communicator(1).commit], 60.0)
        assert heard[0] is planted
        threads.run([together.communicator(r).commit for r in range(2)], 60.0)
    finally:
        threads.close()
    assert recording.tally.taken()[0] == {"agree": 1}


def test_a_counted_copy_to_the_host_is_seen() -> None:
    """Plants what the records must not have: a transport that takes a value to the host."""

    class Visiting(HostTransport):
        def sum(self, parts: Any, mine: int, roots: Any = None, block: int = 0) -> Any:
            lane = parts[mine].lane
            return [(lane.device.to_host, (parts[mine].arrays[0], lane.stream))]

    device = FakeDevice()
    recording = RecordingTransport(Visiting(1))
    together = group.Group(1, transport=recording)
    together.communicator(0, device).all_reduce([device.upload(np.ones(6, np.float32))])
    assert recording.tally.taken() == ({"sum": 1}, 24, 1)
