"""How long a data-parallel step takes on so many devices: formulas for calls, bytes and time; no program is needed here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Gradient:
    """A parameter's gradient.

    Attributes:
        nbytes: Its size; the parameter has the same.
        elements: Number of its elements.
        ready: The share of the backward part's time after which it is complete.
        dtype: The type of its elements.
    """

    nbytes: int
    elements: int
    ready: float
    dtype: str = "float32"


@dataclass(frozen=True)
class Work:
    """A training step on one device.

    Attributes:
        title: What stands in the tables.
        gradients: In the order in which the backward part completes them.
        forward: Seconds.
        backward: Seconds.
        update: Seconds.
        clipped: Whether gradients are clipped by their global norm.
    """

    title: str
    gradients: tuple[Gradient, ...]
    forward: float
    backward: float
    update: float
    clipped: bool

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return sum(g.nbytes for g in self.gradients)

    @property
    def alone(self) -> float:
        """Seconds of the step on one device."""
        return self.forward + self.backward + self.update


@dataclass(frozen=True)
class Network:
    """What connects the devices, in one ring that passes all devices of a machine before it goes to the next.

    Attributes:
        title: What stands in the tables.
        machine: Devices of a machine.
        inside: Bytes per second that a device sends to the next in its machine.
        across: Bytes per second that the devices of a machine together send to the next machine.
        call: Seconds that a collective takes whatever its size and the number of devices.
        hop_inside: Seconds from a device to the next in its machine.
        hop_across: Seconds from a machine to the next.
        doubling: Whether values go over a tree of the machines, in as many steps as their number has doublings, instead of around
            the ring.
    """

    title: str
    machine: int
    inside: float
    across: float
    call: float
    hop_inside: float
    hop_across: float
    doubling: bool = False

    def time(self, devices: int, on_link: float, rounds: int) -> float:
        """Seconds of a collective that puts so many bytes on its busiest link and goes around the ring so many times."""
        machines = -(-devices // self.machine)
        across = math.ceil(math.log2(machines)) if self.doubling else machines - 1
        hops = (devices - machines) * self.hop_inside + across * self.hop_across
        speed = self.inside if machines == 1 else min(self.inside, self.across)
        return self.call + rounds * hops + on_link / speed


# ---------------------------------------------------------------------------------------------------- calls and bytes
FIRST = MEGABYTE
"""Bytes that end the first bucket: it starts early."""
LAST = MEGABYTE
"""Most bytes of the last bucket: what has not started when the backward part ends."""
GRAIN = 256
"""Bytes of which the parts of a divided gradient are multiples."""


def buckets(gradients: Sequence[Gradient], limit: float | None, last: float = LAST) -> Iterator[list[Gradient]]:
    """Gradients of one dtype that are summed together: as many as fit into ``limit`` bytes, at least one; ``None``: all.

    Where there is a limit, the first bucket ends with the gradient that fills ``FIRST`` bytes, and the last one has the gradients
    of the last ``last`` bytes, at least one.
    """
    first = FIRST if limit is not None else math.inf
    if limit is None:
        limit = last = math.inf
    tail, room = len(gradients) - 1, min(limit, last) - gradients[-1].nbytes
    while tail > 0 and gradients[tail - 1].nbytes <= room:
        tail -= 1
        room -= gradients[tail].nbytes
    current: dict[str, list[Gradient]] = {}
    begun: set[str] = set()
    done: list[list[Gradient]] = []
    for number, g in enumerate(gradients):
        if number == tail:
            done += current.values()
            current = {}
        bucket = current.setdefault(g.dtype, [])
        size = sum(b.nbytes for b in bucket)
        if bucket and (size + g.nbytes > limit or (g.dtype not in begun and size >= min(limit, first))):
            done.append(bucket)
            begun.add(g.dtype)
            bucket = current[g.dtype] = []
        bucket.append(g)
    yield from sorted([*done, *current.values()], key=lambda bucket: bucket[-1].ready)


def calls(bucket: Sequence[Gradient], limit: float | None) -> list[int]:
    """Bytes of the calls that sum a bucket: one, or equal ones of at most ``limit`` where a gradient is larger."""
    size = sum(g.nbytes for g in bucket)
    if not limit or size <= limit:
        return [size]
    most = max(int(limit) // GRAIN, 1) * GRAIN
    each = math.ceil(math.ceil(size / math.ceil(size / most)) / GRAIN) * GRAIN
    return [min(each, size - start) for start in range(0, size, each)]


def owners(gradients: Sequence[Gradient], devices: int) -> list[int]:
    """The device that updates each parameter: in backward order, the one with the fewest elements so far."""
    load = [0] * devices
    found = []
    for g in gradients:
        owner = load.index(min(load))
        load[owner] += g.elements
        found.append(owner)
    return found


def owned(gradients: Sequence[Gradient], places: Sequence[int], devices: int) -> list[int]:
    """Bytes of the parameters that each device updates."""
    load = [0] * devices
    for g, place in zip(gradients, places, strict=True):
        load[place] += g.nbytes
    return load


@dataclass(frozen=True)
class Traffic:
    """Collectives of one step: how many, and the bytes that a device brings to them."""

    calls: int
    nbytes: int


def sums(work: Work, limit: float | None) -> int:
    """Number of calls that sum the gradients."""
    return sum(len(calls(bucket, limit)) for bucket in buckets(work.gradients, limit))


def all_reduce_traffic(work: Work, limit: float | None) -> Traffic:
    """Every bucket of gradients is summed once; the number of devices does not matter."""
    return Traffic(sums(work, limit), work.nbytes)


def reduce_traffic(work: Work, limit: float | None, together: bool = True) -> Traffic:
    """Gradients are summed at the owners, then parameters are sent from them; so are, before, the parts of a norm."""
    sends = 1 if together else len(work.gradients)
    return Traffic(sums(work, limit) + sends + work.clipped, 2 * work.nbytes + norm_bytes(work))


def norm_bytes(work: Work) -> int:
    """Bytes of the parts of the global norm, one number per gradient, which every device needs to add them up."""
    return sum(g.nbytes // g.elements for g in work.gradients) if work.clipped else 0


def ring_all_reduce(nbytes: float, devices: int) -> float:
    """Bytes that each device sends: pieces of ``1/devices`` go around, once to be summed, once to be known."""
    return 2 * (devices - 1) / devices * nbytes


def ring_to_owners(loads: Sequence[float]) -> float:
    """Bytes on the busiest link when pieces go around to their owners, or from them.

    A piece passes every link but one: on the way to its owner the one behind it, on the way from it the one before it.
    """
    return sum(loads) - min(loads)


# ---------------------------------------------------------------------------------------------------------------- time
@dataclass(frozen=True)
class Step:
    """A step on several devices.

    Attributes:
        seconds: From the first op to the last parameter.
        waited: Seconds of it in which nothing is computed.
        update: Seconds of the update.
        sent: Bytes on the busiest link.
    """

    seconds: float
    waited: float
    update: float
    sent: float


def all_reduce_step(work: Work, devices: int, network: Network, limit: float | None) -> Step:
    """Each bucket is summed as soon as it is complete and the one before is done; then every device updates all."""
    if devices == 1:
        return Step(work.alone, 0.0, work.update, 0.0)
    end = 0.0
    for bucket in buckets(work.gradients, limit):
        end = max(end, bucket[-1].ready * work.backward)
        for nbytes in calls(bucket, limit):
            end += network.time(devices, ring_all_reduce(nbytes, devices), 2)
    waited = max(0.0, end - work.backward)
    return Step(work.alone + waited, waited, work.update, ring_all_reduce(work.nbytes, devices))


def reduce_step(work: Work, devices: int, network: Network, limit: float | None, together: bool = True) -> Step:
    """Buckets are summed at the owners, these update their parameters and send them; nothing hides the sending."""
    if devices == 1:
        return Step(work.alone, 0.0, work.update, 0.0)
    places = owners(work.gradients, devices)
    end, sent, at = 0.0, 0.0, 0
    for bucket in buckets(work.gradients, limit):
        size = ring_to_owners(owned(bucket, places[at : at + len(bucket)], devices))
        at += len(bucket)
        sent += size
        end = max(end, bucket[-1].ready * work.backward)
        parts = calls(bucket, limit)
        for nbytes in parts:
            end += network.time(devices, size * nbytes / sum(parts), 1)
    loads = owned(work.gradients, places, devices)
    size = ring_to_owners(loads) if together else work.nbytes
    sends = 1 if together else len(work.gradients)
    after = network.time(devices, size, 1) + (sends - 1) * network.time(devices, 0, 1)
    if work.clipped:
        after += network.time(devices, norm_bytes(work), 1)
    waited = max(0.0, end - work.backward) + after
    update = work.update * max(loads) / work.nbytes
    return Step(work.forward + work.backward + update + waited, waited, update, sent + size)
