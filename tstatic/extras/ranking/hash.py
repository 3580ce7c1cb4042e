"""Rows of integers as numbers below a bound: the 64-bit xxHash of their bytes, from operators on int64."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from tstatic.extras.sequence.lod_reset import lod_reset
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_rank, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.arithmetic import add, floor_divide, multiply, remainder, subtract
from tstatic.ops.elementwise.logic import bitwise_and, bitwise_xor
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.shape.creation import assign
from tstatic.ops.shape.reshape import reshape, unsqueeze

# Collet, xxHash specification 0.1.1, XXH64. Products and sums wrap, as those of unsigned numbers do.
_P1, _P2, _P3, _P4, _P5 = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261,
)  # fmt: skip
# Of int64, the words of the hash: a shift by n to the right leaves 64 - n bits.
_BITS = 64


def _constant(*values: int) -> Variable:
    """Returns unsigned numbers as the int64 of the same bits, ``[1, values]``."""
    return assign(np.array([values], np.uint64).view(np.int64))


def _right(x: Variable, count: int) -> Variable:
    """Shifts bits to the right and fills with zeros; division is of multiples, so that it is exact for either sign."""
    low = bitwise_and(x, _constant((1 << count) - 1))
    return bitwise_and(floor_divide(subtract(x, low), _constant(1 << count)), _constant((1 << (_BITS - count)) - 1))


def _rotated(x: Variable, count: int) -> Variable:
    return add(multiply(x, _constant(1 << count)), _right(x, _BITS - count))


def _round(lane: Variable, word: Variable) -> Variable:
    return multiply(_rotated(add(lane, multiply(word, _constant(_P2))), 31), _constant(_P1))


def _words(x: Variable) -> tuple[list[Variable], list[Variable]]:
    """Returns the words of 8 bytes of each row, ``[rows, 1]`` each, and at most one of 4 bytes that is left."""
    columns = [cast(x[:, i : i + 1], "int64") for i in range(x.shape[1])]
    if x.dtype.name == "int64":
        return columns, []
    halves = [bitwise_and(c, _constant(0xFFFFFFFF)) for c in columns]
    # Little-endian, as memory: the first of two int32 is the low half.
    pairs = [add(a, multiply(b, _constant(1 << 32))) for a, b in zip(halves[::2], halves[1::2], strict=False)]
    return pairs, halves[len(pairs) * 2 :]


def _long(words: Sequence[Variable], seeds: Variable) -> Variable:
    """Returns the state after the blocks of 32 bytes, of four lanes."""
    lanes = [
        add(seeds, _constant((_P1 + _P2) % 2**_BITS)), add(seeds, _constant(_P2)), seeds, subtract(seeds, _constant(_P1)),
    ]  # fmt: skip
    for i, word in enumerate(words):
        lanes[i % 4] = _round(lanes[i % 4], word)
    state = reduce(add, (_rotated(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)))
    for lane in lanes:
        mixed = _round(_constant(0), lane)
        state = add(multiply(bitwise_xor(state, mixed), _constant(_P1)), _constant(_P4))
    return state


@export("fluid.layers.hash")
def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Returns numbers from 0 to below ``hash_size`` for each row of integers: the 64-bit xxHash of its bytes, modulo the size.

    Args:
        input: ``[rows, size]``, int32 or int64, ``size`` known; sequences keep their offsets.
        hash_size: At least 1.
        num_hash: How many numbers a row gets; the seeds are 0, 1, and so on.
        name: Name of the layer.

    Returns:
        ``[rows, num_hash, 1]``, int64.

    Raises:
        ShapeError: If ``input`` has another rank, or an unknown size.
        ProgramError: If a number is out of range.

    Example:
        >>> x = paddle.to_tensor(np.array([[1], [2]]))
        >>> y = fluid.layers.hash(x, hash_size=1000, num_hash=2)
        >>> static.Executor().run(fetch_list=[y])[0].reshape(2, 2)
        array([[269, 609],
               [360, 419]])
    """
    check_variable(input, "input", "hash", ("int32", "int64"))
    check_rank(input, 2, "input", "hash", layout="[rows, size]")
    check_static_dim(input.shape[1], input, "axis 1", "hash")
    size = check_int(hash_size, "hash_size", "hash", 1)
    count = check_int(num_hash, "num_hash", "hash", 1)
    words, rest = _words(input)
    # Hash i has seed i; the product with 0 gives the number of rows, which may be unknown.
    seeds = add(_constant(*range(count)), multiply(words[0] if words else rest[0], _constant(0)))
    blocks = len(words) // 4 * 4
    state = _long(words[:blocks], seeds) if blocks else add(seeds, _constant(_P5))
    state = add(state, _constant(len(words) * 8 + len(rest) * 4))
    for word in words[blocks:]:
        mixed = bitwise_xor(state, _round(_constant(0), word))
        state = add(multiply(_rotated(mixed, 27), _constant(_P1)), _constant(_P4))
    for word in rest:
        mixed = bitwise_xor(state, multiply(word, _constant(_P1)))
        state = add(multiply(_rotated(mixed, 23), _constant(_P2)), _constant(_P3))
    for shift, factor in ((33, _P2), (29, _P3), (32, 1)):
        state = multiply(bitwise_xor(state, _right(state, shift)), _constant(factor))
    bound = _constant(size)
    # The highest bit of an unsigned number is a sign here: the other 63 bits are taken first.
    high = multiply(remainder(_right(state, 1), bound), _constant(2))
    found = remainder(add(high, bitwise_and(state, _constant(1))), bound)
    made = reshape(unsqueeze(found, [2]), [-1, count, 1], name=name)
    return lod_reset(made, input) if input.lod else made
