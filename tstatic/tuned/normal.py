"""Normal numbers by sums, products, quotients and roots alone, each rounded once: every library and chip gives the same bits.

Generated kernels compute the same in the same order (``_normal24``, ``_normal53`` and ``_quantile`` of
``fusion/codegen/text/prelude.py``): who changes a step here changes it there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROWS = 8
"""Arrays of work space that a function here needs."""

_ROW_BYTES = 1 << 16
"""Of one such array: all of them stay in the second-level cache."""


@dataclass(frozen=True)
class _Coefficients:
    """What logarithm, sine and cosine are made of in one type. Coefficients are of the highest power first.

    Attributes:
        whole: The integers of the type's size.
        mantissa: Bits of a number's fraction.
        digits: Of the random integers.
        root: The bits of (about) the root of one half, from which fractions lie in [root, 2 root).
        even, odd: Of ``(2 log((1 + s) / (1 - s)) / s - 4) / s^2``: of ``s^2, s^6, ...`` and of ``1, s^4, ...``.
        sine: Of ``sin(y pi / 2) / y`` in powers of ``y^2``, for ``y`` up to one half.
        cosine: Of ``(cos(y pi / 2) - 1) / y^2``.
    """

    whole: type[np.signedinteger[Any]]
    mantissa: int
    digits: int
    root: int
    even: tuple[float, ...]
    odd: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


# The logarithms are twice those of Sun's fdlibm and, in single precision, of FreeBSD's; sine and cosine pass through the roots of
# Chebyshev's polynomials.
_SINGLE = _Coefficients(
    np.int32, 23, 24, 0x3F3504F3, (0.48558157682, 0.80001944304), (0.56997573376, 1.33333325386),
    (-0.004602149128913879, 0.07968021929264069, -0.6459634900093079, 1.5707963705062866),
    (0.0009067399078048766, -0.02086152881383896, 0.253669410943985, -1.2337005138397217),
)  # fmt: skip
# fdlibm's logarithm has seven terms, that for single precision four; sine and cosine have seven coefficients, not four.
_DOUBLE = _Coefficients(
    np.int64, 52, 53, 0x3FE6A09E00000000,
    (0.3062767539841874664, 0.4444439686429956792, 0.7999999999881883134),
    (0.2959639721023317182, 0.3636714432324210018, 0.571428574873247830, 1.333333333333347026),
    (5.633933781537854e-08, -3.59864335298231e-06, 0.0001604411507421909, -0.004681754132340976, 0.07969262624604301,
     -0.6459640975062443, 1.5707963267948966),
    (-6.329396344967424e-09, 4.710678405505227e-07, -2.5202039028029178e-05, 0.0009192602745468447,
     -0.020863480763340773, 0.2536695079010478, -1.2337005501361697),
)  # fmt: skip

# As -2 log is wanted, powers of two are counted in it.
_MINUS_2_LN_2 = -1.3862943611198906


def _of(dtype: Any) -> _Coefficients:
    return _DOUBLE if dtype == np.float64 else _SINGLE


def _series(coefficients: tuple[float, ...], x: Array, out: Array) -> None:
    """Writes ``(c0 x + c1) x + ... + cn``."""
    one = x.dtype.type
    np.multiply(x, one(coefficients[0]), out)
    for c in coefficients[1:-1]:
        np.add(out, one(c), out)
        np.multiply(out, x, out)
    np.add(out, one(coefficients[-1]), out)


def minus_two_log(n: Array, power: int, out: Array, work: Array) -> None:
    """Writes ``-2 log(n / 2^power)``.

    Args:
        n: Positive normal numbers, flat; overwritten.
        power: Any.
        out: As ``n``.
        work: Of :func:`work_space`; the first array is left alone.
    """
    c, one = _of(n.dtype), n.dtype.type
    _, s, square, fourth, even, odd, *_ = work
    bits, k = n.view(c.whole), odd.view(c.whole)
    # n = 2^(k + power) (1 + f).
    np.subtract(bits, c.whole(c.root + (power << c.mantissa)), bits)
    np.right_shift(bits, c.whole(c.mantissa), k)
    np.copyto(out, k, casting="unsafe")
    np.bitwise_and(bits, c.whole((1 << c.mantissa) - 1), bits)
    np.add(bits, c.whole(c.root), bits)
    f = np.subtract(n, one(1), n)
    # 2 log(1 + f) = 2 f - f^2 + s (f^2 + series in s), where s = f / (2 + f).
    np.add(f, one(2), s)
    np.divide(f, s, s)
    np.multiply(s, s, square)
    np.multiply(square, square, fourth)
    _series(c.even, fourth, even)
    np.multiply(even, fourth, even)
    _series(c.odd, fourth, odd)
    np.multiply(odd, square, odd)
    np.add(odd, even, odd)
    np.multiply(f, f, square)
    np.add(odd, square, odd)
    np.multiply(odd, s, odd)
    np.subtract(square, odd, square)
    np.add(f, f, f)
    np.subtract(square, f, square)
    np.multiply(out, one(_MINUS_2_LN_2), out)
    np.add(out, square, out)


def _cosine_and_sine(n: Array, work: Array) -> tuple[Array, Array]:
    """Returns cosine and sine of ``n`` parts of a turn, as arrays of ``work``.

    Args:
        n: Integers from 0 on; a turn has as many as there are random integers.
        work: As of :func:`minus_two_log`, and its last two arrays.
    """
    c, one = _of(n.dtype), n.dtype.type
    _, q, square, sine, cosine, _, y, last = work
    turns = last.view(c.whole)
    # The nearest quarter of a turn, and how far away it is: exactly.
    np.multiply(n, one(2.0 ** (2 - c.digits)), y)
    np.add(y, one(0.5), q)
    np.floor(q, q)
    np.copyto(turns, q, casting="unsafe")
    np.subtract(y, q, y)
    np.multiply(y, y, square)
    _series(c.sine, square, sine)
    np.multiply(sine, y, sine)
    _series((*c.cosine, 1.0), square, cosine)
    # In odd quarters the two change places. Signs are bits: zeros have them, too.
    x, z, odd, swapped = (a.view(c.whole) for a in (cosine, sine, square, q))
    np.bitwise_and(turns, c.whole(1), odd)
    np.negative(odd, odd)
    np.bitwise_xor(x, z, swapped)
    np.bitwise_and(swapped, odd, swapped)
    np.bitwise_xor(x, swapped, x)
    np.bitwise_xor(z, swapped, z)
    for lane in (z, x):
        np.bitwise_and(turns, c.whole(2), odd)
        np.left_shift(odd, c.whole(8 * n.itemsize - 2), odd)
        np.bitwise_xor(lane, odd, lane)
        np.add(turns, c.whole(1), turns)
    return cosine, sine


def work_space(buffers: Array) -> Array:
    """Returns the work space of the functions here, in memory of the type that they are to work in."""
    flat = buffers.reshape(-1)
    count = _ROW_BYTES // flat.itemsize
    return flat[: ROWS * count].reshape(ROWS, count)


def normal_pairs(raw: Array, work: Array) -> None:
    """Turns random integers into normal numbers, by the method of Box and Muller.

    Args:
        raw: Pairs of integers of 24 bits in float32, or of 53 in float64; flat, and overwritten by ``r cos(a)`` and ``r sin(a)``.
        work: Of :func:`work_space`.
    """
    c, one, pairs = _of(raw.dtype), raw.dtype.type, work.shape[1]
    for at in range(0, raw.shape[0], 2 * pairs):
        part = raw[at : at + 2 * pairs]
        rows = work[:, : part.shape[0] // 2]
        r, n = rows[0], rows[6]
        # From [0, 1) to (0, 1]: the logarithm of 0 would make an infinite number.
        np.add(part[0::2], one(1), n)
        minus_two_log(n, c.digits, r, rows)
        np.sqrt(r, r)
        cosine, sine = _cosine_and_sine(part[1::2], rows)
        # One radius and one angle make two numbers.
        np.multiply(cosine, r, part[0::2])
        np.multiply(sine, r, part[1::2])


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988: relative error about 1e-16.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
# The same source: tails up to a probability of exp(-25).
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
# The same source: beyond.
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _ratio(pair: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    # Horner's scheme, in place but for the first products.
    top, bottom = x * pair[0][0], x * pair[1][0]
    for c, d in zip(pair[0][1:-1], pair[1][1:-1], strict=True):
        top += c
        top *= x
        bottom += d
        bottom *= x
    top += pair[0][-1]
    bottom += pair[1][-1]
    top /= bottom
    return top


def normal_quantile(p: Array) -> Array:
    """Inverts the normal distribution function: float64 of shape [n]; -inf at 0 and +inf at 1."""
    found = np.empty_like(p)
    # The quotient makes about ten temporaries; those of a small part come from the allocator's free list and stay in the
    # first-level cache.
    for at in range(0, p.shape[0], 2048):
        q = p[at : at + 2048] - 0.5
        np.multiply(q, _ratio(_CENTRE, 0.180625 - q * q), found[at : at + 2048])
    # 15 of 100 numbers lie in the tails; only they take the logarithm and the second quotient.
    q = p - 0.5
    at_tails = np.flatnonzero(np.abs(q) > 0.425)
    q = q[at_tails]
    least = p[at_tails]
    least = np.minimum(least, 1 - least)
    tail, work = np.empty_like(least), np.empty((ROWS, least.shape[0]))
    # Scaled, as the least numbers of all have too few bits for the logarithm.
    minus_two_log(least * 2.0**54, 54, tail, work)
    np.multiply(tail, 0.5, tail)
    np.sqrt(tail, tail)
    outer = _ratio(_MIDDLE, tail - 1.6)
    # Probabilities below 1e-11, which 32 random bits never give unless a bound is that far out.
    far = np.flatnonzero(tail > 5)
    if far.size:
        outer[far] = _ratio(_FAR, tail[far] - 5)
    outer[least == 0] = np.inf
    found[at_tails] = np.copysign(outer, q)
    return found
