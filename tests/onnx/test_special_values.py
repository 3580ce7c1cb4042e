"""What a form in ONNX gives for NaN, infinities and numbers near the ends of the range, against the reference of its op."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

from tests.helpers.special_values import differing
from tests.ops.sampler import Sample
from tests.ops.sampler import run as reference
from tests.ops.test_special_forms import drawn
from tstatic.errors import TstaticError, UnsupportedError
from tstatic.ir.opdef import OpDef, op_def, with_

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx import forms
from tests.onnx.test_forms import ONLY_RUNTIME, WITH_FORM, arrays

KINDS = ("infinite", "huge")
TURNS = 9 if "TSTATIC_SOAK" in os.environ else 1
ORDER = "a sum of numbers near the largest overflows in one order and not in another"
PADDING = "padding and zeros between pixels times an infinite weight are NaN in the reference; evaluators leave them out, or do not"
STATES = "onnxruntime clips the sums of a recurrence, which hides NaN, and the evaluator takes all sequences for whole"
MAXIMUM = "the greatest of a window is a number if one is NaN: ONNX leaves that open"
RESIZE = "the evaluator clips results to the range of finite numbers, onnxruntime multiplies pixels of weight 0, or leaves them out"
DIFFERENT = {
    **dict.fromkeys(("batch_norm", "mean", "reduce_sum"), ORDER),
    **dict.fromkeys(("conv2d", "conv3d", "depthwise_conv2d"), PADDING),
    **dict.fromkeys(("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose"), PADDING),
    **dict.fromkeys(("gru_sequence", "lstm_sequence", "rnn", "simple_rnn_sequence"), STATES),
    **dict.fromkeys(("max_pool2d_with_index", "max_pool3d_with_index", "pool2d", "pool3d"), MAXIMUM),
    **dict.fromkeys(("bicubic_interp_v2", "bilinear_interp_v2", "linear_interp_v2", "trilinear_interp_v2"), RESIZE),
    "grid_sampler": "onnxruntime leaves out pixels of weight 0, and the evaluator knows no mode 'bilinear'",
    "nll_loss": "weights that add up to 0 give 0 in the reference, and 0 divided by 0 in ONNX",
}
"""Operator -> why neither evaluator gives what the reference gives."""
NOT_DRAWN = {"arange": "its numbers are the size of its result"}


def _same(sample: Sample, names: Any, wanted: Any, found: dict[str, Any]) -> str:
    """Returns what differs in a special value, a dtype or a shape; finite numbers are compared elsewhere."""
    for name, ours in zip(names, wanted, strict=True):
        for one, a in zip(arrays(name), arrays(ours), strict=name is not None):
            b = found[one]
            if (b.dtype, b.shape) != (a.dtype, a.shape):
                return f"{b.dtype}{b.shape}, not {a.dtype}{a.shape}"
            bad = differing(b, a, None, zeros=False)
            if bad.any():
                return f"{b[bad][:3]}, not {a[bad][:3]}, for {sample}"
    return ""


def _compared(definition: OpDef, sample: Sample) -> str | None:
    """What differs in both evaluators; ``None`` where the reference or the form refuses the sample.

    Each of them loses NaN in operators of its own (the one in resizing, the other in maxima): a form is right if one agrees.
    """
    try:
        wanted = reference(definition, sample)
    except TstaticError:
        return None
    if any(a.dtype.kind == "c" for value in wanted for a in arrays(value)):
        return None
    try:
        model, feed, names = forms.build_any(definition, sample)
    except UnsupportedError:
        return None
    texts = []
    for evaluator in (forms.evaluate, forms.run):
        if evaluator is forms.evaluate and definition.type in ONLY_RUNTIME:
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = _same(sample, names, wanted, evaluator(model, feed))
        except Exception as error:
            text = f"{evaluator.__name__} raises {error!r}"[:200]
        if not text:
            return ""
        texts.append(text)
    return "; ".join(texts)


def differences(definition: OpDef, kind: str) -> tuple[list[str], int]:
    """What differs, and how many samples were compared."""
    found = [_compared(definition, s) for s in drawn(definition, kind, TURNS, None) if s.dtype == "float32"]
    return [text for text in found if text], sum(text is not None for text in found)


def has_floats(definition: OpDef) -> bool:
    assert definition.domain is not None
    values = definition.domain.values
    return "float32" in definition.domain.floats and any(
        slot.name not in values or values[slot.name].dtype == "float" for slot in definition.inputs
    )


FLOATS = [type for type in WITH_FORM if type not in NOT_DRAWN and has_floats(op_def(type))]


@pytest.mark.parametrize("type", FLOATS)
def test_forms_give_what_references_give(type: str) -> None:
    found = [differences(op_def(type), kind) for kind in KINDS]
    texts = [text for some, _ in found for text in some]
    assert sum(count for _, count in found)
    if type in DIFFERENT:
        assert texts, f"{type} does not differ any more: the table must not list it"
    else:
        assert texts == []


def test_the_table_names_what_exists() -> None:
    assert set(DIFFERENT) <= set(FLOATS)
    assert set(NOT_DRAWN) <= set(WITH_FORM)
    assert len(FLOATS) > 220


@pytest.mark.parametrize("type", ["elementwise_floordiv", "elementwise_mod"])
def test_quotients_that_are_not_exact(type: str) -> None:
    """1 // 0.1 was 10 in ONNX, and 9 here and in numpy."""
    a = np.array([1, -1, 7, -7, 0.3, -0.3, 5.5, 1e8, 0, -0.5, 3], "float32")
    b = np.array([0.1, 0.1, -2, 2, 0.1, -0.1, -0.5, 0.3, -0.7, np.inf, 0], "float32")
    sample = Sample((a, b), {}, "float32")
    (wanted,) = reference(op_def(type), sample)
    model, feed, (name,) = forms.build(op_def(type), sample)
    for evaluator in (forms.evaluate, forms.run):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(evaluator(model, feed)[name], wanted)


def test_a_running_sum_of_exponentials_keeps_small_entries() -> None:
    """Entries far below the largest of a row vanished in ONNX: the first result was minus infinity."""
    sample = Sample((np.array([[-200.0, -200.0, 0.0, 50.0, -3.0]], "float32"),), {}, "float32")
    (wanted,) = reference(op_def("logcumsumexp"), sample)
    model, feed, (name,) = forms.build(op_def("logcumsumexp"), sample)
    for evaluator in (forms.evaluate, forms.run):
        np.testing.assert_allclose(evaluator(model, feed)[name], wanted, rtol=1e-6)


def test_a_planted_fault_is_seen() -> None:
    """A form that hides NaN, and one that loses an infinity."""
    assert differences(op_def("tanh"), "infinite")[0] == []
    hidden = with_(op_def("tanh"), onnx=lambda g, x: g.where(g.equal(x, x), g("Tanh", x), g.number(0, x)))
    assert differences(hidden, "infinite")[0]
    small = with_(op_def("relu"), onnx=lambda g, x: g("Min", g("Relu", x), g.number(1e30, x)))
    assert differences(small, "infinite")[0]


SMALL = np.array([1e-30, -1e-30, 1e-8, -1e-8, 3e-6, -1e-4, 1e-2, -0.5, 0.0, -0.0, -1.0, 1e30, np.inf], "float32")
"""Arguments of which ``1 + x`` keeps few digits, and where the logarithm ends."""
STEEP = np.array([-90, -40, -17, -16.5, -16, -12, -3, 0, 2, 15], "float32")
"""Arguments whose exponential ``1 + exp(x)`` loses."""
ONES = np.ones_like(STEEP)


@pytest.mark.parametrize(
    ("type", "ins", "attrs"),
    [
        ("log1p", (SMALL,), {}),
        ("expm1", (SMALL,), {}),
        ("softplus", (STEEP,), {}),
        ("logsigmoid", (-STEEP,), {}),
        ("bce_loss", (np.abs(SMALL[:8]), 0 * SMALL[:8]), {}),
        ("sigmoid_cross_entropy_with_logits", (STEEP, 0 * ONES, None), {}),
        ("sigmoid_cross_entropy_with_logits", (STEEP, 0 * ONES, ONES), {}),
        ("teacher_student_sigmoid_loss", (STEEP[2:, None], -2 * ONES[2:, None]), {}),
        ("rank_loss", (0 * ONES[:, None], STEEP[:, None], 0 * ONES[:, None]), {}),
        ("logcumsumexp", (np.stack([0 * ONES, STEEP]).T[2:],), {"axis": -1}),
    ],
)  # fmt: skip
def test_logarithms_near_one_keep_their_digits(type: str, ins: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    """log1p was log(1 + x) in ONNX, 0 for 1e-8."""
    sample = Sample(ins, attrs, "float32")
    with np.errstate(all="ignore"):
        (wanted, *_) = reference(op_def(type), sample)
        model, feed, (name, *_) = forms.build(op_def(type), sample)
        for evaluator in (forms.evaluate, forms.run):
            np.testing.assert_allclose(evaluator(model, feed)[name], wanted, rtol=2e-6, atol=1e-37)
