"""A NaN in the gradients of one rank or place is an error that names it, on all ranks, before anything changes."""

from __future__ import annotations

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tstatic as paddle
from tests.comm.pool import SLACK, Pool
from tests.parallel.merging import RUNS, Job, rows
from tstatic import devices, static
from tstatic.comm.passes import finite_gradients
from tstatic.comm.passes.finite_gradients import all_finite, refusal
from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.errors import RankNumericsError
from tstatic.flags import set_flags

BY_DEFAULT = pytest.mark.numpy_device(
    "a device that runs late looks where FLAGS_check_rank_gradients is 1", not_on=("fake",)
)


@BY_DEFAULT
@pytest.mark.torch
@pytest.mark.parametrize(
    ("places", "victims", "told"),
    [
        (1, [1], "gradients of rank 1 of 2 hold NaN or infinity"),
        (2, [0, 1], "gradients of rank 0 of 2, place 1 of 2; rank 1 of 2, place 1 of 2 hold NaN or infinity"),
    ],
)
def test_the_rank_is_named_on_all_ranks_and_the_next_step_runs(
    pool: Pool, places: int, victims: list[int], told: str
) -> None:
    """Without it the parameters of all ranks would become NaN, and nobody would know where that came from."""
    with pool.trial("bad_gradients", 2, places=places, victims=victims) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        for rank in range(2):
            first, second, third = trial.said(rank)
            assert first == [0, "", False, True]
            assert second[1].startswith(told)
            assert "table@GRAD" in second[1]
            assert "fc_0.w_0@GRAD" in second[1]
            assert "gradient_cases.py:" in second[1]
            assert second[2:] == [True, True]
            assert third == [2, "", False, True]
            assert trial.err(rank) == ""


@pytest.mark.torch
@pytest.mark.parametrize("amp", [False, True])
def test_without_the_flag_and_under_loss_scaling_the_step_goes_on(pool: Pool, amp: bool) -> None:
    """Dynamic loss scaling skips such a step, and lowers its scale; without the flag NaN spreads as in Paddle."""
    flags = {} if amp else {"FLAGS_check_rank_gradients": "0"}
    with pool.trial("bad_gradients", 2, flags, places=1, victims=[1], amp=amp) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        for rank in range(2):
            lines = trial.said(rank)
            assert [line[1] for line in lines] == ["", "", ""]
            assert lines[1][2:] == ([True, True] if amp else [False, False])
            assert lines[2][2:] == ([False, True] if amp else [False, False])


@pytest.mark.torch
def test_processes_with_two_places_exchange_sums_over_runs_when_they_are_complete(pool: Pool) -> None:
    """Between two updates each process sees its own sums: those of both places."""
    alone, together = [Job(1), Job(1)], Job(1)
    with pool.trial("sums_over_runs", 2, places=2) as trial:
        assert trial.wait(40.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        for number in range(2 * RUNS):
            feeds = [rows(10 * number + rank) for rank in range(2)]
            together.step(number, x=np.concatenate(feeds))
            whole = together.values()
            for rank, job in enumerate(alone):
                job.step(number, x=feeds[rank])
                at, found, calls = trial.said(rank)[number]
                assert (at, calls) == (number, (number + 1) // RUNS)
                for name, value in job.values().items():
                    wanted = value if name in job.sums else whole[name]
                    np.testing.assert_array_equal(found[name], wanted, err_msg=name)


# ------------------------------------------------------------------------------------------------------ places of one process
def _train(sharded: bool = False, sparse: bool = False, **optimizer: Any) -> tuple[Any, Any, Any]:
    x, i = static.data("x", [None, 3]), static.data("i", [None], "int64")
    hidden = x * static.nn.embedding(i, [10, 3], is_sparse=sparse, param_attr=paddle.ParamAttr(name="table"))
    loss = paddle.mean(static.nn.fc(hidden, 2))
    paddle.optimizer.Adam(0.1, **optimizer).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    strategy = static.BuildStrategy()
    if sharded:
        strategy.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
    compiled = static.CompiledProgram(static.default_main_program())
    return exe, compiled.with_data_parallel(loss.name, strategy, places=[paddle.CPUPlace()] * 3), loss


def _state() -> dict[str, Any]:
    names = [v.name for v in static.default_main_program().list_vars() if v.persistable]
    return {n: np.array(static.global_scope().find_var(n).get_tensor()) for n in names}


def _feed(bad: float | None = None, row: int = 0) -> dict[str, Any]:
    x = np.full((6, 3), 0.25, "float32")
    if bad is not None:
        x[row] = bad
    return {"x": x, "i": np.arange(6)}


@pytest.mark.parametrize(
    ("backend", "sharded", "sparse", "bad"),
    [
        pytest.param("cpu", False, False, np.nan, marks=BY_DEFAULT),
        pytest.param("cpu", True, True, -np.inf, marks=BY_DEFAULT),
        pytest.param("cpu", False, True, np.nan, marks=BY_DEFAULT),
        ("fake", False, False, np.inf),
        ("fake", True, True, np.nan),
    ],
)
def test_the_place_is_named(backend: str, sharded: bool, sparse: bool, bad: float) -> None:
    if backend == "fake":
        set_flags({"FLAGS_check_rank_gradients": 1})
    with devices.use("fake") if backend == "fake" else contextlib.nullcontext():
        exe, compiled, loss = _train(sharded, sparse)
        exe.run(compiled, feed=_feed(), fetch_list=[loss])
        before = _state()
        with pytest.raises(RankNumericsError, match=r"gradients of place 1 of 3 hold NaN or infinity") as caught:
            exe.run(compiled, feed=_feed(bad, row=2), fetch_list=[loss])
        assert caught.value.replica == "1 of 3"
        assert isinstance(caught.value, FloatingPointError)
        after = _state()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        exe.run(compiled, feed=_feed(), fetch_list=[loss])
        assert not np.array_equal(_state()["table"], before["table"])


@BY_DEFAULT
def test_the_flag_is_obeyed_from_the_next_run_on() -> None:
    exe, compiled, loss = _train()
    with pytest.raises(RankNumericsError):
        exe.run(compiled, feed=_feed(np.nan), fetch_list=[loss])
    set_flags({"FLAGS_check_rank_gradients": 0})
    exe.run(compiled, feed=_feed(np.nan), fetch_list=[loss])
    assert np.isnan(_state()["fc_0.w_0"]).any()


def test_a_run_that_failed_leaves_no_finding_behind() -> None:
    """What one step found must not be told of the next."""
    exe, compiled, loss = _train()
    wrong = _feed(np.nan)
    wrong["i"][-1] = 99  # out of range, on another place
    with pytest.raises(paddle.errors.TstaticError):
        exe.run(compiled, feed=wrong, fetch_list=[loss])
    exe.run(compiled, feed=_feed(), fetch_list=[loss])


# --------------------------------------------------------------------------------------------------------------- the check
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (7, 5), (1000,), (0, 3)])
def test_all_finite_is_what_isfinite_says(dtype: Any, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(dtype)
    limits = ml_dtypes.finfo(dtype) if dtype.kind != "c" else np.finfo(dtype)
    whole = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    assert all_finite(whole)
    assert all_finite(np.full(shape, limits.max, dtype))  # whose sum overflows
    assert all_finite(np.full(shape, limits.smallest_subnormal, dtype))
    for bad in (np.nan, np.inf, -np.inf):
        if not whole.size:
            continue
        for at in {0, whole.size // 2, whole.size - 1}:
            spoiled = whole.copy()
            spoiled.reshape(-1)[at] = bad
            assert not all_finite(spoiled)
    if whole.size > 1:
        opposite = whole.copy().reshape(-1)
        opposite[0], opposite[1] = np.inf, -np.inf
        assert not all_finite(opposite)


@pytest.mark.numpy_device("torch has a check of its own", not_on=("torch",))
def test_a_check_that_sees_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail if the check is blind."""
    monkeypatch.setattr(finite_gradients, "all_finite", lambda array: True)
    exe, compiled, loss = _train()
    exe.run(compiled, feed=_feed(np.nan), fetch_list=[loss])
    assert np.isnan(_state()["fc_0.w_0"]).any()


def test_many_gradients_are_counted() -> None:
    error = refusal([None, {"0": [[f"w{i}", "net.py:3"] for i in range(9)]}], 1)
    assert error is not None
    assert error.received == "rank 1 of 2: w0, w1, w2, w3 and 5 more"
    assert error.where == "net.py:3"
    assert refusal([None, None], 2) is None


class _Noted:
    """Records which gradients of one replica are found."""

    def __init__(self, *arrays: Any) -> None:
        self.findings: list[Any] = []
        device = devices.of_place(paddle.CPUPlace())
        names = [f"g{i}" for i in range(len(arrays))]
        self.watch = finite_gradients.Watch(device, list(arrays), names, "here", self.findings)

    @property
    def found(self) -> list[str]:
        return [name for one in self.findings for name in one.names]


def _summed(values: Any, dtype: str = "float32", to: Any = None) -> tuple[list[list[str]], Any]:
    """Sums flat memories of two gradients each, one memory for each replica; returns what each is blamed for, and the sum."""
    parts = [np.array(row, dtype) for row in values]
    noted = [_Noted(part[:3], part[3:]) for part in parts]
    to = range(len(parts)) if to is None else to
    finite_gradients.WatchedSum(add_in_order, parts, to, [n.watch for n in noted])()
    return [n.found for n in noted], parts[to[0]]


_ZEROS = (0.0,) * 6


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("to", [None, (1,), (0,)], ids=["all", "the second", "the first"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_sum_names_the_gradient_and_the_replica(dtype: str, to: Any, bad: float) -> None:
    one, other = (bad, *_ZEROS[1:]), (*_ZEROS[1:], bad)
    assert _summed([one, _ZEROS], dtype, to)[0] == [["g0"], []]
    assert _summed([_ZEROS, other], dtype, to)[0] == [[], ["g1"]]
    assert _summed([one, other], dtype, to)[0] == [["g0"], ["g1"]]
    assert _summed([_ZEROS, one, other], dtype, to)[0] == [[], ["g0"], ["g1"]]


def test_a_sum_of_finite_gradients_that_overflows_names_nobody() -> None:
    """As in Paddle the step goes on; what could have been seen before the sum was finite."""
    large = (3e38,) * 6
    found, total = _summed([large, large])
    assert found == [[], []]
    assert np.isinf(total).all()


def test_where_two_replicas_are_wrong_at_the_same_element_one_is_named_at_least() -> None:
    found, _ = _summed([(np.nan, *_ZEROS[1:])] * 2)
    assert found[1] == ["g0"]


@pytest.mark.parametrize("size", [1, 5, 6, 17])
def test_pieces_of_a_sum_are_the_sum(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_gradients, "_PIECE", 5)
    rows = np.random.default_rng(size).standard_normal((3, size)).astype("float32")
    parts = [row.copy() for row in rows]
    watches = [_Noted(part).watch for part in parts]
    finite_gradients.WatchedSum(add_in_order, parts, [0, 2], watches)()
    assert np.array_equal(parts[0], rows[0] + rows[1] + rows[2])
    assert np.array_equal(parts[2], parts[0])
    assert np.array_equal(parts[1], rows[1])
