"""Ops that draw a random number per element, as expressions over it: kernels draw the number where they compute the element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tstatic.ir.types import Shape

DRAWN = "drawn"
"""The element's random word less 2^31, as int32: words in the order of signed numbers."""
HALF = "half"
"""The 16 bits by which dropout keeps the element, as int32."""
UNIT_24 = "unit24"
"""The upper 24 bits of the element's random word, as float32."""
UNIT_53 = "unit53"
"""53 bits of the two words of the element, as float64."""

NUMBERS = (DRAWN, HALF, UNIT_24, UNIT_53)
"""What the expressions of an op that draws may read beside its slots; ``tuned/philox.py`` says which words are whose."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an op that draws computes, element by element.

    Attributes:
        texts: Output slot -> expression over the slots' lower-case names, ``values`` and :data:`NUMBERS`.
        shape: Of the elements that draw a number each, in C order; it broadcasts to the result's.
        values: Name -> number.
    """

    texts: Mapping[str, str]
    shape: Shape
    values: Mapping[str, int | float] = field(default_factory=dict)
