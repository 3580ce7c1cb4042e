"""Checks for your own programs: random programs and feeds, equivalence under strategies, gradients.

* ``recipe``, ``parts``, ``program_builder``  a program as plain data, its parts, and its construction step by step
* ``strategies``, ``op_kinds``, ``feeds``  draw programs, ops and patterns of fusions, and feeds (only the first needs hypothesis)
* ``op_samples``  draws inputs of one op
* ``tolerance``, ``magnitudes``  how far two results may differ
* ``runner``, ``equivalence``  one program under several strategies
* ``shrink``, ``script``  the smallest program that shows a difference, as a script
* ``gradients``  ``check_grads``
* ``pytest_plugin``  fixtures for tests of users' programs
"""

from typing import TYPE_CHECKING, Any

from tstatic.errors import needed_for
from tstatic.tools.testing.equivalence import Equivalence, EquivalenceError, assert_equivalent
from tstatic.tools.testing.feeds import sample_feeds
from tstatic.tools.testing.gradients import GradientError, check_grads
from tstatic.tools.testing.parts import Input, Step, sample
from tstatic.tools.testing.recipe import Recipe

if TYPE_CHECKING:
    from tstatic.tools.testing.strategies import feeds_for, programs

__all__ = [
    "Equivalence",
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
            from tstatic.tools.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
