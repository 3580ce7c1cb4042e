"""Measures peers in turns: every turn times each of them once, in a random order, long enough to be told from the clock's steps."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tstatic.tools.benchlib.timers import Run, Timer

LONG = 0.05
"""Seconds from which on a run needs no other one before it."""
ALIKE = 3.0
"""Peers whose times differ by less than this factor have samples of equally many runs."""
TRIES = 4
"""How often a run is tried, before its repetitions are chosen."""


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
    found = _samples({name: _estimate(runs, timer, setting) for name, runs in ready.items()}, setting)
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


def _samples(estimates: Mapping[str, float], setting: Setting) -> dict[str, Samples]:
    """Returns empty samples with the runs of each.

    Peers that take about the same get the same number: a longer sample meets more of what other processes do.
    """
    found: dict[str, Samples] = {}
    leader = 0.0
    for name, seconds in sorted(estimates.items(), key=lambda pair: pair[1]):
        if not leader or seconds > ALIKE * leader:
            leader = seconds
        found[name] = Samples([], max(1, math.ceil(setting.seconds / max(leader, 1e-9))), seconds)
    return {name: found[name] for name in estimates}


def _estimate(runs: list[Run], timer: Timer, setting: Setting) -> float:
    """Returns the seconds of a run: the least of some tries that are long enough to be told from the clock's steps."""
    timer.seconds(runs, len(runs))  # what is made at the first run is not measured
    count = 1
    while True:
        took = timer.seconds(runs, count)
        if took >= setting.seconds / 4 or count >= 1 << 20:
            break
        count *= 4
    tries = 0 if took >= LONG else TRIES
    return min([took, *(timer.seconds(runs, count) for _ in range(tries))]) / count
