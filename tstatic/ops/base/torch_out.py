"""Torch forms that write their results where they are told."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

_FUNCTIONAL = "nn.functional."


def torch_function(path: str) -> Callable[..., Any]:
    """Returns ``(torch, *arguments, out) -> tensor`` of a function that torch has by this path, such as ``nn.functional.elu``.

    Those in ``nn.functional`` do not take ``out``; the operators behind them do, if torch has it.
    """
    steps = path.split(".")

    def call(torch: Any, *arguments: Any, out: Any = None) -> Any:
        if out is None:
            return reduce(getattr, steps, torch)(*arguments)
        if not path.startswith(_FUNCTIONAL):
            return reduce(getattr, steps, torch)(*arguments, out=out)
        # torch.nn.functional takes no `out`; the operators below it do.
        return getattr(torch.ops.aten, steps[-1]).out(*arguments, out=out)

    return call


def filled(out: Any, result: Any) -> Any:
    """Writes a result of torch to ``out``, rounded to its dtype; returns the result if there is no such tensor."""
    return result if out is None else out.copy_(result)


def product(torch: Any, x: Any, y: Any, out: Any) -> Any:
    """Writes the matrix product ``x @ y``, with broadcasting as in ``torch.matmul``, to ``out``."""
    if x.is_cuda and not (x.is_floating_point() or x.is_complex()):
        return filled(out, integer_product(torch, x, y))
    if out is None:
        return torch.matmul(x, y)
    if x.dim() == 1 or y.dim() == 1:
        place = out
        if y.dim() == 1:
            y, place = y[:, None], place.unsqueeze(-1)
        if x.dim() == 1:
            x, place = x[None], place.unsqueeze(-2)
        product(torch, x, y, place)
        return out
    rows, inner, columns = x.shape[-2], x.shape[-1], y.shape[-1]
    if out.dim() > 2 and not out.is_contiguous():
        # Heads in a packed result: batches that lie at several distances.
        torch.matmul(x, y, out=out)
    # One product of all rows, instead of one for each matrix of the batch.
    elif y.dim() == 2 and x.is_contiguous() and out.is_contiguous():
        torch.mm(x.view(_count(x.shape[:-1]), inner), y, out=out.view(_count(x.shape[:-1]), columns))
    elif out.dim() == 2:
        torch.mm(x, y, out=out)
    else:
        batch = out.shape[:-2]
        count = _count(batch)
        # A copy only where an operand is broadcast: bmm takes three axes, in order.
        x = x.expand(*batch, rows, inner).reshape(count, rows, inner)
        y = y.expand(*batch, inner, columns).reshape(count, inner, columns)
        torch.bmm(x, y, out=out.view(count, rows, columns))
    return out


# As int64 they take 128 MiB.
MOST_PRODUCTS = 1 << 24
"""Products of integers that are in memory at a time."""


def integer_product(torch: Any, x: Any, y: Any) -> Any:
    """Returns the matrix product of integers as sums of products: torch has none on GPUs."""
    if y.dim() == 1:
        return integer_product(torch, x, y[:, None])[..., 0]
    if x.dim() == 1:
        return integer_product(torch, x[None], y)[..., 0, :]
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    total = x.new_zeros((*batch, x.shape[-2], y.shape[-1]))
    step = max(1, MOST_PRODUCTS // max(1, total.numel()))
    for i in range(0, x.shape[-1], step):
        products = x[..., :, i : i + step, None] * y[..., None, i : i + step, :]
        total += products.sum(-2, dtype=total.dtype)
    return total


def _count(sizes: Any) -> int:
    return math.prod(sizes)


def both(out: Any) -> tuple[Any, Any]:
    """Returns the places of two results, of which one may not be wanted, or none of either."""
    return (None, None) if out is None else out
