"""Samples of all processes put into one random order, of which each process gets an equal part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.comm.processes import Processes
from tstatic.io.multislot import Column
from tstatic.runtime import random

Ints = NDArray[np.int64]


def shuffled(columns: Sequence[Column], group: Processes) -> list[Column]:
    """Returns this process's part of the samples of all; parts differ by at most one sample.

    The first process draws the order, so it depends on its seed alone, and on which samples each process had.

    Args:
        columns: This process's samples, slot by slot.
        group: All processes, each of which calls this with the same slots.
    """
    group.agree("InMemoryDataset.global_shuffle")
    counts = group.all_gather(np.array(len(columns[0].lengths)))
    seed = int(group.all_gather(np.array(random.generator().integers(2**62)))[0])
    places = np.random.default_rng(seed).permutation(int(counts.sum()))
    # What place each sample of each process gets, and where the places of each process begin.
    wanted = np.split(places, np.cumsum(counts)[:-1])
    bounds = np.arange(group.size + 1) * len(places) // group.size
    owners = np.searchsorted(bounds, wanted[group.rank], side="right") - 1
    sent = [np.flatnonzero(owners == rank) for rank in range(group.size)]
    first, end = bounds[group.rank], bounds[group.rank + 1]
    order = np.argsort(np.concatenate([mine[(mine >= first) & (mine < end)] for mine in wanted]))
    return [_exchanged(column, sent, group).take(order) for column in columns]


def _exchanged(column: Column, rows: Sequence[Ints], group: Processes) -> Column:
    """Sends the samples ``rows[r]`` to rank ``r``; returns those that came, in the order of ranks."""
    parts = [column.take(chosen) for chosen in rows]
    lengths = _sent([part.lengths for part in parts], group)
    values = _sent([part.values for part in parts], group)
    return Column(np.concatenate(values), np.concatenate(lengths))


def _sent(parts: Sequence[NDArray[Any]], group: Processes) -> list[NDArray[Any]]:
    """Sends an array to each rank; returns those that came. They travel padded to the size of the largest."""
    sizes = np.array([[len(part)] for part in parts])
    most = int(group.all_gather(sizes).max())
    padded = np.zeros((group.size, most), parts[0].dtype)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    came = group.exchange_parts(sizes)
    return [row[: int(n)] for row, n in zip(group.exchange_parts(padded), came[:, 0], strict=True)]
