"""Batches of row numbers, so that processes share a data set and take equally many steps."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np
from numpy.typing import NDArray

from tstatic.comm.rendezvous import launch
from tstatic.errors import TstaticError
from tstatic.io.arguments import sized
from tstatic.io.sampler import BatchSampler, Sampler
from tstatic.ir.export import export


class SamplerError(TstaticError, ValueError):
    """An argument of a sampler that is out of range."""


@export("io.DistributedBatchSampler")
class DistributedBatchSampler(BatchSampler):
    """This process's batches of a data set, as lists of row numbers.

    The row numbers are repeated from the start until they can be shared out evenly, so every process has equally many;
    process ``r`` gets them batch by batch: the first ``batch_size`` rows go to rank 0, the next to rank 1, and so on.
    What is left at the end is shared out evenly in the order of the ranks.

    Args:
        dataset: Anything with a length.
        batch_size: Rows in a batch, per process.
        num_replicas: Number of processes; ``None``: as the launcher says.
        rank: Number of this process; ``None``: as the launcher says.
        shuffle: Draws a new order for each epoch, the same on all processes, from the number of the epoch.
        drop_last: Leaves out a last batch that is not full.

    Raises:
        DataTypeError: If ``dataset`` has no length (a ``TypeError``).
        SamplerError: If an argument is out of range (a ``ValueError``).

    Example:
        >>> from tstatic import io
        >>> sampler = io.DistributedBatchSampler(range(6), batch_size=2, num_replicas=2, rank=1)
        >>> list(sampler)
        [[2, 3], [5]]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        # The arguments are its own, and so are the messages: BatchSampler's are not asked.
        Sampler.__init__(self, sized(dataset, "dataset", "DistributedBatchSampler"))
        self.dataset = dataset
        self.batch_size = _whole("batch_size", batch_size, 1)
        for name, value in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(value, bool):
                raise SamplerError(
                    f"DistributedBatchSampler got a {name} that is not a bool",
                    expected="True or False",
                    received=repr(value),
                    fix=f"pass {name}=True or {name}=False",
                )
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.nranks = launch.current().size if num_replicas is None else _whole("num_replicas", num_replicas, 1)
        self.local_rank = launch.current().rank if rank is None else _whole("rank", rank, 0)
        if self.local_rank >= self.nranks:
            raise SamplerError(
                "DistributedBatchSampler got a rank that is not among its processes",
                expected=f"a rank from 0 to {self.nranks - 1} for num_replicas={self.nranks}",
                received=self.local_rank,
                fix="leave rank and num_replicas out: they are the launcher's then",
            )
        self.epoch = 0
        self.num_samples = -(-len(dataset) // self.nranks)
        self.total_size = self.num_samples * self.nranks

    def __iter__(self) -> Iterator[list[int]]:
        rows = np.resize(np.arange(len(self.dataset)), self.total_size)
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(rows)
            self.epoch += 1
        mine = self._own(rows).tolist()
        for start in range(0, self.num_samples, self.batch_size):
            batch = mine[start : start + self.batch_size]
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def _own(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.nranks == 1:
            return rows
        left = self.total_size % (self.batch_size * self.nranks)
        whole = rows[: self.total_size - left].reshape(-1, self.nranks, self.batch_size)[:, self.local_rank]
        rest = rows[self.total_size - left :].reshape(self.nranks, -1)[self.local_rank]
        return np.concatenate([whole.reshape(-1), rest])

    def __len__(self) -> int:
        """Batches of an epoch."""
        extra = 0 if self.drop_last else self.batch_size - 1
        return (self.num_samples + extra) // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Sets the number from which the next order is drawn; without it each pass counts one up."""
        self.epoch = _whole("epoch", epoch, 0)


def _whole(name: str, value: object, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise SamplerError(
            f"DistributedBatchSampler got a {name} that is not a number of the kind",
            expected=f"a whole number from {low}",
            received=repr(value),
            fix=f"pass {name} as an int >= {low}",
        )
    return int(value)


__all__ = ["DistributedBatchSampler", "SamplerError"]
