"""cond, case, switch_case, while_loop, and their 1.x forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import DTypeError, ProgramError, ProgramTypeError, ShapeError


def run(fetch: Any, feed: Any = None) -> list[Any]:
    result: list[Any] = static.Executor("cpu").run(feed=feed, fetch_list=fetch)
    return result


def number(value: float, dtype: str = "float32") -> Any:
    return paddle.full([1], value, dtype)


def test_cond_runs_only_the_chosen_branch() -> None:
    ran: list[str] = []
    x = static.data("x", [1])

    def branch(name: str) -> Any:
        out = static.default_main_program().current_block().create_var(name=f"out_{name}", shape=[1], dtype="float32")
        static.py_func(lambda v: (ran.append(name), np.array(v))[1], x, out)
        return out

    y = static.nn.cond(paddle.greater_than(x, number(0.0)), lambda: branch("yes"), lambda: branch("no"))
    assert run([y], {"x": np.array([2.0], "float32")})[0] == 2
    assert run([y], {"x": np.array([-2.0], "float32")})[0] == -2
    assert ran == ["yes", "no"]


def test_cond_returns_structures_and_writes_outer_variables() -> None:
    x = static.data("x", [2])
    kept = paddle.scale(x, 1.0)

    def yes() -> Any:
        paddle.assign(paddle.scale(x, 10.0), output=kept)
        return {"a": paddle.scale(x, 2.0), "b": [paddle.scale(x, 3.0), 4.0]}

    def no() -> Any:
        return {"a": x, "b": [x, 5.0]}

    out = static.nn.cond(paddle.all(paddle.greater_than(x, paddle.zeros([2]))), yes, no)
    fetch = [out["a"], out["b"][0], out["b"][1], kept]
    a, b, c, k = run(fetch, {"x": np.array([1.0, 2.0], "float32")})
    assert (a.tolist(), b.tolist(), float(c), k.tolist()) == ([2, 4], [3, 6], 4.0, [10, 20])
    a, b, c, k = run(fetch, {"x": np.array([1.0, -2.0], "float32")})
    assert (a.tolist(), b.tolist(), float(c), k.tolist()) == ([1, -2], [1, -2], 5.0, [1, -2])


def chosen(kind: str, yes: Any, no: Any, first: Any) -> Any:
    """One of two functions' results by each of the three ways; ``first`` is true for ``yes``."""
    if kind == "cond":
        return static.nn.cond(first, yes, no)
    if kind == "case":
        return static.nn.case([(first, yes)], default=no)
    return static.nn.switch_case(paddle.cast(first, "int32"), {1: yes}, default=no)


@pytest.mark.parametrize("kind", ["cond", "case", "switch_case"])
def test_a_branch_of_another_size_keeps_its_value_and_gradient_to_the_end(kind: str) -> None:
    first = static.data("first", [1], "bool")
    x = static.data("x", [-1, 2])
    x.stop_gradient = False
    out = chosen(kind, lambda: x + 1, lambda: x[0:1] + 2, first)
    assert out.shape == (-1, 2)
    later = x * 10
    last = later + 5
    total = paddle.sum(out)
    (dx,) = static.gradients([paddle.sum(out * out) + paddle.sum(last)], [x])
    for flag, rows, value in ((True, 3, 1.0), (False, 1, 2.0)):
        feed = {"x": np.zeros((3, 2), "float32"), "first": np.array([flag])}
        got = run([later, last, total, out, dx], feed)
        assert got[2] == 2 * rows * value
        np.testing.assert_array_equal(got[3], np.full((rows, 2), value))
        want = np.full((3, 2), 10.0)
        want[:rows] += 2 * value
        np.testing.assert_array_equal(got[4], want)


def test_what_a_body_may_resize_is_not_overwritten_by_later_operators_when_it_does_not_run() -> None:
    grow = static.data("grow", [1], "bool")
    x = static.data("x", [-1])

    def grown(to: Any) -> None:
        paddle.assign(paddle.concat([to, x]), output=to)

    kept = paddle.scale(x, 1.0)
    static.nn.cond(grow, lambda: grown(kept), lambda: None)
    _, looped = static.nn.while_loop(
        lambda going, s: going,
        lambda going, s: [paddle.logical_and(going, paddle.logical_not(going)), paddle.concat([s, x])],
        [grow, paddle.scale(x, 3.0)],
    )
    later = [paddle.scale(x, 20.0 + i) for i in range(4)]
    totals = [paddle.sum(kept), paddle.sum(looped)]
    for flag, want in ((True, [6.0, 12.0]), (False, [3.0, 9.0])):
        got = run([*later, *totals], {"x": np.array([1.0, 2.0], "float32"), "grow": np.array([flag])})
        assert got[-2:] == want


@pytest.mark.parametrize("kind", ["cond", "case", "switch_case"])
def test_branches_of_other_rank_or_dtype_give_what_the_chosen_one_returns(kind: str) -> None:
    first = static.data("first", [1], "bool")
    x = static.data("x", [2, 2])
    x.stop_gradient = False
    functions = {
        "matrix": lambda: paddle.scale(x, 1.0),
        "scalar": lambda: paddle.sum(x),
        "ints": lambda: paddle.cast(x, "int64"),
        "double": lambda: paddle.cast(x, "float64"),
    }
    values = np.arange(4, dtype="float32").reshape(2, 2)
    results = {
        "matrix": (values, np.ones((2, 2))),
        "scalar": (values.sum(), np.ones((2, 2))),
        "ints": (values.astype("int64"), np.zeros((2, 2))),
        "double": (values.astype("float64"), np.ones((2, 2))),
    }
    fetch = []
    pairs = [("matrix", "scalar"), ("scalar", "matrix"), ("matrix", "ints"), ("double", "matrix"), ("matrix", "double")]
    for yes, no in pairs:
        with pytest.warns(UserWarning, match="different ranks or dtypes"):
            out = chosen(kind, functions[yes], functions[no], first)
        assert (list(out.shape), out.dtype.name) == (list(results[yes][0].shape), str(results[yes][0].dtype))
        fetch += [out, *static.gradients([out], [x])]
    for flag in (True, False):
        got = run(fetch, {"x": values, "first": np.array([flag])})
        for number_of, pair in enumerate(pairs):
            value, slope = results[pair[0 if flag else 1]]
            assert (got[2 * number_of].dtype, got[2 * number_of].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(got[2 * number_of], value)
            np.testing.assert_array_equal(got[2 * number_of + 1], slope)


def test_case_and_switch_case_choose_in_order() -> None:
    x = static.data("x", [1])
    i = static.data("i", [1], "int64")
    y = static.nn.case(
        [
            (paddle.less_than(x, number(0.0)), lambda: number(1.0)),
            (paddle.less_than(x, number(10.0)), lambda: number(2.0)),
        ],
        default=lambda: number(3.0),
    )
    z = static.nn.switch_case(i, {1: lambda: number(10.0), 5: lambda: number(50.0)}, default=lambda: number(-1.0))
    last = static.nn.switch_case(i, [lambda: number(0.0), lambda: number(1.0), lambda: number(2.0)])
    for vx, vi, want in ((-1.0, 1, (1, 10, 1)), (5.0, 5, (2, 50, 2)), (50.0, 7, (3, -1, 2)), (5.0, 0, (2, -1, 0))):
        got = run([y, z, last], {"x": np.array([vx], "float32"), "i": np.array([vi], "int64")})
        assert tuple(float(g[0]) for g in got) == want


def test_while_loop_swaps_and_leaves_its_inputs_alone() -> None:
    a, b = number(1.0), number(2.0)
    i = number(0, "int64")
    out = static.nn.while_loop(
        lambda i, a, b: paddle.less_than(i, number(3, "int64")),
        lambda i, a, b: [paddle.scale(i, 1.0, 1.0), b, a],
        [i, a, b],
    )
    got = run([*out, i, a, b])
    assert [float(g[0]) for g in got] == [3, 2, 1, 0, 1, 2]


def test_a_while_loop_may_grow_a_variable() -> None:
    x = static.data("x", [None])
    _i, out = static.nn.while_loop(
        lambda i, s: paddle.less_than(i, number(3, "int64")),
        lambda i, s: [paddle.scale(i, 1.0, 1.0), paddle.concat([s, x])],
        [number(0, "int64"), x],
    )
    total = paddle.sum(out)
    value, summed = run([out, total], {"x": np.array([1.0, 2.0], "float32")})
    assert value.tolist() == [1, 2] * 4
    assert summed == 12


def test_random_numbers_differ_between_trips() -> None:
    first, second = number(0.0), number(0.0)
    out = static.nn.while_loop(
        lambda i, a, b: paddle.less_than(i, number(2, "int64")),
        lambda i, a, b: [paddle.scale(i, 1.0, 1.0), b, paddle.rand([1])],
        [number(0, "int64"), first, second],
    )
    _, a, b = run(list(out))
    assert a != b


def test_the_1x_forms() -> None:
    i = fluid.layers.fill_constant(shape=[1], dtype="int64", value=0)
    limit = fluid.layers.fill_constant(shape=[1], dtype="int64", value=5)
    total = fluid.layers.fill_constant(shape=[1], dtype="int64", value=0)
    going = fluid.layers.less_than(i, limit)
    loop = fluid.layers.While(going)
    with loop.block():
        fluid.layers.assign(fluid.layers.elementwise_add(total, i), total)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=going)
    rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with fluid.layers.Switch() as switch:
        with switch.case(paddle.greater_than(total, limit)):
            fluid.layers.assign(number(0.1), rate)
        with switch.default():
            fluid.layers.assign(number(0.2), rate)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    got, value = exe.run(fetch_list=[total, rate])
    assert got == 10
    assert value == np.float32(0.1)


def test_wrong_uses_say_so_and_leave_the_program_as_it_was() -> None:
    x = static.data("x", [1])
    pred = paddle.greater_than(x, number(0.0))
    program = static.default_main_program()
    before = str(program)
    cases: list[tuple[type[Exception], Any]] = [
        (ProgramTypeError, lambda: static.nn.cond(True, lambda: x, lambda: x)),
        (DTypeError, lambda: static.nn.cond(x, lambda: x, lambda: x)),
        (ProgramTypeError, lambda: static.nn.cond(pred, x, lambda: x)),
        (ProgramError, lambda: static.nn.cond(pred, lambda: x, lambda: None)),
        (ProgramError, lambda: static.nn.cond(pred, lambda: (x, x), lambda: x)),
        (ShapeError, lambda: static.nn.cond(paddle.concat([pred, pred]), lambda: x, lambda: x)),
        (ProgramTypeError, lambda: static.nn.while_loop(x, lambda v: v, [x])),
        (ProgramTypeError, lambda: static.nn.while_loop(lambda v: pred, lambda v: v, x)),
        (ProgramError, lambda: static.nn.while_loop(lambda: pred, lambda: [], [])),
        (ProgramError, lambda: static.nn.while_loop(lambda v: pred, lambda v: [v, v], [x])),
        (DTypeError, lambda: static.nn.while_loop(lambda v: v, lambda v: [v], [x])),
        (ProgramTypeError, lambda: static.nn.switch_case(paddle.cast(x, "int64"), {"a": lambda: x})),
        (ProgramError, lambda: static.nn.switch_case(paddle.cast(x, "int64"), [(1, lambda: x), (1, lambda: x)])),
        (ProgramTypeError, lambda: static.nn.case([])),
    ]
    for number_of, (error, call) in enumerate(cases):
        with pytest.raises(error) as caught:
            call()
        text = str(caught.value)
        assert "test_control_flow.py" in text, f"case {number_of}: {text}"
        assert "expected" in text
        assert "fix" in text
    after = str(program)
    assert [line for line in after.splitlines() if "select_input" in line or "while" in line] == []
    assert program.current_block_idx == 0
    assert before.count("block") <= after.count("block")


def weights(scope: static.Scope) -> dict[str, list[float]]:
    return {n: np.array(scope.find_var(n).get_tensor()).ravel().tolist() for n in ("w1", "w2")}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["cond", "case", "switch"])
def test_an_optimizer_inside_a_branch_trains_when_that_branch_runs(kind: str) -> None:
    first = static.data("first", [1], "bool")
    x = static.data("x", [None, 2])
    constant = paddle.nn.initializer.Constant(1.0)
    h = static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(name="w1", initializer=constant), bias_attr=False)
    out = static.nn.fc(h, 1, weight_attr=paddle.ParamAttr(name="w2", initializer=constant), bias_attr=False)
    outer = paddle.mean(out)

    def yes() -> Any:
        loss = paddle.mean(out * 2.0)
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss

    def no() -> Any:
        paddle.optimizer.SGD(0.2).minimize(outer)
        return paddle.scale(outer, 1.0)

    if kind == "switch":
        with fluid.layers.Switch() as switch:
            with switch.case(first):
                yes()
            with switch.default():
                no()
    else:
        chosen(kind, yes, no, first)
    main, exe = static.default_main_program(), static.Executor("cpu")
    exe.run(static.default_startup_program())
    test = main.clone(for_test=True)
    w1, w2, v1, v2 = 1.0, 1.0, 0.0, 0.0
    for flag in (True, False, False, True):
        feed = {"x": np.ones((2, 2), "float32"), "first": np.array([flag])}
        exe.run(test, feed=feed, fetch_list=[outer])
        exe.run(main, feed=feed, fetch_list=[outer])
        if flag:
            v1, v2 = 0.9 * v1 + 2 * w2, 0.9 * v2 + 4 * w1
            w1, w2 = w1 - 0.1 * v1, w2 - 0.1 * v2
        else:
            w1, w2 = w1 - 0.2 * w2, w2 - 0.2 * 2 * w1
        got = weights(static.global_scope())
        np.testing.assert_allclose(got["w1"], [w1] * 4, rtol=1e-5)
        np.testing.assert_allclose(got["w2"], [w2] * 2, rtol=1e-5)
    two = static.CompiledProgram(main).with_data_parallel(outer.name, places=[paddle.CPUPlace()] * 2)
    with pytest.raises(NotImplementedError, match="minimize inside a branch"):
        exe.run(two, feed=[feed] * 2, fetch_list=[outer])
