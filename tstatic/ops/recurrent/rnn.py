"""``rnn``: all layers and directions of a recurrence in one op, as Paddle 2 saves ``nn.LSTM``, ``nn.GRU`` and ``nn.SimpleRNN``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import check_rank
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, op_def, register
from tstatic.ir.paddle_form import respelled
from tstatic.ir.types import Meta
from tstatic.ops._host import READS_LENGTHS
from tstatic.ops.recurrent import _recurrent_onnx as _onnx

_MODES = {
    "LSTM": ("lstm_sequence", {}, 4), "GRU": ("gru_sequence", {}, 3),
    "RNN_TANH": ("simple_rnn_sequence", {"activation": "tanh"}, 1), "RNN_RELU": ("simple_rnn_sequence", {"activation": "relu"}, 1),
}  # fmt: skip
"""Mode -> the op of one layer and direction, its attributes, and its gates."""


def _infer(
    x: Meta, states: Sequence[Meta], weights: Sequence[Meta], length: Meta | None, *, mode: str, hidden_size: int,
    num_layers: int, is_bidirec: bool,
) -> tuple[Any, ...]:  # fmt: skip
    check_rank(x, 3, "Input", layout="[steps, batch, size]")
    directions = 1 + is_bidirec
    wanted = (1 + (mode == "LSTM"), 4 * num_layers * directions)
    if (len(states), len(weights)) != wanted:
        raise ShapeError(
            "operator 'rnn' was given another number of states or weights than its layers have",
            expected=f"{wanted[0]} states and {wanted[1]} weights",
            received=f"{len(states)} and {len(weights)}",
            fix="give two matrices and two biases for each layer and direction, all matrices first",
            op="rnn",
        )
    out = x.with_shape((*x.shape[:2], directions * hidden_size))
    state = x.with_shape((num_layers * directions, x.shape[1], hidden_size))
    return out, [state] * wanted[0]


def _ref(
    x: Any, states: Any, weights: Any, length: Any, out: Any, last: Any, *, mode: str, num_layers: int, is_bidirec: bool
) -> None:
    type, attrs, _ = _MODES[mode]
    half = len(weights) // 2
    for layer in range(num_layers):
        parts = []
        for direction in range(1 + is_bidirec):
            k = layer * (1 + is_bidirec) + direction
            ins = [
                x,
                *(state[k] for state in states),
                *weights[2 * k : 2 * k + 2],
                *weights[half + 2 * k : half + 2 * k + 2],
                length,
            ]
            results = evaluate(op_def(type), ins, {**attrs, "is_reverse": bool(direction)})
            parts.append(results[0])
            for into, value in zip(last, results[1:], strict=False):
                into[k] = value
        x = np.concatenate(parts, 2)
    out[...] = x


def _lower(
    torch: Any, x: Any, states: Any, weights: Any, length: Any, *, mode: str, num_layers: int, is_bidirec: bool
) -> Any:
    type, attrs, _ = _MODES[mode]
    half, lasts = len(weights) // 2, []
    for layer in range(num_layers):
        parts = []
        for direction in range(1 + is_bidirec):
            k = layer * (1 + is_bidirec) + direction
            ins = [
                x,
                *(state[k] for state in states),
                *weights[2 * k : 2 * k + 2],
                *weights[half + 2 * k : half + 2 * k + 2],
                length,
            ]
            lower = op_def(type).lower
            assert lower is not None
            results = lower(torch, *ins, **attrs, is_reverse=bool(direction))
            parts.append(results[0])
            lasts.append(results[1 : 1 + len(states)])
        x = torch.cat(parts, 2)
    return x, [torch.stack([row[i] for row in lasts]) for i in range(len(states))]


def _case(mode: str, layers: int, both: bool, lengths: bool) -> Case:
    steps, batch, size, width, directions = 3, 2, 3, 2, 1 + both
    gates = _MODES[mode][2] * width
    matrices: list[tuple[int, ...]] = []
    for layer in range(layers):
        matrices += [(gates, size if layer == 0 else directions * width), (gates, width)] * directions
    shapes = (
        (steps, batch, size), [(layers * directions, batch, width)] * (1 + (mode == "LSTM")),
        [*matrices, *[(gates,)] * len(matrices)], (batch,) if lengths else None,
    )  # fmt: skip
    return Case(
        shapes, {"mode": mode, "hidden_size": width, "input_size": size, "num_layers": layers, "is_bidirec": both}
    )


register(OpDef(
    "rnn", "Input, PreState*, WeightList*, SequenceLength? -> Out, State*",
    attrs={
        "mode": Attr("LSTM", "str", one_of(*_MODES)), "hidden_size": Attr(kind="int"), "num_layers": 1, "is_bidirec": False,
        "input_size": Attr.idle(0, "the matrices say it"), "dropout_prob": Attr.idle(0.0, "it acts in training only"),
    },
    infer=_infer, ref=_ref, host=READS_LENGTHS, host_with="SequenceLength", lower=_lower, uses_blas=True,
    paddle=respelled(notes={"Reserve": "uint8"}),
    domain=Domain(
        cases=(
            _case("LSTM", 2, True, True), _case("GRU", 1, False, False), _case("RNN_TANH", 1, True, False),
            _case("RNN_RELU", 2, False, True), _case("LSTM", 1, False, False),
        ),
        values={"WeightList": ValueRange(-1.0, 1.0), "SequenceLength": ValueRange(0, 3, dtype="int64")},
        floats=("float32", "float64"), ulps=32.0, check_grad="it is read from files of models that are not trained",
    ), onnx=_onnx.layers,
))  # fmt: skip
