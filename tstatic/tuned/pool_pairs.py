"""Maximum over windows of 2 x 2 side by side: works on whole rows and on the rows of a whole block at once.

numpy handles runs of contiguous values several times faster than every second value, and begins an inner loop in 5 ns:
rows are gathered and scattered as one element each (:func:`as_rows`), all else runs over contiguous blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tstatic.tuned._common import Array, flat

# Times a 32-bit value it is that value twice in 64 bits.
_TWICE = np.uint64(0x1_0000_0001)


def are_pairs(x_shape: Sequence[int], out_shape: Sequence[int]) -> bool:
    """Returns whether windows that touch each other, cover the input once and have as many outputs are 2 x 2."""
    return x_shape[2] == 2 * out_shape[2] and x_shape[3] == 2 * out_shape[3] > 0


def fits(*arrays: Array) -> bool:
    """Returns whether these kernels may work on such arrays: 4 bytes a value, contiguous."""
    return all(a.itemsize == 4 and a.dtype == arrays[0].dtype and a.flags.c_contiguous for a in arrays)


def as_rows(array: Array, width: int) -> Array:
    """Views every row of ``width`` values of a contiguous array as one element: ``[pairs of rows, 2]``."""
    return array.reshape(-1, 2 * width).view(f"V{array.itemsize * width}")


def maximum(x: Array, out: Array, scratch: Sequence[Array]) -> None:
    """Computes ``out[n,c,i,j]``, the maximum of ``x[n, c, 2i : 2i + 2, 2j : 2j + 2]``; NaN wins.

    Args:
        x: ``[n, c, h, w]``; ``out``: ``[n, c, h / 2, w / 2]``, written.
        scratch: Two buffers of twice as many values as ``out`` has.
    """
    rows = as_rows(x, x.shape[3])
    upper, lower = (flat(b, (2 * out.size,)) for b in scratch)
    # Vertical pairs first: they are two contiguous runs, and what is left for the slow stride of 2 is half as much.
    np.copyto(upper.view(rows.dtype), rows[:, 0])
    np.copyto(lower.view(rows.dtype), rows[:, 1])
    np.maximum(upper, lower, out=upper)
    np.maximum(upper[0::2], upper[1::2], out=out.reshape(-1))


@lru_cache(maxsize=16)
def _lower_rows(count: int, row: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Returns words of a mask with all bits set in every second row of ``row`` words."""
    pattern = np.zeros((count // (2 * row), 2, row), word)
    pattern[:, 1] = ~word.type(0)
    pattern.setflags(write=False)
    return pattern.reshape(-1)


def _first_wins(mask: Array, width: int, spare: Array) -> None:
    """Leaves of each 2 x 2 window's truth values the first in row-major order.

    Rows of truth values are read as words of several windows (bytes 0 and 1 are a window's left and right value).

    Args:
        mask: Truth values, flat, ``width`` to a row, in pairs of rows; written.
        spare: As many bytes.
    """
    # The widest word that a row is made of: 8 truth values, 4 windows, per operation.
    size = next(s for s in (8, 4, 2) if width % s == 0)
    word = np.dtype(f"u{size}")
    words, other = mask.view(word), spare.view(word)
    left = word.type(int.from_bytes(b"\1\0" * (size // 2), "little"))
    row = width // size
    # The right one goes where the left one is set.
    np.bitwise_and(words, left, out=other)
    np.left_shift(other, word.type(8), out=other)
    np.bitwise_and(other, words, out=other)
    np.bitwise_xor(words, other, out=words)
    # Windows that have one in the upper row lose those of the lower row, which follows at once.
    np.right_shift(words, word.type(8), out=other)
    np.bitwise_or(other, words, out=other)
    np.bitwise_and(other, left, out=other)
    # The product copies a window's byte to both of its bytes.
    np.multiply(other, word.type(0x101), out=other)
    # Shifted by one row: what an upper row found meets the row under it; upper rows themselves are masked out.
    gone, below = other[:-row], words[row:]
    np.bitwise_and(gone, _lower_rows(words.size, row, word)[row:], out=gone)
    np.bitwise_and(gone, below, out=gone)
    np.bitwise_xor(below, gone, out=below)


def maximum_grad(x: Array, out: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    """Computes the gradient of :func:`maximum` where ``out`` has no NaN: ``dout`` goes to the first maximum of its window.

    Args:
        x, dx: ``[n, c, h, w]``; ``dx`` is written.
        out, dout: ``[n, c, h / 2, w / 2]``.
        scratch: Two buffers of truth values, one of 32-bit integers and one of values, each as large as ``x``.
    """
    count, width = x.size, x.shape[3]
    mask, spare, selected, values = (flat(b, (count,)) for b in scratch)
    half = values[: count // 2]
    twice = half.view(np.uint64)
    # Each value twice side by side, as one multiplication of 64-bit integers, then each row twice.
    everywhere = selected.view(x.dtype)
    rows = as_rows(everywhere, width)
    np.multiply(out.reshape(-1).view(np.uint32), _TWICE, out=twice, dtype=np.uint64)
    np.copyto(rows[:, 0], half.view(rows.dtype))
    np.copyto(rows[:, 1], half.view(rows.dtype))
    np.equal(x.reshape(-1), everywhere, out=mask)
    _first_wins(mask, width, spare)
    # True is the byte 1; minus that, widened, has all bits set. Bits, not products: an infinite gradient leaves zeros.
    chosen = mask.view(np.int8)
    np.negative(chosen, out=chosen)
    np.copyto(selected, chosen)
    # ``dx`` takes every gradient four times over, and keeps the one that the mask selects.
    rows = as_rows(dx, width)
    np.multiply(dout.reshape(-1).view(np.uint32), _TWICE, out=twice, dtype=np.uint64)
    np.copyto(rows[:, 0], half.view(rows.dtype))
    np.copyto(rows[:, 1], half.view(rows.dtype))
    bits = dx.reshape(-1).view(np.int32)
    np.bitwise_and(bits, selected, out=bits)
