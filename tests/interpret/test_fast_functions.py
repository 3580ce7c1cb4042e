"""Functions that kernels of float32 compute in fewer instructions: their errors, and strict numerics, which does without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.interpret.kernels import run_kernel
from tstatic.flags import using_numerics
from tstatic.fusion.codegen.loops.loop_nest import build
from tstatic.fusion.codegen.text.emit import emit
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.ir.types import Meta, dtype_of
from tstatic.tuned.special import erf, special_scratch


def kernel_of(type: str, count: int, dtype: str = "float32") -> Any:
    """The kernel of one op alone."""
    op = FrozenOp(OPS[type], ("x",), ("y",), OPS[type].complete({}))
    meta = Meta((count,), dtype_of(dtype))
    return emit(build([op], {"x": meta, "y": meta}, ["y"]))


def result(type: str, x: Any) -> Any:
    meta = Meta(x.shape, dtype_of(x.dtype.name))
    return run_kernel(kernel_of(type, x.size, x.dtype.name), {"x": x}, {"y": meta})["y"]


def cumulative(x: Any) -> Any:
    """The distribution function of the normal distribution, in float64."""
    out = np.empty_like(x, np.float64)
    erf(
        x.astype(np.float64) / np.sqrt(2.0),
        out,
        [np.empty(s, d) for s, d in special_scratch(x.size, np.dtype("float64"))],
    )
    return 0.5 * (1 + out)


def grid(most: float) -> Any:
    """Both signs, dense everywhere: magnitudes by equal steps and by equal ratios."""
    up = np.concatenate([np.linspace(0, most, 30000), np.geomspace(1e-38, most, 30000)])
    return np.concatenate([up, -up]).astype(np.float32)


def test_tanh_is_four_units_off_at_most() -> None:
    x = grid(12.0)
    exact = np.tanh(x.astype(np.float64))
    got = result("tanh", x)
    error = np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert error.max() <= 4, x[error.argmax()]
    assert np.array_equal(np.signbit(got), np.signbit(x))


def test_gelu_is_two_roundings_of_its_argument_off_at_most() -> None:
    x = grid(14.0)
    exact = x * cumulative(x)
    error = np.abs(result("gelu", x) - exact) / np.maximum(np.abs(x), 1e-30)
    assert error.max() <= 2 * 2.0**-24, x[error.argmax()]


def test_values_far_out_are_those_of_the_limits() -> None:
    x = np.array([1e3, 1e20, 3e38, np.inf, np.nan], np.float32)
    assert np.array_equal(
        result("tanh", np.concatenate([x, -x])), [1, 1, 1, 1, np.nan, -1, -1, -1, -1, np.nan], equal_nan=True
    )
    assert np.array_equal(result("gelu", x[:4]), x[:4])
    assert not result("gelu", -x[:3]).any()
    assert np.isnan(result("gelu", x[4:])).all()


@pytest.mark.parametrize(
    ("type", "fast", "own"), [("tanh", "_tanh32(", "_tanh("), ("gelu", "_erf_plus_one(", "tl.erf(")]
)
def test_other_types_and_strict_numerics_do_without(type: str, fast: str, own: str) -> None:
    assert fast in kernel_of(type, 7).code
    assert fast not in kernel_of(type, 7, "float64").code
    with using_numerics("strict"):
        strict = kernel_of(type, 7).code
    assert fast not in strict
    assert own in strict
