"""Constants: numbers that do not fit, texts, given values, shapes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tstatic as paddle
from tstatic.errors import ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import PUBLIC_API, op_def
from tstatic.ir.types import dtype_of
from tstatic.ops.shape.fill import number_of, packed, unpacked


def op(type: str, *ins: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    return evaluate(op_def(type), list(ins), attrs)[0]  # type: ignore[no-any-return]


def test_text_keeps_every_digit() -> None:
    assert op("fill_constant", dtype="int64", str_value="9007199254740993", value=1.0).item() == 9007199254740993
    assert number_of(3, "") == 3
    assert number_of(3, "-inf") == -np.inf
    with pytest.raises(ProgramTypeError, match="str_value"):
        number_of(3, "three")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 256), ("uint8", -1), ("int32", 2**31), ("int64", 2.0**63), ("int64", np.nan), ("int8", np.inf)],
)
def test_value_must_fit(dtype: str, value: float) -> None:
    with pytest.raises(ProgramError, match="fit"):
        op("fill_constant", shape=(2,), dtype=dtype, value=value)
    with pytest.raises(ProgramError, match="fit"):
        op("fill_any_like", np.zeros(2), dtype=dtype, value=value)


ARRAYS = [
    np.array(3.5, np.float32),
    np.arange(12).reshape(3, 4),
    np.array([np.nan, np.inf, -0.0, 5e-324]),
    np.array([1.5, np.nan], ml_dtypes.bfloat16),
    np.random.default_rng(0).normal(size=(9, 30)).astype(np.float32)[:, ::3],
    np.zeros((0, 3), np.float16),
    np.array([True, False]),
    np.array([2**63 - 1, -(2**63)]),
    np.arange(200, dtype=">i4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_packed_values_keep_every_bit(array: np.ndarray[Any, Any]) -> None:
    kind = dtype_of(array.dtype)
    values = packed(array)
    assert isinstance(values, bytes) or all(np.isfinite(v) for v in values)
    native = np.ascontiguousarray(array.astype(kind.np))
    for found in (
        unpacked(values, kind, array.shape),
        op("assign_value", shape=array.shape, dtype=kind, values=values),
    ):
        assert found.dtype == kind.np
        assert found.tobytes() == native.tobytes()


def test_number_of_values_is_checked() -> None:
    for values in ((1.0, 2.0), b"1234567", b""):
        with pytest.raises(ProgramError, match="another number of values"):
            op("assign_value", shape=(3,), values=values)
    with pytest.raises(ProgramTypeError):
        op("assign_value", shape=(3,), values="123")


def test_range_counts_as_numpy() -> None:
    for start, end, step in ((0, 5, 1), (3, 10, 4), (10, 3, -3), (0, 1, 0.1), (1, 0, 1), (0.5, 3.5, 1), (0, 0.3, 0.1)):
        kind = "int64" if all(isinstance(v, int) for v in (start, end, step)) else "float64"
        expected = np.arange(start, end, step)
        found = op("range", start=start, end=end, step=step, dtype=kind)
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-15)
    with pytest.raises(ProgramError, match="step"):
        op("range", start=0, end=3, step=0)


def test_linspace_ends_are_exact() -> None:
    for start, stop, num in ((0.1, 0.7, 7), (-3.0, 5.5, 4), (1e-3, 1e3, 100)):
        found = op("linspace", start=start, stop=stop, num=num, dtype="float64")
        assert (found[0], found[-1]) == (start, stop)
        assert np.allclose(found, np.linspace(start, stop, num), rtol=1e-14)
    with pytest.raises(ProgramError, match="at least 1"):
        op("linspace", start=0.0, stop=1.0, num=0)


# ------------------------------------------------------------------------------------------------------------ functions
def function(name: str) -> Any:
    return PUBLIC_API[name].function


@pytest.mark.parametrize(
    ("name", "args", "shape", "dtype"),
    [
        ("tensor.full", ([2, 3], 1.5), (2, 3), "float32"),
        ("tensor.full", ([], 1, "int64"), (), "int64"),
        ("tensor.zeros", ([4], "bool"), (4,), "bool"),
        ("tensor.ones", ((2, 0),), (2, 0), "float32"),
        ("tensor.empty", (5,), (5,), "float32"),
        ("tensor.arange", (5,), (5,), "int64"),
        ("tensor.arange", (0, 1, 0.25), (4,), "float32"),
        ("tensor.linspace", (0, 1, 5), (5,), "float32"),
        ("tensor.to_tensor", ([[1.0, 2.0]],), (1, 2), "float32"),
        ("tensor.to_tensor", (np.ones(3, np.float16),), (3,), "float16"),
        ("tensor.to_tensor", (7,), (), "int64"),
        ("tensor.to_tensor", ([1, 2], "float64"), (2,), "float64"),
        ("tensor.assign", (np.arange(6.0).reshape(2, 3),), (2, 3), "float64"),
        ("tensor.assign", ([1, 2, 3],), (3,), "int64"),
        ("tensor.assign", (True,), (1,), "bool"),
        ("fluid.layers.fill_constant", ([3], "int32", 4), (3,), "int32"),
        ("fluid.layers.fill_constant", ([1], "float32", "inf"), (1,), "float32"),
        ("fluid.layers.zeros", ([3], "float64"), (3,), "float64"),
        ("fluid.layers.ones", ([3], "int64"), (3,), "int64"),
        ("fluid.layers.range", (0, 10, 2, "int32"), (5,), "int32"),
        ("tensor.uniform", ([2, 3],), (2, 3), "float32"),
        ("tensor.rand", ([2], "float64"), (2,), "float64"),
        ("tensor.randn", ([],), (), "float32"),
        ("tensor.normal", (0.0, 1.0, [4]), (4,), "float32"),
        ("tensor.standard_normal", ([4],), (4,), "float32"),
        ("tensor.randint", (0, 5, [3]), (3,), "int64"),
        ("tensor.randint", (5,), (1,), "int64"),
        ("tensor.randperm", (6,), (6,), "int64"),
        ("fluid.layers.uniform_random", ([2], "float64", 0, 1), (2,), "float64"),
        ("fluid.layers.gaussian_random", ([2],), (2,), "float32"),
    ],
)  # fmt: skip
def test_functions(name: str, args: Any, shape: tuple[int, ...], dtype: str) -> None:
    made = function(name)(*args)
    assert (made.shape, made.dtype.name) == (shape, dtype)


def test_functions_of_another_value() -> None:
    x = paddle.static.data("x", [None, 4], "float16")
    for name, dtype in (
        ("tensor.full_like", "float16"),
        ("tensor.zeros_like", "float16"),
        ("tensor.ones_like", "float16"),
    ):
        made = function(name)(x, 2.0) if name == "tensor.full_like" else function(name)(x)
        assert (made.shape, made.dtype.name) == ((-1, 4), dtype)
    assert function("tensor.full_like")(x, 1, "int64").dtype.name == "int64"
    for mean, std in ((x, 2.0), (0.5, x), (x, x)):
        assert function("tensor.normal")(mean, std).shape == (-1, 4)
    assert function("fluid.layers.zeros_like")(x).shape == (-1, 4)
    for name in ("fluid.layers.fill_constant_batch_size_like", "fluid.layers.uniform_random_batch_size_like"):
        made = function(name)(x, [-1, 7], "float32", *((0.0,) if "fill" in name else ()))
        assert made.shape == (-1, 7)


def test_default_dtype_is_followed() -> None:
    paddle.set_default_dtype("float64")
    try:
        for name, args in (("tensor.zeros", ([2],)), ("tensor.randn", ([2],)), ("tensor.to_tensor", (1.5,))):
            assert function(name)(*args).dtype.name == "float64"
    finally:
        paddle.set_default_dtype("float32")


BAD: list[tuple[str, tuple[Any, ...], type[Exception]]] = [
    ("tensor.zeros", ([2, -1],), ShapeError),
    ("tensor.zeros", ([2.5],), TypeError),
    ("tensor.zeros", ("ab",), TypeError),
    ("tensor.ones", ([2**40, 2**40],), ShapeError),
    # 2**63 bytes of float64, one more than an int64 counts.
    ("tensor.ones", ([2**57, 8], "float64"), ShapeError),
    ("tensor.full", ([2], "one"), TypeError),
    ("tensor.full", ([2], [1, 2]), TypeError),
    ("tensor.full", ([2], 1.0, "float31"), TypeError),
    ("tensor.arange", ("a",), TypeError),
    ("tensor.linspace", (0, 1, 2.5), TypeError),
    ("tensor.to_tensor", ([[1], [2, 3]],), TypeError),
    ("tensor.to_tensor", ("text",), TypeError),
    ("tensor.assign", (None,), TypeError),
    ("tensor.uniform", ([2], "int64"), TypeError),
    ("tensor.uniform", ([2], None, 3.0, 1.0), ValueError),
    ("tensor.uniform", ([2], None, 0.0, float("inf")), ValueError),
    ("tensor.normal", (0.0, -1.0, [2]), ValueError),
    ("tensor.randint", (5, 5), ValueError),
    ("tensor.randint", (0, 2**31 + 1, [1], "int32"), ValueError),
    ("tensor.randint", (0, 5, [1], "float32"), TypeError),
    ("tensor.randint", (0.5, 5), TypeError),
    ("tensor.randperm", (-1,), ValueError),
    ("tensor.bernoulli", (3,), TypeError),
    ("tensor.multinomial", ([0.5],), TypeError),
]


@pytest.mark.parametrize(("name", "args", "error"), BAD, ids=lambda v: str(v)[:40])
def test_bad_arguments(name: str, args: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        function(name)(*args)
    text = str(caught.value)
    assert "expected:" in text
    assert "received:" in text
    assert "fix:" in text
    assert "test_fill.py:" in text
    assert paddle.static.default_main_program().global_block().ops == []
