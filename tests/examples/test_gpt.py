"""The GPT example: the same losses on places and processes, and after a kill."""

from __future__ import annotations

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
from tstatic import static

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
@pytest.mark.parametrize("places", [2, 4])
def test_places_give_the_losses_of_one(gpt: ModuleType, tmp_path: Path, places: int, alone: list[float]) -> None:
    np.testing.assert_allclose(trained(gpt, tmp_path / "many", places), alone, **CLOSE)
    # An oracle that sees a part of the batch only is noticed.
    if places == 2:
        assert not np.allclose(trained(gpt, tmp_path / "half", batch=4), alone, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_follows_float32(gpt: ModuleType, tmp_path: Path, amp: str, alone: list[float]) -> None:
    losses = trained(gpt, tmp_path, amp=amp)
    np.testing.assert_allclose(losses, alone, rtol=0.0, atol=1e-2)
    # numpy's operators compute float16 in float32, those of other devices in itself.
    widened = amp == "fp16" and os.environ.get("TSTATIC_CPU_BACKEND", "numpy") in ("numpy", "interpret")
    assert np.allclose(losses, alone, **CLOSE) is widened


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
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    told = run(*launch, json.dumps(commands, default=str)).stdout
    assert told.count("bytes on") == 2, "one process writes"
    for places in (1, 2):
        np.testing.assert_allclose(saved(tmp_path / f"two-{places}"), alone, **CLOSE)


def test_parts_that_are_not_even_are_refused(gpt: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="evenly among 3 places"):
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
