"""Peers from other libraries for the rows of first contact; each is timed only where its package is installed.

A maker takes a row's inputs in their order, shaped, and returns what is called; it may raise whatever the library raises.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import attention_peers

Call = Callable[[], Any]
Maker = Callable[..., Call]

EPSILON = 1e-5


def _liger_norm(x: Any, z: Any, w: Any, b: Any) -> Call:
    norm = importlib.import_module("liger_kernel.ops.layer_norm")
    w, b = w.to(x.dtype), b.to(x.dtype)

    def call() -> Any:
        h = x + z
        return h, norm.layer_norm_forward(h, w, b, EPSILON)

    return call


def _liger_norm_grad(h: Any, w: Any, mean: Any, var: Any, dy: Any, dh: Any) -> Call:
    norm = importlib.import_module("liger_kernel.ops.layer_norm")
    w = w.to(h.dtype)
    b, inverse = w * 0, (var + EPSILON).rsqrt()
    return lambda: norm.layer_norm_backward(dy, h, w, b, mean, inverse)[0] + dh


def _liger_cross_entropy(x: Any, label: Any, start: Any) -> Call:
    loss = importlib.import_module("liger_kernel.ops.cross_entropy")
    # It writes the gradient over the logits; which numbers are there does not change its time.
    x, label = x.clone(), label[:, 0]
    return lambda: loss.cross_entropy_forward(x, label, None, -100, 0.0, 0.0, "none", None, False)


def _liger_softmax(x: Any, mask: Any) -> Call:
    softmax = importlib.import_module("liger_kernel.ops.softmax")
    return lambda: softmax._softmax_forward(x * 0.125 + mask)


def _liger_softmax_grad(y: Any, dy: Any) -> Call:
    softmax = importlib.import_module("liger_kernel.ops.softmax")
    _, block, warps, several = softmax._softmax_forward(y)

    def call() -> Any:
        ds = softmax._softmax_backward(dy, y, block, warps, several)
        return ds.sum(0), ds * 0.125

    return call


PACKAGES = {"liger": "liger_kernel", **dict.fromkeys(attention_peers.LIBRARIES, "torch")}

WHEELS: Mapping[str, Mapping[str, Maker]] = {
    f"{label}/{number}": {n: attention_peers.maker_of(row, n) for n in attention_peers.libraries_of(row, number)}
    for label, row in attention_peers.ROWS.items()
    for number in (0, 1)
} | {
    "compiler/residual-LN/0": {"liger": _liger_norm},
    "compiler/residual-LN/1": {"liger": _liger_norm_grad},
    "compiler/residual-LN-4096/0": {"liger": _liger_norm},
    "compiler/residual-LN-4096/1": {"liger": _liger_norm_grad},
    "compiler/cross-entropy/0": {"liger": _liger_cross_entropy},
    "compiler/softmax/0": {"liger": _liger_softmax},
    "compiler/softmax/1": {"liger": _liger_softmax_grad},
}
"""By a case's name, less the op's type: peer -> its maker."""


def missing(peer: str) -> str:
    """Why a peer cannot be timed; empty if its package is installed."""
    found = importlib.util.find_spec(PACKAGES[peer])
    return "" if found is not None else f"peer missing: {PACKAGES[peer]} is not installed"
