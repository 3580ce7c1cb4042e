"""Measures peers in turns: every turn times each of them once, in a random order, long enough to be told from the clock's steps."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tstatic.benchlib.timers import Run, Timer

LONG = 0.05
"""Seconds from which on a run needs no other one before it."""


@dataclass(frozen=True)
class Setting:
    """How much is measured.

    Attributes:
        repeats: Turns.
        seconds: Least seconds of a sample; it repeats a run as often as that takes.
        most: Seconds after which a row of slow runs gets no more turns than ``least``, and after three times of them none.
        least: Turns that a judgement needs; a row with fewer is undecided.
    """

    repeats: int = 25
    seconds: float = 0.002
    most: float = 10.0
    least: int = 11


@dataclass
class Samples:
    """The times of one peer.

    Attributes:
        seconds: Seconds per run, one for each turn.
        inner: Runs of a sample.
        first: Seconds of a run when the number was chosen.
    """

    seconds: list[float]
    inner: int
    first: float


def measure(
    peers: Mapping[str, Sequence[Run]], timer: Timer, setting: Setting, rng: random.Random
) -> dict[str, Samples]:
    """Times peers in turns.

    Args:
        peers: Name -> ready runs on several sets of inputs, which take turns.
        timer: What times them.
        setting: How much is measured.
        rng: Draws the order of each turn.

    Returns:
        Name -> samples; those of one turn have the same position.
    """
    ready = {name: list(runs) for name, runs in peers.items()}
    found = {name: Samples([], *_inner(runs, timer, setting)) for name, runs in ready.items()}
    order = list(ready)
    turns, spent = 0, 0.0
    while turns < setting.repeats and spent < (3 if turns < setting.least else 1) * setting.most:
        rng.shuffle(order)
        for name in order:
            timer.sleep(timer.pause)
            inner = found[name].inner
            # Caches and sleeping threads: the first run after another peer's is not counted, unless it is long and they are not
            # what decides.
            if inner > 1 or found[name].first < LONG:
                spent += timer.seconds(ready[name], 1)
            took = timer.seconds(ready[name], inner)
            spent += took
            # Five digits are more than a clock tells, and files stay small.
            found[name].seconds.append(float(f"{max(took, 1e-12) / inner:.5g}"))
        turns += 1
    return found


def _inner(runs: list[Run], timer: Timer, setting: Setting) -> tuple[int, float]:
    """Returns how often a run is repeated in one sample, and the seconds of a run."""
    timer.seconds(runs, len(runs))  # what is made at the first run is not measured
    count = 1
    while True:
        took = timer.seconds(runs, count)
        if took >= setting.seconds or count >= 1 << 20:
            return count, took / count
        # Not too far at once: a first run may have been quick by chance.
        wanted = int(count * setting.seconds / max(took, 1e-9)) + 1
        count = max(count + 1, min(wanted, 10 * count))
