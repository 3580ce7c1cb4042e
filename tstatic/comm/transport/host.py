"""Moves values between the places of one process: the host's threads queue copies and ordered sums in the places' streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tstatic.comm.passes.finite_gradients import WatchedSum
from tstatic.comm.transport import Part, flattened, ordered_sum, rows_of
from tstatic.devices import Array, Device
from tstatic.ir.recording import Call

_UNDIVIDED = 1 << 15
"""Elements up to which one place sums everything: dividing the work takes a second rendezvous."""


class HostTransport:
    """Connects the places of one process, which can access each other's memory.

    Sums are taken in the order of the places, element by element: each element by one of them, whoever arrives first.

    Args:
        size: Number of places.
        through_host: Whether the host adds the arrays of devices whose work it does not do otherwise.
    """

    rank = 0
    own_streams = False

    def __init__(self, size: int, through_host: bool = False) -> None:
        self.size = size
        self.only_queues = not through_host
        self._sum = ordered_sum.HOST_SUM if through_host else ordered_sum.SUM

    def of_ring(self, ring: int) -> Self:
        return self

    def shared(self, method: str, elements: int) -> bool:
        if self.size == 1 or method == "gather":
            return False
        return method != "sum" or elements > _UNDIVIDED

    def sum(self, parts: Sequence[Part], mine: int, roots: Sequence[int] | None = None, block: int = 0) -> list[Call]:
        if self.size == 1:
            return []
        lane, own, watch = parts[mine].lane, parts[mine].arrays, parts[mine].watch
        to = [range(self.size)] * len(own) if roots is None else [range(root, root + 1) for root in roots]
        divided = self.shared("sum", sum(array.size for array in own))
        number, count = (mine, self.size) if divided else (0, 1)
        made: list[Call] = []
        for arrays, targets in joined(lane.device, parts, to):
            # Shares by position in the array, equal on all places: each
            # element is summed by one place, in the order of all.
            low, high = (arrays[0].size * share // count for share in (number, number + 1))
            if high > low:
                rows = [lane.device.slice(array, low, (high - low,)) for array in arrays]
                # Looked at while the sum is in a cache, not in a pass of its own before it.
                if watch is not None and watch.of_host:
                    watches = [part.watch for part in parts if part.watch is not None]
                    made.append((WatchedSum(ordered_sum.add_in_order, rows, targets, watches), ()))
                    continue
                made += lane.bind_definition(
                    self._sum, [rows], [[rows[r] for r in targets]], {"in_place": 0 in targets}
                )
        return made

    def scatter(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        device, out = parts[mine].lane.device, outs[mine]
        rows = [device.slice(flattened(device, part.arrays[0]), mine * out.size, out.shape) for part in parts]
        return parts[mine].lane.bind_definition(self._sum, [rows], [[out]], {"in_place": False})

    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array | None]) -> list[Call]:
        device, stream, out = parts[mine].lane.device, parts[mine].lane.stream, outs[mine]
        rows = rows_of(device, out)
        made: list[Call] = [(device.copy, (row, part.arrays[0], stream)) for row, part in zip(rows, parts, strict=True)]
        return made + [(device.copy, (one, out, stream)) for one in outs if one is not None and one is not out]

    def send(self, parts: Sequence[Part], mine: int, roots: Sequence[int]) -> list[Call]:
        device, stream, own = parts[mine].lane.device, parts[mine].lane.stream, parts[mine].arrays
        return [(device.copy, (own[i], parts[root].arrays[i], stream)) for i, root in enumerate(roots) if root != mine]

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        return [note]  # there is no other process; the places have met before one of them asks

    def abort(self, error: BaseException) -> None:
        """Does nothing: work in streams ends by itself, and nothing here waits for another member."""


def joined(
    device: Device, parts: Sequence[Part], to: Sequence[Sequence[int]]
) -> list[tuple[list[Array], Sequence[int]]]:
    """Returns few sums that cover all: the flat array of each place, and the places that get the sum.

    Arrays that are adjacent on every place are summed as one. Parts of a batch that differ in size have different arenas, so what
    is adjacent on one place need not be so on another.
    """
    done: list[tuple[list[Array], Sequence[int]]] = []
    for i, targets in enumerate(to):
        arrays = [part.arrays[i] for part in parts]
        if not arrays[0].size:
            continue
        if done and done[-1][1] == targets:
            # Fewer, longer sums: each costs calls on every place.
            longer = [device.join(a, b) for a, b in zip(done[-1][0], arrays, strict=True)]
            if len({0 if one is None else one.size for one in longer}) == 1 and longer[0] is not None:
                done[-1] = longer, targets
                continue
        done.append((arrays, targets))
    return done


__all__ = ["HostTransport", "joined"]
