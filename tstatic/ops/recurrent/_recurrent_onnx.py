"""Forms in ONNX of recurrences: its own operators for whole sequences, and the steps of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import int32

ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where each of ONNX's gates stands among ours: input, output, forget, candidate; and update, reset, candidate."""


def _gates(g: Graph, w: Value, order: Sequence[int]) -> Value:
    """Returns a parameter with its gates in another order; of one that is a constant, a constant."""
    if len(order) == 1:
        return w
    if w.number is not None:
        parts = np.split(w.number, len(order))
        return g.const(np.concatenate([parts[i] for i in order]))
    width = g.known(w, [0])[0] // len(order)
    pieces = g("Split", w, g.ints([width] * len(order)), axis=0, count=len(order))
    return g("Concat", *(pieces[i] for i in order), axis=0)


def layer(
    g: Graph, op: str, x: Value, states: Sequence[Value], parameters: Sequence[Value], lengths: Value | None,
    reverse: bool, activation: str = "tanh",
) -> tuple[Value, ...]:  # fmt: skip
    """Runs one layer in one direction: returns its results of all steps and its last states."""
    order = ORDERS[op]
    if x.dims is not None and 0 in x.dims[:2]:
        raise g.refuse("for sequences of no steps, or none at all")
    w_ih, w_hh, b_ih, b_hh = (_gates(g, p, order) for p in parameters)
    bias = g("Concat", b_ih, b_hh, axis=0)
    own: dict[str, Any] = {"hidden_size": g.known(parameters[1], [1])[0], "direction": "reverse" if reverse else None}
    if op == "GRU":
        # Paddle and cuDNN reset after the product with the state; ONNX's default resets the state before it.
        own["linear_before_reset"] = 1
    elif op == "RNN":
        own["activations"] = [activation.capitalize()]
    # ONNX keeps both directions in one tensor: a leading axis of size 1 for this one.
    given = [
        g.unsqueeze(w_ih, [0]), g.unsqueeze(w_hh, [0]), g.unsqueeze(bias, [0]),
        None if lengths is None else g.cast(lengths, int32), *(g.unsqueeze(s, [0]) for s in states),
    ]  # fmt: skip
    found = g(op, x, *given, count=1 + len(states), **own)
    # The axis of directions goes.
    lasts = [g("Squeeze", v, g.ints([0])) for v in found[1:]]
    if lengths is not None:
        # The state of an empty sequence is the one before it, which runtimes do not agree on.
        empty = g.unsqueeze(g.equal(lengths, 0), [1])
        lasts = [g.where(empty, before, last) for before, last in zip(states, lasts, strict=True)]
    return g("Squeeze", found[0], g.ints([1])), *lasts


def sequence(op: str, states: int) -> Any:
    """Makes the form of one layer and direction."""

    def form(g: Graph, x: Value, *given: Any, is_reverse: bool, activation: str = "tanh") -> tuple[Value, ...]:
        *parameters, lengths = given[states:]
        return layer(g, op, x, given[:states], parameters, lengths, is_reverse, activation)

    def plain(g: Graph, x: Value, *given: Any, is_reverse: bool) -> tuple[Value, ...]:
        return form(g, x, *given, is_reverse=is_reverse)

    return form if op == "RNN" else plain


def layers(
    g: Graph, x: Value, states: Sequence[Value], weights: Sequence[Value], lengths: Value | None, *, mode: str,
    num_layers: int, is_bidirec: bool,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Runs all layers, each in one or two directions."""
    op, _, word = mode.partition("_")
    directions, half = 1 + is_bidirec, len(weights) // 2
    own = [g("Split", s, g.ints([1] * num_layers * directions), axis=0, count=num_layers * directions) for s in states]
    lasts: list[list[Value]] = [[] for _ in states]
    for k in range(num_layers * directions):
        if k % directions == 0:
            source, parts = x, []
        parameters = [*weights[2 * k : 2 * k + 2], *weights[half + 2 * k : half + 2 * k + 2]]
        before = [g.squeeze(rows[k], [0]) for rows in own]
        out, *last = layer(g, op, source, before, parameters, lengths, bool(k % directions), word.lower() or "tanh")
        parts.append(out)
        for row, value in zip(lasts, last, strict=True):
            row.append(g.unsqueeze(value, [0]))
        if len(parts) == directions:
            x = g("Concat", *parts, axis=2)
    return x, [g("Concat", *row, axis=0) for row in lasts]
