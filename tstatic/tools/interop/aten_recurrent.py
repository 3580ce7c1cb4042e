"""LSTM, GRU and simple recurrences over whole sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.program import Variable
from tstatic.ops.random.dropout import dropout as drop
from tstatic.ops.shape import joining, transpose
from tstatic.ops.shape.creation import full
from tstatic.tools.interop.conversion import Call, family

converts = family("recurrent")


@converts("lstm.input")
def _lstm(
    c: Call, x: Variable, states: Sequence[Variable], weights: Sequence[Variable], has_biases: bool, layers: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> list[Variable]:  # fmt: skip
    return _recurrence(
        c, "lstm_sequence", {}, x, states, weights, has_biases, layers, dropout * train, both, batch_first
    )


@converts("gru.input")
def _gru(
    c: Call, x: Variable, state: Variable, weights: Sequence[Variable], has_biases: bool, layers: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> list[Variable]:  # fmt: skip
    return _recurrence(
        c, "gru_sequence", {}, x, [state], weights, has_biases, layers, dropout * train, both, batch_first
    )


@converts("rnn_tanh.input", "rnn_relu.input")
def _simple(
    c: Call, x: Variable, state: Variable, weights: Sequence[Variable], has_biases: bool, layers: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> list[Variable]:  # fmt: skip
    attrs = {"activation": "relu" if "relu" in c.name else "tanh"}
    return _recurrence(
        c, "simple_rnn_sequence", attrs, x, [state], weights, has_biases, layers, dropout * train, both, batch_first
    )


def _recurrence(
    c: Call, kind: str, attrs: dict[str, Any], x: Variable, states: Sequence[Variable], weights: Sequence[Variable],
    has_biases: bool, layers: int, p: float, both: bool, batch_first: bool,
) -> list[Variable]:  # fmt: skip
    """Returns the outputs of the last layer and the last states, layer by layer, the forward direction first.

    torch's weights of a layer and direction are the op's: ``[gates * width, size]``, ``[gates * width, width]`` and two
    biases, with the gates in the same order.
    """
    if len(x.shape) != 3:
        raise c.refuse("without a batch", "an input of 3 dimensions", f"{len(x.shape)} dimensions")
    count, per = layers * (1 + both), 4 if has_biases else 2
    if len(weights) != count * per:
        raise c.refuse("with projections", "proj_size=0", f"{len(weights)} weights", "add a linear layer behind")
    steps = transpose.transpose(x, [1, 0, 2]) if batch_first else x
    starts = [joining.unbind(state, 0) for state in states]
    ends: list[list[Variable]] = [[] for _ in states]
    for layer in range(layers):
        if layer and p > 0:
            steps = drop(steps, p)
        outs = []
        for direction in range(1 + both):
            at = layer * (1 + both) + direction
            own = list(weights[at * per : at * per + per])
            if not has_biases:
                zeros = full([own[0].shape[0]], 0.0, x.dtype)
                own += [zeros, zeros]
            inputs = {
                "Input": steps,
                **dict(zip(("InitH", "InitC"), (one[at] for one in starts), strict=False)),
                **dict(zip(("WeightIh", "WeightHh", "BiasIh", "BiasHh"), own, strict=True)),
            }
            out, *last = emit(kind, inputs, {"is_reverse": direction == 1, **attrs})
            outs.append(out)
            for row, one in zip(ends, last, strict=True):
                row.append(one)
        steps = outs[0] if len(outs) == 1 else joining.concat(outs, 2)
    out = transpose.transpose(steps, [1, 0, 2]) if batch_first else steps
    return [out, *(joining.stack(row, 0) for row in ends)]
