"""NCCL as a transport, on a stand-in that has NCCL's rules: values, order of streams, aborts, and faults that must be found."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.helpers import nccl_faults
from tests.helpers.nccl_ranks import Array, Ranks
from tests.helpers.nccl_rules import RuleError
from tests.helpers.stream_order import OrderError
from tstatic import flags
from tstatic.comm.group import Group
from tstatic.comm.transport import Part, gloo, nccl_proof
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.comm.transport.host import HostTransport
from tstatic.comm.transport.nccl import NcclError
from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.errors import DeviceError, DTypeError, RankFailedError, RankNumericsError
from tstatic.ir.types import DTYPES, dtype_of

pytestmark = pytest.mark.torch

SUMMED = sorted(set(DTYPES) - {"bool", "int16"})
SIZES = [0, 1, 7]

HOW = pytest.mark.parametrize("how", ["places", "processes"])
COUNT = pytest.mark.parametrize("size", [1, 2, 4, 8])


@pytest.fixture(autouse=True)
def _small_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_proof, "BUCKET", 5_000)


def values(name: str, elements: int, rank: int) -> Array:
    """Small whole numbers, whose sums are exact in every dtype and order."""
    return np.asarray((np.arange(elements) * 3 + rank) % 5).astype(dtype_of(name).np)


def same(got: Array, expected: Any) -> None:
    assert np.array_equal(got, np.asarray(expected, got.dtype)), (got, expected)


# ------------------------------------------------------------------------------------------------------------------ values
@HOW
@COUNT
def test_sums_of_all_dtypes_and_sizes(how: str, size: int) -> None:
    ranks = Ranks(how, size)
    given = [[values(name, n, rank) for name in SUMMED for n in SIZES] for rank in range(size)]
    totals = [np.sum([one.astype(complex) for one in column], axis=0) for column in zip(*given, strict=True)]
    for got in ranks.run("sum", given):
        for array, total in zip(got, totals, strict=True):
            same(array, total if array.dtype.kind == "c" else np.real(total))


@HOW
@COUNT
def test_sums_for_one_rank_leave_the_others_alone(how: str, size: int) -> None:
    given = [[values("float32", 7, rank), values("bfloat16", 3, rank)] for rank in range(size)]
    roots = [size - 1, 0]
    for rank, got in enumerate(Ranks(how, size).run("sum", given, roots)):
        for i, root in enumerate(roots):
            total = np.sum([one[i].astype("float32") for one in given], axis=0)
            same(got[i], total if rank == root else given[rank][i])


@HOW
@COUNT
def test_scatter_gather_send_and_exchange(how: str, size: int) -> None:
    ranks = Ranks(how, size)
    for name in DTYPES:
        for n in SIZES:
            each = [values(name, n, rank) for rank in range(size)]
            empty = [np.zeros((size, n), each[0].dtype)] * size
            for got in ranks.run("gather", [[one] for one in each], out=empty):
                same(got[1], np.array(each))
            for got in ranks.run("send", [[one, one] for one in each], [0, size - 1]):
                same(got[0], each[0])
                same(got[1], each[-1])
            rows = [np.array([values(name, n, size * rank + to) for to in range(size)]) for rank in range(size)]
            for rank, got in enumerate(ranks.run("exchange", [[one] for one in rows], out=empty)):
                same(got[1], np.array([one[rank] for one in rows]))
            if name in SUMMED:
                total = np.sum([one.astype(complex) for one in rows], axis=0)
                outs = [one[0] for one in empty]
                for rank, got in enumerate(ranks.run("scatter", [[one] for one in rows], out=outs)):
                    same(got[1], total[rank] if got[1].dtype.kind == "c" else np.real(total[rank]))


def test_a_gather_for_some_places_only() -> None:
    each = [values("int16", 3, rank) for rank in range(4)]
    outs = [np.zeros((4, 3), np.int16) if rank == 2 else None for rank in range(4)]
    got = Ranks("places", 4).run("gather", [[one] for one in each], out=outs)
    assert [len(one) for one in got] == [1, 1, 2, 1]
    same(got[2][1], np.array(each))


@HOW
def test_what_nccl_cannot_add(how: str) -> None:
    with pytest.raises(DTypeError, match="arrays of int16"):
        Ranks(how, 2).run("sum", [[values("int16", 3, rank)] for rank in range(2)])


@HOW
def test_the_sum_of_truth_values_is_whether_one_holds(how: str) -> None:
    given = [[np.array([rank == 2, rank < 2, False, True])] for rank in range(3)]
    got = Ranks(how, 3).run("sum", given)
    assert all(one.tolist() == [True, True, False, True] for (one,) in got)


@HOW
def test_a_part_on_the_device_of_another_communicator_is_refused(how: str) -> None:
    ranks = Ranks(how, 2)
    ranks.each(lambda _, transport, mine: transport.connect())
    parts = [ranks.part(rank, [np.ones(3, np.float32)]) for rank in (1, 0)]
    with pytest.raises(DeviceError, match="belongs to one GPU") as caught:
        ranks.transports[0].sum(parts if how == "places" else parts[:1], 0)
    assert (caught.value.expected, caught.value.received) == ("gpu", "gpu:1")


def test_only_nccl_keeps_each_part_in_its_own_stream() -> None:
    assert all(one.own_streams for one in Ranks("processes", 1).transports)
    assert not HostTransport(2).own_streams
    assert not GlooTransport.own_streams


def test_adjacent_arrays_of_places_are_summed_as_one() -> None:
    ranks = Ranks("places", 2)
    ranks.transports[0].connect()
    ranks.world.log.clear()
    whole = [ranks.put(rank, np.arange(24, dtype=np.float16)) for rank in range(2)]
    parts = [
        Part(lane, [lane.device.slice(array, start, (8,)) for start in (0, 8, 16)])
        for lane, array in zip(ranks.lanes, whole, strict=True)
    ]  # fmt: skip
    for function, arguments in ranks.transports[0].sum(parts, 0, [0, 0, 1]):
        function(*arguments)
    assert [(name, count, root) for name, count, _, root in ranks.world.log] == [
        ("reduce", 16, 0), ("reduce", 16, 0), ("reduce", 8, 1), ("reduce", 8, 1)
    ]  # fmt: skip


def test_sixteen_bits_travel_as_such() -> None:
    ranks = Ranks("processes", 2)
    ranks.each(lambda _, transport, mine: transport.connect())
    ranks.world.log.clear()
    ranks.run("sum", [[values("bfloat16", 9, rank)] for rank in range(2)])
    assert ranks.world.log == [("all_reduce", 9, 9, -1)] * 2


@COUNT
def test_replicas_in_their_own_threads_meet_and_sum(size: int) -> None:
    ranks = Ranks("places", size)
    group = Group(size, transport=ranks.transports[0])
    ranks.lanes = [group.communicator(rank, device) for rank, device in enumerate(ranks.devices)]

    def replica(rank: int) -> list[Array]:
        lane, found = ranks.lanes[rank], []
        for step in range(3):
            mine = [ranks.put(rank, values("float32", 5, rank + step)), ranks.put(rank, values("bfloat16", 3, rank))]
            lane.all_reduce(mine)
            out = ranks.put(rank, np.zeros((size, 5), np.float32))
            lane.all_gather(mine[0], out)
            lane.broadcast(mine[1:], [0])
            found += [ranks.read(rank, one) for one in (*mine, out)]
        return found

    with ThreadPoolExecutor(size) as pool:
        for got in pool.map(replica, range(size)):
            for step in range(3):
                total = np.sum([values("float32", 5, rank + step) for rank in range(size)], axis=0)
                same(got[3 * step], total)
                same(
                    got[3 * step + 1],
                    np.sum([values("bfloat16", 3, r).astype(np.float32) for r in range(size)], axis=0),
                )
                same(got[3 * step + 2], [total] * size)


def test_processes_sum_through_it_on_behalf_of_their_replicas() -> None:
    ranks = Ranks("processes", 4)

    def process(rank: int, transport: Any, mine: Any) -> Array:
        lane = Group(1, ranks.outers[rank]).communicator(0, ranks.devices[rank])
        ranks.lanes[rank] = lane
        array = ranks.put(rank, values("float32", 5, rank))
        lane.all_reduce([array])
        return ranks.read(rank, array)

    for got in ranks.each(process):
        same(got, np.sum([values("float32", 5, rank) for rank in range(4)], axis=0))


# ------------------------------------------------------------------------------------------------------------ strict sums
@HOW
@COUNT
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_strict_sums_have_the_bits_of_the_host(how: str, size: int, name: str) -> None:
    draw = np.random.RandomState(size)
    given = [[draw.standard_normal(301).astype(dtype_of(name).np) for _ in range(2)] for _ in range(size)]
    totals = [np.empty_like(given[0][0]) for _ in range(2)]
    for i, total in enumerate(totals):
        add_in_order([one[i] for one in given], [total])
    ranks = Ranks(how, size)
    by_nccl = ranks.run("sum", given)
    flags.set_flags({"FLAGS_numerics": "strict"})
    for got in ranks.run("sum", given):
        assert [one.tobytes() for one in got] == [one.tobytes() for one in totals]
    # The stand-in adds from the last to the first: the test above could not tell the ways apart otherwise.
    assert size < 3 or by_nccl[0][0].tobytes() != totals[0].tobytes()
    for rank, got in enumerate(ranks.run("sum", given, [size - 1, 0])):
        assert got[0].tobytes() == (totals[0] if rank == size - 1 else given[rank][0]).tobytes()
        assert got[1].tobytes() == (totals[1] if rank == 0 else given[rank][1]).tobytes()
    rows = [[np.resize(one[0], (size, 301))] for one in given]
    for got in ranks.run("scatter", rows, out=[one[0] for one in given]):
        assert got[1].tobytes() == totals[0].tobytes()


# --------------------------------------------------------------------------------------------------------------- captures
def test_a_captured_sum_reads_what_the_arrays_have_at_each_launch() -> None:
    ranks = Ranks("processes", 2)

    def work(rank: int, transport: Any, mine: Any) -> list[list[float]]:
        transport.connect()
        lane, device = ranks.lanes[rank], ranks.devices[rank]
        part = ranks.part(rank, [np.zeros(3, np.float32)])
        calls = transport.sum([part], 0)
        token = device.begin_capture([lane.stream])
        for function, arguments in calls:
            function(*arguments)
        graph = device.end_capture(token)
        found = []
        for step in range(3):
            device.from_host(part.arrays[0], np.full(3, step + rank, np.float32), lane.stream)
            device.launch_graph(graph, lane.stream)
            found.append(ranks.read(rank, part.arrays[0]).tolist())
        return found

    assert ranks.each(work) == [[[1.0] * 3, [3.0] * 3, [5.0] * 3]] * 2


# ------------------------------------------------------------------------------------------------------- aborts, failures
@HOW
def test_an_abort_ends_a_collective_that_a_rank_never_joins(how: str) -> None:
    ranks = Ranks(how, 2, nccl_faults.Planted)
    library: Any = ranks.transports[0].library
    ranks.each(lambda _, transport, mine: transport.connect())
    ranks.world.log.clear()
    if how == "places":
        # What one of the places does not do, the library leaves out.
        library.__class__ = nccl_faults.LeftOut
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            parts = [ranks.part(rank, [np.ones(3, np.float32)]) for rank in range(2 if how == "places" else 1)]
            for function, arguments in ranks.transports[0].sum(parts, 0):
                function(*arguments)
        except BaseException as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    ranks.wait_until(lambda: bool(ranks.world.log or raised))
    cause = RuntimeError("a place failed")
    ranks.transports[0].abort(cause)
    waiting.join()
    assert isinstance(raised[0], RankFailedError)
    assert raised[0].__cause__ is not None
    if how == "processes":
        assert ranks.board.error is cause  # the others are told


def test_places_connect_anew_after_an_abort() -> None:
    ranks = Ranks("places", 2)
    given = [[np.full(3, rank + 1.0, np.float32)] for rank in range(2)]
    ranks.run("sum", given)
    ranks.transports[0].abort(RuntimeError("a place failed"))
    for got in ranks.run("sum", given):
        same(got[0], [3.0] * 3)
    assert len(ranks.world.cliques) == 2


@HOW
def test_an_error_that_all_ranks_raise_leaves_communicators_in_use(how: str) -> None:
    ranks = Ranks(how, 2)
    given = [[np.ones(3, np.float32)]] * 2
    ranks.run("sum", given)
    for one in ranks.transports:
        one.abort(RankNumericsError("gradients hold NaN"))
    ranks.run("sum", given)
    assert len(ranks.world.cliques) == 1


@HOW
def test_a_lost_connection_is_named_at_the_next_collective(how: str) -> None:
    ranks = Ranks(how, 2)
    given = [[np.ones(3, np.float32)]] * 2
    ranks.run("sum", given)
    assert [one.fault() for one in ranks.transports] == [None] * len(ranks.transports)
    ranks.world.lose(1, "remote process exited")
    with pytest.raises(RankFailedError, match="connection of rank 1 of 2") as caught:
        ranks.run("sum", given)
    assert caught.value.received == "remote process exited"


@HOW
def test_closing_destroys_the_communicators(how: str) -> None:
    ranks = Ranks(how, 2)
    ranks.run("sum", [[np.ones(3, np.float32)]] * 2)
    for one in ranks.transports:
        one.close()
    assert {one.ended for one in ranks.world.comms.values()} == {"destroyed"}


@pytest.mark.parametrize("late", [0.0, 0.2])
def test_what_nobody_holds_any_more_is_destroyed(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that created and tested it do not hold it, though they end ``late`` seconds after they answered."""

    class Answers(queue.SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            time.sleep(late)

    monkeypatch.setattr(gloo, "queue", SimpleNamespace(SimpleQueue=Answers, Empty=queue.Empty))
    ranks = Ranks("places", 2)
    ranks.run("sum", [[np.ones(3, np.float32)]] * 2)
    ranks.transports.clear()
    assert {one.ended for one in ranks.world.comms.values()} == {"destroyed"}


def test_some_of_the_processes() -> None:
    ranks = Ranks("processes", 4)

    def work(rank: int, transport: Any, mine: Any) -> Any:
        if not rank:
            return None
        some = transport.among([3, 1, 2])
        assert transport.among([3, 1, 2]) is some
        part, out = ranks.part(rank, [np.full(2, rank, np.int64)]), ranks.put(rank, np.zeros((3, 2), np.int64))
        for function, arguments in some.gather([part], 0, [out]):
            function(*arguments)
        return ranks.read(rank, out)[:, 0].tolist()

    assert ranks.each(work) == [None] + [[3, 1, 2]] * 3


# --------------------------------------------------------------------------------------------------------------- the proof
@HOW
@pytest.mark.parametrize("name", ["int64", "bfloat16", "float16", "float32"])
def test_the_proof_finds_a_library_that_adds_wrongly(how: str, name: str) -> None:
    with pytest.raises(DeviceError, match="failed its test before the first step") as caught:
        Ranks(how, 2, nccl_faults.wrong_values(name)).run("sum", [[np.ones(3, np.int8)]] * 2)
    assert name in str(caught.value.received)
    assert f"FLAGS_collectives={'host' if how == 'places' else 'gloo'}" in str(caught.value.fix)


@HOW
def test_the_proof_ends_when_a_collective_does_not(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_proof, "SECONDS", 0.5)
    ranks = Ranks(how, 2, nccl_faults.LeftOut)
    with pytest.raises(DeviceError, match="before the first step") as caught:
        ranks.run("sum", [[np.ones(3, np.int8)]] * 2)
    assert "did not end within 0.5 s" in str(caught.value.received)
    # Nothing is left that could be used by mistake.
    assert {one.ended for one in ranks.world.comms.values()} == {"aborted"}


def test_ranks_that_are_not_connected_in_time_all_say_so() -> None:
    flags.set_flags({"FLAGS_step_timeout_s": 0.5})
    told = threading.Event()
    ranks = Ranks("processes", 2, lambda library: nccl_faults.ComesLate(library, told))
    with pytest.raises(DeviceError, match="before the first step") as caught:
        ranks.run("sum", [[np.ones(3, np.int8)]] * 2)
    assert caught.value.received == "rank 0 of 2: 2 ranks were not connected within 0.5 s"
    # A communicator that comes too late is not kept.
    told.set()
    ranks.wait_until(lambda: [one.ended for one in ranks.world.comms.values()] == ["aborted"] * 2)


def test_the_proof_takes_a_bucket_of_four_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    ranks = Ranks("places", 2)
    ranks.transports[0].connect()
    assert max(count for _, count, _, _ in ranks.world.log) == 1 << 20


# ----------------------------------------------------------------------------------------------------------------- faults
FAULTS: dict[str, tuple[Any, type[BaseException], str]] = {
    "swapped collectives": (nccl_faults.SwappedCollectives, RuleError, "would hang: collective"),
    "missing group end": (nccl_faults.MissingGroupEnd, RuleError, "not ended"),
    "stream without its event": (nccl_faults.WithoutEvent, OrderError, "no event"),
    "bytes for 16-bit elements": (nccl_faults.BytesForElements, DeviceError, "before the first step"),
    "even count of 16-bit elements": (nccl_faults.EvenCount, RuleError, "would hang: collective"),
    "two threads": (nccl_faults.TwoThreads, RuleError, "two threads"),
    "one device twice": (nccl_faults.DeviceTwice, NcclError, "invalid usage"),
    "use after an abort": (nccl_faults.AfterAbort, RuleError, "was aborted"),
    "wrong root": (nccl_faults.WrongRoot, RuleError, "would hang: collective"),
}


def exercise(ranks: Ranks) -> None:
    given: list[list[Array]] = [[np.ones(3, np.float32), np.ones(5, np.float16)]] * ranks.size
    ranks.run("sum", given)
    ranks.run("sum", given, [0, 1])


@HOW
def test_without_a_fault_nothing_is_found(how: str) -> None:
    exercise(Ranks(how, 2, nccl_faults.Planted))


@HOW
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(how: str, fault: str) -> None:
    planted, error, text = FAULTS[fault]
    with pytest.raises(error, match=text):
        exercise(Ranks(how, 2, planted))


def test_one_thread_that_queues_for_several_ranks_needs_a_group() -> None:
    with pytest.raises(RuleError, match="outside of a group"):
        exercise(Ranks("places", 2, nccl_faults.NoGroup))
