"""A reference bound to arrays says nothing about their values: what it answers with can be replayed on others."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tests.ops.oracles import flat
from tests.ops.sampler import Sample, allocate, op_types, reserved, run, samples
from tstatic.ir.evaluate import allocate as scratch_arrays
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.recording import Recording
from tstatic.ops.base.call_ref import CallRef

BOUND = [t for t in op_types(2) if not op_def(t).dynamic]


def _arrays(values: Any) -> list[Any]:
    return [a for v in values for a in (v if isinstance(v, list | tuple) else [v]) if isinstance(a, np.ndarray)]


def check_bind(definition: OpDef, sample: Sample) -> None:
    """Binds while the arrays hold other numbers, then runs the calls twice; four times where they are recorded meanwhile."""
    expected = [np.array(a, copy=True) for a in flat_of(run(definition, sample))]
    done = definition.complete(sample.attrs)
    ins = list(sample.ins)
    outs = allocate(infer_outputs(definition, metas_of(ins), done), sample.out_layout, 0xA5)
    given = _arrays(ins)
    values = [np.array(a, copy=True) for a in given]
    for a in given:
        a[...] = 0
    with np.errstate(all="ignore"):
        scratch = scratch_arrays(definition.ref.scratch(metas_of(ins), metas_of(outs), done))
        calls = definition.ref.bind_arrays(ins, outs, done, scratch, reserved(definition))
        turns = ["first", "second"]
        if any(isinstance(function, Recording) for function, _ in calls):
            turns = ["first", "other values", "third", "fourth"]
        for turn in turns:
            for a, value in zip(given, values, strict=True):
                a[...] = value if turn != "other values" else np.flip(value)
            for function, args in calls:
                function(*args)
            if turn == "other values":
                continue
            for got, want in zip(flat_of(outs), expected, strict=True):
                assert np.array_equal(got, want, equal_nan=got.dtype.kind in "fV"), (
                    f"{definition.type}: the {turn} run after binding differs: {sample}"
                )
            for out in flat_of(outs):
                out[...] = 1


def flat_of(outs: Any) -> list[Any]:
    return [a for out in outs if out is not None for a in flat(out)]


# What numpy hands to BLAS and LAPACK; `@` on two arrays does, too, and cannot be watched.
PRODUCTS = (
    *((np, name) for name in ("dot", "einsum", "inner", "matmul", "tensordot", "vdot", "vecdot")),
    *((np.linalg, name) for name in np.linalg.__all__ if inspect.isroutine(getattr(np.linalg, name))),
)


@pytest.mark.parametrize("type", BOUND)
def test_bind(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bound can be replayed; a reference that multiplies matrices says that it uses BLAS."""
    definition = op_def(type)
    called: list[str] = []
    for module, name in () if definition.uses_blas else PRODUCTS:
        product = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, product=product, **k: called.append(type) or product(*a, **k))
    for sample in samples(definition, 4, limit=8):
        check_bind(definition, sample)
    assert called == [], f"state uses_blas=True in the definition of '{type}'"


def _bad_calls(fault: str) -> Any:
    def calls(ins: Any, outs: Any, scratch: Any) -> Any:
        if fault == "values":
            return [(np.multiply, (ins[0], 1 + float(ins[0].sum() != 0), outs[0]))]
        return [(np.add, (ins[0], outs[0], outs[0])), (np.subtract, (outs[0], outs[0] * 0, outs[0]))]

    return calls


@pytest.mark.parametrize("fault", ["values", "replay"])
def test_bad_references_are_found(fault: str) -> None:
    definition = OpDef("test_only", "X -> Out", infer=lambda x: x, ref=CallRef(_bad_calls(fault), widen=False))
    sample = Sample((np.array([1.0, 2.0]),), {}, "float64", "contiguous", "contiguous")
    with pytest.raises(AssertionError, match="run after binding differs"):
        check_bind(definition, sample)
