"""Uniform random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import DType, Meta, Shape, dtype_of
from tstatic.ops.random._random import (
    BATCH,
    DRAWN_LIKE,
    FLOATS,
    SHAPE,
    SHAPES,
    float_only,
    float_type,
    in_order,
    to_dtype,
)
from tstatic.ops.shape._shape_arg import batch_shape, check_sizes, filled, has_variable, known_shape
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]


def _infer(shape: Shape, dtype: DType, min: float, max: float, diag_num: int, diag_step: int) -> Meta:
    check_sizes(shape, "uniform_random")
    float_only("uniform_random", dtype)
    in_order("uniform_random", min, max)
    if diag_num and not (diag_num > 0 and 0 <= (diag_num - 1) * (diag_step + 1) < math.prod(shape)):
        raise ProgramError(
            "the diagonal of 'uniform_random' does not fit into the shape",
            expected=f"(diag_num - 1) * (diag_step + 1) from 0 to {math.prod(shape) - 1}",
            received=f"diag_num={diag_num}, diag_step={diag_step}",
            fix="take diag_step = the number of columns, and diag_num = the smaller size",
            op="uniform_random",
        )
    return Meta(shape, dtype)


def _ref(
    out: Array, *, min: float, max: float, seed: int, diag_num: int, diag_step: int, diag_val: float, rng: Any
) -> None:
    draw.fill_uniform(out, min, max, philox_key(rng, seed), rng.start)
    for i in range(diag_num):
        out.flat[i * diag_step + i] = diag_val


def _lower(
    torch: Any,
    *,
    shape: Shape,
    dtype: DType,
    min: float,
    max: float,
    seed: int,
    rng: Any,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 0.0,
) -> Any:
    flat = draw.torch_uniform(torch, math.prod(shape), dtype.np, min, max, philox_key(rng, seed), rng.start)
    flat = to_dtype(torch, flat, dtype)
    for i in range(diag_num):
        flat[i * diag_step + i] = diag_val
    return flat.reshape(shape)


register(
    OpDef(
        "uniform_random",
        "-> Out",
        attrs={**SHAPE, "min": -1.0, "max": 1.0, "diag_num": 0, "diag_step": 0, "diag_val": 1.0},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=Split(ELEMENTS, FIRST, unless="diag_num", multiple=4),
        random=True,
        domain=Domain(
            cases=(
                *(Case((), {"shape": s, "dtype": d}) for s in SHAPES for d in FLOATS),
                Case((), {"shape": (40, 9), "min": 0.0, "max": 1.0}),
                Case((), {"shape": (40, 9), "min": 2.0, "max": 2.0, "seed": 5}),
                Case((), {"shape": (257,), "min": 1.0, "max": 2.0, "dtype": "bfloat16"}),
                Case((), {"shape": (4, 5), "diag_num": 4, "diag_step": 5, "diag_val": 3.0}),
            ),
            ulps=0,
        ),
    )
)


# -------------------------------------------------------------------------------------------------- like another value
def _infer_inplace(x: Meta, min: float, max: float) -> Meta:
    float_only("uniform_random_inplace", x.dtype)
    in_order("uniform_random_inplace", min, max)
    return x


def _lower_inplace(torch: Any, x: Any, *, min: float, max: float, seed: int, rng: Any) -> Any:
    dtype = dtype_of(str(x.dtype)).np
    flat = draw.torch_uniform(torch, x.numel(), dtype, min, max, philox_key(rng, seed), rng.start, x.device)
    return flat.to(x.dtype).reshape(x.shape)


def _infer_batch(
    x: Meta, shape: Shape, dtype: DType, min: float, max: float, input_dim_idx: int, output_dim_idx: int
) -> Meta:
    name = "uniform_random_batch_size_like"
    float_only(name, dtype)
    in_order(name, min, max)
    return Meta(batch_shape(name, x, shape, input_dim_idx, output_dim_idx), dtype)


def _lower_batch(
    torch: Any, x: Any, *, shape: Shape, input_dim_idx: int, output_dim_idx: int, dtype: DType, min: float, max: float,
    seed: int, rng: Any,
) -> Any:  # fmt: skip
    sizes = [x.shape[input_dim_idx] if i == output_dim_idx else s for i, s in enumerate(shape)]
    return _lower(torch, shape=tuple(sizes), dtype=dtype, min=min, max=max, seed=seed, rng=rng)


def _ref_like(x: Array, out: Array, *, min: float, max: float, seed: int, rng: Any) -> None:
    draw.fill_uniform(out, min, max, philox_key(rng, seed), rng.start)


register(
    OpDef(
        "uniform_random_inplace",
        "X -> Out",
        attrs={"min": -1.0, "max": 1.0, "seed": 0},
        infer=_infer_inplace,
        ref=_ref_like,
        lower=_lower_inplace,
        split=DRAWN_LIKE,
        shape_only=("X",),
        random=True,
        domain=Domain(cases=tuple(Case((s,)) for s in SHAPES), ulps=0),
    )
)

register(
    OpDef(
        "uniform_random_batch_size_like",
        "Input -> Out",
        attrs={**SHAPE, **BATCH, "min": -1.0, "max": 1.0},
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
            ulps=0,
        ),
    )
)


# ---------------------------------------------------------------------------------------------------- public functions
def _uniform(shape: Any, dtype: Any, low: float, high: float, seed: int, name: str | None, prefix: str) -> Variable:
    attrs: dict[str, Any] = {"min": low, "max": high, "seed": seed}
    if has_variable(shape):
        x = filled(shape, float_type(dtype), 0.0, prefix)
        return emit("uniform_random_inplace", {"X": x}, attrs, name=name, prefix=prefix)  # type: ignore[no-any-return]
    attrs |= {"shape": known_shape(shape, prefix), "dtype": float_type(dtype)}
    return emit("uniform_random", {}, attrs, name=name, prefix=prefix)  # type: ignore[no-any-return]


@export("tensor.uniform", op="uniform_random")
def uniform(
    shape: Any, dtype: Any = None, min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Uniform numbers in [min, max).

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type; the default dtype if ``None``.
        min: Lower bound.
        max: Upper bound.
        seed: Replaces the program's seed when it is not 0; numbers still differ from run to run.
        name: Name of the result.
    """
    return _uniform(shape, dtype, min, max, seed, name, "uniform")


@export("fluid.layers.uniform_random", "fluid.layers.nn.uniform_random", op="uniform_random")
def uniform_random(
    shape: Any, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Uniform numbers in [min, max); see ``paddle.uniform``.

    Example:
        >>> x = fluid.layers.uniform_random([1000], min=-2.0, max=2.0)
        >>> value = static.Executor().run(fetch_list=[x])[0]
        >>> bool((value >= -2).all() and (value < 2).all())
        True
    """
    return _uniform(shape, dtype, min, max, seed, name, "uniform_random")


@export("tensor.rand", op="uniform_random")
def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Uniform numbers in [0, 1) of the given shape.

    Example:
        >>> x = paddle.rand([1000])
        >>> value = static.Executor().run(fetch_list=[x])[0]
        >>> bool((value >= 0).all() and (value < 1).all())
        True
    """
    return _uniform(shape, dtype, 0.0, 1.0, 0, name, "uniform")


@export("fluid.layers.uniform_random_batch_size_like", op="uniform_random_batch_size_like")
def uniform_random_batch_size_like(
    input: Variable,
    shape: Any,
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Uniform numbers of ``shape``, whose axis ``output_dim_idx`` is as long as axis ``input_dim_idx`` of ``input``."""
    x = check_variable(input, "input", "uniform_random_batch_size_like")
    attrs = {"shape": list(shape), "dtype": dtype, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx,
             "min": min, "max": max, "seed": seed}  # fmt: skip
    return emit("uniform_random_batch_size_like", {"Input": x}, attrs)  # type: ignore[no-any-return]
