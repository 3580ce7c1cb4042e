"""Splits feeds among replicas, and merges what the replicas fetched."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from tstatic.errors import FeedError, FeedTypeError
from tstatic.ir.evaluate import meta_of
from tstatic.ir.program import Program, Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.runtime.feed import Arrays, check_feed_dict, read_feed, to_array
from tstatic.runtime.lod import Lod, check_lod, cut, joined_offsets
from tstatic.runtime.scope import tensor_of
from tstatic.where import show

Array = np.ndarray[Any, Any]


def bounds(rows: int, count: int) -> list[tuple[int, int]]:
    """Returns the first and last row (exclusive) of each part; sizes differ by at most 1, the last parts are longer."""
    size, extra = divmod(rows, count)
    starts = [i * size + max(0, i - (count - extra)) for i in range(count + 1)]
    return list(itertools.pairwise(starts))


def shards(program: Program, feed: Any, used: frozenset[str], count: int) -> list[Arrays]:
    """Checks a feed and gives each replica its part.

    Args:
        program: The program whose variables are fed.
        feed: A dict, whose arrays are cut along the first axis (tensors with a LoD between two sequences), or a list with
            a dict per replica.
        used: Names that the program's operators read.
        count: Number of replicas.

    Raises:
        FeedError: If there are fewer rows than replicas, inputs of a dict differ in their number of rows, or a list has
            another length (a ``ValueError``).
        FeedTypeError: If the feed is neither, or a list has items other than dicts (also a ``TypeError``).
    """
    if isinstance(feed, list | tuple):
        parts = _listed(feed, count)
    else:
        given = check_feed_dict(feed)
        parts = [{} for _ in range(count)]
        first: tuple[Variable, int] | None = None
        for name, value in given.items():
            var = program.global_block()._find_var_recursive(name)
            if var is None:
                pieces = [value] * count
            else:
                array = to_array(value, var)
                lod = check_lod(value, len(array) if array.ndim else 1, var, {})
                if count > 1 and name in used and not var.persistable and var.shape[:1] == (UNKNOWN,) and array.ndim:
                    first = _check_rows(var, len(lod[0]) - 1 if lod else array.shape[0], bool(lod), first)
                pieces = _cut(array, var, count, lod)
            for part, piece in zip(parts, pieces, strict=True):
                part[name] = piece
    return [read_feed(program, part, used) for part in parts]


def shard_metas(program: Program, metas: Mapping[str, Meta], count: int) -> list[dict[str, Meta]]:
    """Returns the metadata of each replica's part of a feed that is one dict; raises the errors that :func:`shards` would."""
    # Arrays without memory of their own, so that feeds and their metadata are cut by the same code.
    feed: dict[str, Any] = {name: np.broadcast_to(np.zeros((), m.dtype.np), m.shape) for name, m in metas.items()}
    for name in metas:
        lod = program.global_block().vars[name].lod
        if lod and all(level in metas for level in lod):
            # The offsets' own values are not known: all rows are those of the first sequence.
            ends = [*(metas[level].shape[0] - 1 for level in lod[1:]), metas[name].shape[0]]
            feed[name] = tensor_of(feed[name])
            feed[name].set_lod(
                [[0, *[end] * (metas[level].shape[0] - 1)] for level, end in zip(lod, ends, strict=True)]
            )
            for level in lod:
                del feed[level]
    parts = shards(program, feed, frozenset(metas), count)
    return [{name: meta_of(array) for name, array in part.items()} for part in parts]


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
            fix="feed one dict, which is split, or set CPU_NUM to the length of the list; in training, drop a last, incomplete "
            "list (a program without a backward pass runs on fewer devices)",
            op="feed",
        )
    return [dict(one) for one in feed]


def _check_rows(var: Variable, rows: int, sequences: bool, first: tuple[Variable, int] | None) -> tuple[Variable, int]:
    """Checks that an input has as many rows as the first one: inputs are split one by one, and their rows must correspond."""
    if first is not None and rows != first[1]:
        what = "sequences" if sequences else "rows"
        raise _refused(
            var,
            f"'{first[0].name}' and '{var.name}' are fed with different numbers of rows, so they cannot be split over "
            "several devices together",
            f"{first[1]} {what} in '{var.name}', as in '{first[0].name}'",
            f"{rows} {what}",
            "feed one row of each per sample; an input that belongs to no sample is fed in a list of one dict per device, or "
            "declared with a fixed first size",
        )
    return first or (var, rows)


def _cut(array: Array, var: Variable, count: int, lod: Lod) -> list[Any]:
    if array.ndim == 0 or (count == 1 and not lod):
        return [array] * count
    rows = len(lod[0]) - 1 if lod else array.shape[0]
    if var.persistable:
        # As in Paddle: one row of a persistable variable (a learning rate) goes to all devices, or each gets its own.
        if rows not in (1, count):
            raise _refused(
                var,
                f"persistable variable '{var.name}' is fed with {rows} rows on {count} devices",
                f"1 row, which all devices get, or {count}, one each",
                f"shape {list(array.shape)}",
                "feed one value for all devices",
            )
        return [array] * count if rows == 1 else [array[i : i + 1] for i in range(count)]
    if 0 < rows < count:
        raise _refused(
            var,
            f"'{var.name}' has fewer rows than there are devices: {rows} cannot be split over {count}",
            f"at least {count} rows, one per device",
            f"shape {list(array.shape)}",
            "feed larger batches, drop the last incomplete one, or set the environment variable CPU_NUM lower",
        )
    return [cut(array, lod, a, b) if lod else array[a:b] for a, b in bounds(rows, count)]


def _refused(var: Variable, what: str, expected: str, received: str, fix: str) -> FeedError:
    where = show(var.made_at)
    return FeedError(what, expected=expected, received=received, fix=fix, var=var.name, op="feed", where=where)


def merged(results: Sequence[Sequence[Array]], names: Sequence[str], offsets: Set[str] = frozenset()) -> list[Array]:
    """Joins what the replicas fetched along the first axis; single numbers become a vector.

    Args:
        results: What each replica fetched.
        names: Names of the variables.
        offsets: Which of them are row offsets, which go on where those of the replica before end.

    Raises:
        FeedError: If sizes other than the first differ.
    """
    done = []
    for i, name in enumerate(names):
        parts = [np.atleast_1d(one[i]) for one in results]
        if name in offsets:
            done.append(joined_offsets(parts))
            continue
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
