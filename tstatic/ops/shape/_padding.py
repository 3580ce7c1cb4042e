"""Padding along any axes: the calls that fill borders, and those that fold them back for the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.ref import Calls
from tstatic.ir.types import UNKNOWN, Shape
from tstatic.ops.shape._shapes import Array, check_sizes

Pads = Sequence[tuple[int, int]]
"""For each axis the elements added before and after."""


def padded(shape: Shape, pads: Pads, mode: str) -> Shape:
    """The shape after padding.

    Raises:
        ShapeError: For negative padding, or more of it than a mode can take from the value.
    """
    if any(low < 0 or high < 0 for low, high in pads):
        raise ShapeError(
            "padding cannot be negative",
            expected="paddings of at least 0",
            received=[p for pair in pads for p in pair],
            fix="slice the value to make it smaller",
        )
    for axis, (size, pair) in enumerate(zip(shape, pads, strict=True)):
        limit = {"constant": None, "reflect": size - 1, "circular": size}.get(mode, 2**62 if size else 0)
        if size != UNKNOWN and limit is not None and max(pair) > max(limit, 0):
            raise ShapeError(
                f"mode '{mode}' cannot pad axis {axis} of size {size} by {max(pair)}",
                expected=f"paddings of at most {max(limit, 0)}",
                received=list(pair),
                fix="pad less, or use another mode",
            )
    new = tuple(UNKNOWN if s == UNKNOWN else s + low + high for s, (low, high) in zip(shape, pads, strict=True))
    check_sizes(new)
    return new


def center(array: Array, pads: Pads) -> Array:
    """The part of a padded array that is the value itself."""
    if not pads:
        return array
    return array[tuple(slice(low, size - high) for size, (low, high) in zip(array.shape, pads, strict=True))]


def _borders(array: Array, pads: Pads, axis: int, mode: str) -> list[tuple[Array, Array]]:
    """(border, what it shows) for one axis of a padded array; axes before it are whole, those behind it unpadded."""
    low, high = pads[axis]
    end = array.shape[axis] - high
    lines = [
        slice(None) if i < axis else slice(p, n - q)
        for i, (n, (p, q)) in enumerate(zip(array.shape, pads, strict=True))
    ]

    def line(start: int, stop: int | None, step: int = 1) -> Array:
        return array[(*lines[:axis], slice(start, stop, step), *lines[axis + 1 :])]

    if mode == "reflect":
        last = end - 2 - high
        before, after = line(2 * low, low, -1), line(end - 2, last if last >= 0 else None, -1)
    elif mode == "circular":
        before, after = line(end - low, end), line(low, low + high)
    else:
        before, after = line(low, low + 1), line(end - 1, end)
    return [pair for pair, size in (((line(0, low), before), low), ((line(end, None), after), high)) if size]


def pad_calls(x: Array, out: Array, pads: Pads, mode: str, value: float) -> Calls:
    """Calls that write the padded value."""
    calls: Calls = [(np.copyto, (center(out, pads), x))]
    if out.size == 0:
        return []
    for axis, pair in enumerate(pads):
        if not any(pair):
            continue
        if mode != "constant":
            calls += [(np.copyto, pair) for pair in _borders(out, pads, axis, mode)]
            continue
        fill = np.asarray(value).astype(out.dtype)[()]
        calls += [(np.copyto, (border, fill)) for border, _ in _borders(out, pads, axis, "replicate")]
    return calls


def fold_calls(dout: Array, dx: Array, pads: Pads, mode: str, buffer: Array | None) -> Calls:
    """Calls that add each border's gradient to what the border shows.

    Args:
        dout: The gradient of the padded value.
        dx: Receives the gradient of the value.
        pads, mode: As the forward op has them.
        buffer: A copy of ``dout`` to work in; not needed for constant borders.
    """
    if mode == "constant" or buffer is None:
        return [(np.copyto, (dx, center(dout, pads)))]
    calls: Calls = [(np.copyto, (buffer, dout))]
    # The last axis was filled last, from borders that were complete by then.
    for axis in range(len(pads) - 1, -1, -1):
        for border, shown in _borders(buffer, pads, axis, mode) if any(pads[axis]) else ():
            if border.shape == shown.shape:
                calls.append((np.add, (shown, border, shown)))
                continue
            layers = np.moveaxis(border, axis, 0)
            calls += [(np.add, (shown, np.expand_dims(layer, axis), shown)) for layer in layers]
    return [*calls, (np.copyto, (dx, center(buffer, pads)))]


def torch_pad(torch: Any, x: Any, pads: Pads, mode: str, value: float) -> Any:
    """The same with torch: by index along each axis, so that all axes and modes are alike."""
    if mode == "constant":
        flat = [p for pair in reversed(list(pads)) for p in pair]
        return torch.nn.functional.pad(x, flat, value=value) if flat else x.clone()
    for axis, (low, high) in enumerate(pads):
        if low or high:
            x = x.index_select(axis, torch.tensor(_shown(x.shape[axis], low, high, mode), device=x.device))
    return x.contiguous()


def _shown(size: int, low: int, high: int, mode: str) -> list[int]:
    """Which element each place of a padded axis shows."""
    places = range(-low, size + high)
    if mode == "circular":
        return [p % size for p in places]
    if mode == "replicate":
        return [min(max(p, 0), size - 1) for p in places]
    return [-p if p < 0 else 2 * size - 2 - p if p >= size else p for p in places]


def torch_fold(torch: Any, shape: Sequence[int], dout: Any, pads: Pads, mode: str) -> Any:
    """The gradient of :func:`torch_pad`."""
    if mode == "constant":
        for axis, (low, _) in enumerate(pads):
            dout = dout.narrow(axis, low, shape[axis])
        return dout.contiguous()
    wide = dout.double()
    for axis in range(len(pads) - 1, -1, -1):
        low, high = pads[axis]
        if low or high:
            sizes = list(wide.shape)
            sizes[axis] = shape[axis]
            index = torch.tensor(_shown(shape[axis], low, high, mode), device=dout.device)
            wide = torch.zeros(sizes, dtype=wide.dtype, device=dout.device).index_add(axis, index, wide)
    return wide.to(dout.dtype)
