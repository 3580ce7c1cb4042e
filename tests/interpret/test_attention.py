"""Attention kernels, forward and backward, against the ops one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tests.interpret.test_gemm import CLOSE, numbers, op
from tstatic.fusion.attention.grad import attention_grad_kernel
from tstatic.fusion.attention.kernel import attention_kernel
from tstatic.fusion.attention.parts import Attention, Gradient
from tstatic.ir.frozen import FrozenOp
from tstatic.target import A100, B200, H200, TINY


def made(mask: str | None, dtype: str) -> tuple[Attention, list[FrozenOp], FrozenOp]:
    """An attention with scaled scores and a mask; what saves its sums; its last product."""
    product = op("matmul_v2", {"X": "q", "Y": "k"}, {"Out": "s"}, trans_y=True)
    behind = [op("scale", {"X": "s"}, {"Out": "t"}, scale=0.5)]
    if mask:
        behind.append(op("elementwise_add", {"X": "t", "Y": "mask"}, {"Out": "u"}))
    scores = "u" if mask else "t"
    softmax = op("softmax", {"X": scores}, {"Out": "p"})
    low = dtype in ("float16", "bfloat16")
    saving = [op("cast", {"X": scores}, {"Out": "c"}, in_dtype=dtype, out_dtype="float32")] if low else []
    kind = "float64" if dtype == "float64" else "float32"
    saving.append(op("logsumexp", {"X": "c" if low else scores}, {"Out": "sum"}, axis=(-1,), keepdim=True))
    saving.append(op("cast", {"X": "sum"}, {"Out": "lse"}, in_dtype=kind, out_dtype="float64"))
    mixed = op("matmul_v2", {"X": "p", "Y": "v"}, {"Out": "o"})
    return Attention(product, tuple(behind), softmax, ()), saving, mixed


def gradient() -> Gradient:
    return Gradient(
        op("matmul_v2_grad", {"X": "p", "Y": "v", "Out@GRAD": "do"}, {"X@GRAD": "dp", "Y@GRAD": "dv"}),
        (),
        op("softmax_grad", {"Out": "p", "Out@GRAD": "dp"}, {"X@GRAD": "dt"}),
        (op("scale", {"X": "dt"}, {"Out": "ds"}, scale=0.5),),
        op("matmul_v2_grad", {"X": "q", "Y": "k", "Out@GRAD": "ds"}, {"X@GRAD": "dq", "Y@GRAD": "dk"}, trans_y=True),
    )


SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "plain": ((2, 3, 37, 20), (2, 3, 53, 20), (2, 3, 53, 24)),
    "one batch": ((40, 16), (19, 16), (19, 16)),
    "shared keys": ((2, 2, 3, 21, 17), (2, 2, 1, 35, 17), (2, 2, 1, 35, 16)),
    "keys of all": ((4, 20, 16), (1, 33, 16), (1, 33, 16)),
}
MASKS: dict[str, Any] = {
    "full": lambda s: s,
    "rows x columns": lambda s: s[-2:],
    "columns": lambda s: (s[0], *[1] * (len(s) - 2), s[-1]),
}


def check(shapes: tuple[tuple[int, ...], ...], dtype: str, mask: str | None) -> None:
    found, saving, mixed = made(mask, dtype)
    q, k, _ = shapes
    arrays = {n: numbers(s, dtype, i) * 4 for i, (n, s) in enumerate(zip("qkv", shapes, strict=True))}
    arrays = {n: a.astype(numbers((1,), dtype, 0).dtype) for n, a in arrays.items()}
    if mask:
        full = (*q[:-1], k[-2])
        made_mask = np.where(
            np.random.default_rng(4).random(MASKS[mask](full)) < 0.3, -3e4 if dtype == "float16" else -1e9, 0.0
        )
        arrays["mask"] = made_mask.astype(arrays["q"].dtype)
    body = [*found.ops, *saving, mixed]
    known = run_ops(body, arrays)
    metas = metas_by_name(known)
    kernel = attention_kernel(found, mixed, metas, "lse", saving)
    ways = tuple(kernel.candidates(TINY))
    low, shared = dtype in ("float16", "bfloat16"), q[:-2] != k[:-2]
    assert [way.name == "library" for way in ways] == ([False] if low else [False, True])
    for way in ways:
        got = run_kernel(kernel, arrays, {n: metas[n] for n in ("o", "lse")}, calls=way)
        for name in ("o", "lse"):
            assert close(got[name], known[name], dtype), (name, way.name)
    arrays |= {"o": known["o"], "lse": known["lse"], "do": numbers(metas["o"].shape, dtype, 7)}
    g = gradient()
    known = run_ops([*found.ops, *g.ops], arrays)
    metas = metas_by_name(known)
    wanted = ["dq", "dk", "dv"]
    kernel = attention_grad_kernel(found, g, metas, wanted, "lse", "o")
    ways = tuple(kernel.candidates(TINY))
    # One launch for all gradients where no heads share keys; one for keys and values, and one for queries; three. The last way
    # is the first one again: sums of rows by a launch before the others, or in their loops.
    launches = [2, 3] if shared else [1, 2, 3]
    launches.append(launches[0] + 1)
    if low:
        launches = [*(n + 1 for n in launches[:-1]), launches[0]]
    elif not shared:
        # The library makes six products for each run of batches; the interpreter's chip holds all of them.
        launches.append(6)
    assert [len(way.launches) for way in ways] == launches
    assert len({way.name for way in ways}) == len(ways)
    for way in ways:
        got = run_kernel(kernel, arrays, {n: metas[n] for n in wanted}, calls=way)
        for name in wanted:
            assert close(got[name], known[name], dtype), (name, way.name)
    for chip in (A100, H200, B200):
        assert kernel.plan(chip).launches


def close(got: Any, wanted: Any, dtype: str) -> bool:
    wide = wanted.astype(np.float64)
    error = np.abs(got.astype(np.float64) - wide).max()
    return bool(error <= 4 * CLOSE[dtype] * np.abs(wide).max())


@pytest.mark.parametrize("mask", [None, *(pytest.param(mask, marks=pytest.mark.slow) for mask in MASKS)])
def test_masks(mask: str | None) -> None:
    check(SHAPES["plain"], "float32", mask)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "plain"])
def test_shapes(shape: str) -> None:
    check(SHAPES[shape], "float32", None)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_types(dtype: str) -> None:
    check(SHAPES["plain"], dtype, "rows x columns")
