"""Fills arrays with random numbers of a distribution, in numpy (formulas: see ``philox``) and the same in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.tuned.philox import (
    CHUNK,
    HALF_ROUNDS,
    ROUNDS,
    SECOND_DRAW,
    WORD,
    Array,
    PhiloxKey,
    buffers_of_thread,
    fill_bits,
    torch_bits,
)

ONE_24 = 2.0**-24
ONE_53 = 2.0**-53
TURN = 2 * math.pi
LEAST_HALVES = 2.0**-7
"""Chances to be dropped, or kept, from which 16 bits decide."""

Kernel = Callable[[Array, int], None]
"""``(view, block)``: writes a one-dimensional contiguous view with the numbers from block ``block`` on."""


def each_chunk(out: Array, compute: np.dtype[Any], start: int, kernel: Kernel, per_block: int = 4) -> None:
    """Runs ``kernel`` over an array of any strides and dtype, in C order, from element ``start`` of the stream on.

    Numbers are computed in ``compute`` and rounded once when ``out`` has another dtype; ``per_block`` of them are a block.
    """
    total = out.size
    # Chunks begin at whole blocks, so a tile that begins inside a block draws it all and drops its first
    # numbers: any cut of the work gives the same bits.
    plain = out.flags.c_contiguous
    flat = out.reshape(-1) if plain else None
    at = -(start % per_block)
    while at < total:
        count = min(CHUNK, total - at)
        block = (start + at) // per_block
        if flat is not None and at >= 0 and out.dtype == compute:
            kernel(flat[at : at + count], block)
        else:
            # Another dtype, odd strides, or numbers to drop: through a chunk that stays in cache.
            chunk = buffers_of_thread(compute)[0][:count]
            kernel(chunk, block)
            part = chunk[max(-at, 0) :]
            if flat is not None:
                np.copyto(flat[max(at, 0) : at + count], part, casting="unsafe")
            else:
                out.flat[max(at, 0) : at + count] = part.astype(out.dtype, copy=False)
        at += count


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns what numbers are drawn in: float64 itself, float32 for every other float type, which is rounded once."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


# ------------------------------------------------------------------------------------------------------------- uniform
def uniform01(bits: Array, dtype: Any = np.float32, second: Array | None = None) -> Array:
    """Makes uniform numbers in [0, 1) from random words.

    Args:
        bits: uint32 words, one per number.
        dtype: float32, or float64, which also needs ``second``.
        second: uint32 words of the second draw.
    """
    if np.dtype(dtype) == np.float32:
        return (bits >> np.uint32(8)).astype(np.float32) * np.float32(ONE_24)
    assert second is not None, "float64 numbers need a second draw"
    return (bits.astype(np.float64) * 2.0**21 + (second >> np.uint32(11)).astype(np.float64)) * ONE_53


def _integers_53(view: Array, block: int, key: PhiloxKey) -> None:
    """Writes ``bits * 2^21 + (second >> 11)`` into a float64 view: integers below 2^53."""
    # In float64 throughout, exactly: both parts and their sum are integers below 2^53.
    bits = buffers_of_thread(np.uint32)[0][: view.shape[0]]
    low = buffers_of_thread(np.float64)[1][: view.shape[0]]
    fill_bits(bits, block, key)
    np.multiply(bits, 2.0**21, view)
    fill_bits(bits, block, key.second())
    np.right_shift(bits, 11, bits)
    np.copyto(low, bits)
    np.add(view, low, view)


def _integers_24(view: Array, block: int, key: PhiloxKey) -> None:
    """Writes ``bits >> 8`` into a float32 view."""
    bits = buffers_of_thread(np.uint32)[0][: view.shape[0]]
    fill_bits(bits, block, key)
    np.right_shift(bits, 8, bits)
    # They are below 2^24, so they may be read as int32: 0.13 ns a number, from uint32 0.19.
    np.copyto(view, bits.view(np.int32), casting="unsafe")


def fill_uniform(out: Array, low: float, high: float, key: PhiloxKey, start: int = 0) -> None:
    """Draws uniform numbers in [low, high): ``u * (high - low) + low``, at most the type's largest number below ``high``."""
    compute = compute_type(out.dtype)
    scale, shift, top, most = uniform_constants(out.dtype, low, high)
    integers = _integers_53 if compute == np.float64 else _integers_24
    # The unit is a power of two: one multiplication by scale and unit rounds as two would.
    factor = compute.type(scale * compute.type(ONE_53 if compute == np.float64 else ONE_24))

    def kernel(view: Array, block: int) -> None:
        integers(view, block, key)
        np.multiply(view, factor, view)
        if shift != 0:
            np.add(view, shift, view)
        if most is not None:
            np.minimum(view, most, out=view)

    assert top is not None
    each_chunk(out, compute, start, kernel)


def uniform_constants(dtype: np.dtype[Any], low: float, high: float) -> tuple[Any, Any, Any, Any]:
    """Returns scale, shift and largest number of a uniform distribution in the type that it is computed in.

    The fourth value is the limit to clamp at, ``None`` when rounding cannot reach ``high``: a minimum costs as much as
    four additions.
    """
    compute = compute_type(dtype).type
    scale, shift = compute(high - low), compute(low)
    top = compute(np.nextafter(dtype.type(high), dtype.type(low))) if high > low else shift
    # The values grow with u, so looking at the largest u is enough.
    largest = compute(1 - (ONE_53 if compute is np.float64 else ONE_24)) * scale + shift
    reaches = high > low and bool(dtype.type(largest) > dtype.type(top))
    return scale, shift, top, top if reaches else None


# -------------------------------------------------------------------------------------------------------------- normal
def fill_normal(out: Array, mean: float, std: float, key: PhiloxKey, start: int = 0) -> None:
    """Draws normal numbers by the method of Box and Muller: ``z * std + mean``."""
    compute = compute_type(out.dtype)
    wide = compute == np.float64
    one = compute.type
    integers, unit = (_integers_53, ONE_53) if wide else (_integers_24, ONE_24)

    def kernel(view: Array, block: int) -> None:
        count = view.shape[0]
        even, half = count + count % 2, (count + 1) // 2
        # Buffers 0 and 1 are taken: a chunk of :func:`each_chunk`, and what the integers are made in.
        raw = buffers_of_thread(compute)[2][:even]
        integers(raw, block, key)
        r, angle, turned = (b[:half] for b in buffers_of_thread(compute)[3:6])
        np.multiply(raw[0::2], one(unit), r)
        # From [0, 1) to (0, 1]: the logarithm of 0 would make an infinite number.
        np.add(r, one(unit), r)
        np.log(r, r)
        np.multiply(r, one(-2), r)
        np.sqrt(r, r)
        np.multiply(raw[1::2], one(one(TURN) * one(unit)), angle)
        # One radius and one angle make two numbers: the logarithm and the root are taken once for both.
        for lane, function in ((0, np.cos), (1, np.sin)):
            target = view[lane::2]
            function(angle, turned)
            np.multiply(turned, r, turned)
            # The usual standard deviation of 1 saves a pass; the mean is added in any case, as the pass that writes.
            if std != 1:
                np.multiply(turned, one(std), turned)
            np.add(turned[: target.shape[0]], one(mean), target)

    each_chunk(out, compute, start, kernel)


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988: relative error about 1e-16.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
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
    q = p - 0.5
    found = q * _ratio(_CENTRE, 0.180625 - q * q)
    # 15 of 100 numbers lie in the tails; only they take the logarithm and the second quotient.
    at = np.flatnonzero(np.abs(q) > 0.425)
    tail = np.sqrt(-np.log(np.minimum(p[at], 1 - p[at])))
    outer = _ratio(_MIDDLE, tail - 1.6)
    # Probabilities below 1e-11, which 32 random bits never give unless a bound is that far out.
    far = np.flatnonzero(tail > 5)
    if far.size:
        outer[far] = np.where(np.isinf(tail[far]), np.inf, _ratio(_FAR, np.minimum(tail[far], 1e9) - 5))
    found[at] = np.copysign(outer, q[at])
    return found


def normal_distribution(x: float) -> float:
    """Returns the normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def fill_truncated_normal(
    out: Array, mean: float, std: float, a: float, b: float, key: PhiloxKey, start: int = 0
) -> None:
    """Draws normal numbers within [mean + a std, mean + b std], by the inverse distribution function in float64."""
    low, high = normal_distribution(a), normal_distribution(b)
    bits_only = out.dtype != np.float64

    def kernel(view: Array, block: int) -> None:
        if bits_only:
            bits = buffers_of_thread(np.uint32)[0][: view.shape[0]]
            fill_bits(bits, block, key)
            np.copyto(view, bits)
        else:
            _integers_53(view, block, key)
        # The middle of the interval that the bits name: the quantile is finite at both ends.
        np.add(view, 0.5, view)
        np.multiply(view, ((high - low) * 2.0**-32) if bits_only else ((high - low) * ONE_53), view)
        np.add(view, low, view)
        # The quantile makes about ten temporaries; those of a small part come from the allocator's free list and stay
        # in the first-level cache.
        for at in range(0, view.shape[0], 2048):
            part = view[at : at + 2048]
            # The clip takes back what rounding carried over the bounds.
            np.clip(normal_quantile(part), a, b, out=part)
        np.multiply(view, std, view)
        np.add(view, mean, view)

    each_chunk(out, np.dtype(np.float64), start, kernel)


# ------------------------------------------------------------------------------------------------------------ integers
def fill_integers(out: Array, low: int, high: int, key: PhiloxKey, start: int = 0) -> None:
    """Draws integers in [low, high): ``low + (bits * (high - low) >> 32)``, with 64 random bits when the range needs them."""
    span = high - low

    def kernel(view: Array, block: int) -> None:
        bits = buffers_of_thread(np.uint32)[0][: view.shape[0]]
        fill_bits(bits, block, key)
        # A product and a shift instead of a remainder: no division, and the high bits decide.
        wide = view.view(np.uint64)
        if span <= 1 << 32:
            np.multiply(bits, np.uint64(span), wide)
            np.right_shift(wide, 32, wide)
        else:
            upper = bits.astype(np.uint64)
            fill_bits(bits, block, key.second())
            np.copyto(wide, _upper_half(upper, bits.astype(np.uint64), span))
        # Two's complement: adding a negative bound wraps around to the right value.
        np.add(wide, np.uint64(low & 0xFFFFFFFFFFFFFFFF), wide)

    each_chunk(out, np.dtype(np.int64), start, kernel)


def _upper_half(upper: Any, lower: Any, span: int) -> Any:
    """Computes ``(upper * 2^32 + lower) * span >> 64`` in numpy uint64 or torch int64 (whose shifts copy the sign)."""
    # Schoolbook multiplication in 32-bit halves; the masks drop the sign bits that torch's shifts copy.
    high, low = span >> 32, span & WORD
    carry = ((lower * low) >> 32) & WORD
    middle = upper * low + carry
    other = lower * high + (middle & WORD)
    return upper * high + ((middle >> 32) & WORD) + ((other >> 32) & WORD)


def fill_permutation(out: Array, key: PhiloxKey) -> None:
    """Draws a permutation of 0 .. n-1 into an int64 array of shape [n]: indices sorted by their random words, ties by index."""
    n = out.shape[0]
    assert n <= 1 << 31, "a permutation of more than 2^31 elements"
    bits = buffers_of_thread(np.uint32)[0]
    for at in range(0, n, CHUNK):
        part = out[at : at + CHUNK]
        words = bits[: part.shape[0]]
        fill_bits(words, at // 4, key)
        np.copyto(part, words)
        # Sorted as signed numbers, so the words are moved to start at -2^31.
        np.subtract(part, 1 << 31, part)
        np.left_shift(part, 32, part)
        np.bitwise_or(part, np.arange(at, at + part.shape[0]), part)
    # Word and index stand in one integer, so a plain sort breaks ties by index.
    out.sort()
    np.bitwise_and(out, WORD, out)


def keep_rule(drop: float) -> tuple[int, int]:
    """Returns how many bits of an element decide whether dropout keeps it, and the number from which they keep it.

    Args:
        drop: The chance to be dropped.

    Returns:
        ``(16, threshold)`` or, where 16 bits would be too coarse for the chance, ``(32, threshold)``. A threshold of 0 keeps
        all, and 2^32 none.
    """
    if LEAST_HALVES <= drop <= 1 - LEAST_HALVES:
        return 16, round(drop * 2.0**16)
    return 32, min(int(drop * 2.0**32), 1 << 32)


def fill_keep(out: Array, drop: float, key: PhiloxKey, start: int = 0) -> None:
    """Writes 1 where dropout keeps an element, 0 with chance ``drop``, by :func:`keep_rule`."""
    # A comparison of whole numbers: no float is made.
    bits, threshold = keep_rule(drop)
    if threshold > WORD:
        out.fill(0)
        return
    per_block, number = (8, np.uint16) if bits == 16 else (4, np.uint32)
    rounds = HALF_ROUNDS if bits == 16 else ROUNDS
    least = number(threshold)

    def kernel(view: Array, block: int) -> None:
        # Words in order are halves in order, the low one first.
        words = buffers_of_thread(np.uint32)[0][: -(-view.shape[0] * bits // 32)]
        fill_bits(words, block, key, rounds)
        np.greater_equal(words.view(number)[: view.shape[0]], least, view.view(np.bool_))

    each_chunk(out, np.dtype(np.uint8), start, kernel, per_block)


def fill_bernoulli(out: Array, p: Array, key: PhiloxKey, start: int = 0) -> float | None:
    """Writes 1 where a float32 uniform number lies below ``p``, else 0.

    Returns:
        A value of ``p`` that is not a probability, if there is one.
    """
    plain = p.flags.c_contiguous and out.flags.c_contiguous
    for at in range(0, out.size, CHUNK):
        count = min(CHUNK, out.size - at)
        u = buffers_of_thread(np.float32)[3][:count]
        hit = buffers_of_thread(np.bool_)[0][:count]
        fill_uniform(u, 0.0, 1.0, key, start + at)
        chance = p.reshape(-1)[at : at + count] if plain else p.flat[at : at + count]
        if chance.dtype.itemsize == 2:
            chance = chance.astype(np.float32)
        # NaN compares false, so it is found as well.
        if not (chance.min() >= 0 and chance.max() <= 1):
            return float(chance[np.flatnonzero(~((chance >= 0) & (chance <= 1)))[0]])
        np.less(u, chance, out=hit)
        if plain:
            np.copyto(out.reshape(-1)[at : at + count], hit, casting="unsafe")
        else:
            out.flat[at : at + count] = hit.astype(out.dtype)
    return None


# --------------------------------------------------------------------------------------------------------------- torch
def torch_integers(torch: Any, n: int, key: PhiloxKey, wide: bool, start: int = 0, device: Any = None) -> Any:
    """Returns ``bits >> 8`` as float32 or ``bits * 2^21 + (second >> 11)`` as float64, shape [n]."""
    bits = torch_bits(torch, n, key, start, device)
    if not wide:
        return (bits >> 8).to(torch.float32)
    second = torch_bits(torch, n, key.second(), start, device)
    return ((bits << 21) + (second >> 11)).to(torch.float64)


def torch_uniform(torch: Any, n: int, dtype: np.dtype[Any], low: float, high: float, key: PhiloxKey, start: int = 0,
                  device: Any = None) -> Any:  # fmt: skip
    """As :func:`fill_uniform`, in the type it is computed in."""
    wide = dtype == np.float64
    scale, shift, top, _ = uniform_constants(dtype, low, high)
    u = torch_integers(torch, n, key, wide, start, device) * (ONE_53 if wide else ONE_24)
    value = u * float(scale) + float(shift)
    return value.clamp_max(float(top)) if high > low else value


def torch_normal(torch: Any, n: int, wide: bool, mean: float, std: float, key: PhiloxKey, start: int = 0,
                 device: Any = None) -> Any:  # fmt: skip
    """As :func:`fill_normal`, in the type it is computed in."""
    # Pairs begin at even elements.
    skip = start % 2
    unit = ONE_53 if wide else ONE_24
    raw = torch_integers(torch, skip + n + (skip + n) % 2, key, wide, start - skip, device).reshape(-1, 2) * unit
    r = torch.sqrt(-2 * torch.log(raw[:, 0] + unit))
    angle = raw[:, 1] * TURN
    z = torch.stack((r * torch.cos(angle), r * torch.sin(angle)), -1).reshape(-1)
    return z[skip : skip + n] * std + mean


def torch_truncated_normal(torch: Any, n: int, wide: bool, mean: float, std: float, a: float, b: float,
                           key: PhiloxKey, start: int = 0, device: Any = None) -> Any:  # fmt: skip
    """As :func:`fill_truncated_normal`, in float64."""
    low, high = normal_distribution(a), normal_distribution(b)
    if wide:
        u = (torch_integers(torch, n, key, True, start, device) + 0.5) * ONE_53
    else:
        u = (torch_bits(torch, n, key, start, device).to(torch.float64) + 0.5) * 2.0**-32
    return torch.special.ndtri(u * (high - low) + low).clamp(a, b) * std + mean


def torch_whole_numbers(
    torch: Any, n: int, low: int, high: int, key: PhiloxKey, start: int = 0, device: Any = None
) -> Any:
    """As :func:`fill_integers`, int64."""
    span = high - low
    bits = torch_bits(torch, n, key, start, device)
    if span <= 1 << 32:
        return ((bits * span) >> 32 & WORD) + low
    second = torch_bits(torch, n, key._replace(c3=key.c3 ^ SECOND_DRAW), start, device)
    value = _upper_half(bits, second, span)
    # Above 2^63 a range does not fit into int64 and the sum wraps around, which is right in two's complement.
    return value + low
