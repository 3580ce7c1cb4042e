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

NORMAL_24 = "normal24"
"""The element's normal number, in float32."""
NORMAL_53 = "normal53"
"""The same in float64."""
WITHIN_24 = "within24"
"""The normal quantile of ``(the random word + 0.5) * a + b`` in float64; ``a`` and ``b`` are the first of ``Drawn.loaded``."""
WITHIN_53 = "within53"
"""The same of :data:`UNIT_53`."""
BELOW = "below"
"""The random word times a span, without its lower 32 bits: int64, from 0 to span - 1. The span is the first of ``Drawn.loaded``."""
BELOW_64 = "below64"
"""The same of the two words together, without the lower 64 bits; a span of 0 means 2^64."""
ELEMENT = "element"
"""The element's number, int64."""

NUMBERS = (DRAWN, HALF, UNIT_24, UNIT_53, NORMAL_24, NORMAL_53, WITHIN_24, WITHIN_53, BELOW, BELOW_64, ELEMENT)
"""What the expressions of an op that draws may read beside its slots; ``tuned/philox.py`` says which words are whose."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an op that draws computes, element by element.

    Attributes:
        texts: Output slot -> expression over the slots' lower-case names, ``values`` and :data:`NUMBERS`.
        shape: Of the elements that draw a number each, in C order; it broadcasts to the result's.
        values: Name -> number, which stands in the kernel's text.
        loaded: Name -> number that kernels read from memory, so that ops in which it differs share a kernel: an int as int64, a
            float in the type of the op's numbers.
    """

    texts: Mapping[str, str]
    shape: Shape
    values: Mapping[str, int | float] = field(default_factory=dict)
    loaded: Mapping[str, int | float] = field(default_factory=dict)
