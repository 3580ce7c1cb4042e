"""The checks that every op definition must pass; each raises AssertionError with the sample in the message."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.ops.sampler import Array, Sample, as_float64, map_arrays, reserved, root, run, run_torch, test_seed, wide
from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.evaluate import call_ref, infer_outputs, meta_of, metas_of
from tstatic.ir.opdef import OpDef
from tstatic.ir.types import UNKNOWN, DType, Meta, dtype_of

MANTISSA = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022)}


def flat(value: Any) -> list[Any]:
    """The arrays (or metas) of a slot."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


# ---------------------------------------------------------------------------------------------------------- differences
DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"


def stale(type: str, met: set[str]) -> set[str]:
    """Cases that the page lists for an op and that did not occur, though they are said to on every machine."""
    always = {case for (op, case), why in differences().items() if op == type and "on some machines" not in why.lower()}
    return always - met


@functools.cache
def differences() -> Mapping[tuple[str, str], str]:
    """The page's table: (op, case) -> why numpy's result is not torch's."""
    found = {}
    for line in DIFFERENCES.read_text().splitlines():
        match = re.match(r"^\| `(\w+)` \| ([a-z ]+) \| (.+) \|$", line)
        if match:
            found[match[1], match[2]] = match[3]
    return found


# --------------------------------------------------------------------------------------------------------------- infer
def check_infer(definition: OpDef, sample: Sample) -> None:
    """``infer`` says the shape and dtype of what ``ref`` writes (every element) and of what torch returns."""
    done = definition.complete(sample.attrs)
    metas = infer_outputs(definition, metas_of(sample.ins), done)
    assert len(metas) == len(definition.outputs), f"infer of {definition.type} must answer for each output slot"
    outs = run(definition, sample, fill_byte=0xA5)
    if definition.dynamic:
        for meta, out in zip(metas, outs, strict=True):
            for m, o in zip(flat(meta), flat(out), strict=True):
                assert_compatible(definition, sample, m, meta_of(o))
    else:
        for name, out, again in zip(definition.outputs, outs, run(definition, sample, fill_byte=0x5A), strict=True):
            for a, b in zip(flat(out), flat(again), strict=True):
                assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes(), (
                    f"ref of {definition.type} leaves elements of {name.name} unwritten: {sample}"
                )
    if definition.lower is None:
        return
    for slot, meta, result in zip(definition.outputs, metas, run_torch(definition, sample), strict=True):
        if result is None or meta is None:
            assert slot.optional or result is not None, f"torch lowering of {definition.type} lacks {slot.name}"
            continue
        for m, r in zip(flat(meta), flat(result), strict=True):
            expected = m if not definition.dynamic else m.with_shape(r.shape)
            assert meta_of(r) == expected, f"infer of {definition.type} says {m}, torch gives {meta_of(r)}: {sample}"


def check_infer_unknown(definition: OpDef, sample: Sample) -> None:
    """With sizes unknown, ``infer`` must answer something that the known answer fits."""
    done = definition.complete(sample.attrs)
    known = infer_outputs(definition, metas_of(sample.ins), done)
    rng = test_seed(definition.type, sample)

    def hide(meta: Meta) -> Meta:
        return meta.with_shape(UNKNOWN if rng.random() < 0.5 else s for s in meta.shape)

    def hide_batch(meta: Meta) -> Meta:
        return meta.with_shape((UNKNOWN, *meta.shape[1:]) if meta.shape else ())

    for how in (hide, hide_batch):
        hidden = [map_arrays(how, m) for m in metas_of(sample.ins)]
        try:
            answer = infer_outputs(definition, hidden, done)
        except (ShapeError, DTypeError) as error:
            # Where the result's rank follows from a size, that size must be known, and the message says so.
            if "known" not in str(error):
                raise AssertionError(f"{error} for {hidden}: {sample}") from error
            continue
        for full, part in zip(known, answer, strict=True):
            for a, b in zip(flat(full), flat(part), strict=True):
                assert_compatible(definition, sample, b, a, hidden)


def assert_compatible(definition: OpDef, sample: Sample, partial: Meta, full: Meta, given: Any = None) -> None:
    fits = len(partial.shape) == len(full.shape) and all(
        p in (UNKNOWN, f) or f == UNKNOWN for p, f in zip(partial.shape, full.shape, strict=True)
    )
    assert fits, f"infer of {definition.type} answers {partial} to {given}, but the result is {full}: {sample}"
    assert partial.dtype == full.dtype, (
        f"infer of {definition.type} answers {partial} to {given}, but the result is {full}: {sample}"
    )


# --------------------------------------------------------------------------------------------------------------- values
def ulp(value: Array, dtype: DType) -> Array:
    """Distance to the next number of a dtype, at float64 values."""
    bits, lowest = MANTISSA[dtype.name]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))
    return np.asarray(np.ldexp(1.0, np.maximum(exponent - 1, lowest) - bits))


def units(definition: OpDef, dtype: DType) -> float:
    """Allowed ulps: the domain's; at least 8 where a backward op adds up; less for types that are rounded once."""
    domain = root(definition).domain
    assert domain is not None
    k = domain.ulps if definition.domain is not None or definition.pointwise is not None else max(domain.ulps, 8.0)
    return min(k, max(1.0, k / 4)) if dtype.is_low else k


def check_lower(definition: OpDef, sample: Sample, seen: dict[str, int] | None = None) -> None:
    """``ref`` equals the torch lowering: same NaN and infinities, and a distance of a few ulp.

    With y64 the float64 result, er the distance of ``ref`` and el that of torch: er <= 4 S + k ulp and
    el <= 1.5 max(er, 3 S) + k ulp, where S is how far y64 moves when each input moves by one ulp (inner results of an op
    round too, so S counts a few times). An op whose finite numbers are among the listed differences has torch's counted in
    ulp of the largest result.
    """
    mine, theirs = run(definition, sample), run_torch(definition, sample)
    exact: list[Any] | None = None
    for i, slot in enumerate(definition.outputs):
        if mine[i] is None or theirs[i] is None:
            continue
        for j, (a, b) in enumerate(zip(flat(mine[i]), flat(theirs[i]), strict=True)):
            where = f"{definition.type}.{slot.name}: {sample}"
            assert meta_of(a) == meta_of(b), f"{meta_of(a)} against torch's {meta_of(b)} in {where}"
            if seen is not None:
                seen["compared"] = seen.get("compared", 0) + a.size
            kind = dtype_of(a.dtype)
            if kind.is_complex:
                assert_close_complex(definition, a, b, where)
                continue
            if not kind.is_float:
                assert np.array_equal(a, b), f"{a} against torch's {b} in {where}"
                continue
            a, b = a.astype(np.float64), b.astype(np.float64)
            assert_same_specials(a, b, where)
            k = units(definition, kind)
            if k == 0:
                assert np.array_equal(a, b, equal_nan=True), f"{a} against torch's {b} in {where}"
                continue
            if exact is None:
                exact = run(definition, as_float64(sample))
            y = flat(exact[i])[j]
            if y.dtype != np.float64 or kind.name == "float64":
                y = b
            assert_close(definition, sample, (i, j), a, b, y, kind, k, where)


def assert_close_complex(definition: OpDef, a: Array, b: Array, where: str) -> None:
    """Complex results are as near to torch's as the domain says, in roundings of the largest of them."""
    part = dtype_of(a.dtype).real
    room = 4 * units(definition, part) * float(np.finfo(part.np).eps) * max(float(np.abs(b).max(initial=0.0)), 1e-30)
    assert np.allclose(a, b, rtol=0.0, atol=room, equal_nan=True), f"{a} against torch's {b} in {where}"


def assert_same_specials(a: Array, b: Array, where: str) -> None:
    assert np.array_equal(np.isnan(a), np.isnan(b)), f"NaN at other places than torch: {a} against {b} in {where}"
    inf = np.isinf(a) | np.isinf(b)
    assert np.array_equal(a[inf], b[inf]), f"infinite at other places than torch: {a} against {b} in {where}"


def assert_close(
    definition: OpDef,
    sample: Sample,
    at: tuple[int, int],
    a: Array,
    b: Array,
    y: Array,
    kind: DType,
    k: float,
    where: str,
) -> None:
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(y)
        er, el = np.where(finite, np.abs(a - y), 0.0), np.where(finite, np.abs(b - y), 0.0)
        allowed = k * ulp(y, kind)
        if (er <= allowed).all() and (el <= allowed).all():
            return
        s = spread(definition, sample, at, y)
        theirs = allowed
        if (definition.type, "finite") in differences():
            theirs = k * ulp(np.full_like(y, np.max(np.abs(y), initial=0.0, where=finite)), kind)
        good = (er <= 4 * s + allowed) & (el <= 1.5 * np.maximum(er, 3 * s) + theirs)
    if not good.all():
        worst = np.unravel_index(np.argmax(np.where(good, 0, np.maximum(er, el) / allowed)), a.shape)
        raise AssertionError(
            f"{a[worst]!r} against torch's {b[worst]!r} and exactly {y[worst]!r} at {worst}: "
            f"{er[worst] / ulp(y, kind)[worst]:.3g} and {el[worst] / ulp(y, kind)[worst]:.3g} ulp, allowed {k:g}, "
            f"conditioning {s[worst]:.3g}, in {where}"
        )


def spread(definition: OpDef, sample: Sample, at: tuple[int, int], y: Array) -> Array:
    """How far the float64 result moves when each input moves by one ulp of its dtype (four random sign patterns)."""
    rng = test_seed(definition.type, sample, "spread")
    most = np.zeros(y.shape)
    for _ in range(4):

        def move(array: Array) -> Array:
            kind = dtype_of(array.dtype)
            if kind.is_complex:
                return np.asarray(move(array.real) + 1j * move(array.imag))
            if not kind.is_float:
                return array
            wide = array.astype(np.float64)
            return np.asarray(wide + ulp(wide, kind) * rng.choice([-1.0, 1.0], wide.shape))

        moved = replace(as_float64(sample), ins=tuple(map_arrays(move, v) for v in sample.ins))
        other = flat(run(definition, moved)[at[0]])[at[1]].astype(np.float64)
        with np.errstate(all="ignore"):
            change = np.abs(other - y)
        most = np.maximum(most, np.where(np.isfinite(change), change, 0.0))
    return most


SPECIALS = ("nan", "infinity", "zero sign", "finite")


def special_values(dtype: DType) -> Array:
    """NaN, infinities, zeros, the largest, the smallest normal and subnormal numbers, and some usual ones."""
    bits, lowest = MANTISSA[dtype.name]
    largest = (2.0 - 2.0**-bits) * 2.0 ** (1 - lowest)
    tiny, subnormal = 2.0**lowest, 2.0 ** (lowest - bits)
    positive = [0.0, 0.25, 0.5, 1.0, 2.5, largest, tiny, subnormal, tiny / 2, np.inf]
    return np.array([np.nan, *positive, *(-p for p in positive)]).astype(dtype.np)


def check_specials(definition: OpDef, sample: Sample, known: Mapping[tuple[str, str], str], met: set[str]) -> None:
    """NaN, infinities, zeros and finite numbers of a pointwise op stand where torch has them.

    Cases that ``known`` lists for the op are left out; those that do differ are added to ``met``.
    """
    mine, theirs = run(definition, sample), run_torch(definition, sample)
    for slot, out, result in zip(definition.outputs, mine, theirs, strict=True):
        if out is None or result is None or not dtype_of(out.dtype).is_float:
            assert out is None or result is None or np.array_equal(out, result), f"{out} against {result}: {sample}"
            continue
        kind = dtype_of(out.dtype)
        a, b = out.astype(np.float64), result.astype(np.float64)
        with np.errstate(all="ignore"):
            finite = np.isfinite(a) & np.isfinite(b)
            room = (2 * units(definition, kind) + 1) * ulp(b, kind) if units(definition, kind) else np.zeros(b.shape)
            wrong = {
                "nan": np.isnan(a) != np.isnan(b),
                "infinity": ~np.isnan(a) & ~np.isnan(b) & (np.isinf(a) | np.isinf(b)) & (a != b),
                "zero sign": (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)),
                "finite": finite & (np.abs(np.where(finite, a - b, 0)) > room),
            }
        for case, bad in wrong.items():
            if bad.any():
                met.add(case)
                given = [None if x is None else np.broadcast_to(x, a.shape)[bad].tolist() for x in sample.ins]
                assert (definition.type, case) in known, (
                    f"{definition.type}.{slot.name} in {kind.name}, {case}: {a[bad]} against torch's {b[bad]} for {given} "
                    f"{dict(sample.attrs)}"
                )


def check_inplace(definition: OpDef, sample: Sample) -> int:
    """An output that shares its input's buffer gets the same values; returns how many pairs were tried."""
    # Plain order on both sides: numpy may round a strided loop differently from a contiguous one.
    plain = [map_arrays(lambda a: np.array(a, order="C", copy=True), v) for v in sample.ins]
    expected = run(definition, replace(sample, ins=tuple(plain), out_layout="contiguous"))
    names = [s.name for s in definition.inputs]
    tried = 0
    for source, target in (*definition.inplace, *definition.state):
        i, j = names.index(source), [s.name for s in definition.outputs].index(target)
        given, out = plain[i], expected[j]
        if not isinstance(given, np.ndarray) or not isinstance(out, np.ndarray) or meta_of(given) != meta_of(out):
            continue
        shared = np.array(given, order="C", copy=True)
        ins = list(plain)
        ins[i] = shared
        outs = [None if o is None else map_arrays(np.empty_like, o) for o in expected]
        outs[j] = shared
        with np.errstate(all="ignore"):
            call_ref(definition, ins, outs, definition.complete(sample.attrs), **reserved(definition))
        for slot, want, got in zip(definition.outputs, expected, outs, strict=True):
            for w, g in zip(flat(want), flat(got), strict=True):
                assert np.array_equal(wide(w), wide(g), equal_nan=True), (
                    f"{definition.type}: {slot.name} differs when {target} shares the buffer of {source}: {sample}"
                )
        tried += 1
    return tried
