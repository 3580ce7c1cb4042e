"""GRU over sequences of different lengths; ``layers.dynamic_gru``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import Array
from tstatic.extras.sequence._recurrence import (
    ACTIVATIONS,
    Steps,
    activation,
    check_cells,
    check_state,
    over_sequences,
    torch_activation,
    torch_over_sequences,
    torch_packed,
)
from tstatic.ir.opdef import Case, register
from tstatic.ir.types import Meta


def _infer(x: Meta, offsets: Meta, h0: Meta | None, weight: Meta, bias: Meta | None) -> tuple[Meta, None, None, Meta]:
    width = check_cells(x, offsets, weight, bias, 3)
    check_state(h0, offsets, width, "H0")
    return x, None, None, x.with_shape((x.shape[0], width))


def _weights(weight: Array) -> tuple[Array, Array]:
    """Returns the weights of both gates, ``[D, 2 * D]``, and of the candidate, ``[D, D]``, which lie one behind the other."""
    d = weight.shape[0]
    # The shape [D, 3 D] is Paddle's declaration only: in memory are two matrices, so a slice of columns would mix them.
    flat = np.ascontiguousarray(weight).reshape(-1)
    return flat[: 2 * d * d].reshape(d, 2 * d), flat[2 * d * d :].reshape(d, d)


def _ref(
    x: Array, offsets: Array, h0: Array | None, weight: Array, bias: Array | None, gates: Array | None, unused: None,
    candidate: None, hidden: Array | None, *, is_reverse: bool, gate_activation: str, activation: str, origin_mode: bool,
) -> None:  # fmt: skip
    steps, d = Steps(offsets, is_reverse), weight.shape[0]
    of_gates, of_candidate = _weights(weight)
    gate, active = ACTIVATIONS[gate_activation][0], ACTIVATIONS[activation][0]
    packed = x[steps.rows] if bias is None else x[steps.rows] + bias.reshape(-1)
    outs = np.empty((len(packed), d), x.dtype)
    h = steps.initial(h0, d, x.dtype)
    for now in steps:
        h = h[: now.stop - now.start]
        # Views: `packed` becomes BatchGate in place. Indexing by rows copied it, so the input stays as it was.
        both, n = packed[now, : 2 * d], packed[now, 2 * d :]
        both += h @ of_gates
        gate(both)
        u, r = both[:, :d], both[:, d:]
        n += (r * h) @ of_candidate
        active(n)
        h = outs[now] = u * h + (1 - u) * n if origin_mode else (1 - u) * h + u * n
    if hidden is not None:
        hidden[steps.rows] = outs
    if gates is not None:
        gates[...] = packed


def _back(
    x: Array, offsets: Array, h0: Array | None, weight: Array, bias: Array | None, gates: Array, hidden: Array,
    dhidden: Array, *targets: Array | None, is_reverse: bool, gate_activation: str, activation: str, origin_mode: bool,
) -> None:  # fmt: skip
    steps, d = Steps(offsets, is_reverse), weight.shape[0]
    of_gates, of_candidate = _weights(weight)
    slope, bend = ACTIVATIONS[gate_activation][1], ACTIVATIONS[activation][1]
    # Hidden is the only output with a gradient: no backend here makes the two others.
    arriving = dhidden[steps.rows]
    before = steps.before(hidden[steps.rows], steps.initial(h0, d, hidden.dtype))
    made = np.empty_like(gates)
    dh = np.zeros((len(steps.order), d), hidden.dtype)
    for now in reversed(list(steps)):
        count = now.stop - now.start
        h, u, r, n = before[now], gates[now, :d], gates[now, d : 2 * d], gates[now, 2 * d :]
        total = arriving[now] + dh[:count]
        # How much of the old state stays.
        stays = u if origin_mode else 1 - u
        du = total * (h - n if origin_mode else n - h)
        dn = made[now, 2 * d :]
        np.multiply(total * (1 - stays), bend(n), out=dn)
        reset = dn @ of_candidate.T
        both = made[now, : 2 * d]
        np.multiply(du, slope(u), out=both[:, :d])
        np.multiply(reset * h, slope(r), out=both[:, d:])
        # Three ways back to the old state: kept, through the reset product, through both gates.
        dh[:count] = total * stays + reset * r + both @ of_gates.T
    # One product over all steps instead of one a step: no step needs the gradients of weights.
    parts = before.T @ made[:, : 2 * d], (before * gates[:, d : 2 * d]).T @ made[:, 2 * d :]
    found = {
        "Input": made, "H0": dh, "Bias": made.sum(0),
        "Weight": np.concatenate([part.reshape(-1) for part in parts]).reshape(weight.shape),
    }  # fmt: skip
    steps.write(targets, ("Input", "H0", "Weight", "Bias"), found)


def _lower(
    torch: Any, x: Any, offsets: Any, h0: Any, weight: Any, bias: Any, *, is_reverse: bool, gate_activation: str,
    activation: str, origin_mode: bool,
) -> Any:  # fmt: skip
    d = weight.shape[0]
    flat = weight.contiguous().flatten()
    of_gates, of_candidate = flat[: 2 * d * d].reshape(d, 2 * d), flat[2 * d * d :].reshape(d, d)
    gate, active = torch_activation(torch, gate_activation), torch_activation(torch, activation)

    def step(row: Any, state: Any) -> Any:
        h = state[0]
        given = row if bias is None else row + bias
        u, r = gate(given[:, : 2 * d] + h @ of_gates).chunk(2, 1)
        n = active(given[:, 2 * d :] + (r * h) @ of_candidate)
        return (u * h + (1 - u) * n if origin_mode else (1 - u) * h + u * n), torch.cat([u, r, n], 1)

    count = len(offsets) - 1
    # The second state is the gates, which no step reads: it makes them a result of every row.
    states = (x.new_zeros((count, d)) if h0 is None else h0, x.new_zeros((count, 3 * d)))
    hidden, gates = torch_over_sequences(torch, x, offsets, is_reverse, states, step)
    return gates[torch_packed(torch, offsets, is_reverse)], None, None, hidden


def _case(rows: int, sequences: int, width: int, state: bool = False, bias: bool = True, **attrs: Any) -> Case:
    shapes = (
        (rows, 3 * width), (sequences + 1,), (sequences, width) if state else None, (width, 3 * width),
        (1, 3 * width) if bias else None,
    )  # fmt: skip
    return Case(shapes, attrs)


register(over_sequences(
    "gru", ("Input", "H0?", "Weight", "Bias?"), "BatchGate~, BatchResetHiddenPrev~, BatchHidden~, Hidden", "BatchGate, Hidden",
    ("Hidden",),
    {"is_reverse": False, "gate_activation": activation("sigmoid"), "activation": activation("tanh"), "origin_mode": False},
    (_infer, _ref, _back, _lower),
    (
        _case(7, 3, 2), _case(7, 4, 3, state=True), _case(5, 2, 2, state=True, bias=False, is_reverse=True),
        _case(0, 2, 2, state=True), _case(6, 3, 1, origin_mode=True, activation="identity"),
    ),
    "pad the sequences (sequence_pad) and call nn.GRUCell once per step in a Python loop",
))  # fmt: skip
