"""Draws from given probabilities: coin flips and categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import FeedError, ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, INTEGERS, check_dtype, check_int, check_rank
from tstatic.ir.drawn import UNIT_24, Drawn
from tstatic.ir.evaluate import metas_of
from tstatic.ir.indices import Index
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, DType, Meta, float32, int64
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.random._random import DRAWN, in_order, to_dtype
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]


def _bad_probabilities(op: str, expected: str, received: object, fix: str) -> FeedError:
    return FeedError(
        f"the probabilities given to '{op}' cannot be used", expected=expected, received=received, fix=fix, op=op
    )


def _bernoulli_infer(x: Meta) -> Meta:
    check_dtype(x, FLOATS, "X", "bernoulli")
    return x


def _bernoulli_ref(x: Array, out: Array, *, seed: int, rng: Any) -> None:
    draw.fill_bernoulli(out, x, philox_key(rng, seed), rng.start)


def _bernoulli_lower(torch: Any, x: Any, *, seed: int, rng: Any) -> Any:
    u = draw.torch_uniform(torch, x.numel(), np.dtype(np.float32), 0.0, 1.0, philox_key(rng, seed), rng.start, x.device)
    return (u.reshape(x.shape) < x).to(x.dtype)


def _bernoulli_drawn(x: Meta) -> Drawn:
    """Returns what kernels compute: bit for bit ``fill_bernoulli``."""
    return Drawn({"Out": f"{UNIT_24} * unit < x"}, x.shape, {"unit": draw.ONE_24})


# `chances`: a value outside of [0, 1] is refused as an index out of range is.
_CHANCES = Index("X", lambda x: 2, name="the input of 'bernoulli'", chances=True,
                 fix="apply paddle.clip(x, 0, 1) or F.sigmoid first")  # fmt: skip

register(OpDef(
    "bernoulli", "X -> Out", attrs={"seed": 0}, infer=_bernoulli_infer, ref=_bernoulli_ref, lower=_bernoulli_lower,
    split=DRAWN, random=True, drawn=_bernoulli_drawn, effects=True, indices=(_CHANCES,),
    domain=Domain(
        "unary",
        values={"X": ValueRange(0.0, 1.0)},
        ulps=0,
        check_grad="a coin flip has no gradient",
        cases=(Case(((400,),)),),
    ),
))  # fmt: skip


def _multinomial_infer(x: Meta, given: Meta | None, num_samples: int, replacement: bool) -> Meta:
    check_dtype(x, FLOATS, "X", "multinomial")
    check_rank(x, (1, 2), "X", "multinomial", layout="[categories] or [rows, categories]")
    if given is not None:
        check_dtype(given, INTEGERS, "num_samples", "multinomial")
        return Meta((*x.shape[:-1], UNKNOWN), int64)
    most = None if replacement or x.shape[-1] == UNKNOWN else x.shape[-1]
    fix = "" if num_samples < 1 else "draw fewer samples, or pass replacement=True"
    check_int(num_samples, "num_samples", "multinomial", 1, most, fix=fix, error=ProgramError)
    return Meta((*x.shape[:-1], num_samples), int64)


def _multinomial_ref(
    x: Array, given: Array | None, out: Array | None, *, num_samples: int, replacement: bool, seed: int, rng: Any
) -> Array | None:
    if given is not None:
        num_samples = int(given.reshape(-1)[0])
        made = np.empty(_multinomial_infer(metas_of([x])[0], None, num_samples, replacement).shape, np.int64)
        _multinomial_ref(x, None, made, num_samples=num_samples, replacement=replacement, seed=seed, rng=rng)
        return made
    assert out is not None
    key = philox_key(rng, seed)
    rows = x.reshape(-1, x.shape[-1]) if x.ndim == 1 else x
    found = out.reshape(1, -1) if out.ndim == 1 else out
    # Without replacement every category draws one number, its waiting time.
    drawn = num_samples if replacement else rows.shape[1]
    u = np.empty(drawn, np.float64)
    for i, row in enumerate(rows):
        weights = row.astype(np.float64)
        usable = int(np.count_nonzero(weights > 0))
        if not (np.isfinite(weights).all() and (weights >= 0).all() and usable >= (1 if replacement else num_samples)):
            raise _bad_probabilities(
                "multinomial",
                f"finite numbers of at least 0, at least {1 if replacement else num_samples} of them above 0",
                f"row {i} with {usable} numbers above 0, smallest {weights.min(initial=np.inf)}",
                "apply F.softmax first, or draw fewer samples",
            )
        # Each row has its own part of the stream.
        draw.fill_uniform(u, 0.0, 1.0, key, rng.start + i * drawn)
        if replacement:
            total = np.cumsum(weights)
            pick = np.searchsorted(total, u * total[-1], side="right")
            # u * total may round up to the total itself: not beyond the last category that has a chance.
            np.minimum(pick, np.flatnonzero(weights)[-1], out=found[i])
        else:
            # The first to arrive of exponential waiting times with these rates, then the next, and so on.
            with np.errstate(all="ignore"):
                arrival = -np.log(u + draw.ONE_53) / weights
            # 0 / 0 is NaN where u is 1 - 2**-53; a category without a chance never arrives.
            arrival[weights == 0] = np.inf
            found[i] = np.argsort(arrival, kind="stable")[:num_samples]
    return None


def _multinomial_lower(
    torch: Any, x: Any, given: Any, *, num_samples: int, replacement: bool, seed: int, rng: Any
) -> Any:
    if given is not None:
        num_samples = int(given)
        _multinomial_infer(Meta(tuple(x.shape), float32), None, num_samples, replacement)
    weights = x.double().reshape(-1, x.shape[-1])
    rows, drawn = weights.shape[0], num_samples if replacement else weights.shape[1]
    u = draw.torch_uniform(
        torch, rows * drawn, np.dtype(np.float64), 0.0, 1.0, philox_key(rng, seed), rng.start, x.device
    )
    u = u.reshape(rows, drawn)
    if replacement:
        total = torch.cumsum(weights, 1)
        pick = torch.searchsorted(total, u * total[:, -1:], right=True)
        # The last category with a chance: the first one from behind.
        last = weights.shape[1] - 1 - torch.argmax((weights.flip(1) > 0).to(torch.uint8), 1, keepdim=True)
        pick = torch.minimum(pick, last)
    else:
        arrival = torch.where(weights > 0, -torch.log(u + draw.ONE_53) / weights, torch.inf)
        pick = torch.argsort(arrival, dim=1, stable=True)[:, :num_samples]
    return pick.reshape(*x.shape[:-1], num_samples)


register(OpDef(
    "multinomial", "X, NumSamplesTensor? -> Out", attrs={"num_samples": 1, "replacement": False, "seed": 0},
    infer=_multinomial_infer, ref=_multinomial_ref, lower=_multinomial_lower, random=True, effects=True,
    domain=Domain(
        cases=(
            Case(((6,), None), {"num_samples": 3}),
            Case(((4, 9), None), {"num_samples": 9}),
            Case(((4, 9), None), {"num_samples": 20, "replacement": True}),
            Case(((1,), None), {"num_samples": 1}),
            Case(((0, 3), None), {"num_samples": 2}),
        ),
        values={"X": ValueRange(0.01, 1.0)},
        floats=("float32", "float64"),
        check_grad="a drawn index has no gradient",
    ),
))  # fmt: skip


def _sampling_id_infer(x: Meta, dtype: DType, min: float, max: float) -> Meta:
    check_dtype(x, FLOATS, "X", "sampling_id")
    in_order("sampling_id", min, max)
    check_rank(x, 2, "X", "sampling_id", layout="[batch, categories]")
    if x.shape[1] == 0:
        raise ShapeError(
            "'sampling_id' draws from at least one category",
            expected="[batch, categories] with at least one category",
            received=list(x.shape),
            fix="give each row the probability of each category",
            op="sampling_id",
        )
    return Meta(x.shape[:1], dtype)


def _sampling_id_ref(x: Array, out: Array, *, min: float, max: float, seed: int, rng: Any) -> None:
    u = np.empty(x.shape[0], np.float64)
    draw.fill_uniform(u, min, max, philox_key(rng, seed), rng.start)
    for i, row in enumerate(x):
        # The last category takes what rounding leaves over.
        out[i] = np.searchsorted(np.cumsum(row[:-1], dtype=np.float64), u[i], side="right")


def _sampling_id_lower(torch: Any, x: Any, *, dtype: DType, min: float, max: float, seed: int, rng: Any) -> Any:
    u = draw.torch_uniform(
        torch, x.shape[0], np.dtype(np.float64), min, max, philox_key(rng, seed), rng.start, x.device
    )
    # Without the last category, which takes whatever is left of 1.
    total = torch.cumsum(x[:, :-1].double(), 1)
    return to_dtype(torch, torch.searchsorted(total, u[:, None], right=True)[:, 0], dtype)


register(OpDef(
    "sampling_id", "X -> Out", lod="X", attrs={"min": 0.0, "max": 1.0, "seed": 0, "dtype": float32}, infer=_sampling_id_infer,
    ref=_sampling_id_ref, lower=_sampling_id_lower, random=True,
    domain=Domain(
        cases=(
            Case(((5, 7),)),
            Case(((3, 1),), {"dtype": "int64"}),
            Case(((0, 4),)),
            Case(((40, 5),), {"max": 0.5}),
        ),
        values={"X": ValueRange(rows=True)},
        floats=("float32", "float64"),
        ulps=0,
        check_grad="a drawn index has no gradient",
    ),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------- public functions
@export("tensor.bernoulli", "Variable.bernoulli", op="bernoulli")
def bernoulli(x: Variable, name: str | None = None) -> Variable:
    """Draws 1 with chance ``x`` and 0 otherwise, elementwise; float of the shape of ``x``."""
    return emit_one("bernoulli", {"X": check_variable(x, "x", "bernoulli")}, name=name)


@export("tensor.multinomial", "Variable.multinomial", op="multinomial")
def multinomial(
    x: Variable, num_samples: int | Variable = 1, replacement: bool = False, name: str | None = None
) -> Variable:
    """Draws category numbers with chances proportional to ``x``.

    Args:
        x: Weights of shape [categories] or [rows, categories]; they need not sum to 1.
        num_samples: Draws per row: an int, or a Variable of one integer.
        replacement: Whether a category may come more than once.
        name: Name of the result.

    Returns:
        int64 of shape [num_samples] or [rows, num_samples].
    """
    given = num_samples if isinstance(num_samples, Variable) else None
    attrs = {"num_samples": 1 if given is not None else num_samples, "replacement": replacement}
    inputs = {"X": check_variable(x, "x", "multinomial"), "NumSamplesTensor": given}
    return emit_one("multinomial", inputs, attrs, name=name)


@export("fluid.layers.sampling_id", op="sampling_id")
def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """Draws one category per row of ``x`` ([batch, categories], rows of probabilities); shape [batch].

    Args:
        x: ``[batch, categories]`` floats: probabilities that sum to 1 in each row.
        min, max: Bounds of the uniform number that each row is compared with; 0 and 1 draw with the probabilities.
        seed: Replaces the program's seed when it is not 0.
        dtype: Element type of the result.
    """
    attrs = {"min": min, "max": max, "seed": seed, "dtype": dtype}
    return emit_one("sampling_id", {"X": check_variable(x, "x", "sampling_id")}, attrs)
