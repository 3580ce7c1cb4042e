"""Images in forms of ONNX, where channels stand behind the batch."""

from __future__ import annotations

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ops.base.sliding import is_last


def first(g: Graph, x: Value, layout: str) -> Value:
    """Returns an image with its channels behind the batch."""
    return g.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1))) if is_last(layout) else x


def back(g: Graph, y: Value, rank: int, layout: str) -> Value:
    """Returns an image with its channels where the layout has them."""
    return g.transpose(y, (0, *range(2, rank), 1)) if is_last(layout) else y
