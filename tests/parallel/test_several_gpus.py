"""Places that are GPUs of their own: what moves their values, that a step waits once, and what a failure leaves."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.helpers.nccl_rules import World
from tests.helpers.patience import HANG
from tests.helpers.stream_order import Order, OrderedGpu, OrderError
from tests.parallel.test_late_devices import KINDS, ROWS, Net, visits
from tstatic import flags, places
from tstatic.comm.transport import nccl
from tstatic.devices import cuda
from tstatic.devices.base import Event
from tstatic.devices.cuda.graphs import CudaStream
from tstatic.devices.step import Stream
from tstatic.errors import IndexRangeError, MissingPackageError, PlaceError
from tstatic.places import CPUPlace, CUDAPlace

pytestmark = pytest.mark.torch


@contextlib.contextmanager
def gpus(count: int, collectives: str = "auto", with_nccl: bool = True) -> Iterator[tuple[World, list[OrderedGpu]]]:
    """GPUs that find accesses which no event orders, and NCCL's rules."""
    world = World(Order(), HANG)
    made = [OrderedGpu(world.order, index) for index in range(count)]
    before = flags.get_flags("FLAGS_collectives")

    def missing() -> None:
        raise MissingPackageError("NCCL was not found", received="torch for the CPU")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "device", made.__getitem__)
        patch.setattr(places, "_count_gpus", lambda visible: count)
        patch.setattr(nccl, "load", world.process if with_nccl else missing)
        flags.set_flags({"FLAGS_collectives": collectives})
        try:
            yield world, made
        finally:
            flags.set_flags(before)


def on(count: int) -> list[CUDAPlace]:
    return [CUDAPlace(index) for index in range(count)]


@pytest.mark.parametrize(
    ("kind", "collectives"), [*((kind, "auto") for kind in KINDS), ("plain", "gloo"), ("plain", "host")]
)
def test_gpus_learn_as_cpu_places_do(kind: str, collectives: str) -> None:
    plain = Net(kind, CPUPlace(), 2)
    told = [plain.step() for _ in range(4)]
    with gpus(2, collectives) as (world, _):
        net = Net(kind, on(2), 2)
        found = [net.step() for _ in range(4)]
        first, second = net.values()
        names = Counter(name for name, *_ in world.log)
    assert first == second
    np.testing.assert_allclose(found, told, rtol=3e-5 if kind != "amp" else 2e-2)
    assert bool(names["all_reduce"]) == (collectives == "auto")


@pytest.mark.parametrize(
    ("kind", "count", "collectives"),
    [*((kind, 2, "auto") for kind in KINDS), ("plain", 4, "auto"), ("plain", 2, "gloo")],
)
def test_a_step_waits_once_on_each_gpu(kind: str, count: int, collectives: str) -> None:
    with gpus(count, collectives) as (_, devices), contextlib.ExitStack() as stack:
        net = Net(kind, on(count), count)
        for _ in range(3):
            net.step()
        found = [stack.enter_context(visits(device)) for device in devices]
        net.step()
    assert found == [{"waits": 1}] * count


def test_each_ring_has_communicators_of_its_own() -> None:
    """One communicator's calls run one after another, whatever their streams."""
    values = []
    for rings in (1, 2):
        before = flags.get_flags("FLAGS_fuse_parameter_memory_size")
        flags.set_flags({"FLAGS_fuse_parameter_memory_size": 0.0})
        try:
            with gpus(2) as (world, _):
                net = Net("plain", on(2), 2, nccl_comm_num=rings)
                for _ in range(3):
                    net.step()
                values.append(net.values())
                assert len(world.cliques) == rings
        finally:
            flags.set_flags(before)
    assert values[0] == values[1]


def test_explain_says_what_moves_values_and_why() -> None:
    with gpus(2) as (_, devices):
        net = Net("plain", on(2), 2)
        net.step()
        told = str(net.program.explain(fetch_list=[net.loss]))
        assert "values move by nccl, since each place is a GPU of its own" in told
        assert net.program.explain(fetch_list=[net.loss]).to_dict()["collectives"]["choices"]
    for device in devices:
        assert -1 in {queue.priority for queue in device.cuda.made}, "collectives have a stream that goes first"


def test_without_nccl_the_gpus_copy_from_each_other() -> None:
    with gpus(2, with_nccl=False):
        net = Net("plain", on(2), 2)
        net.step()
        first, second = net.values()
        (replicas,) = net.exe._replicas.values()
    assert first == second
    assert str(replicas.choices[0]) == "device, since NCCL cannot be loaded: torch for the CPU"


def test_a_position_that_one_gpu_is_fed_is_refused_on_all() -> None:
    with gpus(3):
        net, like = Net("clip", on(3), 3), Net("clip", on(3), 3)
        net.step()
        like.step()
        before = net.values()
        bad = {key: np.array(value) for key, value in net.feed.items()}
        bad["y"][ROWS + 1] = 5
        for _ in range(2):
            with pytest.raises(IndexRangeError, match="1 of 3"):
                net.step(bad)
        assert net.values() == before
        assert np.array_equal(net.step(), like.step())
        assert net.values() == like.values()


@pytest.mark.parametrize("what", ["one GPU twice", "CPU places"])
def test_nccl_where_it_cannot_be_is_refused_at_the_first_run(what: str) -> None:
    with gpus(1, "nccl"):
        place = CUDAPlace(0) if what == "one GPU twice" else CPUPlace()
        net = Net("plain", place, 2)
        with pytest.raises(PlaceError, match="FLAGS_collectives=auto"):
            net.step()


def test_nccl_that_is_not_there_is_refused_where_it_is_asked_for() -> None:
    with gpus(2, "nccl", with_nccl=False):
        net = Net("plain", on(2), 2)
        with pytest.raises(MissingPackageError, match="NCCL"):
            net.step()


def test_under_strict_numerics_the_sum_has_the_bits_of_the_host() -> None:
    before = flags.get_flags("FLAGS_numerics")
    flags.set_flags({"FLAGS_numerics": "strict"})
    try:
        values = []
        for collectives in ("auto", "gloo", "host"):
            with gpus(3, collectives):
                net = Net("plain", on(3), 3)
                for _ in range(3):
                    net.step()
                values.append(net.values())
    finally:
        flags.set_flags(before)
    assert values[0] == values[1] == values[2]


def test_a_missing_event_between_streams_is_found() -> None:
    """Plants what the tests above would see: the stream of collectives does not wait for what makes the gradients."""
    with gpus(2) as (_, devices), pytest.MonkeyPatch.context() as patch:
        for device in devices:
            forgetful(device, patch)
        net = Net("plain", on(2), 2)
        with pytest.raises(OrderError, match="no event between them"):
            net.step()


def forgetful(device: OrderedGpu, patch: pytest.MonkeyPatch) -> None:
    collective: list[Stream] = []
    make, wait = device.stream, device.wait

    def stream(is_collective: bool = False, **named: bool) -> CudaStream:
        made = make(is_collective or named.get("collective", False))
        if is_collective or named.get("collective"):
            collective.append(made)
        return made

    def waiting(event: Event, one: Stream) -> None:
        if one not in collective:
            wait(event, one)

    patch.setattr(device, "stream", stream)
    patch.setattr(device, "wait", waiting)
