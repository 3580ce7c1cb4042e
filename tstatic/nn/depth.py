"""How deep a network may be that one argument asks for."""

from __future__ import annotations

from typing import Any

from tstatic.ir.checks import check_int

MOST_LAYERS = 10_000
"""Building more would not end within an hour."""


def check_layers(count: Any, function: str) -> int:
    """Returns how many layers the argument ``num_layers`` of a function asks for.

    Raises:
        ProgramTypeError: If it is not a whole number.
        ShapeError: If it is below 1, or above :data:`MOST_LAYERS`.
    """
    return check_int(count, "num_layers", function, 1, MOST_LAYERS)


__all__ = ["MOST_LAYERS", "check_layers"]
