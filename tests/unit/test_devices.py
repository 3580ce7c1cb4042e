"""What every device keeps, as far as it can be seen without a program."""

from __future__ import annotations

import gc
import weakref
from typing import Any, get_args

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.devices import DEVICES, HOST, check_backend, of_place, owner_of, read, skeleton, standing_in, use
from tstatic.devices.base import Device, DeviceBinding, DeviceLateChecks, DeviceMemory, MemoryKind
from tstatic.devices.immediate import ImmediateDevice
from tstatic.errors import DeviceError
from tstatic.ir.types import Meta, float32
from tstatic.places import CUDAPinnedPlace, CUDAPlace, NullPlace

ALL = [*DEVICES.values(), skeleton.DEVICE]
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=ALL, ids=lambda d: d.name)
def device(request: pytest.FixtureRequest) -> Device:
    found: Device = request.param
    return found


def there(device: Device, values: Any = VALUES) -> Any:
    made = device.empty(values.shape, values.dtype)
    device.from_host(made, values)
    return made


def test_a_device_is_found_under_its_name() -> None:
    assert [d.name for d in DEVICES.values()] == list(DEVICES)
    assert of_place(NullPlace()) is DEVICES["null"]
    with pytest.raises(DeviceError, match="has no Place"):
        of_place(CUDAPlace(99))
    with pytest.raises(DeviceError, match="has no Place"):
        of_place(CUDAPinnedPlace())


def test_values_go_there_and_back(device: Device) -> None:
    array = there(device)
    assert (array.shape, array.dtype, array.size, array.nbytes) == ((2, 3), VALUES.dtype, 6, 24)
    assert device.holds(array)
    back = device.to_host(array)
    assert np.array_equal(back, VALUES)
    back[...] = 9
    assert np.array_equal(device.to_host(array), VALUES), "a copy"
    assert owner_of(array).holds(array)
    assert np.array_equal(read(array), VALUES)
    assert np.array_equal(device.to_host(device.upload(VALUES)), VALUES)


def test_copies_fills_and_assignments_write(device: Device) -> None:
    first, second, stream = there(device), there(device, VALUES * 2), device.stream()
    device.copy(first, second, stream)
    device.fill(second, 5, stream)
    assert np.array_equal(device.to_host(first, stream), VALUES * 2)
    assert (device.to_host(second, stream) == 5).all()
    function, args = device.assigning(first, VALUES)
    assert np.array_equal(device.to_host(first), VALUES * 2), "not before the call is made"
    function(*args)
    assert np.array_equal(device.to_host(first), VALUES)


def test_views_of_memory_share_it(device: Device) -> None:
    memory = device.allocate(256)
    flat = device.view(memory, 64, Meta((12,), float32))
    part = device.slice(flat, 6, (2, 3))
    turned = device.derive(part, np.transpose)
    assert turned.shape == (3, 2)
    assert (device.contiguous(part), device.contiguous(turned)) == (True, False)
    assert (device.to_host(flat) == 0).all()
    device.from_host(part, VALUES)
    assert np.array_equal(device.to_host(flat)[6:], VALUES.reshape(-1))
    assert np.array_equal(device.to_host(turned), VALUES.T)
    low, high = device.span(flat)
    assert high - low == 48
    assert device.span(part) == (low + 24, high)
    assert device.span(device.slice(flat, 0, (0,)))[0] == device.span(device.slice(flat, 0, (0,)))[1]
    device.free(memory)
    assert memory.held_bytes == 0


@pytest.mark.parametrize("kind", get_args(MemoryKind))
def test_every_kind_of_memory_is_zeroed_aligned_and_copied_from_and_to(device: Device, kind: MemoryKind) -> None:
    memory = device.allocate(256, kind)
    array = device.view(memory, 64, Meta((2, 3), float32))
    owner = owner_of(array)
    assert owner is (HOST if kind == "pinned" else owner_of(there(device))), "pinned memory is the host's"
    assert owner.span(device.view(memory, 0, Meta((1,), float32)))[0] % 256 == 0
    assert (owner.to_host(array) == 0).all()
    stream = device.stream()
    device.copy(array, there(device), stream)
    back = there(device, np.zeros_like(VALUES))
    device.copy(back, array, stream)
    assert np.array_equal(device.to_host(back, stream), VALUES)
    device.free(memory)
    assert memory.held_bytes == 0


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_memory_of_another_library_is_used_where_it_is(device: Device, library: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = VALUES.copy() if library == "numpy" else torch.from_numpy(VALUES.copy())
    memory = device.adopt(theirs)
    assert (memory.held_bytes, memory.can_release) == (VALUES.nbytes, False)
    array = device.view(memory, 0, Meta((2, 3), float32))
    assert np.array_equal(device.to_host(array), VALUES)
    device.from_host(array, VALUES * 2)
    assert np.array_equal(np.asarray(theirs), VALUES * 2)
    theirs[0, 0] = 9
    assert device.to_host(array)[0, 0] == 9
    gone = weakref.ref(theirs)
    del array, theirs
    assert device.to_host(device.view(memory, 4, Meta((1,), float32))) == 2, "it keeps the memory alive"
    device.free(memory)
    assert memory.held_bytes == 0
    gc.collect()
    assert gone() is None


def test_whoever_reads_freed_memory_of_the_fake_device_finds_nan() -> None:
    """It is what shows that a plan, or a replica, uses memory that it has given back."""
    device = DEVICES["fake"]
    memory, own = device.allocate(256), VALUES.copy()
    foreign = device.adopt(own)
    arrays = [device.view(one, 0, Meta((2, 3), float32)) for one in (memory, foreign)]
    device.from_host(arrays[0], VALUES)
    device.free(memory)
    device.free(foreign)
    assert np.isnan(device.to_host(arrays[0])).all()
    assert np.array_equal(own, VALUES), "memory of another library is not its own"


def test_memory_that_is_not_contiguous_is_refused(device: Device) -> None:
    torch = pytest.importorskip("torch")
    for array in (VALUES.T, torch.from_numpy(VALUES.copy()).T, 3):
        with pytest.raises(DeviceError, match="cannot be used"):
            device.adopt(array)


def test_events_are_reached_in_order_and_have_times(device: Device) -> None:
    first, second = device.stream(), device.stream()
    start, stop = device.event(), device.event()
    device.record(start, first)
    device.wait(start, second)
    device.record(stop, second)
    device.synchronize([first, second])
    assert device.elapsed(start, stop) >= 0
    assert device.elapsed(stop, start) <= 0


def test_a_graph_does_its_calls_at_each_replay(device: Device) -> None:
    array, stream = there(device), device.stream()
    values = [VALUES * 3]
    graph = device.capture([(device.fill, (array, 2, stream))], [stream])
    assert np.array_equal(device.to_host(array), VALUES)
    for _ in range(2):
        device.replay(graph)
        assert (device.to_host(array, stream) == 2).all()
        device.from_host(array, values[0], stream)


def test_what_is_not_finite_is_counted(device: Device) -> None:
    odd = np.array([1, np.nan, -np.inf], np.float32)
    assert device.to_host(device.check_finite([there(device, odd), there(device)], device.stream())).tolist() == [2, 0]


def test_errors_are_described_by_class_and_text(device: Device) -> None:
    assert device.describe(MemoryError("no more")) == ("MemoryError", "no more")


def test_only_the_interpreter_launches_kernels() -> None:
    assert [d.name for d in ALL if d.generated] == ["interpret", "torch+interpret"]
    with pytest.raises(DeviceError, match="runs no generated kernels"):
        HOST.launch(np, [], {}, HOST.stream())


def test_the_choice_of_a_backend_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with use("fake") as chosen:
        assert chosen is DEVICES["fake"]
        check_backend()
    monkeypatch.setenv("TSTATIC_CPU_BACKEND", "null")
    with pytest.raises(DeviceError, match="changed after a CPU place was used"):
        check_backend()


def test_the_skeleton_is_complete_and_no_more() -> None:
    """What it defines is what a device with memory of its own must define: a new abstract method goes there, too."""
    own = {
        name for name, value in vars(skeleton.SkeletonDevice).items() if callable(value) and not name.startswith("_")
    }
    assert own == ImmediateDevice.__abstractmethods__
    protocols = {name for one in (DeviceMemory, DeviceBinding, DeviceLateChecks) for name in one.__abstractmethods__}
    assert own <= protocols | {"stream"}


def test_a_net_trains_on_the_skeleton_with_the_bits_of_the_cpu() -> None:
    def trained(device: Device) -> list[bytes]:
        main, startup = static.Program(), static.Program()
        main.random_seed = startup.random_seed = 3
        with static.program_guard(main, startup), standing_in(device), static.scope_guard(static.Scope()):
            x, label = static.data("x", [None, 1, 8, 8]), static.data("label", [None, 1], "int64")
            h = paddle.nn.functional.max_pool2d(static.nn.conv2d(x, 4, 3, act="relu"), 2, 2)
            h = static.nn.batch_norm(paddle.nn.functional.dropout(static.nn.fc(h, 8), 0.3))
            loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(h, 3), label))
            positive = paddle.nonzero(h > 0)
            paddle.optimizer.Adam(0.01).minimize(loss)
            exe = static.Executor(paddle.CPUPlace())
            exe.run(startup)
            found = []
            for n in (4, 4, 5, 6):
                images = np.linspace(-1, 1, n * 64, dtype="float32").reshape(n, 1, 8, 8)
                feed = {"x": images, "label": np.arange(n)[:, None] % 3}
                found += [one.tobytes() for one in exe.run(main, feed=feed, fetch_list=[loss, h, positive])]
            with pytest.raises(IndexError):
                exe.run(main, feed={"x": images, "label": np.full((n, 1), 9)}, fetch_list=[loss])
            return found

    assert trained(skeleton.DEVICE) == trained(HOST)
