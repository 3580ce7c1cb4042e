"""Says what work takes on the virtual clock of the fake device."""

from __future__ import annotations

from typing import NamedTuple

from tstatic.target import Target


class Cost(NamedTuple):
    """What an item takes: seconds, and bytes in a second."""

    launch: float
    bandwidth: float

    def seconds(self, nbytes: int) -> float:
        """Returns the time of an item that reads and writes so many bytes."""
        return self.launch + nbytes / self.bandwidth


def costs(chip: Target) -> dict[str, Cost]:
    """Returns what each kind of work takes on a chip.

    ``kernel``: an op, or a launch of a generated kernel. ``copy``: between the memories of host and chip. ``collective``: work in
    a stream of collectives. ``host``: an op that calls Python or finds sizes, which the device waits for.
    """
    return {
        "kernel": Cost(4e-6, chip.bandwidth),
        "copy": Cost(8e-6, chip.host_bandwidth),
        "collective": Cost(2e-5, chip.link_bandwidth),
        "host": Cost(3e-5, 1e10),
    }
