"""Several places of a device whose work runs late: how often a step waits and visits the host, and what a failure leaves."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import first_gpu
from tstatic import devices, nn, static
from tstatic.devices.base import Device
from tstatic.errors import IndexRangeError
from tstatic.places import CPUPlace, CUDAPlace

Build = Callable[[Any], None]
ROWS = 4


def _update(loss: Any, rule: Any = None) -> None:
    (rule or paddle.optimizer.AdamW(0.01)).minimize(loss)


def _clipped(loss: Any) -> None:
    _update(loss, paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(0.1)))


def _mixed(loss: Any) -> None:
    _update(loss, static.amp.decorate(paddle.optimizer.Momentum(0.01), init_loss_scaling=8.0))


KINDS: dict[str, tuple[Build, dict[str, Any]]] = {
    "plain": (_update, {}),
    "clip": (_clipped, {}),
    "amp": (_mixed, {}),
    "sync_batch_norm": (_update, {"sync_batch_norm": True}),
}


class Net:
    """A net with a convolution, a batch norm, labels, and an update, on so many places."""

    def __init__(self, kind: str, place: Any, count: int) -> None:
        build, switches = KINDS[kind]
        self.count = count
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            paddle.seed(3)
            x, y = static.data("x", [None, 2, 6, 6]), static.data("y", [None, 1], "int64")
            h = nn.functional.relu(static.nn.batch_norm(static.nn.conv2d(x, 4, 3)))
            h = static.nn.fc(static.nn.fc(h, 24, activation="tanh"), 5)
            loss = self.loss = paddle.mean(nn.functional.cross_entropy(h, y))
            build(loss)
            self.main = static.default_main_program()
            self.scope, self.exe = static.Scope(), static.Executor(place)
            with static.scope_guard(self.scope):
                self.exe.run(static.default_startup_program())
            strategy = static.BuildStrategy()
            for name, value in switches.items():
                setattr(strategy, name, value)
            program = static.CompiledProgram(self.main)
            self.program = program.with_data_parallel(loss.name, build_strategy=strategy, places=[place] * count)
        draw = np.random.RandomState(0)
        self.feed = {
            "x": draw.rand(ROWS * count, 2, 6, 6).astype("float32"),
            "y": draw.randint(0, 5, (ROWS * count, 1)),
        }

    def step(self, feed: dict[str, Any] | None = None) -> Any:
        return self.exe.run(self.program, feed=feed or self.feed, fetch_list=[self.loss], scope=self.scope)[0]

    def values(self) -> list[list[bytes]]:
        """The trained parameters of each replica; running statistics are its own unless they are synchronised."""
        names = [one.name for one in self.main.all_parameters() if one.trainable]
        scopes = [self.scope.replica(r) for r in range(self.count)]
        return [[np.array(one.find_var(name).get_tensor()).tobytes() for name in names] for one in scopes]


@contextlib.contextmanager
def backend(name: str) -> Iterator[tuple[Device, Any]]:
    if name == "fake":
        with devices.use("fake") as device:
            yield device, CPUPlace()
    else:
        with first_gpu() as gpu:
            yield gpu, CUDAPlace(0)


@contextlib.contextmanager
def visits(device: Device) -> Iterator[Counter[str]]:
    """Counts how often the host waits for a device, and the bytes that pass between them beside feeds and fetches."""
    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("synchronize", "finish", "to_host", "from_host"):
            real = getattr(device, name)

            def counted(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
                if name in ("synchronize", "finish"):
                    found["waits"] += 1
                else:
                    found["bytes"] += args[0].nbytes
                return real(*args, **more)

            patch.setattr(device, name, counted)
        yield found


@pytest.mark.torch
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fake", "gpu"])
def test_a_step_waits_once_on_each_place_and_moves_nothing_through_the_host(name: str, kind: str, count: int) -> None:
    with backend(name) as (device, place):
        net = Net(kind, place, count)
        for _ in range(3):  # the third captures what it can
            net.step()
        with visits(device) as found:
            net.step()
    assert found == {"waits": count}


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fake", "gpu"])
def test_replicas_stay_equal_and_learn_as_on_the_cpu(name: str, kind: str) -> None:
    plain = Net(kind, CPUPlace(), 2)
    told = [plain.step() for _ in range(4)]
    with backend(name) as (_, place):
        net = Net(kind, place, 2)
        found = [net.step() for _ in range(4)]
        first, second = net.values()
    assert first == second
    np.testing.assert_allclose(found, told, rtol=3e-5 if kind != "amp" else 2e-2)
