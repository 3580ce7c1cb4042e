"""Plans for feeds of any size: the same bits as plans of one size, for the price of binding the steps that depend on sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import rows
from tstatic import errors, static
from tstatic.ir.split import tile_size
from tstatic.static.compile import pipeline, plan_cache
from tstatic.static.compile.plan_cache import OWN_PLAN

Arrays = dict[str, np.ndarray[Any, Any]]
Feed = Callable[[int], dict[str, Any]]

pytestmark = pytest.mark.numpy_device


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def dense() -> tuple[Any, Feed]:
    h = static.data("x", [None, 3])
    for _ in range(2):
        h = static.nn.fc(h, 8, activation="relu")
    return static.nn.fc(h, 4), lambda n: {"x": ones(n, 3)}


def convolutional() -> tuple[Any, Feed]:
    x = static.data("x", [None, 3, None, 8])
    y = static.nn.batch_norm(static.nn.conv2d(x, 4, 3, padding=1), act="relu")
    y = paddle.nn.functional.max_pool2d(y, 2, 2, ceil_mode=True)
    return paddle.mean(y, axis=[2, 3]), lambda n: {"x": ones(1 + n % 3, 3, n, 8)}


def attention() -> tuple[Any, Feed]:
    x = static.data("x", [None, None, 8])
    return paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2)(x), lambda n: {"x": ones(2, n, 8)}


def recurrent() -> tuple[Any, Feed]:
    x = static.data("x", [None, None, 8])
    return paddle.nn.LSTM(8, 8)(x)[0], lambda n: {"x": ones(2, n, 8)}


def embedded() -> tuple[Any, Feed]:
    ids, m = static.data("ids", [None], "int64"), static.data("m", [None], "int64")
    h = static.nn.fc(paddle.nn.Embedding(16, 8)(ids), 8, activation="tanh")
    # A size that depends on values, behind those that depend on feeds.
    picked = paddle.gather_nd(h, paddle.nonzero(m))
    sized = paddle.reshape(h, paddle.concat([paddle.shape(h)[0:1] * 2, paddle.full([1], 4, "int32")]))
    return paddle.sum(picked) + paddle.sum(paddle.exp(sized)), lambda n: {
        "ids": np.arange(n) % 16,
        "m": np.arange(n) % 3,
    }


def of_weights() -> tuple[Any, Feed]:
    """Steps of known sizes lie before, between and behind those that depend on the feed, and their values are read late."""
    x, w = static.data("x", [None, 4]), paddle.create_parameter([4, 4], "float32")
    early = paddle.tanh(w)
    h = paddle.matmul(x, early)
    gram = paddle.matmul(h, h, transpose_x=True)
    return paddle.matmul(paddle.exp(h) * 0.01, paddle.nn.functional.softmax(gram * 0.01)) + paddle.sum(
        early
    ), lambda n: {"x": ones(n, 4)}


NETS = {f.__name__: f for f in (dense, convolutional, attention, recurrent, embedded, of_weights)}
SIZES = (4, 7, 5, 300, 7, 1, 5, 64, 301, 2, 4, 300)
"""The first one has a plan of its own; others come again, and grow beyond the memory of those before."""


class Net:
    """A net that trains with Adam, and its Executor."""

    def __init__(self, build: Callable[[], tuple[Any, Feed]]) -> None:
        self.main, startup = static.Program(), static.Program()
        self.main.random_seed = startup.random_seed = 5
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, startup):
            y, self.feed = build()
            self.loss = paddle.mean(paddle.square(y))
            paddle.optimizer.Adam(0.01).minimize(self.loss)
        self.scope, self.exe = static.Scope(), static.Executor(paddle.CPUPlace())
        self.exe.run(startup, scope=self.scope)

    def run(self, n: int, program: Any = None) -> bytes:
        (loss,) = self.exe.run(program or self.main, feed=self.feed(n), fetch_list=[self.loss], scope=self.scope)
        return loss.tobytes()

    def values(self) -> dict[str, bytes]:
        return {
            p.name: np.array(self.scope.find_var(p.name).get_tensor()).tobytes() for p in self.main.all_parameters()
        }

    @property
    def shared(self) -> int:
        """How many sizes share a plan now."""
        return sum(kept.bound.exact is not None for kept in self.exe._cache._entries.values())


@pytest.fixture
def exact() -> Iterator[Callable[[bool], None]]:
    yield lambda on: paddle.set_flags({"FLAGS_plan_any_size": not on})
    paddle.set_flags({"FLAGS_plan_any_size": True})


# ------------------------------------------------------------------------------------------------------------------- bits
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_the_bits_are_those_of_plans_of_one_size(
    name: str, threads: int, exact: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU_NUM", str(threads))

    def train(own: bool) -> tuple[list[bytes], dict[str, bytes], int]:
        exact(own)
        net = Net(NETS[name])
        return [net.run(n) for n in SIZES], net.values(), net.shared

    with tile_size(40):
        expected, parameters, none = train(True)
        found, values, shared = train(False)
    assert none == 0
    assert shared == len({*SIZES}) - 1
    assert found == expected
    assert values == parameters


def test_values_of_other_steps_survive_memory_that_grows_during_the_run(exact: Callable[[bool], None]) -> None:
    """Each run needs more than those before: what steps of known sizes have written stays, and so do fetches."""
    runs = []
    for own in (True, False):
        exact(own)
        net = Net(of_weights)
        runs.append([net.run(4 ** (1 + i)) for i in range(7)])
    assert runs[0] == runs[1]


# ------------------------------------------------------------------------------------------------------------------- work
def test_a_new_size_is_neither_fused_nor_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the price of a new size: passes, fusions and plans are made for the first size and for any size, and that is all."""
    count: list[str] = []
    for name in ("simplify", "fuse", "lower"):
        right = getattr(pipeline, name)
        monkeypatch.setattr(
            pipeline, name, lambda *a, name=name, right=right, **k: count.append(name) or right(*a, **k)
        )
    net = Net(dense)
    count.clear()
    for n in range(1, 20):
        net.run(n)
    assert sorted(count) == ["fuse", "fuse", "lower", "lower", "simplify"]
    assert net.shared == 18
    assert net.exe.plans.compilations == 20, "each size is on record, and the startup program"
    assert "feed signature" in net.exe.compilations[-1].reason


def test_updates_are_bound_once_for_all_sizes() -> None:
    """What does not depend on sizes is bound with the plan."""
    net = Net(dense)
    for n in (2, 3, 4):
        net.run(n)
    session = net.exe._cache._entries[next(reversed(net.exe._cache._entries))].bound.sessions[0]
    bound = session.bound.schedules["update"].calls
    for n in (5, 6):
        net.run(n)
    assert session.bound.schedules["update"].calls is bound


def test_a_size_that_runs_often_gets_a_plan_of_its_own() -> None:
    net = Net(dense)
    for n in (2, 3, *[4] * OWN_PLAN):
        net.run(n)
    assert net.shared == 2
    before = net.exe.plans.compilations
    for _ in range(4):
        net.run(4)
    assert net.shared == 1
    assert net.exe.plans.compilations == before + 1
    assert net.exe.compilations[-1].reason == "it ran so often with a plan for any size that one of its own pays"
    # What it had bound in the shared plan is gone.
    held = {kept.key for kept in net.exe._cache._entries.values() if kept.bound.exact is not None}
    (session,) = {kept.bound.sessions for kept in net.exe._cache._entries.values() if kept.bound.exact is not None}
    assert session[0].sections._fed.keys() == held


def test_a_plan_for_any_size_takes_memory_of_the_largest_size(exact: Callable[[bool], None]) -> None:
    held = []
    for own in (True, False):
        exact(own)
        net = Net(dense)
        for n in (100, 4000, 300, 2000, 4000, 100):
            net.run(n)
        held.append(net.exe.held_bytes)
    assert held[1] <= 1.5 * held[0]


def test_sizes_that_are_forgotten_give_their_bytes_back() -> None:
    """The bound in bytes holds while one plan serves many sizes, and what is left is no more than it says."""
    net = Net(dense)
    for n in (2, 3, 4, 5):
        net.run(n)
    paddle.set_flags({"FLAGS_plan_cache_bytes": 2 * net.exe.plans.kept_bytes})
    for n in range(6, 80):
        net.run(n)
        assert net.exe.plans.kept_bytes <= paddle.get_flags("FLAGS_plan_cache_bytes")["FLAGS_plan_cache_bytes"]
    assert 3 < net.exe.plans.plans < 60
    assert net.run(6)
    net.exe.close()
    gc.collect()
    assert net.exe.plans.kept_bytes == 0
    assert net.exe.held_bytes == 0


# ------------------------------------------------------------------------------------------------ what has to be compiled
def loop() -> tuple[Any, Feed]:
    x = static.data("x", [None, 2])
    i = paddle.zeros([1], "int64")
    _, y = static.nn.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, paddle.tanh(h)], [i, static.nn.fc(x, 2)])
    return y, lambda n: {"x": ones(n, 2)}


def printing() -> tuple[Any, Feed]:
    x = static.data("x", [None, 2])
    return static.Print(static.nn.fc(x, 2), message="seen"), lambda n: {"x": ones(n, 2)}


@pytest.mark.parametrize("build", [loop, printing])
def test_loops_and_effects_have_plans_of_one_size(build: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Bodies of loops would run slower; a run that prints cannot be repeated if it fails."""
    net = Net(build)
    for n in (2, 3, 4):
        net.run(n)
    assert net.shared == 0
    assert net.exe.plans.plans == 4
    capfd.readouterr()


def test_other_sizes_of_what_the_program_knows_are_compiled() -> None:
    """A fixed size in the program is no open one, and the search for NaN reads what a plan of one size keeps."""
    x = static.data("x", [4, 2])
    y = paddle.exp(x)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(feed={"x": rows(4, 2)}, fetch_list=[y])
    exe.run(feed={"x": rows(4, 2)}, fetch_list=[y, x])
    assert all(kept.bound.exact is None for kept in exe._cache._entries.values())
    net = Net(dense)
    net.run(2)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    net.run(3)
    net.run(4)
    assert net.shared == 0


def test_what_fails_without_sizes_is_compiled_with_them() -> None:
    """The rank of a squeezed value depends on a size: the plan for any size finds that out in the run, and is given up."""
    x = static.data("x", [None, 4])
    x.stop_gradient = False
    y = paddle.squeeze(x, axis=0)
    loss = paddle.sum(y * y)
    (grad,) = static.gradients([loss], [x])
    exe = static.Executor(paddle.CPUPlace())
    for n in (1, 3, 2, 1, 5, 6):
        given = rows(n, 4)
        np.testing.assert_array_equal(exe.run(feed={"x": given}, fetch_list=[grad])[0], 2 * given)
    assert len(exe.compilations) == 6, "it was tried once"
    assert all(kept.bound.exact is None for kept in exe._cache._entries.values())


def test_errors_are_those_of_plans_of_one_size_and_leave_the_state(exact: Callable[[bool], None]) -> None:
    """A wrong index in a size that shares a plan: the same message, no state changed, and the next size still shares it."""
    told = []
    for own in (True, False):
        exact(own)
        net = Net(embedded)
        for n in (2, 3, 4):
            net.run(n)
        before, shared = net.values(), net.shared
        with pytest.raises(errors.IndexRangeError) as caught:
            net.exe.run(
                net.main,
                feed={"ids": np.array([1, 99, 2]), "m": np.array([1, 1, 0])},
                fetch_list=[net.loss],
                scope=net.scope,
            )
        told.append(str(caught.value).partition("at:")[0])
        assert net.values() == before
        for n in (5, 6):
            net.run(n)
        assert net.shared == (shared and shared + 1), (
            "an error of the feed is no reason to give up the plan for any size"
        )
    assert told[0] == told[1]


def test_an_explanation_has_the_sizes_that_ran() -> None:
    """``plan`` and the memory report of a CompiledProgram are those of the sizes that ran last, though they share a plan."""
    net = Net(dense)
    compiled = static.CompiledProgram(net.main)
    for n in (2, 3, 40):
        net.run(n, compiled)
    assert net.shared == 2
    assert compiled.plan.storage["x"].meta.shape == (40, 3)
    assert not any(step.how == "dynamic" for step in compiled.plan.steps)
    assert len(compiled.compilations) == 3
    assert "x: (3, 3) float32 -> (40, 3) float32" in compiled.compilations[-1].reason


def test_a_limit_of_recompilations_counts_sizes() -> None:
    net = Net(dense)
    paddle.set_flags({"FLAGS_max_recompiles": 3})
    for n in (2, 3, 4, 5):
        net.run(n)
    with pytest.raises(errors.ProgramError, match="FLAGS_max_recompiles"):
        net.run(6)
    for _ in range(OWN_PLAN + 3):
        net.run(5)
    assert plan_cache.OWN not in {record.reason for record in net.exe.compilations}


def test_neither_an_update_that_broke_off_nor_what_a_signal_raised_is_run_again() -> None:
    """Only a run that left the state as it was is repeated, and only for errors of operators."""
    net = Net(dense)
    for n in (2, 3, 4):
        net.run(n)
    (session,) = net.exe._cache._entries[next(reversed(net.exe._cache._entries))].bound.sessions
    before = net.exe.plans.compilations

    def stop(error: Exception) -> None:
        raise error

    session.bound.schedules["main"].calls.insert(0, (stop, (TimeoutError("of a handler"),)))
    session.bound.schedules["main"].op_of_call.insert(0, session.bound.schedules["main"].op_of_call[0])
    with pytest.raises(TimeoutError, match="of a handler"):
        net.run(3)
    del session.bound.schedules["main"].calls[0], session.bound.schedules["main"].op_of_call[0]
    net.run(3)
    session.bound.schedules["update"].calls.insert(1, (stop, (MemoryError("none left"),)))
    session.bound.schedules["update"].op_of_call.insert(1, session.bound.schedules["update"].op_of_call[0])
    with pytest.raises(errors.DeviceError, match="while it wrote parameters"):
        net.run(3)
    assert net.exe.plans.compilations == before
    with pytest.raises(errors.TstaticError, match="half written"):
        net.run(4)
