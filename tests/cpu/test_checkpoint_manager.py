"""Checkpoints of a training: rotation, the best, and going on bit for bit after a crash at any point."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_whole_saves import count_calls, ended, fork
from tests.helpers.seed import SEED
from tests.helpers.trees import snapshot
from tstatic import static
from tstatic.errors import CheckpointError, ProgramError


class Training:
    """A net with dropout, batch norm, Adam and a falling rate; each step depends on its number alone."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.main, self.startup = static.Program(), static.Program()
        self.main.random_seed = self.startup.random_seed = 5
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            h = static.nn.batch_norm(static.nn.fc(static.data("x", [None, 3]), 4))
            self.loss = paddle.mean(paddle.nn.functional.dropout(h, 0.5) ** 2)
            self.rate = paddle.optimizer.lr.StepDecay(0.1, 2)
            paddle.optimizer.Adam(self.rate).minimize(self.loss)
        self.exe = static.Executor("cpu")
        self.exe.run(self.startup)
        self.manager = static.CheckpointManager(folder, self.main, scheduler=self.rate, **settings)

    def step(self, number: int) -> float:
        x = np.random.default_rng(number).standard_normal((4, 3)).astype("float32")
        (loss,) = self.exe.run(self.main, feed={"x": x}, fetch_list=[self.loss])
        self.rate.step()
        return float(loss)

    def state(self) -> list[Any]:
        scope = static.global_scope()
        names = sorted(v.name for v in self.main.list_vars() if v.persistable)
        values = [np.array(scope.find_var(name).get_tensor()).tobytes() for name in names]
        return [*values, self.rate.state_dict()]


@pytest.fixture(autouse=True)
def own_scope() -> Any:
    with static.scope_guard(static.Scope()):
        yield


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_of(*steps: int) -> list[str]:
    return [f"step-{step:08}{suffix}" for step in steps for suffix in (".pdmodel", ".pdparams", ".state")]


# ------------------------------------------------------------------------------------------------------------- keep
def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    training = Training(tmp_path, keep=2)
    manager = training.manager
    assert manager.steps() == []
    for ask in (manager.latest, manager.best, manager.read, manager.restore, lambda: manager.restore("best")):
        assert ask() is None
    kept = []
    for step, metric in enumerate((3.0, 1.0, float("nan"), 2.0, 1.0, 0.5), 1):
        path = manager.save(step, metric=metric)
        assert path == manager.path(step)
        kept.append((manager.steps(), manager.best()))
    assert kept == [([1], 1), ([1, 2], 2), ([2, 3], 2), ([2, 3, 4], 2), ([2, 4, 5], 2), ([5, 6], 6)]
    assert names(tmp_path) == files_of(5, 6)


def test_a_larger_metric_may_be_the_better_one(tmp_path: Path) -> None:
    manager = Training(tmp_path, keep=1, mode="max").manager
    for step, metric in enumerate((0.5, 0.9, 0.7), 1):
        manager.save(step, metric=np.array([metric]))
    assert (manager.steps(), manager.best()) == ([2, 3], 2)
    found = manager.restore("best")
    assert found is not None
    assert (found.step, found.metric) == (2, 0.9)


def test_the_best_is_looked_for_again_when_it_is_replaced(tmp_path: Path) -> None:
    manager = Training(tmp_path, keep=3).manager
    for step, metric in ((1, 2.0), (2, 1.0), (3, 3.0), (3, 4.0), (2, 9.0)):
        manager.save(step, metric=metric)
    # Step 3 lies behind the step that is trained again, so it belongs to another course.
    assert (manager.steps(), manager.best()) == ([1, 2], 1)


def test_remains_and_other_files_are_told_apart(tmp_path: Path) -> None:
    manager = Training(tmp_path, keep=1).manager
    manager.save(1)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-00000001.state").unlink()
    assert manager.steps() == []
    manager.save(2)
    assert names(tmp_path) == ["notes.txt", *files_of(2)]


def test_what_no_manager_wrote_is_not_removed(tmp_path: Path) -> None:
    """Whatever had a name of an old checkpoint was removed, also links and notes."""
    folder, outside = tmp_path / "run", tmp_path / "outside"
    manager = Training(folder, keep=1).manager
    manager.save(5)
    outside.mkdir()
    (outside / "values").write_bytes((folder / "step-00000005.pdparams").read_bytes())
    mine = [
        folder / f"step-0000000{n}{suffix}"
        for n, suffix in ((1, ".pdparams"), (2, ".state"), (3, ".pdmodel"), (4, ".state"))
    ]
    mine[0].symlink_to(outside / "values")
    mine[1].write_text("notes on step 2")
    mine[2].symlink_to(outside)
    os.mkfifo(mine[3])
    before = snapshot(outside)
    manager.save(6)
    assert names(folder) == sorted([*(path.name for path in mine), *files_of(6)])
    assert snapshot(outside) == before
    assert manager.steps() == [6]


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    training = Training(tmp_path)
    for given, words in (
        ({"keep": 0}, "at least one"),
        ({"mode": "low"}, "no mode 'low'"),
        ({"name": "a/b"}, "names of files"),
    ):
        with pytest.raises(ProgramError, match=words):
            static.CheckpointManager(tmp_path, training.main, **given)  # type: ignore[arg-type]
    for step in (-1, 1.5, True):
        with pytest.raises(ProgramError, match="belongs to a step"):
            training.manager.save(step)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="one number"):
        training.manager.save(1, metric=np.ones(2))
    with pytest.raises(ProgramError, match="only plain data"):
        training.manager.save(1, thing=object())
    assert names(tmp_path) == []
    training.manager.save(1)
    with pytest.raises(CheckpointError, match="no checkpoint of step 7"):
        training.manager.restore(7)


# ---------------------------------------------------------------------------------------------------------- resume
@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_resumed_training_is_the_unbroken_one_bit_for_bit(tmp_path: Path, at: int) -> None:
    unbroken = Training(tmp_path / "unbroken")
    losses = [unbroken.step(number) for number in range(6)]
    expected = unbroken.state()
    with static.scope_guard(static.Scope()):
        first = Training(tmp_path / "broken")
        told = [first.step(number) for number in range(at)]
        first.manager.save(at, metric=told[-1], losses=told, rng=np.random.default_rng(1).bit_generator.state)
    with static.scope_guard(static.Scope()):
        again = Training(tmp_path / "broken")
        before = again.state()
        told_only = again.manager.read()
        assert again.state() == before
        found = again.manager.restore()
        assert found is not None
        assert found == told_only == again.manager.read(at)
        assert (found.step, found.metric, found.state["losses"]) == (at, told[-1], told)
        assert found.state["rng"] == np.random.default_rng(1).bit_generator.state
        assert [*told, *(again.step(number) for number in range(at, 6))] == losses
        assert again.state() == expected


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path)
    states = {}
    for step in (1, 2, 3):
        training.step(step)
        training.manager.save(step)
        states[step] = training.state()
    for step, suffix in ((3, ".pdparams"), (2, ".state")):
        path = training.manager.path(step).with_name(training.manager.path(step).name + suffix)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        before = training.state()
        with pytest.raises(CheckpointError):
            training.manager.restore(step)
        assert training.state() == before
        found = training.manager.restore()
        assert found is not None
        assert found.step == step - 1
        assert training.state() == states[step - 1]
        assert f"that of step {step - 1} is taken" in caplog.text
    for path in tmp_path.glob("*.state"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot be read"):
        training.manager.restore()


class Clock:
    """A schedule that is none of tstatic's."""

    def __init__(self) -> None:
        self.hour = 0

    def state_dict(self) -> dict[str, Any]:
        return {"hour": self.hour}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        self.hour = state["hour"]


@pytest.mark.parametrize("own", [False, True])
def test_a_schedule_keeps_its_state_where_the_values_of_a_checkpoint_are_damaged(own: bool, tmp_path: Path) -> None:
    training = Training(tmp_path)
    clock = Clock()
    manager = static.CheckpointManager(tmp_path, training.main, scheduler=clock if own else training.rate)
    training.step(1)
    manager.save(1)
    path = manager.path(1).with_name(manager.path(1).name + ".pdparams")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    training.step(2)
    clock.hour = 5
    before = training.state()
    for step in (1, "latest"):
        with pytest.raises(CheckpointError):
            manager.restore(step)  # type: ignore[arg-type]
        assert (training.state(), clock.hour) == (before, 5)
    path.write_bytes(whole)
    manager.restore()
    assert (training.rate.last_epoch, clock.hour) == ((2, 0) if own else (1, 5))


# ----------------------------------------------------------------------------------------------------------- killed
def test_a_save_killed_before_any_file_system_call_leaves_whole_checkpoints(tmp_path: Path) -> None:
    training = Training(tmp_path / "old", keep=1)
    states: dict[int, Any] = {}
    for step in (1, 2):
        training.step(step)
        training.manager.save(step, metric=float(step))
        states[step] = training.state()
    training.step(3)
    states[3] = training.state()
    third = static.CheckpointManager(tmp_path / "third", training.main, scheduler=training.rate)
    third.save(3)
    every = 1 if os.environ.get("TSTATIC_KILLS") else 3
    seen, killed = [], 0
    for last in range(1 + random.Random(SEED).randrange(every), 300, every):
        folder = tmp_path / str(last)
        shutil.copytree(tmp_path / "old", folder)
        manager = static.CheckpointManager(folder, training.main, keep=1, scheduler=training.rate)

        def save(last: int = last, manager: Any = manager) -> None:
            count_calls(last)
            manager.save(3, metric=3.0)

        third.restore()
        code = ended(fork(save))
        killed += code == 9
        found = manager.restore()
        assert found is not None
        assert training.state() == states[found.step]
        assert manager.best() == 1, "the best one is never lost"
        seen.append(found.step)
        if last % 2:
            # The next save clears up what is left.
            third.restore()
            manager.save(3, metric=3.0)
            assert names(folder) == files_of(1, 3)
        if code == 0:
            break
    assert seen == sorted(seen), "there is one point at which the save counts"
    assert (seen[0], seen[-1]) == (2, 3)
    assert killed > 10
