"""``paddle.distributed``: this process among those that a launcher started; under plain Python there is one."""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np

from tstatic.comm.launch import current as _current
from tstatic.comm.processes import world as _world
from tstatic.errors import FeedError
from tstatic.ir.export import facade
from tstatic.no_effect import ONE_GROUP, no_effect
from tstatic.runtime.shards import bounds

Array = np.ndarray[Any, Any]
_Part = TypeVar("_Part", bound=Sequence[Any])


@no_effect(group=ONE_GROUP)
def get_rank(group: object = None) -> int:
    """Number of this process, from the launcher's environment; 0 without one.

    Example:
        >>> from tstatic import distributed
        >>> distributed.init_parallel_env()
        >>> distributed.get_rank()
        0
    """
    return _current().rank


@no_effect(group=ONE_GROUP)
def get_world_size(group: object = None) -> int:
    """Number of processes, from the launcher's environment; 1 without one.

    Example:
        >>> from tstatic import distributed
        >>> distributed.init_parallel_env()
        >>> distributed.get_world_size()
        1
    """
    return _current().size


def init_parallel_env() -> None:
    """Connects this process to the others, which the first use of them does otherwise; further calls do nothing.

    Raises:
        RankFailedError: If not all processes come within ``FLAGS_rendezvous_timeout_s``; it names the missing ones.
    """
    _world()


@no_effect(group=ONE_GROUP)
def barrier(group: object = None) -> None:
    """Returns when all processes have called it.

    Raises:
        RankFailedError: If one failed, or did not come within ``FLAGS_step_timeout_s``; it says which.
    """
    world = _world()
    if world is not None:
        world.agree("barrier")


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


__getattr__, __dir__ = facade(__name__)
