"""Chooses seeds: the program's own, else that of ``paddle.seed``, else entropy drawn once per process."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export
from tstatic.no_effect import no_effect

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


@dataclass(frozen=True)
class RandomState:
    """A point from which random numbers can be drawn again.

    Attributes:
        seed: The seed of the programs that have none of their own; their run counts start at 0.
    """

    seed: int


@export("tensor.get_rng_state")
@no_effect(device="one seed serves all devices")
def get_rng_state(device: Any = None) -> list[RandomState]:
    """Returns a state from which :func:`set_rng_state` makes programs draw the numbers again that follow this call.

    A new seed, which follows from the present one, is used from here on, and run counts start again.

    Example:
        >>> x, exe = paddle.rand([3]), static.Executor()
        >>> state = paddle.get_rng_state()
        >>> first = exe.run(fetch_list=[x])[0]
        >>> paddle.set_rng_state(state)
        >>> bool((exe.run(fetch_list=[x])[0] == first).all())
        True
    """
    # Multiplier and addend of a linear congruential generator that passes through all 64-bit numbers (Knuth, MMIX).
    following = (current(0) * 6364136223846793005 + 1442695040888963407 + _epoch) % 2**64
    seed(following)
    return [RandomState(following)]


@export("tensor.set_rng_state")
@no_effect(device="one seed serves all devices")
def set_rng_state(state_list: Sequence[RandomState], device: Any = None) -> None:
    """Goes back to a state of :func:`get_rng_state`.

    Args:
        state_list: What that returned.

    Raises:
        ProgramTypeError: If it is something else.
    """
    for state in state_list:
        seed(check_type(state, RandomState, "state_list", "set_rng_state").seed)


@export("tensor.get_cuda_rng_state")
def get_cuda_rng_state() -> list[RandomState]:
    """Returns an empty list: the state of :func:`get_rng_state` serves all devices."""
    return []


@export("tensor.set_cuda_rng_state")
@no_effect(state_list="one seed serves all devices; set_rng_state sets it")
def set_cuda_rng_state(state_list: Sequence[RandomState]) -> None:
    """Does nothing, see :func:`set_rng_state`."""


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
