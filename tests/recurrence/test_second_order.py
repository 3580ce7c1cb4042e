"""Gradients of gradients: whole-sequence ops say what to build instead, and what they name has second gradients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, nn, static
from tstatic.errors import UnsupportedError

STEPS, BATCH, SIZE, WIDTH = 3, 2, 2, 3


def _lstm_unit(size: int, width: int) -> Callable[..., Any]:
    def cell(x: Any, states: Any) -> Any:
        h, c = fluid.layers.lstm_unit(x, *states, param_attr="w", bias_attr="b")
        return h, (h, c)

    return cell


def _gru_unit(size: int, width: int) -> Callable[..., Any]:
    def cell(x: Any, state: Any) -> Any:
        gates = fluid.layers.fc(x, 3 * width, param_attr="v", bias_attr=False)
        h = fluid.layers.gru_unit(gates, state, 3 * width, param_attr="w", bias_attr="b")[0]
        return h, h

    return cell


CELLS: dict[str, Callable[..., Any]] = {
    "LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "SimpleRNN": nn.SimpleRNNCell, "lstm_unit": _lstm_unit, "gru_unit": _gru_unit,
}  # fmt: skip


def _sequence(size: int) -> Any:
    return static.data("x", [-1, size], lod_level=1)


def _layer(kind: type[Any], *given: Any) -> Callable[[], Any]:
    def build() -> Any:
        x = static.data("x", [STEPS, BATCH, SIZE])
        x.stop_gradient = False
        return x, kind(*given)(x)[0]

    return build


def _over(make: Callable[[Any], Any], size: int) -> Callable[[], Any]:
    def build() -> Any:
        x = _sequence(size)
        x.stop_gradient = False
        return x, make(x)

    return build


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lstm_sequence": (_layer(nn.LSTM, SIZE, WIDTH), "nn.LSTMCell once per step"),
    "gru_sequence": (_layer(nn.GRU, SIZE, WIDTH), "nn.GRUCell once per step"),
    "simple_rnn_sequence": (_layer(nn.SimpleRNN, SIZE, WIDTH), "nn.SimpleRNNCell once per step"),
    "recurrent": (_layer(lambda *_: nn.RNN(nn.LSTMCell(SIZE, WIDTH))), "a Python loop"),
    "lstm": (_over(lambda x: fluid.layers.dynamic_lstm(x, 8)[0], 8), "sequence_pad"),
    "lstmp": (_over(lambda x: fluid.layers.dynamic_lstmp(x, 8, 3)[0], 8), "sequence_pad"),
    "gru": (_over(lambda x: fluid.layers.dynamic_gru(x, 2), 6), "sequence_pad"),
    "linear_chain_crf": (
        _over(lambda x: fluid.layers.linear_chain_crf(x, static.data("y", [-1, 1], "int64", lod_level=1)), 4),
        "recursion over the steps",
    ),
    "warpctc": (
        _over(lambda x: fluid.layers.warpctc(x, static.data("y", [-1, 1], "int32", lod_level=1)), 4),
        "recursion over the steps",
    ),
}


def _gradient(x: Any, y: Any) -> Any:
    return static.gradients([paddle.sum(paddle.square(y))], [x])[0]


@pytest.mark.parametrize("name", REFUSED)
def test_a_second_gradient_is_refused_with_a_way_on(name: str) -> None:
    build, way = REFUSED[name]
    with static.program_guard(static.Program(), static.Program()):
        x, y = build()
        first = _gradient(x, y)
        with pytest.raises(UnsupportedError, match=f"'{name}_grad' cannot be differentiated again") as caught:
            _gradient(x, first)
    assert re.search(f"fix: .*{re.escape(way)}.*stop_gradient", str(caught.value))


@pytest.mark.parametrize("kind", CELLS)
def test_cells_in_a_python_loop_have_second_gradients(kind: str) -> None:
    paddle.seed(1)  # weights for which the gradient is not next to 0
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [STEPS, BATCH, SIZE], "float64")
        x.stop_gradient = False
        with paddle.utils.unique_name.guard():
            cell = CELLS[kind](SIZE, WIDTH)
        states: Any = paddle.zeros([BATCH, WIDTH])
        states = (states, states) if kind in ("LSTM", "lstm_unit") else states
        outputs = []
        for step in range(STEPS):
            output, states = cell(paddle.cast(x[step], "float32"), states)
            outputs.append(output)
        first = _gradient(x, paddle.stack(outputs))
        second = _gradient(x, first)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    at = np.random.default_rng(0).normal(size=(STEPS, BATCH, SIZE))
    gradient, found = exe.run(main, feed={"x": at}, fetch_list=[first, second])

    # d(sum g^2)/dx along g itself, by differences: in float32, so with a large step.
    direction, step = gradient / np.linalg.norm(gradient), 1e-2
    low, high = (
        float(np.square(exe.run(main, feed={"x": at + s * direction}, fetch_list=[first])[0]).sum())
        for s in (-step, step)
    )
    expected = (high - low) / (2 * step)
    assert abs(expected) > 1e-3
    np.testing.assert_allclose(float((found * direction).sum()), expected, rtol=2e-2)
