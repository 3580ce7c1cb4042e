"""Fetched arrays of one element that convert to numbers whatever their rank, as all arrays did before numpy 2.4."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

Array = np.ndarray[Any, Any]


class FetchedArray(np.ndarray[Any, Any]):
    """What programs that use ``fluid``, or run under ``tstatic.as_paddle``, fetch.

    An array of one element is a number for ``float``, ``int``, ``complex``, ``round``, ``operator.index`` and every format,
    whatever its rank; numpy refuses that from version 2.4 on and warns of it before. Results of arithmetic, views and copies are of
    this class, too. ``np.array(x)``, ``np.asarray(x)``, pickles and DLPack give plain arrays. In all else it is a plain array.

    Example:
        >>> loss = fluid.layers.mean(fluid.data("x", [2]))
        >>> (value,) = fluid.Executor().run(feed={"x": np.array([1, 2], "float32")}, fetch_list=[loss])
        >>> value, float(value), "%.2f" % value, f"{value / 3:.1f}"
        (array([1.5], dtype=float32), 1.5, '1.50', '0.5')
    """

    # Above 0, so that what is computed from one of these and a plain array is one of these, whichever stands first.
    __array_priority__ = 1.0

    def __array_wrap__(self, array: Array, context: Any = None, return_scalar: bool = False) -> Any:
        """Makes results what they would be for plain arrays: numpy's scalars where a function gives single numbers."""
        if return_scalar:
            return array[()]
        return array.view(FetchedArray) if type(array) is np.ndarray else array

    def _number(self) -> Any:
        """Returns the only element, or a plain array, which raises numpy's own error when it is converted."""
        return self.item() if self.size == 1 else np.asarray(self)

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def __index__(self) -> int:
        # The element and not a number of Python's: numpy refuses bools as an index.
        return np.asarray(self).reshape(()).__index__() if self.size == 1 else np.asarray(self).__index__()

    def __round__(self, ndigits: SupportsIndex | None = None) -> Any:
        return round(self._number(), ndigits)

    def __format__(self, spec: str) -> str:
        """Formats the only element; without a format, the array as ``str`` does."""
        return format(self._number() if spec else str(self), spec)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickles a plain array: whoever reads it needs no tstatic."""
        return np.asarray(self).__reduce_ex__(protocol)


def converting(value: Any) -> Any:
    """Returns a fetched value as a :class:`FetchedArray`; of a list, a list of them. ``None`` stays ``None``."""
    if isinstance(value, list):
        return [converting(one) for one in value]
    return value.view(FetchedArray) if isinstance(value, np.ndarray) else value


__all__ = ["FetchedArray", "converting"]
