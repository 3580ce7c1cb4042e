"""Adds arrays from the first to the last, so that the bits depend neither on who arrives first nor on who adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.devices import HostArray
from tstatic.ir.opdef import OpDef
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta


def add_in_order(parts: Sequence[HostArray], targets: Sequence[HostArray], total: HostArray | None = None) -> None:
    """Writes ``parts[0] + parts[1] + ...``, left to right, to all targets; adds 16-bit floats in float32 and rounds once.

    Args:
        parts: The arrays to add.
        targets: The arrays that receive the sum; they may be among the parts.
        total: Memory for the sum, if the first part is not a target or has 16 bits; allocated if ``None``.
    """
    first = parts[0]
    # float16 and bfloat16: rounding after each addition would lose digits, and depend on the number of parts.
    low = first.dtype.itemsize == 2 and first.dtype.kind in "fV"
    if total is None:
        in_place = not low and any(t is first for t in targets)
        total = first if in_place else np.empty(first.shape, np.float32 if low else first.dtype)
    if len(parts) == 1:
        np.copyto(total, first, casting="unsafe")
    left = first
    for part in parts[1:]:
        np.add(left, part, out=total, dtype=total.dtype, casting="unsafe")
        left = total
    for target in targets:
        if target is not total:
            np.copyto(target, total, casting="unsafe")


def _sum(parts: Sequence[HostArray], targets: Sequence[HostArray], *, scratch: Sequence[HostArray]) -> None:
    add_in_order(parts, targets, *scratch)


def _sum_scratch(parts: Sequence[Meta], targets: Sequence[Meta], *, in_place: bool) -> tuple[Meta, ...]:
    dtype = parts[0].dtype
    return () if in_place and not dtype.is_low else (Meta(parts[0].shape, dtype.compute),)


def _sum_in_torch(torch: Any, parts: Sequence[Any], *, in_place: bool, device: str, out: Sequence[Any]) -> None:
    """Adds as :func:`add_in_order` does, with the same bits; parts and targets may be other devices' tensors."""
    first = parts[0]
    mine = torch.device(device)
    here = [part if part.device == mine else part.to(mine, non_blocking=True) for part in parts]
    low = first.dtype in (torch.float16, torch.bfloat16)
    if in_place and not low and here[0] is first:
        total = first
    else:
        total = torch.empty(first.shape, dtype=torch.float32 if low else first.dtype, device=mine)
    left = here[0]
    if low or len(parts) == 1:
        # torch would round the sum of two 16-bit numbers to 16 bits, whatever it is written to.
        left = total.copy_(left)
    for part in here[1:]:
        left = torch.add(left, part, out=total)
    for target in out:
        if target is not total:
            target.copy_(total, non_blocking=True)


SUM = OpDef("c_sum", "X* -> Out*", attrs={"in_place": True}, ref=plain(_sum, _sum_scratch), lower=_sum_in_torch)
"""The sum as an op like any other, so that every device can run it on its own arrays."""
HOST_SUM = replace(SUM, lower=None)
"""The same sum, which a device of torch leaves to the host."""


__all__ = ["HOST_SUM", "SUM", "add_in_order"]
