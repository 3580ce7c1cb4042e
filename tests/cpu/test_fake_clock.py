"""The virtual clock of the fake device: what a run takes on it is decided by the program and a table, not by this machine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_fake_device import fake
from tests.parallel.golden import strategy
from tstatic import static
from tstatic.devices.fake import FakeDevice
from tstatic.devices.step import Stream
from tstatic.ir.types import Meta, float32
from tstatic.target import B200, H200

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="runs programs on the fake device"
)


def put(device: FakeDevice, stream: Stream, seconds: float) -> None:
    device._put(stream, lambda: None, seconds=seconds)


def test_streams_advance_by_themselves_and_a_wait_takes_the_later_time() -> None:
    device = FakeDevice()
    first, second = device.stream(), device.stream()
    begun, middle, ended, other = (device.event() for _ in range(4))
    device.record(begun, first)
    put(device, first, 3.0)
    device.record(middle, first)
    put(device, second, 1.0)
    device.record(other, second)
    device.wait(middle, second)
    put(device, second, 0.5)
    device.record(ended, second)
    device.synchronize([first, second])
    assert [device.elapsed(begun, e) for e in (middle, other, ended)] == [3.0, 1.0, 3.5]
    put(device, first, 2.0)
    device.record(ended, first)
    device.synchronize([first])
    assert device.elapsed(begun, ended) == 5.5, "the host had waited for the second stream before it queued more"
    assert (first.spent, second.spent) == (5.0, 1.5)


def test_work_takes_its_bytes_at_the_speed_of_the_chip() -> None:
    def seconds(device: FakeDevice, nbytes: int, kind: str) -> float:
        stream, begun, ended = device.stream(collective=kind == "collective"), device.event(), device.event()
        a, b = (device.view(device.allocate(nbytes), 0, Meta((nbytes // 4,), float32)) for _ in range(2))
        device.record(begun, stream)
        if kind == "upload":
            device.from_host(a, np.zeros(a.shape, a.dtype), stream)
        else:
            device.copy(a, b, stream)
        device.record(ended, stream)
        device.synchronize([stream])
        return device.elapsed(begun, ended)

    for chip in (H200, B200):
        device = FakeDevice(target=chip)
        for kind, speed in (
            ("copy", chip.bandwidth / 2),
            ("upload", chip.host_bandwidth),
            ("collective", chip.link_bandwidth),
        ):
            more = seconds(device, 4 << 20, kind) - seconds(device, 2 << 20, kind)
            assert more == pytest.approx((2 << 20) / speed)


# ------------------------------------------------------------------------------------------------------- data parallel
def trained(number: int, **switches: bool) -> tuple[list[float], float, float]:
    """The virtual seconds of two steps on two places, of a place's ops, and of all collectives.

    Of a small collective all is done in the stream of the replica that arrives last.
    """
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 64])
        for _ in range(6):
            x = static.nn.fc(x, 64, activation="tanh")
        loss = paddle.mean(x)
        paddle.optimizer.SGD(0.1).minimize(loss)
    feed = {"x": np.ones((8, 64), np.float32)}
    with fake(number), static.scope_guard(static.Scope()):
        exe = static.Executor("cpu")
        exe.run(startup)
        both = static.CompiledProgram(main, strategy(fuse_all_reduce_ops=False, **switches))
        both = both.with_data_parallel(loss.name, places=["cpu"] * 2)
        took = []
        for _ in range(2):
            exe.run(both, feed=feed, fetch_list=[loss])
            sessions: Any = list(both._history.sessions)
            took.append(max(one.device_seconds for one in sessions))
        spent = [sum(one.streams[i].spent for one in sessions) / len(took) for i in (1, 2)]
        return took, spent[1] / 2, spent[0]


def test_collectives_run_beside_the_backward_ops_and_the_time_does_not_depend_on_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeDevice, "compute_streams", 1)
    times, computing, collectives = trained(0)
    assert min(collectives, computing) > 0.5 * max(collectives, computing)
    assert max(computing, collectives) < times[-1] < 0.95 * (computing + collectives), "they overlap"
    for number in (1, 2):
        assert trained(number)[0] == pytest.approx(times)
    one_by_one, *_ = trained(0, enable_sequential_execution=True)
    assert one_by_one[-1] >= computing + collectives
