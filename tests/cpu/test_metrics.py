"""Accuracy and AUC as programs: names, shapes of both generations, counters that live in the scope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import UnsupportedError
from tstatic.ir.opdef import PUBLIC_API

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0.9, 0.05, 0.05]], np.float32)
LABELS = np.array([[1], [1], [2], [2]], np.int64)


def executor() -> Any:
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    return exe


@pytest.mark.parametrize(
    ("name", "shape"), [("static.accuracy", ()), ("metric.accuracy", ()), ("fluid.layers.accuracy", (1,))]
)
def test_accuracy(name: str, shape: tuple[int, ...]) -> None:
    score, label = static.data("s", [None, 3]), static.data("l", [None, 1], "int64")
    accuracy = PUBLIC_API[name].function
    total = PUBLIC_API["fluid.layers.create_tensor"].function("int64")
    one, two = accuracy(score, label, total=total), accuracy(score, label, k=2)
    assert one.shape == shape
    assert one.name == "accuracy_0.tmp_2"
    found = executor().run(feed={"s": SCORES, "l": LABELS}, fetch_list=[one, two, total])
    assert [float(np.reshape(v, ())) for v in found] == [0.5, 0.75, 4.0]
    assert found[0].shape == shape
    assert found[2].dtype == np.int64


@pytest.mark.parametrize(("name", "shape"), [("static.auc", ()), ("fluid.layers.auc", (1,))])
def test_auc(name: str, shape: tuple[int, ...]) -> None:
    p, y = static.data("p", [None, 2]), static.data("y", [None, 1], "int64")
    whole, batch, counters = PUBLIC_API[name].function(p, y, num_thresholds=1000)
    assert (whole.shape, batch.shape, len(counters)) == (shape, shape, 4)
    assert all(c.persistable for c in counters)
    exe = executor()

    def step(values: list[float], truth: list[int]) -> list[float]:
        columns = np.array([[1 - v, v] for v in values], np.float32)
        fetched = exe.run(feed={"p": columns, "y": np.array(truth)[:, None]}, fetch_list=[whole, batch])
        return [float(np.reshape(v, ())) for v in fetched]

    assert step([0.9, 0.1], [1, 0]) == [1.0, 1.0]
    # Of the four pairs over both batches one is in order: 0.9 above 0.1.
    whole_now, batch_now = step([0.05, 0.95], [1, 0])
    assert batch_now == 0.0
    assert whole_now == 0.25
    test = static.default_main_program().clone(for_test=True)
    assert any(op.type == "auc" for op in test.global_block().ops)


def test_a_clone_for_tests_counts_into_the_area_of_the_training_as_in_paddle() -> None:
    """Paddle 2.6.2 prints these areas; a call of ``auc`` in the clone counts apart, as its docstring and the page say."""
    x, y = static.data("x", [None, 1]), static.data("y", [None, 1], "int64")
    p = paddle.nn.functional.sigmoid(x)
    main, startup = static.default_main_program(), static.default_startup_program()
    apart = main.clone(for_test=True)
    area, _, _ = static.auc(p, y)
    shared = main.clone(for_test=True)
    with static.program_guard(apart, startup):
        block = apart.global_block()
        own, _, _ = static.auc(block.var(p.name), block.var(y.name))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    right = {"x": np.array([[-1], [1]], "float32"), "y": np.array([[0], [1]])}
    wrong = {"x": right["x"], "y": right["y"][::-1]}
    runs = ((main, right, area), (apart, wrong, own), (shared, wrong, area), (main, right, area), (apart, wrong, own))
    found = [float(exe.run(program, feed=feed, fetch_list=[out])[0]) for program, feed, out in runs]
    np.testing.assert_allclose(found, [1.0, 0.0, 0.5, 2 / 3, 0.0], atol=1e-7)


def test_auc_refuses_what_it_does_not_have() -> None:
    p, y = static.data("p", [None, 2]), static.data("y", [None, 1], "int64")
    with pytest.raises(UnsupportedError):
        static.auc(p, y, topk=2)


def test_auc_of_all_batches_in_both_results() -> None:
    """``slide_steps=0`` keeps no window: the second area counts what the first does."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        p, y = static.data("p", [None, 2]), static.data("y", [None, 1], "int64")
        whole, recent, _ = static.auc(p, y, slide_steps=0)
    exe = static.Executor()
    exe.run(startup)
    rng = np.random.default_rng(3)
    for _ in range(3):
        score = rng.random((8, 1)).astype(np.float32)
        feed = {"p": np.hstack([1 - score, score]), "y": rng.integers(0, 2, (8, 1))}
        first, second = exe.run(main, feed=feed, fetch_list=[whole, recent])
        assert first == second
        assert 0 < first < 1
