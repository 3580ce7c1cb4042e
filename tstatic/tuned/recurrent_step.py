"""One step of an LSTM, a GRU and a simple recurrence, forward and backward, on a batch of rows.

Gates of an LSTM are given as views, so that a caller keeps its own order. Functions work in place and allocate nothing but a
mask for ``relu``; every slope is computed from the activation's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tstatic.tuned._common import Array


def activate(name: str, x: Array) -> None:
    """Replaces ``x`` by its ``sigmoid``, ``tanh`` or ``relu``; any other name leaves it as it is."""
    if name == "tanh":
        np.tanh(x, x)
    elif name == "sigmoid":
        # Arrays of the type itself: numpy has to choose a type for a Python number, which takes 0.5 us.
        one = np.asarray(1, x.dtype)
        # Not np.negative: numpy 2.4 returns wrong values in place for some strides.
        np.multiply(x, np.asarray(-1, x.dtype), x)
        np.exp(x, x)
        np.add(x, one, x)
        np.divide(one, x, x)
    elif name == "relu":
        np.maximum(x, np.asarray(0, x.dtype), out=x)


def times_slope(name: str, y: Array, gradient: Array, work: Array) -> None:
    """Multiplies ``gradient`` by the slope of an activation whose result is ``y``; ``work`` has the shape of ``y``."""
    if name == "tanh":
        np.multiply(y, y, work)
        np.subtract(np.asarray(1, y.dtype), work, work)
        np.multiply(gradient, work, gradient)
    elif name == "sigmoid":
        np.subtract(np.asarray(1, y.dtype), y, work)
        np.multiply(work, y, work)
        np.multiply(gradient, work, gradient)
    elif name == "relu":
        np.copyto(gradient, np.asarray(0, y.dtype), where=np.less_equal(y, np.asarray(0, y.dtype)))


# ----------------------------------------------------------------------------------------------------------------- LSTM
@dataclass(frozen=True, slots=True)
class LstmGates:
    """Views of the four gates of one step, and of runs of gates that lie side by side and share an activation.

    Attributes:
        i, f, g, o: Input gate, forget gate, candidate and output gate, ``[batch, width]`` each.
        early: Runs of ``i``, ``f`` and ``o``.
    """

    i: Array
    f: Array
    g: Array
    o: Array
    early: Sequence[Array]


def lstm_step(gates: LstmGates, c_before: Array, c: Array, h: Array, work: Array) -> None:
    """Computes ``c = f * c_before + i * g`` and ``h = o * tanh(c)``.

    Args:
        gates: Sums of products and biases; replaced by the activations.
        c_before: The cell before the step.
        c, h: Written.
        work: Of the shape of ``c``.
    """
    for view in gates.early:
        activate("sigmoid", view)
    np.tanh(gates.g, gates.g)
    np.multiply(gates.i, gates.g, work)
    np.multiply(gates.f, c_before, c)
    np.add(c, work, c)
    np.tanh(c, work)
    np.multiply(gates.o, work, h)


def lstm_step_grad(
    gates: LstmGates, c_before: Array, c: Array, dh: Array, dc: Array, dgates: LstmGates, work: Sequence[Array]
) -> None:
    """Computes the gradients of a step's four sums from those of its results.

    Args:
        gates: What :func:`lstm_step` left there.
        c_before, c: The cell before and after the step.
        dh: Gradient of ``h``; left as it is.
        dc: Gradient of ``c`` from later steps; becomes that of ``c_before``.
        dgates: Written.
        work: Two arrays of the shape of ``c``.
    """
    active, through = work
    np.tanh(c, active)
    np.multiply(dh, active, dgates.o)
    times_slope("sigmoid", gates.o, dgates.o, through)
    # The gradient that reaches the cell through h.
    np.multiply(dh, gates.o, through)
    np.multiply(active, active, active)
    np.subtract(np.asarray(1, active.dtype), active, active)
    np.multiply(through, active, through)
    np.add(dc, through, dc)
    for name, gate, factor, found in (
        ("sigmoid", gates.i, gates.g, dgates.i), ("sigmoid", gates.f, c_before, dgates.f), ("tanh", gates.g, gates.i, dgates.g),
    ):  # fmt: skip
        np.multiply(dc, factor, found)
        times_slope(name, gate, found, through)
    np.multiply(dc, gates.f, dc)


# ------------------------------------------------------------------------------------------------------------------ GRU
def gru_step(gates: Array, hidden: Array, h_before: Array, h: Array, work: Array) -> None:
    """Computes one step of ``nn.GRU``: ``n = tanh(x_n + r * hidden)``, ``h = z * h_before + (1 - z) * n``.

    Args:
        gates: ``[batch, 3 * width]``: the sums of ``r`` and ``z`` and the input's part of ``n``; becomes the activations.
        hidden: The state's part of ``n``, with its bias.
        h_before: The state before the step.
        h: Written.
        work: Of the shape of ``h``.
    """
    width = h.shape[-1]
    r, z, n = (gates[:, k * width : (k + 1) * width] for k in range(3))
    activate("sigmoid", gates[:, : 2 * width])
    np.multiply(r, hidden, work)
    np.add(n, work, n)
    np.tanh(n, n)
    np.subtract(h_before, n, work)
    np.multiply(work, z, work)
    np.add(work, n, h)


def gru_step_grad(
    gates: Array, hidden: Array, h_before: Array, dh: Array, dgates: Array, dhidden: Array, work: Array
) -> None:
    """Computes the gradients of a step's sums.

    Args:
        gates, hidden: What :func:`gru_step` left there.
        h_before: The state before the step.
        dh: Gradient of ``h``; becomes what reaches ``h_before`` directly.
        dgates: Written, ``[batch, 3 * width]``.
        dhidden: Written: the gradient of ``hidden``.
        work: ``[batch, 2 * width]``.
    """
    width = h_before.shape[-1]
    r, z, n = (gates[:, k * width : (k + 1) * width] for k in range(3))
    dr, dz, dn = (dgates[:, k * width : (k + 1) * width] for k in range(3))
    one, narrow = np.asarray(1, dh.dtype), work[:, :width]
    np.subtract(h_before, n, dz)
    np.multiply(dz, dh, dz)
    np.subtract(one, z, dn)
    np.multiply(dn, dh, dn)
    times_slope("tanh", n, dn, narrow)
    np.multiply(dn, hidden, dr)
    times_slope("sigmoid", gates[:, : 2 * width], dgates[:, : 2 * width], work)
    np.multiply(dn, r, dhidden)
    np.multiply(dh, z, dh)


# ------------------------------------------------------------------------------------------------------------- GRU unit
def gru_unit_step(
    gates: Array,
    h_before: Array,
    weight: Array,
    reset: Array,
    h: Array,
    work: Array,
    gate: str = "sigmoid",
    candidate: str = "tanh",
    origin_mode: bool = False,
) -> None:
    """Computes one step of ``gru_unit`` and ``dynamic_gru``: ``n = tanh(x_n + (r * h_before) W_n)``.

    ``h = (1 - u) * h_before + u * n``, in ``origin_mode`` ``u * h_before + (1 - u) * n``.

    Args:
        gates: ``[batch, 3 * width]``: the inputs' part of update, reset and candidate, with the bias; becomes the activations.
        h_before: The state before the step.
        weight: ``[width, 3 * width]``, packed as :func:`unpack_gru_weight` says.
        reset: Written: ``r * h_before``.
        h: Written.
        work: ``[batch, 2 * width]``.
        gate, candidate: Activations.
        origin_mode: See above.
    """
    width = h.shape[-1]
    first, last = unpack_gru_weight(weight)
    u, r, n = (gates[:, k * width : (k + 1) * width] for k in range(3))
    np.matmul(h_before, first, work)
    np.add(gates[:, : 2 * width], work, gates[:, : 2 * width])
    activate(gate, gates[:, : 2 * width])
    np.multiply(r, h_before, reset)
    narrow = work.reshape(-1)[: h.size].reshape(h.shape)
    np.matmul(reset, last, narrow)
    np.add(n, narrow, n)
    activate(candidate, n)
    new, old = (h_before, n) if origin_mode else (n, h_before)
    np.subtract(new, old, narrow)
    np.multiply(narrow, u, narrow)
    np.add(narrow, old, h)


def gru_unit_step_grad(
    gates: Array,
    h_before: Array,
    weight: Array,
    dh: Array,
    dreset: Array,
    dgates: Array,
    work: Array,
    gate: str = "sigmoid",
    candidate: str = "tanh",
    origin_mode: bool = False,
) -> None:
    """Computes the gradients of a step's sums; those of the weight follow from all steps together.

    ``dW[:, :2 * width] = h_before' dgates[:, :2 * width]`` and ``dW[:, 2 * width:] = reset' dgates[:, 2 * width:]``.

    Args:
        gates: What :func:`gru_unit_step` left there.
        h_before: The state before the step.
        weight: As there.
        dh: Gradient of ``h``; becomes that of ``h_before``.
        dreset: Gradient of ``reset`` from elsewhere (zeros if none); becomes the complete one.
        dgates: Gradients of the gates' activations from elsewhere (zeros if none); become those of the sums.
        work: ``[batch, 2 * width]``.
        gate, candidate, origin_mode: As in the forward step.
    """
    width = h_before.shape[-1]
    first, last = unpack_gru_weight(weight)
    u, r, n = (gates[:, k * width : (k + 1) * width] for k in range(3))
    du, dr, dn = (dgates[:, k * width : (k + 1) * width] for k in range(3))
    narrow = work.reshape(-1)[: h_before.size].reshape(h_before.shape)
    one = np.asarray(1, dh.dtype)
    new, old = (h_before, n) if origin_mode else (n, h_before)
    np.subtract(new, old, narrow)
    np.multiply(narrow, dh, narrow)
    np.add(du, narrow, du)
    if origin_mode:
        np.subtract(one, u, narrow)
        np.multiply(narrow, dh, narrow)
        np.add(dn, narrow, dn)
        np.multiply(dh, u, dh)
    else:
        np.multiply(u, dh, narrow)
        np.add(dn, narrow, dn)
        np.subtract(dh, narrow, dh)
    times_slope(candidate, n, dn, narrow)
    np.matmul(dn, last.T, narrow)
    np.add(dreset, narrow, dreset)
    np.multiply(dreset, h_before, narrow)
    np.add(dr, narrow, dr)
    np.multiply(dreset, r, narrow)
    np.add(dh, narrow, dh)
    times_slope(gate, gates[:, : 2 * width], dgates[:, : 2 * width], work)
    np.matmul(dgates[:, : 2 * width], first.T, narrow)
    np.add(dh, narrow, dh)


def unpack_gru_weight(weight: Array) -> tuple[Array, Array]:
    """Returns views ``[width, 2 * width]`` (update, reset) and ``[width, width]`` (candidate) of ``[width, 3 * width]``.

    Paddle packs the two matrices one after the other in memory; the parameter's own columns mean nothing.
    """
    width = weight.shape[0]
    packed = weight.reshape(-1)
    return packed[: 2 * width * width].reshape(width, 2 * width), packed[2 * width * width :].reshape(width, width)
