"""Exchanges of Python objects between processes, beside programs; they are pickled, so all processes must trust each other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.comm.process_collectives import Group
from tstatic.comm.processes import world
from tstatic.comm.rendezvous import launch
from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.checks import check_int, check_length, check_type
from tstatic.ir.export import door
from tstatic.no_effect import no_effect


def _gathered(obj: Any, function: str) -> list[Any]:
    """Returns the objects of all processes, in the order of their ranks."""
    group = world()
    if group is None:
        return [obj]
    text = np.frombuffer(pickle.dumps(obj), np.uint8)
    group.agree(function)
    sizes = group.all_gather(np.array(text.size))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: text.size] = text
    rows = group.all_gather(padded)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def _whole(group: Group | None, function: str) -> None:
    """Checks that the group has all processes.

    Raises:
        UnsupportedError: If it has not.
    """
    check_type(group, (Group, type(None)), "group", function)
    if group is not None and group.nranks != launch.current().size:
        raise UnsupportedError(
            f"{function} exchanges objects between all processes",
            expected="group=None",
            received=f"a group of {group.nranks} processes",
            fix="let all processes call it, and use what the members sent",
            op=function,
        )


@door("distributed.all_gather_object")
def all_gather_object(object_list: list[Any], obj: Any, group: Group | None = None) -> None:
    """Appends the objects of all processes to a list, in the order of their ranks.

    Args:
        object_list: The list.
        obj: This process's object; anything that can be pickled.
        group: All processes.

    Raises:
        RankFailedError: If a process failed or did not come.

    Example:
        >>> from tstatic import distributed
        >>> found = []
        >>> distributed.all_gather_object(found, {"rank": distributed.get_rank()})
        >>> found
        [{'rank': 0}]
    """
    check_type(object_list, list, "object_list", "distributed.all_gather_object")
    _whole(group, "distributed.all_gather_object")
    object_list.extend(_gathered(obj, "distributed.all_gather_object"))


def _root(src: Any, function: str) -> int:
    return check_int(src, "src", function, 0, launch.current().size - 1, error=ProgramError)


@door("distributed.broadcast_object_list")
def broadcast_object_list(object_list: list[Any], src: int, group: Group | None = None) -> None:
    """Replaces the objects of a list by those of one process.

    Args:
        object_list: A list of equal length in all processes.
        src: Number of the process that has the objects.
        group: All processes.

    Raises:
        RankFailedError: If a process failed or did not come.
    """
    function = "distributed.broadcast_object_list"
    check_type(object_list, list, "object_list", function)
    _whole(group, function)
    root = _root(src, function)
    object_list[:] = _gathered(object_list if launch.current().rank == root else None, function)[root]


@door("distributed.scatter_object_list")
def scatter_object_list(
    out_object_list: list[Any], in_object_list: Sequence[Any] | None = None, src: int = 0, group: Group | None = None
) -> None:
    """Gives each process one object of a list that one process has.

    Args:
        out_object_list: Its content becomes this process's object.
        in_object_list: On process ``src``: an object for each process.
        src: Number of the process that has them.
        group: All processes.

    Raises:
        ShapeError: If the list of ``src`` has another length than there are processes.
        RankFailedError: If a process failed or did not come.
    """
    function = "distributed.scatter_object_list"
    check_type(out_object_list, list, "out_object_list", function)
    _whole(group, function)
    root, mine = _root(src, function), launch.current()
    if mine.rank == root:
        check_type(in_object_list, (list, tuple), "in_object_list", function)
        check_length(in_object_list or (), mine.size, "in_object_list", function, why="one for each process")
    found = _gathered(in_object_list if mine.rank == root else None, function)[root]
    out_object_list[:] = [found[mine.rank]]


@door("distributed.gloo_init_parallel_env")
@no_effect(rank_id="a launcher or a role maker says it", rank_num="as rank_id", server_endpoint="as rank_id")
def gloo_init_parallel_env(rank_id: int = 0, rank_num: int = 1, server_endpoint: str = "") -> None:
    """Connects this process to the others, as ``init_parallel_env``."""
    world()


def gloo_barrier() -> None:
    """Returns when all processes have called it."""
    group = world()
    if group is not None:
        group.agree("barrier")


def gloo_release() -> None:
    """Does nothing: processes leave each other when they end."""


__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gloo_barrier",
    "gloo_init_parallel_env",
    "gloo_release",
    "scatter_object_list",
]
