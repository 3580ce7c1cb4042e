"""Ops that multiply two matrices: what they state so that kernels can make the product, and those of its gradients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``Out = op(X) @ op(Y)``, all three read as matrices in contiguous memory.

    Attributes:
        rows, columns, depth: ``Out`` is ``[rows, columns]``, and ``depth`` products are added up for each element.
        trans_x: The memory of ``X`` is ``[depth, rows]``, else ``[rows, depth]``.
        trans_y: The memory of ``Y`` is ``[columns, depth]``, else ``[depth, columns]``.
    """

    rows: int
    columns: int
    depth: int
    trans_x: bool = False
    trans_y: bool = False
