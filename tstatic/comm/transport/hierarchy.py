"""Sums over processes, at once or in blocks, in rank order if required; chooses the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.comm.rendezvous import ProcessInfo
from tstatic.comm.transport.gloo import Gloo, Store
from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.errors import StrategyValueError

Array = np.ndarray[Any, Any]
Ended = Callable[[], bool]
"""Returns whether work has ended."""

_GATHERED = 1 << 15
"""Bytes up to which every rank sends its whole array to all; above, each rank adds one part: fewer bytes, in twice as
many exchanges."""


class Hierarchy:
    """Connects all processes, and the blocks into which they are divided.

    Args:
        store: The table in which the ranks find each other.
        rank: Rank of this process.
        size: Number of processes.
        host: Address at which the others reach this machine.
        wait: Returns when work has ended, or raises.

    Attributes:
        all: Connects all processes.
    """

    def __init__(self, store: Store, rank: int, size: int, host: str, wait: Callable[[Ended], None]) -> None:
        self._store = store  # rank 0 keeps the table, in which late ranks still look up gloo's addresses
        self._rank, self._size, self._host, self._wait = rank, size, host, wait
        self.all = Gloo(store.table, rank, size, host)
        self._blocks: dict[int, tuple[Gloo, Gloo | None]] = {}
        self._members: dict[tuple[int, ...], Gloo] = {}

    def __contains__(self, block: int) -> bool:
        return block == 0 or block in self._blocks

    def form(self, block: int) -> None:
        """Connects blocks of ``block`` neighbours, and the first processes of all blocks with each other."""
        number, place = divmod(self._rank, block)
        within = Gloo(self._store.under(f"block/{block}/{number}"), place, block, self._host)
        heads = None
        # The first of each block alone carries its sum to the other blocks: that is what saves traffic between machines.
        if place == 0:
            heads = Gloo(self._store.under(f"heads/{block}"), number, self._size // block, self._host)
        self._blocks[block] = within, heads

    def members(self, ranks: tuple[int, ...]) -> Gloo:
        """Returns the connection of some processes; they connect at the first call, which all of them must make together."""
        found = self._members.get(ranks)
        if found is None:
            name = "-".join(map(str, ranks))
            found = Gloo(self._store.under(f"members/{name}"), ranks.index(self._rank), len(ranks), self._host)
            self._members[ranks] = found
        return found

    def add(
        self, flats: Sequence[Array], strict: bool, block: int, before: Callable[[int], None] = lambda number: None
    ) -> None:
        """Sums flat arrays, in place; within blocks first, unless ``block`` is 0.

        Args:
            flats: The arrays.
            strict: Whether the sums have an order.
            block: Size of the blocks.
            before: Called with the number of an array just before it is sent, while earlier ones are on their way.
        """
        if not block:
            self._add(self.all, flats, strict, before)
            return
        within, heads = self._blocks[block]
        self._add(within, flats, strict, before)
        if heads is not None:
            self._add(heads, flats, strict)
        # All are started before the first is awaited: they travel together.
        for ended in [within.broadcast(flat, 0) for flat in flats]:
            self._wait(ended)

    def _add(
        self, gloo: Gloo, flats: Sequence[Array], strict: bool, before: Callable[[int], None] = lambda number: None
    ) -> None:
        started = []
        for number, flat in enumerate(flats):
            before(number)
            if strict:
                self._add_in_order(gloo, flat)
            else:
                started.append(gloo.add(flat))
        # Awaited last, so that an array is on its way while the next one is looked at.
        for ended in started:
            self._wait(ended)

    def _add_in_order(self, gloo: Gloo, flat: Array) -> None:
        if flat.nbytes <= _GATHERED:
            parts = np.empty((gloo.size, flat.size), flat.dtype)
            self._wait(gloo.gather(flat, list(parts)))
            add_in_order(list(parts), [flat])
            return
        # Each rank adds one part; all parts have equal sizes, so the last may be padded.
        part = -(-flat.size // gloo.size)
        padded = flat if part * gloo.size == flat.size else np.resize(flat, part * gloo.size)
        parts = np.empty((gloo.size, part), flat.dtype)
        self._wait(gloo.exchange(padded, parts, [part] * gloo.size, part))
        total = parts[0].copy()
        add_in_order(list(parts), [total])
        whole = np.empty((gloo.size, part), flat.dtype)
        self._wait(gloo.gather(total, list(whole)))
        np.copyto(flat, whole.reshape(-1)[: flat.size])

    def _gloos(self) -> list[Gloo]:
        blocks = (one for pair in self._blocks.values() for one in pair if one is not None)
        return [self.all, *blocks, *self._members.values()]

    def stop(self) -> bool:
        """Stops running work, so that it writes to no array any more; returns whether that worked."""
        # A list, as `all` would leave the rest running after the first that does not stop.
        ended = [gloo.stop() for gloo in self._gloos()]
        return all(ended)

    def close(self) -> None:
        """Ends gloo's threads while Python still runs."""
        for gloo in self._gloos():
            gloo.close()


class HierarchyOptions(Protocol):
    """The BuildStrategy properties that describe the levels of a sum."""

    @property
    def use_hierarchical_allreduce(self) -> bool: ...
    @property
    def hierarchical_allreduce_inter_nranks(self) -> int: ...


def choose_hierarchy(strategy: HierarchyOptions, launch: ProcessInfo) -> tuple[int, str]:
    """Returns the size of the blocks of neighbours by rank that sum first; 0: one level between processes.

    ``hierarchical_allreduce_inter_nranks = 0`` means the processes of one machine, if the launcher gives their number.

    Returns:
        The size, and the sentence that gives the reason in explanations.

    Raises:
        StrategyValueError: If the processes cannot be divided into blocks of the size that the strategy gives.
    """
    wanted = strategy.hierarchical_allreduce_inter_nranks
    if not strategy.use_hierarchical_allreduce:
        return 0, "off: sums go within each process, then over all processes at once."
    if launch.size == 1:
        return 0, "there is one process: sums stay within it."
    if wanted and (wanted == 1 or wanted >= launch.size or launch.size % wanted):
        fitting = [str(n) for n in range(2, launch.size) if launch.size % n == 0]
        raise StrategyValueError(
            "BuildStrategy.hierarchical_allreduce_inter_nranks does not cut the processes into equal blocks",
            expected=f"one of {', '.join(fitting)}, or 0, for {launch.size} processes"
            if fitting
            else f"0: {launch.size} processes have no equal blocks of two or more",
            received=wanted,
            fix="set it to the number of processes per machine, or leave use_hierarchical_allreduce off",
        )
    block = wanted or launch.local_size
    if not wanted and not (1 < block < launch.size and launch.size % block == 0):
        found = f"{block} of {launch.size} processes on this machine" if block else "no number of processes per machine"
        return (
            0,
            f"one level between processes: {launch.source} say {found}; hierarchical_allreduce_inter_nranks sets one.",
        )
    return (
        block,
        f"sums go within each process, then over blocks of {block} processes, then over the {launch.size // block} blocks.",
    )
