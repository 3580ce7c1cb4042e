"""Turns what users give into plain arrays, and refuses what a plain array would lose without a word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, FeedTypeError, TstaticError, reason


def has_mask(value: Any) -> bool:
    """Whether a value is a masked array, or a list that holds one at any depth."""
    if isinstance(value, np.ma.MaskedArray):
        return True
    return isinstance(value, list | tuple) and _lists_mask(value)


def _lists_mask(rows: Iterable[Any]) -> bool:
    # Types first: a list of a million numbers is looked through at the speed of C.
    kinds = set(map(type, rows))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        return True
    return any(issubclass(kind, list | tuple) for kind in kinds) and any(
        _lists_mask(row) for row in rows if isinstance(row, list | tuple)
    )


def plain(value: Any, what: str, op: str) -> np.ndarray[Any, Any]:
    """As ``np.asarray``, for ``what`` of the call ``op``.

    Raises:
        DTypeError: For a masked array: the elements under the mask would count again.
        FeedTypeError: For what is not an array, also if the object's own methods raise.
    """
    try:
        masked = has_mask(value)
        array = np.asarray(value)
    except (TstaticError, MemoryError):
        raise
    except Exception as error:
        raise FeedTypeError(
            f"{what} could not be read as an array",
            expected="an array or a rectangular list of numbers",
            received=f"{type(value).__name__}, which raises {reason(error)}",
            fix="pass a numeric array; a ragged list has to be padded first",
            op=op,
        ) from error
    if masked:
        raise DTypeError(
            f"{what} is a masked array, whose mask would be lost",
            expected="an array or list without a mask",
            received=type(value).__name__,
            fix="fill it, array.filled(0), and give ~np.ma.getmaskarray(array) as an array of its own",
            op=op,
        )
    return array
