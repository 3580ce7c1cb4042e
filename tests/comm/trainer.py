"""What the ranks of ``test_training.py`` do: they stay connected and train as they are told, each on its own rows."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tstatic as paddle
from tests.parallel.test_equality import Nets, batch_of
from tstatic import distributed, flags
from tstatic.comm.processes import Processes
from tstatic.static import compile

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Order:
    """One training.

    Attributes:
        optimizer, clip: Names in ``OPTIMIZERS`` and ``CLIPS``.
        norm: Whether the net has a batch norm.
        rows: Per process, rows of each of its places.
        choice: As ``Nets.chosen`` takes it.
        steps: How many, on the same batch.
        strict: Whether sums over processes have an order.
        seed: Of the batch.
        fault: A name in ``FAULTS``, for tests of the tests.
    """

    optimizer: str
    clip: str
    norm: bool
    rows: tuple[tuple[int, ...], ...]
    choice: dict[str, Any]
    steps: int
    strict: bool
    seed: int
    fault: str = ""

    @property
    def sizes(self) -> list[int]:
        """Rows of each place of all processes."""
        return [size for process in self.rows for size in process]

    @property
    def batch(self) -> dict[str, Array]:
        """The rows of all processes."""
        return batch_of(sum(self.sizes), self.seed)

    def nets(self) -> Nets:
        """The nets, in the parameters of rank 0."""
        return Nets(self.optimizer, self.clip, self.norm)


# ------------------------------------------------------------------------------------------------------- planted faults
def _keep_own(self: Processes, arrays: Sequence[Array], root: int = 0) -> None:
    """Each rank begins with its own parameters."""


def _leave_out(self: Processes, arrays: Sequence[Array], *rest: Any) -> None:
    """The last rank's gradients count for nothing."""
    for array in arrays:
        array *= self.rank < self.size - 1
    _ALL_REDUCE(self, arrays, *rest)


def _from_behind(self: Processes, arrays: Sequence[Array], *rest: Any) -> None:
    """The sum begins at the last rank."""
    for array in arrays:
        array[...] = sum(self.all_gather(array)[::-1])


def _per_process(strategy: Any, world: int) -> float:
    """The mean is taken over the processes, not over their places."""
    return 1.0 / distributed.get_world_size()


_ALL_REDUCE = Processes.all_reduce
FAULTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "": nullcontext,
    "own start": lambda: mock.patch.object(Processes, "broadcast", _keep_own),
    "rank left out": lambda: mock.patch.object(Processes, "all_reduce", _leave_out),
    "other order": lambda: mock.patch.object(Processes, "all_reduce", _from_behind),
    "wrong mean": lambda: mock.patch.object(compile, "loss_scale", _per_process),
}


# ---------------------------------------------------------------------------------------------------------------- ranks
def train(order: Order, rank: int) -> dict[str, Array]:
    """What the variables are in the end, and ``losses``; only rank 0 starts with the parameters that all begin with."""
    flags.set_flags({"FLAGS_numerics": "strict" if order.strict else "default"})
    nets = order.nets()
    if rank:
        paddle.seed(100 + rank)
    sizes = order.rows[rank]
    start = sum(map(sum, order.rows[:rank]))
    mine = {name: array[start : start + sum(sizes)] for name, array in order.batch.items()}
    with FAULTS[order.fault]():
        found = nets.chosen(order.choice, mine, sizes, order.steps)
    return {**found, "losses": nets.losses}


def send(folder: Path, number: int, order: Order | None) -> None:
    """Gives an order to all ranks; ``None`` ends them."""
    draft = folder / "draft"
    draft.write_bytes(pickle.dumps(order))
    os.replace(draft, folder / f"{number}.order")


def receive(folder: Path, number: int, rank: int) -> dict[str, Array]:
    """What a rank made of an order."""
    with np.load(folder / f"{number}-{rank}.npz") as found:
        return dict(found)


def serve(folder: Path, say: Callable[[int], None]) -> None:
    """Carries out one order after the other, and says the number of each one done."""
    rank = distributed.get_rank()
    for number in itertools.count():
        path = folder / f"{number}.order"
        while not path.exists():
            time.sleep(0.002)
        order = pickle.loads(path.read_bytes())
        if order is None:
            return
        np.savez(folder / f"{number}-{rank}.npz", allow_pickle=False, **train(order, rank))
        say(number)
