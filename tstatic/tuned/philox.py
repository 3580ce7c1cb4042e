"""Philox-4x32: counter-based random bits, and the distributions made from them.

The generator (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) maps a counter of
four 32-bit words, under a key of two, to four random words, in ten rounds (fewer only where this is said). This layout is
fixed, kernels for other devices follow it:

* key = (low word of the seed, high word of the seed XOR (place * 0x9E3779B9 mod 2^32));
* elements come in blocks of four: element ``i`` is word ``i % 4`` of block ``b = i // 4``;
* counter of block b = (b mod 2^32, (b >> 32) XOR (iteration << 8 mod 2^32), position, run);
* the *second draw* of an element, for types that need more than 32 bits, is the same word of the same block with the
  highest bit of the counter's last word flipped.

From the bits of an element (``bits``, 32 of them; ``second`` is its second draw) follow

* uniform in [0, 1): float32 ``(bits >> 8) * 2^-24``; float64 ``(bits * 2^21 + (second >> 11)) * 2^-53``, so that both
  types give the same number up to 2^-24; float16 and bfloat16 are the float32 result rounded once;
* normal (Box-Muller): words 0 and 1 of a block make a pair, and words 2 and 3. With ``u1`` the first's uniform number
  plus 2^-24 (2^-53 in float64), which lies in (0, 1], ``u2`` the second's and ``r = sqrt(-2 ln u1)``, the even element
  is ``r cos(2 pi u2)`` and the odd one ``r sin(2 pi u2)``. The largest float32 value is 5.77;
* truncated normal: the normal quantile of ``low + u (high - low)`` in float64, where low and high are the normal
  distribution function at the bounds and ``u = (bits + 0.5) * 2^-32``, for float64 results ``(53 bits + 0.5) * 2^-53``;
* integer in [0, n): ``bits * n >> 32`` for n <= 2^32, with ``bits * 2^32 + second`` and a shift by 64 above. A value's
  chance is off by less than n / 2^32 (n / 2^64) of itself;
* permutation: elements sorted by ``(bits, index)``; equal bits, which n elements have n^2 / 2^33 times, keep order;
* kept by dropout: for ``2^-7 <= p <= 1 - 2^-7`` by 16 bits of an element: ``half >= round(p * 2^16)`` (ties to even), which
  moves a chance by less than 2^-10 of itself. For all other p: ``bits >= floor(p * 2^32)``. ``draw.keep_rule`` says which.

The *half* of an element is one of eight in a block, made in seven rounds: element ``i`` takes half ``i % 8`` of block
``b = i // 8``, which is the low (``i`` even) or the high 16 bits of word ``i % 8 // 2``. Key and counter are as above. Seven
rounds pass BigCrush, too, as the paper says, and flash attention draws its dropout with as many.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# Those of Philox4x32 (Salmon et al., 2011).
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
# Added to the key in each round: the golden ratio and sqrt(3) - 1, as fractions of 32 bits.
WEYL = (0x9E3779B9, 0xBB67AE85)
# As the paper recommends and as curand and torch use; 7 are the fewest that pass its tests.
ROUNDS = 10
HALF_ROUNDS = 7
"""Rounds of the halves by which dropout keeps elements: the time of dropout is that of its random numbers."""
# All bits of a word of 32.
WORD = 0xFFFFFFFF
# Flipped in the last counter word, the number of the run: below 2^31 runs, a second draw repeats no first one.
SECOND_DRAW = 0x80000000

BLOCKS = 1 << 14
"""Blocks of four per chunk: five buffers of 128 KiB stay in the second-level cache, and the 85 calls of a chunk cost
0.6 ns an element where 4,096 blocks cost 2.5."""
CHUNK = 4 * BLOCKS
"""Elements per chunk."""


class PhiloxKey(NamedTuple):
    """The two key words and what is added to the block number to make the counter."""

    k0: Any
    k1: Any
    c1: Any
    c2: Any
    c3: Any

    def second(self) -> PhiloxKey:
        """Returns the key of the second draw."""
        return self._replace(c3=self.c3 ^ SECOND_DRAW)


def philox_key(rng: Any, seed: int = 0) -> PhiloxKey:
    """Returns the words of an op's key.

    Args:
        rng: An ``RngKey``.
        seed: The op's own ``seed`` attribute; replaces the key's seed when it is not 0.
    """
    value = seed or rng.seed
    return PhiloxKey(
        value & WORD,
        ((value >> 32) & WORD) ^ ((rng.place * WEYL[0]) & WORD),
        (rng.iteration << 8) & WORD,
        rng.position & WORD,
        rng.run & WORD,
    )


# --------------------------------------------------------------------------------------------------- any array library
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, rounds: int = ROUNDS) -> tuple[Any, Any, Any, Any]:
    """Runs the rounds on four counter words: numpy uint64 arrays, torch int64 tensors or Python ints below 2^32.

    A product needs 64 bits. int64 wraps around to the same bits, and the mask after the shift drops the copied sign.
    """
    for _ in range(rounds):
        p0 = c0 * MULTIPLIERS[0]
        p1 = c2 * MULTIPLIERS[1]
        # Words 1 and 3 are the low halves; 0 and 2 mix the other product's high half with an unmultiplied word and the key.
        c0, c1, c2, c3 = ((p1 >> 32) & WORD) ^ c1 ^ k0, p1 & WORD, ((p0 >> 32) & WORD) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def _torch_words(torch: Any, first: int, end: int, key: PhiloxKey, device: Any, rounds: int) -> tuple[Any, ...]:
    """Returns the four words of blocks ``first .. end`` as int64 tensors."""
    block = torch.arange(first, end, dtype=torch.int64, device=device)
    zero = torch.zeros_like(block)
    counter = block & WORD, ((block >> 32) & WORD) ^ key.c1, zero + key.c2, zero + key.c3
    return philox(*counter, key.k0, key.k1, rounds)


def torch_bits(torch: Any, n: int, key: PhiloxKey, start: int = 0, device: Any = None) -> Any:
    """Returns the random words of elements ``start .. start + n`` as an int64 tensor of shape [n], values below 2^32."""
    first = start // 4
    words = _torch_words(torch, first, -(-(start + n) // 4), key, device, ROUNDS)
    return torch.stack(words, -1).reshape(-1)[start - 4 * first :][:n]


def torch_halves(torch: Any, n: int, key: PhiloxKey, start: int = 0, device: Any = None) -> Any:
    """Returns the halves of elements ``start .. start + n`` as an int64 tensor of shape [n], values below 2^16."""
    first = start // 8
    words = _torch_words(torch, first, -(-(start + n) // 8), key, device, HALF_ROUNDS)
    halves = [half for word in words for half in (word & 0xFFFF, word >> 16)]
    return torch.stack(halves, -1).reshape(-1)[start - 8 * first :][:n]


# ------------------------------------------------------------------------------------------------------------- numpy
class _Buffers(threading.local):
    """Work space of one chunk, one set per thread and dtype, made at first use, so that a step allocates nothing."""

    def __init__(self) -> None:
        self.words = np.empty((5, BLOCKS), np.uint64)
        self.chunks: dict[Any, Array] = {}


_buffers = _Buffers()


def buffers_of_thread(dtype: Any) -> Array:
    """Returns six buffers of ``CHUNK`` elements of a dtype that belong to the calling thread."""
    found = _buffers.chunks.get(dtype)
    if found is None:
        found = _buffers.chunks[dtype] = np.empty((6, CHUNK), dtype)
    return found


# Constants as arrays of the type: a ufunc call on a chunk takes 0.5 us longer for a Python int.
_MULTIPLY = tuple(np.array(m, np.uint64) for m in MULTIPLIERS)
_LOW = np.array(WORD, np.uint64)
_32 = np.array(32, np.uint64)
_COUNT = np.arange(BLOCKS, dtype=np.uint64)
_COUNT.setflags(write=False)


@lru_cache(maxsize=256)
def _schedule(k0: int, k1: int, rounds: int) -> tuple[tuple[Array, Array], ...]:
    """Returns the key words of rounds 4 to the last as arrays, which ufuncs take faster than ints; runs change only the counter."""
    return tuple(
        (np.array((k0 + i * WEYL[0]) & WORD, np.uint64), np.array((k1 + i * WEYL[1]) & WORD, np.uint64))
        for i in range(3, rounds)
    )


def _words(first: int, count: int, key: PhiloxKey, work: Array, rounds: int) -> tuple[Array, Array, Array, Array]:
    """Returns the four words of ``count`` blocks as uint64 views of ``work`` of which only the low 32 bits count.

    The blocks must lie within one multiple of 2^32. The counter's last three words are the same for all of them, so
    most of the first two rounds is done on Python ints.
    """
    # Local names: some 85 calls a chunk look them up.
    mul, shift, xor, mask = np.multiply, np.right_shift, np.bitwise_xor, np.bitwise_and
    k0, k1, c1, c2, c3 = (int(k) for k in key)
    c1 ^= (first >> 32) & WORD
    a, b, c, d, t = (row[:count] for row in work)
    low, s = _LOW, _32

    def word(value: int) -> Array:
        return np.array(value & WORD, np.uint64)

    # Round 1: word 0 varies; its product goes to words 2 (high half) and 3 (low half).
    np.add(_COUNT[:count], np.uint64(first & WORD), a)
    mul(a, _MULTIPLY[0], a)
    p1 = MULTIPLIERS[1] * c2
    c0, c1 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD
    shift(a, s, c)
    xor(c, word(c3 ^ k1), c)
    k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    # Round 2: words 2 and 3 vary.
    p0 = MULTIPLIERS[0] * c0
    mul(c, _MULTIPLY[1], c)
    shift(c, s, b)
    xor(b, word(c1 ^ k0), b)
    mask(a, low, d)
    xor(d, word((p0 >> 32) ^ k1), d)
    c3 = p0 & WORD
    k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    # Round 3: words 0 (b), 1 (low half of c) and 2 (d) vary.
    mul(b, _MULTIPLY[0], b)
    mul(d, _MULTIPLY[1], d)
    shift(d, s, t)
    xor(c, t, c)
    xor(c, word(k0), c)
    mask(c, low, c)
    shift(b, s, a)
    xor(a, word(c3 ^ k1), a)
    # Now words 0..3 are c, low half of d, a, low half of b.
    x0, x1, x2, x3 = c, d, a, b
    # Only what is multiplied next has to be masked to 32 bits: the product of a dirty word would overflow.
    for key0, key1 in _schedule(int(key.k0), int(key.k1), rounds):
        mul(x0, _MULTIPLY[0], x0)
        mul(x2, _MULTIPLY[1], x2)
        shift(x2, s, t)
        xor(x1, t, x1)
        xor(x1, key0, x1)
        mask(x1, low, x1)
        shift(x0, s, t)
        xor(x3, t, x3)
        xor(x3, key1, x3)
        mask(x3, low, x3)
        x0, x1, x2, x3 = x1, x2, x3, x0
    return x0, x1, x2, x3


def fill_bits(out: Array, start_block: int, key: PhiloxKey, rounds: int = ROUNDS) -> None:
    """Writes the words of blocks from ``start_block`` on into ``out`` (uint32, one-dimensional, contiguous).

    What is written depends on the block numbers alone, so any cut of the work gives the same bits. The last block may
    be incomplete.
    """
    work = _buffers.words
    done, total = 0, out.shape[0]
    while done < total:
        block = start_block + done // 4
        # A chunk stays within one value of the counter's second word.
        count = min(BLOCKS, -(-(total - done) // 4), (1 << 32) - (block & WORD))
        words = _words(block, count, key, work, rounds)
        whole = min(count, (total - done) // 4)
        # The conversion to uint32 drops the upper halves, which need no mask for that.
        four = out[done : done + 4 * whole].reshape(whole, 4)
        for lane, word in enumerate(words):
            np.copyto(four[:, lane], word[:whole], casting="unsafe")
        done += 4 * whole
        if whole < count:
            # At most three words of an incomplete block.
            for lane in range(total - done):
                out[done + lane] = int(words[lane][whole]) & WORD
            done = total


def draw_bits(out: Array, key: PhiloxKey, start: int = 0) -> None:
    """Writes the words of elements ``start, start + 1, ...`` into ``out`` (uint32, one-dimensional, contiguous)."""
    # Words before the first whole block come from a block of their own.
    skip = min(-start % 4, out.shape[0])
    if skip:
        lead = np.empty(4, np.uint32)
        fill_bits(lead, start // 4, key)
        out[:skip] = lead[start % 4 :][:skip]
    fill_bits(out[skip:], (start + skip) // 4, key)


def random_bits(n: int, key: PhiloxKey, start: int = 0) -> Array:
    """Returns the random words of ``n`` elements: uint32 of shape [n]."""
    out = np.empty(n, np.uint32)
    draw_bits(out, key, start)
    return out
