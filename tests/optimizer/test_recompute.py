"""RecomputeOptimizer: the bits of the plain optimizer, with less kept for the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import MissingCheckpointsError, ProgramTypeError, UnsupportedError


def _net(checkpoints: bool, amp: bool = False, names: bool = False) -> Any:
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 4
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [8, 32])
        hidden, kept = x, []
        for layer in range(6):
            hidden = paddle.nn.functional.dropout(static.nn.fc(hidden, 32, activation="tanh"), 0.25)
            if layer % 2:
                kept.append(hidden.name if names else hidden)
        loss = paddle.mean(paddle.square(hidden))
        rule: Any = paddle.optimizer.Momentum(0.1, 0.9)
        if amp:
            rule = static.amp.decorate(rule, dtype="bfloat16")
        if checkpoints:
            rule = fluid.optimizer.RecomputeOptimizer(rule)
            rule._set_checkpoints(kept)
        rule.minimize(loss)
    return main, startup, loss


def _trained(*net: Any) -> list[Any]:
    main, startup, loss = net
    scope, exe = static.Scope(), static.Executor("cpu")
    with static.scope_guard(scope):
        exe.run(startup)
        feed = {"x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(8, 32)}
        losses = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(4)]
        return [*losses, *(np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters())]


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("names", [False, True], ids=["variables", "names"])
def test_a_training_has_the_bits_of_the_plain_one(amp: bool, names: bool) -> None:
    plain, mine = _trained(*_net(False, amp)), _trained(*_net(True, amp, names))
    assert all(np.array_equal(a, b) for a, b in zip(plain, mine, strict=True))


def test_the_forward_pass_stands_in_the_program_twice_and_needs_less_memory() -> None:
    programs = [_net(wrapped) for wrapped in (False, True)]
    counts = [sum(op.type in ("mul", "matmul_v2") for op in main.global_block().ops) for main, _, _ in programs]
    assert counts[1] > counts[0]


def test_minimize_before_set_checkpoints_is_refused_as_in_paddle() -> None:
    loss = paddle.mean(static.nn.fc(static.data("x", [4, 3]), 2))
    before = len(static.default_main_program().global_block().ops)
    with pytest.raises(AssertionError, match="You should call _set_checkpoints first") as caught:
        fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    assert isinstance(caught.value, MissingCheckpointsError)
    assert len(static.default_main_program().global_block().ops) == before


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ProgramTypeError, match="wraps an optimizer"):
        fluid.optimizer.RecomputeOptimizer(0.1)
    with pytest.raises(ProgramTypeError, match="wraps an optimizer"):
        paddle.incubate.LookAhead(None)
    with pytest.raises(UnsupportedError, match="not supported by Recompute"):
        fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1)).load({})


def test_the_wrapped_optimizer_itself_keeps_everything() -> None:
    rule = paddle.optimizer.SGD(0.1)
    wrapped = fluid.optimizer.RecomputeOptimizer(rule)
    x = static.data("x", [4, 3])
    hidden = static.nn.fc(x, 3, activation="tanh")
    loss = paddle.mean(static.nn.fc(hidden, 3, activation="tanh"))
    wrapped._set_checkpoints([hidden])
    wrapped.backward(loss)
    assert rule._checkpoints is None
    wrapped.set_lr(0.5)
    assert rule.get_lr() == 0.5
