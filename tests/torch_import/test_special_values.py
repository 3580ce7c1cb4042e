"""Converters give what torch gives for special values, negative and inexact operands, numbers beside tensors, and odd sizes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.special_values import differing, special_values
from tstatic import static
from tstatic.ir.types import dtype_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
Case = Callable[[Any, Any], Any]

PAIRS: dict[str, Case] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2), "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "pow": lambda a, b: a**b,
    "maximum": torch.maximum, "minimum": torch.minimum, "atan2": torch.atan2, "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=0.5), "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "clamp_tensor": lambda a, b: a.clamp(min=b), "where": lambda a, b: torch.where(a > b, a, b),
    "masked_fill": lambda a, b: a.masked_fill(a > b, 1), "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
}  # fmt: skip
NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": lambda a, n: a // n, "remainder": lambda a, n: a % n, "div": lambda a, n: a / n,
    "div_trunc": lambda a, n: torch.div(a, n, rounding_mode="trunc"), "pow": lambda a, n: a**n, "rpow": lambda a, n: n**a,
    "rsub": lambda a, n: n - a, "clamp_min": lambda a, n: a.clamp(min=n), "clamp": lambda a, n: a.clamp(-1, n),
    "mul": lambda a, n: a * n, "add": lambda a, n: a + n, "lt": lambda a, n: a < n, "eq": lambda a, n: a == n,
}  # fmt: skip
SINGLES: dict[str, Case] = {
    **{
        name: lambda a, b, _n=name: getattr(a, _n)()
        for name in (
            "abs", "neg", "exp", "expm1", "square", "sign", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "erf",
            "erfinv", "lgamma", "digamma", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "floor", "ceil", "round",
            "trunc", "sigmoid", "tanh", "isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "float", "double", "bool",
        )
    },
    **{
        name: lambda a, b, _n=name: getattr(F, _n)(a)
        for name in (
            "relu", "relu6", "hardtanh", "leaky_relu", "elu", "celu", "selu", "silu", "mish", "hardswish", "gelu", "hardsigmoid",
            "softplus", "logsigmoid", "softshrink", "hardshrink",
        )
    },
    "gelu_tanh": lambda a, b: F.gelu(a, approximate="tanh"), "nan_to_num": lambda a, b: torch.nan_to_num(a),
    "nan_to_num_chosen": lambda a, b: torch.nan_to_num(a, nan=1.0, posinf=2.0, neginf=-2.0),
}  # fmt: skip
CASES = {
    **PAIRS,
    **{f"{name} {n}": lambda a, b, _f=f, _n=n: _f(a, _n) for name, f in NUMBERS.items() for n in (2, -2, 0.1, 0, 3)},
    **SINGLES,
}

Operands = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _large(a: Any, b: Any) -> Any:
    top = float(np.finfo(a.dtype).max)
    return (np.abs(a) > top / 4) | (np.abs(b) > top / 4)


def _tiny(a: Any, b: Any) -> Any:
    return (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)


def _many(a: Any, b: Any) -> Any:
    """Quotients beyond which a float has no digits behind the point."""
    with np.errstate(all="ignore"):
        return np.abs(a / b) > 0.1 / np.finfo(a.dtype).eps


DIFFERENT: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "add_alpha": (_large, "torch multiplies and adds without an overflow in between, where the processor can"),
    "rsub": (_large, "torch multiplies and adds without an overflow in between, where the processor can"),
    "addcmul": (_large, "torch squares a number without an overflow in between, where the processor can"),
    "remainder": (_many, "a quotient without digits behind the point has no remainder that means anything"),
    "remainder 0.1": (
        lambda a, b: _many(a, 0.1),
        "torch's remainder of a quotient without digits behind the point is NaN, or arbitrary",
    ),
    "gelu": (lambda a, b: _large(a, a) | _tiny(a, b), "torch doubles the number in between, or halves it to zero"),
    "log1p": (_tiny, "torch's is 0 for subnormal numbers"),
    "lgamma": (_tiny, "of subnormal numbers tstatic's is infinite"),
}
"""Where results differ, and why: docs/from_torch.md says it."""


class _Module(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is not typed here
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, a: Any, b: Any) -> Any:
        return self.case(a, b)


def converted(case: Case, *operands: np.ndarray[Any, Any]) -> list[Any]:
    """What the converted module gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = tuple(torch.from_numpy(one.copy()) for one in operands)
        net = paddle.from_torch(_Module(case), given, dynamic_shapes=None)
    with static.scope_guard(static.Scope()):
        exe = static.Executor()
        exe.run(net.startup)
        feed = {name: one for name, one in zip("ab", operands, strict=True) if name in net.feed_names}
        found: list[Any] = exe.run(net.program, feed=feed, fetch_list=net.fetch_vars)
        return found


def together(cases: Iterable[Case], *operands: np.ndarray[Any, Any]) -> list[Any]:
    """What each case gives, as an output of one module: an export takes longer than a case."""
    chosen = list(cases)
    found = converted(lambda a, b: [case(a, b) for case in chosen], *operands)
    assert len(found) == len(chosen)
    return found


def operands_of(dtype: str) -> Operands:
    """All pairs of special values, and ordinary pairs of both signs whose quotients are not exact."""
    values = special_values(dtype_of(dtype))
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    if dtype_of(dtype).is_float:
        rng = np.random.default_rng(0)
        exact = np.array([1, -1, 7, -7, 0.3, -0.3, 5.5], dtype), np.array([0.1, 0.1, -2, 2, 0.1, 0.1, -0.5], dtype)
        a = np.concatenate([a, exact[0], (3 * rng.standard_normal(40)).astype(dtype)])
        b = np.concatenate([b, exact[1], rng.standard_normal(40).astype(dtype)])
    return a, b


def difference(got: Any, wanted: Any) -> Any:
    """Where results differ by more than rounding, or in a special value other than the sign of a zero."""
    if wanted.dtype.kind != "f":
        return got != wanted
    with np.errstate(all="ignore"):
        single = wanted.dtype == np.float32
        near = np.isclose(got, wanted, rtol=1e-3 if single else 1e-9, atol=1e-10 if single else 1e-14, equal_nan=True)
    return differing(got, wanted, None, zeros=False) | ~near


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_each_function_of_elements(dtype: str) -> None:
    a, b = operands_of(dtype)
    wrong, known = [], {}
    for name, case in CASES.items():
        # torch has it for other dtypes, or other values
        with contextlib.suppress(RuntimeError, ZeroDivisionError, TypeError):
            known[name] = case(torch.from_numpy(a.copy()), torch.from_numpy(b.copy())).numpy()
    for (name, wanted), got in zip(known.items(), together([CASES[name] for name in known], a, b), strict=True):
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            wrong.append(f"{name}: {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}")
            continue
        bad = difference(got, wanted)
        if name in DIFFERENT and dtype_of(dtype).is_float:
            bad &= ~DIFFERENT[name][0](a, b)
        wrong += [f"{name}({a[i]}, {b[i]}) is {got[i]}, not {wanted[i]}" for i in np.flatnonzero(bad)[:3]]
    assert wrong == []
    assert len(known) > (45 if dtype == "bool" else 80)


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (7, 0.3), (-7, 0.3)])
def test_whole_numbers_beside_floats(a: float, b: float) -> None:
    whole, other = np.array([a, a, 0], "int64"), np.array([b, b, b], "float32" if isinstance(b, float) else "int32")
    names = ("div", "div_floor", "div_trunc", "floor_divide", "remainder", "add", "mul", "maximum")
    for name, got in zip(names, together([PAIRS[name] for name in names], whole, other), strict=True):
        wanted = PAIRS[name](torch.from_numpy(whole), torch.from_numpy(other)).numpy()
        assert got.dtype == wanted.dtype, name
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=name)


REDUCTIONS: dict[str, Case] = {
    "sum": lambda a, b: a.sum(), "sum 0": lambda a, b: a.sum(0), "sum 1": lambda a, b: a.sum(1, keepdim=True),
    "mean": lambda a, b: a.mean(), "mean 0": lambda a, b: a.mean(0), "mean 1": lambda a, b: a.mean(-1),
    "prod": lambda a, b: a.prod(), "prod 1": lambda a, b: a.prod(1), "var": lambda a, b: a.var(), "var 0": lambda a, b: a.var(0),
    "var 1": lambda a, b: a.var(1, keepdim=True), "var 0, 1": lambda a, b: a.var((0, 1)), "std": lambda a, b: a.std(),
    "std 0": lambda a, b: a.std(0), "std 1": lambda a, b: a.std(1), "biased var": lambda a, b: a.var(0, unbiased=False),
    "biased std": lambda a, b: a.std(1, unbiased=False), "all": lambda a, b: a.bool().all(), "any": lambda a, b: a.bool().any(1),
    "cumsum 0": lambda a, b: a.cumsum(0), "cumsum 1": lambda a, b: a.cumsum(1), "norm": lambda a, b: torch.linalg.vector_norm(a),
    "norm 2": lambda a, b: a.norm(dim=1), "norm 1": lambda a, b: torch.norm(a, 1, 0), "logsumexp 0": lambda a, b: a.logsumexp(0),
    "logsumexp 1": lambda a, b: a.logsumexp(1), "softmax": lambda a, b: a.softmax(1), "log_softmax": lambda a, b: a.log_softmax(0),
    "amax": lambda a, b: a.amax(1), "amin": lambda a, b: a.amin(0), "max": lambda a, b: a.max(), "min": lambda a, b: a.min(),
    "argmax": lambda a, b: a.argmax(1), "argmin": lambda a, b: a.argmin(), "sort": lambda a, b: a.sort(1)[0],
    "sorted": lambda a, b: a.sort(1)[1], "argsort": lambda a, b: a.argsort(0), "topk": lambda a, b: a.topk(1, 0)[0],
}  # fmt: skip


def _of_torch(case: Case, a: Any) -> Any:
    """torch's result; ``None`` if it has nothing for no element."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case(torch.from_numpy(a), None).numpy()
        except (RuntimeError, IndexError):
            return None


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (7, 3), (0, 3), (3, 0)], ids=str)
def test_reductions_of_odd_sizes(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(1).standard_normal(shape).astype("float32")
    wrong, known = [], {name: _of_torch(case, a) for name, case in REDUCTIONS.items()}
    # The logsumexp of no elements is minus infinity in torch, and refused here with a reason.
    names = [n for n, w in known.items() if w is not None and (a.size or not n.startswith("logsumexp"))]
    for name, got in zip(names, together([REDUCTIONS[name] for name in names], a, a), strict=True):
        wanted = known[name]
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=2e-5, atol=1e-6, equal_nan=True):
            wrong.append(f"{name}: {got.tolist()}, not {wanted.tolist()}")
    assert wrong == []
    assert len(names) > 25


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_reductions_of_special_values(special: float) -> None:
    a = np.random.default_rng(2).standard_normal((4, 5)).astype("float32")
    a[1, 2] = special
    wrong = []
    for (name, case), got in zip(REDUCTIONS.items(), together(REDUCTIONS.values(), a, a), strict=True):
        wanted = _of_torch(case, a)
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=2e-5, atol=1e-6, equal_nan=True):
            wrong.append(f"{name}: {got.tolist()}, not {wanted.tolist()}")
    assert wrong == []
