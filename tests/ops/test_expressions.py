"""Numpy code that is written for speed computes what the op's expressions say: both in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.ops.sampler import Sample, op_types, run, samples
from tstatic.fusion.codegen.define import define, define_channels
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.ir.channels import CHANNEL_SUMS, Channels
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef, op_def, with_

ON_CHANNELS = [t for t in op_types() if op_def(t).channels is not None]
STATED = [t for t in op_types() if op_def(t).rows is not None] + ON_CHANNELS


def by_expressions(definition: OpDef, sample: Sample) -> dict[str, Any] | None:
    """Results by output slot, by the expressions as plain numpy; ``None`` where the op states none, or there are no elements."""
    attrs = definition.complete(sample.attrs)
    metas = infer_outputs(definition, metas_of(sample.ins), attrs)
    ins = {s.name: a for s, a in zip(definition.inputs, sample.ins, strict=True)}
    outs = {f"{s.name} out": m for s, m in zip(definition.outputs, metas, strict=True) if m is not None}
    op = FrozenOp(
        definition,
        tuple(n if a is not None else None for n, a in ins.items()),
        tuple(f"{s.name} out" if f"{s.name} out" in outs else None for s in definition.outputs),
        attrs,
    )
    known = outs | {n: m for (n, a), m in zip(ins.items(), metas_of(list(ins.values())), strict=True) if a is not None}
    body = define(op, known) or define_channels(op, known)
    if body is None or 0 in body.full:
        return None
    reference = Reference(known, {n: f"given[{n!r}]" for n in ins}, None, ())
    reference.write([op])
    scope = {"np": np, "given": ins, "whole": lambda a, dtype: np.asarray(a).astype(dtype).astype(np.int64)}
    with np.errstate(all="ignore"):
        exec("\n".join(reference.lines), scope)
        return {n.removesuffix(" out"): eval(reference.of(n).text, scope) for n in outs}


def check(definition: OpDef, count: int = 20) -> int:
    """Compares the reference with the expressions; returns how many results were compared."""
    compared = 0
    for sample in samples(definition, count, ["float64"], ["contiguous"]):
        found = by_expressions(definition, sample)
        for slot, own in zip(definition.outputs, run(definition, sample), strict=True):
            if found is not None and own is not None:
                np.testing.assert_allclose(own, found[slot.name], 1e-9, 1e-11, err_msg=f"{slot.name} of {sample}")
                compared += 1
    return compared


@pytest.mark.parametrize("type", STATED)
def test_tuned_code_computes_what_the_expressions_say(type: str) -> None:
    assert check(op_def(type)) > 0


def changed(definition: OpDef, term: str) -> OpDef:
    """The op with another expression for one of its terms."""
    stated = definition.channels
    assert stated is not None

    def channels(*metas: Any, **attrs: Any) -> Channels | None:
        found = stated(*metas, **attrs)
        return None if found is None else replace(found, texts={n: scaled(n, t) for n, t in found.texts.items()})

    def scaled(name: str, text: str) -> str:
        function = text.partition("(")[0]
        if name != term:
            return text
        return f"{function}(1.01 * {text[len(function) :]})" if function in CHANNEL_SUMS else f"1.01 * ({text})"

    return with_(definition, channels=channels)


def terms(definition: OpDef) -> list[str]:
    """Names of the terms that the op states for its first shapes."""
    (sample,) = samples(definition, limit=1)
    stated = definition.channels
    assert stated is not None
    found = stated(*metas_of(sample.ins), **definition.complete(sample.attrs))
    return [] if found is None else list(found.texts)


@pytest.mark.parametrize(("type", "term"), [(t, n) for t in ON_CHANNELS for n in terms(op_def(t))])
def test_a_wrong_term_is_noticed(type: str, term: str) -> None:
    with pytest.raises(AssertionError):
        check(changed(op_def(type), term))
