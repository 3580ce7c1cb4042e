"""How work is cut into tiles: how much of each kind of work a tile holds, and which part of each slot it gets.

Shapes and attributes alone decide, never the machine or the number of threads: so results do not depend on those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tstatic.ir.ref import pick
from tstatic.ir.types import Meta, Shape


class _Whole:
    def __repr__(self) -> str:
        return "WHOLE"


class _PartialSum:
    def __repr__(self) -> str:
        return "PARTIAL_SUM"


WHOLE = _Whole()
"""In a tile: the argument is passed whole."""
PARTIAL_SUM = _PartialSum()
"""In a tile: the output is written to a buffer of the tile's own; all tiles are then added in order."""

Index = tuple[Any, ...]
"""Slices, and perhaps one ellipsis, that take a part of an array."""

Tile = tuple[Any, ...]
"""One entry per input and output slot: ``None`` (not passed), ``WHOLE``, ``PARTIAL_SUM`` (outputs), or an index; a list of
them for a slot of several arrays."""


# ------------------------------------------------------------------------------------------------------------ tile sizes
_forced: float | None = None


@contextmanager
def tile_size(work: float) -> Iterator[None]:
    """Makes every kind of work have tiles of this size: tests cut arrays of a few elements with it."""
    global _forced
    before, _forced = _forced, work
    try:
        yield
    finally:
        _forced = before


@dataclass(frozen=True, slots=True)
class TileSize:
    """How much of one kind of work a tile holds: about 100 microseconds on one core.

    Attributes:
        work: Elements, or floating-point operations where that is said.
        most: The largest number of tiles; 0 for tiles of one size, as many as there are.
        even: Makes the number a power of two, and the tiles equal: that keeps two threads busy to the end.
        pair: With ``even``: tiles' work from which there are two; less than two where an idle core costs more than small tiles.
    """

    work: float
    most: int = 0
    even: bool = False
    pair: float = 2.0

    @property
    def size(self) -> int:
        """Returns the work of a tile."""
        return int(self.work if _forced is None else _forced)

    def count(self, work: float) -> int:
        """Returns the number of full tiles of some work, up to the most."""
        full = int(work // self.size)
        return min(self.most, full) if self.most else full

    def parts(
        self, items: int, work: float, multiple: int = 1, most: int | None = None, times: float = 1.0
    ) -> list[slice] | None:
        """Cuts items that lie along an axis; ``None`` if there would be a single tile.

        Args:
            items: How many there are.
            work: Their total work.
            multiple: Each tile but the last holds a multiple of so many items.
            most: Replaces the field.
            times: Makes even tiles so many times as large.
        """
        most = self.most if most is None else most
        if items < 2:
            return None
        if self.even:
            count, whole = 1, items // multiple
            # By doubling: with a power of two, two, four or eight threads end together.
            while (
                2 * count <= min(most, whole) and work >= (self.pair if count == 1 else 2 * count) * self.size * times
            ):
                count *= 2
            if count == 1:
                return None
            # Multiples but for the last bound, which takes the rest.
            bounds = [*(whole * i // count * multiple for i in range(count)), items]
            found = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        elif most:
            found = equal(items, max(1, self.count(work)), multiple)
        # Up to one and a half tiles stay whole: the second would be too small to pay for waking a thread.
        elif work <= self.size + self.size // 2:
            return None
        else:
            found = ranges(items, max(1, int(self.size * items // work) // multiple) * multiple)
        return found if len(found) > 1 else None


POINTWISE = TileSize(1 << 18)
"""Elements of expressions and updates. Smaller tiles would stay in a nearer cache, but with several threads every call of
numpy waits 2 to 8 microseconds for the interpreter's lock, so fewer calls are faster (measured: 1 << 15 is 8 % slower)."""
ELEMENTS = TileSize(1 << 16)
"""Elements that cost about 1.5 ns: special functions, random numbers, sorting, and copies that change the order."""
ROWS = TileSize(1 << 16, 16)
"""Elements of softmax and its like, at 1 ns."""
FILTERS = TileSize(1 << 16, 16, even=True)
"""Elements of resampling and of local response normalization, cut along the batch."""
BATCHES = TileSize(1 << 17, 16, even=True)
"""Elements of normalizations and of sliding blocks, cut along the batch."""
IMAGES = TileSize(1 << 19, 16, even=True)
"""Elements of pooling and of copies of whole rows and channels."""
CHANNELS = TileSize(1 << 18, 8, even=True, pair=1.0)
"""Elements of batch normalization, cut along the channels: short rows would cost more than they save. Of 64 images of
64x8x8 each of two halves takes 0.1 ms, the whole 0.15; of the gradient 0.14 and 0.21."""
COLUMNS = TileSize(1 << 18)
"""Elements read and written by sums at indices, cut along columns: every tile sorts the indices again."""
SUMS = TileSize(1 << 18, 16)
"""Elements that are reduced, or that a reduced value is spread over; in any number of tiles up to the most."""
PRODUCTS = TileSize(4e6)
"""Operations below which a matrix product stays whole: 45 us on one core, some four times what waking a thread costs."""
CONVOLUTIONS = TileSize(4e7, 16, even=True, pair=1.25)
"""Operations of the smallest tile of a convolution, which also rearranges the filters: half a millisecond."""

RECURRENCES = TileSize(4e7, 16, even=True)
"""Operations of the smallest tile of a recurrence, which also transposes the weights: half a millisecond."""


# ----------------------------------------------------------------------------------------------------------- parts, tiles
def ranges(items: int, length: int) -> list[slice]:
    """Returns the ranges of a given length that make up ``items``; the last may be shorter."""
    return [slice(i, min(i + length, items)) for i in range(0, items, length)]


def equal(items: int, count: int, multiple: int = 1) -> list[slice]:
    """Returns at most ``count`` ranges of one length, which is a multiple of ``multiple``."""
    return ranges(items, -(-items // (count * multiple)) * multiple)


def along(axis: int, part: slice) -> Index:
    """Returns the index of a part along one axis, counted from the end if it is negative."""
    return (*[slice(None)] * axis, part) if axis >= 0 else (..., part, *[slice(None)] * (-1 - axis))


Entry = Any
"""What becomes of a slot: an axis, ``FIRST`` or ``FREE``: it is cut along it. ``WHOLE``, ``PARTIAL_SUM`` or ``None`` (it is
not passed): itself."""
FIRST = "first"
"""The first axis with more than one item: its parts are each one run in C order."""
FREE = "free"
"""An axis that is not taken (:func:`free_axis`)."""


def tiles(parts: Sequence[slice] | None, *entries: Entry) -> list[Tile] | None:
    """Returns a tile for each part: an entry that is an axis becomes the part along it, any other stays."""
    if parts is None:
        return None
    return [tuple(along(e, p) if isinstance(e, int) else e for e in entries) for p in parts]


def free_axis(shape: Shape, taken: Sequence[int], tiles: int) -> int | None:
    """Returns an axis that is not ``taken``: the first that gives so many tiles, or 16, or else the first of the longest."""
    free = [i for i, n in enumerate(shape) if i not in taken and n > 1]
    # The outermost axis that is long enough: its parts are the longest runs of memory.
    long = [i for i in free if shape[i] >= min(16, tiles)]
    return long[0] if long else max(free, key=lambda i: shape[i], default=None)


def row_parts(shape: Shape, size: TileSize, multiple: int = 1) -> tuple[int, list[slice] | None]:
    """Returns the first axis with more than one item, and its parts.

    Args:
        shape: Known sizes.
        size: How much a tile holds.
        multiple: Each tile but the last holds a multiple of so many elements.
    """
    axis, total = next((i for i, n in enumerate(shape) if n > 1), 0), math.prod(shape)
    if total <= 1:
        return 0, None
    inner = math.prod(shape[axis + 1 :])
    # What counts is the elements of a part: rows times those of each.
    return axis, size.parts(shape[axis], total, multiple // math.gcd(inner, multiple))


Taken = str | Sequence[int] | Callable[..., Sequence[int]]


class Split:
    """The ``split`` of an op whose slots are each cut along one axis, or passed whole.

    One slot says how much work there is, and how many items lie along the axis. A slot whose axis is fixed and has a multiple of
    them is cut into parts as many times longer; if one has another number of items, nothing is cut.

    Args:
        size: The kind of work.
        entries: An :data:`Entry` per input and output slot, or a single one for all.
        work: The position of the slot that says how much work there is; by default the largest of those that are cut.
        taken: The axes that ``FREE`` is not: these, those that an attribute names, or ``(meta of that slot, **attrs) -> axes``.
        unless: An attribute; if it is true, nothing is cut.
        multiple: With ``FIRST``: each tile but the last holds a multiple of so many elements.
    """

    def __init__(
        self,
        size: TileSize,
        *entries: Entry,
        work: int | None = None,
        taken: Taken = (),
        unless: str = "",
        multiple: int = 1,
    ) -> None:
        self.size, self.entries, self.work = size, entries, work
        self.taken, self.unless, self.multiple = taken, unless, multiple

    def __call__(self, *metas: Any, **attrs: Any) -> list[Tile] | None:
        least = self.size.size
        # No kind of work is cut below the work of a tile; small nets are bound for one size after another.
        deciding = metas if self.work is None else (metas[self.work],)
        if all(m is None or (isinstance(m, Meta) and m.numel < least) for m in deciding):
            return None
        slots = [m if isinstance(m, list | tuple) else [m] for m in metas]
        entries = self.entries * len(slots) if len(self.entries) == 1 else self.entries
        cut = [(m, e) for ms, e in zip(slots, entries, strict=True) for m in ms if m is not None and _is_axis(e)]
        # Sizes below 1 are unknown (-1) or empty.
        if attrs.get(self.unless) or any(min(m.shape, default=1) < 1 for m, _ in cut):
            return None
        chosen = [(metas[self.work], entries[self.work])] if self.work is not None else cut
        # Of several slots the largest says how much work there is.
        full, entry = max(chosen, key=lambda pair: pair[0].numel)
        if full.numel < least:
            return None
        taken = self._taken(full, attrs)
        parts: list[slice] | None = None
        if entry == FIRST:
            axis, parts = row_parts(full.shape, self.size, self.multiple)
        else:
            free = free_axis(full.shape, taken, self.size.count(full.numel)) if entry == FREE else entry
            axis = 0 if free is None else free
            parts = None if free is None else self.size.parts(full.shape[axis], full.numel)
        if parts is None or any(_place(m, e, full, axis, taken) is None for m, e in cut):
            return None

        def index(meta: Meta | None, e: Entry, part: slice) -> Any:
            place = _place(meta, e, full, axis, taken) if meta is not None and _is_axis(e) else None
            return e if place is None else along(place[0], slice(part.start * place[1], part.stop * place[1]))

        return [
            tuple(
                [index(m, e, part) for m in ms] if ms is given else index(given, e, part)
                for given, ms, e in zip(metas, slots, entries, strict=True)
            )
            for part in parts
        ]

    def _taken(self, full: Meta, attrs: Mapping[str, Any]) -> list[int]:
        if isinstance(self.taken, str):
            found = attrs[self.taken]
        else:
            found = self.taken(full, **pick(self.taken, attrs)) if callable(self.taken) else self.taken
        return [a % full.rank for a in ([found] if isinstance(found, int) else found)] if full.rank else []


def _is_axis(entry: Entry) -> bool:
    return isinstance(entry, int | str)


def _place(meta: Meta, entry: Entry, full: Meta, axis: int, taken: Sequence[int]) -> tuple[int, int] | None:
    """Returns a slot's axis and how many items there belong to one of ``full``; ``None`` if the slot does not fit."""
    at = entry if isinstance(entry, int) else axis
    if entry == FREE and meta.rank == full.rank - len(taken):
        # A reduction that keeps none of the taken axes.
        at -= sum(t < axis for t in taken)
    elif not isinstance(entry, int) and (
        meta.rank != full.rank or (entry == FIRST and max(meta.shape[:axis], default=1) > 1)
    ):
        return None
    times, rest = divmod(meta.shape[at], full.shape[axis]) if at < meta.rank else (0, 0)
    return (at, times) if times and not rest and (times == 1 or isinstance(entry, int)) else None
