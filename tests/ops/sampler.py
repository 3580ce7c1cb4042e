"""Draws inputs of an op from its own domain: shapes, values and memory layouts, all from one seeded generator."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import tstatic.ops  # noqa: F401 - fills the registry
from tstatic.ir.evaluate import call_ref, infer_outputs, metas_of
from tstatic.ir.opdef import DERIVE, GRAD, NO_ATTRS, OPS, Domain, OpDef, op_def
from tstatic.ir.rng import RngKey
from tstatic.ir.types import Meta, dtype_of
from tstatic.testing import op_samples

Array = np.ndarray[Any, Any]

UNARY: tuple[tuple[int, ...], ...] = (
    (7,), (3, 4), (), (0,), (1,), (2, 3, 4), (2, 0, 3), (1, 5), (131,), (2, 1, 3, 2), (17, 5),
)  # fmt: skip
BINARY: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((2, 3), ()), ((), ()), ((0,), (1,)),
    ((2, 0, 3), (3,)), ((4,), (2, 3, 4)), ((2, 1, 4), (1, 3, 1)), ((1,), (5,)), ((129,), (129,)), ((5, 1, 3), (1, 3)),
)  # fmt: skip
LAYOUTS = ("contiguous", "fortran", "negative", "expanded", "misaligned", "swapped", "strided")
OUT_LAYOUTS = ("contiguous", "strided", "contiguous", "negative", "contiguous", "fortran")


@dataclass(frozen=True)
class Sample:
    """Inputs (one entry per slot) and attributes of one call, with what is needed to name it in a message."""

    ins: tuple[Any, ...]
    attrs: Mapping[str, Any]
    dtype: str
    layout: str = "contiguous"
    out_layout: str = "contiguous"

    def __str__(self) -> str:
        return f"{metas_of(self.ins)} {dict(self.attrs)} layout={self.layout} out={self.out_layout}"


# ------------------------------------------------------------------------------------------------------------- registry
def testable(definition: OpDef) -> bool:
    """Whether an op definition can be called with arrays alone (ops that own blocks are tested through programs)."""
    return root(definition).domain is not None


def root(definition: OpDef) -> OpDef:
    """The op definition whose domain an op definition is sampled from."""
    while definition.of and definition.domain is None:
        definition = op_def(definition.of)
    return definition


def has_backward_op(definition: OpDef) -> bool:
    own = OPS.get(f"{definition.type}_grad")
    return (own is not None and own.of == definition.type) or (
        definition.grad is DERIVE and definition.pointwise is not None
    )


def op_types(order: int = 2) -> list[str]:
    """Types of all testable op definitions: forward ops and their backward ops up to an order."""
    found: list[str] = []
    level = [c for c in OPS.values() if not c.of]
    for depth in range(order + 1):
        found += [c.type for c in level if testable(c)]
        if depth < order:
            level = [op_def(f"{c.type}_grad") for c in level if has_backward_op(c)]
    return sorted(found)


def test_seed(*parts: object) -> np.random.Generator:
    """A generator that depends on the parts' text alone, so that a test draws the same whatever runs beside it."""
    return np.random.default_rng(list("/".join(map(str, parts)).encode()))


test_seed.__test__ = False  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------------------------- layouts
def lay_out(array: Array, layout: str) -> Array:
    """The same values in another memory layout (``expanded`` keeps the first entry along the first axis only)."""
    a = array
    if layout == "misaligned":
        raw = np.zeros(a.nbytes + a.itemsize, np.uint8)
        view: Array = np.ndarray(a.shape, a.dtype, raw.data, offset=1 if a.itemsize > 1 else 0)
        view[...] = a
        return view
    if a.ndim == 0 or layout == "contiguous":
        return np.array(a, order="C", copy=True)
    if layout == "fortran":
        return np.array(a, order="F", copy=True)
    if layout == "negative":
        flip = (slice(None, None, -1),) * a.ndim
        return np.array(a[flip], order="C", copy=True)[flip]
    if layout == "swapped":
        return np.array(a.swapaxes(0, -1), order="C", copy=True).swapaxes(0, -1)
    if layout == "strided":
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1] + 1), a.dtype)
        part = wide[..., 1::2]
        part[...] = a
        return part
    assert layout == "expanded"
    if a.size == 0:
        return np.array(a, order="C", copy=True)
    first = np.array(a[:1], order="C", copy=True)
    return np.lib.stride_tricks.as_strided(first, a.shape, (0, *first.strides[1:]))


# -------------------------------------------------------------------------------------------------------------- samples
def sites(definition: OpDef, domain: Domain) -> list[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """The (shapes per slot, attributes) that a domain names; explicit cases and family shapes take turns."""
    listed = [(c.shapes + (None,) * (len(definition.inputs) - len(c.shapes)), c.attrs) for c in domain.cases]
    family: list[tuple[tuple[Any, ...], Mapping[str, Any]]] = []
    if domain.family != "cases":
        alternatives = domain.attrs or (NO_ATTRS,)
        count = 1 if domain.family == "unary" else 2
        shapes = [(s,) for s in UNARY] if domain.family == "unary" else list(BINARY)
        for i in range(len(shapes) * (2 if len(alternatives) > 1 else 1)):
            base = tuple(shapes[i % len(shapes)])
            rest = [None if s.optional else base[0] for s in definition.inputs[count:]]
            attrs = alternatives[(i + i // len(shapes)) % len(alternatives)]
            family.append(((*base, *rest)[: len(definition.inputs)], attrs))
    woven = itertools.chain.from_iterable(itertools.zip_longest(family, listed))
    return [s for s in woven if s is not None]


def fill(
    definition: OpDef,
    domain: Domain,
    shapes: Sequence[Any],
    attrs: Mapping[str, Any],
    dtype: str,
    layout: str,
    rng: np.random.Generator,
) -> tuple[Any, ...]:
    """Arrays for the given shapes, in a memory layout."""

    def placed(array: Array, whole: bool) -> Array:
        return lay_out(array, "fortran" if layout == "expanded" and whole else layout)

    return op_samples.fill(definition, domain, shapes, attrs, dtype, rng, placed)


def samples(
    definition: OpDef,
    count: int = 40,
    dtypes: Sequence[str] | None = None,
    layouts: Sequence[str] = LAYOUTS,
    limit: int = 0,
) -> Iterator[Sample]:
    """Draws at least ``count`` samples: every site, every dtype, every layout.

    Args:
        definition: A forward or a backward op definition (its inputs then come from running the forward op).
        count: At least so many; more when the domain names more sites.
        dtypes: Instead of the domain's own.
        layouts: Memory layouts to take turns.
        limit: At most so many (0: no limit).
    """
    if definition.of and definition.domain is None:
        forward = op_def(definition.of)
        rng = test_seed(definition.type, "cotangents")
        base = root(definition).domain
        assert base is not None
        for i, sample in enumerate(samples(forward, count, dtypes or base.floats, layouts, limit)):
            yield backward_sample(definition, forward, sample, rng, i)
        return
    domain = definition.domain
    assert domain is not None
    names = list(dtypes) if dtypes is not None else [*domain.floats, *domain.others]
    places = sites(definition, domain)
    assert places, f"the domain of {definition.type} names no shapes"
    rng = test_seed(definition.type)
    total = max(count, len(places)) if not limit else min(max(count, len(places)), limit)
    for i in range(total):
        shapes, attrs = places[i % len(places)]
        # Each site meets all dtypes and layouts in turn, in other pairs than its neighbours.
        site, turn = i % len(places), i // len(places)
        dtype = names[(turn + site) % len(names)]
        layout = layouts[(turn + turn // len(names) + 2 * site) % len(layouts)]
        ins = fill(definition, domain, shapes, attrs, dtype, layout, rng)
        out_layout = OUT_LAYOUTS[i % len(OUT_LAYOUTS)] if layouts is LAYOUTS else "contiguous"
        yield Sample(ins, attrs, dtype, layout, out_layout)


def backward_sample(definition: OpDef, forward: OpDef, sample: Sample, rng: np.random.Generator, turn: int) -> Sample:
    """Inputs of a backward op: the forward op's inputs and outputs, and random incoming gradients.

    In odd turns gradients that may lack do: of several, each is the only one in one turn of as many.
    """
    outs = run(forward, sample)
    named: dict[str, Any] = {}
    for slot, value in zip((*forward.inputs, *forward.outputs), (*sample.ins, *outs), strict=True):
        named.setdefault(slot.name, value)
    for slot, value in zip(forward.outputs, outs, strict=True):
        named[slot.name] = value
        named[slot.name + GRAD] = map_arrays(lambda a: cotangent(a, rng), value)
    ins = []
    for slot in definition.inputs:
        value = named.get(slot.name)
        if slot.name in definition.shape_only:
            value = map_arrays(poison, value)
        elif slot.optional and slot.name.endswith(GRAD) and turn % 2 and not slot.many:
            value = None
        ins.append(value)
    cotangents = [i for i, s in enumerate(definition.inputs) if s.name.endswith(GRAD)]
    if all(ins[i] is None for i in cotangents):
        only = cotangents[turn // 2 % len(cotangents)]
        ins[only] = named.get(definition.inputs[only].name)
    return replace(sample, ins=tuple(ins), attrs={n: v for n, v in sample.attrs.items() if n in definition.attrs})


def cotangent(like: Array, rng: np.random.Generator) -> Array | None:
    kind = dtype_of(like.dtype)
    if kind.is_complex:
        return np.asarray(rng.normal(size=like.shape) + 1j * rng.normal(size=like.shape)).astype(like.dtype)
    if not kind.is_float:
        return None
    return np.asarray(rng.uniform(0.5, 1.5, like.shape) * rng.choice([-1.0, 1.0], like.shape)).astype(like.dtype)


def map_arrays(function: Any, value: Any) -> Any:
    """Applies a function to an array, or to each of a list; ``None`` stays."""
    if value is None:
        return None
    return [function(v) for v in value] if isinstance(value, list | tuple) else function(value)


def poison(array: Array) -> Array:
    """An array of the same shape whose content gives a reader away."""
    bad = np.empty(array.shape, array.dtype)
    bad.fill(np.array(True) if bad.dtype.kind == "b" else np.array(90) if bad.dtype.kind in "iu" else np.nan)
    return bad


# ------------------------------------------------------------------------------------------------------------ execution
def reserved(definition: OpDef) -> dict[str, Any]:
    """What the device hands to a ``ref`` beside attributes: the key of a random op, the same at every call."""
    return {"rng": RngKey(seed=20240229, place=1, position=7, run=3)} if definition.random else {}


def allocate(metas: Sequence[Any], layout: str, fill_byte: int) -> list[Any]:
    """Output buffers of a layout, filled with a byte so that an element nobody wrote is seen."""

    def one(meta: Meta) -> Array:
        empty = lay_out(np.zeros(meta.shape, meta.dtype.np), layout)
        value = np.frombuffer(bytes([fill_byte]) * meta.dtype.itemsize, meta.dtype.np)[0]
        empty[...] = value if meta.dtype.name != "bool" else bool(fill_byte & 1)
        return empty

    return [None if m is None else [one(x) for x in m] if isinstance(m, list | tuple) else one(m) for m in metas]


def run(definition: OpDef, sample: Sample, wanted: Sequence[bool] | None = None, fill_byte: int = 0xA5) -> list[Any]:
    """Runs ``ref`` on a sample and returns one entry per output slot."""
    done = definition.complete(sample.attrs)
    ins = list(sample.ins)
    if definition.dynamic:
        with np.errstate(all="ignore"):
            return definition.ref.compute(ins, [None] * len(definition.outputs), done, reserved(definition))
    metas = infer_outputs(definition, metas_of(ins), done)
    if wanted is not None:
        metas = [m if w else None for m, w in zip(metas, wanted, strict=True)]
    outs = allocate(metas, sample.out_layout, fill_byte)
    with np.errstate(all="ignore"):
        call_ref(definition, ins, outs, done, **reserved(definition))
    return outs


def wide(array: Array) -> Array:
    """The numbers in a type that numpy compares, whatever theirs is."""
    return np.asarray(array, np.complex128 if array.dtype.kind == "c" else np.float64)


def as_float64(sample: Sample) -> Sample:
    """The same numbers in plain order, with every float widened to float64, and every complex number to complex128."""

    def plain(a: Array) -> Array:
        kind = dtype_of(a.dtype)
        # Plain order: a ``ref`` that minds the layout must not mislead the value that it is judged by.
        return np.array(
            a, np.float64 if kind.is_float else np.complex128 if kind.is_complex else None, order="C", copy=True
        )

    return replace(
        sample, ins=tuple(map_arrays(plain, v) for v in sample.ins), dtype="float64", out_layout="contiguous"
    )


# ---------------------------------------------------------------------------------------------------------------- torch
def to_torch(torch: Any, array: Array) -> Any:
    """A tensor with the same values; strides are kept where torch can have them."""
    a = array
    if any(s < 0 or s % a.itemsize for s in a.strides) or not a.flags.aligned:
        a = np.array(a, order="C", copy=True)
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def from_torch(torch: Any, tensor: Any) -> Array:
    """The tensor's values as an array."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())


def run_torch(definition: OpDef, sample: Sample) -> list[Any]:
    """Runs the torch lowering on a sample; one entry per output slot (``None`` where torch has none)."""
    import torch

    assert definition.lower is not None, f"{definition.type} has no torch lowering"
    tensors = [map_arrays(lambda a: to_torch(torch, a), v) for v in sample.ins]
    named = inspect.signature(definition.lower).parameters
    extra = {n: v for n, v in reserved(definition).items() if n in named}
    result = definition.lower(
        torch, *tensors, **definition.pick(definition.lower, definition.complete(sample.attrs)), **extra
    )
    if len(definition.outputs) == 1 and not isinstance(result, tuple):
        result = (result,)
    assert isinstance(result, tuple), f"torch lowering of {definition.type} must answer with a tuple"
    assert len(result) == len(definition.outputs), (
        f"torch lowering of {definition.type} must answer for each output slot"
    )
    return [map_arrays(lambda t: from_torch(torch, t), r) for r in result]
