"""Runs nets with captured graphs and without, on devices whose work runs late, and keeps all that either leaves."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import StandIn
from tstatic import devices, static
from tstatic.devices.fake import FakeDevice
from tstatic.devices.fake.with_torch import FakeTorchDevice
from tstatic.devices.graphs import LateGraph
from tstatic.devices.queued import QueuedDevice
from tstatic.errors import TstaticError

DEVICES: dict[str, Callable[[], QueuedDevice]] = {
    "fake": lambda: FakeDevice(1),
    "fake+torch": lambda: FakeTorchDevice(1),
    "gpu": StandIn,
    "kernels": lambda: FakeDevice(1, generated=True),
}
"""The class of GPUs runs on tensors of the CPU, with a stand-in for torch's library; the others draw orders of late work.

``kernels`` needs a process whose Triton interprets.
"""


@contextlib.contextmanager
def standing_in(name: str) -> Iterator[Any]:
    """Runs CPU places on a new device of :data:`DEVICES`.

    It counts the ``launches`` of graphs, and keeps the ``graphs`` that are alive.
    """
    with pytest.MonkeyPatch.context() as patch:
        made: Any = DEVICES[name]()
        made.launches, launch = 0, made.launch_graph

        def launched(*args: Any) -> None:
            made.launches += 1
            launch(*args)

        made.launch_graph, made.graphs = launched, weakref.WeakSet()
        begin = LateGraph.__init__

        def begun(self: LateGraph, *args: Any, **named: Any) -> None:
            begin(self, *args, **named)
            made.graphs.add(self)

        patch.setattr(LateGraph, "__init__", begun)
        patch.setitem(devices.DEVICES, made.name, made)
        with devices.use(made.name):
            yield made


def five_steps(turns: Turns) -> None:
    """Runs the net on the feeds of five steps."""
    for number in range(5):
        turns.step(number)


@dataclass(frozen=True)
class Net:
    """A net, and how it is run.

    Attributes:
        build: Builds it in the default program, with its updates, and returns what is fetched; or returns the main program that it
            made, the startup program, and that.
        feed: ``(number of the step) -> feed``.
        drive: What is done with it.
        iterations: ``num_iteration_per_run``.
        errors: How many of its runs raise.
    """

    build: Callable[[], list[Any] | tuple[static.Program, static.Program, list[Any]]]
    feed: Callable[[int], dict[str, Any]]
    drive: Callable[[Turns], None] = five_steps
    iterations: int = 1
    errors: int = 0


class Turns:
    """The turns of a net on one device: each adds what it fetched, or its error.

    Attributes:
        net: The net.
        main, startup: Its programs.
        compiled: What is run.
        fetches: What :meth:`step` fetches.
        exe: The executor.
        scope: The scope.
        found: Everything so far, in order.
    """

    def __init__(self, net: Net, strategy: static.BuildStrategy | None = None) -> None:
        self.net = net
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            built = net.build()
        if isinstance(built, tuple):
            self.main, self.startup, self.fetches = built
        else:
            self.fetches = built
        execution = static.ExecutionStrategy()
        execution.num_iteration_per_run = net.iterations
        self.compiled = static.CompiledProgram(self.main, strategy, exec_strategy=execution)
        self.exe = static.Executor(paddle.CPUPlace())
        self.found: list[Any] = []

    def step(self, number: int, **feed: Any) -> None:
        """Runs the main program on the feed of a number."""
        self.run(self.compiled, {**self.net.feed(number), **feed}, self.fetches)

    def run(self, program: Any, feed: dict[str, Any], fetches: Any = ()) -> None:
        """Runs a program, whether it raises or not."""
        try:
            self.found += map(np.asarray, self.exe.run(program, feed=feed, fetch_list=list(fetches)))
        except (TstaticError, ArithmeticError) as error:
            self.found.append(np.array(f"{type(error).__name__}: {str(error).splitlines()[0]}"))

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns copies of all persistable values, and how often the program drew numbers."""
        names = sorted(
            v.name for v in self.main.list_vars() if v.persistable and self.scope.find_var(v.name) is not None
        )
        found = {name: np.array(self.scope.find_var(name).get_tensor()) for name in names}
        return {**found, "": np.array(self.scope.runs.get(self.main.uid, (0, 0))[1])}


def ran(net: Net, mode: str, strategy: static.BuildStrategy | None = None) -> Turns:
    """Runs a net from the start on the device that stands in, with ``FLAGS_cuda_graph`` as given."""
    paddle.seed(7)
    before = paddle.get_flags(["FLAGS_cuda_graph"])
    paddle.set_flags({"FLAGS_cuda_graph": mode})
    try:
        made = Turns(net, strategy)
        with static.scope_guard(made.scope):
            made.exe.run(made.startup)
            net.drive(made)
            made.found += made.state().values()
        return made
    finally:
        paddle.set_flags(before)


def differences(plain: Turns, other: Turns) -> list[int]:
    """Returns the places in :attr:`Turns.found` at which two runs of a net left other bits; a missing one counts."""
    a, b = plain.found, other.found
    same = [
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=False)
    ]
    return [*(i for i, one in enumerate(same) if not one), *range(len(same), max(len(a), len(b)))]


def refused(device: Any) -> list[str]:
    """Returns why the device could not capture some of its graphs."""
    return [graph.refused for graph in device.graphs if graph.refused]
