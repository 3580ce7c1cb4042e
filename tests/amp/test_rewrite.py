"""Which ops run in which precision, and why: lists, levels, guards, control flow; and that a value is cast once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import build, mlp, mlp_feed
from tstatic import static
from tstatic.static.amp import fp16_lists

amp = static.amp
F = paddle.nn.functional


def rewritten(level: str = "O1", dtype: str = "bfloat16", lists: Any = None, **how: Any) -> static.Program:
    main = static.default_main_program()
    how = {"use_fp16_guard": False, **how}
    amp.cast_model_to_fp16(main, lists, dest_type=dtype, level=level, **how)
    return main


def types(program: static.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def of(name: str) -> str:
    return static.default_main_program().global_block().var(name).dtype.name


# ---------------------------------------------------------------------------------------------------------------- lists
def test_the_lists_are_those_of_paddle_as_far_as_the_ops_exist() -> None:
    assert fp16_lists.white_list == {"conv2d", "matmul_v2", "max_pool2d_with_index", "mul"}
    assert fp16_lists.black_list >= {
        "exp", "log", "square", "mean", "reduce_mean", "reduce_sum", "reduce_prod", "pow", "rsqrt", "softmax", "log_softmax",
        "softmax_with_cross_entropy", "sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2", "nll_loss",
        "huber_loss", "log_loss", "layer_norm", "group_norm", "cumsum", "cumprod", "softplus", "tan", "cosh", "sinh",
    }  # fmt: skip
    assert fp16_lists.gray_list >= {
        "elementwise_add",
        "batch_norm",
        "relu",
        "dropout",
        "concat",
        "reshape2",
        "elementwise_pow",
    }
    lists = amp.AutoMixedPrecisionLists()
    assert lists.black_list - fp16_lists.black_list == {
        "bicubic_interp_v2", "bilinear_interp_v2", "linear_interp_v2", "lookup_table", "lookup_table_v2", "nearest_interp_v2",
        "scatter", "trilinear_interp_v2",
    }  # fmt: skip
    assert not lists.white_list & lists.black_list
    assert not lists.white_list & lists.gray_list
    assert not lists.black_list & lists.gray_list
    assert amp.CustomOpLists is amp.AutoMixedPrecisionLists


def test_custom_lists_move_ops() -> None:
    lists = amp.CustomOpLists(["softmax", "relu"], ["mul", "tanh"])
    assert {"softmax", "relu"} <= lists.white_list
    assert {"mul", "tanh"} <= lists.black_list
    assert not {"softmax", "relu", "mul", "tanh"} & lists.gray_list
    assert "softmax" not in lists.black_list
    assert "mul" not in lists.white_list
    assert "mul" in fp16_lists.white_list, "the defaults stay"


def test_lists_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="The given custom_white_list overlaps custom_black_list with < mul >!"):
        amp.AutoMixedPrecisionLists({"mul"}, {"mul"})
    with pytest.raises(ValueError, match="Custom bf16 list overlap custom fp32 list"):
        amp.bf16.AutoMixedPrecisionListsBF16({"mul"}, {"mul"})


def test_unknown_types_and_levels_are_refused() -> None:
    sgd = paddle.optimizer.SGD(0.1)
    with pytest.raises(ValueError, match="dtype should be 'float16' or 'bfloat16'"):
        amp.decorate(sgd, dtype="float32")
    with pytest.raises(ValueError, match="level should be O0, OD, O1 or O2"):
        amp.decorate(sgd, level="O3")
    with pytest.raises(ValueError, match="dtype should be"):
        amp.CustomOpLists(dtype="int8")
    with pytest.raises(TypeError, match="optimizer"):
        amp.decorate(static.default_main_program())
    assert amp.decorate(sgd, level="o2")._precision.level == "O2"


def test_arguments_of_the_older_decorate_choose_its_defaults() -> None:
    def settings(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        made = amp.decorate(paddle.optimizer.SGD(0.1), *args, **kwargs)
        s = made._scaling
        return s.init, s.incr_every_n_steps, s.decr_every_n_nan_or_inf, s.decr_ratio, made._precision.level, s.dynamic

    assert settings() == (65536, 2000, 1, 0.5, "O1", True)
    assert settings(use_pure_fp16=False) == (32768, 1000, 2, 0.8, "O1", True)
    assert settings(use_pure_fp16=True) == (32768, 1000, 2, 0.8, "O2", True)
    assert settings(None, 128.0) == (128, 1000, 2, 0.8, "O1", True)
    assert settings(use_bf16=True) == (1, 1000, 2, 0.8, "O1", False)
    assert amp.decorate(paddle.optimizer.SGD(0.1), use_pure_fp16=True)._precision.guard
    assert not amp.decorate(paddle.optimizer.SGD(0.1), use_pure_fp16=True, use_fp16_guard=False)._precision.guard
    with pytest.raises(TypeError):
        settings(use_pure_fp16=True, level="O2")


# ------------------------------------------------------------------------------------------------------------- decisions
def test_a_value_is_cast_once_for_all_its_readers() -> None:
    x = static.data("x", [4, 4])
    w = static.create_parameter([4, 4], "float32", name="w")
    for _ in range(3):
        paddle.matmul(x, w)
    main = rewritten()
    assert types(main) == ["cast", "cast", *["matmul_v2"] * 3]
    casts = [op.output("Out")[0] for op in main.global_block().ops[:2]]
    assert casts == ["x.cast_bf16", "w.cast_bf16"]


def test_gray_ops_follow_the_last_input_that_an_op_made() -> None:
    x = static.data("x", [4, 4])
    low, wide = paddle.matmul(x, x), paddle.exp(x)
    a, b = low + wide, wide + low
    rewritten()
    assert (a.dtype.name, b.dtype.name) == ("float32", "bfloat16")


def test_ops_on_no_list_run_in_float32() -> None:
    x = static.data("x", [4, 4])
    y = paddle.flip(paddle.matmul(x, x), [0])
    assert types(rewritten()) == ["cast", "matmul_v2", "cast", "flip"]
    assert y.dtype == "float32"


def test_black_variables_keep_their_ops_in_float32() -> None:
    x = static.data("x", [4, 4])
    paddle.matmul(paddle.matmul(x, x), x)
    lists = amp.CustomOpLists(custom_black_varnames={"x"}, dtype="bfloat16")
    assert types(rewritten(lists=lists)) == ["matmul_v2", "matmul_v2"]


def test_a_conversion_that_the_user_wrote_stays() -> None:
    x = static.data("x", [4, 4])
    y = paddle.matmul(x, x).astype("float32")
    z = y.astype("float64")
    rewritten("O2")
    assert (y.dtype.name, z.dtype.name) == ("float32", "float64")
    exe = static.Executor()
    feed = {"x": np.full((4, 4), 1.01, "float32")}
    assert exe.run(feed=feed, fetch_list=[z])[0].dtype == np.float64


def test_float64_and_integers_are_left_alone() -> None:
    x = static.data("x", [4, 4], "float64")
    n = static.data("n", [4, 4], "int64")
    paddle.matmul(x, x), n + n
    assert types(rewritten("O2")) == ["matmul_v2", "elementwise_add"]
    assert of("x") == "float64"


def test_norms_keep_scale_and_shift_in_float32() -> None:
    x = static.data("x", [2, 4, 3, 3])
    outs = [
        static.nn.batch_norm(x), static.nn.layer_norm(x), static.nn.group_norm(x, 2), static.nn.instance_norm(x)
    ]  # fmt: skip
    main = rewritten("O2")
    assert {v.dtype.name for v in outs} == {"bfloat16"}
    assert {p.dtype.name for p in main.all_parameters()} == {"float32"}
    exe = static.Executor()
    exe.run(static.default_startup_program())
    found = exe.run(feed={"x": np.random.default_rng(0).normal(size=(2, 4, 3, 3)).astype("float32")}, fetch_list=outs)
    assert all(np.isfinite(f.astype("float32")).all() for f in found)


def test_promotion_goes_by_all_inputs() -> None:
    x = static.data("x", [4, 4])
    low = paddle.matmul(x, x)
    a, b = low + low, low + paddle.exp(x)
    c = paddle.flip(low, [0])
    rewritten(use_promote=True)
    assert (a.dtype.name, b.dtype.name, c.dtype.name) == ("bfloat16", "float32", "bfloat16")


def test_guards_choose_the_ops_of_o2() -> None:
    x = static.data("x", [None, 4])
    with amp.fp16_guard():
        inner = static.nn.fc(x, 4)
    outer = static.nn.fc(inner, 4)
    names = amp.cast_model_to_fp16(static.default_main_program())
    assert (inner.dtype.name, outer.dtype.name) == ("float16", "float32")
    assert names == {"fc_0.w_0", "fc_0.b_0"}


def test_a_second_rewrite_changes_nothing() -> None:
    x = static.data("x", [4, 4])
    F.softmax(paddle.matmul(x, x))
    text = str(rewritten())
    assert str(rewritten()) == text


def test_two_losses_of_one_program_are_trained_in_turns() -> None:
    x = static.data("x", [None, 4])
    h = static.nn.fc(x, 4)
    first, second = paddle.mean(h), paddle.mean(paddle.square(h))
    for loss in (first, second):
        amp.decorate(paddle.optimizer.SGD(0.1), dtype="bfloat16").minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for _ in range(2):
        found = exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[first, second])
        assert np.isfinite(found).all()


# ---------------------------------------------------------------------------------------------------------- control flow
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_control_flow_keeps_the_types_of_what_it_carries(level: str) -> None:
    x = static.data("x", [4, 4])
    w = static.create_parameter([4, 4], "float32", name="w")
    i, h = paddle.full([1], 0, "int64"), paddle.matmul(x, w)
    i, h = static.nn.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, paddle.tanh(paddle.matmul(h, w))], [i, h])
    y = static.nn.cond(paddle.mean(h) > 0, lambda: paddle.matmul(h, w), lambda: paddle.exp(h))
    loss = paddle.mean(y)
    optimizer = amp.decorate(paddle.optimizer.SGD(0.1), level=level, dtype="bfloat16")
    test = static.default_main_program().clone(for_test=True)
    optimizer.minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(4, 4)).astype("float32")}
    (exact,) = exe.run(test, feed=feed, fetch_list=[loss.name])
    optimizer.amp_init(paddle.CPUPlace())
    (found,) = exe.run(feed=feed, fetch_list=[loss])
    np.testing.assert_allclose(found.astype("float32"), exact, atol=0.02)
    assert found != exact


def test_a_variable_that_is_written_twice_keeps_its_type() -> None:
    x = static.data("x", [4, 4])
    y = paddle.matmul(x, x)
    paddle.assign(paddle.exp(x), output=y)
    z = paddle.matmul(y, x)
    main = rewritten()
    assert (y.dtype.name, z.dtype.name) == ("float32", "bfloat16")
    exe = static.Executor()
    feed = {"x": np.eye(4, dtype="float32")}
    found = exe.run(main, feed=feed, fetch_list=[z])[0]
    np.testing.assert_allclose(found.astype("float32"), np.exp(np.eye(4)), rtol=1e-2)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("place", ["block", "branch"])
def test_a_reader_of_a_value_that_was_overwritten_gets_no_cast_of_the_old_one(place: str, level: str) -> None:
    def doubled() -> list[Any]:
        y = paddle.scale(x, 1.0)
        before = paddle.matmul(y, x)
        paddle.assign(y * 2.0, output=y)
        return [before, paddle.matmul(y, x)]

    x, yes = static.data("x", [4, 4]), static.data("yes", [1], "bool")
    results = doubled() if place == "block" else static.nn.cond(yes, doubled, doubled)
    main = rewritten(level)
    assert any(op.type == "cast" for block in main.blocks for op in block.ops)
    feed = {"x": np.arange(16, dtype="float32").reshape(4, 4), "yes": np.array([True])}
    before, after = (v.astype("float32") for v in static.Executor().run(main, feed=feed, fetch_list=results))
    np.testing.assert_array_equal(after, 2 * before)


# --------------------------------------------------------------------------------------------------------------- running
def test_a_test_program_cloned_before_or_after_reads_the_same_parameters() -> None:
    net = build(mlp, paddle.optimizer.Adam(0.01), level="O2", dtype="bfloat16")
    after = net.main.clone(for_test=True)
    feed = mlp_feed()
    net.run(feed)
    assert net.run(feed, net.test) == net.run(feed, after)
    kept = Counter(op.type for op in after.global_block().ops)
    assert kept["adam"] == kept["mul_grad"] == 0


def test_a_forgotten_amp_init_says_so() -> None:
    loss = mlp()
    amp.decorate(paddle.optimizer.SGD(0.1), level="O2", dtype="bfloat16").minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    with pytest.raises(TypeError, match="amp_init"):
        exe.run(feed=mlp_feed(), fetch_list=[loss])


def test_the_results_do_not_depend_on_passes_and_fusions() -> None:
    def losses(**switches: bool) -> list[float]:
        net = build(mlp, paddle.optimizer.Adam(0.01), dtype="bfloat16")
        strategy = static.BuildStrategy()
        for name, value in switches.items():
            setattr(strategy, name, value)
        compiled = static.CompiledProgram(net.main, build_strategy=strategy)
        return [float(net.run(mlp_feed(i), compiled)) for i in range(3)]

    assert losses() == losses(fuse_all_optimizer_ops=True, enable_auto_fusion=True, build_cinn_pass=True)
