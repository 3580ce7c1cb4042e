"""What torch makes of the attention rows of first contact: the results in 64 bits, and its own kernels to be timed beside ours.

Inputs and outputs have the order that ``pack.py`` gives them: a forward pass reads ``q, k, [mask], v`` and makes the logarithms of
the sums and the result; a gradient reads ``q, k, [mask], lse, v, dy, out`` and makes those of ``v``, ``q`` and ``k``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

aten: Any = torch.ops.aten
Call = Callable[[], Any]
Outputs = Sequence[Any]


class Row(NamedTuple):
    """How the attention of a row is masked.

    Attributes:
        causal: Whether a query sees only keys up to its own place.
        masked: Whether a mask is among the inputs.
        drop: Probability of dropout. What other libraries draw differs.
    """

    causal: bool = False
    masked: bool = False
    drop: float = 0.0


def _split(row: Row, ins: Sequence[Any]) -> tuple[Any, Any, Any, Any, Sequence[Any]]:
    """``q, k, v``, the mask or ``None``, and what a gradient reads besides: the result's gradient, and the result."""
    q, k, *rest = ins
    mask = rest.pop(0) if row.masked else None
    if len(rest) == 1:
        return q, k, rest[0], mask, ()
    _, v, dy, out = rest
    return q, k, v, mask, (dy, out)


def _weights(row: Row, q: Any, k: Any, mask: Any) -> tuple[Any, Any]:
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if row.causal:
        n = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    scores = scores if mask is None else scores + mask
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    lse = torch.logsumexp(wide, -1, keepdim=True)
    return lse, torch.exp(wide - lse).to(q.dtype)


def forward_of(row: Row) -> Callable[..., Outputs]:
    """The forward pass in plain operators; without dropout, whose numbers only the kernel knows."""

    def forward(*ins: Any) -> Outputs:
        if row.drop:
            raise NotImplementedError("the weights that dropout keeps are not known here")
        q, k, v, mask, _ = _split(row, ins)
        lse, weights = _weights(row, q, k, mask)
        return lse, weights @ v

    return forward


def gradient_of(row: Row) -> Callable[..., Outputs]:
    """The gradients of values, queries and keys in plain operators."""

    def gradient(*ins: Any) -> Outputs:
        if row.drop:
            raise NotImplementedError("the weights that dropout keeps are not known here")
        q, k, v, mask, (dy, _) = _split(row, ins)
        _, weights = _weights(row, q, k, mask)
        dv = weights.transpose(-1, -2) @ dy
        dp = dy @ v.transpose(-1, -2)
        ds = weights * (dp - (dp * weights).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        return dv, ds @ k, ds.transpose(-1, -2) @ q

    return gradient


def library_of(row: Row) -> Callable[..., Any]:
    """The forward pass as a user of torch runs it, by the kernel that torch chooses."""

    def library(*ins: Any) -> Any:
        q, k, v, mask, _ = _split(row, ins)
        return F.scaled_dot_product_attention(q, k, v, mask, row.drop, row.causal)

    return library


def _flash(row: Row, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Callable[[Any], Any]]:
    made = aten._scaled_dot_product_flash_attention(q, k, v, row.drop, row.causal, False)
    out, lse, *lengths, seed, offset = made[:8]
    back = aten._scaled_dot_product_flash_attention_backward
    return out, lambda dy: back(dy, q, k, v, out, lse, *lengths, row.drop, row.causal, seed, offset)


def _efficient(row: Row, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Callable[[Any], Any]]:
    mask = None if mask is None else mask.expand(*q.shape[:2], *mask.shape[-2:])
    out, lse, *drawn = aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, row.drop, row.causal)
    back, wanted = aten._scaled_dot_product_efficient_attention_backward, [True, True, True, False]
    return out, lambda dy: back(dy, q, k, v, mask, out, lse, *drawn, row.drop, wanted, row.causal)


def _cudnn(row: Row, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Callable[[Any], Any]]:
    mask = None if mask is None else mask.expand(*q.shape[:2], *mask.shape[-2:])
    made = aten._scaled_dot_product_cudnn_attention(q, k, v, mask, True, row.drop, row.causal, False)
    out, lse, *lengths, seed, offset = made[:8]
    back = aten._scaled_dot_product_cudnn_attention_backward
    return out, lambda dy: back(dy, q, k, v, out, lse, seed, offset, mask, *lengths, row.drop, row.causal)


def _plain(row: Row, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Callable[[Any], Any]]:
    scale = q.shape[-1] ** -0.5
    hidden = (
        torch.full(q.shape[-2:-1] * 2, float("-inf"), dtype=q.dtype, device=q.device).triu(1) if row.causal else mask
    )
    added = torch.zeros((), dtype=q.dtype, device=q.device) if hidden is None else hidden

    def forward() -> tuple[Any, Any]:
        weights = torch.softmax((q @ k.transpose(-1, -2)) * scale + added, -1)
        return weights, F.dropout(weights, row.drop) @ v

    weights, out = forward()

    def backward(dy: Any) -> Any:
        dv, dp = weights.transpose(-1, -2) @ dy, dy @ v.transpose(-1, -2)
        ds = aten._softmax_backward_data(dp, weights, -1, dp.dtype) * scale
        return dv, ds @ k, ds.transpose(-1, -2) @ q

    backward.again = lambda: forward()[1]  # type: ignore[attr-defined]
    return out, backward


LIBRARIES: Mapping[str, tuple[SDPBackend | None, Callable[..., tuple[Any, Callable[[Any], Any]]]]] = {
    "cudnn": (SDPBackend.CUDNN_ATTENTION, _cudnn),
    "flash": (SDPBackend.FLASH_ATTENTION, _flash),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, _efficient),
    "plain": (None, _plain),
}
"""Name -> torch's backend of this name, and what runs its forward pass and returns the result and its gradient.

``plain``: products of the library and a softmax, with all scores in memory.
"""


def maker_of(row: Row, name: str) -> Callable[..., Call]:
    """What takes a row's inputs and returns a call of one library's forward pass, or of its gradient."""
    backend, both = LIBRARIES[name]

    def maker(*ins: Any) -> Call:
        q, k, v, mask, (dy, *_) = _split(row, ins) if len(ins) > 4 else (*_split(row, ins)[:4], (None,))
        if dy is not None:
            _, backward = both(row, q, k, v, mask)
            return lambda: backward(dy)
        if backend is None:
            again: Call = both(row, q, k, v, mask)[1].again  # type: ignore[attr-defined]
            return again

        def call() -> Any:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, mask, row.drop, row.causal)

        return call

    return maker


def libraries_of(row: Row, number: int) -> Sequence[str]:
    """The libraries that make a row's result (0) or gradient (1): flash kernels take no mask.

    The efficient gradient reads where it drew, which lies in the host's memory unless all of it is recorded in a graph.
    """
    absent = {"flash"} if row.masked else {"efficient"} if row.drop and number else set()
    return [name for name in LIBRARIES if name not in absent]


def gradient_by_library(row: Row) -> tuple[Callable[..., Any], Callable[..., Sequence[Any]]]:
    """A gradient as torch's own kernel makes it from what its forward pass kept, and what prepares it."""

    def prepare(*ins: Any) -> Sequence[Any]:
        q, k, v, mask, (dy, _) = _split(row, ins)
        on_gpu = "efficient" if row.masked or q.dtype == torch.float32 else "flash"
        name = on_gpu if q.is_cuda else "plain"
        return dy, LIBRARIES[name][1](row, q, k, v, mask)[1]

    return (lambda dy, backward: backward(dy)), prepare


ROWS: Mapping[str, Row] = {
    "attention/causal-64": Row(causal=True),
    "attention/causal-128": Row(causal=True),
    "attention-more/mask-64": Row(masked=True),
    "attention-more/dropout-64": Row(causal=True, drop=0.1),
    "attention-fp32/causal-64": Row(causal=True),
    "attention-tf32/causal-64": Row(causal=True),
}
"""Label of a row -> how it is masked."""
