"""Optimizer ops inside a running program: large parameters are cut, and their shared numbers still move once a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.ir.split import POINTWISE


@pytest.mark.parametrize(
    "make", [paddle.optimizer.Adam, paddle.optimizer.AdamW, paddle.optimizer.Momentum, paddle.optimizer.Lamb]
)
def test_steps_of_a_large_parameter(make: Any) -> None:
    """Rows of one large parameter move as a small parameter of the same gradient does."""
    rows = 2 * POINTWISE.size // 100
    x = static.data("x", [100])
    large = static.create_parameter(
        [rows, 100], "float32", name="large", default_initializer=paddle.nn.initializer.Constant(0.5)
    )
    small = static.create_parameter(
        [1, 100], "float32", name="small", default_initializer=paddle.nn.initializer.Constant(0.5)
    )
    loss = paddle.sum(large * x) + paddle.sum(small * x)
    options = {"lamb_weight_decay": 0.0} if make is paddle.optimizer.Lamb else {}
    make(0.1, **options).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    powers = [v.name for v in static.default_main_program().list_vars() if "large_beta1_pow" in v.name]
    assert bool(powers) is (make is not paddle.optimizer.Momentum)
    rng = np.random.default_rng(0)
    for step in range(1, 4):
        feed = {"x": rng.normal(size=100).astype(np.float32)}
        found = exe.run(feed=feed, fetch_list=[large, small, *powers])
        assert np.allclose(found[0], np.broadcast_to(found[1], (rows, 100)), rtol=2e-6, atol=1e-7)
        assert not np.array_equal(found[1], np.full((1, 100), 0.5))
        for power in found[2:]:
            # The accumulator starts at beta1 and is multiplied once a step.
            assert float(np.reshape(power, ())) == pytest.approx(0.9 ** (step + 1), rel=1e-6)


# ------------------------------------------------------------------------------------------------------------ lazy mode
ROWS = 6
IDS = ([0, 0, 2], [1, 4], [2], [3, 3, 0, 1])


def _table(make: Any, net: Any = None, sparse: bool = True, **strategy: Any) -> dict[str, Any]:
    """Table and moments after a step for each of ``IDS``; the loss is the sum of squares of what was looked up."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.scope_guard(static.Scope()), paddle.utils.unique_name.guard():
        ids = static.data("ids", [-1], "int64")
        start = paddle.nn.initializer.Assign(np.linspace(-1, 1, ROWS * 2, dtype="float32").reshape(ROWS, 2))
        attr = paddle.ParamAttr(name="w", initializer=start)
        looked_up = static.nn.embedding(ids, [ROWS, 2], is_sparse=sparse, padding_idx=4, param_attr=attr)
        loss = paddle.sum(looked_up * looked_up)
        if net is not None:
            loss = loss + net(main.global_block().var("w"), ids)
        make().minimize(loss)
        program: Any = main
        if strategy:
            build = static.BuildStrategy()
            for name, value in strategy.items():
                setattr(build, name, value)
            program = static.CompiledProgram(main, build)
        exe = static.Executor("cpu")
        exe.run(startup)
        for one in IDS:
            exe.run(program, feed={"ids": np.array(one)})
        scope = static.global_scope()
        kept = [v.name for v in main.list_vars() if v.persistable and v.name.startswith("w") and "pow" not in v.name]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in kept}


def _lazy_adam(coeff: float = 0.0, also: Any = ()) -> tuple[Any, Any, Any]:
    """Rows in the batch, but for the padding row 4, take an Adam step; the others keep all they have."""
    p = np.linspace(-1, 1, ROWS * 2).reshape(ROWS, 2)
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, ids in enumerate(IDS, 1):
        counts = np.bincount([*ids, *also], minlength=ROWS) * (np.arange(ROWS) != 4)
        g = 2 * p * counts[:, None]
        rows = counts > 0
        m[rows], v[rows] = (0.9 * m + 0.1 * g)[rows], (0.999 * v + 0.001 * g * g)[rows]
        step = 0.1 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        p[rows] = (p * (1 - 0.1 * coeff) - step)[rows]
    return p, m, v


@pytest.mark.parametrize("switch", [{}, {"fuse_all_optimizer_ops": True, "fuse_adamw": True}], ids=["plain", "fused"])
@pytest.mark.parametrize("kind", ["adam", "adamw", "clipped", "used twice"])
def test_lazy_updates_leave_rows_alone_that_the_batch_does_not_name(kind: str, switch: dict[str, Any]) -> None:
    make, net, expected = {
        "adam": (lambda: paddle.optimizer.Adam(0.1, lazy_mode=True), None, _lazy_adam()),
        "adamw": (lambda: paddle.optimizer.AdamW(0.1, weight_decay=0.5, lazy_mode=True), None, _lazy_adam(0.5)),
        "clipped": (
            lambda: paddle.optimizer.Adam(0.1, lazy_mode=True, grad_clip=paddle.nn.ClipGradByGlobalNorm(1e9)),
            None,
            _lazy_adam(),
        ),
        "used twice": (
            lambda: paddle.optimizer.Adam(0.1, lazy_mode=True),
            lambda w, ids: paddle.sum(
                paddle.nn.functional.embedding(paddle.full([2], 5, "int64"), w, sparse=True) ** 2.0
            ),
            _lazy_adam(also=[5, 5]),
        ),
    }[kind]
    found = _table(make, net, **switch)
    for name, value in zip(("w", "w_moment1_0", "w_moment2_0"), expected, strict=True):
        assert np.allclose(found[name], value, rtol=1e-5, atol=1e-6), name


def test_what_lazy_updates_of_whole_tables_equal() -> None:
    """As in Paddle: without ``is_sparse``, beside a dense use of the table and with decay every row is updated."""
    adam = paddle.optimizer.Adam
    decay = {"weight_decay": 0.1}
    cases = [({}, None, False), (decay, None, True), ({}, lambda w, ids: paddle.sum(w * w), True)]
    for options, net, sparse in cases:
        lazy = _table(lambda options=options: adam(0.1, lazy_mode=True, **options), net, sparse)
        dense = _table(lambda options=options: adam(0.1, **options), net, sparse)
        assert all(np.array_equal(lazy[n], dense[n]) for n in dense)
        assert not np.allclose(lazy["w"], _lazy_adam()[0], atol=1e-4)


@pytest.mark.parametrize(
    "name", ["SGD", "Momentum", "Adam", "AdamW", "Adagrad", "Adamax", "Adadelta", "RMSProp", "Lamb"]
)
def test_sparse_tables_without_lazy_mode_get_the_dense_update(name: str) -> None:
    make = getattr(paddle.optimizer, name)
    sparse, dense = (_table(lambda: make(0.1), sparse=s) for s in (True, False))
    assert all(np.array_equal(sparse[n], dense[n]) for n in dense)


def test_lazy_updates_of_a_table_that_is_cut() -> None:
    rows = 2 * POINTWISE.size // 4 + 5
    ids = static.data("ids", [-1], "int64")
    one = paddle.nn.initializer.Constant(1.0)
    table = static.nn.embedding(ids, [rows, 4], is_sparse=True, param_attr=paddle.ParamAttr(name="w", initializer=one))
    paddle.optimizer.Adam(0.1, lazy_mode=True).minimize(paddle.sum(table))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    first, second = np.array([0, rows // 2, rows - 1]), np.array([rows - 1])
    for batch in (first, second):
        w = exe.run(feed={"ids": batch}, fetch_list=["w"])[0]
    expected = np.ones(rows, "float32")
    expected[first] = 0.9
    expected[rows - 1] = 0.8
    assert np.allclose(w, expected[:, None], atol=1e-5)


def test_an_update_may_write_another_variable_than_the_one_it_reads() -> None:
    """Also one that has no value yet."""
    p = static.create_parameter([3], "float32", name="p", default_initializer=paddle.nn.initializer.Constant(2.0))
    block = static.default_main_program().global_block()
    q = block.create_var(name="q", shape=[3], dtype="float32", persistable=True)
    g, rate = paddle.full([3], 4.0), paddle.full([1], 0.25)
    block.append_op("sgd", {"Param": p, "Grad": g, "LearningRate": rate}, {"ParamOut": q}, {})
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    for _ in range(2):
        found = exe.run(fetch_list=[p, q])
        assert [f.tolist() for f in found] == [[2.0] * 3, [1.0] * 3]


def test_what_reads_a_parameter_after_its_update_reads_the_new_value() -> None:
    p = static.create_parameter([3], "float32", name="p", default_initializer=paddle.nn.initializer.Constant(2.0))
    paddle.optimizer.SGD(0.25).minimize(paddle.sum(p * 4.0))
    after = p * 10.0
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    for wanted in (10.0, 0.0, -10.0):
        assert exe.run(fetch_list=[after])[0].tolist() == [wanted] * 3


def test_an_update_reads_the_old_value_of_a_parameter_that_was_reshaped_before_its_update() -> None:
    two, zero = (paddle.nn.initializer.Constant(v) for v in (2.0, 0.0))
    p = static.create_parameter([1, 3], "float32", name="p", default_initializer=two)
    q = static.create_parameter([3], "float32", name="q", default_initializer=zero)
    seen, g, rate = paddle.reshape(p, [3]), paddle.full([1, 3], 1.0), paddle.full([1], 1.0)
    block = static.default_main_program().global_block()
    block.append_op("sgd", {"Param": p, "Grad": g, "LearningRate": rate}, {"ParamOut": p}, {})
    block.append_op("sgd", {"Param": q, "Grad": seen, "LearningRate": rate}, {"ParamOut": q}, {})
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    found = exe.run(fetch_list=[p, q])
    assert [f.reshape(-1).tolist() for f in found] == [[1.0] * 3, [-2.0] * 3]


@pytest.mark.parametrize("kind", ["lamb", "lars"])
@pytest.mark.parametrize("size", [3e19, 1e-25])
def test_norms_of_parameters_do_not_leave_the_range_of_float32(kind: str, size: float) -> None:
    """The step is the norm of the parameter in the direction of the gradient, whatever the size of the parameter."""
    start = paddle.nn.initializer.Constant(size)
    w = paddle.create_parameter([4], "float32", default_initializer=start)
    # The gradient is 3, so each step is half of the norm along it.
    rule: Any = (
        paddle.optimizer.Lamb(0.5, lamb_weight_decay=0.0, epsilon=0.0, always_adapt=True)
        if kind == "lamb"
        else paddle.incubate.optimizer.LarsMomentumOptimizer(
            0.5, 0.0, lars_coeff=1.0, lars_weight_decay=1e-30, epsilon=0.0
        )
    )
    rule.minimize(paddle.sum(w * 3.0))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    (found,) = exe.run(fetch_list=[w])
    np.testing.assert_allclose(found, np.full(4, size / 2), rtol=1e-5)
