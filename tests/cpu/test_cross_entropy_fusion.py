"""Groups along rows on numpy: what is fused has the bits of what is not; what stays apart is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import run
from tests.helpers.loss_programs import HEADS, build
from tstatic import static
from tstatic.target import DEFAULT_TARGET

F = paddle.nn.functional
KIND = "softmax_with_cross_entropy"


def explained(main: Any, fetches: list[Any], shapes: dict[str, tuple[int, ...]]) -> Any:
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = True
    return static.CompiledProgram(main, strategy).explain(fetch_list=fetches, feed_shapes=shapes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("shape", [(2, 3, 1), (2, 3, 17), (3, 20000)], ids=str)
def test_fused_is_unfused_bit_for_bit(name: str, shape: tuple[int, ...], dtype: str) -> None:
    built = build(HEADS[name], shape, dtype, ignore=0)
    plain, _ = run(built)
    fused, _ = run(built, build_cinn_pass=True)
    for variable, a, b in zip(built.fetches, plain, fused, strict=True):
        assert a.tobytes() == b.tobytes(), variable


def test_a_training_step_reads_logits_once_and_writes_their_gradient_once() -> None:
    """Loss and gradient are one kernel, of two arrays with all elements: no softmax is written."""
    built = build(HEADS["mean"], (64, 50304), ignore=0)
    found = explained(built.main, built.fetches, {n: a.shape for n, a in built.feed.items()})
    (kernel,) = found.kernels
    full = 64 * 50304 * 4
    assert 2 * full <= kernel.nbytes <= 2.001 * full
    assert len(kernel.inplace) == 1


@pytest.mark.parametrize("rows", [6, None], ids=["known", "open"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_static_gradients_gives_loss_and_gradient_in_one_kernel(reduction: str, rows: int | None) -> None:
    """The ones that the gradient starts from have the loss's shape, and do not wait for its values."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, label = static.data("x", [rows, 17], "float32"), static.data("label", [rows, 1], "int64")
        x.stop_gradient = False
        loss = F.cross_entropy(x * 0.5, label, reduction=reduction)
        (grad,) = static.gradients([loss], [x])
    rng = np.random.default_rng(3)
    feed = {"x": rng.standard_normal((6, 17)).astype(np.float32), "label": rng.integers(0, 17, (6, 1))}
    found = explained(main, [loss, grad], {n: a.shape for n, a in feed.items()})
    assert len(found.kernels) == 1
    assert found.why(loss.name if reduction == "none" else f"{KIND}_0.tmp_1", grad).fused
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = True
    fused, plain = (
        static.Executor("cpu").run(p, feed=feed, fetch_list=[loss, grad])
        for p in (static.CompiledProgram(main, strategy), main)
    )
    assert [a.tobytes() for a in fused] == [a.tobytes() for a in plain]


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_the_gradient_is_written_over_the_softmax_unfused_too(soft: bool) -> None:
    built = build(HEADS["soft, softmax is used, too" if soft else "softmax is used, too"], (4, 40), ignore=0)
    plain, _ = run(built, enable_inplace=False)
    values, compiled = run(built)
    for a, b in zip(plain, values, strict=True):
        assert a.tobytes() == b.tobytes()
    (step,) = [s for s in compiled.plan.steps if s.op.type == f"{KIND}_grad"]
    places = [compiled.plan.storage[str(e)].offset for e in (step.op.input("Softmax"), step.op.output("Logits@GRAD"))]
    assert places[0] == places[1]


# ------------------------------------------------------------------------------------------------- neighbours that stay apart
def test_a_sum_over_long_rows_stays_apart_and_says_so() -> None:
    built = build(HEADS["bias"], (4, 20000), ignore=0)
    found = explained(built.main, built.fetches, {n: a.shape for n, a in built.feed.items()})
    assert [(r.code, [m.type for m in r.members]) for r in found.refused] == [
        ("LONG_ROW", [f"{KIND}_grad", "elementwise_add_grad"])
    ]


def test_neighbours_in_two_groups_are_said() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [4, 8], "float32") for n in "xy")
        a, b = paddle.tanh(x * 2), paddle.tanh(y * 2)
        out = a + b
    found = explained(main, [out], {"x": (4, 8), "y": (4, 8)})
    assert [len(one.members) for one in found.applied] == [2, 3]
    (no,) = found.refused
    assert no.code == "TWO_GROUPS"
    assert [m.type for m in no.members] == ["tanh", "elementwise_add"]
    assert found.why(a.name, out.name).code == "TWO_GROUPS"


def test_more_operators_than_a_kernel_takes() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = out = static.data("x", [4, 8], "float32")
        for _ in range(30):
            out = paddle.tanh(out)
    found = explained(main, [out], {"x": (4, 8)})
    assert sorted(len(one.members) for one in found.applied) == [6, 24]
    assert [r.code for r in found.refused] == ["MANY_OPS"]
    assert x.shape == out.shape


def test_more_arrays_than_are_fast() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        xs = [static.data(f"x{i}", [4, 8], "float32") for i in range(12)]
        out = xs[0] * 2
        for x in xs[1:]:
            out = out + x
    found = explained(main, [out], {f"x{i}": (4, 8) for i in range(12)})
    assert [r.code for r in found.refused] == ["MANY_ARRAYS"]


# ------------------------------------------------------------------------------------------------- residual and layer norm
def transformer_block(depth: int) -> tuple[Any, Any]:
    """Blocks with the norm behind the residual, as BERT has them, and their training step."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [16, 32], "float32")
        h = static.nn.fc(x, 32)
        for _ in range(depth):
            wide = static.nn.fc(F.gelu(static.nn.fc(h, 64)), 32)
            h = static.nn.layer_norm(h + wide, begin_norm_axis=1)
        loss = paddle.mean(h * h)
        paddle.optimizer.AdamW(1e-3).minimize(loss)
    return main, loss


def test_layer_norm_backward_takes_the_residual_in() -> None:
    main, loss = transformer_block(3)
    found = explained(main, [loss], {"x": (16, 32)})
    groups = [[m.type for m in one.members] for one in found.applied]
    for kind in ("layer_norm", "layer_norm_grad"):
        mine = [g for g in groups if kind in g]
        assert len(mine) == 3, groups
    # What comes past the residual, or from both factors of the square, is added in the norm's kernel.
    assert sum("layer_norm_grad" in g and "sum" in g for g in groups) == 3, groups


def test_a_list_is_added_in_order_in_a_group() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        xs = [static.data(f"x{i}", [3, 5], "float32") for i in range(4)]
        out = paddle.tanh(paddle.add_n([xs[0], xs[1], xs[0], xs[2], xs[3]]))
    rng = np.random.default_rng(2)
    feed = {f"x{i}": (rng.standard_normal((3, 5)) * 10.0**i).astype(np.float32) for i in range(4)}
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(main, strategy)
    (value,) = static.Executor("cpu").run(compiled, feed=feed, fetch_list=[out])
    total = ((feed["x0"] + feed["x1"]) + feed["x0"]) + feed["x2"] + feed["x3"]
    assert np.allclose(value, np.tanh(total), rtol=1e-6)
    explained_ = compiled.explain(fetch_list=[out], feed_shapes={n: a.shape for n, a in feed.items()})
    assert [[m.type for m in one.members] for one in explained_.applied] == [["sum", "tanh"]]


# ---------------------------------------------------------------------------------------------------------- an op by itself
def _labelled(x: Any) -> Any:
    return F.softmax_with_cross_entropy(x, static.data("label", [x.shape[0], 1], "int64"))


LONE: dict[str, Any] = {
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "layer_norm": lambda x: static.nn.layer_norm(x, begin_norm_axis=1),
    KIND: _labelled,
}
PLAIN: dict[str, Any] = {
    "reduce_sum": lambda x: paddle.sum(x, -1),
    "reduce_mean": lambda x: paddle.mean(x, -1),
    "reduce_max": lambda x: paddle.max(x, -1),
    "softmax over columns": lambda x: F.softmax(x, axis=0),
}


def lone_program(compute: Any, shape: tuple[int, ...]) -> tuple[Any, Any, list[Any], dict[str, Any]]:
    """An op and its gradient, between ops that no kernel takes in, so that neither has a neighbour."""
    main, startup = static.Program(), static.Program()
    rng = np.random.default_rng(4)
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", list(shape))
        x.stop_gradient = False
        out = compute(x)
        # The gradient that arrives depends on all results: the two ops cannot be one kernel.
        arrives = paddle.cumsum(paddle.cumsum(out, 0), 0)
        wanted = [x, *(p for p in main.all_parameters() if not p.stop_gradient)]
        grads = static.gradients([out], wanted, [arrives])
    feed = {"x": rng.standard_normal(shape).astype(np.float32)}
    if main.global_block().has_var("label"):
        feed["label"] = rng.integers(0, shape[-1], (shape[0], 1))
    return main, startup, [out, *grads], feed


@pytest.mark.parametrize("name", LONE)
def test_an_op_along_rows_is_a_kernel_of_its_own(name: str) -> None:
    main, startup, fetches, feed = lone_program(LONE[name], (64, 512))
    found = explained(main, fetches, {n: a.shape for n, a in feed.items()})
    assert [[m.type for m in a.members] for a in found.applied] == [[name], [f"{name}_grad"]]
    forward, backward = found.kernels
    full = 64 * 512 * 4
    # What is read and written has to be, and nothing with all elements moves twice.
    assert forward.nbytes < 2.1 * full
    assert backward.nbytes < 3.1 * full
    if not backward.plan(DEFAULT_TARGET).partials:
        assert (len(forward.plan(DEFAULT_TARGET).launches), len(backward.plan(DEFAULT_TARGET).launches)) == (1, 1)
        assert found.traffic.launches_after == found.traffic.launches_before
    results = []
    for switches in ({}, {"build_cinn_pass": True}):
        scope, executor, strategy = static.Scope(), static.Executor("cpu"), static.BuildStrategy()
        executor.run(startup, scope=scope)
        for key, value in switches.items():
            setattr(strategy, key, value)
        compiled = static.CompiledProgram(main, strategy)
        results.append(executor.run(compiled, feed=feed, fetch_list=fetches, scope=scope))
    assert [a.tobytes() for a in results[0]] == [a.tobytes() for a in results[1]]


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_reduction_stays_as_it_is(name: str) -> None:
    main, _, fetches, feed = lone_program(PLAIN[name], (64, 512))
    found = explained(main, fetches, {n: a.shape for n, a in feed.items()})
    assert not found.applied
    assert not found.refused


def test_an_op_by_itself_that_has_no_kernel_says_why() -> None:
    main, _, fetches, feed = lone_program(LONE["layer_norm"], (4, 20000))
    found = explained(main, fetches, {n: a.shape for n, a in feed.items()})
    assert [[m.type for m in a.members] for a in found.applied] == [["layer_norm"]]
    assert [(r.code, [m.type for m in r.members]) for r in found.refused] == [("LONG_ROW", ["layer_norm_grad"])]
    assert "1 x LONG_ROW" in found["build_cinn_pass"].reason


def test_an_op_by_itself_obeys_the_user() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4, 8])
        with static.no_fuse():
            out = F.softmax(x)
    assert not explained(main, [out], {"x": (4, 8)}).applied
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = F.softmax(static.data("x", [4, 8]))
    # Only the compiler of rows takes it.
    assert not static.CompiledProgram(main, strategy).explain(fetch_list=[out]).applied


def test_loops_over_long_rows_wait_for_no_other_thread() -> None:
    """What a block of columns adds stays with the thread; the logit of the label is read by itself, not looked for."""
    built = build(HEADS["mean"], (64, 50304), ignore=0)
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = True
    told = static.CompiledProgram(built.main, strategy).explain(
        built.fetches, feed_shapes={n: a.shape for n, a in built.feed.items()}
    )
    (kernel,) = [k for k in told.kernels if k.template == "long_rows"]
    lines = kernel.code[kernel.code.index("def kernel(") :].splitlines()
    loops = [line for line in lines if line.startswith("        ")]
    assert any("_online(" in line for line in loops)
    assert not any(word in line for line in loops for word in ("tl.sum(", "tl.max(", "_row(", "tl.int64", " / "))
    assert any("tl.load(x0 + offsets_v" in line for line in lines if line not in loops)
