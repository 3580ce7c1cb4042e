"""One process answers as Paddle 2.6.2 does: identities, metrics, strategies, and losses of trainings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.distributed import record
from tstatic import distributed, static
from tstatic.distributed import fleet

PADDLE: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())


@cache
def _defaults() -> dict[str, Any]:
    return record.strategies(fleet, paddle, static)


def test_identities_of_a_single_process() -> None:
    fleet.init(is_collective=True)
    assert record.identities(fleet) == PADDLE["collective"]
    fleet.init()  # Paddle has no endpoint here, and the same process one with collectives
    assert record.identities(fleet) == PADDLE["collective"]


def test_metrics_and_shards_of_files() -> None:
    fleet.init()
    assert record.metrics(fleet) == pytest.approx(PADDLE["metrics"])
    assert fleet.util.get_file_shard(["a", "b", "c"]) == PADDLE["shards"]


@pytest.mark.parametrize("name", sorted(PADDLE["strategy"]))
def test_fields_of_the_strategy_have_paddles_defaults(name: str) -> None:
    wanted = PADDLE["strategy"][name]
    found = _defaults()[name]
    if not isinstance(wanted, dict):
        assert found == wanted
        return
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda: paddle.optimizer.SGD(0.1)),
        ("momentum", lambda: paddle.optimizer.Momentum(0.1, 0.9)),
        ("adam", lambda: paddle.optimizer.Adam(0.05)),
    ],
)
def test_losses_of_a_training_with_fleet(name: str, make: Any) -> None:
    fleet.init(is_collective=True)
    np.testing.assert_allclose(record.losses(paddle, static, fleet, make()), PADDLE[name], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(record.APPLIED))
def test_losses_and_names_of_what_a_strategy_applies(name: str) -> None:
    fleet.init(is_collective=True)
    found = record.applied(paddle, static, fleet, name)
    np.testing.assert_allclose(found["losses"], PADDLE["applied"][name]["losses"], rtol=1e-5)
    assert found["meta"] == PADDLE["applied"][name]["meta"]


def test_reduce_op_and_parallel_env() -> None:
    assert [getattr(distributed.ReduceOp, n) for n in ("SUM", "MAX", "MIN", "PROD", "AVG")] == PADDLE["ReduceOp"]
    env = distributed.ParallelEnv()
    found = [env.rank, env.local_rank, env.world_size, env.nranks, env.current_endpoint, env.trainer_endpoints]
    assert found == PADDLE["ParallelEnv"]


def test_collectives_are_identities_where_paddle_refuses_them() -> None:
    found = record.collectives(paddle, static, distributed)
    assert found == {
        "all_reduce": [2.0, 4.0], "broadcast": [2.0, 4.0], "reduce": [2.0, 4.0], "all_gather": [2.0, 4.0],
        "reduce_scatter": [2.0, 3.0], "scatter": [2.0, 3.0], "alltoall": [2.0, 3.0],
    }  # fmt: skip
    assert all(value.endswith("Error") for value in PADDLE["collectives"].values())
