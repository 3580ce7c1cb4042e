"""Checks for your own programs: random programs and feeds, equivalence under strategies, gradients.

* ``recipe``           a program as plain data
* ``strategies``       hypothesis strategies (the only file that needs hypothesis)
* ``program_builder``  builds a recipe op by op, running each in its dtype and in float64; ``op_kinds`` and ``work`` choose the ops
* ``patterns``         the fusions' patterns as parts of programs
* ``feeds``            feeds for any program
* ``tolerance``        how far two results may differ, and the program in float64
* ``perturbation``     how far a result moves with its inputs; with ``magnitudes`` and ``rounding_noise``, its conditioning
* ``runner``           runs one program under several strategies
* ``equivalence``      ``assert_equivalent``
* ``shrink``           the smallest program that shows a difference; ``script`` writes it down
* ``gradients``        ``check_grads``
"""

from typing import TYPE_CHECKING, Any

from tstatic.errors import needed_for
from tstatic.testing.equivalence import EquivalenceError, assert_equivalent
from tstatic.testing.feeds import sample_feeds
from tstatic.testing.gradients import GradientError, check_grads
from tstatic.testing.recipe import Input, Recipe, Step, sample

if TYPE_CHECKING:
    from tstatic.testing.strategies import feeds_for, programs

__all__ = [
    "EquivalenceError",
    "GradientError",
    "Input",
    "Recipe",
    "Step",
    "assert_equivalent",
    "check_grads",
    "feeds_for",
    "programs",
    "sample",
    "sample_feeds",
]


def __getattr__(name: str) -> Any:
    """Loads the hypothesis strategies when they are asked for, so that the rest works without hypothesis."""
    if name in ("feeds_for", "programs"):
        with needed_for(f"tstatic.testing.{name}"):
            from tstatic.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
