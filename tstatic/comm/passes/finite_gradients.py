"""Finds out, before gradients are summed, whose are not finite: a sum shows that one is, but not which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.devices import Array, Device, HostArray
from tstatic.devices.step import Stream
from tstatic.errors import RankNumericsError
from tstatic.ir.types import dtype_of

Look = Callable[[Sequence[HostArray], HostArray | None], None]
"""Looks at gradients, and at a flat array that has the values of all of them, if there is one: :meth:`Watch.look_at`."""

_PIECE = 1 << 19
"""Elements that are looked at and added together: 2 MB of float32 stay in a cache, and calls are few."""
_NAMED = 4
"""So many gradients a message names: one NaN mostly spoils those of all layers before it."""


def all_finite(array: HostArray) -> bool:
    """Returns whether an array of floats or complex numbers holds neither NaN nor infinity.

    One pass without a copy for most types: NaN and infinity survive in a sum of squares. That of finite values may overflow, so
    a suspicion is looked into. The product of BLAS takes 0.1 ns for a float32, ``isfinite`` 0.2 to 3 (a pass more, and a mask).
    """
    if not array.size:
        return True
    if array.dtype.itemsize == 2:  # sums of 16-bit floats are slow: their bits are looked at, without the sign
        bits = array.view(np.uint16)
        # The least bits of an infinity: all ones in the exponent, which float16 and bfloat16 place differently.
        return bool((bits & 0x7FFF).max() < (0x7C00 if array.dtype == np.float16 else 0x7F80))
    with np.errstate(all="ignore"):
        return _is_finite(array.reshape(-1))


def _is_finite(flat: HostArray) -> bool:
    found = np.dot(flat, flat) if flat.dtype.kind == "f" else np.add.reduce(flat)
    return bool(np.isfinite(found) or np.isfinite(flat).all())


@dataclass(frozen=True)
class Finding:
    """The gradients of one collective, and what is known of them.

    Attributes:
        names: Those that are not finite; all of the collective, if ``counts`` has yet to be read.
        where: The user's line.
        counts: Array of a device: how many values of each gradient are not finite.
    """

    names: tuple[str, ...]
    where: str
    counts: Array | None = None


class Watch:
    """Looks at one replica's gradients before one collective sums them.

    Args:
        device: The replica's device.
        arrays: Its arrays.
        names: Their names.
        where: The user's line.
        findings: What is found is added here; on a device whose work runs late, where it will stand.
    """

    def __init__(
        self, device: Device, arrays: Sequence[Array], names: Sequence[str], where: str, findings: list[Finding]
    ) -> None:
        kept = [(a, n) for a, n in zip(arrays, names, strict=True) if a.size and dtype_of(a.dtype).is_inexact]
        self._device = device
        self._arrays = [a for a, _ in kept]
        self._names = tuple(n for _, n in kept)
        self._where = where
        self._findings = findings
        self.of_host = all(isinstance(a, np.ndarray) for a in self._arrays)

    def look(self, stream: Stream) -> None:
        """Looks at all of the gradients."""
        if self.of_host:
            self.look_at(self._arrays)
        else:
            counts = self._device.check_finite(self._arrays, stream)
            self._findings.append(Finding(self._names, self._where, counts))

    def look_at(self, arrays: Sequence[HostArray], flat: HostArray | None = None) -> None:
        """Looks at some of the gradients.

        Args:
            arrays: They.
            flat: An array that has the values of all of them, if there is one: a single look at it will do mostly.
        """
        if flat is None or not all_finite(flat):
            self._add(tuple(n for a, n in self._each() if any(a is one for one in arrays) and not all_finite(a)))

    def found_in(self, part: HostArray, values: HostArray | None = None) -> None:
        """Records that a part of the replica's memory, in which some of its gradients lie, is not finite.

        Args:
            part: It.
            values: What it held, if that has been replaced.
        """
        low = part.ctypes.data
        names = []
        for array, name in self._each():
            start = max(0, (low - array.ctypes.data) // array.itemsize)
            end = min(array.size, (low + part.nbytes - array.ctypes.data) // array.itemsize)
            begin = start + (array.ctypes.data - low) // array.itemsize
            if start < end and not all_finite((part if values is None else values)[begin : begin + end - start]):
                names.append(name)
        self._add(tuple(names))

    def _each(self) -> Iterator[tuple[HostArray, str]]:
        yield from zip(self._arrays, self._names, strict=True)

    def _add(self, names: tuple[str, ...]) -> None:
        known = {name for one in self._findings for name in one.names}
        if new := tuple(name for name in names if name not in known):
            self._findings.append(Finding(new, self._where))


Add = Callable[[Sequence[HostArray], Sequence[HostArray]], None]


class WatchedSum:
    """Adds the replicas' gradients piece by piece, and looks for NaN and infinity in each sum.

    A sum is not finite if a part is not; only then are the parts looked at. It still lies in a cache, where a look costs next to
    nothing. Looks at all parts before, or sums beside them that are copied afterwards, took a fifth of the step of a net of dense
    layers.

    The sum replaces the first part, if that receives it. Where another part is not finite either, nobody can tell any more what the
    first one was: the other is named alone.

    Args:
        add: Writes the sum of its first argument's arrays to those of its second, of which the first part may be one.
        parts: Flat arrays, one for each replica.
        to: Numbers of those that receive the sum.
        watches: For each replica, what records its findings.
    """

    def __init__(self, add: Add, parts: Sequence[HostArray], to: Sequence[int], watches: Sequence[Watch]) -> None:
        self._add = add
        dtype = dtype_of(parts[0].dtype).compute.np
        # 16-bit floats are added in float32, so their sum needs memory of its own.
        self._in_place = 0 in to and parts[0].dtype == dtype
        scratch: HostArray = np.empty(0 if self._in_place else min(parts[0].size, _PIECE), dtype)
        self._watches = watches
        self._rows: list[tuple[list[HostArray], HostArray, list[HostArray]]] = []
        for start in range(0, parts[0].size, _PIECE):
            pieces = [part[start : start + _PIECE] for part in parts]
            total = pieces[0] if self._in_place else scratch[: pieces[0].size]
            self._rows.append((pieces, total, [pieces[replica] for replica in to if pieces[replica] is not total]))

    def __call__(self) -> None:
        with np.errstate(all="ignore"):
            for pieces, total, targets in self._rows:
                self._add(pieces, [total])
                if not _is_finite(total):
                    self._blame(pieces, total)
                for target in targets:
                    np.copyto(target, total, casting="unsafe")

    def _blame(self, pieces: Sequence[HostArray], total: HostArray) -> None:
        """Records whose part is not finite; ``total`` may have replaced the first."""
        for piece, watch in zip(pieces, self._watches, strict=True):
            if piece is not total and not all_finite(piece):
                watch.found_in(piece)
        if self._in_place:
            others = np.sum([np.abs(piece) for piece in pieces[1:]], axis=0)
            # Where the others are finite and too small to make the sum of finite parts overflow, it was the first.
            theirs = others < np.finfo(others.dtype).max * np.finfo(others.dtype).eps
            self._watches[0].found_in(total, np.where(theirs, total, 0))


def settled(device: Device, findings: Sequence[Finding], stream: Stream) -> list[tuple[str, str]]:
    """Returns the gradients that are not finite, each with the user's line; waits for the device where it must."""
    found: list[tuple[str, str]] = []
    for one in findings:
        names: Sequence[str] = one.names
        if one.counts is not None:
            names = [n for n, bad in zip(one.names, device.to_host(one.counts, stream), strict=True) if bad]
        found += [(name, one.where) for name in names]
    return found


def refusal(notes: Sequence[Any], size: int) -> RankNumericsError | None:
    """Returns the error that all replicas of all processes raise; ``None`` if all gradients are finite.

    Args:
        notes: For each process, replica -> its gradients that are not finite, as :func:`settled` returns them; or ``None``.
        size: Number of replicas of a process.
    """
    bad = [
        (rank, int(place), found)
        for rank, note in enumerate(notes)
        for place, found in sorted((note or {}).items(), key=lambda one: int(one[0]))
    ]
    if not bad:
        return None

    def called(rank: int, place: int) -> str:
        rank_of = f"rank {rank} of {len(notes)}" if len(notes) > 1 else ""
        place_of = f"place {place} of {size}" if size > 1 or not rank_of else ""
        return ", ".join(filter(None, (rank_of, place_of)))

    def listed(found: Sequence[Sequence[str]]) -> str:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return ", ".join(name for name, _ in found[:_NAMED]) + more

    who = "; ".join(called(rank, place) for rank, place, _ in bad)
    first, where = bad[0][2][0]
    error = RankNumericsError(
        f"gradients of {who} hold NaN or infinity; nothing was summed into the parameters",
        expected="finite gradients on every rank and place before they are summed",
        received="; ".join(f"{called(rank, place)}: {listed(found)}" for rank, place, found in bad),
        fix="look at the data of that rank or place; FLAGS_check_nan_inf=1 names the operator, and "
        "FLAGS_check_rank_gradients=0 lets such a step go on",
        var=first,
        where=where or None,
    )
    if size > 1:
        error.replica = f"{bad[0][1]} of {size}"
    return error


__all__ = ["Finding", "Look", "Watch", "WatchedSum", "all_finite", "refusal", "settled"]
