"""fleet in two processes: they train as two places do, bit for bit; collectives of programs; what ends an unmatched one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.comm import cases
from tests.comm.pool import ROOT, SLACK, Pool, environment, free_port
from tests.helpers.patience import pace
from tstatic import flags, static
from tstatic.distributed import launch as launcher

pytestmark = pytest.mark.torch

SCRIPT = ROOT / "tests" / "comm" / "fleet_script.py"


def _values(scope: Any, program: Any) -> list[Any]:
    return [np.asarray(scope.find_var(p.name).get_tensor()) for p in program.all_parameters()]


def _alone(optimizer: Any, steps: int, places: int) -> tuple[list[Any], list[list[float]]]:
    """The same training on places of one process: its parameters at the end, and the places' losses."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), static.scope_guard(scope), paddle.utils.unique_name.guard():
        loss = cases.fleet_net(seed=0)
        optimizer.minimize(loss)
        exe = static.Executor()
        exe.run(startup)
        compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()] * places)
        losses = []
        for step in range(steps):
            parts = [cases.fleet_rows(step, part) for part in range(places)]
            (found,) = exe.run(compiled, feed=parts, fetch_list=[loss])
            losses.append(found.tolist())
        return _values(scope, main), losses


def _train(pool: Pool, optimizer: str, steps: int, fields: dict[str, Any], size: int = 2) -> list[list[Any]]:
    """What the ranks say: the parameters after the startup program, those at the end, losses and collectives."""
    arguments = {"fields": fields, "steps": steps, "optimizer": optimizer}
    with pool.trial("fleet_train", size, {"FLAGS_step_timeout_s": f"{20 * pace():g}"}, **arguments) as trial:
        assert trial.wait(40.0 * SLACK) == dict.fromkeys(range(size), 0), trial.everything()
        return [trial.said(rank) for rank in range(size)]


def _alike(said: list[list[Any]]) -> None:
    for start, end in said:
        assert start == said[0][0]  # the startup program gave all the values of rank 0
        assert end[1] == said[0][1][1]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_two_processes_train_as_two_places_do_bit_for_bit(pool: Pool, optimizer: str) -> None:
    flags.set_flags({"FLAGS_numerics": "strict"})
    said = _train(pool, optimizer, 3, {})
    _alike(said)
    rule = {"sgd": paddle.optimizer.SGD(0.1), "adam": paddle.optimizer.Adam(0.01)}[optimizer]
    values, losses = _alone(rule, 3, 2)
    assert said[0][1][1] == [one.tobytes().hex() for one in values]
    for rank, (_, end) in enumerate(said):
        # What a run fetches is the process's own loss, of the shape that the program says.
        assert end[2] == [[step[rank], []] for step in losses]
        assert end[3] == [2, 4, 1]


def test_gradients_are_merged_over_runs_and_exchanged_in_every_other_run(pool: Pool) -> None:
    said = _train(pool, "sgd", 4, {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}})
    _alike(said)
    values: list[Any] = []
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), static.scope_guard(scope), paddle.utils.unique_name.guard():
        loss = cases.fleet_net(seed=0)
        paddle.optimizer.SGD(0.1).minimize(loss)
        exe = static.Executor()
        exe.run(startup)
        for step in (0, 2):
            rows = [cases.fleet_rows(s, part) for s in (step, step + 1) for part in range(2)]
            exe.run(main, feed={n: np.concatenate([r[n] for r in rows]) for n in rows[0]})
        values = _values(scope, main)
    for found, wanted in zip(said[0][1][1], values, strict=True):
        array = np.frombuffer(bytes.fromhex(found), np.float32).reshape(wanted.shape)
        np.testing.assert_allclose(array, wanted, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "collectives"),
    [
        ({"fuse_all_reduce_ops": False}, 4),
        ({"fuse_grad_size_in_MB": 1, "amp": True, "recompute": True, "recompute_configs": {"checkpoints": ["fc_0.tmp_2"]}}, 1),
        ({"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2, "lamb": True}, 1),
        ({"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}, "amp": True, "sync_batch_norm": True}, 1),
    ],
)  # fmt: skip
def test_what_a_strategy_says_acts_on_both_ranks(pool: Pool, fields: dict[str, Any], collectives: int) -> None:
    said = _train(pool, "adam", 3, fields)
    _alike(said)
    assert said[0][1][3] == [2, 4, collectives]
    assert said[0][1][1] != said[0][0][1]


def test_where_collectives_are_queued_changes_no_bits(pool: Pool) -> None:
    plain = _train(pool, "adam", 3, {})
    queued = {
        "nccl_comm_num": 2,
        "_calc_comm_same_stream": True,
        "sync_nccl_allreduce": True,
        "last_comm_group_size_MB": 0.25,
    }
    assert [end[1] for _, end in _train(pool, "adam", 3, queued)] == [end[1] for _, end in plain]


@pytest.mark.parametrize("fields", [{"fp16_allreduce": True}, {"fp16_allreduce": True, "gradient_merge": True}])
def test_gradients_can_be_sent_as_float16(pool: Pool, fields: dict[str, Any]) -> None:
    merge = {"gradient_merge_configs": {"k_steps": 2}} if "gradient_merge" in fields else {}
    said = _train(pool, "sgd", 4, {**fields, **merge})
    _alike(said)
    wanted = _train(pool, "sgd", 4, {**fields, **merge, "fp16_allreduce": False})
    found, exact = (one[0][1][1] for one in (said, wanted))
    assert found != exact
    for a, b in zip(found, exact, strict=True):
        low, wide = (np.frombuffer(bytes.fromhex(v), np.float32) for v in (a, b))
        # The table of tolerances: float16 has rtol 1e-3.
        np.testing.assert_allclose(low, wide, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_the_loss_can_start_at_one(pool: Pool) -> None:
    mean = _train(pool, "sgd", 1, {})
    total = _train(pool, "sgd", 1, {"gradient_scale_configs": {"scale_strategy": "sum"}})

    def moved(said: list[list[Any]]) -> Any:
        (start, end) = (np.frombuffer(bytes.fromhex(one[0]), np.float32) for one in (said[0][0][1], said[0][1][1]))
        return end - start

    np.testing.assert_allclose(moved(total), 2 * moved(mean), rtol=1e-4, atol=1e-6)


def test_a_collective_script_of_1x_runs_on_two_ranks(pool: Pool) -> None:
    with pool.trial("fleet_of_1x", 2) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        ((first, shapes, total, reductions),) = trial.said(0)
        assert trial.said(1)[0][0] == first
        assert (shapes, total, reductions) == ([[], []], [2.0, 1.0], 4)


def test_rank_0_saves(pool: Pool, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    with pool.trial("fleet_saves", 2, folder=folder) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        assert [trial.said(rank) for rank in range(2)] == [[["wrote", True]], [["wrote", False]]]
    assert {"fc_0.w_0", "fc_0.b_0"} <= {*os.listdir(folder)}


# ------------------------------------------------------------------------------------------------------------ collectives
def _expected(rank: int, size: int, run: int = 1) -> list[Any]:
    """What ``cases.collectives`` should say, by numpy."""
    x = [np.float32([r + 1, 10 * (r + 1) + run]) for r in range(size)]
    stack = np.stack(x)
    reductions = [stack.sum(0), stack.max(0), stack.min(0), stack.prod(0), stack.mean(0)]
    reduced = stack.sum(0) if rank == 1 else x[rank]
    own = x[0] + x[1] if rank < 2 else x[rank]
    swapped = np.concatenate([x[r] + rank for r in range(size)])
    return [
        *reductions, x[1], reduced, *x, stack.sum(0) + size * rank, x[1] + 10 * rank,
        *[x[r] + 100 * rank for r in range(size)], swapped, own,
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "backend"), [(2, "numpy"), (3, "numpy"), (2, "fake+torch")])
def test_every_collective_of_a_program_gives_what_numpy_gives(pool: Pool, size: int, backend: str) -> None:
    environ = {"FLAGS_step_timeout_s": f"{20 * pace():g}", "TSTATIC_CPU_BACKEND": backend}
    with pool.trial("collectives", size, environ) as trial:
        assert trial.wait(40.0 * SLACK) == dict.fromkeys(range(size), 0), trial.everything()
        for rank in range(size):
            (found,) = trial.said(rank)
            for i, (one, wanted) in enumerate(zip(found, _expected(rank, size), strict=True)):
                np.testing.assert_allclose(one, wanted, rtol=1e-6, err_msg=f"rank {rank}, result {i}")


def test_a_run_waits_at_a_barrier_for_the_last_rank(pool: Pool) -> None:
    with pool.trial("barriers", 3) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0, 2: 0}, trial.everything()
        for rank in range(3):
            assert trial.said(rank) == [[["fill_constant", "barrier"] * (1 if rank == 1 else 2), True]]


def test_transfers_between_two_ranks_keep_their_order(pool: Pool) -> None:
    with pool.trial("ring", 3) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0, 2: 0}, trial.everything()
        for rank in range(3):
            before = 10.0 * ((rank - 1) % 3)
            assert trial.said(rank) == [[[before] * 3, [before + 1] * 3]]


FORTH = "the transfer from rank 0 to rank 1, float32 of shape [3]"
BACK = "the transfer from rank 1 to rank 0, float32 of shape [3]"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("send", f"rank 1 of 2 did not come to {FORTH} within 1.5 s, for which rank 0 waits"),
        ("recv", f"rank 1 of 2 did not come to {BACK} within 1.5 s, for which rank 0 waits"),
        ("leave", f"rank 1 of 2 ended its program while rank 0 waits for it in {BACK}"),
        ("die", "rank 1 of 2 died: its connection closed without a goodbye"),
        ("crossed", "is in the transfer from rank"),
    ],
)
def test_an_unmatched_transfer_ends_and_names_both_ranks(pool: Pool, kind: str, said: str) -> None:
    with pool.trial("unmatched", 2, kind=kind) as trial:
        assert trial.wait(30.0 * SLACK)[0] == 1, trial.everything()
        connected, (what, text, seconds) = trial.said(0)
        assert connected == "connected"
        assert what == "error"
        # Two that both send: either rank may be the first to notice.
        if kind == "crossed":
            assert said in text
            assert "rank 0" in text
            assert "rank 1" in text
        else:
            # The clock says how long rank 0 waited, the system perhaps why the connection closed.
            assert re.sub(r"within [\d.]+ s", "within 1.5 s", text).removesuffix(" (Connection reset by peer)") == said
        assert seconds < 4.0 * SLACK


def test_utilities_exchange_arrays_objects_and_files(pool: Pool) -> None:
    with pool.trial("fleet_utilities", 2) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        for rank in range(2):
            said = trial.said(rank)
            assert said[0] == [[3.0, 5.0], 1, [{"rank": 0}, {"rank": 1}]]
            shard, size, nodes, endpoints = said[1]
            assert (shard, size, nodes, len(endpoints)) == ([["a", "b"], ["c"]][rank], 2, 1, 2)
            objects = [{"rank": 0, "text": ""}, {"rank": 1, "text": "a"}]
            assert said[2] == [[1, "of this rank"], objects, [{"to": rank}]]
            assert said[3:-1] == ([["only rank 1"]] if rank else [])
            # 7 of 10; 4 over 8 samples; the root of 16 / 4.
            assert said[-1] == [0.7, 0.5, 2.0, pytest.approx(39 / 40), [0]]


@pytest.mark.parametrize("counts", [[5, 2], [0, 4], [3, 3, 1]])
def test_a_global_shuffle_moves_samples_between_processes(pool: Pool, counts: list[int]) -> None:
    with pool.trial("shuffled_samples", len(counts), counts=counts) as trial:
        assert trial.wait(30.0 * SLACK) == dict.fromkeys(range(len(counts)), 0), trial.everything()
        said = [trial.said(rank) for rank in range(len(counts))]
    total = sum(counts)
    parts = []
    for first, again in said:
        assert first == again
        (size, everywhere, shuffled), samples = first
        assert (everywhere, shuffled) == (total, total)
        assert size == len(samples)
        assert size in (total // len(counts), -(-total // len(counts)))
        parts.append([int(label * 2) for _, label in samples])
        assert samples == [[[n] * (n % 3 + 1), n / 2] for n in parts[-1]]
    order = [n for part in parts for n in part]
    assert sorted(order) == list(range(total))
    assert order != sorted(order)


# ------------------------------------------------------------------------------------------------------------- launchers
def _run(command: list[str], tmp_path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=tmp_path, env=environment(FLAGS_step_timeout_s=f"{20 * pace():g}", **more), capture_output=True, text=True,
        timeout=60.0 * SLACK, check=False,
    )  # fmt: skip


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_the_launcher_starts_ranks_shows_the_first_and_keeps_a_log_of_each(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tstatic.distributed.launch", "--nproc_per_node", "2", "--log_dir", "logs"]
    command += ["--job_id", "mine"]
    done = _run([*command, str(SCRIPT), "a", "--b"], tmp_path, RANK="7", WORLD_SIZE="9")
    assert done.returncode == 0, done.stderr
    (shown,) = _lines(done.stdout)
    logs = [_lines((tmp_path / "logs" / f"workerlog.{rank}").read_text())[0] for rank in range(2)]
    assert shown == logs[0]
    endpoints = logs[0]["environ"]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    job = logs[0]["environ"]["PADDLE_JOB_ID"]
    assert job.startswith("mine-")
    for rank, log in enumerate(logs):
        assert (log["rank"], log["size"], log["arguments"]) == (rank, 2, ["a", "--b"])
        assert log["parameters"] == logs[0]["parameters"]
        assert log["environ"].pop("PADDLE_JOB_ID") == job
        assert log["environ"] == {
            "PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": "2", "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints), "PADDLE_RANK_IN_NODE": str(rank),
            "PADDLE_LOCAL_RANK": str(rank), "PADDLE_GLOBAL_RANK": str(rank), "PADDLE_GLOBAL_SIZE": "2",
            "PADDLE_MASTER": endpoints[0], "PADDLE_NNODES": "1",
        }  # fmt: skip


@pytest.mark.slow
def test_the_same_script_runs_under_torchrun(tmp_path: Path) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--master_port",
        str(free_port()),
    ]
    done = _run([*torchrun, str(SCRIPT)], tmp_path)
    assert done.returncode == 0, done.stderr
    found = sorted(_lines(done.stdout), key=lambda one: one["rank"])
    assert [(one["rank"], one["size"], one["environ"]) for one in found] == [(0, 2, {}), (1, 2, {})]
    assert found[0]["parameters"] == found[1]["parameters"]


def test_the_launcher_ends_with_the_code_of_the_rank_that_failed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tstatic.distributed.launch", "--nproc_per_node", "2", str(SCRIPT), "fail"]
    done = _run(command, tmp_path)
    assert done.returncode == 1
    assert "rank 1 ended with exit code 1; its output is in log/workerlog.1" in done.stderr
    assert "ValueError: planted" in (tmp_path / "log" / "workerlog.1").read_text()


@pytest.mark.slow
def test_the_script_runs_alone_and_in_processes_that_spawn_starts(tmp_path: Path) -> None:
    done = _run([sys.executable, str(SCRIPT)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(one["rank"], one["size"]) for one in _lines(done.stdout)] == [(0, 1)]
    done = _run([sys.executable, str(SCRIPT), "spawn"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = sorted(_lines(done.stdout), key=lambda one: one["rank"])
    assert [(one["rank"], one["size"]) for one in found] == [(0, 2), (1, 2)]
    assert found[0]["parameters"] == found[1]["parameters"]
    assert "caught: rank 1 of 2 raised: ValueError: planted" in done.stdout


ENVIRON = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith(('PADDLE_', 'FLAGS_sel'))}))"


def test_launchers_of_two_machines_tell_each_other_the_addresses(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ENVIRON)
    launch = [
        sys.executable,
        "-m",
        "tstatic.distributed.launch",
        "--nnodes",
        "2",
        "--master",
        f"127.0.0.1:{free_port()}",
    ]
    started = [
        subprocess.Popen(
            [*launch, "--rank", str(node), "--log_dir", f"logs{node}", *more, "script.py"], cwd=tmp_path, env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for node, more in enumerate((["--nproc_per_node", "1"], ["--devices", "3,4"]))
    ]  # fmt: skip
    assert [one.wait(60.0 * SLACK) for one in started] == [0, 0]
    found = [_lines((tmp_path / f"logs{min(rank, 1)}" / f"workerlog.{rank}").read_text())[0] for rank in range(3)]
    assert [(one["PADDLE_TRAINER_ID"], one["PADDLE_LOCAL_RANK"], one["PADDLE_NNODES"]) for one in found] == [
        ("0", "0", "2"), ("1", "0", "2"), ("2", "1", "2"),
    ]  # fmt: skip
    assert [one.get("FLAGS_selected_gpus") for one in found] == [None, "3", "4"]
    endpoints = found[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert [one["PADDLE_CURRENT_ENDPOINT"] for one in found] == endpoints
    assert len({*endpoints}) == 3
    assert len({one["PADDLE_JOB_ID"] for one in found}) == 1


def test_launchers_that_list_all_machines_agree_on_a_job(tmp_path: Path) -> None:
    """A second job at the same addresses is refused by the launchers, before any process starts."""
    (tmp_path / "script.py").write_text(ENVIRON)
    port = free_port()

    def start(node: int, *more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "tstatic.distributed.launch",
            "--ips",
            "127.0.0.1,127.0.0.2",
            "--rank",
            str(node),
        ]
        command += ["--start_port", str(port), "--log_dir", f"logs{node}", *more, "script.py"]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    first = start(0)
    stranger = start(1, "--job_id", "other")
    assert stranger.communicate(timeout=60.0 * SLACK)[1].startswith("rank 1 of 2 was not admitted at port")
    assert stranger.returncode == 1
    second = start(1)
    for one in (first, second):
        assert one.communicate(timeout=60.0 * SLACK)[1] == ""
        assert one.returncode == 0
    found = [_lines((tmp_path / f"logs{rank}" / f"workerlog.{rank}").read_text())[0] for rank in range(2)]
    assert len({one["PADDLE_JOB_ID"] for one in found}) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nnodes", "2"], "--rank: the number of this machine"),
        (["--nnodes", "2", "--rank", "0"], "--master ip:port of the first machine"),
        (["--nnodes", "1:2"], "the number of machines does not change"),
        (["--run_mode", "ps"], "parameter servers are not part of tstatic"),
        (["--nproc_per_node", "-1"], "--nproc_per_node -1"),
    ],
)
def test_a_wrong_command_line_is_explained(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        launcher.main([*arguments, str(tmp_path / "script.py")])
    assert said in capsys.readouterr().err
