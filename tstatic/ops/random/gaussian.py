"""Normal and truncated normal random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, Shape
from tstatic.ops.random._random import (
    BATCH,
    DRAWN,
    DRAWN_LIKE,
    FLOATS,
    SHAPE,
    SHAPES,
    float_only,
    float_type,
    not_negative,
    to_dtype,
)
from tstatic.ops.shape._shape_arg import batch_shape, check_sizes, filled, has_variable, known_shape
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]

_CASES = (
    *(Case((), {"shape": s, "dtype": d}) for s in SHAPES for d in FLOATS),
    Case((), {"shape": (40, 9), "mean": 1.0, "std": 0.5}),
    Case((), {"shape": (40, 9), "mean": -3.0, "std": 0.0, "seed": 7}),
)


def _infer(shape: Shape, dtype: DType, std: float) -> Meta:
    check_sizes(shape, "gaussian_random")
    float_only("gaussian_random", dtype)
    not_negative("gaussian_random", "std", std)
    return Meta(shape, dtype)


def _ref(out: Array, *, mean: float, std: float, seed: int, rng: Any) -> None:
    draw.fill_normal(out, mean, std, philox_key(rng, seed), rng.start)


def _lower(torch: Any, *, shape: Shape, dtype: DType, mean: float, std: float, seed: int, rng: Any) -> Any:
    wide = dtype.name == "float64"
    flat = draw.torch_normal(torch, math.prod(shape), wide, mean, std, philox_key(rng, seed), rng.start)
    return to_dtype(torch, flat, dtype).reshape(shape)


register(
    OpDef(
        "gaussian_random",
        "-> Out",
        attrs={**SHAPE, "mean": 0.0, "std": 1.0},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=DRAWN,
        random=True,
        # Logarithm, sine and cosine of two libraries, a few ulp each.
        domain=Domain(cases=_CASES, ulps=16),
    )
)


def _infer_truncated(shape: Shape, dtype: DType, std: float, a: float, b: float) -> Meta:
    name = "truncated_gaussian_random"
    check_sizes(shape, name)
    float_only(name, dtype)
    not_negative(name, "std", std)
    if not a < b:
        raise ProgramError(
            f"'{name}' needs a range with something in it",
            expected="a < b, in standard deviations from the mean",
            received=f"a={a}, b={b}",
            fix="exchange a and b",
            op=name,
        )
    return Meta(shape, dtype)


def _ref_truncated(out: Array, *, mean: float, std: float, a: float, b: float, seed: int, rng: Any) -> None:
    draw.fill_truncated_normal(out, mean, std, a, b, philox_key(rng, seed), rng.start)


def _lower_truncated(
    torch: Any, *, shape: Shape, dtype: DType, mean: float, std: float, a: float, b: float, seed: int, rng: Any
) -> Any:
    wide, key = dtype.name == "float64", philox_key(rng, seed)
    flat = draw.torch_truncated_normal(torch, math.prod(shape), wide, mean, std, a, b, key, rng.start)
    return to_dtype(torch, flat, dtype).reshape(shape)


register(
    OpDef(
        "truncated_gaussian_random",
        "-> Out",
        attrs={**SHAPE, "mean": 0.0, "std": 1.0, "a": -2.0, "b": 2.0},
        infer=_infer_truncated,
        ref=_ref_truncated,
        lower=_lower_truncated,
        split=DRAWN,
        random=True,
        # The distribution's inverse loses digits near 0, in float64 only.
        domain=Domain(cases=(*_CASES, Case((), {"shape": (200,), "a": 0.5, "b": 6.0})), ulps=64),
    )
)


# -------------------------------------------------------------------------------------------------- like another value
def _infer_inplace(x: Meta, std: float) -> Meta:
    float_only("gaussian_inplace", x.dtype)
    not_negative("gaussian_inplace", "std", std)
    return x


def _ref_like(x: Array, out: Array, *, mean: float, std: float, seed: int, rng: Any) -> None:
    draw.fill_normal(out, mean, std, philox_key(rng, seed), rng.start)


def _lower_inplace(torch: Any, x: Any, *, mean: float, std: float, seed: int, rng: Any) -> Any:
    wide, key = x.dtype == torch.float64, philox_key(rng, seed)
    return draw.torch_normal(torch, x.numel(), wide, mean, std, key, rng.start, x.device).to(x.dtype).reshape(x.shape)


def _infer_batch(x: Meta, shape: Shape, dtype: DType, std: float, input_dim_idx: int, output_dim_idx: int) -> Meta:
    name = "gaussian_random_batch_size_like"
    float_only(name, dtype)
    not_negative(name, "std", std)
    return Meta(batch_shape(name, x, shape, input_dim_idx, output_dim_idx), dtype)


def _lower_batch(
    torch: Any, x: Any, *, shape: Shape, input_dim_idx: int, output_dim_idx: int, dtype: DType, mean: float, std: float,
    seed: int, rng: Any,
) -> Any:  # fmt: skip
    sizes = [x.shape[input_dim_idx] if i == output_dim_idx else s for i, s in enumerate(shape)]
    return _lower(torch, shape=tuple(sizes), dtype=dtype, mean=mean, std=std, seed=seed, rng=rng)


register(
    OpDef(
        "gaussian_inplace",
        "X -> Out",
        attrs={"mean": 0.0, "std": 1.0, "seed": 0},
        infer=_infer_inplace,
        ref=_ref_like,
        lower=_lower_inplace,
        split=DRAWN_LIKE,
        shape_only=("X",),
        random=True,
        # A float64 result is drawn anew, so it does not measure the rounding of the float32 one.
        domain=Domain(cases=tuple(Case((s,)) for s in SHAPES), ulps=16, floats=("float64",)),
    )
)

register(
    OpDef(
        "gaussian_random_batch_size_like",
        "Input -> Out",
        attrs={**SHAPE, **BATCH, "mean": 0.0, "std": 1.0},
        infer=_infer_batch,
        ref=_ref_like,
        lower=_lower_batch,
        split=DRAWN_LIKE,
        shape_only=("Input",),
        random=True,
        domain=Domain(
            cases=(
                Case(((5, 2),), {"shape": (-1, 3)}),
                Case(((5, 2),), {"shape": (3, 7), "input_dim_idx": 1, "output_dim_idx": 1, "dtype": "float64"}),
                Case(((0, 2),), {"shape": (-1, 3)}),
            ),
            ulps=16,
        ),
    )
)


# ---------------------------------------------------------------------------------------------------- public functions
def _gaussian(
    shape: Any, mean: float, std: float, seed: int, dtype: Any, name: str | None, prefix: str = "gaussian"
) -> Variable:
    attrs: dict[str, Any] = {"mean": mean, "std": std, "seed": seed}
    if has_variable(shape):
        x = filled(shape, float_type(dtype), 0.0, prefix)
        return emit("gaussian_inplace", {"X": x}, attrs, name=name, prefix=prefix)  # type: ignore[no-any-return]
    attrs |= {"shape": known_shape(shape, prefix), "dtype": float_type(dtype)}
    return emit("gaussian_random", {}, attrs, name=name, prefix=prefix)  # type: ignore[no-any-return]


@export("fluid.layers.gaussian_random", op="gaussian_random")
def gaussian_random(
    shape: Any, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32", name: str | None = None
) -> Variable:
    """Normal numbers of the given mean and standard deviation."""
    return _gaussian(shape, mean, std, seed, dtype, name, "gaussian_random")


@export("tensor.standard_normal", op="gaussian_random")
def standard_normal(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Normal numbers of mean 0 and variance 1 of the given shape."""
    return _gaussian(shape, 0.0, 1.0, 0, dtype, name)


@export("tensor.randn", op="gaussian_random")
def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Normal numbers of mean 0 and variance 1 of the given shape.

    Example:
        >>> x = paddle.randn([10000])
        >>> value = static.Executor().run(fetch_list=[x])[0]
        >>> bool(abs(value.mean()) < 0.05 and abs(value.std() - 1) < 0.05)
        True
    """
    return _gaussian(shape, 0.0, 1.0, 0, dtype, name)


@export("tensor.normal", op="gaussian_random")
def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Normal numbers.

    Args:
        mean: A number, or a Variable of means.
        std: A number, or a Variable of standard deviations of the same shape.
        shape: Sizes when both are numbers; one number if ``None``.
        name: Name of the result.
    """
    like = mean if isinstance(mean, Variable) else std if isinstance(std, Variable) else None
    if like is None:
        return _gaussian([1] if shape is None else shape, mean, std, 0, None, name)
    # A number moves into the op; a Variable is multiplied or added afterwards.
    attrs = {"mean": 0.0 if like is mean else mean, "std": 1.0 if isinstance(std, Variable) else std}
    if isinstance(mean, Variable) and isinstance(std, Variable):
        scaled = emit("elementwise_mul", {"X": emit("gaussian_inplace", {"X": like}, attrs), "Y": std})
        return emit("elementwise_add", {"X": scaled, "Y": mean}, name=name)  # type: ignore[no-any-return]
    if isinstance(mean, Variable):
        return emit("elementwise_add", {"X": emit("gaussian_inplace", {"X": like}, attrs), "Y": mean}, name=name)  # type: ignore[no-any-return]
    scaled = emit("elementwise_mul", {"X": emit("gaussian_inplace", {"X": like}), "Y": std})
    return emit("scale", {"X": scaled}, {"bias": mean}, name=name)  # type: ignore[no-any-return]


@export("fluid.layers.gaussian_random_batch_size_like", op="gaussian_random_batch_size_like")
def gaussian_random_batch_size_like(
    input: Variable,
    shape: Any,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Normal numbers of ``shape``, whose axis ``output_dim_idx`` is as long as axis ``input_dim_idx`` of ``input``."""
    x = check_variable(input, "input", "gaussian_random_batch_size_like")
    attrs = {"shape": list(shape), "dtype": dtype, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx,
             "mean": mean, "std": std, "seed": seed}  # fmt: skip
    return emit("gaussian_random_batch_size_like", {"Input": x}, attrs)  # type: ignore[no-any-return]
