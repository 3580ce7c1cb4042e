"""Random whole numbers and permutations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.checks import INDICES, check_int, check_result_dtype, check_sizes
from tstatic.ir.drawn import BELOW, BELOW_64, Drawn
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import DType, Meta, Shape, dtype_of, int64, wrap
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.random._random import DRAWN, SHAPE, SHAPES, to_dtype
from tstatic.ops.random.distributions import uniform
from tstatic.ops.shape.fill import has_variable, known_shape
from tstatic.ops.shape.number_of import number_of
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key, torch_bits

Array = np.ndarray[Any, Any]


# ------------------------------------------------------------------------------------------------------------- integers
def _randint_infer(shape: Shape, dtype: DType, low: int, high: int) -> Meta:
    check_sizes(shape, "shape", "randint", least=0)
    check_result_dtype(dtype, INDICES, "randint")
    info = np.iinfo(dtype.np)
    if not (info.min <= low < high <= info.max + 1):
        raise ProgramError(
            "'randint' needs a range with at least one number, within its dtype",
            expected=f"low < high, both from {info.min} to {info.max + 1}",
            received=f"low={low}, high={high}",
            fix="numbers are drawn from low to high - 1",
            op="randint",
        )
    return Meta(shape, dtype)


def _randint_ref(out: Array, *, low: int, high: int, seed: int, rng: Any) -> None:
    draw.fill_integers(out, low, high, philox_key(rng, seed), rng.start)


def _randint_lower(torch: Any, *, shape: Shape, dtype: DType, low: int, high: int, seed: int, rng: Any) -> Any:
    flat = draw.torch_whole_numbers(torch, math.prod(shape), low, high, philox_key(rng, seed), rng.start)
    return to_dtype(torch, flat, dtype).reshape(shape)


def _randint_drawn(shape: Shape, low: int, high: int) -> Drawn:
    """Returns what kernels compute: bit for bit ``fill_integers``."""
    # A span of up to 2**32 needs one word for each number.
    number = BELOW if high - low <= 1 << 32 else BELOW_64
    # Two's complement: what does not fit into 64 bits with a sign wraps around, as the sum does.
    span, least = (wrap(n, int64) for n in (high - low, low))
    return Drawn({"Out": f"{number} + low"}, shape, loaded={"span": span, "low": least})


register(OpDef(
    "randint", "-> Out", attrs={**SHAPE, "dtype": int64, "low": 0, "high": Attr(kind="int")}, infer=_randint_infer,
    ref=_randint_ref, lower=_randint_lower, split=DRAWN, random=True, drawn=_randint_drawn,
    domain=Domain(
        cases=(
            *(
                Case((), {"shape": s, "low": -5, "high": 12, "dtype": d})
                for s in SHAPES
                for d in ("int32", "int64")
            ),
            Case((), {"shape": (99,), "low": -(2**63), "high": 2**63 - 1}),
            Case((), {"shape": (99,), "low": 0, "high": 2**32}),
            Case((), {"shape": (99,), "low": -(2**31), "high": 2**31, "dtype": "int32"}),
        )
    ),
))  # fmt: skip


def _randperm_infer(n: int, dtype: DType) -> Meta:
    check_sizes([check_int(n, "n", "randperm", 0)], "n", "randperm")
    # Random word and number share an int64 while they are sorted, which leaves 31 bits for the number.
    if n > 2**31 or (dtype.name == "int32" and n > 2**31 - 1):
        raise ProgramError(
            "'randperm' permutes at most 2**31 numbers",
            expected="n up to 2**31",
            received=n,
            fix="permute blocks of indices",
            op="randperm",
        )
    return Meta((n,), dtype)


def _randperm_ref(out: Array, *, seed: int, rng: Any, scratch: tuple[Array, ...]) -> None:
    plain = out.dtype == np.int64 and out.flags.c_contiguous
    # The sort makes int64; other types are cast from a buffer.
    order = out if plain else scratch[0] if scratch else np.empty(out.shape, np.int64)
    draw.fill_permutation(order, philox_key(rng, seed))
    if order is not out:
        np.copyto(out, order, casting="unsafe")


def _randperm_lower(torch: Any, *, n: int, dtype: DType, seed: int, rng: Any) -> Any:
    # A stable sort of random words: equal ones stay in order, so every backend finds the same permutation.
    bits = torch_bits(torch, n, philox_key(rng, seed))
    return to_dtype(torch, torch.argsort(bits, stable=True), dtype)


register(OpDef(
    "randperm", "-> Out", attrs={"n": Attr(kind="int"), "dtype": int64, "seed": 0}, infer=_randperm_infer,
    ref=plain(_randperm_ref, lambda out: () if out.dtype.name == "int64" else (out.with_dtype(int64),)),
    lower=_randperm_lower, random=True,
    domain=Domain(
        cases=tuple(
            Case((), {"n": n, "dtype": d}) for n in (0, 1, 2, 9, 500) for d in ("int64", "int32", "float32")
        ),
        ulps=0,
    ),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------- public functions
@export("tensor.randint", op="randint")
def randint(
    low: int = 0, high: int | None = None, shape: Any = (1,), dtype: Any = None, name: str | None = None
) -> Variable:
    """Draws whole numbers from ``low`` to ``high - 1``, each as likely; from 0 to ``low - 1`` when ``high`` is ``None``.

    Args:
        low: Smallest number.
        high: One more than the largest.
        shape: Sizes, or an integer Variable that holds them.
        dtype: int32 or int64 (``None``).
        name: Name of the result.
    """
    first, last = (0, low) if high is None else (low, high)
    first, last = check_int(first, "low", "randint"), check_int(last, "high", "randint")
    kind = int64 if dtype is None else dtype_of(dtype)
    if has_variable(shape):
        # Checks the bounds and the dtype as the operator does.
        emit_one("randint", {}, {"shape": (0,), "dtype": kind, "low": first, "high": last})
        drawn = emit_one("floor", {"X": uniform(shape, "float64", 0.0, 1.0) * float(last - first)})
        drawn = emit_one("cast", {"X": drawn}, {"in_dtype": drawn.dtype, "out_dtype": kind})
        return emit_one("elementwise_add", {"X": drawn, "Y": number_of(first, "low", "randint", kind.name)}, name=name)
    attrs = {"shape": known_shape(shape, "randint"), "dtype": kind, "low": first, "high": last}
    return emit_one("randint", {}, attrs, name=name)


@export("tensor.randperm", op="randperm")
def randperm(n: int, dtype: Any = "int64", name: str | None = None) -> Variable:
    """Draws the numbers 0 to ``n - 1`` in random order, of shape [n].

    Args:
        n: How many, at least 0.
        dtype: Element type, integers or floats.
        name: Name of the result.

    Raises:
        ShapeError: If ``n`` is negative.
    """
    return emit_one("randperm", {}, {"n": check_int(n, "n", "randperm"), "dtype": dtype}, name=name)
