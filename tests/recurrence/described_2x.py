"""Small 2.x programs with recurrent layers, built from the module ``paddle`` that is given: Paddle's or this project's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.recurrence.described import values


def layers(paddle: Any, name: str) -> tuple[Any, list[Any]]:
    """Returns a layer and its results for one name."""
    nn, x = paddle.nn, paddle.static.data("x", [2, 4, 3])
    length = paddle.static.data("n", [2], "int64")
    if name == "SimpleRNNCell":
        layer = nn.SimpleRNNCell(3, 5, activation="relu")
        return layer, list(layer(x[:, 0]))
    if name in ("LSTMCell", "GRUCell"):
        layer = getattr(nn, name)(3, 5)
        out, state = layer(x[:, 0])
        return layer, [out, *(state if isinstance(state, tuple) else [state])]
    if name == "RNN":
        layer = nn.RNN(nn.GRUCell(3, 5), is_reverse=True)
        return layer, list(layer(x, sequence_length=length))
    if name == "BiRNN":
        layer = nn.BiRNN(nn.LSTMCell(3, 5), nn.LSTMCell(3, 5))
        out, states = layer(x)
        return layer, [out, *states[0], *states[1]]
    kind, _, how = name.partition(" ")
    direction = "bidirect" if "both" in how else "forward"
    layer = getattr(nn, kind)(3, 5, num_layers=2, direction=direction)
    out, state = layer(x, sequence_length=length if "lengths" in how else None)
    return layer, [out, *(state if isinstance(state, tuple | list) else [state])]


NAMES = (
    "SimpleRNNCell", "LSTMCell", "GRUCell", "RNN", "BiRNN", "LSTM", "LSTM both lengths", "GRU", "GRU both lengths", "SimpleRNN",
    "SimpleRNN both lengths",
)  # fmt: skip


def run(paddle: Any, name: str) -> dict[str, Any]:
    """Builds and runs one program; returns the parameters' keys, names and shapes, results and gradients."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
        layer, results = layers(paddle, name)
        parameters = layer.parameters()
        loss = paddle.add_n([paddle.sum(paddle.square(r)) * float(k + 1) for k, r in enumerate(results)])
        gradients = [g for _, g in static.append_backward(loss, [p.name for p in parameters])]
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        for at, p in enumerate(parameters):
            tensor = static.global_scope().find_var(p.name).get_tensor()
            tensor.set(values(p.shape, at), paddle.CPUPlace())
        feed = {"x": values((2, 4, 3), 10), "n": np.array([4, 2])}
        fetched = [np.asarray(one) for one in exe.run(main, feed=feed, fetch_list=[*results, *gradients])]
        state = [[key, var.name, list(var.shape)] for key, var in layer.state_dict().items()]
    count = len(results)
    return {
        "state": state,
        "results": [one.tolist() for one in fetched[:count]],
        "gradients": [one.tolist() for one in fetched[count:]],
    }
