"""Chooses seeds: the program's own, else that of ``paddle.seed``, else entropy drawn once per process."""

from __future__ import annotations

import secrets

from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export

_seed: int | None = None
_epoch = 0
_entropy = 0


@export("tensor.seed", "framework.seed")
def seed(seed: int) -> int:
    """Sets the seed of all programs without a ``random_seed``, and restarts their run counts.

    Args:
        seed: Any int; taken modulo 2**64.

    Raises:
        ProgramTypeError: If it is not an int.

    Example:
        >>> _ = paddle.seed(7)
        >>> x = paddle.rand([3])
        >>> exe = static.Executor()
        >>> first = exe.run(fetch_list=[x])[0]
        >>> _ = paddle.seed(7)
        >>> bool((exe.run(fetch_list=[x])[0] == first).all())
        True
    """
    global _seed, _epoch
    check_type(seed, int, "seed", "paddle.seed")
    _seed = seed % 2**64
    _epoch += 1
    return _seed


def current(program_seed: int) -> int:
    """Returns the seed of a program's random ops."""
    global _entropy
    # As in Paddle, a program's `random_seed` of 0 means that it has none.
    if program_seed:
        return program_seed % 2**64
    if _seed is not None:
        return _seed
    if not _entropy:
        # Never 0, which means that no seed is drawn yet.
        _entropy = secrets.randbits(63) | 1
    return _entropy


def epoch() -> int:
    """Returns a number that changes with every call of ``seed``; run counts start at 0 in each epoch."""
    return _epoch


def reset() -> None:
    """Forgets ``seed`` (for tests)."""
    global _seed
    _seed = None
