"""What ranks do whose transport is recorded: steps of a training, and each kind of call on arrays of a device."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import tstatic as paddle
from tests.comm.cases import say
from tests.helpers.recording_transport import RecordingTransport
from tests.parallel.golden import Net, Training
from tests.parallel.test_transport import wide
from tstatic import devices, distributed, flags, static
from tstatic.comm.group import Communicator, Group
from tstatic.comm.processes import world
from tstatic.comm.transport import Part, choice
from tstatic.comm.transport.gloo_transport import GlooTransport


def recorded_steps(widths: Sequence[int], places: Sequence[int]) -> None:
    """Says for each net what the second of two steps was counted to do between the processes, and its parameters' checksums."""
    flags.set_flags({"FLAGS_numerics": "strict"})
    for width, count, backend in itertools.product(widths, places, ("cpu", "fake")):
        with devices.use(backend):
            _record_step(width, count)


def _recording() -> list[RecordingTransport]:
    """Records what connects processes from now on; returns where the recordings will stand."""
    made: list[RecordingTransport] = []

    def recording(peers: Any) -> RecordingTransport:
        made.append(RecordingTransport(GlooTransport(peers)))
        return made[-1]

    choice.GlooTransport = recording  # type: ignore[assignment,misc]
    return made


def _counted(made: Sequence[RecordingTransport]) -> Any:
    (counted,) = [found for found in (one.tally.taken() for one in made) if found[0]]
    return counted


def _record_step(width: int, places: int) -> None:
    made = _recording()
    paddle.seed(5)
    training = Training(wide(width), places)
    rows = np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(8, 64)[4 * distributed.get_rank() :][:4]
    training.step({"X": rows})
    for one in made:
        one.tally.taken()
    training.step({"X": rows})
    names = [parameter.name for parameter in training.net.main.all_parameters()]
    say(*_counted(made), [zlib.crc32(training.value(name).tobytes()) for name in names])
    training.exe.close()


def recorded_rows(places: Sequence[int]) -> None:
    """Says what the sum of a table's rows was counted to do, and the parameters' checksums, on the CPU and on the fake device."""
    flags.set_flags({"FLAGS_numerics": "strict"})
    rank = distributed.get_rank()
    feed = {"i": np.array([[1, 3], [1, 5 + rank], [2000, 7], [3, 3 * rank]])}
    for count, backend in itertools.product(places, ("cpu", "fake")):
        made = _recording()
        paddle.seed(5)
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            found = static.nn.embedding(static.data("i", [None, 2], "int64"), [20_000, 4], is_sparse=True)
            loss = paddle.mean(static.nn.fc(found, 3))
            paddle.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
        with devices.use(backend):
            training = Training(Net(main, startup, loss), count)
            training.step(feed)
            training.step(feed)
            say(*_counted(made), [zlib.crc32(training.value(p.name).tobytes()) for p in main.all_parameters()])
            training.exe.close()


def recorded_kinds(backend: str) -> None:
    """Says the results of each kind, and what it was counted to do; then the same between the ranks in the other order."""
    flags.set_flags({"FLAGS_numerics": "strict"})
    peers = world()
    assert peers is not None
    with devices.use(backend) as device:
        transport = RecordingTransport(GlooTransport(peers))
        for some in (transport, transport.among([0, 1])):
            _say_kinds(some, Group(1, some).communicator(0, device))


def _say_kinds(some: RecordingTransport, lane: Communicator) -> None:
    device, rank = lane.device, some.rank

    def run(kind: str, array: Any, *args: Any, out: Sequence[int] = ()) -> None:
        there = device.upload(np.array(array, np.float32))
        outs = [device.empty(out, np.dtype(np.float32))] if out else []
        calls = getattr(some, kind)([Part(lane, [there])], 0, *args, *([outs] if out else []))
        for function, arguments in calls:
            function(*arguments)
        result = device.to_host(outs[0] if out else there, lane.stream)
        say(kind, result.tolist(), *some.tally.taken())

    own = [rank + 1.0, 10.0 * (rank + 1)]
    run("sum", own)
    run("sum", own, [1])
    run("scatter", [own, own], out=(2,))
    run("gather", own, out=(2, 2))
    run("send", own, [1])
    run("exchange", [own, [5.0, rank]], out=(2, 2))
    say(some.agree("a meeting", {"rank": rank, "said": "x" * rank}), *some.tally.taken())
