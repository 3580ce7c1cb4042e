"""Sums of gradients over several runs: each place keeps its own until they are complete, and nobody who looks can tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parallel.merging import RUNS, Job, Kind, Rule, clipped, momentum, rows, scaled
from tests.parallel.test_late_devices import Net, backend, visits
from tstatic import devices, profiler, static
from tstatic.comm.passes.data_parallel import distribute
from tstatic.comm.passes.distribution import Distribution, Report
from tstatic.errors import RankNumericsError
from tstatic.ir.frozen import FrozenProgram
from tstatic.runtime.parted import Parted
from tstatic.static.compile import pipeline
from tstatic.static.strategy import BuildStrategy

Array = np.ndarray[Any, Any]


def same(a: dict[str, Array], b: dict[str, Array]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@contextlib.contextmanager
def joins() -> Iterator[list[Any]]:
    """The variables that are joined."""
    found: list[Any] = []
    real = Parted.join

    def counted(self: Parted, tensor: Any) -> None:
        if tensor in self.others:
            found.append(tensor)
        real(self, tensor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parted, "join", counted)
        yield found


# ------------------------------------------------------------------------------------------------------- what is exchanged
@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
@pytest.mark.parametrize(("rule", "fused"), [(momentum, False), (momentum, True), (clipped, False), (scaled, False)])
@pytest.mark.parametrize("places", [2, 3, 4])
def test_only_the_last_run_of_a_sum_exchanges_and_all_values_are_those_of_one_place(
    places: int, rule: Rule, fused: bool, kind: Any, device: str
) -> None:
    with devices.use(device), joins() as joined:
        one, several = Job(1, rule), Job(places, rule, kind, fused=fused)
        calls = []
        for number in range(2 * RUNS + 1):
            one.step(number)
            several.step(number)
            calls.append((several.group.calls, several.group.moved))
            if number == 1:
                joined.clear()  # the first run has moved variables into flat buffers
        assert not joined
        names = several.sums
        parts = {n: [several.part(n, replica) for replica in range(places)] for n in names}
        found, wanted = several.values(), one.values()
        replicas = [{n: several.part(n, r) for n in ("w", "fc_0.b_0")} for r in range(places)]
        several.exe.close()
    exchanged = np.diff([(0, 0), *calls], axis=0).tolist()
    none = [0, 0]
    assert exchanged[2] != none
    assert exchanged == [none, none, exchanged[2], none, none, exchanged[2], none]
    for name in names:
        np.testing.assert_array_equal(np.sum(parts[name], axis=0), wanted[name])
        assert not any(np.array_equal(part, wanted[name]) for part in parts[name]), "each place has its own"
    for name, value in wanted.items():
        # The rule divides and takes roots; its sums are exact.
        np.testing.assert_allclose(found[name], value, rtol=1.3e-6, atol=1e-6, err_msg=name)
        if name in names or rule is not clipped:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    for replica in replicas:
        same(replica, replicas[0])


@pytest.mark.torch
@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["fake", "gpu"])
def test_a_run_that_completes_no_sum_waits_once_on_each_place_and_moves_nothing(
    name: str, count: int, kind: Any
) -> None:
    with backend(name) as (device, place):
        net = Net("merge", place, count, reduce_strategy=kind)
        for _ in range(4):
            net.step()
        (replicas,) = net.exe._replicas.values()
        moved = [replicas.group.moved]
        with visits(device) as found:
            net.step()
        moved.append(replicas.group.moved)
        net.step()
        moved.append(replicas.group.moved)
    assert found == {"waits": count}
    between, last = np.diff(moved)
    assert between == 1, "whether a label is out of range"
    assert last > 1000


def test_complete_sums_hide_behind_the_backward_part_as_well_as_gradients_of_each_run() -> None:
    def deep(x: Any) -> Any:
        for _ in range(4):
            x = static.nn.fc(x, 256, activation="tanh")
        return paddle.mean(x)

    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 0})
    exposed = {}
    for numerics in ("default", "strict"):
        paddle.set_flags({"FLAGS_numerics": numerics})
        with devices.use("fake"):
            job = Job(2, net=deep, runs=2)
            for number in range(3):
                job.step(number, x=rows(number, 64))
            with profiler.profile() as found:
                job.step(3, x=rows(3, 64))
            job.exe.close()
        (place, other) = found.steps().exchanges
        assert place.total == other.total > 0
        exposed[numerics] = max(place.exposed, other.exposed)
    assert exposed["default"] <= 1.01 * exposed["strict"], "by the virtual clock"


# ------------------------------------------------------------------------------------------------------------- who looks
Look = Callable[[Job, Path], Any]


def _saved(job: Job, folder: Path, save: Callable[[str], Any], load: Callable[[str], Any]) -> dict[str, Array]:
    """Saves in the job's scope, and loads into another one."""
    path = str(folder / f"saved{job.places}")
    with static.scope_guard(job.scope):
        save(path)
    fresh = static.Scope()
    with static.scope_guard(fresh):
        job.exe.run(job.startup)
        load(path)
        return {name: np.array(fresh.find_var(name).get_tensor()) for name in job.sums}  # type: ignore[union-attr]


def _save(job: Job, folder: Path) -> Any:
    return _saved(job, folder, partial(static.save, job.main), partial(static.load, job.main))


def _save_persistables(job: Job, folder: Path) -> Any:
    return _saved(
        job, folder, lambda path: static.io.save_persistables(job.exe, path, job.main),
        lambda path: static.io.load_persistables(job.exe, path, job.main),
    )  # fmt: skip


def _manager(job: Job, folder: Path) -> Any:
    kept = static.CheckpointManager(str(folder / f"kept{job.places}"), job.main)
    return _saved(job, folder, lambda path: kept.save(1), lambda path: kept.restore())


def _state_dict(job: Job, folder: Path) -> Any:
    return {name: np.array(t) for name, t in job.main.state_dict("all", scope=job.scope).items()}


def _another_program(job: Job, folder: Path, places: int = 1) -> Any:
    main = static.Program()
    with static.program_guard(main):
        read = [
            main.global_block().create_var(name=n, shape=job.tensor(n).shape(), dtype="float32", persistable=True)
            for n in job.sums
        ]
        doubled = [one * 2.0 for one in read]
        one = static.data("x", [None, 1])
        doubled = [d + paddle.sum(one) * 0.0 for d in doubled]
    program = job.program(places, Kind.AllReduce, main) if places > 1 else main
    found = job.exe.run(
        program, feed={"x": np.zeros((4, 1), "float32")}, fetch_list=doubled, scope=job.scope, return_merged=job.places == 1
    )  # fmt: skip
    return [f[0] if job.places > 1 and places > 1 else f for f in found]


def _several(found: list[Any], job: Job) -> list[Any]:
    """What one place fetches; all places must have fetched the same."""
    if job.places == 1:
        return [np.asarray(one) for one in found]
    for one in found:
        for other in one[1:]:
            np.testing.assert_array_equal(other, one[0])
    return [np.asarray(one[0]) for one in found]


def _set(job: Job, folder: Path) -> None:
    for name in job.sums:
        job.tensor(name).set(np.full(job.tensor(name).shape(), 7, "float32"), paddle.CPUPlace())


def _set_parameter(job: Job, folder: Path) -> None:
    job.tensor("w").set(np.full((4, 2), 3, "float32"), paddle.CPUPlace())


def _reshaped(job: Job, folder: Path) -> None:
    """Other storage: a sum is written as float64 and back."""
    for name in job.sums:
        value = np.array(job.tensor(name))
        job.tensor(name).set(value.astype("float64"))
        job.tensor(name).set(value)


def _load(job: Job, folder: Path) -> None:
    path = str(folder / f"first{job.places}")
    fresh = static.Scope()
    with static.scope_guard(fresh):
        job.exe.run(job.startup)
        for name in job.sums:
            fresh.find_var(name).get_tensor().set(np.full(job.tensor(name).shape(), 5, "float32"))  # type: ignore[union-attr]
        static.save(job.main, path)
    with static.scope_guard(job.scope):
        static.load(job.main, path)


def _strict(job: Job, folder: Path, number: int = 20) -> None:
    before = paddle.get_flags("FLAGS_numerics")
    paddle.set_flags({"FLAGS_numerics": "strict"})
    try:
        job.step(number)
    finally:
        paddle.set_flags(before)


def _child(job: Job, folder: Path, times: int = 1) -> None:
    """The variables are those of a parent; each child has replicas of its own."""
    mine = job.scope
    for number in range(times):
        job.scope = mine.new_scope()
        job.step(30 + number)
    job.scope = mine


def _new_executor(job: Job, folder: Path) -> None:
    job.exe.close()
    job.exe = static.Executor("cpu")


def _erased(job: Job, folder: Path) -> None:
    """Variables are removed and made anew, while others stay."""
    job.scope.erase(job.sums)
    assert not job.scope.parted.others
    kept = {name: np.array(job.tensor(name)) for name in ("w", "fc_0.b_0")}
    job.exe.run(job.startup, scope=job.scope)
    for name, value in kept.items():
        job.tensor(name).set(value)


def _on_one_place(job: Job, folder: Path) -> Any:
    return job.exe.run(job.main, feed={"x": rows(40)}, fetch_list=[job.loss], scope=job.scope)


def _without_waiting(job: Job, folder: Path) -> Any:
    return job.exe.run(job.main, feed={"x": rows(40)}, fetch_list=[job.loss], scope=job.scope, block=False).result()


LOOKS: dict[str, Look] = {
    "nobody": lambda job, folder: None,
    "a tensor": lambda job, folder: [np.array(job.tensor(name)) for name in job.sums],
    "one of the tensors": lambda job, folder: np.array(job.tensor(job.sums[0])),
    "numpy": lambda job, folder: [job.tensor(name).numpy() for name in job.sums],
    "dlpack": lambda job, folder: [np.from_dlpack(job.tensor(name)) for name in job.sums],
    "repr": lambda job, folder: [repr(job.tensor(name)) for name in job.sums],
    "save": _save,
    "save_persistables": _save_persistables,
    "CheckpointManager": _manager,
    "state_dict": _state_dict,
    "get_value": lambda job, folder: [np.array(job.main.global_block().var(n).get_value(job.scope)) for n in job.sums],
    "fetch": lambda job, folder: _several(job.step(10, job.sums)[1:], job),
    "fetch of a merged gradient": lambda job, folder: _several(job.step(10, ["w@GRAD@MERGED_0"])[1:], job),
    "fetch of a gradient": lambda job, folder: _several(job.step(10, ["w@GRAD"], kind=Kind.AllReduce)[1:], job),
    "another program": _another_program,
    "another program on two places": partial(_another_program, places=2),
    "a run on one place": _on_one_place,
    "a run on one place that nobody waits for": _without_waiting,
    "fewer places": lambda job, folder: job.step(11, places=2) and None,
    "more places": lambda job, folder: job.step(11, places=4) and None,
    "other places by turns": lambda job, folder: [job.step(12 + n, places=n) and None for n in (2, 4, 2, 3, 2, 4)],
    "owners": lambda job, folder: job.step(13, kind=Kind.Reduce) and None,
    "no owners": lambda job, folder: job.step(13, kind=Kind.AllReduce) and None,
    "strict numerics": _strict,
    "a child": _child,
    "children": partial(_child, times=3),
    "set": _set,
    "set of a parameter": _set_parameter,
    "set of another type": _reshaped,
    "load": _load,
    "startup": lambda job, folder: job.exe.run(job.startup, scope=job.scope),
    "erase": _erased,
    "another Executor": _new_executor,
}


@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
@pytest.mark.parametrize("places", [2, 3])
@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_sees_what_one_place_has_and_the_training_goes_on_from_there(
    look: str, places: int, kind: Any, tmp_path: Path
) -> None:
    paddle.seed(0)
    _compare(Job(1), Job(places, kind=kind), LOOKS[look], tmp_path)


@pytest.mark.parametrize(
    "look",
    [
        "a tensor",
        "save",
        "fetch",
        "a run on one place",
        "a run on one place that nobody waits for",
        "other places by turns",
        "set",
        "load",
    ],
)
def test_whoever_looks_on_a_late_device_sees_the_same(look: str, tmp_path: Path) -> None:
    with devices.use("fake"):
        _compare(Job(1), Job(3), LOOKS[look], tmp_path)


def _compare(one: Job, several: Job, look: Look, folder: Path) -> None:
    for at in range(RUNS):
        number = 100 * at
        for _ in range(RUNS):
            number += 1
            one.step(number)
            several.step(number)
            if number % 100 == at + 1:
                wanted, found = look(one, folder), look(several, folder)
                _equal(found, wanted)
                several.step(99)
                one.step(99)
        same(several.values(), one.values())
    several.exe.close()


def _equal(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        same(found, wanted)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            _equal(a, b)
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
def test_plans_that_are_bound_already_take_turns_with_a_sum(kind: Any) -> None:
    """Nothing is compiled or bound anew, and one place alone owns the only parameter."""

    def net(x: Any) -> Any:
        weight = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(1.0))
        return paddle.sum(static.nn.fc(x, 2, weight_attr=weight, bias_attr=False))

    one, several = Job(1, net=net), Job(2, net=net, kind=kind)
    for number in range(4 * RUNS):
        for job in (one, several):
            if number % 2:
                _strict(job, Path(), number)
            else:
                job.step(number)
    same(several.values(), one.values())


def test_what_has_nothing_to_do_with_the_sums_joins_none() -> None:
    job = Job(2)
    with joins() as joined:
        for number in range(4):
            joined.clear()  # the first runs move variables into flat buffers
            job.step(number)
            for main in (job.test, job.program(2, Kind.AllReduce, job.test)):
                job.exe.run(main, feed={"x": rows(1)}, fetch_list=[job.loss.name], scope=job.scope)
            np.array(job.tensor("w"))
        assert not joined
        np.array(job.tensor(job.sums[0]))
        np.array(job.tensor(job.sums[0]))
        assert [one is job.tensor(job.sums[0]) for one in joined] == [True]


# --------------------------------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_nan_is_refused_in_the_run_that_made_it_and_leaves_all_sums(at: int) -> None:
    one, several = Job(1), Job(3)
    for number in range(at):
        one.step(number)
        several.step(number)
    bad = rows(9)
    bad[-1] = np.nan
    with pytest.raises(RankNumericsError, match="place 2 of 3"):
        several.step(9, x=bad)
    for number in range(at, 2 * RUNS):
        one.step(number)
        several.step(number)
        same(several.values(), one.values())


@pytest.mark.parametrize("at", range(RUNS))
def test_an_overflow_in_one_run_leaves_out_the_update_on_all_places(at: int) -> None:
    one, several = Job(1, scaled), Job(2, scaled)
    for number in range(3 * RUNS):
        x = rows(number)
        if number == at:
            x[0] = np.inf  # of the first place alone
        one.step(number, x=x)
        several.step(number, x=x)
        if number % RUNS == RUNS - 1:
            found, wanted = several.values(), one.values()
            same({n: v for n, v in found.items() if n not in several.sums}, {
                n: v for n, v in wanted.items() if n not in one.sums
            })  # fmt: skip
            for name in ("w", "loss_scaling_0"):
                np.testing.assert_array_equal(several.part(name, 1), found[name])
    assert found["loss_scaling_0"].tolist() == [4.0]


class Interruption(BaseException):
    """As Ctrl-C."""


@pytest.mark.numpy_device("work that runs late runs in any thread that waits", not_on=("fake",))
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("error", [ArithmeticError, Interruption])
def test_a_run_that_fails_on_one_place_leaves_all_sums(error: type[BaseException], at: int) -> None:
    armed: list[BaseException] = []

    def fail(value: Any) -> Any:
        if armed and np.asarray(value)[0, 0] == 4:
            raise armed.pop()
        return np.array(value)

    def net(x: Any) -> Any:
        out = x.block.create_var(name="through", dtype="float32", shape=x.shape)
        static.py_func(fail, x, out, lambda x, y, dy: np.array(dy))
        return paddle.sum(static.nn.fc(out, 2, weight_attr=paddle.ParamAttr(name="w")))

    paddle.seed(2)
    one = Job(1, net=net)
    paddle.seed(2)
    several = Job(3, net=net)
    for name in ("w", "fc_0.b_0"):  # small integers
        for job in (one, several):
            job.tensor(name).set(np.ones(job.tensor(name).shape(), "float32"))
    x = rows(9)
    x[-4:, 0] = 4
    for number in range(at):
        one.step(number)
        several.step(number)
    armed.append(error("deliberate"))
    with pytest.raises(error, match="deliberate"):
        several.step(9, x=x)
    for number in range(at, 2 * RUNS):
        one.step(number)
        several.step(number)
        same(several.values(), one.values())


def test_what_an_update_left_half_written_is_no_part_of_a_sum() -> None:
    one, several = Job(1), Job(2)
    several.step(0)
    # As a step leaves them that broke off while it wrote.
    several.scope._tear(several.sums, "a step that broke off")
    with pytest.raises(paddle.errors.DeviceError, match="half written"):
        several.step(1)
    for job in (one, several):
        job.exe.run(job.startup, scope=job.scope)
    for number in range(2, 2 + 2 * RUNS):
        one.step(number)
        several.step(number)
        same(several.values(), one.values())


def test_a_join_that_breaks_off_leaves_the_sum_torn_or_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with devices.use("fake") as device:
        one, job = Job(1), Job(2)
        for each in (one, job):
            each.step(0)
        name = job.sums[0]
        real = device.fill

        def fail(*args: Any, **more: Any) -> None:
            raise Interruption

        monkeypatch.setattr(device, "to_host", fail)
        with pytest.raises(Interruption):
            np.array(job.tensor(name))
        monkeypatch.undo()
        np.testing.assert_array_equal(np.array(job.tensor(name)), np.array(one.tensor(name)))
        for each in (one, job):
            each.step(1)
        monkeypatch.setattr(device, "fill", fail)
        with pytest.raises(Interruption):
            np.array(job.tensor(name))
        monkeypatch.setattr(device, "fill", real)
        with pytest.raises(paddle.errors.DeviceError, match="half written"):
            job.step(2)
        job.exe.close()


@pytest.mark.parametrize("fewer", [True, False])
def test_another_number_of_runs_goes_on_with_the_sum(fewer: bool) -> None:
    """Two programs with the same names in one scope."""
    runs = (3, 2) if fewer else (2, 3)
    jobs = [[Job(places, runs=k) for k in runs] for places in (1, 3)]
    for first, second in jobs:
        second.scope, second.exe = first.scope, first.exe
    for number in range(8):
        for pair in jobs:
            pair[number % 3 == 1].step(number)
        same(jobs[1][0].values(), jobs[0][0].values())


# --------------------------------------------------------------------------------------------------- what cannot be late
def passed(job: Job, fetch: Sequence[str] = (), **how: Any) -> tuple[FrozenProgram, Report]:
    frozen, _ = pipeline.simplify(job.main, BuildStrategy(), ["x"], [job.loss.name, *fetch])
    (program, *_), report = distribute(frozen, Distribution(2, how.pop("world", 2), **how))
    return program, report


def skips(program: FrozenProgram) -> list[bool]:
    return [len(op.inputs) > 1 and op.inputs[1] is not None for op in program.ops if op.definition.collective]


def test_strict_numerics_exchange_the_gradients_of_each_run() -> None:
    jobs = [Job(2), Job(2)]
    for number in range(RUNS):
        jobs[0].step(number)
    paddle.set_flags({"FLAGS_numerics": "strict"})
    calls = []
    for number in range(RUNS):
        jobs[1].step(number)
        calls.append(jobs[1].group.calls)
    assert calls == [1, 2, 3]
    same(jobs[0].values(), jobs[1].values())
    told = str(jobs[1].program(2, Kind.AllReduce).explain(fetch_list=[jobs[1].loss]).collectives)
    assert "gradients of each run are exchanged, though 2 of them are summed over several: strict numerics" in told


def test_explain_says_what_each_place_adds_up() -> None:
    job = Job(2)
    job.step(0)
    found = job.program(2, Kind.AllReduce).explain(fetch_list=[job.loss])
    told = found.collectives
    assert told is not None
    assert (
        "2 of them are summed over several runs first: each place adds up its own, and the last run exchanges"
        in str(told)
    )
    said = found.to_dict()["collectives"]
    assert (said["merged"], said["parts"], said["each_run"]) == (2, job.sums, "")
    _, between = passed(job, world=4)
    assert between.parts


def _norm_kept(job: Job) -> None:
    """A variable that is written in each run, with the norm of the merged gradient."""
    with static.program_guard(job.main, job.startup):
        kept = paddle.create_global_var([1], 0.0, "float32", persistable=True, name="norm")
        merged = job.main.global_block().var("w@GRAD@MERGED_0")
        paddle.assign(paddle.reshape(paddle.sum(merged * merged), [1]), kept)


def _printed(job: Job) -> None:
    with static.program_guard(job.main, job.startup):
        static.Print(job.main.global_block().var("w@GRAD@MERGED_0"))


def _read(job: Job) -> None:
    """The sum itself is read by another operator, whose result a variable keeps."""
    with static.program_guard(job.main, job.startup):
        kept = paddle.create_global_var([4, 2], 0.0, "float32", persistable=True, name="kept")
        paddle.assign(job.main.global_block().var(job.sums[0]) * 2.0, kept)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(_norm_kept, "'norm' is computed from them"), (_printed, "'print' uses them"), (_read, "of 'w' has other uses")],
)
def test_what_depends_on_a_sum_in_each_run_makes_each_run_exchange(change: Any, reason: str) -> None:
    jobs = [Job(1), Job(2)]
    for job in jobs:
        change(job)
        job.exe.run(job.startup, scope=job.scope)
    program, report = passed(jobs[1], world=4)
    assert not any(skips(program))
    assert reason in report.each_run
    assert report.parts == ()
    for number in range(RUNS + 1):
        for job in jobs:
            job.step(number)
        same(jobs[1].values(), jobs[0].values())
        if change is not _printed:
            assert jobs[1].part("norm" if change is _norm_kept else "kept", 1).any()


def test_statistics_that_an_overflow_takes_back_make_each_run_exchange() -> None:
    """Whether a step is left out is one answer for all places."""

    def norm(x: Any) -> Any:
        return paddle.mean(static.nn.batch_norm(static.nn.fc(x, 2)))

    _, report = passed(Job(2, scaled, net=norm))
    assert "is computed from them" in report.each_run
    _, report = passed(Job(2, momentum, net=norm))
    assert report.each_run == ""


@pytest.mark.parametrize("fetch", ["w@GRAD", "w@GRAD@MERGED_0", "w@GRAD@GradientMerge_0"])
def test_processes_exchange_alike_whatever_each_of_them_fetches(fetch: str) -> None:
    job = Job(2)
    assert not any(skips(passed(job, [fetch])[0]))
    assert all(skips(passed(job, [fetch], world=4)[0]))
    assert f"'{fetch}' is fetched" in passed(job, [fetch])[1].each_run


def test_parameters_that_are_not_updated_are_not_sent() -> None:
    """Averages that every run moves are."""
    job = Job(2)
    with static.program_guard(job.main, job.startup):
        static.ExponentialMovingAverage(0.5).update()
    averages = [v.name for v in job.main.list_vars() if v.persistable and "ema" in v.name and v.name.startswith("w")]
    program, report = passed(job, averages, share_updates=True)
    sent = {out: op.inputs[1] for op in program.ops if op.type == "c_broadcast" for out in op.writes()}
    assert {name for name, skip in sent.items() if skip is not None} == {f"{n}#1@SHARED" for n in ("w", "fc_0.b_0")}
    assert {name.split("#")[0] for name, skip in sent.items() if skip is None} == {*averages} != set()
    assert report.each_run == ""
