"""Chooses seeds: the program's own, else that of ``paddle.seed``, else entropy drawn once per process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_main_program, default_startup_program
from tstatic.ir.opdef import export
from tstatic.ir.program import Program
from tstatic.no_effect import no_effect
from tstatic.runtime.scope import global_scope

_seed: int | None = None
_epoch = 0
_entropy = 0
_PROCESS = secrets.randbits(64)
"""Tells processes apart: how often programs were run is known by numbers that each process gives."""


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
    # Counted even if the seed is the same: calling it again starts the numbers again.
    _epoch += 1
    return _seed


@dataclass(frozen=True)
class RandomState:
    """A point from which random numbers can be drawn again, for ``set_rng_state``.

    Attributes:
        seed: The seed of the programs that have none of their own.
        runs: Program uid -> (seed epoch, number of runs), of the scope that runs used.
        epoch: The seed epoch.
        drawn: State of the generator of data sets and samplers.
        process: A number of the process that the rest belongs to.
    """

    seed: int
    runs: Mapping[int, tuple[int, int]]
    epoch: int
    drawn: Mapping[str, Any]
    process: int


@export("tensor.get_rng_state")
@no_effect(device="one seed serves all devices")
def get_rng_state(device: Any = None) -> list[RandomState]:
    """Returns a state from which :func:`set_rng_state` makes programs draw the numbers again that follow this call.

    It changes nothing: the seed, how often each program was run in the present scope, and how far samplers have come.

    Example:
        >>> x, exe = paddle.rand([3]), static.Executor()
        >>> state = paddle.get_rng_state()
        >>> first = exe.run(fetch_list=[x])[0]
        >>> paddle.set_rng_state(state)
        >>> bool((exe.run(fetch_list=[x])[0] == first).all())
        True
    """
    # Steps in flight count, too.
    global_scope().in_flight.settle()
    return [RandomState(current(0), dict(global_scope().runs), _epoch, generator().bit_generator.state, _PROCESS)]


@export("tensor.set_rng_state")
@no_effect(device="one seed serves all devices")
def set_rng_state(state_list: Sequence[RandomState], device: Any = None) -> None:
    """Goes back to a state of :func:`get_rng_state`; the numbers of runs are set in the present scope.

    In another process programs draw as if none had been run yet; ``static.save`` keeps how often one was.

    Args:
        state_list: What that returned.

    Raises:
        ProgramTypeError: If it is something else.
    """
    for state in [check_type(state, RandomState, "state_list", "set_rng_state") for state in state_list]:
        seed(state.seed)
        if state.process != _PROCESS:
            continue
        # Programs with a seed of their own count on through all epochs.
        runs = {uid: (_epoch if begun == state.epoch else begun, count) for uid, (begun, count) in state.runs.items()}
        global_scope().in_flight.settle()
        present = global_scope().runs
        for uid in present.keys() - runs.keys():
            del present[uid]
        present.update(runs)
        generator().bit_generator.state = state.drawn


_drawn: tuple[int, np.random.Generator] = (-1, np.random.default_rng(0))


def generator() -> np.random.Generator:
    """Returns the process's generator of data sets and samplers, which ``paddle.seed`` starts anew."""
    global _drawn
    if _drawn[0] != _epoch:
        _drawn = _epoch, np.random.default_rng(current(0))
    return _drawn[1]


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


def _manual_program_seed(seed: int) -> None:
    """Sets ``random_seed`` of the default programs and of all programs made later.

    Raises:
        ProgramTypeError: If ``seed`` is not an int.
    """
    default_main_program().random_seed = seed
    default_startup_program().random_seed = seed
    Program().global_seed(seed)


def reset() -> None:
    """Forgets ``seed`` (for tests)."""
    global _seed
    _seed = None
