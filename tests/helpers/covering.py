"""A covering array over the properties of a strategy: each two values of each two properties meet in one of its rows."""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic import static
from tstatic.static.strategy.property import BOOL, OPTIONAL_BOOL

# It changes what a program computes, not how: the gradient of the loss is fed.
OTHER_MEANING = (static.BuildStrategy.GradientScaleStrategy.Customized,)
CANDIDATES = 40


def choices() -> dict[str, tuple[Any, ...]]:
    """Property -> its values, for all switches and enums of a BuildStrategy."""
    found: dict[str, tuple[Any, ...]] = {}
    for item in static.BuildStrategy.properties():
        if item.kind is BOOL:
            found[item.name] = False, True
        elif item.kind is OPTIONAL_BOOL:
            found[item.name] = None, True, False
        elif isinstance(item.default, enum.Enum):
            found[item.name] = tuple(v for v in type(item.default) if v not in OTHER_MEANING)
    return found


def pairs(row: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """Each two settings of a row."""
    return {(a, b) for a, b in itertools.combinations(sorted(row.items(), key=lambda s: s[0]), 2)}


def covering(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Rows that cover all pairs, greedily: each is the best of some that take value by value what covers most.

    Args:
        factors: Name -> values.
        seed: Of the order in which names are settled.
    """
    rng = random.Random(seed)
    names = sorted(factors)
    open_pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]}
    rows = []
    while open_pairs:
        best: dict[str, Any] = {}
        most = -1
        for _ in range(CANDIDATES):
            row: dict[str, Any] = {}
            for name in rng.sample(names, len(names)):
                gains = []
                for value in factors[name]:
                    new = (tuple(sorted(((name, value), s), key=lambda p: p[0])) for s in row.items())
                    gains.append((sum(p in open_pairs for p in new), rng.random(), value))
                row[name] = max(gains, key=lambda g: g[:2])[2]
            covered = len(pairs(row) & open_pairs)
            if covered > most:
                best, most = row, covered
        if not most:
            # All that is left lies apart from what greed takes: begin with one open pair.
            pair = next(iter(sorted(open_pairs, key=repr)))
            best = {**best, **dict(pair)}
        open_pairs -= pairs(best)
        rows.append(best)
    return rows


def strategies() -> list[static.BuildStrategy]:
    """A covering array over all switches and enums of a BuildStrategy."""
    found = []
    for row in covering(choices()):
        strategy = static.BuildStrategy()
        for name, value in row.items():
            setattr(strategy, name, value)
        found.append(strategy)
    return found
