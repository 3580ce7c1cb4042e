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
@pytest.mark.parametrize("text", ["-x", "isnan(x)", "isinf(x)", "isfinite(x)"])
def test_expressions_write_into_memory_with_gaps(text: str, dtype: str) -> None:
    kind = np.dtype(dtype)
    if text != "-x" and kind.kind != "f":
        return
    wanted = {"-x": kind}.get(text, np.dtype(np.bool_))
    code = compile_numpy({0: parse(text)}, {"x": (0, kind)}, {0: wanted}, {})

    def run(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        for function, args in code.bind_operands([x], [out], [np.empty(x.shape, r) for r in code.registers]):
            function(*args)
        return out

    for width in range(1, 17):
        rows = (np.arange(width * 70) % 97).astype(kind).reshape(70, width)
        if kind.kind == "f":
            rows[3::7], rows[5::11], rows[4::9] = -0.0, np.inf, np.nan
        x = rows[:, :1]
        dense = run(x.copy(), np.empty(x.shape, wanted))
        assert run(x, np.empty((70, width), wanted)[:, :1]).tobytes() == dense.tobytes(), width
        assert run(x.copy(), np.empty((70, width), wanted)[:, :1]).tobytes() == dense.tobytes(), width
        if wanted == kind:
            assert run(x, x).tobytes() == dense.tobytes(), width


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("text", ["maximum(x, 0)", "minimum(maximum(x, -1), 6)"])
@pytest.mark.parametrize("shape", [(3,), (1024,), (1 << 14,), (40_001,), (3, 20_000), (7, 1 << 14)])
@pytest.mark.parametrize("apart", [False, True])
def test_values_are_compared_with_rows_of_a_number(text: str, dtype: str, shape: tuple[int, ...], apart: bool) -> None:
    """numpy takes three times as long to compare with a number, so dense floats are compared with a row: also the last few."""
    kind = np.dtype(dtype)
    code = compile_numpy({0: parse(text)}, {"x": (0, kind)}, {0: kind}, {})
    x = np.random.default_rng(4).normal(0, 5, shape).astype(kind)
    if kind.kind == "f":
        x.flat[:2] = np.nan, np.inf
        x[..., -1] = -0.0
    x, out = np.repeat(x, 2, -1)[..., ::2] if apart else x, np.full(shape, 99, kind)
    calls = code.bind_operands([x], [out], [np.empty(shape, r) for r in code.registers])
    for function, args in calls:
        function(*args)
    low, high = (0, None) if text == "maximum(x, 0)" else (-1, 6)
    assert np.array_equal(out, np.clip(x, low, high), equal_nan=kind.kind == "f")
    with_rows = any(not a.flags.writeable for _, args in calls for a in args)
    # A value of its own lies between two of ``x`` where they are apart; then the first function's result is dense.
    assert with_rows == (kind.kind == "f" and np.prod(shape) >= 1024 and (not apart or text != "maximum(x, 0)"))
