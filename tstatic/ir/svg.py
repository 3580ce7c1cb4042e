"""A program as a picture: SVG text of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tstatic.ir.program import Program


def svg(program: Program, max_ops: int = 600) -> str:
    """The picture; being written."""
    raise NotImplementedError
