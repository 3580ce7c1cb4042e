"""The gradient oracle: what an op definition states against 4th-order central differences in float64."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.ops.oracles import flat
from tests.ops.sampler import Array, Sample, has_backward_op, map_arrays, poison, run, test_seed
from tstatic.ir.evaluate import meta_of
from tstatic.ir.opdef import GRAD, GradContext, OpDef, op_def
from tstatic.ir.types import dtype_of

STENCIL = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))
STEP = 1e-3
MOST_ELEMENTS = 24


@dataclass(frozen=True)
class Gradient:
    """What an op definition's gradient rule answers on a sample."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    values: tuple[Any, ...]


def gradient(
    definition: OpDef, sample: Sample, outs: Sequence[Any], cotangents: Sequence[Any], alone: int = -1
) -> Gradient:
    """Evaluates the op definition's gradient, whichever way it states one.

    Args:
        definition: The differentiated op definition.
        sample: Its inputs.
        outs: Its outputs.
        cotangents: One per output slot.
        alone: Ask for the gradient of this input slot only (-1: all).
    """
    if has_backward_op(definition) and not callable(definition.grad):
        return _by_backward_op(definition, sample, outs, cotangents, alone)
    return _by_rule(definition, sample, outs, cotangents, alone)


def _by_backward_op(
    definition: OpDef, sample: Sample, outs: Sequence[Any], cotangents: Sequence[Any], alone: int
) -> Gradient:
    back = op_def(f"{definition.type}_grad")
    named: dict[str, Any] = {s.name: v for s, v in zip(definition.inputs, sample.ins, strict=True)}
    for slot, out, seed in zip(definition.outputs, outs, cotangents, strict=True):
        named[slot.name] = out
        named[slot.name + GRAD] = seed
    for name in back.shape_only:
        named[name] = map_arrays(poison, named[name])
    used = {s.name for s in back.inputs}
    names = [s.name + GRAD for s in definition.inputs]
    asked = [o.name for o in back.outputs]
    for name in asked:
        assert name in names, f"{back.type} writes {name}, which is no gradient of an input of {definition.type}"
    wanted = [sample.ins[names.index(n)] is not None and (alone < 0 or names.index(n) == alone) for n in asked]
    ins = tuple(named.get(s.name) for s in back.inputs)
    attrs = {n: v for n, v in sample.attrs.items() if n in back.attrs}
    results = run(back, replace(sample, ins=ins, attrs=attrs), wanted)
    pairs = [(names.index(n), r) for n, r in zip(asked, results, strict=True) if r is not None]
    reached = tuple(i for i, s in enumerate(definition.outputs) if s.name + GRAD in used and cotangents[i] is not None)
    return Gradient(reached, tuple(i for i, _ in pairs), tuple(r for _, r in pairs))


def _by_rule(definition: OpDef, sample: Sample, outs: Sequence[Any], cotangents: Sequence[Any], alone: int) -> Gradient:
    values: dict[str, Array] = {}
    in_names: dict[str, list[str]] = {}
    out_names: dict[str, list[str]] = {}
    in_grads: dict[str, str] = {}
    out_grads: dict[str, str] = {}
    for i, (slot, value) in enumerate(zip(definition.inputs, sample.ins, strict=True)):
        in_names[slot.name] = []
        for k, array in enumerate(flat(value)):
            name = f"{slot.name}.{k}"
            values[name] = array
            in_names[slot.name].append(name)
            if dtype_of(array.dtype).is_inexact and (alone < 0 or alone == i):
                in_grads[name] = name + GRAD
    for slot, value, seed in zip(definition.outputs, outs, cotangents, strict=True):
        out_names[slot.name] = []
        for k, (array, c) in enumerate(zip(flat(value), flat(seed) or [None] * len(flat(value)), strict=True)):
            name = f"{slot.name}.out{k}"
            values[name] = array
            out_names[slot.name].append(name)
            if c is not None:
                out_grads[name] = name + GRAD
                values[name + GRAD] = c
    counter = iter(range(10**6))
    assert callable(definition.grad), f"{definition.type} states no gradient"
    specs = definition.grad(
        GradContext(
            {n: v for n, v in in_names.items() if v},
            {n: v for n, v in out_names.items() if v},
            definition.complete(sample.attrs),
            out_grads,
            in_grads,
            lambda name: meta_of(values[name]),
            lambda name: f"{name}@TMP{next(counter)}",
        )
    )
    for spec in specs:
        evaluate_spec(spec.type, spec.inputs, spec.outputs, spec.attrs, values)
    inputs, results = [], []
    for i, slot in enumerate(definition.inputs):
        found = [values.get(in_grads.get(n, "")) for n in in_names[slot.name]]
        if any(f is not None for f in found):
            inputs.append(i)
            results.append(found if slot.many else found[0])
    reached = tuple(i for i, s in enumerate(definition.outputs) if any(n in out_grads for n in out_names[s.name]))
    return Gradient(reached, tuple(inputs), tuple(results))


def evaluate_spec(
    type: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
    values: dict[str, Array],
) -> None:
    """Runs one op of a gradient rule over named values."""
    definition = op_def(type)
    for name in (*inputs, *outputs):
        assert name in definition.input_slots or name in definition.output_slots, f"{type} has no slot {name}"
    ins = []
    for slot in definition.inputs:
        found = [values[n] for n in inputs.get(slot.name, ())]
        ins.append(found if slot.many and found else found[0] if found else None)
    results = run(definition, Sample(tuple(ins), attrs, "float64"))
    for slot, result in zip(definition.outputs, results, strict=True):
        for name, array in zip(outputs.get(slot.name, ()), flat(result), strict=False):
            values[name] = array


def check_grad(definition: OpDef, sample: Sample, seen: dict[str, int] | None = None) -> None:
    """The stated gradient equals 4th-order central differences in float64.

    Every element moves alone when there are few, else three random directions are tried. Allowed: 1e-7 of the value and
    1e-9 of the incoming gradient's scale.
    """
    rng = test_seed(definition.type, sample, "grad")
    outs = run(definition, sample)

    def seed_of(array: Array) -> Array | None:
        if dtype_of(array.dtype).is_complex:
            return np.asarray(rng.normal(size=array.shape) + 1j * rng.normal(size=array.shape))
        if not dtype_of(array.dtype).is_float:
            return None
        return np.asarray(rng.uniform(0.5, 1.5, array.shape) * rng.choice([-1.0, 1.0], array.shape))

    backward = {s.name for s in op_def(f"{definition.type}_grad").inputs} if has_backward_op(definition) else None
    cotangents = []
    for slot, out in zip(definition.outputs, outs, strict=True):
        reached = slot.name + GRAD in backward if backward is not None else not slot.intermediate
        seeds = map_arrays(seed_of, out) if reached else None
        cotangents.append(None if isinstance(seeds, list) and all(s is None for s in seeds) else seeds)
    floats = [o for out, c in zip(outs, cotangents, strict=True) if c is not None for o in flat(out)]
    if not floats or any(dtype_of(o.dtype).is_inexact and dtype_of(o.dtype).real.name != "float64" for o in floats):
        # Nothing to differentiate, or a cast to a type too coarse for differences.
        return
    stated = gradient(definition, sample, outs, cotangents)
    assert stated.inputs, f"the gradient of {definition.type} gives no input a gradient: {sample}"
    answers = {
        (i, k): answer for i, v in zip(stated.inputs, stated.values, strict=True) for k, answer in enumerate(flat(v))
    }
    wanted = [c is not None for c in cotangents]
    scale = max((float(np.abs(c).max()) for s in cotangents for c in flat(s) if c is not None and c.size), default=1.0)
    for (i, k), answer in answers.items():
        x = flat(sample.ins[i])[k]
        where = f"{definition.type}: gradient of {definition.inputs[i].name}[{k}], {sample}"
        if answer is None:
            continue
        assert meta_of(answer) == meta_of(x), f"{meta_of(answer)} for {meta_of(x)} in {where}"
        if x.size == 0 or not dtype_of(x.dtype).is_inexact:
            continue
        for direction in directions(x, rng):
            expected = slope(definition, sample, (i, k), direction, cotangents, wanted)
            # A complex gradient is dL/dRe + i dL/dIm.
            got = float((np.conj(answer) * direction).sum().real)
            # The differences of a sum over many directions add up; their scale is the direction's length.
            reach = max(1.0, float(np.sqrt((np.abs(direction) ** 2).sum())))
            assert abs(got - expected) <= 1e-7 * abs(expected) + 1e-9 * scale * reach, (
                f"{got!r} against {expected!r} by differences ({got - expected:.3g}) in {where}"
            )
            if seen is not None:
                seen["checked"] = seen.get("checked", 0) + 1
    for i in stated.inputs if len(stated.inputs) > 1 else ():
        only = gradient(definition, sample, outs, cotangents, alone=i)
        assert only.inputs == (i,), f"{definition.type} gives other gradients than the one asked for: {sample}"
        for a, b in zip(flat(only.values[0]), flat(stated.values[stated.inputs.index(i)]), strict=True):
            assert (a is None) == (b is None), (
                f"{definition.type}: a gradient is missing when asked for alone: {sample}"
            )
            assert a is None or np.allclose(a, b, rtol=1e-12, atol=1e-12 * scale), (
                f"{definition.type}: the gradient of {definition.inputs[i].name} asked for alone differs: {sample}"
            )


def directions(x: Array, rng: np.random.Generator) -> Iterator[Array]:
    if dtype_of(x.dtype).is_complex:
        for part in (1.0, 1j):
            yield from (np.asarray(part * d) for d in directions(x.real, rng))
        return
    if x.size <= MOST_ELEMENTS:
        for at in np.ndindex(x.shape):
            one = np.zeros(x.shape)
            one[at] = 1.0
            yield one
    else:
        for _ in range(3):
            yield np.asarray(rng.choice([-1.0, 1.0], x.shape))


def slope(
    definition: OpDef,
    sample: Sample,
    at: tuple[int, int],
    direction: Array,
    cotangents: Sequence[Any],
    wanted: Sequence[bool],
) -> float:
    """Derivative of <cotangents, outputs> along a direction; the step grows with the element."""
    i, k = at
    x = flat(sample.ins[i])[k]
    step = STEP * np.maximum(1.0, np.abs(x))
    # One step for all elements that move, so that the direction itself does not depend on x.
    step = np.asarray(step[direction != 0].min())
    total = 0.0
    terms = []
    for shift, weight in STENCIL:
        moved = np.asarray(x + shift * step * direction)
        ins = list(sample.ins)
        ins[i] = [moved if n == k else a for n, a in enumerate(flat(ins[i]))] if isinstance(ins[i], list) else moved
        results = run(definition, replace(sample, ins=tuple(ins), out_layout="contiguous"), wanted)
        # An operator whose sizes depend on values answers with all of its results.
        terms.append([weight * r for s, w in zip(results, wanted, strict=True) if w for r in flat(s)])
    seeds = [c for s, w in zip(cotangents, wanted, strict=True) if w for c in flat(s)]
    for tiles, seed in zip(zip(*terms, strict=True), seeds, strict=True):
        if seed is not None:
            # Neighbours are subtracted element by element first: no rounding error of a large sum remains.
            total += float((functools.reduce(np.add, tiles) * np.conj(seed)).sum().real)
    return total / float(step)
