"""DynamicRNN: what it refuses, and that sequences do not touch each other."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, fluid, static

layers = fluid.layers


def test_sequences_do_not_touch_each_other() -> None:
    x = fluid.data("x", [None, 3], "float32", lod_level=1)
    rnn = layers.DynamicRNN()
    with rnn.block():
        now = rnn.step_input(x)
        state = rnn.memory(shape=[2], value=0.1)
        new = layers.fc([now, state], size=2, act="tanh")
        rnn.update_memory(state, new)
        rnn.output(new)
    out, exe = rnn(), fluid.Executor()
    exe.run(static.default_startup_program())
    rows = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")

    def run(part: np.ndarray[tuple[int, ...], np.dtype[np.float32]], lengths: list[int]) -> list[list[float]]:
        feed = {"x": fluid.create_lod_tensor(part, [lengths], fluid.CPUPlace())}
        (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        assert found.recursive_sequence_lengths() == [lengths]
        return np.array(found).tolist()

    together = run(rows, [2, 4, 0, 1])
    alone = run(rows[:2], [2]) + run(rows[2:6], [4]) + run(rows[6:], [1])
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_wrong_calls_are_refused_and_leave_the_program_as_it_was() -> None:
    x, dense = fluid.data("x", [None, 2], "float32", lod_level=1), fluid.data("dense", [None, 2], "float32")
    nested = fluid.data("nested", [None, 2], "float32", lod_level=2)
    text = str(static.default_main_program())
    for kind, words, call in (
        (errors.ProgramError, "must invoke step_input in rnn block", lambda rnn: rnn.step_input(x)),
        (errors.ProgramError, "can only be retrieved after rnn block", lambda rnn: rnn()),
    ):
        with pytest.raises(kind, match=words):
            call(layers.DynamicRNN())
    for kind, words, call in (
        (errors.ProgramError, "is not divided into sequences", lambda rnn: rnn.step_input(dense)),
        (errors.UnsupportedError, "not nested", lambda rnn: rnn.step_input(nested)),
        (errors.ProgramError, "in front of its step input", lambda rnn: rnn.memory(shape=[2])),
        (errors.ProgramError, "in front of its step input", lambda rnn: rnn.static_input(dense)),
        (errors.ProgramError, "needs a first value or a shape", lambda rnn: (rnn.step_input(x), rnn.memory())),
        (errors.ProgramError, "is not updated in the step", lambda rnn: (rnn.step_input(x), rnn.memory(shape=[2]))),
        (errors.ProgramTypeError, "must be Variable", lambda rnn: rnn.step_input(np.zeros(3))),
    ):
        rnn = layers.DynamicRNN()
        with pytest.raises(kind, match=words), rnn.block():
            call(rnn)
        assert str(static.default_main_program()) == text, words


def test_it_trains() -> None:
    """The sum of a sequence is learned from its last state."""
    paddle.seed(1)
    x, y = fluid.data("x", [None, 1], "float32", lod_level=1), fluid.data("y", [None, 1], "float32")
    rnn = layers.DynamicRNN()
    with rnn.block():
        now = rnn.step_input(x)
        state = rnn.memory(shape=[1])
        new = layers.fc(
            layers.concat([now, state], 1), size=1, bias_attr=False, param_attr=fluid.initializer.Constant(0.5)
        )
        rnn.update_memory(state, new)
        rnn.output(new)
    loss = layers.mean(layers.square(layers.sequence_last_step(rnn()) - y))
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor()
    exe.run(static.default_startup_program())
    rng, losses = np.random.default_rng(0), []
    for _ in range(80):
        lengths = rng.integers(1, 4, 8).tolist()
        rows = rng.normal(size=(sum(lengths), 1)).astype("float32")
        sums = np.add.reduceat(rows, np.cumsum([0, *lengths[:-1]]))
        feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace()), "y": sums}
        losses.append(float(np.ravel(exe.run(feed=feed, fetch_list=[loss])[0])[0]))
    assert np.mean(losses[-10:]) < 0.02 * np.mean(losses[:10])
