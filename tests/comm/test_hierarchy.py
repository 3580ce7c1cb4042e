"""Hierarchical sums: within blocks of processes first, then over the blocks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.comm.pool import SLACK, Pool
from tstatic import static
from tstatic.comm.rendezvous import ProcessInfo, launch
from tstatic.comm.transport.hierarchy import choose_hierarchy
from tstatic.errors import StrategyValueError

EIGHT = ProcessInfo(3, 8, 3, "host", 6170, "a test", 4)
SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n[1-2]"}


def asking(number: int) -> static.BuildStrategy:
    strategy = static.BuildStrategy()
    strategy.use_hierarchical_allreduce = True
    strategy.hierarchical_allreduce_inter_nranks = number
    return strategy


@pytest.mark.torch
@pytest.mark.parametrize(("size", "block", "strict"), [(4, 2, True), (6, 3, True), (6, 2, False)])
def test_blocks_add_first_and_all_ranks_get_the_same_bits(pool: Pool, size: int, block: int, strict: bool) -> None:
    with pool.trial("in_blocks", size, block=block, strict=strict) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {0}, trial.err(0)
        (right, bits, other_order), met = trial.said(0)
        assert right == [True, True, True]
        assert met == sum(range(size))
        if strict:
            assert other_order  # the order is seen: one level gives other bits
        assert all(trial.said(rank)[0][1] == bits for rank in range(size))


@pytest.mark.torch
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_a_rank_that_dies_in_a_block_ends_all_blocks(pool: Pool, victim: int) -> None:
    with pool.trial("block_breaks", 4, block=2, victim=victim) as trial:
        codes = trial.wait(10.0 * SLACK)
        assert {rank for rank, code in codes.items() if code == 1} == {0, 1, 2, 3} - {victim}
        for rank in {0, 1, 2, 3} - {victim}:
            assert f"rank {victim} of 4 died" in trial.err(rank)


@pytest.mark.torch
@pytest.mark.parametrize("number", [2, 0])
def test_the_strategy_makes_a_program_add_in_blocks(pool: Pool, number: int) -> None:
    with pool.trial("train_in_blocks", 4, {"LOCAL_WORLD_SIZE": "2"}, number=number) as trial:
        assert set(trial.wait(60.0 * SLACK).values()) == {0}, trial.err(0)
        said = [trial.said(rank) for rank in range(4)]
        assert len({json.dumps(one) for one in said}) == 1
        ((levels, one_level, blocks),) = said[0]
        assert levels == "sums go within each process, then over blocks of 2 processes, then over the 2 blocks."
        assert one_level != blocks  # another order of additions


@pytest.mark.parametrize(("number", "block"), [(2, 2), (4, 4), (0, 4)])
def test_blocks_are_those_of_the_strategy_or_of_one_machine(number: int, block: int) -> None:
    assert choose_hierarchy(asking(number), EIGHT)[0] == block


@pytest.mark.parametrize("number", [1, 3, 8, 16])
def test_blocks_that_do_not_fit_are_refused(number: int) -> None:
    with pytest.raises(StrategyValueError, match=r"one of 2, 4, or 0, for 8 processes") as error:
        choose_hierarchy(asking(number), EIGHT)
    assert f"{number}" in str(error.value)
    with pytest.raises(StrategyValueError, match="no equal blocks"):
        choose_hierarchy(asking(number), replace(EIGHT, size=7))


def test_without_blocks_the_reason_is_said() -> None:
    assert choose_hierarchy(static.BuildStrategy(), EIGHT) == (
        0,
        "off: sums go within each process, then over all processes at once.",
    )
    assert choose_hierarchy(asking(3), ProcessInfo()) == (0, "there is one process: sums stay within it.")
    assert "8 of 8 processes on this machine" in choose_hierarchy(asking(0), replace(EIGHT, local_size=8))[1]
    assert "no number of processes per machine" in choose_hierarchy(asking(0), replace(EIGHT, local_size=0))[1]


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1", "LOCAL_WORLD_SIZE": "2"}, 2),
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, 0),
        (SLURM | {"SLURM_NTASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}, 3),
        (SLURM | {"SLURM_NTASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "2,1"}, 0),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "4", "PADDLE_TRAINER_ENDPOINTS": "a:1,a:2,b:1,b:2"}, 2),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "4", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1,a:2,b:2"}, 0),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ENDPOINTS": "a:1,a:2,b:2"}, 0),
    ],
)  # fmt: skip
def test_launchers_say_how_many_processes_a_machine_has(environ: dict[str, str], size: int) -> None:
    assert launch.read(environ).local_size == size
