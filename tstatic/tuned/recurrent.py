"""Whole-sequence LSTM, GRU and simple recurrence of one layer and direction, and their gradients.

The products of the inputs of many steps are one matrix product; a step makes one more, for the state. An LSTM of few rows makes
one product per step, of input, state and 1 with weights and biases. Gates are activated in place in the array that the backward
pass reads. Its loop computes the gradients of the gates' sums only: those of the weights and of the input follow from all steps
in one product each.

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
        saved: Values per unit and step that the backward pass reads, besides the outputs. For an LSTM the gates and the cell
            before the step, which is the cell after the last one in one more row: after all others, or before if the last step ran
            first.
        has_cell: Whether the state has a cell beside ``h``.
        order: The order of the gates in all arrays inside, as positions in the weights. For an LSTM output, input, forget,
            candidate: the first three are sigmoids, and the last three reach the state through the cell.
    """

    gates: int
    saved: int
    has_cell: bool = False
    order: tuple[int, ...] | None = None


# Kept: four gates and the cell. The order puts the three sigmoids side by side, so one call activates them.
LSTM = Recurrence(4, 5, has_cell=True, order=(3, 0, 1, 2))
# Kept: three gates, and the state's part of the candidate, which the reset gate multiplies.
GRU = Recurrence(3, 4)
# Kept: nothing, since slopes of tanh and relu follow from the output.
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
    # A column of ones at the end multiplies the biases: no addition of its own in any step.
    together = inputs + width + 1
    if kind is LSTM and (block := _block_columns(batch, together, width)):
        return (
            ((columns // block, together, block), dtype),
            # One row of states more than steps: each step reads its predecessor's and writes its own.
            ((chunk + 1, batch, together), dtype),
            ((batch, 2 * width), dtype),
        )
    block = _block_columns(batch, width, width)
    return (
        ((inputs, columns), dtype),
        ((columns // block, width, block) if block else (1, width, columns + PADDING), dtype),
        ((columns,), dtype),
        ((chunk, batch, inputs), dtype),
        ((chunk, batch, columns), dtype),
        ((batch, columns), dtype),
        ((2, batch, width), dtype),
        ((batch, 2 * width), dtype),
    )


def backward_scratch(
    kind: Recurrence, steps: int, batch: int, inputs: int, width: int, dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the buffers of :func:`backward`."""
    columns = kind.gates * width
    block = _block_columns(batch, columns, width) or width
    return (
        ((steps, batch, columns + 2 * width if kind is LSTM else columns), dtype),
        ((steps if kind is GRU else 1, batch, columns), dtype),
        ((steps, batch, inputs + width), dtype),
        ((steps * batch, inputs), dtype),
        ((columns, inputs), dtype),
        ((width // block if block else 1, columns, block), dtype),
        ((columns, inputs + width), dtype),
        ((4, batch, width), dtype),
        ((batch, 2 * width), dtype),
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


def _rows_before(gates: Array, reverse: bool) -> Array:
    """Returns what an LSTM kept of its steps: the gates, and the cell before."""
    return gates[1:] if reverse else gates[:-1]


def _cells_after(gates: Array, reverse: bool, width: int) -> Array:
    """Returns the cells after the steps of an LSTM."""
    return (gates[:-1] if reverse else gates[1:])[..., 4 * width :]


def _begin_lstm(gates: Array, cell: Array, steps: int, reverse: bool) -> None:
    """Writes what no step writes: the cell before the first step, and gates where there is no step."""
    columns = 4 * cell.shape[-1]
    gates[(0 if reverse else steps) % len(gates), :, :columns] = 0
    gates[(steps if reverse else 0) % len(gates), :, columns:] = cell


def _lstm_step(row: Array, after: Array, target: Array, work: Array) -> None:
    """Activates the gates of a step, whose sums for sigmoids are negative.

    Args:
        row: Sums of ``o``, ``i``, ``f`` and ``g``, and the cell before, ``[batch, 5 * width]``; the sums become the gates.
        after: Written: the cell after, ``[batch, width]``.
        target: Written: ``h``, ``[batch, width]``.
        work: A buffer, ``[batch, 2 * width]``.
    """
    width, one = target.shape[-1], np.asarray(1, row.dtype)
    smooth, candidate = row[:, : 3 * width], row[:, 3 * width : 4 * width]
    np.exp(smooth, smooth)
    np.add(smooth, one, smooth)
    np.divide(one, smooth, smooth)
    np.tanh(candidate, candidate)
    # i * g and f * c in one call.
    np.multiply(row[:, width : 3 * width], row[:, 3 * width :], work)
    half = work[:, :width]
    np.add(half, work[:, width:], after)
    np.tanh(after, half)
    np.multiply(row[:, :width], half, target)


def _lstm_factors(gates: Array, reverse: bool, factors: Array) -> None:
    """Computes what the gradients of an LSTM's state are multiplied by, for all steps at once.

    With it a step of the backward loop takes 5 calls instead of 30.

    Args:
        gates: What the forward pass kept.
        reverse: Whether the last step ran first.
        factors: Written, ``[steps, batch, 6 * width]``: gradients of ``c`` and of the sum of ``o`` per gradient of ``h``; those
            of the sums of ``i``, ``f`` and ``g`` and of the cell before per gradient of ``c``.
    """
    width, one = factors.shape[-1] // 6, np.asarray(1, factors.dtype)
    rows = _rows_before(gates, reverse)
    o, i, f, g, before = (rows[..., k * width : (k + 1) * width] for k in range(5))
    slope, do, di, df, dg, dbefore = (factors[..., k * width : (k + 1) * width] for k in range(6))
    every, sums = rows[..., : 4 * width], factors[..., width : 5 * width]
    np.subtract(one, every, sums)
    np.multiply(sums, every, sums)
    np.multiply(g, g, dg)
    np.subtract(one, dg, dg)
    np.multiply(dg, i, dg)
    np.multiply(di, g, di)
    np.multiply(df, before, df)
    np.copyto(dbefore, f)
    np.tanh(_cells_after(gates, reverse, width), slope)
    np.multiply(do, slope, do)
    np.multiply(slope, slope, slope)
    np.subtract(one, slope, slope)
    np.multiply(slope, o, slope)


def _forward_together(
    x: Array,
    initial: Sequence[Array],
    weights: Sequence[Array],
    biases: Sequence[Array],
    length: Array | None,
    out: Array,
    last: Sequence[Array],
    gates: Array,
    reverse: bool,
    scratch: Sequence[Array],
) -> None:
    """Runs all steps of an LSTM of few rows with one product per step: arguments as of :func:`forward`."""
    steps, _, inputs = x.shape
    width = out.shape[-1]
    u, rows, work = scratch
    block = u.shape[-1]
    for inside, outside in ((u[:, :inputs], weights[0]), (u[:, inputs:-1], weights[1])):
        for target, source in _blocks(LSTM, inside, outside):
            np.copyto(target, _in_blocks(source.T, block))
    for (target, source), (_, other) in zip(
        *(_blocks(LSTM, u[:, -1], one.reshape(-1, block)) for one in biases), strict=True
    ):
        np.add(source, other, target)
    smooth = u[: 3 * len(u) // 4]
    # Weights of the sigmoids negative: exp(-sum) then needs no negation in every step.
    np.multiply(smooth, np.asarray(-1, u.dtype), smooth)
    rows[..., -1] = 1
    sources, states = rows[..., :inputs], rows[..., inputs:-1]
    ended = ended_rows(length, steps)
    chunk = len(rows) - 1
    np.copyto(states[0], initial[0])
    _begin_lstm(gates, initial[1], steps, reverse)
    end = 0
    for begin in range(0, steps, chunk):
        count = min(chunk, steps - begin)
        here = slice(steps - begin - count, steps - begin) if reverse else slice(begin, begin + count)
        flip = slice(None, None, -1 if reverse else 1)
        np.copyto(sources[:count], x[here][flip])
        # The last state of the chunk before is the first of this one.
        if begin:
            np.copyto(states[0], states[end])
        end = count
        times = range(here.start, here.stop)[flip]
        for k, t in enumerate(times):
            row, following = gates[(t + reverse) % len(gates)], gates[(t + 1 - reverse) % len(gates)]
            np.matmul(rows[k], u, _in_blocks(row[:, : 4 * width], block))
            after = following[:, 4 * width :]
            _lstm_step(row, after, states[k + 1], work)
            rest = ended[t]
            if rest is not None:
                # Rows that are over keep their state, which later steps read; their outputs become 0 in the copy below.
                states[k + 1, rest] = states[k, rest]
                after[rest] = row[rest, 4 * width :]
        # One copy a chunk: states lie among inputs, where the product of the next step needs them.
        np.copyto(out[here], states[1 : count + 1][flip])
        for t in times:
            rest = ended[t]
            if rest is not None:
                out[t, rest] = 0
    np.copyto(last[0], states[end])
    np.copyto(last[1], gates[0 if reverse else steps % len(gates)][:, 4 * width :])


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
        gates: Written for the backward pass: ``[steps, batch, saved * width]``, of an LSTM one more step; where there is no
            backward pass, one step or two; ``None`` for a simple recurrence.
        reverse: Runs from the last step to the first.
        scratch: Buffers from :func:`forward_scratch`.
        activation: Of a simple recurrence: ``tanh`` or ``relu``.
    """
    steps, batch, inputs = x.shape
    width = out.shape[-1]
    if kind is LSTM and len(scratch) == 3:
        assert gates is not None
        _forward_together(x, initial, weights, biases, length, out, last, gates, reverse, scratch)
        return
    w, u, bias, rows, products, of_state, work, wide = scratch
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
    if kind is LSTM:
        assert gates is not None
        _begin_lstm(gates, initial[1], steps, reverse)
        # The sums of sigmoids are made negative, as their exponentials need them: each call in a step costs a thread a wait
        # for the interpreter's lock.
        smooth_state = u[: 3 * len(u) // 4] if block else u[..., : 3 * width]
        for array in (w[:, : 3 * width], smooth_state, bias[: 3 * width]):
            np.multiply(array, np.asarray(-1, array.dtype), array)
    product = _in_blocks(of_state, block)
    ended = ended_rows(length, steps)
    h = initial[0]
    order = _order(steps, reverse)
    # Products of inputs do not wait for states, so those of many steps are one product.
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
            row, following = gates[(t + reverse) % len(gates)], gates[(t + 1 - reverse) % len(gates)]
            sums, cell = row[:, : 4 * width], following[:, 4 * width :]
            np.add(made, of_state, sums)
            _lstm_step(row, cell, target, wide)
        elif kind is GRU:
            assert gates is not None
            row = gates[t % len(gates)]
            sums, hidden = row[:, : 3 * width], row[:, 3 * width :]
            np.add(made[:, :joined], of_state[:, :joined], sums[:, :joined])
            np.copyto(sums[:, joined:], made[:, joined:])
            # Apart from the input's part: the reset gate multiplies this sum only.
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
                cell[rest] = row[rest, 4 * width :]
    np.copyto(last[0], h)
    if kind is LSTM:
        assert gates is not None
        np.copyto(last[1], gates[0 if reverse else steps % len(gates)][:, 4 * width :])


def _states_before(out: Array, initial: Array, length: Array | None, reverse: bool, before: Array) -> None:
    """Writes the state that each step began with; of rows that are over, anything."""
    if reverse:
        np.copyto(before[:-1], out[1:])
        before[-1] = initial
        if length is not None:
            rows = np.flatnonzero((length > 0) & (length < len(out)))
            # Backwards, a shorter row begins at its own last step.
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
        kind, x, initial, weights, length, out, gates, reverse, activation: As there.
        dout: Gradient of ``out``, or ``None``.
        dlast: Gradients of the last state, each may be ``None``.
        dx, dinitial, dweights, dbiases: Written where not ``None``.
        scratch: Buffers from :func:`backward_scratch`.
    """
    steps, batch, inputs = x.shape
    width = out.shape[-1]
    factors, state_sums, joined, flat_dx, w, u, product, work, wide = scratch
    # Gradients of the gates' sums: those of an LSTM are made in place of their factors.
    sums = factors[..., width : 5 * width] if kind is LSTM else factors
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
        _lstm_factors(gates, reverse, factors)
        by_h = factors[..., : 2 * width].reshape(steps, batch, 2, width)
        by_c = factors[..., 2 * width :].reshape(steps, batch, 4, width)
        dbefore = dc
    for number in range(steps - 1, -1, -1):
        t = order[number]
        rest = ended[t]
        if rest is not None:
            # Steps behind the end of a row change nothing, so its gradient passes through them unchanged.
            kept = dh[rest]
            kept_cell = dbefore[rest] if kind is LSTM else None
        if dout is not None:
            np.add(dh, dout[t], dh)
        dsums = sums[t]
        # The sum that the state's weights made: of a GRU's candidate it is another one than the input's.
        of_state = dsums
        if kind is LSTM:
            of_h, of_c = by_h[t], by_c[t]
            np.multiply(of_h, dh[:, None], of_h)
            np.add(dbefore, of_h[:, 0], dc)
            np.multiply(of_c, dc[:, None], of_c)
            dbefore = of_c[:, 3]
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
            # And they add nothing to the gradients of the weights.
            dsums[rest] = 0
            of_state[rest] = 0
        np.matmul(of_state, u, _in_blocks(total, columns))
        if kind is GRU:
            np.add(dh, total, dh)
        else:
            # The gradient of a state is used up here, so its buffer takes the next product.
            dh, total = total, dh
        if rest is not None:
            dh[rest] = kept
            if kind is LSTM:
                dbefore[rest] = kept_cell
    for target, value in zip(dinitial, (dh, dbefore) if kind is LSTM else (dh,), strict=True):
        if target is not None:
            np.copyto(target, value)
    every = sums.reshape(steps * batch, kind.gates * width)
    # All steps as rows of one matrix: gradients of weights need no loop.
    every_state = state_sums.reshape(every.shape) if kind is GRU else every
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
    # Both biases enter one sum, so one gradient serves both, except for a GRU's candidate.
    total_sums = np.matmul(vector, every)
    total_state = np.matmul(vector, every_state) if kind is GRU else total_sums
    for wanted, found in zip(dbiases, (total_sums, total_state), strict=True):
        if wanted is not None:
            for inside, outside in _blocks(kind, found, wanted):
                np.copyto(outside, inside)
