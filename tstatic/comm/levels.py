"""Sums over processes, over all at once or block by block, in the order of the ranks where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.comm.gloo import Gloo, Store
from tstatic.comm.group import add_in_order

Array = np.ndarray[Any, Any]
Ended = Callable[[], bool]
"""Says whether work has ended."""

_GATHERED = 1 << 15
"""Bytes up to which every rank sends all it has to all: above, each adds a part, so that fewer bytes travel."""


class Levels:
    """All processes, and the blocks into which they are cut.

    Args:
        store: Where the ranks find each other.
        rank: This process.
        size: How many there are.
        host: Address of this machine that the others reach.
        wait: Returns when work has ended, or raises.

    Attributes:
        all: Connects all processes.
    """

    def __init__(self, store: Store, rank: int, size: int, host: str, wait: Callable[[Ended], None]) -> None:
        self._store = store  # rank 0 keeps the table, in which late ranks still look gloo's addresses up
        self._rank, self._size, self._host, self._wait = rank, size, host, wait
        self.all = Gloo(store.table, rank, size, host)
        self._blocks: dict[int, tuple[Gloo, Gloo | None]] = {}

    def __contains__(self, block: int) -> bool:
        return block == 0 or block in self._blocks

    def form(self, block: int) -> None:
        """Connects blocks of so many neighbours, and the first process of each with the first ones of the others."""
        number, place = divmod(self._rank, block)
        within = Gloo(self._store.under(f"block/{block}/{number}"), place, block, self._host)
        heads = None
        if place == 0:
            heads = Gloo(self._store.under(f"heads/{block}"), number, self._size // block, self._host)
        self._blocks[block] = within, heads

    def add(self, flats: Sequence[Array], strict: bool, block: int) -> None:
        """Sums flat arrays, in place; within blocks first, unless ``block`` is 0."""
        if not block:
            self._add(self.all, flats, strict)
            return
        within, heads = self._blocks[block]
        self._add(within, flats, strict)
        if heads is not None:
            self._add(heads, flats, strict)
        for ended in [within.broadcast(flat, 0) for flat in flats]:
            self._wait(ended)

    def _add(self, gloo: Gloo, flats: Sequence[Array], strict: bool) -> None:
        if strict:
            for flat in flats:
                self._add_in_order(gloo, flat)
        else:
            for ended in [gloo.add(flat) for flat in flats]:
                self._wait(ended)

    def _add_in_order(self, gloo: Gloo, flat: Array) -> None:
        if flat.nbytes <= _GATHERED:
            parts = np.empty((gloo.size, flat.size), flat.dtype)
            self._wait(gloo.gather(flat, list(parts)))
            add_in_order(list(parts), [flat])
            return
        # Each rank adds one part: equal ones, so the last may be padded.
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
        return [self.all, *(one for pair in self._blocks.values() for one in pair if one is not None)]

    def stop(self) -> bool:
        """Ends what is under way, so that no array is written any more; returns whether that worked."""
        ended = [gloo.stop() for gloo in self._gloos()]
        return all(ended)

    def close(self) -> None:
        """Ends gloo's threads while Python still runs."""
        for gloo in self._gloos():
            gloo.close()
