"""Error function and GELU as chains of ufuncs over cache-sized blocks; float64 goes through scipy, imported when first
used.

Coefficients were fitted for this file by iteratively reweighted least squares (Lawson) against scipy's float64
functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tstatic.tuned._common import BLOCK, Array, Buffer

# -log(erfc(a)) / a on [0, 3.95]; the error of erf from the fit alone is 4e-9 of its value.
_ERF = (1.1283792257, 0.63661938906, 0.10277780145, -0.019152963534, -0.00016056593449, 0.0016671866178,
        -0.00063291937113, 0.00011766336664, -9.2586378742e-06)  # fmt: skip
# erfc(3.95) is 2.3e-8, less than half the spacing of float32 below 1: beyond, erf is 1.
_ERF_LIMIT = 3.95
# Mills ratio (1 - Phi(a)) / phi(a) on [0, 14.5], relative error 6e-9.
_MILLS_TOP = (1.2533141447211351, 1.0986419896089872, 0.4593019922336515, 0.1018522661756154, 0.010318038301011299)
# The denominator of the same quotient.
_MILLS_BOTTOM = (1.0, 1.67447446261861, 1.20250249935448, 0.469470225240214, 0.101858713315607, 0.010317918555442)
# The density at 14.5 is 9e-47, below the least float32 of 1.4e-45: beyond, every product with it is 0.
_MILLS_LIMIT = 14.5
# Of the approximation by tanh of Hendrycks and Gimpel, 2016, as is the next number.
_ROOT_2_PI = math.sqrt(2 / math.pi)
# Its coefficient of x^3.
_CUBIC = 0.044715


def special_scratch(count: int, dtype: np.dtype[np.floating]) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of every kernel here: three blocks."""
    return (((min(count, BLOCK),), dtype),) * 3


def _flat_blocks(arrays: Sequence[Array], out: Array, scratch: Sequence[Array]) -> Iterator[list[Array]]:
    """Yields corresponding blocks of inputs, output and scratch as vectors; odd strides are copied in and out."""
    # Views of contiguous arrays, copies of others; a copy of the output is written back at the end.
    vectors = [a.reshape(-1) for a in arrays]
    target = out.reshape(-1)
    for i in range(0, out.size, BLOCK):
        stop = min(i + BLOCK, out.size)
        yield [*(v[i:stop] for v in vectors), target[i:stop], *(s[: stop - i] for s in scratch)]
    if not np.may_share_memory(target, out):
        np.copyto(out, target.reshape(out.shape))


def _horner(coefficients: Sequence[float], t: Array, out: Array) -> Array:
    """Computes ``c[0] + t * (c[1] + t * (...))``."""
    # Arrays of the type itself: a ufunc takes 0.5 us longer for a Python number, whose type it has to choose.
    values = [np.asarray(c, t.dtype) for c in coefficients]
    np.multiply(t, values[-1], out)
    for value in values[-2:0:-1]:
        np.add(out, value, out)
        np.multiply(out, t, out)
    np.add(out, values[0], out)
    return out


def _bits(array: Array) -> Array:
    return array.view(np.int32 if array.dtype.itemsize == 4 else np.int64)


def _flip_sign(value: Array, sign: Array, work: Array) -> None:
    """Negates ``value`` where ``sign`` has its sign bit set: two integer ufuncs, a third of ``np.copysign``'s time."""
    top = np.asarray(-(2 ** (8 * sign.dtype.itemsize - 1)), _bits(sign).dtype)
    np.bitwise_and(_bits(sign), top, _bits(work))
    np.bitwise_xor(_bits(value), _bits(work), _bits(value))


def erf(x: Array, out: Array, scratch: Sequence[Array]) -> None:
    """Computes ``out = 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x``; in float32 at most 3 ulp off, 0.3 on average.

    ``erf(x) = sign(x) * (1 - exp(-a * R(a)))`` with ``a = abs(x)`` and a polynomial ``R``; ``expm1`` keeps small
    values exact.

    Args:
        x: Any shape and strides.
        out: Written; may be ``x``.
        scratch: Buffers from :func:`special_scratch`.
    """
    if x.dtype == np.float64:
        from scipy.special import erf as exact

        exact(x, out)
        return
    # At 3.95 erf is 1 - 2.3e-8, so the float32 next to it is 1 from there on, where the polynomial fits nothing.
    # ``clip`` takes 0.11 ns a value, ``minimum`` 0.37, and both leave NaN as it is.
    zero, limit = np.asarray(0, x.dtype), np.asarray(_ERF_LIMIT, x.dtype)
    for v, y, a, r, _ in _flat_blocks([x], out, scratch):
        np.abs(v, a)
        np.clip(a, zero, limit, a)
        _horner(_ERF, a, r)
        np.multiply(r, a, r)
        np.negative(r, r)
        np.expm1(r, r)
        np.negative(r, r)
        # The sign is put in before ``y``, which may be ``v``, is written.
        _flip_sign(r, v, a)
        np.copyto(y, r)


# ----------------------------------------------------------------------------------------------------------------- gelu
def _density(x: Array, out: Array) -> None:
    """Computes ``out = exp(-x * x / 2) / sqrt(2 * pi)``, the normal density."""
    np.multiply(x, x, out)
    np.multiply(out, np.asarray(-0.5, x.dtype), out)
    np.exp(out, out)
    np.multiply(out, np.asarray(1 / math.sqrt(2 * math.pi), x.dtype), out)


def _one_plus_exp(x: Array, out: Array) -> None:
    """Computes ``out = 1 + exp(-2 * u)`` with the argument ``u`` of the tanh form, see :func:`gelu`."""
    cubic, linear, one = (np.asarray(c, x.dtype) for c in (-2 * _ROOT_2_PI * _CUBIC, -2 * _ROOT_2_PI, 1))
    np.multiply(x, x, out)
    np.multiply(out, cubic, out)
    np.add(out, linear, out)
    np.multiply(out, x, out)
    np.exp(out, out)
    np.add(out, one, out)


def _tail(x: Array, a: Array, ratio: Array, work: Array) -> None:
    """Computes ``a = min(abs(x), limit)``, ``ratio`` = Mills ratio of ``a``, ``work`` = normal density of ``x``."""
    np.abs(x, a)
    # At 14.5 the float32 density is 0, so any finite ratio will do beyond.
    np.clip(a, np.asarray(0, x.dtype), np.asarray(_MILLS_LIMIT, x.dtype), a)
    _horner(_MILLS_TOP, a, ratio)
    _horner(_MILLS_BOTTOM, a, work)
    np.divide(ratio, work, ratio)
    _density(x, work)


def gelu(x: Array, out: Array, approximate: bool, scratch: Sequence[Array]) -> None:
    """Computes ``out = x * Phi(x)`` with the normal distribution ``Phi``, or its tanh approximation.

    Exact: ``max(x, 0) - abs(x) * M(abs(x)) * phi(x)`` with the Mills ratio ``M``, which keeps the relative error of the
    negative tail small, where ``0.5 * x * (1 + erf(x / sqrt(2)))`` loses it.
    Approximate: ``0.5 * x * (1 + tanh(u)) = x / (1 + exp(-2 * u))`` with ``u = sqrt(2 / pi) * (x + 0.044715 * x^3)``.

    Args:
        x: Any shape and strides.
        out: Written; may be ``x``.
        approximate: Use the tanh form.
        scratch: Buffers from :func:`special_scratch`.
    """
    if approximate:
        # One exponential and one division; ``tanh`` would need a multiplication and an addition more, and its sum with 1
        # cancels for negative ``x``.
        for v, y, e, _, _ in _flat_blocks([x], out, scratch):
            _one_plus_exp(v, e)
            np.divide(v, e, y)
        return
    if x.dtype == np.float64:
        # The fits above are good for float32 only; scipy's import takes 0.2 s, so it waits for the first float64.
        from scipy.special import ndtr

        for v, y, phi, _, _ in _flat_blocks([x], out, scratch):
            ndtr(v, phi)
            np.multiply(v, phi, y)
        return
    zero, least, limit = (np.asarray(c, x.dtype) for c in (-0.0, -np.inf, _MILLS_LIMIT))
    for v, y, a, ratio, density in _flat_blocks([x], out, scratch):
        _tail(v, a, ratio, density)
        np.multiply(ratio, density, ratio)
        # Unclamped below, so that minus infinity gives NaN as ``x * Phi(x)`` does.
        np.clip(v, least, limit, a)
        np.abs(a, a)
        np.multiply(ratio, a, ratio)
        # In this order 0 and -0 stay what they are.
        np.maximum(zero, v, out=y)
        np.subtract(y, ratio, y)


def gelu_grad(x: Array, dout: Array, dx: Array, approximate: bool, scratch: Sequence[Array]) -> None:
    """Computes the gradient of :func:`gelu`.

    Exact: ``dx = dout * (Phi(x) + x * phi(x))``, where both terms share the density:
    ``step(x) + sign(x) * phi(x) * (abs(x) - M(abs(x)))``.
    Approximate: ``dx = dout * (s + s * (1 - s) * x * 2 * u'(x))`` with ``s = 1 / (1 + exp(-2 * u))``.

    Args:
        x, dout: Any strides.
        dx: Written; may be ``dout`` or ``x``.
        approximate: As in the forward pass.
        scratch: Buffers from :func:`special_scratch`.
    """
    if approximate:
        _gelu_tanh_grad(x, dout, dx, scratch)
        return
    if x.dtype == np.float64:
        from scipy.special import ndtr

        for v, g, y, phi, density, near in _flat_blocks([x, dout], dx, scratch):
            ndtr(v, phi)
            _density(v, density)
            # The density is 0 long before x is infinite, where their product would be NaN.
            np.clip(v, -40.0, 40.0, near)
            np.multiply(density, near, density)
            np.add(phi, density, phi)
            np.multiply(phi, g, y)
        return
    one_bits = _bits(np.ones(1, x.dtype))
    shift = np.asarray(8 * x.dtype.itemsize - 1, one_bits.dtype)
    for v, g, y, a, ratio, density in _flat_blocks([x, dout], dx, scratch):
        _tail(v, a, ratio, density)
        np.subtract(a, ratio, ratio)
        np.multiply(ratio, density, ratio)
        # The sign bit flips the term; where it is unset, the step adds the bits of 1.
        _flip_sign(ratio, v, a)
        step = _bits(a)
        np.right_shift(_bits(v), shift, step)
        np.invert(step, step)
        np.bitwise_and(step, one_bits, step)
        np.add(ratio, a, ratio)
        np.multiply(ratio, g, y)


def _gelu_tanh_grad(x: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    slope, start, one = (np.asarray(c, x.dtype) for c in (6 * _ROOT_2_PI * _CUBIC, 2 * _ROOT_2_PI, 1))
    # With x limited, its factor stays finite; s is 0 or 1 long before.
    most = np.asarray(24.0, x.dtype)
    for v, g, y, factor, s, rest in _flat_blocks([x, dout], dx, scratch):
        _one_plus_exp(v, s)
        np.divide(one, s, s)
        np.clip(v, -most, most, factor)
        # 2 * x * u'(x), then s * (1 - s) of it, then s: each step reads what the one before left in cache.
        np.multiply(factor, factor, rest)
        np.multiply(rest, slope, rest)
        np.add(rest, start, rest)
        np.multiply(rest, factor, factor)
        np.subtract(one, s, rest)
        np.multiply(rest, factor, rest)
        np.multiply(rest, s, rest)
        np.add(rest, s, rest)
        np.multiply(rest, g, y)
