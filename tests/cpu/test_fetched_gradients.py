"""What ``w@GRAD`` holds when it is fetched from a program that clips gradients and decays weights, as Paddle prints it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static

CLIPS = {
    "none": lambda: None,
    "value": lambda: paddle.nn.ClipGradByValue(0.5),
    "norm": lambda: paddle.nn.ClipGradByNorm(0.5),
    "global norm": lambda: paddle.nn.ClipGradByGlobalNorm(0.5),
}

# Printed by Paddle 2.6.2 and 2.4.2: clip, decay, ``w@GRAD``, and ``w`` after one step of SGD(1.0) from 1.
PADDLE: list[tuple[str, float, list[float], list[float]]] = [
    ("none", 0.0, [3.0, 4.0], [-2.0, -3.0]),
    ("none", 0.1, [3.1, 4.1], [-2.1, -3.1]),
    ("value", 0.0, [3.0, 4.0], [0.5, 0.5]),
    ("value", 0.1, [3.0, 4.0], [0.4, 0.4]),
    ("norm", 0.0, [3.0, 4.0], [0.7, 0.6]),
    ("norm", 0.1, [3.0, 4.0], [0.6, 0.5]),
    ("global norm", 0.0, [0.3, 0.4], [0.7, 0.6]),
    ("global norm", 0.1, [0.4, 0.5], [0.6, 0.5]),
]  # fmt: skip


def _built(clip: Any, decay: float, how: str) -> tuple[Any, Any, Any]:
    """Builds ``sum(w * x)`` and its update; returns what ``minimize`` returned, and the loss."""
    x = static.data("x", [None, 2])
    start = paddle.nn.initializer.Constant(1.0)
    regularizer = paddle.regularizer.L2Decay(decay) if decay else None
    attr = paddle.ParamAttr(
        name="w", initializer=start, regularizer=regularizer, gradient_clip=clip if how == "attr" else None
    )
    w = static.create_parameter([2], "float32", attr=attr)
    loss = paddle.mean(paddle.sum(w * x, axis=1))
    if how == "set":
        fluid.clip.set_gradient_clip(clip)
    optimizer = paddle.optimizer.SGD(1.0, grad_clip=clip if how == "optimizer" else None)
    if how == "amp":
        optimizer = paddle.optimizer.SGD(1.0, grad_clip=clip)
        optimizer = static.amp.decorate(optimizer, init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
    return *optimizer.minimize(loss), loss


def _fetched(program: Any, rows: int = 1, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"x": np.tile(np.array([[3, 4]], "float32"), (rows, 1))}
    (gradient,) = exe.run(program, feed=feed, fetch_list=["w@GRAD"], **options)
    return gradient, np.array(static.global_scope().find_var("w").get_tensor())


@pytest.mark.parametrize("how", ["optimizer", "set", "attr", "amp"])
@pytest.mark.parametrize(("clip", "decay", "gradient", "updated"), PADDLE[1::2])
def test_the_gradient_is_that_before_a_clip_of_its_own(
    clip: str, decay: float, gradient: list[float], updated: list[float], how: str
) -> None:
    """Clips by value and by norm write a variable of their own; those by the global norm, and decay, write in place."""
    _built(CLIPS[clip](), decay, how)
    got, w = _fetched(static.default_main_program())
    np.testing.assert_allclose(got, gradient, rtol=1e-6)
    np.testing.assert_allclose(w, updated, rtol=1e-6)


@pytest.mark.parametrize(("clip", "decay", "gradient", "updated"), PADDLE[::2])
def test_fused_programs_fetch_the_same_gradient(
    clip: str, decay: float, gradient: list[float], updated: list[float]
) -> None:
    _built(CLIPS[clip](), decay, "optimizer")
    strategy = static.BuildStrategy()
    strategy.fuse_all_optimizer_ops = strategy.fuse_elewise_add_act_ops = strategy.build_cinn_pass = True
    got, w = _fetched(static.CompiledProgram(static.default_main_program(), strategy))
    np.testing.assert_allclose(got, gradient, rtol=1e-6)
    np.testing.assert_allclose(w, updated, rtol=1e-6)


@pytest.mark.parametrize("clip", list(CLIPS))
def test_replicas_exchange_the_gradient_before_the_clip(clip: str) -> None:
    """Each replica has the mean of all gradients, not clipped, and clips that: the updates are those of one place."""
    _built(CLIPS[clip](), 0.0, "optimizer")
    compiled = static.CompiledProgram(static.default_main_program())
    compiled = compiled.with_data_parallel(loss_name=_loss_name(), places=static.cpu_places(2))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"x": np.array([[2, 1], [4, 7]], "float32")}
    (gradient,) = exe.run(compiled, feed=feed, fetch_list=["w@GRAD"], return_merged=False)
    wanted = {(name, decay): (g, w) for name, decay, g, w in PADDLE}[clip, 0.0]
    for one in gradient:
        np.testing.assert_allclose(one, wanted[0], rtol=1e-6)
    w = np.array(static.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(w, wanted[1], rtol=1e-6)


def _loss_name() -> str:
    ops = static.default_main_program().global_block().ops
    return next(name for op in ops if op.type in ("mean", "reduce_mean") for name in op.output_arg_names)


@pytest.mark.parametrize(
    ("clip", "written"),
    [("value", "clip_0.tmp_0"), ("norm", "clip_by_norm_0.tmp_0"), ("global norm", "w@GRAD"), ("none", "w@GRAD")],
)  # fmt: skip
@pytest.mark.parametrize("how", ["optimizer", "set"])
def test_the_clipped_gradient_has_paddles_name(clip: str, written: str, how: str) -> None:
    """The update, and the decay before it, read and write the names that Paddle prints; ``minimize`` returns ``w@GRAD``."""
    (update,), pairs, _ = _built(CLIPS[clip](), 0.1, how)
    assert update.input("Grad") == [written]
    assert [(p.name, g.name) for p, g in pairs] == [("w", "w@GRAD")]
    decay = static.default_main_program().global_block().ops[-2]
    assert (decay.type, decay.input("X")[0], decay.output("Out")) == ("sum", written, [written])


@pytest.mark.parametrize("clip", [name for name in CLIPS if name != "none"])
@pytest.mark.parametrize("amp", [False, True])
def test_rows_that_no_batch_looked_up_stay_under_every_clip(clip: str, amp: bool) -> None:
    """A lazy rule knows rows of a table by the gradient's name, which a clip by value or by norm changes."""
    index = static.data("index", [None], "int64")
    table = static.nn.embedding(index, [4, 2], is_sparse=True, param_attr=paddle.ParamAttr(name="table"))
    optimizer = paddle.optimizer.Adam(0.1, lazy_mode=True, grad_clip=CLIPS[clip]())
    if amp:
        optimizer = static.amp.decorate(optimizer, init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
    optimizer.minimize(paddle.sum(table))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    for batch in ([0, 1], [2]):
        before = np.array(static.global_scope().find_var("table").get_tensor())
        exe.run(feed={"index": np.array(batch)})
        after = np.array(static.global_scope().find_var("table").get_tensor())
        assert np.flatnonzero((before != after).any(1)).tolist() == batch


def test_a_call_of_a_clip_returns_the_clipped_gradients() -> None:
    """Scripts that clip by hand go on with the pairs that the call returns."""
    x = static.data("x", [2])
    w = static.create_parameter([2], "float32", name="w")
    v = static.create_parameter([2], "float32", attr=paddle.ParamAttr(name="v", need_clip=False))
    pairs = static.append_backward(paddle.sum(w * x) + paddle.sum(v * x))
    clipped = paddle.nn.ClipGradByValue(0.5)(pairs)
    assert {p.name: g.name for p, g in clipped} == {"w": "clip_0.tmp_0", "v": "v@GRAD"}
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    values = exe.run(feed={"x": np.array([3, -4], "float32")}, fetch_list=[g for _, g in clipped])
    assert {p.name: v.tolist() for (p, _), v in zip(clipped, values, strict=True)} == {"w": [0.5, -0.5], "v": [3, -4]}
