"""The page on scaling: its formulas against counted calls and bytes, its ring against one that is walked, its tables."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parallel.golden import Net, Training, strategy
from tstatic import static
from tstatic.comm.group import Group
from tstatic.comm.passes.buckets import parts
from tstatic.comm.passes.data_parallel import distribute
from tstatic.comm.passes.distribution import Distribution, Report
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenProgram
from tstatic.runtime.replica_threads import ReplicaThreads
from tstatic.static.compile import pipeline
from tstatic.static.compile.request import state_metas

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (2, 4, 8, 16, 32, 64)
Reduce = static.BuildStrategy.ReduceStrategy.Reduce
AllReduce = static.BuildStrategy.ReduceStrategy.AllReduce


@contextmanager
def _paths() -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        yield
    finally:
        sys.path[:] = before


with _paths():
    model: ModuleType = importlib.import_module("scaling_model")
    tables: ModuleType = importlib.import_module("scaling_table")


# ------------------------------------------------------------------------------------------------ counted while running
def small(clip: bool) -> Net:
    """Three layers; all sizes are multiples of 64 bytes, so that neighbours in a buffer have no gaps between them."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        h = static.data("X", [None, 16], "float32")
        for width in (48, 96, 16):
            h = static.nn.fc(h, width, activation="tanh")
        loss = paddle.mean(paddle.square(h))
        norm = paddle.nn.ClipGradByGlobalNorm(1.0) if clip else None
        paddle.optimizer.AdamW(0.01, grad_clip=norm).minimize(loss)
    return Net(main, startup, loss)


def work_of(training: Training, clip: bool) -> Any:
    """The small net as the model sees it."""
    net = training.net
    frozen, _ = pipeline.simplify(net.main, static.BuildStrategy(), ["X"], [net.loss.name])
    given = {frozen.reads[var]: meta for var, meta in state_metas(frozen, net.main, training.scope).items()}
    given["X"] = meta_of(np.zeros((4, 16), np.float32))
    gradients, *_ = tables.timeline(frozen, given, tables.H100)
    return model.Work("small", gradients, 1.0, 1.0, 1.0, clip)


def group_of(training: Training, places: int) -> Group:
    """What the replicas of a training meet in."""
    found: Group = next(iter(training.exe._replicas.values())).group
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clip", "limit"), [(True, None), (False, 8192), (True, 0)], ids=["all in one", "buckets", "each alone"]
)
@pytest.mark.parametrize("places", SIZES)
def test_a_run_makes_the_calls_and_moves_the_bytes_of_the_formulas(places: int, clip: bool, limit: int | None) -> None:
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": -1.0 if limit is None else limit / model.MEGABYTE})
    feed = {"X": np.linspace(-1, 1, 16 * places, dtype=np.float32).reshape(places, 16)}
    for kind, together in ((AllReduce, True), (Reduce, True), (Reduce, False)):
        build = strategy(reduce_strategy=kind, fuse_broadcast_ops=together)
        training = Training(small(clip), places, build)
        training.step(feed)
        group = group_of(training, places)
        before = group.calls, group.moved
        training.step(feed)
        one = work_of(training, clip)
        told = model.all_reduce_traffic(one, limit) if kind is AllReduce else model.reduce_traffic(one, limit, together)
        assert (group.calls - before[0], group.moved - before[1]) == (told.calls, told.nbytes)
        training.exe.close()


class Counting:
    """Other processes that have the same values as this one."""

    rank, size = 0, 4

    def __init__(self) -> None:
        self.calls = self.moved = 0
        self.shapes: list[list[Any]] = []

    def all_reduce(self, arrays: Any, block: int = 0) -> None:
        self.calls += 1
        self.shapes.append([a.shape for a in arrays])
        self.moved += sum(a.nbytes for a in arrays)
        for a in arrays:
            a *= self.size

    def all_gather(self, array: Any) -> Any:
        raise AssertionError("nothing is gathered")

    def agree(self, label: str, note: Any = None) -> list[Any]:
        """All are there, and note nothing."""
        return [note]


@pytest.mark.parametrize("owned", [False, True], ids=["AllReduce", "Reduce"])
@pytest.mark.parametrize("places", [1, 2, 8])
def test_between_processes_one_call_with_the_bytes_of_one_replica(places: int, owned: bool) -> None:
    outer = Counting()
    group = Group(places, GlooTransport(outer))
    arrays = [np.full(1 << 16, r + 1.0, np.float32) for r in range(places)]

    def collect(replica: int) -> None:
        communicator = group.communicator(replica)
        if owned:
            communicator.reduce([arrays[replica]], [places - 1])
        else:
            communicator.all_reduce([arrays[replica]])

    threads = ReplicaThreads(places, group, lambda replica: "")
    try:
        threads.run([partial(collect, r) for r in range(places)], 60.0)
    finally:
        threads.close()
    assert (outer.calls, outer.moved) == (1, arrays[0].nbytes)
    for a in arrays[-1:] if owned else arrays:
        np.testing.assert_array_equal(a, 4 * places * (places + 1) / 2)


def test_sums_do_not_depend_on_where_each_replicas_arrays_lie() -> None:
    """Parts of a batch that differ in size have different arenas: what is adjacent in one need not be so in another."""
    outer = Counting()
    sizes = [16, 32, 16]
    for places in (1, 3):
        group = Group(places, GlooTransport(outer))
        whole = [np.arange(sum(sizes), dtype=np.float32) * (r + 1) for r in range(places)]
        first = [np.split(whole[0], [16, 48])]
        # The second replica's first two are adjacent, the third replica's last two.
        second = [[*np.split(w[:48], [16]), w[48:].copy()] for w in whole[1:2]]
        third = [[w[:16].copy(), *np.split(w[16:], [32])] for w in whole[2:3]]
        arrays = first + second + third
        expected = np.split(4 * sum(np.arange(sum(sizes), dtype=np.float32) * (r + 1) for r in range(places)), [16, 48])
        threads = ReplicaThreads(places, group)
        try:
            threads.run([partial(group.communicator(r).all_reduce, arrays[r]) for r in range(places)], 60.0)
        finally:
            threads.close()
        for mine in arrays:
            for array, wanted in zip(mine, expected, strict=True):
                np.testing.assert_array_equal(array, wanted)
    assert outer.shapes == [[(n,) for n in sizes]] * 2, "other processes lay them out differently, too"


def test_a_batch_of_uneven_parts_gives_the_mean_of_their_gradients() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        h = static.data("x", [None, 16])
        for _ in range(4):
            h = static.nn.fc(h, 32, activation="tanh")
        loss = paddle.mean(paddle.square(h))
        grads = [g for _, g in static.append_backward(loss)]
    exe = static.Executor("cpu")
    exe.run(startup)
    x = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    parts = [x[:16], x[16:33], x[33:]]
    single = [exe.run(main, feed={"x": part}, fetch_list=grads) for part in parts]
    together = static.CompiledProgram(main).with_data_parallel(loss.name, places=["cpu"] * 3)
    merged = exe.run(together, feed={"x": x}, fetch_list=grads, return_merged=False)
    for i, found in enumerate(merged):
        for one in found:
            np.testing.assert_allclose(one, sum(row[i] for row in single) / 3, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------------------------- counted in programs
def inserted(program: FrozenProgram) -> tuple[int, int]:
    """Collectives of a program, those of a divided gradient counted each, and the bytes that they are given."""
    ops = [op for op in program.ops if op.definition.collective]
    given = [sum(program.metas[v].nbytes for v in op.reads()) for op in ops]
    calls = sum(len(parts(n, op.attrs.get("limit", 0))) for op, n in zip(ops, given, strict=True))
    return calls, sum(given)


def spread(name: str, places: int, sharded: bool, together: bool) -> tuple[list[FrozenProgram], Report]:
    how = Distribution(places, places, share_updates=sharded, bucket_bytes=tables.LIMIT, fuse_broadcasts=together)
    return distribute(tables.frozen_step(name)[0], how)


@pytest.mark.parametrize("places", SIZES)
@pytest.mark.parametrize("name", tables.CASES)
def test_the_passes_insert_what_the_page_says_of_the_large_models(name: str, places: int) -> None:
    one = tables.work(name)
    (program, *_), _ = spread(name, places, False, True)
    told = model.all_reduce_traffic(one, tables.LIMIT)
    assert inserted(program) == (told.calls, told.nbytes)
    for together in (True, False):
        programs, report = spread(name, places, True, together)
        told = model.reduce_traffic(one, tables.LIMIT, together)
        # Every replica makes the same calls; what it has not got itself is stood for by memory of the same size.
        for program in {id(p): p for p in (programs[0], programs[-1])}.values():
            assert inserted(program) == (told.calls, told.nbytes)
        assert list(report.owners.values()) == model.owners(one.gradients, places)


# ------------------------------------------------------------------------------------------------------- a walked ring
@pytest.mark.parametrize("devices", SIZES)
def test_a_ring_that_is_walked_sends_what_the_formula_says(devices: int) -> None:
    values = np.arange(devices * devices * 3, dtype=np.int64).reshape(devices, devices, 3)
    held, sent = values.copy(), np.zeros(devices, int)
    for turn in range(2 * (devices - 1)):
        moving = [(d, (d - turn) % devices, held[d, (d - turn) % devices].copy()) for d in range(devices)]
        for d, piece, value in moving:
            sent[d] += value.nbytes
            target = held[(d + 1) % devices]
            target[piece] = target[piece] + value if turn < devices - 1 else value
    np.testing.assert_array_equal(held, np.broadcast_to(values.sum(0), held.shape))
    assert set(sent) == {model.ring_all_reduce(values[0].nbytes, devices)}


@pytest.mark.parametrize("devices", SIZES)
@pytest.mark.parametrize("name", tables.CASES)
def test_pieces_that_walk_to_their_owners_and_back_load_the_busiest_link_as_the_formula_says(
    name: str, devices: int
) -> None:
    gradients = tables.work(name).gradients
    places = model.owners(gradients, devices)
    there, back = np.zeros(devices, int), np.zeros(devices, int)
    for g, owner in zip(gradients, places, strict=True):
        for step in range(1, devices):
            there[(owner + step) % devices] += g.nbytes  # from the device behind the owner around to it
            back[(owner + step - 1) % devices] += g.nbytes  # from the owner to the device before it
    told = model.ring_to_owners(model.owned(gradients, places, devices))
    assert there.max() == back.max() == told


# ------------------------------------------------------------------------------------------------------------ the times
RING = model.Network("test", 8, 100e9, 50e9, 1e-5, 2e-6, 5e-6)


def even(count: int, nbytes: int = 4_000_000) -> Any:
    """Gradients of one size, complete at even distances."""
    gradients = tuple(model.Gradient(nbytes, nbytes // 4, (i + 1) / count) for i in range(count))
    return model.Work("even", gradients, 1e-3, 2e-3, 1e-4, False)


def test_one_bucket_is_not_hidden_and_kernel_per_op_but_for_the_last() -> None:
    one = even(10)
    all_in_one = RING.time(8, model.ring_all_reduce(one.nbytes, 8), 2)
    assert model.all_reduce_step(one, 8, RING, None).waited == pytest.approx(all_in_one)
    last = RING.time(8, model.ring_all_reduce(4_000_000, 8), 2)
    assert last < one.backward / 10
    assert model.all_reduce_step(one, 8, RING, 0).waited == pytest.approx(last)


def test_a_ring_across_machines_has_their_hops_and_their_speed() -> None:
    assert RING.time(8, 0, 1) == pytest.approx(1e-5 + 7 * 2e-6)
    assert RING.time(16, 0, 2) == pytest.approx(1e-5 + 2 * (14 * 2e-6 + 5e-6))
    assert RING.time(9, 50e9, 0) - RING.time(8, 50e9, 0) == pytest.approx(0.5)


@pytest.mark.parametrize("step", [model.all_reduce_step, model.reduce_step])
def test_one_device_waits_for_nobody_and_a_perfect_network_only_costs_nothing(step: Any) -> None:
    one = even(10)
    assert step(one, 1, RING, 0).seconds == one.alone
    perfect = model.Network("perfect", 8, float("inf"), float("inf"), 0.0, 0.0, 0.0)
    assert step(one, 64, perfect, 0).waited == pytest.approx(0.0, abs=1e-12)
    assert step(one, 10, perfect, 0).seconds == pytest.approx(
        one.alone if step is model.all_reduce_step else one.alone - 0.9 * one.update
    )


# ------------------------------------------------------------------------------------------------------------- the page
def test_the_page_holds_what_the_script_prints() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page, list(tables.blocks())) == page, "run `python docs/scaling_table.py --write`"


def test_a_stale_page_is_noticed() -> None:
    page = tables.PAGE.read_text(encoding="utf-8").replace("| 64 |", "| 65 |")
    assert tables.filled(page, list(tables.blocks())) != page
