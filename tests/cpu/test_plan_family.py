"""Plans for another size of a known program: they start where sizes begin to matter, and equal those of a fresh compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.helpers.drawn import PLAIN
from tstatic import static
from tstatic.ir.types import Meta, dtype_of
from tstatic.nn import functional as F
from tstatic.plan.plan import plan_text
from tstatic.static.compile import Compilation, compile_program, family_of

Net = Callable[[Any], Any]


def _rnn(kind: Any) -> Net:
    return lambda x: kind(4, 4)(x)[0]


NETS: dict[str, Net] = {
    "dense": lambda x: static.nn.fc(static.nn.fc(x, 8, num_flatten_dims=2, activation="relu"), 4, num_flatten_dims=2),
    "tanh, gelu": lambda x: F.gelu(paddle.tanh(x)) * x,
    "broadcast": lambda x: (x - paddle.mean(x, axis=0, keepdim=True)) / (1.0 + paddle.abs(x)),
    "softmax": lambda x: F.softmax(static.nn.fc(x, 5, num_flatten_dims=2)),
    "layer norm": lambda x: static.nn.layer_norm(x, begin_norm_axis=2),
    "batch norm": lambda x: static.nn.batch_norm(paddle.reshape(x, [-1, 4]), act="relu"),
    "attention": lambda x: paddle.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)(x),
    "dropout": lambda x: F.dropout(paddle.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2)(x), 0.5),
    "lstm": _rnn(paddle.nn.LSTM),
    "gru": _rnn(paddle.nn.GRU),
    "rnn": _rnn(paddle.nn.SimpleRNN),
    "conv1d": lambda x: paddle.nn.Conv1D(4, 6, 3, padding=1, data_format="NLC")(x),
    "conv2d": lambda x: static.nn.conv2d(paddle.unsqueeze(x, 1), 3, 3, padding=1, act="relu"),
    "pool": lambda x: F.avg_pool2d(paddle.unsqueeze(x, 1), 2, 2, padding=1),
    "concat, split": lambda x: paddle.concat(paddle.split(x, 2, axis=-1)[::-1], axis=0),
    "transpose, matmul": lambda x: paddle.matmul(x, paddle.transpose(x, [0, 2, 1])),
    "gather": lambda x: paddle.gather(x, paddle.to_tensor(np.array([0, 0]))),
    "cumsum, clip": lambda x: paddle.clip(paddle.cumsum(x, axis=1), -1.0, 1.0),
    "shape": lambda x: paddle.reshape(x, [paddle.shape(x)[0], -1]) * 2.0,
    "sort": lambda x: paddle.sort(x, axis=1) + paddle.max(x, axis=1, keepdim=True),
    "where": lambda x: paddle.where(x > 0.0, x, paddle.exp(x)),
}
WITHOUT_GRADIENT = frozenset({"gather"})


def _strategy(fused: bool) -> Any:
    strategy = static.BuildStrategy()
    if fused:
        strategy.enable_auto_fusion = True
        strategy.fuse_all_optimizer_ops = True
        strategy.fuse_gemm_epilogue = True
        strategy.fused_attention = True
    return strategy


def _compiled(main: Any, strategy: Any, loss: Any, sizes: tuple[int, int], family: Any) -> Compilation:
    known = {"x": Meta((*sizes, 4), dtype_of("float32"))}
    return compile_program(main, strategy, [known], [loss.name], static.global_scope(), family=family)


@pytest.mark.parametrize("name", NETS)
def test_a_plan_for_another_size_equals_one_that_is_compiled_afresh(name: str) -> None:
    """Guards what plans of a family share: it may depend on no size, or another size gets a wrong place, launch or kernel."""
    x = static.data("x", [None, None, 4])
    loss = paddle.mean(NETS[name](x))
    if name not in WITHOUT_GRADIENT:
        paddle.optimizer.Adam(0.01).minimize(loss)
    main = static.default_main_program()
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    families = {fused: family_of(main, _strategy(fused), ["x"], [loss.name]) for fused in (False, True)}

    @settings(max_examples=4, **PLAIN)
    @given(sizes=st.tuples(st.integers(1, 9), st.integers(2, 9)), fused=st.booleans())
    def check(sizes: tuple[int, int], fused: bool) -> None:
        family = families[fused]
        special = _compiled(main, _strategy(fused), loss, sizes, family).first
        fresh = _compiled(main, _strategy(fused), loss, sizes, None).first
        assert special.before is family.programs[0]
        assert plan_text(special.plan) == plan_text(fresh.plan)
        assert special.plan.storage == fresh.plan.storage
        assert special.plan.scratch == fresh.plan.scratch
        assert special.plan.lifetimes == fresh.plan.lifetimes
        assert [str(one) for one in special.log.applied] == [str(one) for one in fresh.log.applied]
        assert [str(one) for one in special.log.refused] == [str(one) for one in fresh.log.refused]
        # On a chip, too: kernels with their launches.
        target = special.target
        there, here = (one.plan_on(target) for one in (special, fresh))
        assert plan_text(there) == plan_text(here)
        assert {k: repr(g.calls) for k, g in there.kernels.items()} == {
            k: repr(g.calls) for k, g in here.kernels.items()
        }

    check()


def _trained(name: str, sizes: list[tuple[int, int]], anew: bool) -> list[bytes]:
    """Trains a net on feeds of these sizes; returns the bytes of each loss. ``anew``: each step in an Executor of its own."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
        main.random_seed = startup.random_seed = 5
        x = static.data("x", [None, None, 4])
        loss = paddle.mean(NETS[name](x))
        paddle.optimizer.Adam(0.01).minimize(loss)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        found = []
        for rows, columns in sizes:
            feed = np.random.default_rng(rows).standard_normal((rows, columns, 4)).astype("float32")
            exe = static.Executor(paddle.CPUPlace()) if anew else exe
            found.append(exe.run(main, feed={"x": feed}, fetch_list=[loss])[0].tobytes())
        return found


@pytest.mark.parametrize("name", ["dense", "dropout", "batch norm", "conv2d", "lstm", "shape"])
def test_training_on_sizes_in_turn_has_the_bits_of_executors_that_compile_each_step(name: str) -> None:
    """Guards arenas and families together: what an earlier size left in the memory changes no bit."""
    sizes = [(3, 4), (8, 9), (1, 2), (3, 4), (9, 3), (8, 9), (1, 2), (3, 4)]
    assert _trained(name, sizes, anew=False) == _trained(name, sizes, anew=True)
