"""Gradients of large tables as rows: the same bits as whole gradients, wherever they apply, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import static
from tstatic.comm.passes.row_sums import add_rows_in_order
from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.passes import row_gradients as rows_pass
from tstatic.passes.dce import dce

ROWS, WIDTH = 300, 24
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda clip: paddle.optimizer.SGD(0.1, grad_clip=clip),
    "adagrad": lambda clip: paddle.optimizer.Adagrad(0.1, grad_clip=clip),
    "adam": lambda clip: paddle.optimizer.Adam(0.1, lazy_mode=True, grad_clip=clip),
    "adamw": lambda clip: paddle.optimizer.AdamW(0.1, lazy_mode=True, grad_clip=clip),
}
CLIPS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "value": lambda: paddle.nn.ClipGradByValue(0.01),
    "norm": lambda: paddle.nn.ClipGradByNorm(0.05),
    "global norm": lambda: paddle.nn.ClipGradByGlobalNorm(0.05),
}


@pytest.fixture(autouse=True)
def small_tables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_pass, "_LARGE", 1)


def train(
    monkeypatch: pytest.MonkeyPatch,
    optimizer: Callable[[Any], Any],
    whole: bool,
    *,
    slots: int = 1,
    clip: Callable[[], Any] = lambda: None,
    padding: int | None = None,
    tied: bool = False,
    fetched: bool = False,
    steps: int = 3,
    places: int = 0,
    build: static.BuildStrategy | None = None,
) -> tuple[list[np.ndarray[Any, Any]], set[str]]:
    """Returns tables and losses after some steps, and the op types that were compiled."""
    seen: set[str] = set()
    original = rows_pass.row_gradients

    def watch(program: Any) -> Any:
        found = program if whole else original(program)
        seen.update(op.type for op in dce(found).ops)
        return found

    monkeypatch.setattr("tstatic.static.compile.pipeline.row_gradients", watch)
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 5
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = [static.data(f"ids{i}", [-1, 4], "int64") for i in range(slots)]
        attr = paddle.ParamAttr(name="table")
        found = [
            static.nn.embedding(one, [ROWS, WIDTH], is_sparse=True, padding_idx=padding, param_attr=attr) for one in ids
        ]
        total = paddle.add_n(found) if slots > 1 else found[0]
        loss = paddle.mean(paddle.tanh(static.nn.fc(total, 3)))
        if tied:
            table = main.global_block().var("table")
            loss = loss + 0.1 * paddle.mean(paddle.matmul(found[0], table, transpose_y=True))
        optimizer(clip()).minimize(loss)
        fetch = [loss, "table@GRAD"] if fetched else [loss]
    exe, scope = static.Executor(), static.Scope()
    rng = np.random.default_rng(7)
    with static.scope_guard(scope):
        exe.run(startup)
        losses = []
        program: Any = main
        if places:
            everywhere = [paddle.CPUPlace()] * places
            program = static.CompiledProgram(main).with_data_parallel(loss.name, build, places=everywhere)
        for step in range(steps):
            feeds = [
                {f"ids{i}": rng.integers(0, ROWS, (5 + (step + place) % 2, 4)) for i in range(slots)}
                for place in range(max(1, places))
            ]
            losses.append(exe.run(program, feed=feeds if places else feeds[0], fetch_list=fetch)[0])
        names = sorted(v.name for v in main.list_vars() if v.persistable)
        replicas = [scope, *(scope.replica(i) for i in range(1, places))]
        return [*losses, *(np.array(one.find_var(n).get_tensor()) for one in replicas for n in names)], seen


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_give_what_whole_gradients_give(monkeypatch: pytest.MonkeyPatch, name: str, clip: str) -> None:
    options: dict[str, Any] = {
        "slots": 1 + 2 * (clip != "value"),
        "clip": CLIPS[clip],
        "padding": 7 if clip == "norm" else None,
    }
    whole, plain = train(monkeypatch, OPTIMIZERS[name], True, **options)
    by_rows, types = train(monkeypatch, OPTIMIZERS[name], False, **options)
    assert "embedding_grad_rows" in types
    assert "embedding_grad_rows" not in plain
    assert not types & {"lookup_table_v2_grad", "embedding_rows"}
    for a, b in zip(whole, by_rows, strict=True):
        if "norm" in clip:
            # A sum of squares without the zeros is summed in another order.
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
@pytest.mark.parametrize("clip", ["none", "global norm"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_places_exchange_the_rows_that_they_looked_up(monkeypatch: pytest.MonkeyPatch, name: str, clip: str) -> None:
    """Batches of different sizes, rows that several places have, and all replicas afterwards."""
    options: dict[str, Any] = {"slots": 2, "clip": CLIPS[clip], "padding": 7, "places": 3}
    whole, _ = train(monkeypatch, OPTIMIZERS[name], True, **options)
    by_rows, types = train(monkeypatch, OPTIMIZERS[name], False, **options)
    assert "embedding_grad_rows" in types
    for a, b in zip(whole, by_rows, strict=True):
        if clip == "none":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)


def test_rows_beside_updates_that_places_share(monkeypatch: pytest.MonkeyPatch) -> None:
    build = static.BuildStrategy()
    build.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
    options: dict[str, Any] = {"places": 2, "build": build, "clip": CLIPS["global norm"]}
    whole, _ = train(monkeypatch, OPTIMIZERS["sgd"], True, **options)
    by_rows, _ = train(monkeypatch, OPTIMIZERS["sgd"], False, **options)
    for a, b in zip(whole, by_rows, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)


def test_a_program_of_places_moves_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with static.program_guard(static.Program(), static.Program()):
        found = static.nn.embedding(static.data("ids", [-1, 4], "int64"), [ROWS, WIDTH], is_sparse=True)
        loss = paddle.mean(static.nn.fc(found, 3))
        paddle.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
        exe = static.Executor()
        exe.run(static.default_startup_program())
        program = static.CompiledProgram(static.default_main_program()).with_data_parallel(
            loss.name, places=[paddle.CPUPlace()] * 2
        )
        exe.run(program, feed=[{"ids": np.zeros((2, 4), np.int64)}] * 2, fetch_list=[loss])
    report = program.explain().collectives
    assert report is not None
    assert (report.gradients, report.tables, report.reductions) == (3, 1, 2)
    assert "1 of them are gradients of tables" in str(report)


@given(
    st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["float32", "float64", "float16"]),
    st.integers(0, 99),
)
def test_sums_of_rows_are_those_of_whole_tables(picked: list[list[int]], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [(np.sort(np.array(p, np.int64)), rng.standard_normal((len(p), 3)).astype(dtype)) for p in picked]
    whole = [np.zeros((10, 3), dtype) for _ in parts]
    for table, (rows, values) in zip(whole, parts, strict=True):
        table[rows] = values
    rows, values = add_rows_in_order(parts)
    assert (np.diff(rows) > 0).all()
    add_in_order(whole, whole[:1])
    np.testing.assert_array_equal(whole[0][rows], values)
    assert not np.delete(whole[0], rows, axis=0).any()


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
def test_more_lookups_than_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROWS", 9)
    options: dict[str, Any] = {"slots": 2, "padding": 3}
    whole, _ = train(monkeypatch, OPTIMIZERS["sgd"], True, **options)
    by_rows, types = train(monkeypatch, OPTIMIZERS["sgd"], False, **options)
    assert "embedding_grad_rows" in types
    for a, b in zip(whole, by_rows, strict=True):
        np.testing.assert_array_equal(a, b)


REFUSED: dict[str, dict[str, Any]] = {
    "the gradient is fetched": {"fetched": True},
    "the table is read by a product, too": {"tied": True},
}


@pytest.mark.parametrize("why", REFUSED)
def test_whole_gradients_where_something_needs_their_zeros(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    whole, _ = train(monkeypatch, OPTIMIZERS["sgd"], True, **REFUSED[why])
    here, types = train(monkeypatch, OPTIMIZERS["sgd"], False, **REFUSED[why])
    assert "embedding_grad_rows" not in types
    for a, b in zip(whole, here, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("optimizer", [
    lambda clip: paddle.optimizer.Momentum(0.1, 0.9, grad_clip=clip),
    lambda clip: paddle.optimizer.Adam(0.1, grad_clip=clip),
    lambda clip: paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L2Decay(0.1), grad_clip=clip),
])  # fmt: skip
def test_updates_that_change_every_row_stay_whole(monkeypatch: pytest.MonkeyPatch, optimizer: Any) -> None:
    _, types = train(monkeypatch, optimizer, False)
    assert "embedding_grad_rows" not in types


def test_small_tables_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_pass, "_LARGE", ROWS * WIDTH + 1)
    _, types = train(monkeypatch, OPTIMIZERS["sgd"], False)
    assert "embedding_grad_rows" not in types


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_rows_of_many_replicas_are_the_sum_of_whole_gradients_rounded_once(dtype: Any) -> None:
    """16-bit floats are added in 32 bits, from the first replica to the last; a row that none has is not in the sum."""
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.choice(9, size, replace=False)) for size in (4, 0, 7, 1, 5)]
    parts = [(rows, rng.normal(size=(rows.size, 3)).astype(dtype)) for rows in chosen]
    wide = np.float32 if np.dtype(dtype).itemsize == 2 else dtype
    whole = np.zeros((9, 3), wide)
    for rows, values in parts:
        whole[rows] += values.astype(wide)
    found, total = add_rows_in_order(parts)
    assert found.tolist() == sorted({int(row) for rows in chosen for row in rows})
    assert total.dtype == dtype
    np.testing.assert_array_equal(total, whole[found].astype(dtype))
