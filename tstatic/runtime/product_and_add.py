"""A matrix product and an addend as one call of the device's library."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.opdef import OpDef


def _ref(x: Any, y: Any, addend: Any, out: Any, trans_x: bool = False, trans_y: bool = False) -> None:
    a, b = x.T if trans_x else x, y.T if trans_y else y
    if out.dtype.itemsize > 2 and not np.may_share_memory(addend, out):
        np.matmul(a, b, out=out)
        np.add(out, addend, out=out)
        return
    # 16-bit floats are added up in 32 bits, and rounded once.
    wide = np.float32 if out.dtype.itemsize <= 2 else out.dtype
    a, b, addend = (v.astype(wide, copy=False) for v in (a, b, addend))
    np.copyto(out, np.matmul(a, b) + addend, "unsafe")


def _lower(
    torch: Any, x: Any, y: Any, addend: Any, trans_x: bool = False, trans_y: bool = False, *, out: Any = None
) -> Any:
    # cuBLASLt adds a vector on the way to memory; a matrix is added (beta = 1) to what is there if its memory is the
    # result's, else torch copies it there first.
    return torch.addmm(addend, x.mT if trans_x else x, y.mT if trans_y else y, out=out)


PRODUCT_AND_ADD = OpDef(
    "product_and_add",
    "X, Y, Addend -> Out",
    attrs={"trans_x": False, "trans_y": False},
    ref=_ref,
    lower=_lower,
    uses_blas=True,
)
"""``Out = op(X) @ op(Y) + Addend``, a matrix or one row. No program has it: kernels whose product a library makes run it."""
