"""``StaticRNN`` against the same steps unrolled in the program: outputs and all gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import ProgramError


def cell(x: Any, h: Any, other: Any) -> Any:
    """One step: reads a step of the input, the state and a value from outside of the block."""
    both = static.nn.fc(x, 3, weight_attr="w_x", bias_attr="b") + static.nn.fc(h, 3, weight_attr="w_h", bias_attr=False)
    return paddle.tanh(both + other)


def looped(x: Any, start: Any, other: Any) -> tuple[Any, Any]:
    rnn = static.nn.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        state = rnn.memory(init=start) if start is not None else rnn.memory(shape=[-1, 3], batch_ref=now)
        new = cell(now, state, other)
        rnn.update_memory(state, new)
        rnn.output(new, state)
    after, before = rnn()
    return after, before


def unrolled(x: Any, start: Any, other: Any, steps: int) -> tuple[Any, Any]:
    state = start if start is not None else paddle.zeros([x.shape[1], 3])
    after, before = [], []
    for t in range(steps):
        before.append(state)
        state = cell(x[t], state, other)
        after.append(state)
    return paddle.stack(after), paddle.stack(before)


@settings(max_examples=15)
@given(
    steps=st.integers(1, 4), batch=st.integers(1, 3), has_start=st.booleans(), unknown=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_unrolled_program(
    steps: int, batch: int, has_start: bool, unknown: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    feed = {"x": rng.normal(size=(steps, batch, 2)), "o": rng.normal(size=(batch, 3)), "s": rng.normal(size=(batch, 3))}
    feed = {k: v.astype("float32") for k, v in feed.items()}
    found = []
    weights: dict[str, Any] = {}
    for loop in (True, False):
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            shape = [None, None, 2] if unknown and loop else [steps, batch, 2]
            x, o = static.data("x", shape), static.data("o", [batch, 3])
            s = static.data("s", [batch, 3])
            for var in (x, o, s):
                var.stop_gradient = False
            after, before = (
                looped(x, s if has_start else None, o) if loop else unrolled(x, s if has_start else None, o, steps)
            )
            loss = (after * after).sum() + (before * before * before).sum()
            parameters = [static.default_main_program().global_block().var(n) for n in ("w_x", "b", "w_h")]
            wanted = [x, o, *parameters, *([s] if has_start else [])]
            gradients = static.gradients([loss], wanted)
            exe = static.Executor()
            exe.run(static.default_startup_program())
            for p in parameters:
                weights.setdefault(p.name, rng.normal(size=p.shape).astype("float32"))
                p.set_value(weights[p.name])
            # Without a step that reads it, before one, the state's weight gets no gradient in the unrolled program.
            present = [g for g in gradients if g is not None]
            assert len(present) == len(wanted)
            found.append(exe.run(feed=feed, fetch_list=[after, before, *present]))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_it_trains_with_an_unknown_number_of_steps() -> None:
    """The sum of a sequence is learned; batches of other lengths make plans of their own."""
    paddle.seed(1)
    x, y = static.data("x", [None, None, 1]), static.data("y", [None, 1])
    rnn = static.nn.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        total = rnn.memory(shape=[-1, 1], batch_ref=now)
        new = static.nn.fc(paddle.concat([now, total], 1), 1, bias_attr=False)
        rnn.update_memory(total, new)
        rnn.step_output(new)
    loss = paddle.mean(paddle.square(rnn()[-1] - y))
    paddle.optimizer.Adam(0.05).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    rng = np.random.default_rng(0)
    losses = []
    for step in range(120):
        batch = rng.normal(size=(2 + step % 3, 16, 1)).astype("float32")
        losses += exe.run(feed={"x": batch, "y": batch.sum(0)}, fetch_list=[loss])
    assert np.mean(losses[-10:]) < 0.02 * np.mean(losses[:10])


def test_a_step_may_read_the_whole_sequence() -> None:
    x = paddle.to_tensor(np.arange(6, dtype="float32").reshape(3, 1, 2))
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        rnn.step_output(paddle.sum(x) + now)
    assert static.Executor().run(fetch_list=[rnn()])[0].ravel().tolist() == [15.0, 16.0, 17.0, 18.0, 19.0, 20.0]


def test_calls_at_the_wrong_place_are_refused() -> None:
    """The words are those of fluid 1.8.5."""
    x = static.data("x", [5, 3, 4])
    rnn = static.nn.StaticRNN()
    for call, words in (
        (lambda: rnn.step_input(x), "You must invoke step_input in rnn block"),
        (lambda: rnn.memory(shape=[2]), "You must invoke memory in rnn block"),
        (lambda: rnn.output(x), "You must invoke step_output in rnn block"),
        (rnn, "RNN output can only be retrieved after rnn block"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with rnn.step():
        now = rnn.step_input(x)
        with pytest.raises(ValueError, match="memory at least need shape and batch_ref"):
            rnn.memory(shape=[-1, 2])
        with pytest.raises(ValueError, match="fix seq_len"):
            rnn.step_input(static.data("z", [6, 3, 4]))
        with pytest.raises(ValueError, match="not a memory of the recurrence"):
            rnn.update_memory(now, now)
        for call in (lambda: rnn.step_input(x * 2), lambda: rnn.memory(init=x[0])):
            with pytest.raises(ValueError, match="is made inside the step"):
                call()
        rnn.step_output(now)
    assert rnn().shape == (5, 3, 4)


def test_a_memory_that_is_not_updated_leaves_the_program_as_it_was() -> None:
    x = static.data("x", [5, 3, 4])
    program = static.default_main_program()
    text = str(program)
    rnn = static.nn.StaticRNN()

    def build() -> None:
        with rnn.step():
            now = rnn.step_input(x)
            rnn.memory(shape=[-1, 4], batch_ref=now)
            rnn.step_output(now)

    with pytest.raises(ProgramError, match="is not updated in the step"):
        build()
    assert str(program) == text


def test_a_step_that_failed_can_be_written_again() -> None:
    """An interactive user mends the block: nothing of the first attempt is part of the second."""
    x, other = static.data("x", [5, 3, 4]), static.data("other", [5, 3, 2])
    rnn = static.nn.StaticRNN()

    def step(fails: bool) -> None:
        with rnn.step():
            now = rnn.step_input(x)
            state = rnn.memory(shape=[-1, 4], batch_ref=now)
            if fails:
                rnn.step_output(rnn.step_input(other))
                raise ZeroDivisionError
            rnn.update_memory(state, state + now)
            rnn.step_output(state + now)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            step(fails=True)
        with pytest.raises(ProgramError, match="after rnn block"):
            rnn()
    step(fails=False)
    values = np.random.default_rng(0).normal(size=(5, 3, 4)).astype("float32")
    (found,) = static.Executor().run(feed={"x": values}, fetch_list=[rnn()])
    np.testing.assert_allclose(found, values.cumsum(axis=0), rtol=1e-5, atol=1e-6)


def test_dropout_in_a_step_draws_anew_in_each_and_its_gradient_has_the_same_mask() -> None:
    x = paddle.ones([4, 2, 50])
    x.stop_gradient = False
    rnn = static.nn.StaticRNN()
    with rnn.step():
        rnn.step_output(paddle.nn.functional.dropout(rnn.step_input(x), 0.5))
    y = rnn()
    gradient = static.gradients([y.sum()], [x])[0]
    out, grad = static.Executor().run(fetch_list=[y, gradient])
    np.testing.assert_array_equal(out, grad)
    assert len({row.tobytes() for row in out}) == 4


def test_a_saved_program_runs_as_before(tmp_path: Any) -> None:
    x = static.data("x", [None, None, 2])
    rnn = static.nn.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        state = rnn.memory(shape=[-1, 3], batch_ref=now)
        new = cell(now, state, paddle.ones([3]))
        rnn.update_memory(state, new)
        rnn.step_output(new)
    y = rnn()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(4, 2, 2)).astype("float32")}
    before = exe.run(feed=feed, fetch_list=[y])[0]
    static.save_inference_model(str(tmp_path / "net"), [x], [y], exe)
    program, _, fetches = static.load_inference_model(str(tmp_path / "net"), exe)
    np.testing.assert_array_equal(exe.run(program, feed=feed, fetch_list=fetches)[0], before)
