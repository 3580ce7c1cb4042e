"""Ranks of NCCL on the stand-in: the places of one process, or threads that stand for processes of one place each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from tests.helpers.nccl_rules import RuledNccl, World
from tests.helpers.patience import HANG
from tests.helpers.stream_order import Order, OrderedGpu
from tstatic.comm.group import Communicator, Group
from tstatic.comm.transport import Part, ProcessTransport
from tstatic.comm.transport.nccl_transport import NcclPlaces, NcclProcesses, NcclTransport
from tstatic.errors import RankFailedError, RankNumericsError

Array = np.ndarray[Any, Any]


class Board:
    """Where threads that stand for processes meet."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.brought: dict[Any, dict[int, Any]] = {}
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()


class ThreadPeers:
    """A thread in the place of a process: :class:`tstatic.comm.transport.nccl_transport.Peers`."""

    def __init__(self, board: Board, ranks: Sequence[int], mine: int) -> None:
        self.rank, self.size = list(ranks).index(mine), len(ranks)
        self._board, self._ranks, self._mine = board, tuple(ranks), mine
        self._met = 0

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        board, key = self._board, (self._ranks, self._met, label)
        self._met += 1
        with board.changed:
            found = board.brought.setdefault(key, {})
            found[self.rank] = note
            board.changed.notify_all()
            came = board.changed.wait_for(lambda: len(found) == self.size or board.error, HANG)
            if len(found) < self.size:
                assert came, f"rank {self.rank} waits at '{label}'"
                raise RankFailedError("another rank failed") from board.error
            return [found[rank] for rank in range(self.size)]

    def broadcast(self, arrays: Sequence[Array], root: int = 0) -> None:
        came = self.agree("broadcast", [np.array(one) for one in arrays])[root]
        for array, one in zip(arrays, came, strict=True):
            np.copyto(array, one)

    def among(self, ranks: Sequence[int]) -> ThreadPeers:
        return ThreadPeers(self._board, [self._ranks[rank] for rank in ranks], self._mine)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, RankNumericsError):
            self._board.fail(error)


class Ranks:
    """Some ranks, each on a GPU, their transports and lanes.

    Args:
        how: ``"places"``: of one process; ``"processes"``: each a thread.
        size: How many.
        planted: Returns what stands between a transport and its library.

    Attributes:
        transports: One for all places, or one for each process.
        outers: Those of processes.
        lanes: Of each rank.
    """

    def __init__(self, how: str, size: int, planted: Callable[[RuledNccl], Any] = lambda library: library) -> None:
        self.size = size
        self.world = World(Order(), HANG)
        self.devices = [OrderedGpu(self.world.order, rank) for rank in range(size)]
        self.board = Board()
        self.transports: list[NcclTransport]
        if how == "places":
            group = Group(size)
            self.transports = [NcclPlaces(self.devices, planted(self.world.process()))]
            self.lanes = [group.communicator(rank, device) for rank, device in enumerate(self.devices)]
        else:
            outers = [
                NcclProcesses(ThreadPeers(self.board, range(size), rank), device, planted(self.world.process()))
                for rank, device in enumerate(self.devices)
            ]
            self.transports = [*outers]
            self.outers: Sequence[ProcessTransport] = outers
            self.lanes = [Group(1).communicator(0, device) for device in self.devices]

    def each(self, work: Callable[[int, NcclTransport, Sequence[int]], Any]) -> list[Any]:
        """Runs something for each process, in threads if there are several; returns what they returned.

        Raises:
            BaseException: The first error; then no thread waits for another one any more.
        """
        if len(self.transports) == 1:
            return [work(0, self.transports[0], range(self.size))]
        with ThreadPoolExecutor(self.size) as pool:
            begun = [pool.submit(work, rank, one, [rank]) for rank, one in enumerate(self.transports)]
            first: BaseException | None = None
            for ended in as_completed(begun):
                error = ended.exception()
                if error is not None and first is None:
                    first = error
                    self.board.fail(error)
                    for one in self.transports:
                        one.abort(error)
        if first is not None:
            raise first
        return [one.result() for one in begun]

    def put(self, rank: int, array: Array) -> Any:
        """Returns an array of a rank's device, which work in the rank's own stream fills."""
        lane = self.lanes[rank]
        made = lane.device.empty(array.shape, array.dtype)
        lane.device.from_host(made, array, lane.stream)
        return made

    def part(self, rank: int, arrays: Sequence[Array]) -> Part:
        return Part(self.lanes[rank], [self.put(rank, array) for array in arrays])

    def read(self, rank: int, array: Any) -> Array:
        lane: Communicator = self.lanes[rank]
        return lane.device.to_host(array, lane.stream)

    def run(self, method: str, given: Sequence[Sequence[Array]], *args: Any, out: Any = None) -> list[list[Array]]:
        """Runs a method of the transports once, all ranks together.

        Args:
            method: Its name.
            given: The arrays of each rank.
            args: The other arguments, but ``outs``.
            out: For each rank an array like that which it gets in ``outs``, or ``None``.

        Returns:
            The arrays of each rank afterwards, and what it got.
        """

        def work(_: int, transport: NcclTransport, mine: Sequence[int]) -> list[list[Array]]:
            parts = [self.part(rank, given[rank]) for rank in mine]
            outs = [] if out is None else [None if out[r] is None else self.put(r, out[r]) for r in mine]
            first = next((i for i, one in enumerate(outs) if one is not None), 0)
            calls = getattr(transport, method)(parts, first, *args, *([outs] if out is not None else []))
            for function, arguments in calls:
                function(*arguments)
            got = [[*part.arrays, *outs[i : i + 1]] for i, part in enumerate(parts)]
            return [
                [self.read(rank, one) for one in arrays if one is not None]
                for rank, arrays in zip(mine, got, strict=True)
            ]  # fmt: skip

        return [rank for process in self.each(work) for rank in process]

    def wait_until(self, ended: Callable[[], bool]) -> None:
        """Waits for what another thread does."""
        deadline = time.monotonic() + HANG
        while not ended():
            assert time.monotonic() < deadline
            time.sleep(0.001)


__all__ = ["Array", "Board", "Ranks", "ThreadPeers"]
