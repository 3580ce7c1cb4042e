"""What two right kernels may disagree on near the ends of the range: what float64, roundings and the order of sums say of a result.

Unlike the tolerance rule, it looks at results that are NaN or infinite: docs/differences.md states the rule for users.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.helpers.special_values import largest
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient
from tstatic.ir.evaluate import evaluate
from tstatic.ir.frozen import FrozenOp, freeze
from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of
from tstatic.static import BuildStrategy, CompiledProgram
from tstatic.testing.feeds import data_variables
from tstatic.testing.magnitudes import SUFFIX, made_values, magnitudes, nudge, perturbable, unit_step, widen
from tstatic.testing.runner import CANCELS, MORE_PATTERNS, Trial, baseline_of
from tstatic.testing.tolerance import FACTOR, MOST_ULPS, float64_program, ulp, units

Array = np.ndarray[Any, Any]

ATTENTIONS = ("attention", "dot_product_attention")
"""Fusions whose kernels divide a row's sum of values, where the operators divide each weight."""
LINEAR = ("cast", "dropout", "scale")
"""What may stand between a softmax and the product that takes its weights."""


@dataclass(frozen=True)
class Known:
    """What is known of a run's results, in the order of :meth:`Trial.run`.

    Attributes:
        exact: In float64, where nothing overflows.
        spread: By how much they change if inputs and temporaries change by a unit in their last place.
        undecided: Where the order of a sum of products decides which of its partial sums overflow.
    """

    exact: list[list[Array]]
    spread: list[list[Array]]
    undecided: list[list[Array]]


def known_of(trial: Trial, feeds: Mapping[str, Array], state: Mapping[str, Array], fusion: str) -> Known:
    """Returns what is known of a run; takes some twenty runs in float64.

    Args:
        trial: The program.
        feeds, state: What the run is given.
        fusion: The name of the fusion whose kernels ran.
    """
    program, plain = trial.by_reference, baseline_of(BuildStrategy())
    wide, moved = (CompiledProgram(p, build_strategy=plain) for p in (float64_program(program), perturbable(program)))
    given, start = ({n: widen(a) for n, a in source.items()} for source in (feeds, state))
    made = made_values(program)
    exact = trial.run(wide, given, start)
    (middle, *_) = replace(trial, fetches=list(made), steps=1).run(wide, given, start)
    values = {**given, **start, **dict(zip(made, middle, strict=True))}
    ops = freeze(program, [v.name for v in data_variables(program)], []).ops

    def changed(by: Mapping[str, Array], nudged: Mapping[str, Array], first: Mapping[str, Array]) -> list[list[Array]]:
        return trial.run(moved, {**nudged, **{n + SUFFIX: a for n, a in by.items()}}, first)

    spread = [[np.zeros(np.shape(a)) for a in row] for row in exact]
    sizes = _sizes(program, values, ops)
    for pattern in range(MORE_PATTERNS):
        rng = np.random.default_rng(pattern)
        nudged, first = ({n: nudge(a, rng) for n, a in source.items()} for source in (feeds, state))
        found = changed({n: _roundings(program, n, values[n], sizes.get(n), rng) for n in made}, nudged, first)
        with np.errstate(all="ignore"):
            spread = [
                [np.fmax(s, np.abs(np.subtract(a, b, dtype=np.float64))) for s, a, b in zip(*rows, strict=True)]
                for rows in zip(spread, found, exact, strict=True)
            ]
    sums = _undecided_sums(program, values, made, ops)
    if fusion in ATTENTIONS:
        _attentions(program, values, ops, sums)
    undecided = [[np.zeros(np.shape(a), bool) for a in row] for row in exact]
    if any(bad.any() for bad in sums.values()):
        found = changed({n: np.where(bad, np.nan, 0.0) for n, bad in sums.items()}, given, start)
        undecided = [
            [np.isnan(a) & ~np.isnan(b) for a, b in zip(*rows, strict=True)] for rows in zip(found, exact, strict=True)
        ]
    return Known(exact, spread, undecided)


def _sizes(program: Program, values: Mapping[str, Array], ops: Collection[FrozenOp]) -> dict[str, Array]:
    """Returns sums of magnitudes; none for weights, which are at most 1 however large the rounding of a score is."""
    weights = _weights(ops)
    return {n: a for n, a in magnitudes(program, values).items() if n not in weights}


def _roundings(program: Program, name: str, value: Array, size: Array | None, rng: np.random.Generator) -> Array:
    """Returns a temporary's rounding: a unit in its last place and, where its terms cancel, one in that of the terms."""
    block = program.global_block()
    dtype = block._var_recursive(name).dtype
    step = unit_step(value, dtype, rng)
    if size is not None:
        (maker,) = (op for op in block.ops if name in op.output_arg_names)
        lost = max(1.0, units(maker)) * unit_step(np.nan_to_num(size, posinf=0.0), dtype.compute, rng)
        step = step + np.where(size > CANCELS * np.abs(value), lost, 0.0)
    return step


def tolerated(unfused: Array, fused: Array, exact: Array, spread: Array, undecided: Array) -> Array:
    """Returns where a fused result may be what it is, whatever the unfused one is.

    It is right: what float64 gives, as the type holds it. Or it is NaN or infinite, and so is the unfused one, which is not right:
    both overflowed on their way. Or nothing is right, as roundings alone move the result by more than the largest number. Or the
    order of a sum decides.

    Args:
        unfused, fused: Of one float type.
        exact, spread, undecided: Elements of :class:`Known`.
    """
    kind = dtype_of(fused.dtype)
    top = largest(kind)
    with np.errstate(all="ignore"):
        moved = FACTOR * np.nan_to_num(spread, nan=0.0, posinf=np.inf) + MOST_ULPS * ulp(exact, kind.np)

        def right(result: Array) -> Array:
            wide = result.astype(np.float64)
            # Infinity less infinity: the sign is a rounding's.
            up, down = (np.nan_to_num(a, nan=s * np.inf) for a, s in ((exact + moved, 1), (exact - moved, -1)))
            number = ~np.isnan(exact) & ~np.isnan(wide)
            infinite = number & np.where(wide > 0, up > top, down < -top)
            near = (
                number & (np.isfinite(exact) | np.isfinite(moved)) & (np.abs(np.clip(exact, -top, top) - wide) <= moved)
            )
            return np.asarray(np.where(np.isinf(wide), infinite, near) | (np.isnan(exact) & np.isnan(wide)))

        both = ~np.isfinite(unfused.astype(np.float64)) & ~np.isfinite(fused.astype(np.float64))
        lost = np.isfinite(spread) & (spread > top)
        return np.asarray(right(fused) | (both & ~right(unfused)) | lost | undecided)


# ------------------------------------------------------------------------------------------------------- sums of products
def _undecided_sums(
    program: Program, values: Mapping[str, Array], made: Collection[str], ops: Collection[FrozenOp]
) -> dict[str, Array]:
    """Returns, per temporary, which of its elements are sums of products whose order decides."""
    found = {n: np.zeros(values[n].shape, bool) for n in made}
    for op in ops:
        for name, halves in _halves(op, values).items():
            if name in found:
                found[name] |= order_decides(values[name], *halves, _top(program, name))
    return found


def _attentions(
    program: Program, values: Mapping[str, Array], ops: Collection[FrozenOp], found: dict[str, Array]
) -> None:
    """Adds sums of values that may overflow before they are divided, and gradients of weights in their rows."""
    weights = _weights(ops)
    # The gradient makes its sums of rows of the result.
    rows: dict[tuple[Any, Any], Array] = {}
    for op in ops:
        if is_product(op.definition) and op.input("X") in weights:
            taken, out = str(op.input("X")), str(op.output("Out"))
            # Before the division a weight is a power of at most 1, times what a dropout makes of it.
            with np.errstate(all="ignore"):
                powers = np.nan_to_num(values[taken] / values[weights[taken]])
            halves = _halves(op, {**values, taken: powers})[out]
            found[out] |= order_decides(values[out], *halves, _top(program, out))
            rows[taken, op.input("Y")] = found[out].any(-1, keepdims=True)
    for op in ops:
        if is_product_gradient(op.definition) and op.input("X") in weights and op.output("X@GRAD") in found:
            found[str(op.output("X@GRAD"))] |= rows[op.input("X"), op.input("Y")]


def _top(program: Program, name: str) -> float:
    # Sums of 16 bits are added up in 32.
    return largest(program.global_block()._var_recursive(name).dtype.compute)


def order_decides(total: Array, plus: Array, minus: Array, top: float) -> Array:
    """Returns where the order of a sum decides whether, and with which sign, it overflows.

    Args:
        total: The sum.
        plus, minus: The sums of its positive terms, and of its negative ones without their signs; the largest in between.
        top: The largest number.
    """
    # However it is added up, a sum beyond the range is infinite if terms of one sign cannot overflow the other way.
    certain = (np.abs(total) > top) & (np.minimum(plus, minus) <= top)
    return np.asarray((np.maximum(plus, minus) > top) & ~certain)


def _halves(op: FrozenOp, values: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Returns the sums of positive terms and of negative ones of matrix products: value -> both, as magnitudes."""
    if not (is_product(op.definition) or is_product_gradient(op.definition)):
        return {}
    if not all(n in values for n in op.reads()):
        return {}

    def product(first: int, second: int) -> list[Any]:
        # Each product has one factor of either kind: an operand and the gradient that arrives, or both operands.
        other = "Out@GRAD" if op.definition.of else "Y"
        ins = [
            None
            if not isinstance(entry, str)
            else np.maximum(values[entry] * (second if slot.name == other else first), 0.0)
            for slot, entry in zip(op.definition.inputs, op.inputs, strict=True)
        ]
        return evaluate(op.definition, ins, op.attrs, [e is not None for e in op.outputs])

    parts = zip(op.outputs, product(1, 1), product(-1, -1), product(1, -1), product(-1, 1), strict=True)
    return {name: (a + b, c + d) for name, a, b, c, d in parts if isinstance(name, str)}


def _weights(ops: Collection[FrozenOp]) -> dict[str, str]:
    """Returns the weights of attentions: results of softmaxes and what is made of them value by value -> result of the softmax."""
    found: dict[str, str] = {}
    for op in ops:
        if op.type == "softmax":
            found[str(op.output("Out"))] = str(op.output("Out"))
        elif op.type in LINEAR and op.input("X") in found:
            found[str(op.output("Out"))] = found[str(op.input("X"))]
    return found
