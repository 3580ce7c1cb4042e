"""Hypothesis draws without the constants of this project's sources.

By default it reads the numbers and texts in the source of each module that is imported, generated kernels too, and draws one
in twenty values from them. What a seed draws would depend on which tests ran before, and parsing 500 files takes seconds in
each process.
"""

from __future__ import annotations

from hypothesis.internal.conjecture import providers


def draw_plainly() -> None:
    """Leaves the constants of this project out, for the rest of this process."""
    name = "_get_local_constants"
    known = providers._local_constants
    assert callable(getattr(providers, name)), "this version of hypothesis finds constants in another way"
    setattr(providers, name, lambda: known)
