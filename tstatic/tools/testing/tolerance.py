"""Implements the tolerance rule: how far a fused result may be from the result in float64."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tstatic.ir import expr
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import GRAD, OpDef, op_def
from tstatic.ir.program import Operator, Program
from tstatic.ir.types import DType, dtype_of

Array = np.ndarray[Any, Any]

FACTOR = 1.5
"""How many times the unfused result's error, measured in float64, the fused result may have."""
MOST_ULPS = 64
"""The largest k of a program."""


# ----------------------------------------------------------------------------------------------------------------- rule
@dataclass(frozen=True)
class Difference:
    """The worst element of a value that breaks the rule.

    Attributes:
        reason: ``"value"``, ``"nan"``, ``"infinity"``, ``"exact"`` (integers, truth values), ``"shape"`` or ``"dtype"``.
        index: Position of the element.
        y64, unfused, fused: Its three values.
        allowed: Distance from ``y64`` that the rule allows.
        count: How many elements break the rule.
    """

    reason: str
    index: tuple[int, ...] = ()
    y64: Any = None
    unfused: Any = None
    fused: Any = None
    allowed: float = 0.0
    count: int = 1

    def __str__(self) -> str:
        if self.reason in ("shape", "dtype"):
            return f"{self.reason}: unfused {self.unfused}, fused {self.fused}"
        error = abs(float(self.fused) - float(self.y64)) if self.reason == "value" else math.nan
        tail = f", error {error:.3g}, allowed {self.allowed:.3g}" if self.reason == "value" else ""
        return (
            f"at {list(self.index)} ({self.reason}): float64 {self.y64}, unfused {self.unfused}, fused {self.fused}"
            f"{tail}; {self.count} such elements"
        )


def ulp(y64: Array, dtype: Any) -> Array:
    """Returns the unit in the last place of ``dtype`` at each value; below the smallest normal number, that of subnormals."""
    kind = dtype_of(dtype)
    info = np.finfo(kind.np) if kind.name != "bfloat16" else ml_dtypes.finfo(kind.np)
    # The mantissa of frexp lies in [0.5, 1), so a value's own exponent is one less.
    _, exponent = np.frexp(np.abs(y64))
    lowest = int(info.minexp) - int(info.nmant)
    unit = np.ldexp(1.0, np.where(y64 == 0, lowest, np.maximum(exponent - 1 - int(info.nmant), lowest)))
    return np.asarray(np.where(np.isfinite(y64), unit, 0.0))


def check(y64: Array, unfused: Array, fused: Array, k: float = 0.0, spread: Any = 0.0) -> Difference | None:
    """Applies the tolerance rule to one value.

    A float passes if everywhere ``|fused - y64| <= 1.5 * max(|unfused - y64|, spread) + k * ulp(y64)``, and NaN and
    infinities are where the unfused result has them. Where the unfused program overflowed on its way to a value that is finite in
    float64, a fused result may also be finite, within ``1.5 * spread + k * ulp(y64)``. Values that are not floats must be equal.

    Args:
        y64: The value computed in float64.
        unfused: The unfused program's value.
        fused: The fused program's value.
        k: Units in the last place (see :func:`ulps_of`).
        spread: By how much ``y64`` changes if each input and temporary changes by one unit in its last place.

    Returns:
        The worst element, or ``None`` if the rule holds.
    """
    if fused.dtype != unfused.dtype:
        return Difference("dtype", unfused=unfused.dtype, fused=fused.dtype)
    if fused.shape != unfused.shape:
        return Difference("shape", unfused=unfused.shape, fused=fused.shape)
    if not dtype_of(unfused.dtype).is_float:
        return _worst("exact", fused != unfused, None, y64, unfused, fused)
    u, f = unfused.astype(np.float64), fused.astype(np.float64)
    with np.errstate(all="ignore"):
        moved = np.nan_to_num(np.broadcast_to(np.asarray(spread, np.float64), u.shape), nan=0.0, posinf=0.0)
        near = np.abs(f - y64) <= FACTOR * moved + k * ulp(y64, unfused.dtype)
    # What no longer overflows is not compared with the overflow.
    u = np.where(np.isfinite(y64) & ~np.isfinite(u) & near, f, u)
    if (np.isnan(u) != np.isnan(f)).any():
        return _worst("nan", np.isnan(u) != np.isnan(f), None, y64, unfused, fused)
    infinite = np.isinf(u) | np.isinf(f)
    if (u[infinite] != f[infinite]).any():
        return _worst("infinity", infinite & (u != f), None, y64, unfused, fused)
    # Without a finite value in float64 (it overflowed, or the dtype did), the unfused result is the reference.
    base = np.where(np.isfinite(y64) & np.isfinite(u), y64, u).astype(np.float64)
    with np.errstate(all="ignore"):
        allowed = FACTOR * np.maximum(np.abs(u - base), moved) + k * ulp(base, unfused.dtype)
        error = np.abs(f - base)
        # Not `error > allowed`, which is false where the error is NaN.
        bad = np.isfinite(u) & ~(error <= allowed)
        return _worst("value", bad, np.where(bad, error - allowed, -1.0), base, unfused, fused, allowed)


def _worst(
    reason: str, bad: Array, score: Array | None, y64: Array, unfused: Array, fused: Array, allowed: Array | None = None
) -> Difference | None:
    if not np.any(bad):
        return None
    # Without a score the first element that breaks the rule.
    flat = int(np.argmax(np.asarray(bad if score is None else score)))
    at = tuple(int(i) for i in np.unravel_index(flat, unfused.shape))
    limit = 0.0 if allowed is None else float(allowed[at])
    same = np.shape(y64) == unfused.shape
    return Difference(reason, at, y64[at] if same else None, unfused[at], fused[at], limit, int(np.sum(bad)))


# -------------------------------------------------------------------------------------------------------------------- k
_FREE, _SMALL, _ROOT, _CURVE = 0, 1, 2, 4
# By function of the expression language, in float32: add, subtract, multiply 1; quotients and roots 2; powers 8; what only
# chooses, copies or compares 0; all other functions 4.
_UNITS = {
    **dict.fromkeys(("add", "sub", "mul", "square"), _SMALL),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "remainder", "floordiv"), _ROOT),
    **dict.fromkeys(("neg", "abs", "sign", "floor", "ceil", "trunc", "round"), _FREE),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "where"), _FREE),
    "pow": 2 * _CURVE,
}  # fmt: skip


def _function_units(name: str) -> int:
    function = expr.FUNCTIONS[name]
    return _FREE if function.kind == "bool" else _UNITS.get(name, _CURVE)


@cache
def _text_units(text: str) -> int:
    """Returns the units of an expression's least accurate function; one of a cubic argument (gelu's tanh form) counts double."""
    best = 0
    stack = [expr.parse(text)]
    while stack:
        node = stack.pop()
        stack += node.args
        if node.op not in ("var", "const"):
            own = _function_units(node.op)
            cubic = own == _CURVE and max((_degree(a) for a in node.args), default=0) > 2
            best = max(best, 2 * own if cubic else own)
    return best


def _degree(node: expr.Node) -> int:
    """Returns the degree of an expression as a polynomial of its variables."""
    if node.op in ("var", "const"):
        return int(node.op == "var")
    inner = [_degree(a) for a in node.args]
    return sum(inner) if node.op == "mul" else max(inner, default=0)


@cache
def _copies(type: str) -> bool:
    """Returns whether each result element is an input element, maybe negated, or 0, 1 or -1; runs the op on samples to find out."""
    definition = op_def(type)
    domain = definition.domain
    if (
        domain is None
        or definition.random
        or definition.effects
        or definition.dynamic
        or definition.objects
        or not domain.cases
    ):
        return False
    # Random values: that a result equals one of them by chance, without being copied, is out of the question.
    rng = np.random.default_rng(0)
    for case in domain.cases[:3]:
        ins: list[Any] = []
        for slot, shape in zip(definition.inputs, case.shapes + (None,) * len(definition.inputs), strict=False):
            values = domain.values.get(slot.name)
            whole = values is not None and values.dtype != "float"

            def one(size: Any, values: Any = values, whole: bool = whole) -> Array:
                if whole:
                    return np.zeros(size, dtype_of(values.dtype).np)
                return np.asarray(rng.uniform(0.3, 0.9, size))

            ins.append(None if shape is None else [one(s) for s in shape] if slot.many else one(shape))
        try:
            outs = evaluate(definition, ins, case.attrs)
        except Exception:
            return False
        given = np.concatenate(
            [np.ravel(a) for v in ins if v is not None for a in (v if isinstance(v, list) else [v])] or [np.zeros(0)]
        )
        known = np.concatenate([given, -given, [0.0, 1.0, -1.0]])
        for slot, out in zip(definition.outputs, outs, strict=True):
            for a in [] if out is None or slot.intermediate else out if isinstance(out, list) else [out]:
                if dtype_of(a.dtype).is_float and not np.isin(a, known).all():
                    return False
    return True


def is_free(type: str) -> bool:
    """Returns whether an op only selects and copies, so that two correct kernels give the same bits."""
    definition = op_def(type)
    if definition.pointwise is not None:
        return all(_text_units(text) == 0 for text in definition.pointwise.values())
    return _copies(type)


def _reads_values(definition: OpDef) -> bool:
    """Returns whether the op's gradient depends on its values; that of a linear op (a sum) does not."""
    try:
        backward = op_def(f"{definition.type}_grad")
    except Exception:
        return False
    return any(not s.name.endswith(GRAD) and s.name not in backward.shape_only for s in backward.inputs)


def units(op: Operator) -> float:
    """Returns k of one op: how many units in the last place two correct kernels may differ by (the table of docs/testing.md)."""
    definition = op.definition
    block = op.block
    outs = [block._var_recursive(n) for n in op.output_arg_names if block._find_var_recursive(n) is not None]
    floats = [v for v in outs if v.dtype.is_float]
    if not floats or definition.random:
        return 0.0
    low = all(v.dtype.is_low for v in floats)
    wide = all(v.dtype.name == "float64" for v in floats)
    if definition.update:
        return 4.0 if low else 16.0 if wide else 32.0
    if definition.pointwise is not None:
        found = max(_text_units(_folded(text, op.attrs)) for text in definition.pointwise.values())
        reduced = _terms(op)
        base = float(min(found, 1) if low else min(found, _CURVE) if wide else found)
        # The gradient of a broadcast operand is a sum over the broadcast axes.
        return base + (_sum_units(reduced, low) if definition.of and reduced > 1 else 0.0)
    forward = definition
    while forward.of:
        forward = op_def(forward.of)
    magnitudes = _terms(op)
    if forward.uses_blas and forward.cost is not None and len(forward.inputs) == 2:
        inner = max(2, _inner(op))
        return 2.0 if low else 4.0 + math.log2(inner)
    if not definition.of and _copies(definition.type):
        return 0.0
    if definition.of and _copies(forward.type):
        # Gradients of gathers and expansions sum over elements that were read several times.
        return (2.0 if low else 4.0 + math.log2(magnitudes)) if magnitudes > 1 or _has_index(op) else 0.0
    if not _reads_values(forward):
        return _sum_units(magnitudes, low)
    return 2.0 if low else 8.0 + math.log2(max(2, magnitudes))


def _sum_units(magnitudes: int, low: bool) -> float:
    return 1.0 + 0.25 * math.log2(max(1, magnitudes)) if low else 2.0 + math.log2(max(1, magnitudes))


def _folded(text: str, attrs: Mapping[str, Any]) -> str:
    """Returns the expression with the attributes substituted, so that branches not taken do not count."""
    values = {n: expr.const(v) for n, v in attrs.items() if isinstance(v, bool | int | float)}
    node = expr.substitute(expr.parse(text), values)
    return expr.to_text(_taken(node))


def _taken(node: expr.Node) -> expr.Node:
    if node.op == "where" and node.args[0].op == "const":
        return _taken(node.args[1 if node.args[0].value else 2])
    if not node.args:
        return node
    return expr.Node(node.op, tuple(_taken(a) for a in node.args), node.value)


def _sizes(op: Operator, names: Iterable[str]) -> list[int]:
    found = []
    for name in names:
        var = op.block._find_var_recursive(name)
        if var is not None and var.dtype.is_float:
            found.append(math.prod(max(s, 1) for s in var.shape))
    return found


def _terms(op: Operator) -> int:
    """Returns how many terms an element of the result sums: the ratio of the sizes, or the longest axis if they are equal."""
    reads, writes = _sizes(op, op.input_arg_names), _sizes(op, op.output_arg_names)
    if not reads or not writes:
        return 1
    ratio = max(reads) // max(1, min(writes))
    if ratio > 1 or op.definition.pointwise is not None:
        return max(1, ratio)
    shapes = [op.block._var_recursive(n).shape for n in op.input_arg_names]
    return max((1, *(s for shape in shapes for s in shape)))


def _inner(op: Operator) -> int:
    """Returns the length of the inner products of a matrix product or convolution: sqrt(|x| |y| / |out|), exact for matrices."""
    reads, writes = sorted(_sizes(op, op.input_arg_names)), _sizes(op, op.output_arg_names)
    if len(reads) < 2 or not writes:
        return 2
    return math.ceil(math.sqrt(reads[-1] * reads[-2] / max(1, min(writes))))


def _has_index(op: Operator) -> bool:
    shape_only = op.definition.shape_only
    return any(
        not op.block._var_recursive(n).dtype.is_float
        for s, row in op.inputs.items()
        if s not in shape_only
        for n in row
    )


def ulps_of(
    program: Program, names: Collection[str], rewritten: Program | None = None, again: bool = False
) -> dict[str, float]:
    """Returns k of values of a program: the sum of k over the ops that they depend on and that were rewritten, at most 64.

    Args:
        program: The user's program.
        names: Values.
        rewritten: The program as it runs (``compiled.program``): ops that it contains unchanged count 0, because they run
            the same code. ``None`` counts every op.
        again: Whether the program runs several times, so that what it reads from the scope depends on earlier runs.
    """
    untouched: set[tuple[Any, ...]] = set()
    if rewritten is not None:
        untouched = {_signature(op) for block in rewritten.blocks for op in block.ops}
    ops = [op for block in program.blocks for op in block.ops]
    costs = [0.0 if _signature(op) in untouched else units(op) for op in ops]
    everything = (1 << len(ops)) - 1
    masks: dict[str, int] = {}
    # A second round carries what updates wrote to what reads it in the next run.
    for _ in range(2 if again else 1):
        for i, op in enumerate(ops):
            # A set of ops as the bits of an int: unions over thousands of ops stay cheap.
            mask = 1 << i
            for name in op.input_arg_names:
                mask |= masks.get(name, 0)
            for name in op.output_arg_names:
                masks[name] = masks.get(name, 0) | mask

    def total(name: str) -> float:
        # In a program with sub-blocks, any op may reach the value.
        mask = masks.get(name, 0) if len(program.blocks) == 1 else everything
        return min(float(MOST_ULPS), sum(c for i, c in enumerate(costs) if c and mask >> i & 1))

    return {name: total(name) for name in names}


def _signature(op: Operator) -> tuple[Any, ...]:
    """Returns the identity of an op that no fusion changed: a fused op may share type and results with an op that it contains."""
    return op.type, tuple(op.input_arg_names), tuple(op.output_arg_names)


# -------------------------------------------------------------------------------------------------------------- float64
def float64_program(program: Program) -> Program:
    """Returns a copy in which every float variable, parameter and dtype attribute is float64; casts of floats do nothing."""
    return retyped(program, dtype_of("float64"))


def retyped(program: Program, dtype: DType) -> Program:
    """Returns a copy in which every float variable, parameter and dtype attribute has the given dtype."""
    wide = program.clone()
    for block in wide.blocks:
        for var in block.vars.values():
            if var._dtype is not None and var._dtype.is_float:
                var._dtype = dtype
        for op in block.ops:
            for name, spec in op.definition.attrs.items():
                value = op.attrs.get(name)
                if spec.kind == "dtype" and isinstance(value, DType) and value.is_float:
                    _retype_bytes(op, value, dtype)
                    op.attrs[name] = dtype
    wide._touch()
    return wide


def _retype_bytes(op: Operator, old: DType, new: DType) -> None:
    """Converts constants that attributes hold as bytes of the old dtype."""
    for name, value in op.attrs.items():
        if isinstance(value, bytes):
            op.attrs[name] = np.frombuffer(value, old.np).astype(new.np).tobytes()


__all__ = [
    "FACTOR",
    "MOST_ULPS",
    "Difference",
    "check",
    "float64_program",
    "retyped",
    "ulp",
    "ulps_of",
    "units",
]
