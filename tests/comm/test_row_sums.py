"""The sum of a table's gradients as rows: on the host, by torch, and in a size that no run decides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.gpu import first_gpu
from tstatic import devices
from tstatic.comm.group import Group
from tstatic.comm.passes.row_sums import MERGE, PAD, add_rows_in_order
from tstatic.devices import HostArray

TABLE = 23
DTYPES = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64), "float16": np.dtype(np.float16)}
DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)


def drawn(seed: int, count: int, room: int, dtype: np.dtype[Any]) -> tuple[HostArray, HostArray]:
    """Rows among the first nine, each once, and their values; behind them the number of rows of the table, and zeros."""
    draw = np.random.default_rng(seed)
    rows, values = np.full(room, TABLE), np.zeros((room, 3), dtype)
    rows[:count] = np.sort(draw.choice(9, count, replace=False))
    values[:count] = draw.standard_normal((count, 3)).astype(dtype)
    return rows, values


def merged(name: str, parts: list[tuple[HostArray, HostArray]], each: int, size: int) -> tuple[HostArray, HostArray]:
    """The sum by the op, as a device runs it."""
    with first_gpu() if name == "gpu" else devices.use(name) as device:
        group = Group(1).communicator(0, device)
        rows, values = ([device.upload(one) for one in kind] for kind in zip(*parts, strict=True))
        outs = [device.upload(np.full((size, *a.shape[1:]), 9, a.dtype)) for a in parts[0]]
        calls = group.bind_definition(MERGE, [rows, values], outs, {"count": TABLE, "each": each})
        for function, args in calls:
            function(*args)
        found, sums = (device.to_host(one, group.stream) for one in outs)
        return found, sums


@pytest.mark.torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cpu", "fake", "gpu"])
@pytest.mark.parametrize(("world", "each"), [(1, 1), (2, 2), (4, 2), (3, 1)])
def test_every_device_adds_rows_with_the_bits_of_the_host(world: int, each: int, name: str, dtype: str) -> None:
    counts = [5, 4, 7, 0][:world]
    parts = [drawn(i, count, 7, DTYPES[dtype]) for i, count in enumerate(counts)]
    bare = [(rows[:count], values[:count]) for (rows, values), count in zip(parts, counts, strict=True)]
    rows, sums = add_rows_in_order([add_rows_in_order(bare[i : i + each]) for i in range(0, world, each)])
    for size in (min(7 * world, TABLE), len(rows)):
        found, values = merged(name, parts, each, size)
        assert found.tolist() == [*rows, *[TABLE] * (size - len(rows))]
        assert values[: len(rows)].tobytes() == sums.tobytes()
        assert not values[len(rows) :].any()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cpu", "fake", "gpu"])
def test_no_replica_looked_up_a_row(name: str) -> None:
    found, values = merged(name, [drawn(0, 0, 2, DTYPES["float32"])] * 2, 2, 4)
    assert found.tolist() == [TABLE] * 4
    assert not values.any()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cpu", "fake", "gpu"])
@pytest.mark.parametrize("size", [3, 5])
def test_what_is_short_is_filled(size: int, name: str) -> None:
    with first_gpu() if name == "gpu" else devices.use(name) as device:
        group = Group(1).communicator(0, device)
        out = device.upload(np.zeros((size, 2), np.int64))
        for function, args in group.bind_definition(
            PAD, [device.upload(np.ones((3, 2), np.int64))], [out], {"value": 8}
        ):
            function(*args)
        assert device.to_host(out, group.stream).tolist() == [*[[1, 1]] * 3, *[[8, 8]] * (size - 3)]
