"""Named inputs and outputs of ops, and the short text that lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass

GRAD = "@GRAD"
EMPTY = "@EMPTY@"


@dataclass(frozen=True, slots=True)
class Slot:
    """One named input or output of an op.

    Attributes:
        name: Paddle's slot name (``X``, ``Out@GRAD``).
        many: Holds a list of values (written ``X*``).
        optional: May be absent (written ``X?``); the op's functions then get ``None``.
        intermediate: An output made for the backward op only (written ``Mask~``).
    """

    name: str
    many: bool = False
    optional: bool = False
    intermediate: bool = False

    @property
    def param(self) -> str:
        """The slot's name inside a pointwise expression: ``X`` is ``x``, ``Out@GRAD`` is ``dout``."""
        name = self.name
        order = 0
        while name.endswith(GRAD):
            name = name[: -len(GRAD)]
            order += 1
        return "d" * order + name.lower()


_SLOT = re.compile(r"^([A-Za-z0-9_@]+)([*?~]*)$")


def parse_slots(text: str) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Reads ``"X, Y?, Z* -> Out, Mask~"`` (the marks of the spec's table) into input and output slots."""
    left, arrow, right = text.partition("->")
    assert arrow, f"slots need an arrow: {text!r}"

    def side(part: str) -> tuple[Slot, ...]:
        slots = []
        for item in filter(None, (p.strip() for p in part.split(","))):
            match = _SLOT.match(item)
            assert match, f"bad slot {item!r} in {text!r}"
            name, marks = match.groups()
            slots.append(Slot(name, "*" in marks, "?" in marks or "~" in marks, "~" in marks))
        return tuple(slots)

    return side(left), side(right)
