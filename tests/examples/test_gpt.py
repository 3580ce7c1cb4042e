"""The GPT example: the same losses on places and processes, under each launcher, and after a kill."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import child, warm
from tests.helpers.patience import HANG
from tstatic import places as places_module
from tstatic import static
from tstatic.comm.rendezvous import launch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "gpt.py"
SMALL = {"steps": 9, "batch": 8, "tokens": 16, "width": 16, "layers": 1, "heads": 2}
CLOSE = {"rtol": 1e-6, "atol": 0.0}
"""Float32 gradients are added in another order: 4e-8 after nine steps of AdamW."""


@pytest.fixture(scope="module")
def gpt() -> ModuleType:
    """The script as a module."""
    pytest.importorskip("tqdm")
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("gpt_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def trained(gpt: ModuleType, out: Path, places: int = 1, **settings: Any) -> list[float]:
    """Losses of a run in this process, in a scope of its own."""
    with static.scope_guard(static.Scope()):
        losses: list[float] = gpt.train(gpt.Settings(**{**SMALL, **settings}), places, out, False, 3)
    return losses


_alone: list[float] = []


@pytest.fixture
def alone(gpt: ModuleType, tmp_path: Path) -> list[float]:
    """The losses of one process with one place, trained once."""
    if not _alone:
        _alone.extend(trained(gpt, tmp_path / "alone"))
    return _alone


def arguments(out: Path, **settings: object) -> list[str]:
    """The command line of such a run."""
    given = {**SMALL, "save-every": 3, "out": out, **settings}
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


def run(*command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own and looks at how it ended."""
    environment = child.environment(OMP_NUM_THREADS="1")
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=HANG
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def saved(out: Path) -> list[float]:
    """The losses in the checkpoint of a folder."""
    (path,) = sorted((out / "gpt-checkpoints").glob("*.state"))[-1:]
    losses: list[float] = paddle.load(path)["state"]["losses"]
    return losses


def test_the_text_is_the_librarys_own(gpt: ModuleType) -> None:
    least = importlib.import_module("library").LEAST
    text = gpt.library()
    assert len(text) >= least
    assert b"def abstractmethod(" in text  # abc.py
    assert text == gpt.library()


def test_the_loss_falls_and_the_model_writes(
    gpt: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = trained(gpt, tmp_path, steps=60, width=32, tokens=32, rate=1e-2)
    assert abs(losses[0] - np.log(256)) < 0.3
    assert np.mean(losses[-10:]) < 3.8
    assert (tmp_path / "gpt.png").stat().st_size > 1000
    told = capsys.readouterr()
    assert "\ndef " in told.out
    strange = {c for c in told.out + told.err if c != "\n" and not c.isprintable()}
    assert not strange, "what a model wrote may hold any byte, and a bar's frames are for terminals"
    lines = told.err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"gpt: step {n} of 60" for n in range(3, 61, 3)]
    assert "60 steps of 256 bytes on 1 place;" in told.out
    assert {p.stem for p in (tmp_path / "gpt-checkpoints").iterdir()} == {"step-00000060"}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_places_give_the_losses_of_one(gpt: ModuleType, tmp_path: Path, count: int, alone: list[float]) -> None:
    np.testing.assert_allclose(trained(gpt, tmp_path / "many", count), alone, **CLOSE)
    # An oracle that sees a part of the batch only is noticed.
    if count == 2:
        assert not np.allclose(trained(gpt, tmp_path / "half", batch=4), alone, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_follows_float32(gpt: ModuleType, tmp_path: Path, amp: str, alone: list[float]) -> None:
    losses = trained(gpt, tmp_path, amp=amp)
    np.testing.assert_allclose(losses, alone, rtol=0.0, atol=1e-2)
    # numpy's operators compute float16 in float32, those of other devices in itself.
    widened = amp == "fp16" and os.environ.get("TSTATIC_CPU_BACKEND", "numpy") in ("numpy", "interpret")
    assert np.allclose(losses, alone, **CLOSE) is widened


SRUN = """
import os, subprocess, sys
(_, _, count, *command) = sys.argv
slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": count, "SLURM_JOB_NODELIST": "localhost"}
tasks = [
    subprocess.Popen([sys.executable, *command], env=os.environ | slurm | {"SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)})
    for n in range(int(count))
]
sys.exit(max(task.wait() for task in tasks))
"""
"""What ``srun`` does on one machine, as far as its tasks see it."""

TWICE = """
import json, sys
sys.path.insert(0, {folder!r})
import gpt
for sys.argv in json.loads(sys.argv[1]):
    gpt.main()
"""


@pytest.mark.slow
@pytest.mark.torch
def test_two_processes_give_the_losses_of_one(gpt: ModuleType, tmp_path: Path, alone: list[float]) -> None:
    """With one place each, then with two each."""
    pytest.importorskip("torch")
    script = tmp_path / "twice.py"
    script.write_text(TWICE.format(folder=str(SCRIPT.parent)))
    commands = [["gpt.py", *arguments(tmp_path / f"two-{places}", places=places)] for places in (1, 2)]
    starts = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    told = run(*starts, json.dumps(commands, default=str)).stdout
    assert told.count("bytes on") == 2, "one process writes"
    for places in (1, 2):
        np.testing.assert_allclose(saved(tmp_path / f"two-{places}"), alone, **CLOSE)


LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone"],
    "tstatic.distributed.launch": ["-m", "tstatic.distributed.launch", "--log_dir", "FOLDER/log"],
    "srun": ["-c", SRUN],
}
"""Launcher -> how Python starts it; ``--nproc_per_node 2`` and the script's command line follow."""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_starts_the_same_command_line(gpt: ModuleType, tmp_path: Path, launcher: str) -> None:
    """In mixed precision, where gradients of two parts may be rounded to 16 bits before they are added."""
    pytest.importorskip("torch")
    start = [one.replace("FOLDER", str(tmp_path)) for one in LAUNCHERS[launcher]]
    command = [str(SCRIPT), *arguments(tmp_path / "two", amp="bf16", place="cpu")]
    told = run(*start, "--nproc_per_node", "2", *command).stdout
    assert told.count("9 steps of 128 bytes on 2 places;") == 1, "rank 0 alone prints"
    alone = trained(gpt, tmp_path / "alone", amp="bf16")
    np.testing.assert_allclose(saved(tmp_path / "two"), alone, rtol=0.0, atol=1e-2)
    assert alone[-1] < alone[0] - 0.1, "a training that learns nothing would compare nothing"


@pytest.mark.parametrize(
    ("visible", "selected", "local", "count", "expected"),
    [
        (8, "", 0, 1, [0]),
        (8, "", 5, 1, [5]),
        (1, "", 5, 1, [0]),  # a launcher that shows each process a GPU of its own
        (8, "3", 1, 1, [3]),  # tstatic.distributed.launch --devices 2,3
        (2, "", 3, 1, [1]),  # two processes on each GPU
        (8, "", 1, 4, [4, 5, 6, 7]),
        (8, "", 0, 8, [*range(8)]),
        (1, "", 0, 2, [0, 0]),
    ],
)
def test_each_process_takes_gpus_of_its_own(
    gpt: ModuleType, monkeypatch: pytest.MonkeyPatch, visible: int, selected: str, local: int, count: int,
    expected: list[int],
) -> None:  # fmt: skip
    monkeypatch.setattr(places_module, "_count_gpus", lambda _: visible)
    monkeypatch.setattr(places_module, "resolve", lambda place: place)
    monkeypatch.setenv("FLAGS_selected_gpus", selected)
    told = {"RANK": local, "WORLD_SIZE": 9, "LOCAL_RANK": local, "MASTER_ADDR": "h", "MASTER_PORT": 1}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(launch, "_current", None)
    monkeypatch.setattr(atexit, "register", lambda function: None)
    monkeypatch.setattr(launch, "_announcing", [])
    assert [one.get_device_id() for one in gpt.own_places(count, "gpu")] == expected


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.numpy_device("puts a device of its own in the place of a GPU")
def test_it_trains_on_the_first_gpu(gpt: ModuleType, tmp_path: Path, alone: list[float]) -> None:
    pytest.importorskip("torch")
    from tests.helpers.gpu import first_gpu

    with first_gpu(), static.scope_guard(static.Scope()):
        losses = gpt.train(gpt.Settings(**SMALL), 1, tmp_path, False, 3, "gpu")
    np.testing.assert_allclose(losses, alone, rtol=1e-4)


def test_parts_that_are_not_even_are_refused(gpt: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="evenly among 3 places; one of 6 can: --batch 6"):
        trained(gpt, tmp_path, 3)


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import gpt
calls, real = 0, gpt.{name}
def counted(*arguments):
    global calls
    calls += 1
    if calls == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
gpt.{name} = counted
gpt.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "call", "places", "kept"),
    [("mean_loss", 8, 1, 6), ("save", 2, 2, 3)],
    ids=["in a step", "before a save"],
)
def test_a_killed_run_resumes_bit_for_bit(
    gpt: ModuleType, tmp_path: Path, name: str, call: int, places: int, kept: int
) -> None:
    unbroken = trained(gpt, tmp_path / "unbroken", places, dropout=0.1)
    given = arguments(tmp_path / "killed", places=places, dropout=0.1)
    code = KILLED.format(folder=str(SCRIPT.parent), name=name, call=call)
    killed = warm.run_text(code, *given, cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert saved(tmp_path / "killed") == unbroken[:kept]
    resumed = warm.run(SCRIPT, "--resume", *given, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert saved(tmp_path / "killed") == unbroken
    assert "step-00000009" in {p.stem for p in (tmp_path / "killed" / "gpt-checkpoints").iterdir()}


@pytest.mark.slow
def test_other_settings_are_not_resumed(gpt: ModuleType, tmp_path: Path) -> None:
    trained(gpt, tmp_path)
    with pytest.raises(SystemExit, match="another width"), static.scope_guard(static.Scope()):
        gpt.train(gpt.Settings(**{**SMALL, "width": 32}), 1, tmp_path, True, 3)


@pytest.mark.slow
def test_a_finished_run_is_trained_longer(gpt: ModuleType, tmp_path: Path) -> None:
    first = trained(gpt, tmp_path)
    with static.scope_guard(static.Scope()):
        longer = gpt.train(gpt.Settings(**{**SMALL, "steps": 12}), 1, tmp_path, True, 3)
    assert longer[:9] == first
    assert len(longer) == 12
    assert saved(tmp_path) == longer
    with static.scope_guard(static.Scope()):
        assert gpt.train(gpt.Settings(**{**SMALL, "steps": 12}), 1, tmp_path, True, 3) == longer
