"""Tests new communicators of NCCL before their first step: results are compared with the host's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.comm.group import Communicator, Group
from tstatic.comm.transport import Part
from tstatic.devices import Array, Device, HostArray
from tstatic.ir.recording import Call
from tstatic.ir.types import dtype_of

SECONDS = 30.0
"""Time for all of it; it takes well below one where nothing is wrong."""

BUCKET = 1 << 20
"""Elements of the sum of floats: 4 MB, so that NCCL takes the path of large messages."""

_ODD = 4_099
"""Elements of the other sums: a number that no vector of NCCL's kernels divides."""


class Tested(Protocol):
    """A transport, and the members of this process; each method takes the part of each of them, as :class:`Transport`'s."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def devices(self) -> Sequence[Device]: ...
    def sum_by_nccl(self, parts: Sequence[Part]) -> list[Call]: ...
    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]: ...
    def exchange(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]: ...


def wrong(transport: Tested) -> str:
    """Returns what the communicators got wrong; empty if nothing. All members call it together.

    Each process knows what all members send, since values follow from their numbers.
    """
    group = Group(len(transport.devices))
    lanes = [group.communicator(number, device) for number, device in enumerate(transport.devices)]
    checks = (_integers, _order, _exchange, _sixteen_bits, _bucket)
    return next(filter(None, (check(transport, lanes) for check in checks)), "")


def _integers(transport: Tested, lanes: Sequence[Communicator]) -> str:
    # Above 2**53: a sum by way of floats would show.
    each = [(1 << 54) + np.arange(_ODD) * (rank + 1) for rank in range(transport.size)]
    parts = _parts(transport, lanes, each)
    _run(transport.sum_by_nccl(parts))
    expected = np.sum(each, axis=0)
    return _first_wrong("a sum of int64", parts, [part.arrays[0] for part in parts], [expected] * len(parts))


def _order(transport: Tested, lanes: Sequence[Communicator]) -> str:
    each = [np.arange(5, dtype=np.int32) + 10 * rank for rank in range(transport.size)]
    parts = _parts(transport, lanes, each)
    outs = [lane.device.upload(np.zeros((transport.size, 5), np.int32)) for lane in lanes]
    _run(transport.gather(parts, 0, outs))
    return _first_wrong("the order of a gather", parts, outs, [np.array(each)] * len(parts))


def _exchange(transport: Tested, lanes: Sequence[Communicator]) -> str:
    """Each pair of members: NCCL connects them for this, and for no sum."""
    size = transport.size
    each = [np.arange(size * 3, dtype=np.int32).reshape(size, 3) + 1000 * rank for rank in range(size)]
    parts = _parts(transport, lanes, each)
    outs = [lane.device.upload(np.zeros((size, 3), np.int32)) for lane in lanes]
    _run(transport.exchange(parts, 0, outs))
    expected = [np.array([one[transport.rank + number] for one in each]) for number in range(len(parts))]
    return _first_wrong("an exchange", parts, outs, expected)


def _sixteen_bits(transport: Tested, lanes: Sequence[Communicator]) -> str:
    for name in ("float16", "bfloat16"):
        dtype = dtype_of(name).np
        # Exact whatever the order: one member has a number, the others have zeros. Neighbours differ among the members.
        whole = np.arange(3 * _ODD)
        each = [np.where(whole % transport.size == r, whole % 7 + 1, 0).astype(dtype) for r in range(transport.size)]
        all_of = _parts(transport, lanes, each)
        middle = [
            Part(part.lane, [part.lane.device.slice(part.arrays[0], _ODD, (_ODD,))]) for part in all_of
        ]  # fmt: skip
        _run(transport.sum_by_nccl(middle))
        expected = []
        for number in range(len(all_of)):
            one = each[transport.rank + number].copy()
            one[_ODD : 2 * _ODD] = np.sum([a[_ODD : 2 * _ODD].astype(np.float32) for a in each], axis=0)
            expected.append(one)
        what = f"a sum of {_ODD:,} {name} between others that it must not touch"
        found = _first_wrong(what, all_of, [part.arrays[0] for part in all_of], expected)
        if found:
            return found
    return ""


def _bucket(transport: Tested, lanes: Sequence[Communicator]) -> str:
    each = (np.random.default_rng(rank).random(BUCKET, np.float32) - np.float32(0.5) for rank in itertools.count())
    total, bound = np.zeros(BUCKET), np.zeros(BUCKET)
    mine = []
    for rank, one in zip(range(transport.size), each, strict=False):
        total += one
        bound += np.abs(one)
        if 0 <= rank - transport.rank < len(lanes):
            mine.append(one)
    parts = [Part(lane, [lane.device.upload(one)]) for lane, one in zip(lanes, mine, strict=True)]
    _run(transport.sum_by_nccl(parts))
    # Of a sum in any order: each of its additions rounds a partial sum, which is at most the sum of magnitudes.
    bound *= transport.size * float(np.finfo(np.float32).eps)
    for number, part in enumerate(parts):
        got = _read(part, part.arrays[0])
        off = ~(np.abs(got - total) <= bound)  # NaN is off, too
        if off.any():
            at = int(np.argmax(off))
            return f"a sum of float32 on rank {transport.rank + number}: element {at} is {got[at]}, not {total[at]}"
    return ""


def _parts(transport: Tested, lanes: Sequence[Communicator], each: Sequence[HostArray]) -> list[Part]:
    """Returns what the members of this process bring, of what all members bring."""
    return [Part(lane, [lane.device.upload(each[transport.rank + number])]) for number, lane in enumerate(lanes)]


def _run(calls: Sequence[Call]) -> None:
    for function, arguments in calls:
        function(*arguments)


def _read(part: Part, array: Array) -> HostArray:
    return part.lane.device.to_host(array, part.lane.stream)


def _first_wrong(what: str, parts: Sequence[Part], arrays: Sequence[Any], expected: Sequence[HostArray]) -> str:
    for number, (part, array, right) in enumerate(zip(parts, arrays, expected, strict=True)):
        got = _read(part, array)
        off = got != right
        if off.any():
            at = int(np.argmax(off))
            was, should = got.reshape(-1)[at], right.reshape(-1)[at]
            return f"{what}, part {number}: element {at} is {was}, not {should}"
    return ""


__all__ = ["BUCKET", "SECONDS", "Tested", "wrong"]
