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
    activate,
    gru_step,
    gru_step_grad,
    times_slope,
)

CHUNK_ROWS = 256
"""Rows (steps x batch) of which the input product is made at once: 1 MB of results for a width of 256 stay in cache."""

BLOCK_COLUMNS = 64
"""Columns of the state's weights that lie together, so that a step makes one small product per block: OpenBLAS packs no operand
of those, which takes as long as the product where a batch has few rows. 16 rows of 256 by 1024 columns take 90 us instead of
98, with its AVX-512 kernels 35 instead of 55; of 1024 by 256 columns, in blocks of 32, 90 instead of 86, and 42 instead of 70."""

BLOCK_WORK = 1_000_000
"""Multiplications up to which OpenBLAS's AVX-512 kernels call a product small."""

BLOCK_ROWS = 32
"""Rows of the batch up to which blocks are faster."""

PADDING = 16
"""Columns that nobody reads after each row of the state's weights where they are one block: rows of 4096 bytes lie in the same
lines of the cache, and a product of 16 rows of 256 by 1024 columns takes 180 us instead of 110."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What one kind of recurrence keeps between its passes.

    Attributes:
        gates: Weight matrices per layer: 4 for an LSTM, 3 for a GRU, 1 for a simple recurrence.
        saved: Values per unit and step that the backward pass reads, besides the outputs.
        has_cell: Whether the state has a cell beside ``h``.
        order: The order of the gates in all arrays inside, as positions in the weights. For an LSTM output, input, forget,
            candidate: the first three are sigmoids, and the last three reach the state through the cell.
    """

    gates: int
    saved: int
    has_cell: bool = False
    order: tuple[int, ...] | None = None


LSTM = Recurrence(4, 4, has_cell=True, order=(3, 0, 1, 2))
GRU = Recurrence(3, 4)
SIMPLE = Recurrence(1, 0)


def _chunk(steps: int, batch: int) -> int:
    return max(1, min(steps, CHUNK_ROWS // max(1, batch)))


def _block_columns(batch: int, rows: int, width: int) -> int:
    """Returns the columns of a block of the state's weights, of so many rows; 0 where they are better one block.

    A block holds columns of one gate only.
    """
    if batch > BLOCK_ROWS or width % BLOCK_COLUMNS or not width:
        return 0
    return BLOCK_COLUMNS if batch * rows * BLOCK_COLUMNS <= BLOCK_WORK else BLOCK_COLUMNS // 2


def _in_blocks(matrix: Array, columns: int) -> Array:
    """Returns a view ``[blocks, rows, columns]`` of a matrix."""
    rows, total = matrix.shape
    columns = columns or total
    return matrix.reshape(rows, total // columns if columns else 1, columns).transpose(1, 0, 2)


def forward_scratch(
    kind: Recurrence, steps: int, batch: int, inputs: int, width: int, dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the buffers of :func:`forward`."""
    chunk, columns = _chunk(steps, batch), kind.gates * width
    block = _block_columns(batch, width, width)
    return (
        ((inputs, columns), dtype),
        ((columns // block, width, block) if block else (1, width, columns + PADDING), dtype),
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
    block = _block_columns(batch, columns, width) or width
    return (
        ((steps, batch, columns), dtype),
        ((steps if kind is GRU else 1, batch, columns), dtype),
        ((steps, batch, inputs + width), dtype),
        ((steps * batch, inputs), dtype),
        ((columns, inputs), dtype),
        ((width // block if block else 1, columns, block), dtype),
        ((columns, inputs + width), dtype),
        ((4, batch, width), dtype),
        ((batch, 2 * width), dtype),
        ((steps if kind is LSTM else 0, batch, width), dtype),
    )


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _blocks(kind: Recurrence, inside: Array, outside: Array) -> list[tuple[Array, Array]]:
    """Returns pairs of views of the gates along the first axis: inside, and in the weights' own order."""
    one, other = len(inside) // kind.gates, len(outside) // kind.gates
    order = kind.order or range(kind.gates)
    return [(inside[k * one : (k + 1) * one], outside[at * other : (at + 1) * other]) for k, at in enumerate(order)]


def ended_rows(length: Array | None, steps: int) -> Sequence[Array | None]:
    """Returns, per step, the rows whose sequence is over before it; ``None`` where none is."""
    if length is None or not length.size or length.min() >= steps:
        return [None] * steps
    shortest = max(int(length.min()), 0)
    return [None if t < shortest else np.flatnonzero(length <= t) for t in range(steps)]


def _lstm_factors(gates: Array, cells: Array, first: Array, reverse: bool, factors: Array, slopes: Array) -> None:
    """Computes what the gradients of an LSTM's state are multiplied by, for all steps at once.

    With it a step of the backward loop takes 7 calls instead of 30.

    Args:
        gates, cells: What the forward pass kept.
        first: ``c`` before the first step.
        reverse: Whether the last step ran first.
        factors: Written, ``[steps, batch, 4 * width]``: gradient of the gates' sums per gradient of ``c``; of ``o`` per
            gradient of ``h``.
        slopes: Written, ``[steps, batch, width]``: gradient of ``c`` per gradient of ``h``.
    """
    width, one = cells.shape[-1], np.asarray(1, cells.dtype)
    o, i, _, g = (gates[..., k * width : (k + 1) * width] for k in range(4))
    do, di, df, dg = (factors[..., k * width : (k + 1) * width] for k in range(4))
    np.subtract(one, gates, factors)
    np.multiply(factors, gates, factors)
    np.multiply(g, g, dg)
    np.subtract(one, dg, dg)
    np.multiply(dg, i, dg)
    np.multiply(di, g, di)
    after, before, start = (df[:-1], cells[1:], df[-1]) if reverse else (df[1:], cells[:-1], df[0])
    np.multiply(after, before, after)
    np.multiply(start, first, start)
    np.tanh(cells, slopes)
    np.multiply(do, slopes, do)
    np.multiply(slopes, slopes, slopes)
    np.subtract(one, slopes, slopes)
    np.multiply(slopes, o, slopes)


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
    block = _block_columns(batch, width, width)
    u = u[..., : block or len(bias)]
    for inside, outside in ((w.T, weights[0]), (bias, biases[0])):
        for target, source in _blocks(kind, inside, outside):
            np.copyto(target, source)
    if block:
        for target, source in _blocks(kind, u, weights[1]):
            np.copyto(target, _in_blocks(source.T, block))
    else:
        for target, source in _blocks(kind, u[0].T, weights[1]):
            np.copyto(target, source)
    # The candidate of a GRU multiplies its state's part, so that bias is not part of the input's.
    joined = 2 * width if kind is GRU else kind.gates * width
    for target, source in _blocks(kind, bias, biases[1])[:2] if kind is GRU else _blocks(kind, bias, biases[1]):
        np.add(target, source, target)
    candidate_bias = biases[1][joined:]
    one = np.asarray(1, x.dtype)
    if kind is LSTM:
        # The sums of sigmoids are made negative, as their exponentials need them: each call in a step costs a thread a wait
        # for the interpreter's lock.
        smooth_state = u[: 3 * len(u) // 4] if block else u[..., : 3 * width]
        for array in (w[:, : 3 * width], smooth_state, bias[: 3 * width]):
            np.multiply(array, -one, array)
    product = _in_blocks(of_state, block)
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
        np.matmul(h, u, product)
        if kind is LSTM:
            assert gates is not None
            assert cells is not None
            assert c is not None
            sums, cell = gates[t % len(gates)], cells[t % len(cells)]
            np.add(made, of_state, sums)
            o, i, f, g = (sums[:, k * width : (k + 1) * width] for k in range(4))
            smooth = sums[:, : 3 * width]
            np.exp(smooth, smooth)
            np.add(smooth, one, smooth)
            np.divide(one, smooth, smooth)
            np.tanh(g, g)
            np.multiply(i, g, work[0])
            np.multiply(f, c, cell)
            np.add(cell, work[0], cell)
            np.tanh(cell, work[0])
            np.multiply(o, work[0], target)
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
        if c is not None:
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
    steps, batch, inputs = x.shape
    width = out.shape[-1]
    sums, state_sums, joined, flat_dx, w, u, product, work, wide, slopes = scratch
    # Inputs and states side by side: one product makes the gradients of both weights.
    before = joined[..., inputs:]
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
    dh, dc, total, _ = work
    for carried, given in zip((dh, dc), dlast, strict=False):
        carried[...] = 0 if given is None else given
    columns = u.shape[-1]
    for target, source in _blocks(kind, u.transpose(1, 0, 2), weights[1]):
        np.copyto(target, _in_blocks(source, columns).transpose(1, 0, 2))
    order = _order(steps, reverse)
    if kind is LSTM:
        assert gates is not None
        assert cells is not None
        _lstm_factors(gates, cells, initial[1], reverse, sums, slopes)
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
            np.multiply(dh, slopes[t], total)
            np.add(dc, total, dc)
            by_gate = dsums.reshape(batch, 4, width)
            np.multiply(by_gate[:, 1:], dc[:, None], by_gate[:, 1:])
            np.multiply(by_gate[:, 0], dh, by_gate[:, 0])
            np.multiply(dc, gates[t][:, 2 * width : 3 * width], dc)
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
        np.matmul(of_state, u, _in_blocks(total, columns))
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
    if dx is not None:
        for target, given in _blocks(kind, w, weights[0]):
            np.copyto(target, given)
        made = dx.reshape(flat_dx.shape) if dx.flags.c_contiguous else flat_dx
        np.matmul(every, w, made)
        if made is flat_dx:
            np.copyto(dx, flat_dx.reshape(dx.shape))
    np.copyto(joined[..., :inputs], x)
    columns = joined.reshape(steps * batch, inputs + width)
    if kind is GRU:
        np.matmul(every.T, columns[:, :inputs], product[:, :inputs])
        np.matmul(every_state.T, columns[:, inputs:], product[:, inputs:])
    else:
        np.matmul(every.T, columns, product)
    for wanted, found in zip(dweights, (product[:, :inputs], product[:, inputs:]), strict=True):
        if wanted is not None:
            for inside, outside in _blocks(kind, found, wanted):
                np.copyto(outside, inside)
    vector = ones(len(every), every.dtype)
    total_sums = np.matmul(vector, every)
    total_state = np.matmul(vector, every_state) if kind is GRU else total_sums
    for wanted, found in zip(dbiases, (total_sums, total_state), strict=True):
        if wanted is not None:
            for inside, outside in _blocks(kind, found, wanted):
                np.copyto(outside, inside)
