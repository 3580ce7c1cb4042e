"""Multi-head attention blocks as users build them: one op each, with the unfused numbers, on one place and two, and in 16 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tstatic import static

BATCH, ROWS, WIDTH, HEADS = 4, 6, 16, 2


def _packed(x: Any) -> Any:
    """A block with a packed projection, pre-norm, as GPT has it."""
    n = static.nn.layer_norm(x, begin_norm_axis=2)
    parts = paddle.split(static.nn.fc(n, 3 * WIDTH, num_flatten_dims=2), 3, axis=2)
    q, k, v = (paddle.transpose(paddle.reshape(p, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3]) for p in parts)
    scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), 1 / math.sqrt(WIDTH // HEADS))
    mixed = paddle.matmul(paddle.nn.functional.softmax(scores), v)
    joined = paddle.reshape(paddle.transpose(mixed, [0, 2, 1, 3]), [0, 0, WIDTH])
    return x + static.nn.fc(joined, WIDTH, num_flatten_dims=2)


def _layer(x: Any) -> Any:
    """The library's own layer: three projections, the queries scaled."""
    return x + paddle.nn.MultiHeadAttention(WIDTH, HEADS)(x)


def _program(block: Any, low: bool = False) -> tuple[Any, Any, Any, list[str], Any]:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [None, ROWS, WIDTH])
        loss = paddle.mean(paddle.square(block(static.nn.fc(x, WIDTH, num_flatten_dims=2))))
        optimizer = paddle.optimizer.SGD(0.1)
        if low:
            optimizer = static.amp.decorate(
                optimizer,
                init_loss_scaling=1.0,
                use_dynamic_loss_scaling=False,
                level="O2",
                dtype="bfloat16",
                master_weight=True,
            )
        optimizer.minimize(loss)
    return main, startup, loss, [p.name for p in main.all_parameters()], optimizer.amp_init if low else None


def _run(built: tuple[Any, Any, Any, list[str], Any], *switches: str, places: int = 1) -> tuple[list[Any], Any]:
    main, startup, loss, names, ready = built
    strategy = only("fused_attention")
    strategy.fused_attention = False
    for switch in switches:
        setattr(strategy, switch, True)
    compiled = static.CompiledProgram(main, strategy)
    if places > 1:
        compiled = compiled.with_data_parallel(loss_name=loss.name, places=static.cpu_places(places))
    x = np.random.default_rng(5).standard_normal((BATCH, ROWS, WIDTH)).astype("float32")
    scope = static.Scope()
    with static.scope_guard(scope):
        exe = static.Executor("cpu")
        exe.run(startup)
        if ready is not None:
            ready(paddle.CPUPlace())
        for _ in range(3):
            exe.run(compiled, feed={"x": x}, fetch_list=[loss])
        values = [np.asarray(scope.find_var(n).get_tensor(), "float32") for n in names]
    return values, compiled.explain([loss], {"x": (BATCH, ROWS, WIDTH)})


def _ops(told: Any, fusion: str = "attention") -> list[str]:
    return [a.op for a in told.applied if a.fusion == fusion]


BOTH = ["fused_attention", "fused_attention_grad"]


@pytest.mark.parametrize("block", [_packed, _layer], ids=["packed", "layer"])
@pytest.mark.parametrize("places", [1, 2])
def test_training_is_the_unfused_one(block: Any, places: int) -> None:
    """On two places, too: the sum of gradients finds the pairs of the op's members."""
    built = _program(block)
    plain, _ = _run(built, places=places)
    fused, told = _run(built, "fused_attention", places=places)
    assert _ops(told) == BOTH
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-6)


def test_sixteen_bits() -> None:
    built = _program(_packed, low=True)
    plain, _ = _run(built)
    fused, told = _run(built, "fused_attention")
    assert _ops(told) == BOTH
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(
    ("other", "left"),
    [
        ("fuse_dot_product_attention", 0),
        ("fuse_gemm_epilogue", 1),
        ("fused_feedforward", 0),
        ("fuse_elewise_add_act_ops", 0),
    ],
)
def test_pairs_of_switches_keep_their_counts(other: str, left: int) -> None:
    """The block wins whole; what is before it is left to others: one product with its bias."""
    built = _program(_packed)
    _, told = _run(built, "fused_attention", other)
    assert _ops(told) == BOTH
    ops = [a.op for a in told.applied if a.fusion != "attention"]
    assert ops.count("fused_gemm_epilogue") == left
    assert "fused_dot_product_attention" not in ops


def test_only_the_core_is_left_where_the_block_does_not_fit() -> None:
    def crossed(x: Any) -> Any:
        return paddle.nn.MultiHeadAttention(WIDTH, HEADS)(x, paddle.tanh(x), paddle.tanh(x))

    _, told = _run(_program(crossed), "fused_attention", "fuse_dot_product_attention")
    assert _ops(told) == []
    assert "NO_PATTERN" in {r.code for r in told.refused if r.fusion == "attention"}
    assert _ops(told, "dot_product_attention") == ["fused_dot_product_attention", "fused_dot_product_attention_grad"]
