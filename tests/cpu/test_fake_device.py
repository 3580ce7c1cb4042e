"""The fake device: memory that the host cannot touch, work that runs late and out of order, and the CPU's numbers all the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.cpu.test_seeds import ALL, OWN, _changed_imports, _with_cpu
from tests.helpers.drawn import PLAIN
from tests.helpers.soak import SOAK
from tests.parallel.golden import ROWS, Training, net, strategy
from tests.parallel.test_equality import EVERY_FUSION, Nets, batch_of
from tests.parallel.test_golden import CASES
from tstatic import devices, static, testing
from tstatic.devices.fake import DEVICE, FakeArray, FakeDevice
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.ir import declare
from tstatic.ir.types import Meta, float32
from tstatic.runtime import queues, scope
from tstatic.testing.runner import trial_of_recipe

PROGRAMS = 2000 if SOAK else 100

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares the CPU with the fake device"
)


@contextlib.contextmanager
def fake(number: int = 0) -> Iterator[FakeDevice]:
    """Runs CPU places on the fake device, in the order that a number draws."""
    DEVICE.reseed(number)
    with devices.use("fake"):
        yield DEVICE


def same_bits(a: Any, b: Any) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


# --------------------------------------------------------------------------------------------------------- the same bits
@pytest.mark.parametrize("shard", range(4))
def test_random_programs_give_the_same_bits(shard: int) -> None:
    kinds: dict[str, Any] = [{}, {"backward": True}, {"optimizer": True}, {"special": True}][shard]

    @seed(7000 + shard)
    @settings(max_examples=PROGRAMS // 4, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds))
    def run(recipe: testing.Recipe) -> None:
        trial, feeds = trial_of_recipe(recipe)
        plain = trial.run(trial.program, feeds, trial.state)
        with fake(shard):
            late = trial.run(trial.program, feeds, trial.state)
        for a, b in zip(plain, late, strict=True):
            same_bits(a, b)

    run()


def numbers(training: Training, feed: Any, steps: int) -> list[Any]:
    fetched = [value for _ in range(steps) for value in training.step(feed, ["w@GRAD", "w"])]
    return [*fetched, *(training.value(name, replica) for name in ("w", "b") for replica in (0, 1))]


@pytest.mark.parametrize("name", CASES)
def test_golden_numbers_of_two_places_are_the_same_bits(name: str) -> None:
    rows, switches, steps, *_ = CASES[name]
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    plain = numbers(Training(net(), build=strategy(**switches)), feed, steps)
    with fake(1):
        same_bits(plain, numbers(Training(net(), build=strategy(**switches)), feed, steps))


@pytest.mark.parametrize("reduce", [False, True], ids=["AllReduce", "Reduce"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_data_parallel_training_gives_the_same_bits(optimizer: str, reduce: bool) -> None:
    switches: dict[str, Any] = dict.fromkeys(EVERY_FUSION, True)
    if reduce:
        switches["reduce_strategy"] = static.BuildStrategy.ReduceStrategy.Reduce
    sizes = [3, 4, 5]
    found = []
    for where in (contextlib.nullcontext(), fake(2)):
        with where:
            trained = Nets(optimizer, "global", norm=True)
            values = trained.together(batch_of(sum(sizes), 1), sizes, 3, strategy(**switches))
            found.append([trained.losses, *(values[n] for n in sorted(values))])
    same_bits(*found)


def values_after(code: str, name: str) -> list[Any]:
    """What a sample leaves in the global scope, where entropy is a fixed seed."""
    declare.reset_default_programs()
    scope.reset_global_scope()
    paddle.seed(5)
    np.random.seed(0)  # samples draw their feeds from it
    exec(compile(code, name, "exec"), {"__name__": "sample"})
    return list(state(static.global_scope()).values())


def samples() -> list[tuple[str, str]]:
    own = [(name, code) for name, code in OWN.items() if "exe.run" in code]
    found = [(s.name, s.code) for s in ALL if ".run(" in s.code]
    return own + (found if SOAK else found[::4])


@pytest.mark.parametrize(("name", "code"), samples(), ids=[name for name, _ in samples()])
def test_samples_leave_the_same_bits(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2")
    code = _changed_imports(_with_cpu(code))
    plain = values_after(code, name)
    with fake(3):
        late = values_after(code, name)
    assert plain, "a sample that runs a program keeps something"
    same_bits(plain, late)


# ------------------------------------------------------------------------------------------------------ out of the reach
def array_of(values: Sequence[float]) -> FakeArray:
    made = DEVICE.empty((len(values),), np.dtype(np.float32))
    DEVICE.from_host(made, np.array(values, np.float32))
    return made


@pytest.mark.parametrize(
    "touch",
    [
        np.asarray, lambda a: np.add(a, 1), lambda a: a[0], lambda a: a.__setitem__(0, 1), float, list, len, bool,
        lambda a: np.copyto(np.zeros(2), a), np.sum,
    ],
    ids=["asarray", "add", "read", "write", "float", "list", "len", "bool", "copyto", "sum"],
)  # fmt: skip
def test_the_host_cannot_touch_the_memory(touch: Callable[[Any], Any]) -> None:
    with pytest.raises(DeviceError, match="the host touched memory of a device"):
        touch(array_of([1, 2]))


def test_pinned_memory_is_the_hosts_and_foreign_memory_is_not() -> None:
    meta = Meta((2,), float32)
    assert isinstance(DEVICE.view(DEVICE.allocate(8, "pinned"), 0, meta), np.ndarray)
    for kind in ("device", "foreign"):
        assert isinstance(DEVICE.view(DEVICE.allocate(8, kind), 0, meta), FakeArray)


def training() -> tuple[static.Program, static.Program, Any]:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [None, 4])
        h = static.nn.batch_norm(static.nn.fc(x, 5, activation="tanh"))
        loss = paddle.mean(paddle.square(static.nn.fc(h, 2)))
        paddle.optimizer.Adam(0.1).minimize(loss)
    main.random_seed = startup.random_seed = 3
    return main, startup, loss


FEED = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 7}


def state(where: static.Scope) -> dict[str, Any]:
    """The values of a scope, by name."""
    found = {n: where.find_var(n) for n in sorted(where.local_var_names())}
    return {n: np.array(v.get_tensor()) for n, v in found.items() if v is not None and v.get_tensor()._is_initialized()}


def test_values_are_set_saved_and_loaded_through_the_device(tmp_path: Path) -> None:
    main, startup, loss = training()
    with fake():
        exe = static.Executor("cpu")
        exe.run(startup)
        exe.run(main, feed=FEED, fetch_list=[loss])
        held = static.global_scope()
        weight = main.all_parameters()[0]
        assert all(isinstance(held.array(n), FakeArray) for n in held.local_var_names())
        tensor = held.find_var(weight.name).get_tensor()  # type: ignore[union-attr]
        storage = tensor.array
        tensor.set(np.full(weight.shape, 0.5, np.float32))
        assert tensor.array is storage, "it is written through"
        static.save(main, str(tmp_path / "saved"))
        (first,) = exe.run(main, feed=FEED, fetch_list=[loss])
        before = state(held)
        static.load(main, str(tmp_path / "saved"))
        assert np.array_equal(np.array(tensor), np.full(weight.shape, 0.5, np.float32))
        (again,) = exe.run(main, feed=FEED, fetch_list=[loss])
        assert first == again
        after = state(held)
        assert all(before[n].tobytes() == after[n].tobytes() for n in before)


def test_a_scope_can_go_from_one_device_to_another_and_back() -> None:
    main, startup, loss = training()

    def run(kinds: str) -> list[Any]:
        held, exe = static.Scope(), static.Executor("cpu")
        exe.run(startup, scope=held)
        losses = []
        for kind in kinds:
            with fake() if kind == "f" else contextlib.nullcontext():
                losses += exe.run(main, feed=FEED, fetch_list=[loss], scope=held)
        return [*losses, *state(held).values()]

    same_bits(run("cccccc"), run("cfcffc"))


def test_an_error_of_late_work_names_the_operator_and_leaves_the_state() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        ids = static.data("ids", [None], "int64")
        loss = paddle.mean(static.nn.embedding(ids, [4, 3]))
        paddle.optimizer.SGD(0.1).minimize(loss)
    with fake():
        exe = static.Executor("cpu")
        exe.run(startup)
        good = {"ids": np.array([1, 2])}
        exe.run(main, feed=good, fetch_list=[loss])
        before = state(static.global_scope())
        with pytest.raises(IndexRangeError, match="embedding") as caught:
            exe.run(main, feed={"ids": np.array([1, 9])}, fetch_list=[loss])
        assert "test_fake_device.py" in str(caught.value)
        after = state(static.global_scope())
        assert all(before[n].tobytes() == after[n].tobytes() for n in before)
        exe.run(main, feed=good, fetch_list=[loss])


# ---------------------------------------------------------------------------------------------------------------- order
def branches() -> tuple[static.Program, list[Any]]:
    """Three branches, so that steps of several streams need each other."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3, 4])
        a, b = paddle.exp(x), paddle.tanh(x)
        c = paddle.sin(a)
        d = paddle.add(b, c)
        e = paddle.multiply(d, paddle.cos(a))
    return main, [d, e]


def test_every_wait_that_is_left_out_is_found_by_some_order(monkeypatch: pytest.MonkeyPatch) -> None:
    main, fetches = branches()
    plain = static.Executor("cpu").run(main, feed=FEED, fetch_list=fetches)
    right, counts = queues.waits, []

    def run(number: int, left_out: int | None) -> bool:
        def some(steps: Sequence[queues.Queued]) -> list[list[int]]:
            found = right(steps)
            flat = [(i, j) for i, js in enumerate(found) for j in js]
            counts.append(len(flat))
            gone = flat[left_out] if left_out is not None and flat else None
            return [[j for j in js if (i, j) != gone] for i, js in enumerate(found)]

        monkeypatch.setattr(queues, "waits", some)
        with fake(number):
            late = static.Executor("cpu").run(main, feed=FEED, fetch_list=fetches)
        return all(a.tobytes() == b.tobytes() for a, b in zip(plain, late, strict=True))

    assert all(run(number, None) for number in range(20))
    assert counts[0] >= 5
    for wait in range(counts[0]):
        assert not all(run(number, wait) for number in range(20)), f"wait {wait} may be left out"


@pytest.mark.parametrize("switch", ["enable_sequential_execution", "sequential_run", "fix_op_run_order"])
def test_under_switches_of_order_each_step_waits_for_the_one_before(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, fetches = branches()
    right, found = queues.waits, []
    monkeypatch.setattr(queues, "waits", lambda steps: found.append(right(steps)) or found[-1])
    with fake():
        static.Executor("cpu").run(
            static.CompiledProgram(main, build_strategy=strategy(**{switch: True})), feed=FEED, fetch_list=fetches
        )
    (waits,) = found
    assert [max(js) for js in waits[1:]] == list(range(len(waits) - 1)), "each has another stream than the one before"


def test_streams_keep_their_own_order_and_no_other() -> None:
    orders = set()
    for number in range(20):
        device = FakeDevice(number)
        ran: list[str] = []
        streams = [device.stream(), device.stream()]
        for i in range(3):
            for name, stream in zip("ab", streams, strict=True):
                device._put(stream, partial(ran.append, f"{name}{i}"))
        assert ran == [], "nothing runs before it is waited for"
        device.synchronize(streams)
        assert [r for r in ran if r[0] == "a"] == ["a0", "a1", "a2"]
        assert [r for r in ran if r[0] == "b"] == ["b0", "b1", "b2"]
        orders.add(tuple(ran))
    assert len(orders) > 5


def test_what_waits_for_an_event_comes_after_it() -> None:
    for number in range(20):
        device = FakeDevice(number)
        ran: list[int] = []
        first, second = device.stream(), device.stream()
        start, stop = device.event(), device.event()
        device.wait(stop, second)  # never recorded: nothing to wait for
        device._put(first, partial(ran.append, 1))
        device.record(start, first)
        device.wait(start, second)
        device._put(second, partial(ran.append, 2))
        device.record(stop, second)
        device.synchronize([second])
        assert ran == [1, 2]
        assert device.elapsed(start, stop) >= 0


def test_what_nobody_waits_for_may_stay_where_it_is() -> None:
    left = 0
    for number in range(20):
        device = FakeDevice(number)
        ran: list[int] = []
        device._put(device.stream(), partial(ran.append, 1))
        device.to_host(device.empty((1,), np.dtype(np.float32)), device.stream())
        left += not ran
    assert left == 20


def test_a_graph_is_captured_without_running_and_replayed_as_often_as_asked() -> None:
    device = FakeDevice()
    streams = [device.stream(), device.stream()]
    total = device.upload(np.zeros(1, np.float32))
    one = device.upload(np.ones(1, np.float32))
    event = device.event()
    calls: list[Any] = [
        (device._put, (streams[0], lambda: np.add(total._inside, one._inside, out=total._inside))),
        (device.record, (event, streams[0])),
        (device.wait, (event, streams[1])),
        (device._put, (streams[1], lambda: np.add(total._inside, total._inside, out=total._inside))),
    ]
    graph = device.capture(calls, streams)
    assert device.to_host(total) == 0
    for wanted in (2, 6, 14):
        device.replay(graph)
        assert device.to_host(total, streams[1]) == wanted


@pytest.mark.parametrize("method", ["synchronize", "to_host"])
def test_a_captured_region_cannot_wait_for_the_device(method: str) -> None:
    device = FakeDevice()
    streams = [device.stream()]
    call: Any = (
        (device.synchronize, (streams,)) if method == "synchronize" else (device.to_host, (array_of([1]), streams[0]))
    )
    with pytest.raises(DeviceError, match="captured as a graph waits for the device"):
        device.capture([call], streams)


def test_copies_take_the_hosts_values_as_they_are_when_asked() -> None:
    stream = DEVICE.stream()
    there, source = array_of([0, 0]), np.array([1, 2], np.float32)
    DEVICE.from_host(there, source, stream)
    source[:] = 9
    assert DEVICE.to_host(there, stream).tolist() == [1, 2]
    DEVICE.fill(there, 3, stream)
    back = DEVICE.to_host(there, stream)
    back[:] = 7
    assert DEVICE.to_host(there, stream).tolist() == [3, 3]


def test_counts_of_what_is_not_finite_lie_on_the_device() -> None:
    counts = DEVICE.check_finite([array_of([1, np.nan, np.inf]), array_of([0])], DEVICE.stream())
    assert isinstance(counts, FakeArray)
    assert DEVICE.to_host(counts).tolist() == [2, 0]


STEPS = st.lists(
    st.tuples(st.integers(0, 3), *[st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=2)] * 2, st.booleans()),
    max_size=14,
)  # fmt: skip


@settings(max_examples=300 if not SOAK else 20_000)
@given(drawn=STEPS)
def test_waits_order_all_that_touches_the_same_memory_and_nothing_twice(drawn: list[Any]) -> None:
    streams = [DEVICE.stream() for _ in range(4)]
    steps = []
    for number, reads, writes, known in drawn:
        spans = [[(low, low + size) for low, size in side if size] for side in (reads, writes)]
        steps.append(queues.Queued(None, streams[number], [], *(spans if known or len(steps) % 5 else (None, None))))
    found = queues.waits(steps)

    def before(waits: list[list[int]]) -> list[set[int]]:
        """Per step all that is done when it begins."""
        done: list[set[int]] = []
        for i, step in enumerate(steps):
            direct = [j for j in range(i) if steps[j].stream is step.stream] + waits[i]
            done.append({*direct, *(k for j in direct for k in done[j])})
        return done

    def overlap(a: Any, b: Any) -> bool:
        return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)

    done = before(found)
    for i, b in enumerate(steps):
        for j, a in enumerate(steps[:i]):
            unknown = a.reads is None or b.reads is None
            if unknown or overlap(a.writes, [*b.reads, *b.writes]) or overlap(a.reads, b.writes):  # type: ignore[misc]
                assert j in done[i], (j, i)
    for i, needed in enumerate(found):
        for j in needed:
            fewer = [[k for k in ks if (n, k) != (i, j)] for n, ks in enumerate(found)]
            assert j not in before(fewer)[i], "another wait, or a stream's own order, implies it"
