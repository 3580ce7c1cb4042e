"""A matrix product and the bias behind it as one call of the device's library."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.opdef import OpDef


def _ref(x: Any, y: Any, bias: Any, out: Any, trans_x: bool = False, trans_y: bool = False) -> None:
    a, b = x.T if trans_x else x, y.T if trans_y else y
    if out.dtype.itemsize > 2:
        np.matmul(a, b, out=out)
        np.add(out, bias, out=out)
        return
    # 16-bit floats are added up in 32 bits, and rounded once.
    a, b, bias = (v.astype(np.float32) for v in (a, b, bias))
    out[...] = (np.matmul(a, b) + bias).astype(out.dtype)


def _lower(
    torch: Any, x: Any, y: Any, bias: Any, trans_x: bool = False, trans_y: bool = False, *, out: Any = None
) -> Any:
    # With a vector, cuBLASLt adds it on the way to memory.
    return torch.addmm(bias, x.mT if trans_x else x, y.mT if trans_y else y, out=out)


BIASED_PRODUCT = OpDef(
    "biased_product",
    "X, Y, Bias -> Out",
    attrs={"trans_x": False, "trans_y": False},
    ref=_ref,
    lower=_lower,
    uses_blas=True,
)
"""``Out = op(X) @ op(Y) + Bias`` of matrices and a vector. No program has it: kernels whose product a library makes run it."""
