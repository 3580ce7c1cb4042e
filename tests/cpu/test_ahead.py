"""Runs that do not wait for their device give the bits of runs that do, and whatever touches their state comes behind them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_graphs import Build, dense, images, interrupted, pytestmark, standing_in, words
from tstatic import static
from tstatic.errors import IndexRangeError
from tstatic.runtime.ahead import RunsAhead
from tstatic.runtime.feed import StagedFeeds
from tstatic.runtime.fetch import StagedFetches
from tstatic.static.run.run_future import RunFuture

__all__ = ["pytestmark"]

NAMES = ["gpu", "fake"]


def scheduled() -> tuple[list[Any], dict[str, Any]]:
    x = static.data("x", [None, 6])
    loss = paddle.mean(paddle.square(static.nn.fc(static.nn.fc(x, 8, activation="relu"), 3)))
    paddle.optimizer.Momentum(paddle.optimizer.lr.StepDecay(0.05, 2), 0.9).minimize(loss)
    return [loss], {"x": np.random.default_rng(0).random((4, 6), "float32")}


class Training:
    """A program with its state, whose steps are fed other values each."""

    def __init__(self, build: Build, iterations: int = 1) -> None:
        paddle.seed(5)
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            self.fetches, self.feed = build()
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)
        execution = static.ExecutionStrategy()
        execution.num_iteration_per_run = iterations
        self.program = static.CompiledProgram(self.main, exec_strategy=execution) if iterations > 1 else self.main
        self.step = 0

    def fed(self, bad: bool = False) -> dict[str, Any]:
        self.step += 1
        if bad:
            return {name: value + 100 if value.dtype.kind == "i" else value for name, value in self.feed.items()}
        return {
            name: value + np.float32(self.step) if value.dtype.kind == "f" else value
            for name, value in self.feed.items()
        }

    def run(self, bad: bool = False, **options: Any) -> Any:
        return self.exe.run(self.program, feed=self.fed(bad), fetch_list=self.fetches, scope=self.scope, **options)

    def state(self) -> list[Any]:
        names = sorted(v.name for v in self.main.list_vars() if v.persistable)
        return [np.array(self.scope.find_var(name).get_tensor()) for name in names]

    @property
    def in_flight(self) -> int:
        owner = self.scope.in_flight.owner
        return 0 if owner is None else len(owner.steps)  # type: ignore[attr-defined]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return [np.asarray(value).tobytes() for value in call()]
    except Exception as error:
        return type(error), str(error)


def compared(name: str, build: Build, bad: tuple[int, ...] = (), steps: int = 8) -> None:
    """Compares runs that wait with runs that do not: results, errors and state."""
    with standing_in(name):
        one, other = Training(build), Training(build)
        waited = [outcome(lambda i=i: one.run(i in bad)) for i in range(steps)]
        futures = [other.run(i in bad, block=False) for i in range(steps)]
        # The last ones first: each result is that of its own step.
        queued = [outcome(future.result) for future in reversed(futures)][::-1]
        assert queued == waited
        assert any(isinstance(found, tuple) for found in waited) == bool(bad)
        assert [a.tobytes() for a in other.state()] == [a.tobytes() for a in one.state()]


@pytest.mark.parametrize("build", [dense, images, words, interrupted, scheduled], ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_queued_runs_give_the_bits_of_runs_that_wait(name: str, build: Build) -> None:
    compared(name, build)


@pytest.mark.parametrize("build", [words, images], ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_refused_step_changes_nothing_and_those_behind_it_go_on(name: str, build: Build) -> None:
    compared(name, build, bad=(2,))
    compared(name, build, bad=(3, 4, 7))


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_step_takes_its_learning_rate_back(name: str) -> None:
    def build() -> tuple[list[Any], dict[str, Any]]:
        ids = static.data("ids", [None, 3], "int64")
        loss = paddle.mean(paddle.tanh(static.nn.embedding(ids, [9, 4])))
        paddle.optimizer.Adam(paddle.optimizer.lr.NaturalExpDecay(0.05, 0.5)).minimize(loss)
        return [loss], {"ids": np.array([[1, 2, 8], [0, 3, 3]])}

    def train(training: Training, bad: tuple[int, ...], block: bool) -> list[Any]:
        (rate,) = {id(r): r for r in training.main.learning_rates.values()}.values()
        found = []
        for i in range(6):
            options = {} if block else {"block": False}
            found.append(outcome(lambda i=i: training.run(i in bad)) if block else training.run(i in bad, **options))
            rate.step()
        return found if block else [outcome(future.result) for future in found]

    for bad in [(5,), (4, 5), (1,), (2, 3)]:
        with standing_in(name):
            one, other = Training(build), Training(build)
            assert train(one, bad, True) == train(other, bad, False)
            assert [a.tobytes() for a in other.state()] == [a.tobytes() for a in one.state()]


# ------------------------------------------------------------------------------------------------------------------- order
@pytest.mark.parametrize("name", NAMES)
def test_at_most_three_steps_are_in_flight(name: str) -> None:
    with standing_in(name):
        training = Training(dense)
        training.run()
        seen = []
        for _ in range(6):
            training.run(block=False)
            seen.append(training.in_flight)
        assert seen == [1, 2, 3, 3, 3, 3]
        training.run()
        assert training.in_flight == 0


READERS: dict[str, Callable[[Training, Path], Any]] = {
    "get_tensor": lambda t, path: t.state(),
    "set": lambda t, path: t.scope.find_var(t.main.all_parameters()[0].name).get_tensor().set(
        np.zeros(t.main.all_parameters()[0].shape, "float32"), paddle.CPUPlace()
    ),
    "startup": lambda t, path: t.exe.run(t.startup, scope=t.scope),
    "save": lambda t, path: _saved(t, path),
    "load": lambda t, path: t.main.set_state_dict(
        {p.name: np.ones(p.shape, "float32") for p in t.main.all_parameters()}, t.scope
    ),
    "another program": lambda t, path: t.exe.run(t.main.clone(for_test=True), feed=t.feed, fetch_list=t.fetches, scope=t.scope),
    "another scope": lambda t, path: t.exe.run(t.startup, scope=static.Scope()),
    "seed": lambda t, path: paddle.seed(7),
    "close": lambda t, path: t.exe.close() or setattr(t, "exe", static.Executor(paddle.CPUPlace())),
}  # fmt: skip


def _saved(training: Training, path: Path) -> list[bytes]:
    with static.scope_guard(training.scope):
        static.save(training.main, str(path / "m"))
    return [value.tobytes() for _, value in sorted(static.load_program_state(str(path / "m")).items())]


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("name", NAMES)
def test_what_touches_the_state_comes_behind_the_steps_in_flight(name: str, what: str, tmp_path: Path) -> None:
    found = []
    with standing_in(name):
        for block in (True, False):
            training = Training(dense)
            path = tmp_path / str(block)
            path.mkdir()
            futures = [training.run(block=block) for _ in range(4)]
            READERS[what](training, path)
            futures += [training.run(block=block) for _ in range(2)]
            results = [one.result() if isinstance(one, RunFuture) else one for one in futures]
            found.append([np.asarray(v).tobytes() for row in results for v in row])
            found[-1] += [a.tobytes() for a in training.state()] + (_saved(training, path) if what == "save" else [])
    assert found[0] == found[1]


@pytest.mark.parametrize("build", [dense, words], ids=lambda build: build.__name__)
def test_a_run_of_several_iterations_waits_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("gpu") as gpu:
        one, many = Training(build), Training(build, iterations=5)
        feed = one.feed
        waits: list[int] = []
        for name in ("synchronize", "finish"):
            right = getattr(gpu, name)
            monkeypatch.setattr(gpu, name, lambda *args, right=right: (waits.append(1), right(*args))[1])
        for _ in range(3):
            waits.clear()
            found = many.exe.run(many.program, feed=feed, fetch_list=many.fetches, scope=many.scope)
            counted = len(waits)
        assert counted == 1
        for _ in range(15):
            single = one.exe.run(one.main, feed=feed, fetch_list=one.fetches, scope=one.scope)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in single]
        assert [a.tobytes() for a in many.state()] == [a.tobytes() for a in one.state()]
        assert {count for _, count in many.scope.runs.values()} == {count for _, count in one.scope.runs.values()}


@pytest.mark.parametrize("name", NAMES)
def test_several_iterations_that_are_refused_change_nothing(name: str) -> None:
    with standing_in(name):
        training = Training(words, iterations=4)
        training.run()
        before = [a.tobytes() for a in training.state()]
        count = dict(training.scope.runs)
        with pytest.raises(IndexRangeError):
            training.run(bad=True)
        assert [a.tobytes() for a in training.state()] == before
        assert training.scope.runs == count


# ----------------------------------------------------------------------------------------------------------------- futures
@pytest.mark.parametrize("name", NAMES)
def test_a_future_tells_when_it_is_done_and_gives_one_list(name: str) -> None:
    with standing_in(name):
        training = Training(dense)
        futures = [training.run(block=False) for _ in range(3)]
        for _ in range(1000):
            if futures[2].done():
                break
        assert futures[2].done()
        found = futures[1].result(timeout=60)
        assert found is futures[1].result()
        assert training.in_flight == 1
        with pytest.raises(paddle.errors.TstaticError, match="timeout"):
            futures[2].result(timeout="soon")
        futures[2].result()


def test_a_result_that_is_late_is_a_timeout_and_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("gpu") as gpu:
        training = Training(dense)
        future = training.run(block=False)
        with monkeypatch.context() as patch:
            patch.setattr(gpu, "reached", lambda event: False)
            assert not future.done()
            with pytest.raises(TimeoutError):
                future.result(timeout=0.01)
        assert len(future.result(timeout=0)) == 2


def test_an_error_that_nobody_asks_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with standing_in("fake"), caplog.at_level(logging.WARNING, "tstatic.steps"):
        training = Training(words)
        training.run(bad=True, block=False)
        training.state()
        gc.collect()
    assert "nobody asked for the result of a run" in caplog.text
    assert "out of range" in caplog.text


def test_what_is_wrong_with_the_call_is_raised_at_once() -> None:
    with standing_in("fake"):
        training = Training(dense)
        with pytest.raises(paddle.errors.TstaticError, match="x"):
            training.exe.run(training.main, feed={}, fetch_list=training.fetches, scope=training.scope, block=False)


def test_on_a_device_without_queues_the_future_is_done() -> None:
    training = Training(words)
    future = training.run(block=False)
    assert future.done()
    assert len(future.result()) == 1
    refused = training.run(bad=True, block=False)
    with pytest.raises(IndexRangeError):
        refused.result()


def test_ctrl_c_drains_the_steps_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("fake"):
        training, plain = Training(dense), Training(dense)
        futures = [training.run(block=False) for _ in range(3)]
        right = RunsAhead.settle_through

        def hit(self: RunsAhead, step: Any) -> None:
            right(self, step)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(RunsAhead, "settle_through", hit)
            with pytest.raises(KeyboardInterrupt):
                futures[0].result()
        assert training.in_flight == 0
        for _ in range(3):
            plain.run()
        assert [a.tobytes() for a in training.state()] == [a.tobytes() for a in plain.state()]
        futures[2].result()


# ----------------------------------------------------------------------------------------------------------------- faults
def _one_slot(patch: pytest.MonkeyPatch) -> None:
    right = StagedFetches.send
    patch.setattr(StagedFetches, "send", lambda self, slot=0: right(self))
    take = StagedFetches.take
    patch.setattr(StagedFetches, "take", lambda self, places, slot=0: take(self, places))


def _one_feed_slot(patch: pytest.MonkeyPatch) -> None:
    right = StagedFeeds.send
    patch.setattr(StagedFeeds, "send", lambda self, values, slot=0: right(self, values))


@pytest.mark.parametrize("plant", [_one_slot, _one_feed_slot], ids=lambda plant: plant.__name__)
def test_planted_faults_are_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, ValueError)):
            compared("fake", dense)


# ------------------------------------------------------------------------------------------------------- device's own tensors
@pytest.mark.parametrize("build", [dense, images, words, interrupted], ids=lambda build: build.__name__)
@pytest.mark.parametrize("block", [True, False])
def test_tensors_of_the_device_are_fed_and_fetched_without_a_visit_to_the_host(
    build: Build, block: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    with standing_in("gpu") as gpu:
        one, other = Training(build), Training(build)
        waited = [one.run() for _ in range(4)]
        found = []
        visits: list[Any] = []
        right = gpu.to_host
        monkeypatch.setattr(gpu, "to_host", lambda *args: (visits.append(args), right(*args))[1])
        for _ in range(4):
            feed = {name: torch.from_numpy(np.array(value)) for name, value in other.fed().items()}
            got = other.exe.run(
                other.main, feed=feed, fetch_list=other.fetches, scope=other.scope, return_numpy=False, block=block
            )
            # The caller goes on with memory of its own.
            for value in feed.values():
                value.zero_() if block else None
            found.append(got)
        found = [one.result() if isinstance(one, RunFuture) else one for one in found]
        if build is not interrupted:
            assert not visits
        tensors = [[torch.from_dlpack(value) for value in row] for row in found]
        assert all(value._array is not None and gpu.holds(value._array) for row in found for value in row[:1])
        assert [[t.numpy().tobytes() for t in row] for row in tensors] == [[a.tobytes() for a in row] for row in waited]
        assert [a.tobytes() for a in other.state()] == [a.tobytes() for a in one.state()]


def test_a_tensor_of_the_device_is_checked_like_an_array() -> None:
    torch = pytest.importorskip("torch")
    with standing_in("gpu"):
        training = Training(dense)
        for wrong in (torch.zeros(4, 7), torch.zeros(4, 6, dtype=torch.float64)):
            with pytest.raises(paddle.errors.FeedError) as caught:
                training.exe.run(training.main, feed={"x": wrong}, fetch_list=training.fetches, scope=training.scope)
            with pytest.raises(type(caught.value)) as same:
                training.exe.run(
                    training.main, feed={"x": wrong.numpy()}, fetch_list=training.fetches, scope=training.scope
                )
            assert str(same.value) == str(caught.value)


def test_a_variable_of_the_device_is_given_as_a_copy() -> None:
    torch = pytest.importorskip("torch")
    with standing_in("gpu"):
        training = Training(dense)
        training.run()
        name = training.main.all_parameters()[0].name
        tensor = training.scope.find_var(name).get_tensor()
        given, before = torch.from_dlpack(tensor), np.array(tensor)
        training.run()
        assert given.numpy().tobytes() == before.tobytes() != np.array(tensor).tobytes()


def test_rates_of_a_schedule_cost_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("gpu") as gpu:
        training = Training(scheduled)
        (rate,) = {id(one): one for one in training.main.learning_rates.values()}.values()
        for _ in range(3):
            training.run()
            rate.step()
        waits: list[int] = []
        for name in ("synchronize", "finish", "to_host"):
            right = getattr(gpu, name)
            monkeypatch.setattr(gpu, name, lambda *given, right=right: (waits.append(1), right(*given))[1])
        for _ in range(3):
            waits.clear()
            training.run()
            rate.step()
            assert len(waits) == 1, "for what it fetches"
        futures = [training.run(block=False) for _ in range(2)]
        waits.clear()
        futures.append(training.run(block=False))
        assert not waits, "three steps are in flight"
        for future in futures:
            future.result()
