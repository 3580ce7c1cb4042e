"""Cuts the gradients of a program into buckets by bytes, and a bucket into collectives where one gradient is larger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tstatic.comm.passes.distribution import FIRST_BYTES, Distribution
from tstatic.ir.types import DType, Meta

GRAIN = 256
"""Bytes of which the parts of a bucket are multiples: what memory is aligned to, so that copies of whole vectors stay possible."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """A parameter's gradient: its value, the op that completes it, the first op that reads it.

    ``hold``: the truth value by which a run adds to a sum that a later run completes; ``None``: each run completes it.
    """

    param: str
    value: str
    made: int
    read: int
    hold: str | None = None


@dataclass(slots=True)
class _Open:
    """A bucket that still takes gradients, and the bytes at which it is full."""

    gradients: list[Gradient]
    nbytes: int
    limit: float


def cut(gradients: Sequence[Gradient], metas: Mapping[str, Meta], how: Distribution) -> Iterator[list[Gradient]]:
    """Yields buckets in the order in which they are complete.

    A bucket holds gradients of one dtype, in the order of completion, and is full at ``how.bucket_bytes``. It ends before a
    gradient that is complete only when an op has read one of the bucket. Where buckets have a size, the first one of a dtype ends
    as soon as it has ``FIRST_BYTES``, so that it starts early, and the gradients of the last ``how.last_bytes`` are apart: when the
    backward part ends, they alone have not started.

    Args:
        gradients: In the order in which the backward part completes them.
        metas: Metadata of their values.
        how: The settings.
    """
    most = float("inf") if how.bucket_bytes is None else how.bucket_bytes
    tail = _tail(gradients, metas, how)
    # One for each dtype: a sum has one, and gradients of several alternate (float32 scales of norms beside 16-bit products).
    current: dict[tuple[DType, str | None], _Open] = {}
    done: list[list[Gradient]] = []
    begun: set[tuple[DType, str | None]] = set()
    for number, g in enumerate(gradients):
        meta = metas[g.value]
        kind = meta.dtype, g.hold
        if number == tail:
            done += [one.gradients for one in current.values()]
            current.clear()
        bucket = current.get(kind)
        if bucket is not None:
            enough = len(bucket.gradients) >= how.bucket_count
            full = bucket.nbytes >= bucket.limit or bucket.nbytes + meta.nbytes > most
            # Summed where its last gradient is complete, which must be before the first op that reads one of them.
            if how.bucket_count == 0 or (full and enough) or min(b.read for b in bucket.gradients) <= g.made:
                done.append(current.pop(kind).gradients)
        if kind not in current:
            first = how.bucket_bytes is not None and kind not in begun
            begun.add(kind)
            current[kind] = _Open([], 0, min(most, FIRST_BYTES) if first else most)
        current[kind].gradients.append(g)
        current[kind].nbytes += meta.nbytes
    done += [one.gradients for one in current.values()]
    # Buckets of several dtypes are closed in another order than that in which their last gradients are complete.
    yield from sorted(done, key=lambda bucket: max(g.made for g in bucket))


def _tail(gradients: Sequence[Gradient], metas: Mapping[str, Meta], how: Distribution) -> int:
    """Returns the number of the first gradient of the last bucket: as many as fit, and the last one in any case."""
    at = len(gradients)
    # A least number of gradients in a collective is kept, also at the end.
    if how.bucket_bytes is None or how.bucket_count > 1:
        return at
    room = min(how.bucket_bytes, how.last_bytes)
    while at and (at == len(gradients) or metas[gradients[at - 1].value].nbytes <= room):
        at -= 1
        room -= metas[gradients[at].value].nbytes
    return at


def limit(bucket: Sequence[Gradient], metas: Mapping[str, Meta], how: Distribution) -> float:
    """Returns the most bytes of one of the collectives into which a bucket is divided; 0 for a bucket that is one collective.

    Only a single gradient that is larger than a bucket is divided: neighbours have been kept apart instead.
    """
    size = how.bucket_bytes if how.bucket_count else 0
    return size if size and len(bucket) == 1 and metas[bucket[0].value].nbytes > size else 0.0


def parts(nbytes: int, most: float) -> list[tuple[int, int]]:
    """Returns the ranges of bytes of a bucket that are one collective each: few, and equal but for the last.

    Args:
        nbytes: The bucket's size.
        most: The most bytes of a range, rounded down to a multiple of ``GRAIN``, of which there is at least one; 0: no limit.
    """
    if not most or nbytes <= most:
        return [(0, nbytes)]
    most = max(int(most) // GRAIN, 1) * GRAIN
    each = -(-nbytes // -(-nbytes // most))
    each = -(-each // GRAIN) * GRAIN
    return [(start, min(start + each, nbytes)) for start in range(0, nbytes, each)]


__all__ = ["Gradient", "cut", "limit", "parts"]
