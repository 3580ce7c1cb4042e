"""The rate of an optimizer without a scheduler, which ``set_lr`` changes between two runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SetRate:
    """The rate as programs hold it, which their copies share.

    Attributes:
        value: The rate that ``set_lr`` gave; ``None`` before, as long as the startup program or a loaded file decides.
    """

    value: float | None = None


__all__ = ["SetRate"]
