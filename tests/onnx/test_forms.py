"""Every op definition has a form in ONNX that gives what its reference gives, or says why it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.sampler import Sample, samples
from tests.ops.sampler import run as reference
from tstatic.errors import UnsupportedError
from tstatic.ir.onnx_form import reason_of
from tstatic.ir.opdef import OPS, OpDef, op_def, with_

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx import forms

FORWARD = sorted(t for t, d in OPS.items() if not d.of)
WITH_FORM = [t for t in FORWARD if not reason_of(op_def(t))]
DTYPES = ("float32", "int64", "int32", "bool")
COUNT = 8
ONLY_RUNTIME = {
    "gru_sequence": "the evaluator takes all sequences for whole",
    "lstm_sequence": "the evaluator takes all sequences for whole",
    "rnn": "the evaluator takes all sequences for whole",
    "simple_rnn_sequence": "the evaluator takes all sequences for whole",
    "grid_sampler": "the evaluator knows no mode 'bilinear', which version 16 has",
    "max_pool2d_with_index": "the evaluator reads paddings as pairs of one axis",
    "max_pool3d_with_index": "the evaluator reads paddings as pairs of one axis",
    "pool3d": "the evaluator's global pooling of volumes has an axis too many",
    "conv2d_transpose": "the evaluator knows no groups",
    "conv3d_transpose": "the evaluator knows no groups",
    "depthwise_conv2d_transpose": "the evaluator knows no groups",
}
"""Operators whose forms the evaluator of the package ``onnx`` computes wrongly; onnxruntime alone is asked."""


def arrays(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def drawn(definition: OpDef) -> list[Sample]:
    """Samples of the dtypes that both evaluators compute in; complex ones have no form."""
    assert definition.domain is not None, f"{definition.type} names no samples"
    names = [n for n in (*definition.domain.floats, *definition.domain.others) if n in DTYPES]
    found = samples(definition, COUNT, names or None, ("contiguous",))
    return [s for s in found if not any(a.dtype.kind == "c" for v in s.ins for a in arrays(v))]


def differing(definition: OpDef, sample: Sample, model: Any, feed: Any, names: Any, evaluator: Any) -> str:
    """Returns how the model's results differ from the reference's; empty if they do not."""
    found = evaluator(model, feed)
    for name, wanted in zip(names, reference(definition, sample), strict=True):
        for one, ours in zip(arrays(name), arrays(wanted), strict=name is not None):
            theirs = found[one]
            if (theirs.dtype, theirs.shape) != (ours.dtype, ours.shape):
                return f"{theirs.dtype}{theirs.shape} for {ours.dtype}{ours.shape}"
            # In float32, of arguments of about 1: a few roundings more or less than in the reference.
            if not np.allclose(theirs.astype("float64"), ours.astype("float64"), rtol=2e-5, atol=2e-6, equal_nan=True):
                return f"values {theirs.ravel()[:4]} for {ours.ravel()[:4]}"
    return ""


def check(definition: OpDef) -> tuple[int, int]:
    """Checks an op on its samples; returns how many were compared, and how many refused."""
    compared = refused = 0
    for sample in drawn(definition):
        try:
            model, feed, names = forms.build_any(definition, sample)
        except UnsupportedError:
            refused += 1
            continue
        problem = ""
        if definition.type not in ONLY_RUNTIME:
            try:
                problem = differing(definition, sample, model, feed, names, forms.evaluate)
            except (ValueError, TypeError, RuntimeError) as error:
                # The evaluator stumbles over empty arrays.
                problem = repr(error)
                assert any(0 in a.shape for v in sample.ins for a in arrays(v)), (
                    f"{definition.type} {sample}: {problem}"
                )
        if problem or definition.type in ONLY_RUNTIME:
            problem = differing(definition, sample, model, feed, names, forms.run)
        assert not problem, f"{definition.type} {sample}: {problem}"
        compared += 1
    return compared, refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the evaluator divides by zero aloud
@pytest.mark.parametrize("type", WITH_FORM)
def test_form(type: str) -> None:
    compared, refused = check(op_def(type))
    assert compared, f"{refused} samples were refused"


def test_every_definition_states_a_form_or_a_reason() -> None:
    assert [t for t in FORWARD if reason_of(op_def(t)) == "?"] == []
    assert len(WITH_FORM) >= 240
    backward = [t for t, d in OPS.items() if d.of]
    assert backward
    assert all(reason_of(op_def(t)) not in ("", "?") for t in backward)


def test_a_wrong_form_is_noticed() -> None:
    wrong = with_(op_def("tanh"), onnx=lambda g, x: g("Sigmoid", x))
    with pytest.raises(AssertionError, match="values"):
        check(wrong)
    other = with_(op_def("cumsum"), onnx=lambda g, x: x)
    with pytest.raises(AssertionError, match="cumsum"):
        check(other)


def test_onnxruntime_runs_a_sample_of_each_form() -> None:
    """What the runtime lacks it says itself; that is little."""
    lacking = []
    for type in WITH_FORM:
        definition = op_def(type)
        for sample in drawn(definition):
            if any(0 in a.shape for v in sample.ins for a in arrays(v)):
                continue
            try:
                model, feed, names = forms.build(definition, sample)
            except UnsupportedError:
                continue
            try:
                problem = differing(definition, sample, model, feed, names, forms.run)
            except Exception as error:
                if "NOT_IMPLEMENTED" not in str(error):
                    raise
                lacking.append(type)
                break
            assert not problem, f"{type} {sample}: {problem}"
            break
    assert len(lacking) <= 12, lacking
