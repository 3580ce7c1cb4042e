"""Whole-sequence LSTM, GRU and simple recurrence of one layer and direction, and their gradients.

The products of the inputs of many steps are one matrix product; a step makes one more, for the state. Gates are activated in
place in the array that the backward pass reads. Its loop computes the gradients of the gates' sums only: those of the weights
and of the input follow from all steps in one product each.

All values are time-major: ``x`` is ``[steps, batch, input]``. Weights are ``[gates * width, input]`` and ``[gates * width,
width]``. Rows whose ``length`` is over keep their state, and their outputs are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tstatic.tuned._common import Array, Buffer, ones
from tstatic.tuned.recurrent_step import (
    LstmGates,
    activate,
    gru_step,
    gru_step_grad,
    lstm_step,
    lstm_step_grad,
    times_slope,
)

CHUNK_ROWS = 256
"""Rows (steps x batch) of which the input product is made at once: 1 MB of results for a width of 256 stay in cache."""

PADDING = 16
"""Columns that nobody reads after each row of the state's weights: rows of 4096 bytes lie in the same lines of the cache, and
a product of 16 rows of 256 by 1024 columns takes 180 us instead of 110."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What one kind of recurrence keeps between its passes.

    Attributes:
        gates: Weight matrices per layer: 4 for an LSTM, 3 for a GRU, 1 for a simple recurrence.
        saved: Values per unit and step that the backward pass reads, besides the outputs.
        has_cell: Whether the state has a cell beside ``h``.
    """

    gates: int
    saved: int
    has_cell: bool = False


LSTM = Recurrence(4, 4, has_cell=True)
GRU = Recurrence(3, 4)
SIMPLE = Recurrence(1, 0)


def _chunk(steps: int, batch: int) -> int:
    return max(1, min(steps, CHUNK_ROWS // max(1, batch)))


def forward_scratch(
    kind: Recurrence, steps: int, batch: int, inputs: int, width: int, dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the buffers of :func:`forward`."""
    chunk, columns = _chunk(steps, batch), kind.gates * width
    return (
        ((inputs, columns), dtype),
        ((width, columns + PADDING), dtype),
        ((columns,), dtype),
        ((chunk, batch, inputs), dtype),
        ((chunk, batch, columns), dtype),
        ((batch, columns), dtype),
        ((2, batch, width), dtype),
    )


def backward_scratch(
    kind: Recurrence, steps: int, batch: int, inputs: int, width: int, dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the buffers of :func:`backward`."""
    columns = kind.gates * width
    return (
        ((steps, batch, columns), dtype),
        ((steps if kind is GRU else 1, batch, columns), dtype),
        ((steps, batch, width), dtype),
        ((steps, batch, inputs), dtype),
        ((steps * batch, inputs), dtype),
        ((columns, inputs), dtype),
        ((columns, width), dtype),
        ((4, batch, width), dtype),
        ((batch, 2 * width), dtype),
    )


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def ended_rows(length: Array | None, steps: int) -> Sequence[Array | None]:
    """Returns, per step, the rows whose sequence is over before it; ``None`` where none is."""
    if length is None or not length.size or length.min() >= steps:
        return [None] * steps
    shortest = max(int(length.min()), 0)
    return [None if t < shortest else np.flatnonzero(length <= t) for t in range(steps)]


def lstm_gates(gates: Array) -> LstmGates:
    """Returns views of ``[batch, 4 * width]`` in the order input, forget, candidate, output."""
    width = gates.shape[-1] // 4
    i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
    return LstmGates(i, f, g, o, (gates[:, : 2 * width], o))


def forward(
    kind: Recurrence,
    x: Array,
    initial: Sequence[Array],
    weights: Sequence[Array],
    biases: Sequence[Array],
    length: Array | None,
    out: Array,
    last: Sequence[Array],
    gates: Array | None,
    cells: Array | None,
    reverse: bool,
    scratch: Sequence[Array],
    activation: str = "tanh",
) -> None:
    """Runs all steps.

    Args:
        kind: Which recurrence.
        x: ``[steps, batch, input]``.
        initial: ``h`` and, for an LSTM, ``c`` before the first step, ``[batch, width]``.
        weights: Of the input and of the state.
        biases: Of the input and of the state, ``[gates * width]``.
        length: Steps of each row, ``[batch]``, or ``None``.
        out: Written: ``h`` after each step, ``[steps, batch, width]``.
        last: Written: the state after the last step, like ``initial``.
        gates: Written for the backward pass: ``[steps, batch, saved * width]``; one step of it where there is none;
            ``None`` for a simple recurrence.
        cells: Written: ``c`` after each step; two steps of it where there is no backward pass; ``None`` but for an LSTM.
        reverse: Runs from the last step to the first.
        scratch: Buffers from :func:`forward_scratch`.
        activation: Of a simple recurrence: ``tanh`` or ``relu``.
    """
    steps, batch, inputs = x.shape
    width = out.shape[-1]
    w, u, bias, rows, products, of_state, work = scratch
    # Transposed copies: OpenBLAS takes 1.6 times as long for a transposed operand of every step.
    u = u[:, : len(bias)]
    np.copyto(w, weights[0].T)
    np.copyto(u, weights[1].T)
    np.copyto(bias, biases[0])
    # The candidate of a GRU multiplies its state's part, so that bias is not part of the input's.
    joined = 2 * width if kind is GRU else kind.gates * width
    np.add(bias[:joined], biases[1][:joined], bias[:joined])
    candidate_bias = biases[1][joined:]
    ended = ended_rows(length, steps)
    h, c = initial[0], initial[1] if kind.has_cell else None
    order = _order(steps, reverse)
    chunk = _chunk(steps, batch)
    first = 0
    for number, t in enumerate(order):
        if number % chunk == 0:
            # The steps of a chunk lie side by side in either direction.
            count = min(chunk, steps - number)
            first = t - count + 1 if reverse else t
            source = x[first : first + count]
            if not source.flags.c_contiguous:
                np.copyto(rows[:count], source)
                source = rows[:count]
            np.matmul(source.reshape(count * batch, inputs), w, products[:count].reshape(count * batch, len(bias)))
            np.add(products[:count], bias, products[:count])
        made, target = products[t - first], out[t]
        np.matmul(h, u, of_state)
        if kind is LSTM:
            assert gates is not None
            assert cells is not None
            assert c is not None
            sums, cell = gates[t % len(gates)], cells[t % len(cells)]
            np.add(made, of_state, sums)
            lstm_step(lstm_gates(sums), c, cell, target, work[0])
        elif kind is GRU:
            assert gates is not None
            row = gates[t % len(gates)]
            sums, hidden = row[:, : 3 * width], row[:, 3 * width :]
            np.add(made[:, :joined], of_state[:, :joined], sums[:, :joined])
            np.copyto(sums[:, joined:], made[:, joined:])
            np.add(of_state[:, joined:], candidate_bias, hidden)
            gru_step(sums, hidden, h, target, work[0])
        else:
            np.add(made, of_state, target)
            activate(activation, target)
        rest = ended[t]
        if rest is None:
            h = target
        else:
            # In a buffer of its own: the output of a row that is over is 0, its state stays.
            state = work[1]
            kept = h[rest]
            np.copyto(state, target)
            state[rest] = kept
            target[rest] = 0
            h = state
        if kind is LSTM:
            if rest is not None:
                cell[rest] = c[rest]
            c = cell
    np.copyto(last[0], h)
    if c is not None:
        np.copyto(last[1], c)


def _states_before(out: Array, initial: Array, length: Array | None, reverse: bool, before: Array) -> None:
    """Writes the state that each step began with; of rows that are over, anything."""
    if reverse:
        np.copyto(before[:-1], out[1:])
        before[-1] = initial
        if length is not None:
            rows = np.flatnonzero((length > 0) & (length < len(out)))
            before[length[rows] - 1, rows] = initial[rows]
    else:
        np.copyto(before[1:], out[:-1])
        before[0] = initial


def backward(
    kind: Recurrence,
    x: Array,
    initial: Sequence[Array],
    weights: Sequence[Array],
    length: Array | None,
    out: Array,
    gates: Array | None,
    cells: Array | None,
    dout: Array | None,
    dlast: Sequence[Array | None],
    dx: Array | None,
    dinitial: Sequence[Array | None],
    dweights: Sequence[Array | None],
    dbiases: Sequence[Array | None],
    reverse: bool,
    scratch: Sequence[Array],
    activation: str = "tanh",
) -> None:
    """Computes the gradients of :func:`forward`.

    Args:
        kind, x, initial, weights, length, out, gates, cells, reverse, activation: As there.
        dout: Gradient of ``out``, or ``None``.
        dlast: Gradients of the last state, each may be ``None``.
        dx, dinitial, dweights, dbiases: Written where not ``None``.
        scratch: Buffers from :func:`backward_scratch`.
    """
    steps, batch, _inputs = x.shape
    width = out.shape[-1]
    sums, state_sums, before, rows, flat_dx, dw, du, work, wide = scratch
    if not steps or not batch:
        for target in (dx, *dweights, *dbiases):
            if target is not None:
                target[...] = 0
        for target, given in zip(dinitial, dlast, strict=True):
            if target is not None:
                target[...] = 0 if given is None else given
        return
    _states_before(out, initial[0], length, reverse, before)
    ended = ended_rows(length, steps)
    dh, dc, total, spare = work
    for carried, given in zip((dh, dc), dlast, strict=False):
        carried[...] = 0 if given is None else given
    u = weights[1]
    order = _order(steps, reverse)
    for number in range(steps - 1, -1, -1):
        t = order[number]
        rest = ended[t]
        if rest is not None:
            kept = dh[rest]
            kept_cell = dc[rest]
        if dout is not None:
            np.add(dh, dout[t], dh)
        dsums = sums[t]
        # The sum that the state's weights made: of a GRU's candidate it is another one than the input's.
        of_state = dsums
        if kind is LSTM:
            assert gates is not None
            assert cells is not None
            c_before = initial[1] if number == 0 else cells[order[number - 1]]
            made = lstm_gates(gates[t])
            lstm_step_grad(made, c_before, cells[t], dh, dc, lstm_gates(dsums), (total, spare))
        elif kind is GRU:
            assert gates is not None
            of_state = state_sums[t]
            sums_made, hidden = gates[t][:, : 3 * width], gates[t][:, 3 * width :]
            gru_step_grad(sums_made, hidden, before[t], dh, dsums, of_state[:, 2 * width :], wide)
            np.copyto(of_state[:, : 2 * width], dsums[:, : 2 * width])
        else:
            np.copyto(dsums, dh)
            times_slope(activation, out[t], dsums, total)
        if rest is not None:
            dsums[rest] = 0
            of_state[rest] = 0
        np.matmul(of_state, u, total)
        if kind is GRU:
            np.add(dh, total, dh)
        else:
            dh, total = total, dh
        if rest is not None:
            dh[rest] = kept
            dc[rest] = kept_cell
    for target, value in zip(dinitial, (dh, dc), strict=False):
        if target is not None:
            np.copyto(target, value)
    every = sums.reshape(steps * batch, sums.shape[-1])
    every_state = state_sums.reshape(steps * batch, sums.shape[-1]) if kind is GRU else every
    _products(every, every_state, x, before, weights[0], dx, dweights, (rows, flat_dx, dw, du))
    for target, source in zip(dbiases, (every, every_state), strict=True):
        if target is not None:
            np.matmul(ones(len(source), source.dtype), source, target)


def _products(
    sums: Array,
    state_sums: Array,
    x: Array,
    before: Array,
    weight: Array,
    dx: Array | None,
    dweights: Sequence[Array | None],
    scratch: Sequence[Array],
) -> None:
    """Makes the products over all steps: the gradients of the input and of both weights."""
    rows, flat_dx, dw, du = scratch
    count = len(sums)
    if dweights[0] is not None:
        source = x
        if not x.flags.c_contiguous:
            np.copyto(rows, x)
            source = rows
        _product(sums.T, source.reshape(count, -1), dweights[0], dw)
    if dweights[1] is not None:
        _product(state_sums.T, before.reshape(count, -1), dweights[1], du)
    if dx is not None:
        if dx.flags.c_contiguous:
            np.matmul(sums, weight, dx.reshape(count, -1))
        else:
            np.matmul(sums, weight, flat_dx)
            np.copyto(dx, flat_dx.reshape(dx.shape))


def _product(a: Array, b: Array, out: Array, work: Array) -> None:
    # A product into odd strides would be made in new memory and copied.
    if out.flags.c_contiguous:
        np.matmul(a, b, out)
    else:
        np.matmul(a, b, work)
        np.copyto(out, work)
