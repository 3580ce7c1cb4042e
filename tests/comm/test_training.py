"""Two and four processes train as one place does, bit for bit as so many places of one process where sums have an order."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.comm.trainer import CASES, sizes_of
from tests.parallel.golden import strategy
from tests.parallel.test_equality import EVERY_FUSION, Nets, agree, batch_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("world", "strict"), [(2, False), (2, True), (4, True)])
def test_processes_train_as_one_place_does(world: int, strict: bool, tmp_path: Path) -> None:
    common = {
        **os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "CPU_NUM": "1", "FLAGS_numerics": "strict" if strict else "default",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.comm.trainer", str(tmp_path)]
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}, stderr=subprocess.PIPE
        )
        for r in range(world)
    ]
    try:
        for rank in ranks:
            _, said = rank.communicate(timeout=180)
            assert rank.returncode == 0, said.decode()
    finally:
        for rank in ranks:
            rank.kill()
    for number, (optimizer, clip, fused, _, seed) in enumerate(CASES):
        sizes = [int(s) for s in sizes_of(number, world)]
        batch = batch_of(sum(sizes), seed)
        found = [dict(np.load(tmp_path / f"{number}-{r}.npz")) for r in range(world)]
        for other in found[1:]:
            for name, array in other.items():
                np.testing.assert_array_equal(array, found[0][name], err_msg=name)
        nets = Nets(optimizer, clip)
        agree(found[0], nets.alone(batch, sizes, 3))
        if strict:
            build = strategy(**dict.fromkeys(EVERY_FUSION if fused else (), True))
            for name, array in nets.together(batch, sizes, 3, build).items():
                np.testing.assert_array_equal(found[0][name], array, err_msg=name)
