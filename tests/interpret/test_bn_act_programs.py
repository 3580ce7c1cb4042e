"""Programs with fused batch norms, through the generated kernels: the same results as unfused, and refusals with their code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.bn_nets import act_of, feed, gradients_of, residual, strategy, trained
from tests.cpu.nets import state
from tstatic import static


def assert_close(a: Any, b: Any, name: str, close: float = 1e-5) -> None:
    """Within so much of the largest value."""
    assert np.abs(a - b).max(initial=0.0) <= close * max(np.abs(b).max(initial=0.0), 1e-3), name


@pytest.mark.parametrize(("act", "layout"), [("relu", "NCHW"), ("relu", "NHWC"), ("gelu", "NHWC"), ("sigmoid", "NCHW")])
def test_training(act: str, layout: str) -> None:
    program = residual(act, layout)
    fetches = gradients_of(program[0])
    assert len(fetches) == 6
    unfused, expected, _ = trained(program, False, fetches, layout=layout)
    fused, found, told = trained(program, True, fetches, layout=layout)
    assert sorted(a.op for a in told.applied) == [
        "fused_batch_norm_act", "fused_batch_norm_act_grad", "fused_bn_add_activation", "fused_bn_add_activation_grad",
    ]  # fmt: skip
    assert told.kernel_kind == "generated"
    for a, b in zip(fused, unfused, strict=True):
        for name, x, y in zip(["loss", *fetches], a, b, strict=True):
            assert_close(x, y, name)
    for name in expected:
        assert_close(found[name], expected[name], name)
    # The running statistics moved.
    assert np.abs(found["batch_norm_0.w_1"]).max() > 1e-3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision(dtype: str) -> None:
    """Data of 16 bits beside statistics of 32."""

    def build(x: Any) -> list[Any]:
        low = paddle.cast(x, dtype)
        return [paddle.cast(act_of("relu")(norm_of(low) + low), "float32")]

    made, _ = near_miss(build, 1e-2)
    assert [a.op for a in made] == ["fused_bn_add_activation"]


def test_only_the_switch_that_is_on() -> None:
    program = residual()
    _, _, told = trained(program, False, [])
    assert not told.applied
    main, _, loss = program
    told = static.CompiledProgram(main).explain(fetch_list=[loss], feed_shapes={"x": feed()["x"].shape})
    assert {a.switch for a in told.applied} == {"fuse_bn_add_act_ops"}, "it is on unless switched off"


def test_relu_keeps_nothing_inner() -> None:
    _, _, told = trained(residual(), True, [], steps=1)
    assert not any(a.kept for a in told.applied)


def test_running_statistics() -> None:
    """In inference the statistics are the running ones, and stay."""
    main, startup, loss = residual()
    test = main.clone(for_test=True)
    with static.scope_guard(static.Scope()):
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        for i in range(3):
            exe.run(static.CompiledProgram(main, build_strategy=strategy(False)), feed=feed(i), fetch_list=[loss])
        before = state(static.global_scope(), main)
        values = []
        for on in (False, True):
            compiled = static.CompiledProgram(test, build_strategy=strategy(on))
            values.append(exe.run(compiled, feed=feed(9), fetch_list=[loss.name])[0])
        assert len(compiled.explain(fetch_list=[loss.name], feed_shapes={"x": feed()["x"].shape}).applied) == 2
        assert_close(values[1], values[0], "loss")
        after = state(static.global_scope(), main)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, name)


@pytest.mark.parametrize("norm", [{"use_global_stats": True}, {"momentum": 0.5, "epsilon": 1e-3}])
def test_settings(norm: dict[str, Any]) -> None:
    program = residual(**norm)
    fetches = gradients_of(program[0])
    unfused, expected, _ = trained(program, False, fetches, steps=2)
    fused, found, told = trained(program, True, fetches, steps=2)
    assert len(told.applied) == 4
    for a, b in zip(fused[-1], unfused[-1], strict=True):
        assert_close(a, b, "fetched")
    for name in expected:
        assert_close(found[name], expected[name], name)


def test_an_error_later_leaves_the_statistics() -> None:
    """Statistics are written beside the state, which is replaced at the end."""

    def fails(array: Any) -> Any:
        raise ValueError("no more")

    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 4, 5, 6])
        h = static.nn.batch_norm(x, act="relu")
        out = main.global_block().create_var(name="result", dtype="float32", shape=[-1, 4, 5, 6])
        static.py_func(fails, h, out)
    with static.scope_guard(static.Scope()):
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        before = state(static.global_scope(), main)
        compiled = static.CompiledProgram(main, build_strategy=strategy(True))
        with pytest.raises(Exception, match="no more"):
            exe.run(compiled, feed=feed(), fetch_list=[out])
        after = state(static.global_scope(), main)
        assert [a.op for a in compiled.explain(fetch_list=[out], feed_shapes={"x": (3, 4, 5, 6)}).applied] == [
            "fused_batch_norm_act"
        ]
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, name)


# ----------------------------------------------------------------------------------------------------------- near misses
def near_miss(build: Any, close: float = 1e-5) -> tuple[Any, Any]:
    """Builds ``(results, change)``; runs with and without the switches; returns the fusions that were made and refused."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 4, 5, 6])
        x.stop_gradient = False
        fetches = build(x)
        loss = paddle.mean(fetches[0])
        fetches = [*fetches, *paddle.static.gradients([loss], [x])]
    results = []
    for on in (False, True):
        with static.scope_guard(static.Scope()):
            exe = static.Executor(paddle.CPUPlace())
            exe.run(startup)
            compiled = static.CompiledProgram(main, build_strategy=strategy(on))
            results.append(exe.run(compiled, feed=feed(), fetch_list=fetches))
            told = compiled.explain(fetch_list=fetches, feed_shapes={"x": (3, 4, 5, 6)})
    for a, b in zip(*results, strict=True):
        assert_close(a, b, "fetched", close)
    forward = [a for a in told.applied if not a.op.endswith("_grad")]
    return forward, {r.code for r in told.refused}


def norm_of(x: Any) -> Any:
    return static.nn.batch_norm(x)


def test_the_inner_value_is_fetched() -> None:
    def build(x: Any) -> list[Any]:
        t = norm_of(x)
        return [act_of("relu")(t), t]

    assert near_miss(build) == ([], {"FETCHED"})


def test_the_inner_value_is_persistable() -> None:
    def build(x: Any) -> list[Any]:
        t = norm_of(x)
        t.persistable = True
        return [act_of("relu")(t)]

    assert near_miss(build) == ([], {"PERSISTABLE"})


@pytest.mark.parametrize("add", [False, True])
def test_the_inner_value_is_read_twice(add: bool) -> None:
    def build(x: Any) -> list[Any]:
        t = norm_of(x)
        return [act_of("relu")(t + x if add else t) * paddle.exp(t)]

    made, codes = near_miss(build)
    assert made == []
    assert codes == {"EXTRA_READER"}


def test_the_sum_is_read_twice() -> None:
    def build(x: Any) -> list[Any]:
        s = norm_of(x) + x
        return [act_of("relu")(s) * paddle.exp(s)]

    made, codes = near_miss(build)
    assert made == []
    assert codes == {"EXTRA_READER"}


def test_a_smaller_residual() -> None:
    def build(x: Any) -> list[Any]:
        return [act_of("relu")(norm_of(x) + paddle.mean(x, 3, keepdim=True))]

    made, codes = near_miss(build)
    assert made == []
    assert codes == {"ATTRIBUTE"}


def test_added_to_itself() -> None:
    def build(x: Any) -> list[Any]:
        t = norm_of(x)
        return [act_of("relu")(t + t)]

    made, codes = near_miss(build)
    assert made == []
    assert codes == {"ATTRIBUTE"}


def test_another_type_between() -> None:
    def build(x: Any) -> list[Any]:
        return [act_of("relu")(paddle.cast(norm_of(x), "float64"))]

    assert near_miss(build) == ([], set())


def test_two_norms_in_one_add() -> None:
    """One of them joins the add; the other is its residual."""

    def build(x: Any) -> list[Any]:
        return [act_of("relu")(norm_of(x) + norm_of(paddle.exp(x)))]

    made, _ = near_miss(build)
    assert [a.op for a in made] == ["fused_bn_add_activation"]


def test_the_residual_is_the_input() -> None:
    def build(x: Any) -> list[Any]:
        return [act_of("relu")(x + norm_of(x))]

    made, _ = near_miss(build)
    assert [a.op for a in made] == ["fused_bn_add_activation"]
