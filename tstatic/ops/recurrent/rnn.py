"""``rnn``: all layers and directions of a recurrence in one op, as Paddle 2 saves ``nn.LSTM``, ``nn.GRU`` and ``nn.SimpleRNN``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import check_rank
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, op_def, register
from tstatic.ir.paddle_form import respelled
from tstatic.ir.types import Meta
from tstatic.ops.base.host import READS_LENGTHS
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
    # For each layer and direction two matrices and two biases, as in cuDNN.
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
    # Each layer runs through the same definition as a single one, so a model read from a file computes as nn.LSTM does.
    out[...], rows = _layers(evaluate, np.concatenate, x, states, weights, length, mode, num_layers, is_bidirec)
    for k, row in enumerate(rows):
        for into, value in zip(last, row, strict=False):
            into[k] = value


def _lower(
    torch: Any, x: Any, states: Any, weights: Any, length: Any, *, mode: str, num_layers: int, is_bidirec: bool
) -> Any:
    def run(definition: OpDef, given: list[Any], attrs: dict[str, Any]) -> Sequence[Any]:
        assert definition.lower is not None
        return definition.lower(torch, *given, **attrs)  # type: ignore[no-any-return]

    out, rows = _layers(run, torch.cat, x, states, weights, length, mode, num_layers, is_bidirec)
    return out, [torch.stack([row[i] for row in rows]) for i in range(len(states))]


def _layers(
    run: Callable[[OpDef, list[Any], dict[str, Any]], Sequence[Any]], joined: Callable[..., Any], x: Any,
    states: Sequence[Any], weights: Sequence[Any], length: Any, mode: str, num_layers: int, is_bidirec: bool,
) -> tuple[Any, list[Sequence[Any]]]:  # fmt: skip
    """Returns the results of the last layer, and the states after the last step of each layer and direction."""
    type, attrs, _ = _MODES[mode]
    half, directions, rows = len(weights) // 2, 1 + is_bidirec, list[Sequence[Any]]()
    for first in range(0, num_layers * directions, directions):
        # Both directions read the layer's input; only their joined results feed the next layer.
        parts = []
        for k in range(first, first + directions):
            # All matrices come before all biases, two of a kind for each layer and direction.
            own = (*weights[2 * k : 2 * k + 2], *weights[half + 2 * k : half + 2 * k + 2])
            given = [x, *(state[k] for state in states), *own, length]
            results = run(op_def(type), given, {**attrs, "is_reverse": k > first})
            parts.append(results[0])
            rows.append(results[1 : 1 + len(states)])
        x = joined(parts, 2)
    return x, rows


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
    infer=_infer, ref=_ref, traits=(READS_LENGTHS.where("SequenceLength"),), lower=_lower, uses_blas=True,
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
