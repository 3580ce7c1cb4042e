"""Why the sizes of an op's results depend on values, and how far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What an op definition states whose results have sizes that depend on values.

    Attributes:
        why: What decides the sizes: a noun phrase for the tables of the documentation.
        bounded: Whether the results are at most about as large as the inputs. A size that is itself the value of an input has no
            bound, and a constant of that size is not computed ahead.
        exact: Whether the sizes that ``infer`` knows all the same are those of the results; where it knows all, the op is planned
            as any other. It is not exact where it tells of the elements of a tensor array, or of what the user declared.
    """

    why: str
    bounded: bool = True
    exact: bool = True
