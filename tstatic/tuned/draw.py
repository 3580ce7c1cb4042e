"""Fills arrays with random numbers of a distribution, in numpy (formulas: see ``philox``) and the same in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.tuned.normal import normal_pairs, normal_quantile, work_space
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

# The spacing of float32 just below 1: numbers of 24 bits times it are exact, and none is 1.
ONE_24 = 2.0**-24
# The same for float64.
ONE_53 = 2.0**-53
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
    one = compute.type
    integers = _integers_53 if compute == np.float64 else _integers_24
    work = work_space(buffers_of_thread(compute)[3:])

    def kernel(view: Array, block: int) -> None:
        count = view.shape[0]
        # Buffers 0 and 1 are taken: a chunk of :func:`each_chunk`, and what the integers are made in.
        pairs = buffers_of_thread(compute)[2][: count + 1] if count % 2 else view
        integers(pairs, block, key)
        normal_pairs(pairs, work)
        found = pairs[:count]
        _moved(found, one(mean), one(std))
        if found is not view:
            np.copyto(view, found)

    each_chunk(out, compute, start, kernel)


def _moved(view: Array, mean: Any, std: Any) -> None:
    """Computes ``view * std + mean`` in place; where the two change nothing, zeros keep their signs."""
    if std != 1:
        np.multiply(view, std, view)
    if mean != 0:
        np.add(view, mean, view)


def normal_distribution(x: float) -> float:
    """Returns the normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def fill_truncated_normal(
    out: Array, mean: float, std: float, a: float, b: float, key: PhiloxKey, start: int = 0
) -> None:
    """Draws normal numbers within [mean + a std, mean + b std], by the inverse distribution function in float64."""
    compute = compute_type(out.dtype)
    wide = compute == np.float64
    factor, low = within_constants(compute, a, b)

    def kernel(view: Array, block: int) -> None:
        found = view if wide else buffers_of_thread(np.float64)[2][: view.shape[0]]
        if wide:
            _integers_53(found, block, key)
        else:
            bits = buffers_of_thread(np.uint32)[0][: view.shape[0]]
            fill_bits(bits, block, key)
            np.copyto(found, bits)
        # The middle of the interval that the bits name: the quantile is finite at both ends.
        np.add(found, 0.5, found)
        np.multiply(found, factor, found)
        np.add(found, low, found)
        # The clip takes back what rounding carried over the bounds.
        np.clip(normal_quantile(found), a, b, out=found)
        _moved(found, mean, std)
        if not wide:
            np.copyto(view, found, casting="unsafe")

    each_chunk(out, compute, start, kernel)


def within_constants(compute: np.dtype[Any], a: float, b: float) -> tuple[float, float]:
    """Returns factor and summand that make a probability between those of ``a`` and ``b`` of an element's integer and a half."""
    low, high = normal_distribution(a), normal_distribution(b)
    return (high - low) * (ONE_53 if compute == np.float64 else 2.0**-32), low


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


def fill_bernoulli(out: Array, p: Array, key: PhiloxKey, start: int = 0) -> None:
    """Writes 1 where a float32 uniform number lies below ``p``, else 0."""
    plain = p.flags.c_contiguous and out.flags.c_contiguous
    for at in range(0, out.size, CHUNK):
        count = min(CHUNK, out.size - at)
        u = buffers_of_thread(np.float32)[3][:count]
        hit = buffers_of_thread(np.bool_)[0][:count]
        fill_uniform(u, 0.0, 1.0, key, start + at)
        chance = p.reshape(-1)[at : at + count] if plain else p.flat[at : at + count]
        if chance.dtype.itemsize == 2:
            chance = chance.astype(np.float32)
        np.less(u, chance, out=hit)
        if plain:
            np.copyto(out.reshape(-1)[at : at + count], hit, casting="unsafe")
        else:
            out.flat[at : at + count] = hit.astype(out.dtype)


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
    unit, quarter = (ONE_53, 2.0**51) if wide else (ONE_24, 2.0**22)
    raw = torch_integers(torch, skip + n + (skip + n) % 2, key, wide, start - skip, device).reshape(-1, 2)
    r = torch.sqrt(-2 * torch.log((raw[:, 0] + 1) * unit))
    # Of the angle what is less than a quarter of a turn is kept exactly.
    turns = torch.floor(raw[:, 1] / quarter + 0.5)
    angle = (raw[:, 1] - turns * quarter) * (math.pi / 2 / quarter)
    cosine, sine, odd = torch.cos(angle), torch.sin(angle), turns % 2 == 1
    x, y = torch.where(odd, -sine, cosine), torch.where(odd, cosine, sine)
    sign = torch.where(torch.floor(turns / 2) % 2 == 1, -r, r)
    z = torch.stack((sign * x, sign * y), -1).reshape(-1)
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
