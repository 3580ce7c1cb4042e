"""What each rank of ``test_training.py`` runs: every case on this rank's own shard, parameters saved at the end."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tstatic as paddle
from tests.parallel.golden import strategy
from tests.parallel.test_equality import EVERY_FUSION, Nets, batch_of, values
from tstatic import distributed, static

# Optimizer, clip, every fusion, uneven shards, seed.
CASES: tuple[tuple[str, str, bool, bool, int], ...] = (
    ("sgd", "value", False, False, 1),
    ("momentum", "norm", True, True, 2),
    ("adamw", "global", False, True, 3),
    ("adamw", "none", True, False, 4),
    ("momentum", "global", False, False, 5),
)


def sizes_of(case: int, world: int) -> list[int]:
    """Rows of each rank."""
    uneven, seed = CASES[case][3:]
    return list(np.random.default_rng(seed).integers(1, 6, world)) if uneven else [3] * world


def train(case: int, rank: int, world: int) -> dict[str, np.ndarray[Any, Any]]:
    """Three steps of a case; only rank 0's parameters are the ones that all begin with."""
    optimizer, clip, fused, _, seed = CASES[case]
    nets, sizes = Nets(optimizer, clip), sizes_of(case, world)
    start = sum(sizes[:rank])
    mine = {n: a[start : start + sizes[rank]] for n, a in batch_of(sum(sizes), seed).items()}
    if rank:
        paddle.seed(100 + rank)
    exe, scope, main, loss = nets.start(False)
    build = strategy(**dict.fromkeys(EVERY_FUSION if fused else (), True))
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, build, places=[paddle.CPUPlace()])
    for _ in range(3):
        exe.run(compiled, feed=mine, fetch_list=[loss], scope=scope)
    return values(scope)


if __name__ == "__main__":
    rank, world = distributed.get_rank(), distributed.get_world_size()
    for number in range(len(CASES)):
        np.savez(f"{sys.argv[1]}/{number}-{rank}.npz", **train(number, rank, world))
