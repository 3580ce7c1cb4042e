"""What each replica is fed, and how what they computed comes back as one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError, FeedTypeError
from tstatic.ir.program import Program, Variable
from tstatic.ir.where import show
from tstatic.runtime.feed import Arrays, check_feed_dict, read_feed, to_array

Array = np.ndarray[Any, Any]


def bounds(rows: int, count: int) -> list[tuple[int, int]]:
    """First and last row (exclusive) of each part; sizes differ by at most 1, and the last parts have the extra rows."""
    size, extra = divmod(rows, count)
    starts = [i * size + max(0, i - (count - extra)) for i in range(count + 1)]
    return list(itertools.pairwise(starts))


def shards(program: Program, feed: Any, used: frozenset[str], count: int) -> list[Arrays]:
    """Checks a feed and gives each replica its part.

    Args:
        program: Whose variables are fed.
        feed: A dict, whose arrays are cut along the first axis, or a list with a dict per replica.
        used: Names that the program's operators read.
        count: Number of replicas.

    Raises:
        FeedError: For fewer rows than replicas, or a list of another length (a ``ValueError``).
        FeedTypeError: For a feed that is neither, or a list with something else than dicts (also a ``TypeError``).
    """
    if isinstance(feed, list | tuple):
        parts = _listed(feed, count)
    else:
        given = check_feed_dict(feed)
        parts = [{} for _ in range(count)]
        for name, value in given.items():
            var = program.global_block()._find_var_recursive(name)
            pieces = [value] * count if var is None else _cut(to_array(value, var), var, count)
            for part, piece in zip(parts, pieces, strict=True):
                part[name] = piece
    return [read_feed(program, part, used) for part in parts]


def _listed(feed: Sequence[Any], count: int) -> list[dict[str, Any]]:
    for i, one in enumerate(feed):
        if not isinstance(one, Mapping):
            raise FeedTypeError(
                "Each element of feed list should be a dict",
                expected="a list of dicts, one per device",
                received=f"{type(one).__name__} at position {i}",
                fix="pass feed=[{'x': first}, {'x': second}]",
                op="feed",
            )
    if len(feed) != count:
        raise FeedError(
            f"The feed data number {len(feed)} does not match the device number {count}",
            expected=f"a list of {count} dicts, one per device",
            received=f"a list of {len(feed)}",
            fix="feed one dict, which is split, or set CPU_NUM to the length of the list; drop a last, incomplete list",
            op="feed",
        )
    return [dict(one) for one in feed]


def _cut(array: Array, var: Variable, count: int) -> list[Array]:
    if array.ndim == 0 or count == 1:
        return [array] * count
    rows = array.shape[0]
    if var.persistable:
        if rows not in (1, count):
            raise FeedError(
                f"persistable variable '{var.name}' is fed with {rows} rows on {count} devices",
                expected=f"1 row, which all devices get, or {count}, one each",
                received=f"shape {list(array.shape)}",
                fix="feed one value for all devices",
                var=var.name,
                op="feed",
                where=show(var.made_at),
            )
        return [array] * count if rows == 1 else [array[i : i + 1] for i in range(count)]
    if 0 < rows < count:
        raise FeedError(
            f"'{var.name}' has fewer rows than there are devices: {rows} cannot be split over {count}",
            expected=f"at least {count} rows, one per device",
            received=f"shape {list(array.shape)}",
            fix="feed larger batches, drop the last incomplete one, or set the environment variable CPU_NUM lower",
            var=var.name,
            op="feed",
            where=show(var.made_at),
        )
    return [array[a:b] for a, b in bounds(rows, count)]


def merged(results: Sequence[Sequence[Array]], names: Sequence[str]) -> list[Array]:
    """Joins what the replicas fetched along the first axis; single numbers become a vector.

    Raises:
        FeedError: If sizes other than the first differ.
    """
    done = []
    for i, name in enumerate(names):
        parts = [np.atleast_1d(one[i]) for one in results]
        if len({p.shape[1:] for p in parts}) > 1:
            raise FeedError(
                f"the devices' values of '{name}' cannot be joined: they differ in more than the first dimension",
                expected="arrays that differ in their first dimension only",
                received=", ".join(str(list(p.shape)) for p in parts),
                fix="pass return_merged=False to get one array per device",
                var=name,
                op="fetch",
            )
        done.append(np.concatenate(parts))
    return done
