"""Pointwise ops on NaN, infinities, signed zeros, the largest and the subnormal numbers, against torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.gradcheck import gradient
from tests.ops.oracles import SPECIALS, check_specials, differences, special_values, stale
from tests.ops.sampler import Sample, op_types, run
from tstatic.ir.opdef import NO_ATTRS, OpDef, ValueRange, op_def
from tstatic.ir.types import dtype_of


def pointwise(type: str) -> bool:
    definition = op_def(type)
    return (
        definition.pointwise is not None
        and definition.domain is not None
        and definition.domain.family in ("unary", "binary")
    )


POINTWISE = [t for t in op_types(0) if pointwise(t)]
# Comparisons have no gradient, and that of sign is 0 everywhere.
GRADED = [t for t in POINTWISE if op_def(t).grad is not None and t != "sign"]


def tables(definition: OpDef) -> Iterator[Sample]:
    """All special values of each float type; all pairs of them for ops of two inputs."""
    domain = definition.domain
    assert domain is not None
    for dtype, attrs in itertools.product(domain.floats, domain.attrs or (NO_ATTRS,)):
        values = special_values(dtype_of(dtype))
        arrays: list[Any] = [values]
        if domain.family == "binary":
            pairs = np.meshgrid(np.arange(values.size), np.arange(values.size))
            arrays = [values[p.ravel()] for p in pairs]
        ins: list[Any] = []
        for slot in definition.inputs:
            kind = domain.values.get(slot.name, ValueRange()).dtype
            if kind != "float":
                return
            ins.append(arrays[len(ins)] if len(ins) < len(arrays) else None)
        yield Sample(tuple(ins), attrs, dtype)


@pytest.mark.parametrize("type", POINTWISE)
def test_specials(type: str) -> None:
    definition = op_def(type)
    met: set[str] = set()
    for sample in tables(definition):
        check_specials(definition, sample, differences(), met)
    left = stale(type, met)
    assert not left, f"docs/differences.md lists {left} for {type}, but nothing differs there any more"


@pytest.mark.parametrize("type", GRADED)
def test_specials_of_gradients(type: str) -> None:
    """A gradient is NaN or infinite where torch's is, for an incoming gradient of 1; finite values have their own test."""
    torch = pytest.importorskip("torch")
    definition, name = op_def(type), f"{type}_grad"
    met: set[str] = set()
    for sample in tables(definition):
        if sample.dtype not in ("float32", "float64"):
            continue
        with np.errstate(all="ignore"):
            outs = run(definition, sample)
            found = gradient(definition, sample, outs, [np.ones_like(o) for o in outs])
        tensors = [a if a is None else torch.from_numpy(np.array(a)).requires_grad_() for a in sample.ins]
        out = definition.lower(torch, *tensors, **definition.pick(definition.lower, definition.complete(sample.attrs)))  # type: ignore[misc]
        leaves = [tensors[i] for i in found.inputs]
        for i, mine, theirs in zip(found.inputs, found.values, torch.autograd.grad(out.sum(), leaves), strict=True):
            a, b = np.asarray(mine), theirs.numpy()
            nan = np.isnan(a) | np.isnan(b)
            wrong = {
                "nan": np.isnan(a) != np.isnan(b),
                "infinity": ~nan & (np.isinf(a) | np.isinf(b)) & (a != b),
            }
            for case, bad in wrong.items():
                if bad.any():
                    met.add(case)
                    given = [None if x is None else x[bad].tolist() for x in sample.ins]
                    assert (name, case) in differences(), (
                        f"{name}, input {i}: {a[bad]}, torch {b[bad]} for {given} {sample}"
                    )
    left = stale(name, met)
    assert not left, f"docs/differences.md lists {left} for {name}, but nothing differs there any more"


def test_table_names_what_exists() -> None:
    assert {op for op, _ in differences()} <= {*POINTWISE, *(f"{t}_grad" for t in GRADED)}
    assert {case for _, case in differences()} <= set(SPECIALS)


@pytest.mark.parametrize("memory", ["apart", "of Out", "of Out@GRAD"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("type", ["relu", "relu6", "hard_sigmoid", "tanh"])
def test_gradients_in_torch_are_special_where_the_references_are(type: str, dtype: str, memory: str) -> None:
    """For all pairs of special values, whichever memory the result lies in."""
    torch = pytest.importorskip("torch")
    definition = op_def(f"{type}_grad")
    assert [slot.name for slot in definition.inputs] == ["Out", "Out@GRAD"]
    values = special_values(dtype_of(dtype))
    read, arriving = (values[p.ravel()] for p in np.meshgrid(np.arange(values.size), np.arange(values.size)))
    attrs = definition.complete({})
    with np.errstate(all="ignore"):
        (expected,) = run(definition, Sample((read, arriving), attrs, dtype))
    ins = [torch.from_numpy(a.copy()) for a in (read, arriving)]
    out = {"apart": torch.full_like(ins[0], 7.0), "of Out": ins[0], "of Out@GRAD": ins[1]}[memory]
    assert definition.lower is not None
    definition.lower(torch, *ins, **definition.pick(definition.lower, attrs), out=out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
