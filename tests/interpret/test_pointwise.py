"""Every op that states an expression per element, alone in a kernel, against its own ref."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.interpret.kernels import metas_by_name, run_kernel, ulps
from tests.ops import sampler
from tstatic.fusion.codegen.define import is_pointwise
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, build
from tstatic.fusion.codegen.text.emit import emit
from tstatic.ir.expr import FUNCTIONS
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS, OpDef

OPS_HERE = sorted(t for t in sampler.op_types(1) if is_pointwise(OPS[t]))

# Codes for which one sample of an op may have no kernel; an op whose functions all have forms needs one for some.
ALLOWED = {"NO_KERNEL_FORM", "TWO_SUMS", "SUM_TYPE", "SUM_SHAPE", "NOT_POINTWISE"}


def has_forms(definition: OpDef) -> bool:
    """Whether every function of an op definition's expressions has a form in kernels that floats can use."""
    assert definition.expression is not None
    pending = list(definition.expression.nodes.values())
    while pending:
        node = pending.pop()
        if node.op in FUNCTIONS:
            function = FUNCTIONS[node.op]
            if node.op in ("floordiv", "remainder") or not (function.triton or function.expand):
                return False
        pending.extend(node.args)
    return True


def size_of_terms(arrays: Any) -> float:
    """The largest finite magnitude: what a sum that cancels is judged by, instead of its result."""
    found = 1e-30
    for a in arrays:
        if a is not None and a.dtype.kind in "fV":
            values = np.abs(a.astype(np.float64))
            values = values[np.isfinite(values)]
            found = max(found, float(values.max()) if values.size else 0.0)
    return found


def unit(size: float, dtype: np.dtype[Any]) -> float:
    """One unit in the last place of a number of that size."""
    steps = {"bfloat16": 2.0**16, "float16": 2.0**13}.get(dtype.name, 1.0)
    return float(np.spacing(np.asarray(size, np.float64 if dtype == np.float64 else np.float32))) * steps


def _contiguous(value: Any) -> Any:
    if isinstance(value, list):
        return [_contiguous(v) for v in value]
    return None if value is None else np.array(value, order="C")


def _names(name: str, value: Any) -> Any:
    """An entry for a value, a list of values or nothing."""
    if isinstance(value, list):
        return tuple(f"{name}_{k}" for k in range(len(value)))
    return None if value is None else name


def _flat(values: list[Any]) -> list[Any]:
    return [v for one in values for v in (one if isinstance(one, list) else [one]) if v is not None]


@pytest.mark.parametrize("kind", OPS_HERE)
def test_op_def(kind: str) -> None:
    definition = OPS[kind]
    domain = sampler.root(definition).domain
    assert domain is not None
    tried = 0
    for dtype in (d for d in (*domain.floats, *domain.others) if not d.startswith("complex")):
        # Each site once, since all layouts are made contiguous; two of one, since a gradient may be absent in the second.
        for sample in sampler.samples(definition, 2, [dtype], limit=6):
            given = zip(sample.ins, definition.inputs, strict=True)
            if any(a is None and not s.optional for a, s in given):
                continue
            ins = [_contiguous(a) for a in sample.ins]
            outs = sampler.run(
                definition, replace(sample, ins=tuple(ins), layout="contiguous", out_layout="contiguous")
            )
            if any(isinstance(o, list) or (o is not None and o.size == 0) for o in outs):
                continue
            op = FrozenOp(
                definition,
                tuple(_names(f"i{k}", a) for k, a in enumerate(ins)),
                tuple(f"o{k}" if a is not None else None for k, a in enumerate(outs)),
                definition.complete(sample.attrs),
            )
            arrays = dict(zip(op.reads(), _flat(ins), strict=True))
            wanted = {n: a for n, a in zip(op.outputs, outs, strict=True) if isinstance(n, str)}
            metas = metas_by_name({**arrays, **wanted})
            try:
                kernel = emit(build([op], metas, list(wanted)))
            except CodegenUnsupported as found:
                if found.code not in ALLOWED:
                    raise
                continue
            tried += 1
            got = run_kernel(kernel, arrays, {n: metas[n] for n in wanted})
            for name, value in wanted.items():
                distance = ulps(got[name], value)
                if distance > 16:
                    # A difference of nearly equal terms: judged by the size of the terms.
                    assert value.dtype.kind in "fV", f"{kind} {sample}: wrong in {kernel.name}"
                    error_ = np.abs(got[name].astype(np.float64) - value.astype(np.float64)).max()
                    bound = 16 * unit(size_of_terms(arrays.values()), value.dtype)
                    assert error_ <= bound, f"{kind} {sample}: {distance} ulp in {kernel.name}"
    assert tried or not has_forms(definition), f"{kind} had no kernel at all"
