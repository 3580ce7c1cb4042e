"""What the normalisation op definitions share: views of the data, and checks of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.checks import check_dtype
from tstatic.ir.types import UNKNOWN, Meta
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
            # Strides of the memory plan may allow no view: channels in the middle of a larger array.
            self.view = np.empty(self.shape, array.dtype)
            self.copied = True

    def store(self) -> None:
        """Writes a copy back; call it when the view is complete."""
        if self.copied:
            np.copyto(self.array, self.view.reshape(self.array.shape))


def check_parameters(x: Meta, count: int, **parameters: Meta | None) -> None:
    """Refuses parameters that do not have ``count`` values, or are of another float type than the input.

    Beside a low-precision input they may be float32.

    Raises:
        ShapeError, DTypeError: Says which, and what was expected.
    """
    for name, meta in parameters.items():
        if meta is None:
            continue
        # Paddle keeps the parameters of a 16-bit input in float32; both types are taken.
        check_dtype(meta, sorted({x.dtype.compute.name, x.dtype.name}), name)
        if UNKNOWN not in (meta.numel, count) and meta.numel != count:
            raise ShapeError(
                f"{name} does not have one value for each place that is normalised",
                expected=f"{count} values for an input of shape {list(x.shape)}",
                received=f"shape {list(meta.shape)}",
                fix=f"give {name} {count} values, or check the layout and the axes",
            )


def uses_running_statistics(attrs: Mapping[str, Any]) -> bool:
    """Returns whether the running statistics normalise, instead of the batch's own."""
    return bool(attrs["use_global_stats"] or (attrs["is_test"] and not attrs["trainable_statistics"]))


def running_factor(count: int, attrs: Mapping[str, Any]) -> float:
    """Returns what the variance of ``count`` values is multiplied by for the running one: Bessel's correction, or 1."""
    # A single value has no unbiased variance.
    return count / (count - 1) if attrs["unbiased_variance"] and count > 1 else 1.0
