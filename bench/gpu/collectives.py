"""What one GPU can confirm of sums between GPUs: two places on it, NCCL of one rank, an abort, and two processes by gloo.

As a script it is one of these two processes: ``collectives.py FILE [--dry-run]``; rank 0 writes what it found to ``FILE``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import numpy as np  # noqa: E402 - found through the line above
import place  # noqa: E402
from packfile import Json  # noqa: E402
from place import Gpu  # noqa: E402

import tstatic as paddle  # noqa: E402
from tstatic import distributed, flags, static  # noqa: E402
from tstatic.comm.group import Group  # noqa: E402
from tstatic.comm.transport import Part, nccl  # noqa: E402
from tstatic.comm.transport.nccl_transport import NcclPlaces  # noqa: E402
from tstatic.devices import of_place  # noqa: E402
from tstatic.ir.recording import Call  # noqa: E402

STEPS = 3
ROWS, WIDTH = 64, 512
NEAR = 1e-5
"""How far apart losses and parameters may be, of which the largest are near 1: floats are added in another order."""
ELEMENTS, FEW = 16 * 2**20, 1000
"""Of the array that NCCL sums: 64 MiB; in a dry run few."""
TIMED = 10
PROCESSES_S = 60.0
"""What two processes may take: each imports torch and begins with cold caches."""
BUSY_CYCLES = 500_000_000
"""For which the stream is kept busy in front of a collective that is aborted: about 0.3 s."""


class Net:
    """A small training.

    Args:
        where: The place.
        count: How many places of that kind share the batch; of several processes each has one.
    """

    def __init__(self, where: Any, count: int) -> None:
        paddle.enable_static()
        self.scope, self.executor = static.Scope(), static.Executor(where)
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            paddle.seed(3)
            x, y = static.data("x", [None, WIDTH]), static.data("y", [None, 1])
            hidden = paddle.tanh(static.nn.fc(x, WIDTH))
            self.loss = paddle.mean(paddle.square(static.nn.fc(hidden, 1) - y))
            paddle.optimizer.Momentum(0.01).minimize(self.loss)
        self.main = main
        self.program = static.CompiledProgram(main).with_data_parallel(self.loss.name, places=[where] * count)
        with static.scope_guard(self.scope):
            self.executor.run(startup)
        draw = np.random.default_rng(0)
        x = draw.standard_normal((ROWS, WIDTH)).astype(np.float32)
        self.feed = {"x": x, "y": x[:, :1] / 4}

    def step(self) -> float:
        """A step on this process's rows of the batch; returns the mean of the places' losses."""
        feed = {name: distributed.local(rows) for name, rows in self.feed.items()}
        [loss] = self.executor.run(self.program, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return float(distributed.mean(np.mean(np.asarray(loss, np.float64))))

    def parameters(self) -> list[Any]:
        """The values of all parameters."""
        return [np.array(self.scope.find_var(one.name).get_tensor()) for one in self.main.all_parameters()]


def apart(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The largest difference of two lists of arrays; infinite if one holds a NaN."""
    worst = max(float(np.max(np.abs(np.asarray(a) - b))) for a, b in zip(one, other, strict=True))
    return worst if worst == worst else float("inf")


@contextlib.contextmanager
def through_host(device: Any) -> Iterator[Counter[str]]:
    """Counts the bytes that pass between a device and the host within the block, beside feeds and fetches."""
    found: Counter[str] = Counter()
    real = {name: getattr(device, name) for name in ("to_host", "from_host")}

    def counted(name: str) -> Callable[..., Any]:
        def call(array: Any, *more: Any, **named: Any) -> Any:
            found[name] += array.nbytes
            return real[name](array, *more, **named)

        return call

    for name in real:
        setattr(device, name, counted(name))
    try:
        yield found
    finally:
        for name in real:
            delattr(device, name)


def places(gpu: Gpu) -> Json:
    """Losses and parameters of one place and of two on the GPU, and the bytes that a step of two moves through the host."""
    where = paddle.CUDAPlace(0)
    one, two = Net(where, 1), Net(where, 2)
    losses = [[net.step() for _ in range(STEPS)] for net in (one, two)]
    worst = apart([*losses[0], *one.parameters()], [*losses[1], *two.parameters()])
    with through_host(of_place(where)) as found:
        two.step()
    moved = sum(found.values())
    return {
        "losses": losses,
        "worst_difference": worst,
        "bytes_through_host": moved,
        "right": worst <= NEAR and not moved,
    }


# ----------------------------------------------------------------------------------------------------------------- NCCL
class One:
    """NCCL of one rank, which is the GPU: its transport, a lane, and an array to sum.

    Args:
        gpu: The GPU; in a dry run the stand-ins for it and for NCCL.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        if gpu.dry:
            from tests.helpers.nccl_rules import World  # need pytest and torch, which only a dry run does
            from tests.helpers.stream_order import Order, OrderedGpu

            world = World(Order())
            self.device: Any = OrderedGpu(world.order, 0)
            library: Any = world.process()
        else:
            self.device, library = of_place(paddle.CUDAPlace(0)), nccl.load()
        self.transport = NcclPlaces([self.device], library)
        self.lane: Any = Group(1).communicator(0, self.device)
        self.values = (np.arange(FEW if gpu.dry else ELEMENTS) % 97).astype(np.float32)
        self.array = self.device.empty(self.values.shape, self.values.dtype)
        self.fill(0)

    @property
    def version(self) -> str:
        """NCCL's."""
        return self.transport.library.version

    def fill(self, step: int) -> None:
        """Writes the values of a step."""
        self.device.from_host(self.array, self.values + step, self.lane.stream)

    def right(self, step: int) -> bool:
        """Whether the array holds the sum over one rank: the values of the step."""
        return bool(np.array_equal(self.device.to_host(self.array, self.lane.stream), self.values + step))

    def calls(self) -> list[Call]:
        """The sum, bound; connects the rank, which tests the communicator."""
        return self.transport.sum([Part(self.lane, [self.array])], 0)

    def timed(self, queue: Callable[[], object]) -> float:
        """Seconds of a sum, of several in a row."""
        self.device.synchronize([self.lane.stream])
        begun = time.perf_counter()
        for _ in range(TIMED):
            queue()
        self.device.synchronize([self.lane.stream])
        return (time.perf_counter() - begun) / TIMED


def made(calls: Sequence[Call]) -> None:
    """Makes calls."""
    for function, arguments in calls:
        function(*arguments)


def eager(gpu: Gpu) -> Json:
    """The test of a communicator of one rank, and a sum over it."""
    one = One(gpu)
    begun = time.perf_counter()
    calls = one.calls()
    connected = time.perf_counter() - begun
    right = []
    for step in range(STEPS):
        one.fill(step)
        made(calls)
        right.append(one.right(step))
    seconds = one.timed(lambda: made(calls))
    one.transport.close()
    return {
        "version": one.version,
        "connect_s": connected,
        "sum_s": seconds,
        "bytes": one.values.nbytes,
        "right": all(right),
    }


def captured(gpu: Gpu) -> Json:
    """The same sum in a graph, which reads what the array holds at each launch."""
    one = One(gpu)
    calls, stream = one.calls(), one.lane.stream
    token = one.device.begin_capture([stream])
    try:
        made(calls)
    except BaseException:
        one.device.abandon_capture(token)
        raise
    graph = one.device.end_capture(token)
    right = []
    for step in range(STEPS):
        one.fill(step)
        one.device.launch_graph(graph, stream)
        right.append(one.right(step))
    seconds = one.timed(lambda: one.device.launch_graph(graph, stream))
    one.device.drop_graph(graph, stream)  # before the communicator that it uses
    one.transport.close()
    return {"version": one.version, "sum_s": seconds, "bytes": one.values.nbytes, "right": all(right)}


def abort(gpu: Gpu) -> Json:
    """Aborts a communicator whose sum waits behind other work, and connects anew."""
    one = One(gpu)
    calls = one.calls()
    if not gpu.dry:
        with gpu.cuda.stream(one.lane.stream.queue):
            gpu.cuda._sleep(BUSY_CYCLES)
    made(calls)
    begun = time.perf_counter()
    one.transport.abort(RuntimeError("a rank failed"))
    seconds = time.perf_counter() - begun
    one.device.synchronize([one.lane.stream])
    one.fill(1)
    begun = time.perf_counter()
    made(one.calls())
    right = one.right(1)
    again = time.perf_counter() - begun
    one.transport.close()
    return {"version": one.version, "abort_s": seconds, "again_s": again, "right": right}


# ------------------------------------------------------------------------------------------------------------ processes
def processes(gpu: Gpu) -> Json:
    """Losses of two processes that share the GPU, and what moved their values.

    Raises:
        RuntimeError: If they fail, or take too long.
    """
    alone = Net(paddle.CUDAPlace(0), 1)
    losses = [alone.step() for _ in range(STEPS)]
    with tempfile.TemporaryDirectory(prefix="processes-") as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", "tstatic.distributed.launch", "--nproc_per_node", "2", "--log_dir", folder]
        command += [str(HERE / "collectives.py"), str(file), *(["--dry-run"] if gpu.dry else [])]
        path = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        # In this process's group: what ends this one ends them, too.
        launcher = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL)
        try:
            code = launcher.wait(PROCESSES_S * (10 if gpu.dry else 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            launcher.terminate()
            launcher.wait()
        if code != 0 or not file.exists():
            told = "".join(log.read_text(errors="replace")[-1500:] for log in sorted(Path(folder).glob("workerlog.*")))
            raise RuntimeError(
                f"two processes {'took too long' if code is None else f'ended with code {code}'}: {told}"
            )
        found: Json = json.loads(file.read_text())
    worst = apart(losses, found["losses"])
    by_gloo = any("between the processes by gloo" in line for line in found["chosen"])
    return {"alone": losses, **found, "worst_difference": worst, "right": worst <= NEAR and by_gloo}


def process(file: Path, dry: bool) -> int:
    """One of the two: trains, and rank 0 writes the losses and what the log said."""
    with place.first(dry), place.said("dist") as lines:
        net = Net(paddle.CUDAPlace(0), 1)
        losses = [net.step() for _ in range(STEPS)]
    chosen = [line for line in lines if line.startswith("values move")]
    if distributed.get_rank() == 0:
        file.write_text(json.dumps({"losses": losses, "chosen": chosen, "asked": flags.flag("FLAGS_collectives")}))
    return 0


CASES: dict[str, Callable[[Gpu], Json]] = {
    "places": places,
    "nccl eager": eager,
    "nccl captured": captured,
    "abort": abort,
    "processes": processes,
}
"""What is confirmed, in the order of what it is worth; the last one starts processes."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on what stands in for a GPU")
    given = parser.parse_args()
    sys.exit(process(given.file, given.dry_run))
