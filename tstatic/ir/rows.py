"""Ops along rows as expressions: what softmax, normalisations and reductions over the last axes state for kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tstatic.ir import expr
from tstatic.ir.types import Shape, numel


def _kernels_only(torch: object, *args: object) -> object:
    raise AssertionError("row functions are for generated kernels; op definitions state their own torch lowering")


# ``mask`` is true for the elements of the row; what is beyond must not count.
expr.define("rsum", None, _kernels_only, triton="tl.sum(tl.where(mask, {a}, 0.0), 1)[:, None]")
expr.define("rmax", None, _kernels_only, triton='_row_max(tl.where(mask, {a}, float("-inf")))')

ALONG = ("rsum", "rmax")
"""Functions of a whole row."""

COLUMN = "column"
"""Name of the place of an element in its row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An op on rows: the trailing dimensions of one shape, from an axis on, are a row.

    Attributes:
        texts: Output slot -> expression over the slots' lower-case names, attributes, ``n`` (elements of a row), ``column``
            (0 to n - 1), ``nan``, ``rsum`` and ``rmax`` (of a row; one value per row).
        shape: Of the operands that have all elements.
        axis: Where a row's dimensions begin; 0 where all elements are one row, and then for texts without ``rsum`` and
            ``rmax`` only.
        columns: Slots with one element per column: inputs are broadcast over the rows, outputs are summed over them. Any
            other slot that is smaller has one element per row.
    """

    texts: Mapping[str, str]
    shape: Shape
    axis: int
    columns: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Elements of a row."""
        return numel(self.shape[self.axis :])

    @property
    def per_row(self) -> Shape:
        """The full shape with ones for the row's dimensions."""
        return self.shape[: self.axis] + (1,) * (len(self.shape) - self.axis)

    @property
    def per_column(self) -> Shape:
        """The full shape with ones for the other dimensions."""
        return (1,) * self.axis + self.shape[self.axis :]


def trailing(shape: Shape, axes: tuple[int, ...]) -> int | None:
    """Where a row begins when exactly these sorted axes are its dimensions; ``None`` if they are not the last ones."""
    rank = len(shape)
    first = rank - len(axes)
    return first if axes and first > 0 and axes == tuple(range(first, rank)) else None
