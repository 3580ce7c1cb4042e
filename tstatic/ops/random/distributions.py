"""Normal, truncated normal and uniform random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_number, check_result_dtype, check_sizes
from tstatic.ir.declare import default_dtype
from tstatic.ir.drawn import ELEMENT, NORMAL_24, NORMAL_53, UNIT_24, UNIT_53, WITHIN_24, WITHIN_53, Drawn
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.paddle_form import ABSENT, PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import DType, Meta, Shape, dtype_of, float64
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.random._random import DRAWN, DRAWN_LIKE, SHAPE, SHAPES, in_order, to_dtype
from tstatic.ops.shape.fill import batch_shape, batch_sizes, filled, has_variable, known_shape
from tstatic.ops.shape.number_of import number_of
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]
CAST = "draw floats and cast them, or use paddle.randint for whole numbers"

Check = Callable[..., None]
"""``(op type, **parameters)``: refuses parameters of a distribution."""
NumpyDraw = Callable[..., None]
"""``(out, *parameters, key, start)``: draws into an array."""
TorchDraw = Callable[..., Any]
"""``(torch, count, dtype, *parameters, key, start, device)``: the same numbers, flat."""
KernelDraw = Callable[..., Drawn]
"""``(shape, dtype, *parameters)``: the same numbers as an expression."""


# -------------------------------------------------------------------------------------------------- ops of a distribution
def _register_filled(
    type: str,
    parameters: dict[str, float],
    check: Check,
    fill: NumpyDraw,
    torch_draw: TorchDraw,
    kernel_draw: KernelDraw,
    domain: Domain,
) -> None:
    """Registers the op that draws numbers of a shape."""

    def infer(shape: Shape, dtype: DType, **attrs: Any) -> Meta:
        check_sizes(shape, "shape", type, least=0)
        check_result_dtype(dtype, FLOATS, type, fix=CAST)
        check(type, *(attrs[n] for n in parameters))
        return Meta(shape, dtype)

    def ref(out: Array, *, seed: int, rng: Any, **attrs: Any) -> None:
        fill(out, *(attrs[n] for n in parameters), philox_key(rng, seed), rng.start)

    def lower(torch: Any, *, shape: Shape, dtype: DType, seed: int, rng: Any, **attrs: Any) -> Any:
        own, key = (attrs[n] for n in parameters), philox_key(rng, seed)
        return to_dtype(torch, torch_draw(torch, math.prod(shape), dtype, *own, key, rng.start), dtype).reshape(shape)

    def drawn(shape: Shape, dtype: DType, **attrs: Any) -> Drawn:
        return kernel_draw(shape, dtype, *(attrs[n] for n in parameters))

    register(OpDef(
        type, "-> Out", attrs={**SHAPE, **parameters}, infer=infer, ref=ref, lower=lower, split=DRAWN, random=True,
        drawn=drawn, domain=domain,
    ))  # fmt: skip


def _register_like(
    inplace: str,
    batch: str,
    parameters: dict[str, float],
    check: Check,
    fill: NumpyDraw,
    torch_draw: TorchDraw,
    kernel_draw: KernelDraw,
    paddle: PaddleForm | None = None,
    **domain: Any,
) -> None:
    """Registers the ops that draw numbers of another value's shape, and of a shape with one of its sizes."""

    def ref(x: Array, out: Array, *, seed: int, rng: Any, **attrs: Any) -> None:
        fill(out, *(attrs[n] for n in parameters), philox_key(rng, seed), rng.start)

    def infer(x: Meta, **attrs: Any) -> Meta:
        check_result_dtype(x.dtype, FLOATS, inplace, fix=CAST)
        check(inplace, *(attrs[n] for n in parameters))
        return x

    def lower(torch: Any, x: Any, *, seed: int, rng: Any, **attrs: Any) -> Any:
        own, key = (attrs[n] for n in parameters), philox_key(rng, seed)
        flat = torch_draw(torch, x.numel(), dtype_of(str(x.dtype)), *own, key, rng.start, x.device)
        return flat.to(x.dtype).reshape(x.shape)

    def drawn(x: Meta, **attrs: Any) -> Drawn:
        return kernel_draw(x.shape, x.dtype, *(attrs[n] for n in parameters))

    def batch_drawn(
        x: Meta, shape: Shape, dtype: DType, input_dim_idx: int, output_dim_idx: int, **attrs: Any
    ) -> Drawn:
        sizes = batch_shape(batch, x, shape, input_dim_idx, output_dim_idx)
        return kernel_draw(sizes, dtype, *(attrs[n] for n in parameters))

    def batch_infer(x: Meta, shape: Shape, dtype: DType, input_dim_idx: int, output_dim_idx: int, **attrs: Any) -> Meta:
        check_result_dtype(dtype, FLOATS, batch, fix=CAST)
        check(batch, *(attrs[n] for n in parameters))
        return Meta(batch_shape(batch, x, shape, input_dim_idx, output_dim_idx), dtype)

    def batch_lower(
        torch: Any, x: Any, *, shape: Shape, dtype: DType, input_dim_idx: int, output_dim_idx: int, seed: int, rng: Any,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        sizes = batch_sizes(x, shape, input_dim_idx, output_dim_idx)
        own, key = (attrs[n] for n in parameters), philox_key(rng, seed)
        return to_dtype(torch, torch_draw(torch, math.prod(sizes), dtype, *own, key, rng.start), dtype).reshape(sizes)

    register(OpDef(
        inplace, "X -> Out", attrs={**parameters, "seed": 0}, infer=infer, ref=ref, lower=lower, split=DRAWN_LIKE,
        shape_only=("X",), random=True, drawn=drawn, domain=Domain(cases=tuple(Case((s,)) for s in SHAPES), **domain),
    ))  # fmt: skip
    cases = (
        Case(((5, 2),), {"shape": (-1, 3)}),
        Case(((5, 2),), {"shape": (3, 7), "input_dim_idx": 1, "output_dim_idx": 1, "dtype": "float64"}),
        Case(((0, 2),), {"shape": (-1, 3)}),
    )
    register(OpDef(
        batch, "Input -> Out", attrs={**SHAPE, "input_dim_idx": 0, "output_dim_idx": 0, **parameters},
        infer=batch_infer, ref=ref, lower=batch_lower, split=DRAWN_LIKE, shape_only=("Input",), random=True,
        drawn=batch_drawn, domain=Domain(cases=cases, ulps=domain["ulps"]), paddle=paddle,
    ))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- normal
# Paddle's defaults.
_NORMAL = {"mean": 0.0, "std": 1.0}
_EVERY_SHAPE = tuple(Case((), {"shape": s, "dtype": d}) for s in SHAPES for d in FLOATS)
# A deviation of 0 gives the mean everywhere, exactly.
_NORMAL_CASES = (
    *_EVERY_SHAPE,
    Case((), {"shape": (40, 9), "mean": 1.0, "std": 0.5}),
    Case((), {"shape": (40, 9), "mean": -3.0, "std": 0.0, "seed": 7}),
)


def _check_normal(op: str, mean: float, std: float, a: float = -1.0, b: float = 1.0) -> None:
    check_number(std, "std", op, least=0)
    if not a < b:
        raise ProgramError(
            f"'{op}' needs a range with something in it",
            expected="a < b, in standard deviations from the mean",
            received=f"a={a}, b={b}",
            fix="exchange a and b",
            op=op,
        )


def _torch_normal(torch: Any, count: int, dtype: DType, *rest: Any) -> Any:
    # The two widths draw different numbers: float64 takes 53 bits of two words, all other types 24 of one.
    return draw.torch_normal(torch, count, dtype.name == "float64", *rest)


def _torch_truncated(torch: Any, count: int, dtype: DType, *rest: Any) -> Any:
    return draw.torch_truncated_normal(torch, count, dtype.name == "float64", *rest)


def _moved(number: str, dtype: DType, mean: float, std: float) -> tuple[str, dict[str, float]]:
    """Returns the expression of ``number * std + mean``, and its numbers in the type that it is computed in."""
    # Rounded to the type first, as the reference multiplies by numbers of that type.
    mean, std = float(dtype.np.type(mean)), float(dtype.np.type(std))
    text, values = (number, {}) if std == 1 else (f"{number} * std", {"std": std})
    # Adding 0 would turn -0 into 0, and multiplying by 1 would only cost.
    return (text, values) if mean == 0 else (f"{text} + mean", {**values, "mean": mean})


def _drawn_normal(shape: Shape, dtype: DType, mean: float, std: float) -> Drawn:
    """Returns what kernels compute: bit for bit ``fill_normal``."""
    text, values = _moved(NORMAL_53 if dtype is float64 else NORMAL_24, dtype.compute, mean, std)
    return Drawn({"Out": text}, shape, loaded=values)


def _drawn_truncated(shape: Shape, dtype: DType, mean: float, std: float, a: float, b: float) -> Drawn:
    """Returns what kernels compute: bit for bit ``fill_truncated_normal``."""
    factor, low = draw.within_constants(dtype.compute.np, a, b)
    number = f"minimum(maximum({WITHIN_53 if dtype is float64 else WITHIN_24}, a), b)"
    # In float64, as the reference: the inverse of the distribution loses digits in its tails.
    text, values = _moved(number, float64, mean, std)
    return Drawn({"Out": text}, shape, loaded={"factor": factor, "low": low, "a": float(a), "b": float(b), **values})


# Logarithm, sine and cosine of two libraries, a few ulp each.
_register_filled(
    "gaussian_random", _NORMAL, _check_normal, draw.fill_normal, _torch_normal, _drawn_normal,
    Domain(cases=_NORMAL_CASES, ulps=16),
)  # fmt: skip
# The distribution's inverse loses digits near 0, in float64 only; 1.0 ulp seen.
_TRUNCATED_CASES = (*_NORMAL_CASES, Case((), {"shape": (200,), "a": 0.5, "b": 6.0}))
_register_filled(
    "truncated_gaussian_random", {**_NORMAL, "a": -2.0, "b": 2.0}, _check_normal, draw.fill_truncated_normal,
    _torch_truncated, _drawn_truncated, Domain(cases=_TRUNCATED_CASES, ulps=64),
)  # fmt: skip
# A float64 result is drawn anew, so it does not measure the rounding of the float32 one.
_register_like(
    "gaussian_inplace", "gaussian_random_batch_size_like", _NORMAL, _check_normal, draw.fill_normal, _torch_normal,
    _drawn_normal, ABSENT, ulps=16, floats=("float64",),
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- uniform
# Paddle's default range.
_UNIFORM = {"min": -1.0, "max": 1.0}


def _torch_uniform(torch: Any, count: int, dtype: DType, *rest: Any) -> Any:
    return draw.torch_uniform(torch, count, dtype.np, *rest)


def _drawn_uniform(shape: Shape, dtype: DType, low: float, high: float) -> Drawn:
    """Returns what kernels compute: bit for bit ``fill_uniform``."""
    scale, shift, _, most = draw.uniform_constants(dtype.np, low, high)
    wide = dtype.np == np.float64
    # The unit is a power of two: one multiplication by scale and unit rounds as two would.
    values = {"factor": float(scale) * (draw.ONE_53 if wide else draw.ONE_24)}
    text = f"{UNIT_53 if wide else UNIT_24} * factor"
    if shift != 0:
        text, values["shift"] = f"{text} + shift", float(shift)
    if most is not None:
        # Rounding can reach the upper end, which does not belong to the range.
        text, values["most"] = f"minimum({text}, most)", float(most)
    return Drawn({"Out": text}, shape, loaded=values)


_register_like(
    "uniform_random_inplace", "uniform_random_batch_size_like", _UNIFORM, in_order, draw.fill_uniform, _torch_uniform,
    _drawn_uniform, ulps=0,
)  # fmt: skip


def _infer(shape: Shape, dtype: DType, min: float, max: float, diag_num: int, diag_step: int) -> Meta:
    check_sizes(shape, "shape", "uniform_random", least=0)
    check_result_dtype(dtype, FLOATS, "uniform_random", fix=CAST)
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


def _drawn_filled(
    shape: Shape, dtype: DType, min: float, max: float, diag_num: int, diag_step: int, diag_val: float
) -> Drawn:
    found = _drawn_uniform(shape, dtype, min, max)
    if not diag_num:
        return found
    step = diag_step + 1
    # A step of 0 writes element 0 again and again.
    one = diag_num == 1 or step == 0
    on = f"{ELEMENT} == 0" if one else f"({ELEMENT} % {step} == 0) & ({ELEMENT} < {diag_num * step})"
    return replace(
        found,
        texts={"Out": f"where({on}, diagonal, {found.texts['Out']})"},
        loaded={**found.loaded, "diagonal": float(dtype.np.type(diag_val))},
    )


def _ref(
    out: Array, *, min: float, max: float, seed: int, diag_num: int, diag_step: int, diag_val: float, rng: Any
) -> None:
    draw.fill_uniform(out, min, max, philox_key(rng, seed), rng.start)
    # After all numbers are drawn, so that the others are the same with and without a diagonal.
    for i in range(diag_num):
        out.flat[i * diag_step + i] = diag_val


def _lower(
    torch: Any, *, shape: Shape, dtype: DType, min: float, max: float, seed: int, rng: Any, diag_num: int, diag_step: int,
    diag_val: float,
) -> Any:  # fmt: skip
    flat = _torch_uniform(torch, math.prod(shape), dtype, min, max, philox_key(rng, seed), rng.start)
    flat = to_dtype(torch, flat, dtype)
    for i in range(diag_num):
        flat[i * diag_step + i] = diag_val
    return flat.reshape(shape)


register(OpDef(
    "uniform_random", "-> Out", attrs={**SHAPE, **_UNIFORM, "diag_num": 0, "diag_step": 0, "diag_val": 1.0},
    infer=_infer, ref=_ref, lower=_lower, split=Split(ELEMENTS, FIRST, unless="diag_num", multiple=4), random=True,
    drawn=_drawn_filled,
    domain=Domain(
        cases=(
            *_EVERY_SHAPE,
            Case((), {"shape": (40, 9), "min": 0.0, "max": 1.0}),
            Case((), {"shape": (40, 9), "min": 2.0, "max": 2.0, "seed": 5}),
            Case((), {"shape": (257,), "min": 1.0, "max": 2.0, "dtype": "bfloat16"}),
            Case((), {"shape": (4, 5), "diag_num": 4, "diag_step": 5, "diag_val": 3.0}),
        ),
        ulps=0,
    ),
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------ public functions
def _drawn(
    type: str, inplace: str, function: str, shape: Any, dtype: Any, name: str | None, seed: int, **parameters: float
) -> Variable:
    """Emits the op that draws numbers of a shape, or the one for a shape that is known at run time only."""
    kind = default_dtype() if dtype is None else dtype_of(dtype)
    attrs: dict[str, Any] = {**parameters, "seed": seed}
    # Sizes known at run time only: a value of that shape, from which the op takes no more than the shape.
    if has_variable(shape):
        x = filled(shape, kind, 0.0, function)
        return emit_one(inplace, {"X": x}, attrs, name=name, prefix=function)
    return emit_one(
        type, {}, {**attrs, "shape": known_shape(shape, function), "dtype": kind}, name=name, prefix=function
    )


def _gaussian(
    shape: Any, mean: float, std: float, seed: int, dtype: Any, name: str | None, function: str = "gaussian"
) -> Variable:
    return _drawn("gaussian_random", "gaussian_inplace", function, shape, dtype, name, seed, mean=mean, std=std)


def _uniform(shape: Any, dtype: Any, low: float, high: float, seed: int, name: str | None, function: str) -> Variable:
    return _drawn("uniform_random", "uniform_random_inplace", function, shape, dtype, name, seed, min=low, max=high)


@export("fluid.layers.gaussian_random", op="gaussian_random")
def gaussian_random(
    shape: Any, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32", name: str | None = None
) -> Variable:
    """Draws normal numbers of the given mean and standard deviation.

    Args:
        shape: Sizes, or an int Variable that holds them.
        mean: A number.
        std: The standard deviation, at least 0.
        seed: Replaces the program's seed when it is not 0; numbers still differ from run to run.
        dtype: A float type.
        name: Name of the result.

    Raises:
        ProgramError: If ``std`` is negative.
        DTypeError: If ``dtype`` is not a float type.
    """
    return _gaussian(shape, mean, std, seed, dtype, name, "gaussian_random")


@export("tensor.standard_normal", op="gaussian_random")
def standard_normal(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Draws normal numbers of mean 0 and variance 1 of the given shape.

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        DTypeError: If ``dtype`` is not a float type.
    """
    return _gaussian(shape, 0.0, 1.0, 0, dtype, name)


@export("tensor.randn", op="gaussian_random")
def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Draws normal numbers of mean 0 and variance 1 of the given shape.

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        DTypeError: If ``dtype`` is not a float type.

    Example:
        >>> x = paddle.randn([10000])
        >>> value = static.Executor().run(fetch_list=[x])[0]
        >>> bool(abs(value.mean()) < 0.05 and abs(value.std() - 1) < 0.05)
        True
    """
    return _gaussian(shape, 0.0, 1.0, 0, dtype, name)


@export("tensor.normal", op="gaussian_random")
def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Draws normal numbers.

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
        scaled = emit_one("elementwise_mul", {"X": emit_one("gaussian_inplace", {"X": like}, attrs), "Y": std})
        return emit_one("elementwise_add", {"X": scaled, "Y": mean}, name=name)
    if isinstance(mean, Variable):
        return emit_one(
            "elementwise_add", {"X": emit_one("gaussian_inplace", {"X": like}, attrs), "Y": mean}, name=name
        )
    scaled = emit_one("elementwise_mul", {"X": emit_one("gaussian_inplace", {"X": like}), "Y": std})
    return emit_one("scale", {"X": scaled}, {"bias": mean}, name=name)


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
    """Draws normal numbers of ``shape``, whose axis ``output_dim_idx`` is as long as axis ``input_dim_idx`` of ``input``.

    Args:
        input: A Variable of any dtype; only its shape counts.
        shape: A list of ints; entry ``output_dim_idx`` is replaced.
        input_dim_idx, output_dim_idx: Axes, from 0.
        mean, std, seed, dtype: As in :func:`gaussian_random`.

    Raises:
        ProgramError: If an axis is out of range.
    """
    x = check_variable(input, "input", "gaussian_random_batch_size_like")
    attrs = {"shape": list(shape), "dtype": dtype, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx,
             "mean": mean, "std": std, "seed": seed}  # fmt: skip
    return emit_one("gaussian_random_batch_size_like", {"Input": x}, attrs)


@export("tensor.uniform", op="uniform_random")
def uniform(
    shape: Any, dtype: Any = None, min: Any = -1.0, max: Any = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Draws uniform numbers in [min, max).

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type; the default dtype if ``None``.
        min: Lower bound; a number, or a Variable with one element.
        max: Upper bound; the same.
        seed: Replaces the program's seed when it is not 0; numbers still differ from run to run.
        name: Name of the result.
    """
    if isinstance(min, Variable) or isinstance(max, Variable):
        # Bounds that are Variables stretch numbers from [0, 1) afterwards; the op takes numbers only.
        drawn = _uniform(shape, dtype, 0.0, 1.0, seed, None, "uniform")
        low, high = (number_of(v, n, "uniform", drawn.dtype.name) for v, n in ((min, "min"), (max, "max")))
        found = emit_one("elementwise_add", {"X": drawn * (high - low), "Y": low}, name=name)
        # As the op: no gradient reaches the bounds.
        found.stop_gradient = True
        return found
    return _uniform(shape, dtype, min, max, seed, name, "uniform")


@export("fluid.layers.uniform_random", "fluid.layers.nn.uniform_random", op="uniform_random")
def uniform_random(
    shape: Any, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Draws uniform numbers in [min, max); see ``paddle.uniform``.

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type.
        min, max: Bounds, finite and in order.
        seed: Replaces the program's seed when it is not 0; numbers still differ from run to run.
        name: Name of the result.

    Raises:
        ProgramError: If the bounds are not in order.
        DTypeError: If ``dtype`` is not a float type.

    Example:
        >>> x = fluid.layers.uniform_random([1000], min=-2.0, max=2.0)
        >>> value = static.Executor().run(fetch_list=[x])[0]
        >>> bool((value >= -2).all() and (value < 2).all())
        True
    """
    return _uniform(shape, dtype, min, max, seed, name, "uniform_random")


@export("tensor.rand", op="uniform_random")
def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Draws uniform numbers in [0, 1) of the given shape.

    Args:
        shape: Sizes, or an int Variable that holds them.
        dtype: A float type; the default dtype if ``None``.
        name: Name of the result.

    Raises:
        DTypeError: If ``dtype`` is not a float type.

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
    """Draws uniform numbers of ``shape``, whose axis ``output_dim_idx`` is as long as axis ``input_dim_idx`` of ``input``.

    Args:
        input: A Variable of any dtype; only its shape counts.
        shape: A list of ints; entry ``output_dim_idx`` is replaced.
        dtype, min, max, seed: As in :func:`uniform_random`.
        input_dim_idx, output_dim_idx: Axes, from 0.

    Raises:
        ProgramError: If an axis is out of range.
    """
    x = check_variable(input, "input", "uniform_random_batch_size_like")
    attrs = {"shape": list(shape), "dtype": dtype, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx,
             "min": min, "max": max, "seed": seed}  # fmt: skip
    return emit_one("uniform_random_batch_size_like", {"Input": x}, attrs)
