"""append_backward and gradients: values against finite differences and torch, names, cuts, accumulation, higher order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import dense, rows
from tstatic import static
from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, UnsupportedError

torch = pytest.importorskip("torch")


def run(fetch: Any, feed: Any = None, program: Any = None) -> list[Any]:
    result: list[Any] = static.Executor("cpu").run(program, feed=feed, fetch_list=fetch)
    return result


def leaf(name: str, shape: Any, dtype: str = "float64") -> Any:
    x = static.data(name, shape, dtype)
    x.stop_gradient = False
    return x


def test_the_reference_net_has_the_op_list_of_the_reference() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 4])
        loss = paddle.mean(static.nn.fc(x, 2))
        paddle.optimizer.AdamW(0.01).minimize(loss)
    ops = [(o.type, o.attr("op_role"), o.attr("op_role_var")) for o in main.global_block().ops]
    w, b = "fc_0.w_0", "fc_0.b_0"
    assert ops == [
        ("mul", 0, []),
        ("elementwise_add", 0, []),
        ("reduce_mean", 256, []),
        ("fill_constant", 257, []),
        ("reduce_mean_grad", 1, []),
        ("elementwise_add_grad", 1, [b, f"{b}@GRAD"]),
        ("mul_grad", 1, [w, f"{w}@GRAD"]),
        ("adamw", 2, [b, f"{b}@GRAD"]),
        ("adamw", 2, [w, f"{w}@GRAD"]),
    ]
    assert main.global_block().ops[1].attr("axis") == 1
    assert main.global_block().ops[3].attr("value") == 1.0
    started = [o.type for o in startup.global_block().ops]
    assert started[:3] == ["uniform_random", "fill_constant", "fill_constant"]
    assert started.count("fill_constant") == 2 + 2 * 4


def test_several_uses_are_added_and_named_as_in_paddle() -> None:
    x = leaf("x", [3])
    y = paddle.add(paddle.square(x), paddle.scale(x, 3.0))
    loss = paddle.sum(paddle.multiply(y, x))
    (g,) = static.gradients(loss, x)
    assert g.name == "x@GRAD"
    assert any("x@GRAD@RENAME@block0@" in n for n in static.default_main_program().global_block().vars)
    v = np.array([1.0, -2.0, 0.5])
    assert np.allclose(run([g], {"x": v})[0], 3 * v**2 + 6 * v)


def test_several_targets_with_their_own_gradients() -> None:
    x = leaf("x", [2])
    a, b = paddle.square(x), paddle.exp(x)
    seed = static.data("seed", [2], "float64")
    (g,) = static.gradients([a, b], [x], target_gradients=[seed, None])
    v, s = np.array([0.3, -1.0]), np.array([2.0, 5.0])
    assert np.allclose(run([g], {"x": v, "seed": s})[0], 2 * v * s + np.exp(v))


def test_an_unreachable_input_gives_none_in_its_place() -> None:
    x, z = leaf("x", [2]), leaf("z", [2])
    y = paddle.square(x)
    assert static.gradients(y, z) == [None]
    g = static.gradients(y, [z, x])
    assert g[0] is None
    assert g[1] is not None


def test_an_inner_variable_can_be_asked_for() -> None:
    x = leaf("x", [2])
    h = paddle.exp(x)
    y = paddle.square(h)
    gh, gx = static.gradients(y, [h, x])
    v = np.array([0.1, 0.7])
    got = run([gh, gx], {"x": v})
    assert np.allclose(got[0], 2 * np.exp(v))
    assert np.allclose(got[1], 2 * np.exp(2 * v))


def test_higher_order() -> None:
    x = leaf("x", [4])
    y = paddle.sum(paddle.tanh(paddle.multiply(x, x)))
    (g1,) = static.gradients(y, x)
    (g2,) = static.gradients(paddle.sum(g1), x)
    (g3,) = static.gradients(paddle.sum(g2), x)
    assert g1.name == "x@GRAD"
    assert g2.name == "grad/x@GRAD"
    assert g3.name == "grad/grad/x@GRAD"
    v = np.array([0.2, -0.4, 0.9, 1.1])
    t = torch.tensor(v, requires_grad=True)
    first = torch.autograd.grad(torch.tanh(t * t).sum(), t, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), t, create_graph=True)[0]
    third = torch.autograd.grad(second.sum(), t)[0]
    for mine, theirs in zip(run([g1, g2, g3], {"x": v}), (first, second, third), strict=True):
        assert np.allclose(mine, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_a_gradient_penalty_trains() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3])
        x.stop_gradient = False
        y = paddle.sum(dense(x, 4, "tanh"))
        (g,) = static.gradients(y, x)
        loss = paddle.mean(paddle.square(g))
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup)
    losses = [float(exe.run(main, feed={"x": rows(8)}, fetch_list=[loss])[0]) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_stop_gradient_and_no_grad_set_cut() -> None:
    x = leaf("x", [2])
    a = paddle.square(x)
    a.stop_gradient = True
    b = paddle.exp(x)
    y = paddle.add(a, b)
    (g,) = static.gradients(y, x)
    v = np.array([0.5, 1.0])
    assert np.allclose(run([g], {"x": v})[0], np.exp(v))
    (g2,) = static.gradients(y, x, no_grad_set={b})
    assert g2 is None


def test_parameter_list_and_frozen_parameters() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        h = dense(x, 4)
        loss = paddle.mean(dense(h, 2))
        main.global_block().var("fc_0.w_0").stop_gradient = True
        main.global_block().var("fc_0.w_0").trainable = False
        pairs = static.append_backward(loss)
    assert [p.name for p, _ in pairs] == ["fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    other = static.Program()
    with static.program_guard(other, static.Program()), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        loss = paddle.mean(dense(dense(x, 4), 2))
        pairs = static.append_backward(loss, parameter_list=["fc_1.w_0"])
    assert [p.name for p, _ in pairs] == ["fc_1.w_0"]


def test_wrong_arguments_are_named() -> None:
    x = leaf("x", [2])
    y = paddle.square(x)
    with pytest.raises(ProgramTypeError, match="loss"):
        static.append_backward("loss")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="number of values"):
        static.gradients([y], [x], target_gradients=[y, y])
    with pytest.raises(ShapeError, match="different"):
        static.gradients([y], [x], target_gradients=[paddle.sum(y)])
    with pytest.raises(ProgramTypeError, match="inputs"):
        static.gradients([y], ["x"])
    with pytest.raises(ProgramTypeError, match="no_grad_set"):
        static.gradients([y], [x], no_grad_set=5)


def test_a_value_that_is_overwritten_is_refused_not_silently_wrong() -> None:
    x = leaf("x", [2])
    h = paddle.scale(x, 1.0)
    y = paddle.square(h)
    paddle.assign(paddle.scale(x, 5.0), output=h)
    with pytest.raises(ProgramError, match="overwrote"):
        static.gradients(paddle.sum(y), x)


def numeric(function: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-4) -> np.ndarray:
    grad = np.zeros_like(x)
    for i in np.ndindex(*x.shape):

        def at(d: float, i: Any = i) -> float:
            moved = x.copy()
            moved[i] += d
            return function(moved)

        grad[i] = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    return grad


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_through_cond(sign: float) -> None:
    x = leaf("x", [3])
    w = leaf("w", [3])
    y = paddle.multiply(x, w)

    def yes() -> Any:
        return paddle.square(y), paddle.exp(w)

    def no() -> Any:
        return paddle.scale(y, 3.0), paddle.multiply(w, x)

    pred = paddle.greater_than(paddle.sum(x), paddle.zeros([], "float64"))
    a, b = static.nn.cond(pred, yes, no)
    loss = paddle.sum(paddle.add(paddle.multiply(a, w), b))
    gx, gw = static.gradients(loss, [x, w])
    exe = static.Executor("cpu")
    vx, vw = sign * np.array([0.5, 1.0, 0.25]), np.array([0.3, -0.7, 0.2])

    def value(x: np.ndarray, w: np.ndarray) -> float:
        return float(exe.run(feed={"x": x, "w": w}, fetch_list=[loss])[0])

    got = exe.run(feed={"x": vx, "w": vw}, fetch_list=[gx, gw])
    assert np.allclose(got[0], numeric(lambda v: value(v, vw), vx), rtol=1e-7, atol=1e-9)
    assert np.allclose(got[1], numeric(lambda v: value(vx, v), vw), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_gradients_through_while_loop(trips: int) -> None:
    x = leaf("x", [2])
    w = leaf("w", [2])
    n = static.data("n", [1], "int64")
    start = paddle.scale(x, 1.0)

    def more(i: Any, s: Any) -> Any:
        return paddle.less_than(i, n)

    def step(i: Any, s: Any) -> Any:
        return paddle.increment(paddle.scale(i, 1.0)), paddle.tanh(paddle.add(paddle.multiply(s, w), x))

    _, s = static.nn.while_loop(more, step, [paddle.zeros([1], "int64"), start])
    loss = paddle.sum(paddle.square(s))
    gx, gw = static.gradients(loss, [x, w])
    exe = static.Executor("cpu")
    count = np.array([trips], "int64")
    vx, vw = np.array([0.4, -0.8]), np.array([0.9, 1.3])

    def value(x: np.ndarray, w: np.ndarray) -> float:
        return float(exe.run(feed={"x": x, "w": w, "n": count}, fetch_list=[loss])[0])

    got = exe.run(feed={"x": vx, "w": vw, "n": count}, fetch_list=[gx, gw])
    assert np.allclose(got[0], numeric(lambda v: value(v, vw), vx), rtol=1e-7, atol=1e-9)
    assert np.allclose(got[1], numeric(lambda v: value(vx, v), vw), rtol=1e-7, atol=1e-9)


def test_gradients_through_nested_control_flow() -> None:
    x = leaf("x", [2])

    def more(i: Any, s: Any) -> Any:
        return paddle.less_than(i, paddle.full([1], 3, "int64"))

    def step(i: Any, s: Any) -> Any:
        odd = paddle.equal(paddle.mod(i, paddle.full([1], 2, "int64")), paddle.full([1], 1, "int64"))
        s = static.nn.cond(odd, lambda: paddle.multiply(s, x), lambda: paddle.add(paddle.square(s), x))
        return paddle.scale(i, 1.0, 1.0), s

    _, s = static.nn.while_loop(more, step, [paddle.zeros([1], "int64"), paddle.scale(x, 0.5)])
    loss = paddle.sum(s)
    (g,) = static.gradients(loss, x)
    exe = static.Executor("cpu")
    v = np.array([0.6, -1.1])
    got = exe.run(feed={"x": v}, fetch_list=[g])[0]
    want = numeric(lambda a: float(exe.run(feed={"x": a}, fetch_list=[loss])[0]), v)
    assert np.allclose(got, want, rtol=1e-7, atol=1e-9)


def _deep(checkpoints: bool) -> tuple[Any, Any]:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 64])
        h, marks = x, []
        for i in range(8):
            h = paddle.nn.functional.dropout(dense(h, 64, "tanh"), 0.2)
            if i % 2:
                marks.append(h)
        loss = paddle.mean(paddle.square(h))
        pairs = static.append_backward(loss, checkpoints=marks if checkpoints else None)
    return (main, startup), [g.name for _, g in pairs]


def test_recompute_gives_the_same_gradients_with_less_memory() -> None:
    feed = {"x": rows(256, 64)}
    results, peaks, computed = [], [], []
    for checkpoints in (False, True):
        (main, startup), names = _deep(checkpoints)
        with static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(startup)
            compiled = static.CompiledProgram(main)
            peaks.append(compiled.memory_report({"x": (256, 64)}, names).by_category["activations"])
            results.append(exe.run(compiled, feed=feed, fetch_list=names))
            computed.append([step.op.type for step in compiled.plan.steps].count("tanh"))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert peaks[1] < peaks[0]
    # All layers lie before the last checkpoint; what repeats them must not be merged with what it repeats.
    assert computed == [8, 16]


@pytest.mark.parametrize("reduce", ["mul", "amin", "amax"])
def test_a_missing_gradient_of_put_along_axis_is_an_error_when_the_program_is_built(reduce: str) -> None:
    with static.program_guard(static.Program(), static.Program()):
        x, index = static.data("x", [2, 3]), static.data("index", [2, 1], "int64")
        x.stop_gradient = False
        out = paddle.put_along_axis(x, index, 2.0, 1, reduce=reduce)
        with pytest.raises(UnsupportedError, match="no gradient") as caught:
            static.gradients([paddle.sum(out)], [x])
        assert "test_autodiff.py" in str(caught.value)


def test_two_optimizers_on_one_loss_make_two_steps_where_no_gradient_needs_the_old_weight() -> None:
    x = static.data("x", [None, 2])
    weight = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(1.0))
    loss = paddle.mean(static.nn.fc(x, 1, weight_attr=weight))
    for _ in range(2):
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    exe.run(feed={"x": np.ones((4, 2), "float32")})
    found = static.global_scope().find_var("w")
    assert found is not None
    np.testing.assert_allclose(np.array(found.get_tensor()), [[0.8], [0.8]], rtol=1e-6)


def _two_layers() -> tuple[Any, dict[str, Any]]:
    """A loss whose gradient reads a weight, and its feed."""
    one = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(1.0))
    two = paddle.ParamAttr(name="v", initializer=paddle.nn.initializer.Constant(2.0))
    h = static.nn.fc(static.data("x", [None, 2]), 2, weight_attr=one, bias_attr=False)
    return paddle.mean(static.nn.fc(h, 1, weight_attr=two, bias_attr=False)), {"x": np.ones((1, 2), "float32")}


def test_a_second_optimizer_reads_the_weights_of_the_forward_pass() -> None:
    """Two updates with one gradient each are one with twice the rate: both backward passes stand before the first update."""
    found = []
    for rates in ((0.25,), (0.125, 0.125)):
        with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
            loss, feed = _two_layers()
            for rate in rates:
                paddle.optimizer.SGD(rate).minimize(loss)
            exe = static.Executor("cpu")
            exe.run(static.default_startup_program())
            exe.run(feed=feed, fetch_list=[loss])
            found.append([np.array(static.global_scope().find_var(n).get_tensor()).ravel()[0] for n in "wv"])
    assert found == [[0.5, 1.5]] * 2


def test_a_loss_built_after_an_update_is_told_how_to_keep_the_weight() -> None:
    """An operator behind the update reads the new weight, so it cannot stand before it, nor can the backward pass."""
    loss, _ = _two_layers()
    paddle.optimizer.SGD(0.1).minimize(loss)
    later = loss + paddle.sum(static.default_main_program().global_block().var("v"))
    with pytest.raises(ProgramError, match="a later operator overwrote it") as caught:
        paddle.optimizer.SGD(0.1).minimize(later)
    assert "before the first update" in str(caught.value)


def test_an_operator_does_not_move_before_one_that_reads_what_it_overwrites() -> None:
    loss, _ = _two_layers()
    total = paddle.scale(loss, 1.0)
    paddle.optimizer.SGD(0.1).minimize(loss)
    paddle.scale(total, 1.0)  # behind the update, and no part of the second loss
    paddle.assign(loss * 2.0, output=total)
    with pytest.raises(ProgramError, match="a later operator overwrote it"):
        paddle.optimizer.SGD(0.1).minimize(total)


def test_a_gradient_that_reads_no_overwritten_value_is_built() -> None:
    x, y = leaf("x", [1, 2]), leaf("y", [2, 1])
    h = paddle.scale(y, 1.0)
    z = paddle.sum(paddle.matmul(x, h))
    paddle.assign(paddle.scale(y, 5.0), output=h)
    with pytest.raises(ProgramError, match="overwrote"):
        static.gradients(z, x)
    (dy,) = static.gradients(z, y, no_grad_set=[x])
    got = static.Executor("cpu").run(feed={"x": np.array([[2.0, 3.0]]), "y": np.zeros((2, 1))}, fetch_list=[dy])[0]
    assert got.tolist() == [[2], [3]]


def test_results_of_inputs_that_all_stop_gradients_stop_them_too() -> None:
    x, flag = static.data("x", [3]), static.data("flag", [1], "bool")
    w = static.create_parameter([3], "float32")
    stops = {
        "full": paddle.full([2], 1.0), "rand": paddle.rand([2]), "constant": paddle.assign(np.ones(2, "float32")),
        "sum with a number": x + 1, "product": x * x, "branch": static.nn.cond(flag, lambda: x + 1, lambda: x * 2),
        "loop": static.nn.while_loop(lambda v: flag, lambda v: v + x, [paddle.zeros([3])])[0],
    }  # fmt: skip
    passes = {
        "product": x * w, "branch": static.nn.cond(flag, lambda: x + 1, lambda: w * 2),
        "loop": static.nn.while_loop(lambda v: flag, lambda v: v + w, [paddle.zeros([3])])[0],
    }  # fmt: skip
    no_gradient = {
        "zeros_like": paddle.zeros_like(w), "full_like": paddle.full_like(w, 2.0), "bernoulli": paddle.bernoulli(w * w),
        "unique": paddle.unique(w), "full of a Variable": paddle.full([2], paddle.sum(w)),
    }  # fmt: skip
    stops |= no_gradient
    assert {name: v.stop_gradient for name, v in stops.items()} == dict.fromkeys(stops, True)
    assert {name: v.stop_gradient for name, v in passes.items()} == dict.fromkeys(passes, False)


def test_an_input_that_stops_gradients_has_none() -> None:
    x, y = static.data("x", [3]), leaf("y", [3])
    assert static.gradients([paddle.sum(x)], [x]) == [None]
    dx, dy = static.gradients([paddle.sum(paddle.cast(x, "float64") * y)], [x, y])
    assert dx is None
    assert dy is not None
    h = y * 2.0
    h.stop_gradient = True
    dh, dy = static.gradients([paddle.sum(h * y)], [h, y])
    assert dh is None
    feed = {"x": np.ones(3, "float32"), "y": np.array([1.0, 2.0, 3.0])}
    assert static.Executor("cpu").run(feed=feed, fetch_list=[dy])[0].tolist() == [2, 4, 6]


def test_a_variable_written_again_lets_through_what_its_new_value_depends_on_and_keeps_the_old_ones_gradient() -> None:
    x, w = static.data("x", [2], "float64"), leaf("w", [2])
    total = paddle.zeros([2], "float64")
    paddle.assign(w * 3.0, output=total)
    (dw,) = static.gradients([paddle.sum(total)], [w])
    h = w * 2.0
    y = paddle.sum(h * 5.0)
    paddle.assign(x, output=h)
    (dh,) = static.gradients([y], [w])
    feed = {"x": np.zeros(2), "w": np.ones(2)}
    got = static.Executor("cpu").run(feed=feed, fetch_list=[dw, dh])
    assert [g.tolist() for g in got] == [[3, 3], [10, 10]]


@pytest.mark.parametrize("clip", [paddle.nn.ClipGradByValue, paddle.nn.ClipGradByNorm, paddle.nn.ClipGradByGlobalNorm])
def test_clips_drop_parameters_without_a_gradient(clip: Any) -> None:
    w, v = (static.create_parameter([2], "float32") for _ in range(2))
    g = w * 2.0
    assert [(p.name, made.shape) for p, made in clip(1.0)([(w, g), (v, None)])] == [(w.name, (2,))]
    assert clip(1.0)([(v, None)]) == []
