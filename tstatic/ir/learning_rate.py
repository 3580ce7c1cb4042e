"""The rate of an optimizer without a scheduler, which ``set_lr`` changes between two runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SetRate:
    """The entry of such a rate in ``Program.learning_rates``, which copies of the program share.

    Attributes:
        value: The rate that ``set_lr`` gave; ``None`` before, as long as the startup program or a loaded file decides.
    """

    value: float | None = None


__all__ = ["SetRate"]
