"""Names for the sizes and strides in the text of a kernel, each defined with its meaning at the top of a function that uses it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*\b")


class SizeNames:
    """Sizes and strides by name.

    A number alone says nothing to a reader. The name becomes a local ``tl.constexpr``, which the compiler takes as it takes the
    number in its place: the code stays the same. Names and meanings come from a template, never from the user's program, so that
    equal kernels have equal texts.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def __call__(self, name: str, value: int, meaning: str) -> str:
        """Returns a name, which functions of :meth:`defined` may use from now on.

        Args:
            name: In capitals, and that of no parameter.
            value: The number.
            meaning: What it counts, for the line that defines it.
        """
        known = self._known.setdefault(name, (value, meaning))
        assert known == (value, meaning), f"{name} names two numbers"
        return name

    def defined(self, body: Sequence[str]) -> list[str]:
        """Returns the lines of a function, behind definitions of the names that they use."""
        used = {name for line in body for name in _NAME.findall(line)}
        lines = [f"{n}: tl.constexpr = {v}  # {meaning}" for n, (v, meaning) in self._known.items() if n in used]
        return [*lines, *body]


def product_of(names: Sequence[str]) -> str:
    """Returns the text of a product of names, which may stand behind any operator; 1 of none."""
    return (names[0] if len(names) == 1 else f"({' * '.join(names)})") if names else "1"
