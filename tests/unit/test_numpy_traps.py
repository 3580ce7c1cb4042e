"""Functions of numpy that are wrong in some version, and that the library therefore must not call."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from tests.helpers import source
from tstatic.ir.expr import parse
from tstatic.ir.expr_numpy import compile_numpy


def test_no_operator_negates_by_the_function_for_it() -> None:
    """numpy 2.4 repeats the first value where both arrays of ``np.negative`` have gaps of some widths; a product does not."""
    found = [
        f"{path.name}: {ast.unparse(node)}"
        for path in source.files("tstatic/ops")
        for node in source.nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.negative"
    ]
    assert found == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "float16"])
def test_expressions_negate_in_memory_with_gaps(dtype: str) -> None:
    kind = np.dtype(dtype)
    code = compile_numpy({0: parse("-x")}, {"x": (0, kind)}, {0: kind}, {})
    for width in range(1, 17):
        rows = (np.arange(width * 20) % 97).astype(kind).reshape(20, width)
        rows[3] = -0.0 if kind.kind == "f" else 0
        out = np.empty_like(rows)
        for x, y in ((rows[:, :1], out[:, :1]), (rows[:, :1], rows[:, :1])):
            wanted = -x
            for function, args in code.bind([x], [y], [np.empty(x.shape, r) for r in code.registers]):
                function(*args)
            assert y.tobytes() == wanted.tobytes(), width
