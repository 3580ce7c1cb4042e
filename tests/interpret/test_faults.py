"""The oracle seen to fail: planted faults are caught by random programs, and where nothing is planted nothing is caught."""

from __future__ import annotations

import os
import random

import pytest

from tests.helpers.drawn import mixture
from tests.helpers.seed import SEED
from tests.interpret.faults import FAULTS, Fault
from tstatic import errors, testing

MOST = 200
"""Programs within which a fault must be caught."""
WANTED = os.environ.get("TSTATIC_FAULTS", "")
"""``all``, or the name of one."""
ALL = WANTED == "all"
SAMPLE = 4
MISSED = 1
"""How many of all faults may go unseen."""


NAMED = tuple(f for f in FAULTS if f.name == WANTED)
CHOSEN = FAULTS if ALL else NAMED or tuple(random.Random(SEED).sample(FAULTS, SAMPLE))


def caught_at(count: int, number: int) -> int | None:
    """The place of the first program whose results differ, of so many."""
    for place, (recipe, strategy) in enumerate(mixture(count, number)):
        try:
            testing.assert_equivalent(recipe, strategy, shrink=False)
        except testing.EquivalenceError:
            return place
        except errors.NumericsError:
            continue  # the unfused run refuses NaN that the program has drawn, or made
    return None


def test_there_are_twenty_one_faults() -> None:
    assert len({f.name for f in FAULTS}) == 21


def test_nothing_is_caught_where_nothing_is_planted() -> None:
    count = MOST if ALL else 30
    assert caught_at(count, 7) is None


def _found(fault: Fault, patch: pytest.MonkeyPatch) -> int | None:
    hits: list[str] = []
    fault.plant(patch, hits)
    place = caught_at(MOST, 7)
    patch.undo()
    assert hits, f"'{fault.name}' was planted and never took effect"
    print(f"{fault.name}: {'not caught' if place is None else f'caught by program {place}'}")
    return place


@pytest.mark.slow
def test_planted_faults_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = [f.name for f in CHOSEN if _found(f, monkeypatch) is None]
    assert len(missed) <= MISSED * ALL, f"of {len(CHOSEN)} faults {missed} went unseen"
