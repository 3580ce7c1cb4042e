"""Steps that nothing interrupts are captured in the second run and launched from then on, with the bits of the calls."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import StandIn
from tstatic import devices, nn, static
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.fake import FakeDevice
from tstatic.devices.graphs import LateGraph
from tstatic.devices.queued import QueuedDevice
from tstatic.devices.step import Workspace, of_calls
from tstatic.errors import DeviceError
from tstatic.ir.types import Meta, dtype_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

Build = Callable[[], tuple[list[Any], dict[str, Any]]]
DEVICES: dict[str, Callable[[], QueuedDevice]] = {"gpu": StandIn, "fake": FakeDevice}


@contextlib.contextmanager
def standing_in(name: str) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        made = DEVICES[name]()
        patch.setitem(devices.DEVICES, made.name, made)
        with devices.use(made.name):
            yield made


# ---------------------------------------------------------------------------------------------------------------- programs
def dense() -> tuple[list[Any], dict[str, Any]]:
    x = static.data("x", [None, 6])
    h = static.nn.fc(static.nn.fc(x, 8, activation="relu"), 3)
    loss = paddle.mean(paddle.square(h))
    paddle.optimizer.AdamW(0.05, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    return [loss, h], {"x": np.random.default_rng(0).random((4, 6), "float32")}


def images() -> tuple[list[Any], dict[str, Any]]:
    x, y = static.data("x", [None, 2, 6, 6]), static.data("y", [None, 1], "int64")
    h = static.nn.batch_norm(static.nn.conv2d(x, 3, 3, bias_attr=False), act="relu")
    loss = paddle.mean(nn.functional.cross_entropy(static.nn.fc(h, 4), y))
    paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    draw = np.random.default_rng(0)
    return [loss], {"x": draw.random((5, 2, 6, 6), "float32"), "y": draw.integers(0, 4, (5, 1))}


def words() -> tuple[list[Any], dict[str, Any]]:
    """Positions that are checked on the device, and an update that asks the words of the checks."""
    ids = static.data("ids", [None, 3], "int64")
    h = nn.functional.layer_norm(static.nn.embedding(ids, [9, 4]), [4])
    loss = paddle.mean(paddle.tanh(h))
    paddle.optimizer.Adam(0.05).minimize(loss)
    return [loss], {"ids": np.array([[1, 2, 8], [0, 3, 3]])}


def interrupted() -> tuple[list[Any], dict[str, Any]]:
    """Steps that only the host runs, between others: a size that values decide, and a function of Python."""
    x = static.data("x", [4, 3])
    h = paddle.tanh(x * 2.0) + 1.0
    kept = paddle.nonzero(h > 1.0)
    out = static.default_main_program().current_block().create_var(name="doubled", dtype="float32", shape=[4, 3])
    doubled = static.py_func(lambda a: np.array(a) * 2, paddle.exp(h), out)
    return [paddle.sqrt(doubled), kept], {"x": np.random.default_rng(0).random((4, 3), "float32") - 0.5}


PROGRAMS: list[Build] = [dense, images, words, interrupted]


def trained(build: Build, mode: str, steps: int = 5, allow: bool | None = None) -> list[Any]:
    """Returns what each step fetches, and the state behind the last one."""
    paddle.seed(5)
    paddle.set_flags({"FLAGS_cuda_graph": mode})
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
        fetches, feed = build()
        main, scope = static.default_main_program(), static.Scope()
        strategy = static.BuildStrategy()
        if allow is not None:
            strategy.allow_cuda_graph_capture = allow
        with static.scope_guard(scope):
            exe = static.Executor(paddle.CPUPlace())
            exe.run(static.default_startup_program())
            compiled = static.CompiledProgram(main, strategy)
            found = [exe.run(compiled, feed=feed, fetch_list=fetches) for _ in range(steps)]
            names = sorted(v.name for v in main.list_vars() if v.persistable)
            found.append([np.array(scope.find_var(name).get_tensor()) for name in names])
    return [np.asarray(value) for row in found for value in row]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


# ------------------------------------------------------------------------------------------------------------------- tests
@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", DEVICES)
def test_launched_graphs_leave_the_bits_of_the_calls(name: str, build: Build) -> None:
    with standing_in(name):
        plain = trained(build, "off")
        for mode in ("auto", "check"):
            assert same(trained(build, mode), plain), mode


@pytest.mark.parametrize(("build", "count"), [(dense, 1), (images, 1), (words, 1), (interrupted, 2)])
def test_a_plan_is_captured_once(build: Build, count: int) -> None:
    with standing_in("gpu") as gpu:
        trained(build, "auto", steps=6)
        graphs = gpu.cuda.graphs
        assert [one.launches for one in graphs] == [5] * count, "the first run makes the calls"
        assert all(one.work for one in graphs)
        assert len({id(pool) for pool in gpu.cuda.pools}) == 1, "the graphs of a thread share their memory"


@pytest.mark.parametrize("mode", ["off", "auto"])
@pytest.mark.parametrize("build", [dense, words], ids=lambda build: build.__name__)
def test_the_host_waits_once_in_a_run(build: Build, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates ask the device whether positions were bad, and what is fetched arrives with the same wait."""
    waits: list[int] = []
    with standing_in("gpu") as gpu:
        for name in ("synchronize", "finish"):
            right = getattr(gpu, name)
            monkeypatch.setattr(gpu, name, lambda *args, right=right: (waits.append(1), right(*args))[1])
        counts = []
        run = static.Executor.run

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            waits.clear()
            found = run(self, *args, **kwargs)
            counts.append(len(waits))
            return found

        monkeypatch.setattr(static.Executor, "run", counted)
        trained(build, mode)
    assert counts[2:] == [1] * 4, "behind the startup program, and the step that moves what it wrote"


@pytest.mark.parametrize(
    ("mode", "allow", "graphs"), [("off", None, 0), ("off", True, 0), ("auto", False, 0), ("auto", None, 1)]
)
def test_the_flag_and_the_strategy_decide(mode: str, allow: bool | None, graphs: int) -> None:
    with standing_in("gpu") as gpu:
        trained(dense, mode, allow=allow)
        assert len(gpu.cuda.graphs) == graphs


@pytest.mark.parametrize("build", [dense, interrupted], ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", DEVICES)
def test_a_capture_that_fails_at_any_call_changes_nothing(
    name: str, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The calls do the work then, of this run and of all others, and the message names the operator."""
    with standing_in(name):
        plain = trained(build, "off")
    number, broken = 0, 1
    while broken:
        broken = 0
        with standing_in(name) as device, monkeypatch.context() as patch:
            patch.setattr(type(device), "must_capture", False)
            put, put_in = device._put, [0]

            def failing(*args: Any, **kwargs: Any) -> Any:
                nonlocal broken
                if device._capture if name == "fake" else device.cuda.capturing:
                    put_in[0] += 1  # noqa: B023
                    if put_in[0] == number + 1:  # noqa: B023
                        broken += 1
                        raise ArithmeticError("planted")
                return put(*args, **kwargs)  # noqa: B023

            patch.setattr(device, "_put", failing)
            assert same(trained(build, "auto"), plain), number
        number += 1
    assert number > 5


def test_an_error_within_a_captured_graph_has_its_operator() -> None:
    with standing_in("fake"), pytest.MonkeyPatch.context() as patch:
        capture = LateGraph._capture

        def broken(self: LateGraph) -> None:
            patch.setattr(LateGraph, "_join", lambda self: None)
            capture(self)

        patch.setattr(LateGraph, "_capture", broken)
        with pytest.raises(DeviceError, match="a stream was left open while a graph is captured"):
            trained(dense, "auto")


def test_explain_lists_the_graphs_and_what_ends_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tstatic.executor")
    with standing_in("gpu"):
        fetches, _ = interrupted()
        strategy = static.BuildStrategy()
        strategy.allow_cuda_graph_capture = True
        compiled = static.CompiledProgram(static.default_main_program(), strategy)
        told = compiled.explain(fetches)
        first, _, last = told.graphs
        assert first.then is not None
        assert str(first).endswith(f"operators, then `{first.then.op.type}`: {first.then.reason}")
        assert [op.type for op in last.ops] == ["sqrt"]
        assert last.then is None
        assert {one.op.type for one in told.outside_graphs} == {"where_index", "py_func"}
        assert "Graphs\n" in told.to_text(verbose=True)
        assert told.to_dict()["graphs"][0]["then"] == str(first)
        static.Executor(paddle.CPUPlace()).run(compiled, feed={"x": np.ones((4, 3), "float32")}, fetch_list=fetches)
    (said,) = (record.getMessage() for record in caplog.records)
    assert "2 operators of the program are launched outside of graphs" in said
    assert "`py_func`" in said
    assert "`where_index`: its size depends on values" in said
    assert static.CompiledProgram(static.default_main_program()).explain(fetches).graphs == ()


def test_under_debugging_a_fault_names_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA tells of a fault at some later call; with a wait behind each step there is no later one."""
    monkeypatch.setenv("TSTATIC_DEBUG", "1")
    with standing_in("gpu") as gpu:
        x = static.data("x", [2])
        made = paddle.exp(paddle.tanh(x))
        exe = static.Executor(paddle.CPUPlace())
        feed = {"x": np.ones(2, "float32")}
        for _ in range(3):
            exe.run(feed=feed, fetch_list=[made])
        assert gpu.cuda.graphs == [], "inside of a graph nothing can be waited for"
        waited: list[int] = []

        def synchronize(self: Any) -> None:
            waited.append(1)
            if len(waited) == 2:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")

        monkeypatch.setattr(type(gpu.cuda.made[0]), "synchronize", synchronize)
        with pytest.raises(RuntimeError, match="illegal memory access") as raised:
            exe.run(feed=feed, fetch_list=[made])
    text = "\n".join(getattr(raised.value, "__notes__", []))
    assert "operator 'exp'" in text
    assert "test_graphs.py:" in text


def test_a_run_within_the_callers_own_capture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("gpu") as gpu:
        made = static.data("x", [2]) * 2.0
        exe, feed = static.Executor(paddle.CPUPlace()), {"x": np.ones(2, "float32")}
        with monkeypatch.context() as patch:
            patch.setattr(gpu.cuda, "is_current_stream_capturing", lambda: True)
            with pytest.raises(DeviceError, match="cannot be part of a CUDA graph that the caller captures"):
                exe.run(feed=feed, fetch_list=[made])
        assert exe.run(feed=feed, fetch_list=[made])[0].tolist() == [2.0, 2.0]


def test_one_capture_serves_a_plan_whatever_runs_in_between() -> None:
    """Alternating training and evaluation, of two batch sizes, with values that are set and a startup program run again."""
    with standing_in("gpu") as gpu, static.program_guard(static.Program(), static.Program()):
        (loss, _), feed = dense()
        main, startup = static.default_main_program(), static.default_startup_program()
        test = main.clone(for_test=True)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        weight = static.global_scope().find_var(main.all_parameters()[0].name).get_tensor()
        for turn in range(20):
            exe.run(main, feed=feed, fetch_list=[loss])
            exe.run(test, feed=feed, fetch_list=[loss])
            exe.run(test, feed={"x": feed["x"][:2]}, fetch_list=[loss])
            if turn % 5 == 2:
                weight.set(np.array(weight) * 0.5)
            if turn == 10:
                exe.run(startup)
        launches = sorted(one.launches for one in gpu.cuda.graphs)
        assert launches[-3:] == [19, 19, 19]
        # A startup program is bound anew in each run.
        assert len(launches) == 3


def _outside_event(device: FakeDevice, stream: Any) -> list[Any]:
    event = device.event()
    device.record(event, stream)
    device.synchronize([stream])
    return [(device.wait, (event, stream))]


def _not_joined(device: FakeDevice, stream: Any) -> list[Any]:
    """Work in a second stream, which nobody told to wait for the first one."""
    return [(device.fill, (device.upload(np.ones(2)), 1.0, OTHERS[device]))]


def _left_open(device: FakeDevice, stream: Any) -> list[Any]:
    """Work in a second stream that waits for the first one, and that the first one does not wait for."""
    event, other = device.event(), OTHERS[device]
    work = (device.fill, (device.upload(np.ones(2)), 1.0, other))
    return [(device.record, (event, stream)), (device.wait, (event, other)), work]


def _a_stranger_waits(device: FakeDevice, stream: Any) -> list[Any]:
    event = device.event()
    return [(device.record, (event, stream)), (device.wait, (event, device.stream()))]


OTHERS: weakref.WeakKeyDictionary[FakeDevice, Any] = weakref.WeakKeyDictionary()
"""The second stream of each device's graph."""

BROKEN: dict[str, tuple[Callable[[FakeDevice, Any], list[Any]], str]] = {
    "wait for an event from before": (_outside_event, "waited for an event that was recorded before"),
    "a wait of the host": (lambda device, stream: [(device.synchronize, ([stream],))], "the host waited for the device"),
    "a copy to the host": (
        lambda device, stream: [(device.to_host, (device.upload(np.ones(2)), stream))], "the host waited for the device",
    ),
    "an array": (lambda device, stream: [(device.empty, ((2,), np.dtype("f4")))], "memory was allocated"),
    "an upload": (lambda device, stream: [(device.upload, (np.ones(2),))], "memory was allocated"),
    "a buffer": (lambda device, stream: [(device.allocate, (64,))], "memory was allocated"),
    "another's stream": (
        lambda device, stream: [(device.fill, (device.upload(np.ones(2)), 1.0, device.stream()))],
        "work was put into a stream of others",
    ),
    "no stream": (lambda device, stream: [(device.fill, (device.upload(np.ones(2)), 1.0))], "the host waited for the device"),
    "memory that is not pinned": (
        lambda device, stream: [(device.from_host, (device.upload(np.ones(2)), np.zeros(2), stream))],
        "memory of the host that is not pinned was copied",
    ),
    "memory that is freed": (lambda device, stream: [(device.free, (device.allocate(64),))], "memory was freed"),
    "a stream that has not joined": (_not_joined, "work was put into a stream that has not joined"),
    "a stream that is left open": (_left_open, "a stream was left open"),
    "a wait of a stream outside": (_a_stranger_waits, "a stream outside of the graph waited for an event of it"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_cuda_refuses_within_a_capture_is_an_error_on_the_device_for_tests(name: str) -> None:
    """Or what it silently gets wrong; all of it is fine in the first run, which makes the calls."""
    calls, message = BROKEN[name]
    device = FakeDevice()
    stream, OTHERS[device] = device.stream(), device.stream()
    # Called as they are: what parts the streams and joins them again is what is left out here.
    graph = device.capture(calls(device, stream), [stream, OTHERS[device]])
    device.replay(graph)
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith("a stream that"):
            patch.setattr(LateGraph, "_fork", lambda self: None)
            patch.setattr(LateGraph, "_join", lambda self: None)
        with pytest.raises((QueuedWorkError, DeviceError)) as raised:
            device.replay(graph)
    assert message in str(raised.value.__cause__ or raised.value)
    # The device goes on as if nothing had been tried.
    array = device.upload(np.ones(2))
    device.fill(array, 3.0, stream)
    assert device.to_host(array, stream).tolist() == [3.0, 3.0]


# A session's streams part and join around all operators: what leaves that out belongs to none.
@pytest.mark.parametrize("name", [name for name in BROKEN if not name.startswith("a stream that")])
def test_what_breaks_a_capture_is_told_with_its_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a run has the operator in whose step it happened, and the user's line that made it."""
    calls, message = BROKEN[name]
    bind = FakeDevice.bind

    def broken(self: FakeDevice, op: Any, ins: Any, outs: Any, reserved: Any, stream: Any, scratch: Any = None) -> Any:
        work = bind(self, op, ins, outs, reserved, stream, scratch)
        if op.type != "tanh":
            return work
        return of_calls([*work.calls(Workspace()), *calls(self, stream)])

    monkeypatch.setattr(FakeDevice, "bind", broken)
    with standing_in("fake"):
        x = static.data("x", [2])
        made = paddle.exp(paddle.tanh(x))
        exe, feed = static.Executor(paddle.CPUPlace()), {"x": np.ones(2, "float32")}
        exe.run(feed=feed, fetch_list=[made])
        with pytest.raises(DeviceError, match=message) as raised:
            exe.run(feed=feed, fetch_list=[made])
    assert raised.value.op == "tanh"
    assert "test_graphs.py:" in str(raised.value)


def test_an_event_of_a_graph_is_the_graphs_own() -> None:
    """CUDA refuses a wait for an event that was recorded while a graph was captured."""
    device = FakeDevice()
    stream, event = device.stream(), device.event()
    graph = device.capture([(device.record, (event, stream))], [stream])
    device.replay(graph)
    device.wait(event, stream)
    for _ in range(2):
        device.replay(graph)
        with pytest.raises(DeviceError, match="waited for an event that a graph recorded"):
            device.wait(event, stream)
    device.record(event, stream)
    device.wait(event, stream)
    device.synchronize([stream])


@pytest.mark.parametrize("launched", [False, True])
def test_pinned_memory_may_not_be_written_before_its_copy_ran(launched: bool) -> None:
    device = FakeDevice()
    stream, there = device.stream(), device.upload(np.zeros(3))
    slot = device.view(device.allocate(24, "pinned"), 0, Meta((3,), dtype_of("float64")))
    graph = device.capture([device.copying(there, slot, stream)], [stream])
    for number in range(4):
        slot[:] = number
        device.replay(graph) if launched else device.copy(there, slot, stream)
        if number == 3:
            slot[:] = 9
            with pytest.raises(QueuedWorkError) as raised:
                device.synchronize([stream])
            assert "pinned memory was written while a copy from it was in flight" in str(raised.value.__cause__)
        else:
            assert device.to_host(there, stream).tolist() == [number] * 3


@pytest.mark.parametrize("launched", [False, True])
def test_what_is_copied_to_pinned_memory_is_not_there_before_the_host_waited(launched: bool) -> None:
    device = FakeDevice()
    stream, there = device.stream(), device.upload(np.ones(3))
    slot = device.view(device.allocate(24, "pinned"), 0, Meta((3,), dtype_of("float64")))
    graph = device.capture([device.copying(slot, there, stream)], [stream])
    for _ in range(4):
        device.replay(graph) if launched else device.copy(slot, there, stream)
        assert np.isnan(slot).all()
        device.synchronize([stream])
        assert slot.tolist() == [1] * 3


def test_copies_that_the_stream_orders_are_no_writes_of_the_host() -> None:
    """One slot takes values down and brings them up again, without a wait of the host in between."""
    device = FakeDevice()
    stream, there = device.stream(), device.upload(np.arange(3.0))
    slot = device.view(device.allocate(24, "pinned"), 0, Meta((3,), dtype_of("float64")))
    for _ in range(2):
        device.copy(slot, there, stream)
        device.copy(there, slot, stream)
    assert device.to_host(there, stream).tolist() == [0, 1, 2]
    # What was dropped with its stream is not in flight any more.
    device.copy(there, slot, stream)
    device.discard([stream])
    device.copy(slot, there, stream)
    assert np.isnan(slot).all()
    device.synchronize([stream])
    assert slot.tolist() == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------------ a launch's cost
MOST_CALLS = 60
"""Calls of functions of tstatic from ``run`` to the launch of a captured step."""
MOST_OF_TORCH = 12
"""Calls of torch until then: what the caller's stream must be waited for, copies of feeds, and the launch."""


@pytest.mark.parametrize("build", [images, words], ids=lambda build: build.__name__)
def test_a_launch_costs_few_calls(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a GPU: a launch asks nothing of torch's settings.
    monkeypatch.setattr(StandIn, "settings", CudaDevice.settings)
    root, stand_in = str(Path(paddle.__file__).parent), inspect.getfile(StandIn)
    of_torch = {
        "is_current_stream_capturing", "current_stream", "wait_stream", "wait_event", "record", "stream", "synchronize", "replay",
    }  # fmt: skip
    ours: list[str] = []
    torchs: list[str] = []
    paddle.set_flags({"FLAGS_cuda_graph": "auto", "FLAGS_init_allocated_mem": False})

    def noted(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if "replay" in torchs:
            return
        if event == "call" and code.co_filename.startswith(root):
            ours.append(f"{code.co_filename.removeprefix(root)}:{code.co_name}")
        elif event == "call" and code.co_filename == stand_in and code.co_name in of_torch:
            torchs.append(code.co_name)
        elif event == "c_call" and isinstance(getattr(argument, "__self__", None), torch.Tensor):
            torchs.append(argument.__name__)

    with (
        standing_in("gpu"),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        fetches, feed = build()
        exe, main, scope = static.Executor(paddle.CPUPlace()), static.default_main_program(), static.global_scope()
        exe.run(static.default_startup_program())
        for _ in range(4):
            exe.run(main, feed, fetches, scope=scope)
        sys.setprofile(noted)
        try:
            exe.run(main, feed, fetches, scope=scope)
        finally:
            sys.setprofile(None)
    assert "replay" in torchs
    assert len(ours) <= MOST_CALLS, "\n".join(ours)
    # A block is entered and left.
    assert len(torchs) - torchs.count("stream") // 2 <= MOST_OF_TORCH, torchs
