"""Decides whether two peers differ: an interval of the median ratio, and an effect that the noise control does not show.

Peers take turns in random order, and each turn measures every peer once, so drift changes both times of a turn alike. The
logarithms of the ratios of a turn are then as likely above their median as below it, whatever the noise is like: heavy tails,
other processes, steps of the clock. The interval of the median comes from their order alone (the sign test), so it needs no other
assumption. What it cannot see is a bias that stays through all turns, such as where memory happens to lie. One peer is therefore
prepared and measured twice, as if it were two, and a difference counts only if it is larger than what these two show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ERROR = 0.001
"""Probability that the interval of a ratio of equals leaves out 1, by chance."""
FLOOR = 0.03
"""Smallest relative difference that counts: less is within what the placement of memory changes."""
BAND = 0.05
"""Two peers are the same only if the whole interval of their ratio is nearer to 1 than this: a noisy machine decides nothing."""
CONTROL_FACTOR = 2.0
"""How many times the control's own median difference a difference must be."""

Finding = Literal["faster", "slower", "same", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """How one peer compares with another.

    Attributes:
        ratio: Median of its times over the other's: below 1 it is faster.
        low, high: Interval of that median.
        effect: Relative difference that counts, from the control.
        finding: ``faster`` or ``slower`` where the ratio differs by more than what counts, and its interval leaves out 1; ``same``
            where the whole interval lies within 5 % of 1 (or within the smallest difference that counts, if that is more);
            ``undecided`` otherwise, and with too few samples.
    """

    ratio: float
    low: float
    high: float
    effect: float
    finding: Finding


def paired(mine: Sequence[float], other: Sequence[float], control: float = 0.0, floor: float = FLOOR) -> Judgement:
    """Compares two peers of one run, whose samples belong together turn by turn.

    Args:
        mine, other: Seconds per run, in the order of the turns.
        control: The control's difference (:func:`control_difference`).
        floor: Smallest relative difference that counts.

    Example:
        >>> slow, fast = [1.2 + i / 100 for i in range(15)], [1.0 + i / 100 for i in range(15)]
        >>> paired(fast, slow).finding
        'faster'
    """
    logs = sorted(math.log(a / b) for a, b in zip(mine, other, strict=True))
    rank = _sign_rank(len(logs))
    return _judged(median(logs), logs[rank] if rank >= 0 else -math.inf, logs[-1 - rank] if rank >= 0 else math.inf,
                   control, floor)  # fmt: skip


def unpaired(mine: Sequence[float], other: Sequence[float], control: float = 0.0, floor: float = FLOOR) -> Judgement:
    """Compares samples of two runs, which do not belong together, by the ranks of all ratios (Hodges and Lehmann's interval)."""
    logs = sorted(math.log(a / b) for a in mine for b in other)
    n, m = len(mine), len(other)
    z = 3.2905  # of ERROR, two-sided
    rank = math.floor(n * m / 2 - z * math.sqrt(n * m * (n + m + 1) / 12)) - 1
    return _judged(median(logs), logs[rank] if rank >= 0 else -math.inf, logs[-1 - rank] if rank >= 0 else math.inf,
                   control, floor)  # fmt: skip


def _judged(middle: float, low: float, high: float, control: float, floor: float) -> Judgement:
    effect, band = max(math.log1p(floor), CONTROL_FACTOR * control), math.log1p(max(BAND, floor))
    finding: Finding = "undecided"
    if abs(middle) > effect and (low > 0 or high < 0) and not math.isinf(low):
        finding = "slower" if middle > 0 else "faster"
    elif -band <= low and high <= band:
        finding = "same"
    return Judgement(math.exp(middle), math.exp(low), math.exp(min(high, 700)), math.expm1(effect), finding)


def control_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the logarithm of the median ratio between two measurements of one peer, without its sign."""
    return abs(median(sorted(math.log(a / b) for a, b in zip(first, second, strict=True))))


def median(values: Sequence[float]) -> float:
    """Returns the median of sorted values."""
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the sample below which a share of the samples lies."""
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))]


def _sign_rank(count: int) -> int:
    """Returns how many of the sorted samples lie outside the interval of the median at each end; -1 if there are too few."""
    rank, below = -1, 0.0
    while True:
        below += math.comb(count, rank + 1) / 2.0**count
        if 2 * below > ERROR or rank + 1 > count // 2:
            return rank
        rank += 1


def least_samples() -> int:
    """Returns how many samples a judgement needs."""
    return next(n for n in range(2, 64) if _sign_rank(n) >= 0)
