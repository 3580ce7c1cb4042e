"""One step of a GRU, forward and backward, on a batch of rows, and the activations of recurrences.

Functions work in place and allocate nothing but a mask for ``relu``; every slope is computed from the activation's result.
"""

from __future__ import annotations

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
