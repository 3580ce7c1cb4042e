"""Which launcher's variables say who this process is, and what a strategy may add."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field

import pytest

from tstatic import distributed
from tstatic.comm.rendezvous import ProcessInfo, launch
from tstatic.comm.rendezvous.launch import LaunchError, agree, first_host, read
from tstatic.errors import StrategyValueError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "head", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_JOB_ID": "12345",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NODELIST": "cn[07-09,12],gpu1",
}
PADDLE = {
    "PADDLE_TRAINER_ID": "2",
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6170,10.0.0.2:6170,10.0.0.2:6171",
    "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:6171",
}


@dataclass
class Trainers:
    num_trainers: int = 1
    trainer_id: int = 0
    trainers_endpoints: list[str] = field(default_factory=list)


def test_nothing_set_is_a_single_process() -> None:
    assert read({}) == ProcessInfo(0, 1, 0, "", 0, launch.NO_LAUNCHER)


def test_torchrun_wins_over_slurm_and_paddle() -> None:
    found = read(TORCHRUN | SLURM | PADDLE)
    assert (found.rank, found.size, found.local_rank, found.address, found.port) == (3, 8, 1, "head", 29500)
    assert "torchrun" in found.source


def test_slurm_wins_over_paddle() -> None:
    found = read(SLURM | PADDLE)
    assert (found.rank, found.size, found.local_rank, found.address) == (5, 6, 1, "cn07")
    assert 1024 < found.port < 65536
    assert "SLURM" in found.source


def test_all_tasks_of_a_slurm_step_compute_one_port_and_other_jobs_another() -> None:
    ports = {read(SLURM | {"SLURM_PROCID": str(r)}).port for r in range(6)}
    assert len(ports) == 1
    assert read(SLURM | {"SLURM_JOB_ID": "12346"}).port not in ports


def test_slurm_meets_where_master_addr_and_port_say() -> None:
    found = read(SLURM | {"MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "4444"})
    assert (found.address, found.port) == ("10.1.1.1", 4444)


def test_a_step_with_fewer_tasks_than_the_job_counts_its_own() -> None:
    assert read(SLURM | {"SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "6"}).size == 6


def test_a_slurm_batch_script_itself_is_a_single_process() -> None:
    script = {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"} | {"SLURM_PROCID": "0"}
    assert read(script).size == 1


def test_paddle_counts_trainers_of_one_host() -> None:
    found = read(PADDLE)
    assert (found.rank, found.size, found.local_rank, found.address, found.port) == (2, 3, 1, "10.0.0.1", 6170)
    assert "Paddle" in found.source


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        (TORCHRUN, ""),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, ""),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "5f2c"}, "torchrun 5f2c"),
        (SLURM, "SLURM 12345.2"),
        (PADDLE, ""),
        (PADDLE | {"PADDLE_JOB_ID": "a-1"}, "a-1"),
        (
            {k: v for k, v in PADDLE.items() if "ENDPOINT" not in k} | {"PADDLE_MASTER": "h:1", "PADDLE_JOB_ID": "a-1"},
            "a-1",
        ),
    ],
)
def test_a_job_has_the_name_that_its_launcher_gives(environ: dict[str, str], job: str) -> None:
    assert read(environ).job == job


@pytest.mark.parametrize(
    "environ",
    [{"WORLD_SIZE": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"PADDLE_TRAINERS_NUM": "1"}, {"SLURM_NTASKS": "4"}],
)
def test_a_group_of_one_needs_no_address(environ: dict[str, str]) -> None:
    assert (read(environ).rank, read(environ).size) == (0, 1)


def _without(environ: dict[str, str], name: str) -> dict[str, str]:
    return {k: v for k, v in environ.items() if k != name}


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        (_without(TORCHRUN, "RANK"), "RANK"),
        (_without(TORCHRUN, "WORLD_SIZE"), "WORLD_SIZE"),
        (_without(TORCHRUN, "MASTER_ADDR"), "MASTER_ADDR"),
        (_without(TORCHRUN, "MASTER_PORT"), "MASTER_PORT"),
        (TORCHRUN | {"RANK": "8"}, "RANK"),
        (TORCHRUN | {"RANK": "-1"}, "RANK"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        (TORCHRUN | {"WORLD_SIZE": "two"}, "WORLD_SIZE"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT"),
        (SLURM | {"SLURM_PROCID": "6"}, "SLURM_PROCID"),
        (_without(SLURM, "SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST"),
        (PADDLE | {"PADDLE_TRAINER_ID": "3"}, "PADDLE_TRAINER_ID"),
        (PADDLE | {"PADDLE_TRAINERS_NUM": "4"}, "PADDLE_TRAINER_ENDPOINTS"),
        (PADDLE | {"PADDLE_CURRENT_ENDPOINT": "10.0.0.1:6170"}, "PADDLE_CURRENT_ENDPOINT"),
        (PADDLE | {"PADDLE_TRAINER_ENDPOINTS": "a,b,c", "PADDLE_CURRENT_ENDPOINT": "c"}, "endpoint"),
        (_without(PADDLE, "PADDLE_TRAINER_ID"), "PADDLE_TRAINER_ID"),
    ],
)
def test_variables_that_contradict_each_other_are_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(LaunchError, match=named) as caught:
        read(environ)
    assert caught.value.fix
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[03-05,9],gpu1", "node03"),
        ("gpu[9]", "gpu9"),
        ("rack[2-3]-cn[011-020]", "rack2-cn011"),
        ("cn-[1,3].cluster,other", "cn-1.cluster"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_slurm_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


# ------------------------------------------------------------------------------------------------------ with a strategy
def test_one_trainer_yields_to_the_launcher() -> None:
    found = read(TORCHRUN)
    assert agree(found, Trainers()) is found


def test_the_same_numbers_are_accepted() -> None:
    found = read(TORCHRUN)
    assert agree(found, Trainers(8, 3)) is found
    assert agree(found, Trainers(8, 3, [f"h:{i}" for i in range(8)])) is found


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (Trainers(4, 3), "num_trainers"),
        (Trainers(8, 0), "trainer_id"),
        (Trainers(8, 3, ["h:1"]), "trainers_endpoints"),
    ],
)
def test_other_numbers_than_the_launchers_are_refused(strategy: Trainers, named: str) -> None:
    with pytest.raises(StrategyValueError, match=f"BuildStrategy.{named}"):
        agree(read(TORCHRUN), strategy)


def test_without_a_launcher_the_strategy_says_where_the_trainers_are() -> None:
    found = agree(read({}), Trainers(2, 1, ["10.0.0.1:6170", "10.0.0.1:6171"]))
    assert (found.rank, found.size, found.local_rank, found.address, found.port) == (1, 2, 1, "10.0.0.1", 6170)


@pytest.mark.parametrize("strategy", [Trainers(2, 0), Trainers(2, 0, ["h:1"]), Trainers(2, 2, ["h:1", "h:2"])])
def test_without_a_launcher_the_endpoints_must_fit(strategy: Trainers) -> None:
    with pytest.raises(StrategyValueError):
        agree(read({}), strategy)


def test_a_settled_strategy_is_what_the_process_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    assert distributed.get_world_size() == 1
    launch.resolve_process(Trainers(2, 1, ["h:6170", "h:6171"]))
    assert (distributed.get_rank(), distributed.get_world_size()) == (1, 2)
    with pytest.raises(StrategyValueError):
        launch.resolve_process(Trainers(3, 1, ["h:1", "h:2", "h:3"]))


def test_the_log_says_which_launcher_was_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setitem(os.environ, name, value)
    with caplog.at_level(logging.INFO, logger="tstatic.dist"):
        assert distributed.get_rank() == 3
        distributed.get_world_size()
    assert [record.getMessage() for record in caplog.records] == [
        "rank 3 of 8 (local rank 1), meeting at head:29500: from torchrun's RANK and WORLD_SIZE"
    ]
