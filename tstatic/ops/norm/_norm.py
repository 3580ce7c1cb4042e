"""What the normalisation op definitions share: views of the data, parameters, and torch's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.checks import FLOATS, check_dtype
from tstatic.ir.types import UNKNOWN, Meta, numel
from tstatic.tuned._common import Array


class OutputView:
    """An output as an array of another shape; :meth:`store` writes a copy back where the strides allowed no view."""

    def __init__(self, array: Array, shape: Sequence[int]) -> None:
        self.array = array
        self.shape = tuple(shape)
        try:
            self.view = array.reshape(self.shape, copy=False)
            self.copied = False
        except ValueError:
            self.view = np.empty(self.shape, array.dtype)
            self.copied = True

    def store(self) -> None:
        """Call when the view is complete."""
        if self.copied:
            np.copyto(self.array, self.view.reshape(self.array.shape))


def check_parameter(meta: Meta | None, name: str, count: int, x: Meta) -> None:
    """Refuses a parameter that does not have one value per ``count``.

    Raises:
        ShapeError, DTypeError: Says what was expected.
    """
    if meta is None:
        return
    check_dtype(meta, FLOATS, name)
    if UNKNOWN not in (meta.numel, count) and meta.numel != count:
        raise ShapeError(
            f"{name} does not have one value for each place that is normalised",
            expected=f"{count} values for an input of shape {list(x.shape)}",
            received=f"shape {list(meta.shape)}",
            fix=f"give {name} {count} values, or check the layout and the axes",
        )


def check_wide(x: Meta, **parameters: Meta | None) -> None:
    """Refuses parameters of another float type, but for float32 ones beside a low-precision input.

    Raises:
        DTypeError: Says which.
    """
    for name, meta in parameters.items():
        if meta is not None and meta.dtype not in (x.dtype, x.dtype.compute):
            raise DTypeError(
                f"{name} has another dtype than the input",
                expected=f"{x.dtype.name} or {x.dtype.compute.name}",
                received=meta.dtype.name,
                fix=f"convert it with paddle.cast(..., '{x.dtype.compute.name}')",
            )


def known_product(sizes: Sequence[int]) -> int:
    """Product of the sizes; unknown when one is."""
    return numel(tuple(sizes))


def torch_wide(tensor: Any) -> Any:
    """Low precision as float32; ``None`` stays."""
    return tensor if tensor is None or tensor.itemsize > 2 else tensor.float()
