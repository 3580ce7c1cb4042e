"""Groups along rows on numpy: what is fused has the bits of what is not; what stays apart is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.fusion_programs import run
from tests.loss_programs import HEADS, build
from tstatic import static

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


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_the_gradient_is_written_over_the_softmax_unfused_too(soft: bool) -> None:
    built = build(HEADS["soft, softmax is used, too" if soft else "softmax is used, too"], (4, 40), ignore=0)
    plain, _ = run(built, enable_inplace=False)
    values, compiled = run(built)
    for a, b in zip(plain, values, strict=True):
        assert a.tobytes() == b.tobytes()
    (step,) = [s for s in compiled.plan.steps if s.op.type == f"{KIND}_grad"]
    places = [compiled.plan.slots[str(e)].offset for e in (step.op.input("Softmax"), step.op.output("Logits@GRAD"))]
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
    assert [r.code for r in found.refused] == ["MANY_STREAMS"]


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
