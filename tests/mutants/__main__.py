"""Plants every mutant, and every fault of ``tests/interpret/faults.py``, and says which test caught it.

``python -m tests.mutants [WORDS]`` takes those whose names have all the words; 1 where too many survive. ``--check`` lists them and
says whether each still fits its source, without a run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from tests.interpret.faults import FAULTS
from tests.mutants.change import DoesNotApplyError
from tests.mutants.planting import Outcome, plant, plant_in_kernels
from tests.mutants.table import MUTANTS

CAUGHT = 57 / 60
"""Part of them that must be caught."""


def main() -> int:
    """Plants those whose name contains all words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument(
        "--check", action="store_true", help="list the mutants and whether they fit their sources; run no test"
    )
    given = parser.parse_args()
    words = given.words
    todo: list[tuple[str, Callable[[], Outcome]]] = []
    wrong = []
    for mutant in MUTANTS:
        todo.append((mutant.name, partial(plant, mutant)))
        try:
            mutant.applies()
        except DoesNotApplyError as error:
            wrong.append(f"{mutant.name}: {error}")
    todo += [(f"generated kernels: {f.name}", partial(plant_in_kernels, f.name)) for f in FAULTS]
    todo = [(name, go) for name, go in todo if all(word in name for word in words)]
    if wrong or not todo:
        print("\n".join(wrong) or "none has these words in its name")
        return 2
    if given.check:
        print(*(name for name, _ in todo), f"{len(todo)} mutants, all fit their sources", sep="\n")
        return 0
    survived = broken = 0
    for name, go in todo:
        outcome = go()
        broken += bool(outcome.problem)
        survived += not outcome.killed_by and not outcome.problem
        what = outcome.problem or (f"killed by {outcome.killed_by}" if outcome.killed_by else "SURVIVED")
        print(f"{outcome.seconds:5.1f} s  {name}: {what}", flush=True)
    print(f"{len(todo)} mutants, {survived} survived, {broken} could not be judged")
    return int(len(todo) - survived < CAUGHT * len(todo) or broken > 0)


if __name__ == "__main__":
    sys.exit(main())
