"""This process among those that a launcher started: its number, exchanges of arrays; under plain Python there is one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np

from tstatic import flags
from tstatic.comm import processes
from tstatic.comm.process_collectives import Group
from tstatic.comm.processes import world as _world
from tstatic.comm.rendezvous.launch import current as _current
from tstatic.errors import FeedError
from tstatic.ir.export import door
from tstatic.no_effect import ONE_GROUP, no_effect
from tstatic.runtime.shards import bounds

Array = np.ndarray[Any, Any]
_Part = TypeVar("_Part", bound=Sequence[Any])


@door("distributed.get_rank")
def get_rank(group: Group | None = None) -> int:
    """Number of this process, from the launcher's environment; 0 without one.

    Args:
        group: What ``new_group`` returned: the number is that among its members, -1 for none.

    Example:
        >>> from tstatic import distributed
        >>> distributed.init_parallel_env()
        >>> distributed.get_rank()
        0
    """
    return _current().rank if group is None else group.rank


@door("distributed.get_world_size")
def get_world_size(group: Group | None = None) -> int:
    """Number of processes, from the launcher's environment; 1 without one.

    Args:
        group: What ``new_group`` returned: the number is that of its members.

    Example:
        >>> from tstatic import distributed
        >>> distributed.init_parallel_env()
        >>> distributed.get_world_size()
        1
    """
    return _current().size if group is None else group.nranks


def init_parallel_env() -> None:
    """Connects this process to the others, which the first use of them does otherwise; further calls do nothing.

    Raises:
        RankFailedError: If not all processes come within ``FLAGS_rendezvous_timeout_s``; it names the missing ones.
    """
    _world()


def is_initialized() -> bool:
    """Returns whether this process is connected to the others, as :func:`init_parallel_env` or their first use connects it.

    Example:
        >>> from tstatic import distributed
        >>> distributed.is_initialized()
        False
    """
    return processes._world is not None


def is_available() -> bool:
    """Returns True: several processes can train together, where torch is installed."""
    return True


@door("distributed.get_backend")
@no_effect(group=ONE_GROUP)
def get_backend(group: object = None) -> str:
    """Returns ``"GLOO"``: what connects the processes."""
    return "GLOO"


@door("distributed.destroy_process_group")
@no_effect(group=ONE_GROUP)
def destroy_process_group(group: object = None) -> None:
    """Leaves the group of processes; the first use of it connects again."""
    world = processes._world
    if world is not None:
        world.close()


class ParallelEnv:
    """What the launcher says about this process.

    Attributes:
        rank: Its number; ``local_rank``: its number on its machine.
        world_size: Number of processes, also ``nranks``.
        device_id: Number of its GPU, from ``FLAGS_selected_gpus``, also ``dev_id``; else 0.
        device_type: ``"gpu"`` if the launcher chose one, else ``""``.
        current_endpoint, trainer_endpoints: Addresses that a launcher of Paddle gives; empty without.

    Example:
        >>> from tstatic import distributed
        >>> env = distributed.ParallelEnv()
        >>> env.rank, env.local_rank, env.world_size, env.nranks, env.device_id
        (0, 0, 1, 1, 0)
    """

    def __init__(self) -> None:
        mine = _current()
        self.rank = mine.rank
        self.local_rank = mine.local_rank
        self.world_size = self.nranks = mine.size
        chosen = str(flags.flag("FLAGS_selected_gpus")).split(",")[0].strip()
        self.device_id = self.dev_id = int(chosen) if chosen.isdecimal() else 0
        self.device_type = "gpu" if chosen.isdecimal() else ""
        self.trainer_endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self.current_endpoint = os.environ.get("PADDLE_CURRENT_ENDPOINT", "")


@overload
def local(array: Array) -> Array: ...
@overload
def local(array: _Part) -> _Part: ...
def local(array: Any) -> Any:
    """This process's part of an array, list or other sequence, cut along its first axis.

    Parts follow one another in the order of the ranks and differ by at most one row; the last ones have the extra rows.
    A single process gets everything.

    Args:
        array: Shape ``[rows, ...]``.

    Returns:
        Its rows from ``a`` to ``b``: a view of an array, a slice of anything else.

    Raises:
        FeedError: For fewer rows than processes, or something that has no rows (a ``ValueError``).
    """
    rank, size = get_rank(), get_world_size()
    if np.ndim(array) == 0 if isinstance(array, np.ndarray | np.generic) else not hasattr(array, "__len__"):
        raise FeedError(
            "distributed.local takes something with rows",
            expected="an array of at least one dimension, or a sequence",
            received=f"{type(array).__name__} without a first axis",
            fix="pass the whole batch or data set, shape [rows, ...]",
        )
    rows = len(array)
    if rows < size:
        raise FeedError(
            f"{rows} rows cannot be split over {size} processes",
            expected=f"at least {size} rows, one per process",
            received=f"{rows} rows",
            fix="use larger batches, or drop the last incomplete one",
        )
    first, last = bounds(rows, size)[rank]
    return array[first:last]


@overload
def mean(x: float) -> float: ...
@overload
def mean(x: Array) -> Array: ...
def mean(x: Any) -> Any:
    """The mean over all processes of what each passes: a number, such as a fetched loss, or an array.

    The sum is taken in the order of the ranks, so every process gets the same bits.

    Args:
        x: Of the same shape and dtype on all processes; all of them must call it.

    Returns:
        A ``float`` for a number; else an array of the shape of ``x``, of its dtype if that is a float's, else float64.

    Raises:
        RankFailedError: If a process failed or did not come, or passed another shape or dtype.
    """
    given = np.asarray(x)
    if given.dtype.kind in "biu":
        given = given.astype(np.float64)
    world = _world()
    if world is not None:
        world.agree(f"mean of shape {list(given.shape)}, {given.dtype}")
        parts = world.all_gather(given)
        wide = np.promote_types(given.dtype, np.float32) if given.dtype.itemsize > 2 else np.dtype(np.float32)
        total = parts[0].astype(wide)
        for part in parts[1:]:
            total = total + part.astype(wide)
        given = np.asarray(total / world.size).astype(given.dtype)
    return given if isinstance(x, np.ndarray) else float(given) if given.ndim == 0 else given
