"""Faults that stand between a transport and NCCL's stand-in: each changes what the real transport calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.helpers.nccl_rules import RuledNccl
from tests.helpers.patience import HANG
from tstatic.comm.transport.nccl import TYPES


class Planted:
    """A library that passes every call on.

    Attributes:
        odd: The communicator of rank 1, for faults of one rank.
    """

    def __init__(self, inside: RuledNccl) -> None:
        self.inside = inside
        self.odd = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def init_all(self, devices: Sequence[int]) -> list[int]:
        made = self.inside.init_all(devices)
        self.odd = made[1]
        return made

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        made = self.inside.init_rank(size, unique_id, rank, device)
        self.odd = made if rank == 1 else 0
        return made

    def all_reduce(self, *arguments: int) -> None:
        self.reducing("all_reduce", *arguments)

    def reduce(self, *arguments: int) -> None:
        self.reducing("reduce", *arguments)

    def reducing(self, name: str, *arguments: int) -> None:
        getattr(self.inside, name)(*arguments)


class SwappedCollectives(Planted):
    """One rank queues the sums of a group in another order."""

    def __init__(self, inside: RuledNccl) -> None:
        super().__init__(inside)
        self._later: list[tuple[str, tuple[int, ...]]] = []

    def reducing(self, name: str, *arguments: int) -> None:
        if arguments[-2] == self.odd:
            self._later.append((name, arguments))
        else:
            super().reducing(name, *arguments)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        with self.inside.group():
            yield
            for name, arguments in reversed(self._later):
                getattr(self.inside, name)(*arguments)
            self._later.clear()


class MissingGroupEnd(Planted):
    """A group begins and does not end."""

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        self.inside.start_group()
        yield


class NoGroup(Planted):
    """One thread queues the work of several ranks one by one."""

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        yield


class WithoutEvent(Planted):
    """Sums are queued in a stream that waits for nothing."""

    def reducing(self, name: str, *arguments: int) -> None:
        queue = self.inside.world.order.queues[arguments[-1]]
        super().reducing(name, *arguments[:-1], queue.library.Stream(queue.library.index).cuda_stream)


class BytesForElements(Planted):
    """The count of 16-bit sums is that of their bytes, on all ranks."""

    def reducing(self, name: str, *arguments: int) -> None:
        send, receive, count, dtype, *rest = arguments
        low = dtype in (TYPES["float16"], TYPES["bfloat16"])
        super().reducing(name, send, receive, 2 * count if low else count, dtype, *rest)


class EvenCount(Planted):
    """One rank rounds the count of 16-bit sums."""

    def reducing(self, name: str, *arguments: int) -> None:
        send, receive, count, dtype, *rest = arguments
        low = dtype in (TYPES["float16"], TYPES["bfloat16"]) and rest[-2] == self.odd
        super().reducing(name, send, receive, count // 2 * 2 if low else count, dtype, *rest)


class TwoThreads(Planted):
    """Another thread queues sums while a thread is in its group."""

    def __init__(self, inside: RuledNccl) -> None:
        super().__init__(inside)
        self._last: tuple[int, ...] = ()

    def reducing(self, name: str, *arguments: int) -> None:
        super().reducing(name, *arguments)
        with ThreadPoolExecutor(1) as other:
            other.submit(getattr(self.inside, name), *arguments).result()


class DeviceTwice(Planted):
    """All ranks are on one device."""

    def init_all(self, devices: Sequence[int]) -> list[int]:
        return super().init_all([devices[0]] * len(devices))

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        return super().init_rank(size, unique_id, rank, 0)


class AfterAbort(Planted):
    """A communicator is aborted, and used."""

    def reducing(self, name: str, *arguments: int) -> None:
        if arguments[-2] == self.odd:
            self.inside.abort([self.odd])
        super().reducing(name, *arguments)


class WrongRoot(Planted):
    """One rank sends to another root."""

    def reducing(self, name: str, *arguments: int) -> None:
        if name == "reduce" and arguments[-2] == self.odd:
            arguments = (*arguments[:4], 1 - arguments[4], *arguments[5:])
        super().reducing(name, *arguments)


class LeftOut(Planted):
    """One rank does not take part in sums."""

    def reducing(self, name: str, *arguments: int) -> None:
        if arguments[-2] != self.odd:
            super().reducing(name, *arguments)


class ComesLate(Planted):
    """Rank 1 does not create its communicator before it is told to."""

    def __init__(self, inside: RuledNccl, told: threading.Event) -> None:
        super().__init__(inside)
        self._told = told

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        if rank == 1:
            assert self._told.wait(HANG)
        return super().init_rank(size, unique_id, rank, device)


class WrongValues(Planted):
    """Sums of one dtype count the first rank's values twice, as a faulty library might."""

    def __init__(self, inside: RuledNccl, dtype: str) -> None:
        super().__init__(inside)
        self._dtype = TYPES[dtype]

    def reducing(self, name: str, *arguments: int) -> None:
        super().reducing(name, *arguments)
        if arguments[3] == self._dtype:
            super().reducing(name, *arguments)


def wrong_values(dtype: str) -> Callable[[RuledNccl], WrongValues]:
    return lambda inside: WrongValues(inside, dtype)
