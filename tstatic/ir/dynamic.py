"""Why the sizes of an op's results depend on values, and how far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What an op definition states whose results have sizes that depend on values.

    Attributes:
        why: What decides the sizes: a noun phrase for the tables of the documentation.
        exact: Whether the sizes that ``infer`` knows all the same are those of the results; where it knows all, the op is planned
            as any other. It is not exact where it tells of the elements of a tensor array, or of what the user declared.
        free: Input slots whose values need not be known for that, because they do not decide sizes, or seldom.
    """

    why: str
    exact: bool = True
    free: tuple[str, ...] = ()
