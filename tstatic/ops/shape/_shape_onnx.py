"""Forms in ONNX of the ops that change shapes, join, cut, repeat, pad and make constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import UNKNOWN, float64, int64
from tstatic.ir.types import normalize_axis as _axis

Pads = Sequence[tuple[int, int]]
# ONNX cuts the ends of Slice to the axis, so the largest int64 is the end of every axis.
END = 2**63 - 1


# --------------------------------------------------------------------------------------------------------- given sizes
def given_sizes(g: Graph, given: Value | None, each: list[Value] | None) -> Value | None:
    """Returns sizes that are Variables, one vector or a list of numbers, as a vector of int64; ``None`` if there are none."""
    if each:
        return g.join([g("Reshape", g.cast(v, int64), g.ints([1])) for v in each])
    return None if given is None else g.cast(given, int64)


def reshape(g: Graph, x: Value, given: Value | None, each: list[Value] | None, *, shape: Sequence[int]) -> Value:
    """Reshapes to sizes known now, or when the model runs; ONNX's 0 and -1 mean what Paddle's do."""
    sizes = given_sizes(g, given, each)
    if sizes is not None:
        return g("Reshape", x, sizes)
    target = g.outs[0].shape
    # An input with an axis of 0 elements needs its target in numbers: there a 0 is a size, not "as in the input".
    if UNKNOWN not in target or 0 in x.shape:
        return g.reshape(x, target)
    return g("Reshape", x, g.ints(shape))


def same_elements(g: Graph, x: Value) -> Value:
    """Reshapes to the result's sizes, of which at most one is unknown or all unknown ones stay where they are."""
    return g.reshape(x, g.outs[0].shape)


def flatten(g: Graph, x: Value, *, axis: int) -> Value:
    target = g.outs[0].shape
    # Flatten needs no sizes, so it serves where they are unknown.
    return g("Flatten", x, axis=axis) if UNKNOWN in target else g.reshape(x, target)


def flatten_range(g: Graph, x: Value, *, start_axis: int, stop_axis: int) -> Value:
    target = g.outs[0].shape
    if target.count(UNKNOWN) <= 1:
        return g.reshape(x, target)
    start, stop = _axis(start_axis, x.rank), _axis(stop_axis, x.rank)
    return g("Reshape", x, g.join([g.sizes(x, 0, start), g.ints([-1]), g.sizes(x, stop + 1, x.rank)]))


# ------------------------------------------------------------------------------------------------------- join and cut
def stack(g: Graph, xs: Sequence[Value], *, axis: int) -> Value:
    axis = _axis(axis, g.outs[0].rank)
    return g("Concat", *(g.unsqueeze(x, [axis]) for x in xs), axis=axis)


def split(g: Graph, x: Value, *, axis: int) -> tuple[list[Value]]:
    axis = _axis(axis, x.rank)
    sizes = [m.shape[axis] for m in g.outs[0]]
    if UNKNOWN not in sizes:
        return (g("Split", x, g.ints(sizes), axis=axis, count=len(sizes)),)
    if x.shape[axis] == UNKNOWN and set(sizes) == {UNKNOWN}:
        return (g("Split", x, axis=axis, num_outputs=len(sizes), count=len(sizes)),)
    # num_outputs divides only into equal parts, so anything else needs the sizes.
    raise g.unknown(x, "the size of what is split")


def apart(g: Graph, x: Value, *, axis: int) -> tuple[list[Value]]:
    axis, count = _axis(axis, x.rank), len(g.outs[0])
    pieces = g("Split", x, g.ints([1] * count), axis=axis, count=count)
    return ([g.squeeze(p, [axis]) for p in pieces],)


def flip(g: Graph, x: Value, *, axis: Sequence[int]) -> Value:
    for one in axis:
        # A slice with step -1: ONNX has no operator that turns an axis round.
        x = g.slice(x, one, -1, None, -1)
    return x


def roll(g: Graph, x: Value, *, shifts: Sequence[int], axis: Sequence[int]) -> Value:
    if not axis:
        if not x.shape:
            return x
        # Without axes Paddle rolls in the order of memory.
        flat = g.reshape(x, (-1 if UNKNOWN in x.shape else int(np.prod(x.shape)),))
        rolled = roll(g, flat, shifts=shifts, axis=(0,))
        return g("Reshape", rolled, g.sizes(x))
    sizes = x.shape
    for shift, one in zip(shifts, axis, strict=True):
        size = sizes[one]
        if size == UNKNOWN:
            raise g.unknown(x, "the size of the axis that is rolled")
        # A roll forward by `shift` begins with the element that many before the end.
        at = -shift % size if size else 0
        if at:
            x = g("Concat", g.slice(x, one, at), g.slice(x, one, 0, at), axis=one)
    return x


def taken(
    g: Graph, x: Value, axes: Sequence[int], bounds: Sequence[Value | Sequence[int]], gone: Sequence[int]
) -> Value:
    """Takes runs along axes; bounds are starts, ends and steps, each numbers or a vector."""
    if axes:
        starts, ends, steps = (b if isinstance(b, Value) else g.ints(b) for b in bounds)
        x = g("Slice", x, starts, ends, g.ints(axes), steps)
    return g.squeeze(x, gone)


def slice_form(
    g: Graph, x: Value, starts_tensor: Value | None, ends_tensor: Value | None, starts_list: Any, ends_list: Any,
    *, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], decrease_axis: Sequence[int],
) -> Value:  # fmt: skip
    low, high = given_sizes(g, starts_tensor, starts_list), given_sizes(g, ends_tensor, ends_list)
    bounds = (low or starts, high or ends, [1] * len(axes))
    return taken(g, x, axes, bounds, decrease_axis)


def strided_slice(
    g: Graph, x: Value, starts_tensor: Any, ends_tensor: Any, strides_tensor: Any, starts_list: Any, ends_list: Any,
    strides_list: Any, *, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], strides: Sequence[int],
    decrease_axis: Sequence[int],
) -> Value:  # fmt: skip
    low, high = given_sizes(g, starts_tensor, starts_list), given_sizes(g, ends_tensor, ends_list)
    steps = given_sizes(g, strides_tensor, strides_list)
    # Backwards, an end of -1 lies before the first entry.
    known = [-END if s < 0 and e == -1 else e for s, e in zip(strides, ends, strict=False)] if high is None else ()
    return taken(g, x, axes, (low or starts, high or known, steps or strides), decrease_axis)


def crop(
    g: Graph, x: Value, sizes: Value | None, each: Any, offsets_tensor: Value | None, each_offset: Any,
    *, shape: Sequence[int], offsets: Sequence[int],
) -> Value:  # fmt: skip
    start = given_sizes(g, offsets_tensor, each_offset)
    wanted = given_sizes(g, sizes, each)
    axes = list(range(x.rank))
    if start is None and wanted is None:
        low = list(offsets) or [0] * x.rank
        # -1 is "up to the end" in Paddle's crop.
        ends = [END if s == -1 else o + s for o, s in zip(low, shape, strict=True)]
        return taken(g, x, axes, (low, ends, [1] * x.rank), ())
    low_v = start or g.ints(list(offsets) or [0] * x.rank)
    if wanted is None and -1 in shape:
        raise g.refuse("for a size of -1 with offsets that are Variables")
    size_v = wanted or g.ints(shape)
    return taken(g, x, axes, (low_v, g.add(low_v, size_v), [1] * x.rank), ())


# --------------------------------------------------------------------------------------------------------------- repeat
def expand(g: Graph, x: Value, given: Value | None, each: list[Value] | None, *, shape: Sequence[int]) -> Value:
    sizes = given_sizes(g, given, each)
    if sizes is not None:
        # Paddle's -1 keeps a size; in ONNX's Expand a 1 does.
        return g("Expand", x, g.where(g.equal(sizes, -1), g.ints([1]), sizes))
    # As above: a 1 keeps the size of the axis.
    return g("Expand", x, g.ints(1 if s == -1 else s for s in shape))


def expand_as(g: Graph, x: Value, y: Value | None, *, target_shape: Sequence[int]) -> Value:
    return g("Expand", x, g.ints(target_shape) if y is None else g.sizes(y))


def broadcast(g: Graph, xs: Sequence[Value]) -> tuple[list[Value]]:
    sizes = g.outs[0][0].shape
    if UNKNOWN in sizes:
        raise g.unknown(xs[0], "the sizes")
    return ([g("Expand", x, g.ints(sizes)) for x in xs],)


def tile(g: Graph, x: Value, given: Value | None, each: list[Value] | None, times: Sequence[int]) -> Value:
    counts = given_sizes(g, given, each)
    if counts is not None:
        return g("Tile", x, counts)
    more = len(times) - x.rank
    # ONNX wants a count for each axis; the shorter side gets ones in front.
    x = g.unsqueeze(x, range(max(more, 0)))
    return g("Tile", x, g.ints([1] * max(-more, 0) + list(times)))


def tile_as(g: Graph, x: Value, y: Value) -> Value:
    own, wanted = g.known(x), g.known(y)
    return g("Tile", x, g.ints(w // o if o else 1 for w, o in zip(wanted, own, strict=True)))


def repeat(g: Graph, x: Value, counts: Value | None, *, Repeats: int, dim: int) -> Value:
    if counts is not None:
        raise g.refuse("for counts that are Variables")
    axis = _axis(dim, x.rank)
    sizes = [1] * (x.rank + 1)
    sizes[axis + 1] = Repeats
    wide = g("Expand", g.unsqueeze(x, [axis + 1]), g.ints(sizes))
    target = g.outs[0].shape
    if UNKNOWN not in target:
        return g("Reshape", wide, g.ints(target), allowzero=1)
    return g("Reshape", wide, g.join([g.sizes(x, 0, axis), g.ints([target[axis]]), g.sizes(x, axis + 1, x.rank)]))


# ------------------------------------------------------------------------------------------------------------- constants
def embedded(g: Graph, x: Value, place: Any, fill: float = 0) -> Value:
    """Puts elements at places of a larger value, which a view of it tells: ``(array) -> view of x's shape``."""
    places = np.full(g.outs[0].shape, -1, np.int64)
    g.known(x)
    place(places)[...] = np.arange(int(np.prod(x.shape))).reshape(x.shape)
    return moved(g, x, lambda own: places, fill)


def full(g: Graph, value: Any) -> Value:
    """Makes one number everywhere, in the result's sizes: a constant where it is small, so that sizes may be read from it."""
    meta = g.outs[0]
    # 16 covers shapes and bounds, whose values an exporter must know; a large constant would only make the file longer.
    if meta.numel <= 16:
        return g.const(np.full(meta.shape, value).astype(meta.dtype.np))
    return g.full(g.ints(meta.shape), np.asarray(value).astype(meta.dtype.np), meta.dtype)


def full_like(g: Graph, x: Value, value: Any) -> Value:
    return g.full(g.sizes(x), np.asarray(value).astype(g.outs[0].dtype.np), g.outs[0].dtype)


def full_batch(g: Graph, x: Value, lod: Value | None, attrs: Mapping[str, Any]) -> Value:
    """Makes one number everywhere, in given sizes of which one is taken from a value."""
    if lod is not None:
        raise g.refuse("for sequences")
    at = attrs["input_dim_idx"]
    size = g.sizes(x, at, at + 1)
    parts = [size if i == attrs["output_dim_idx"] else g.ints([s]) for i, s in enumerate(attrs["shape"])]
    dtype = g.outs[0].dtype
    return g.full(g.join(parts), np.asarray(attrs["value"]).astype(dtype.np), dtype)


def full_given(g: Graph, given: Value | None, each: list[Value] | None, value: Any) -> Value:
    dtype = g.outs[0].dtype
    sizes = given_sizes(g, given, each)
    return g.full(sizes or g.ints(()), np.asarray(value).astype(dtype.np), dtype)


def evaluated(g: Graph, ref: Any, **attrs: Any) -> Value:
    """Makes a constant of what a reference without inputs gives."""
    meta = g.outs[0]
    out = np.empty(meta.shape, meta.dtype.np)
    ref(out, **attrs)
    return g.const(out)


def arange(g: Graph, start: Value, end: Value, step: Value) -> Value:
    # Counted in float64: of 16 bits the end is not a whole number of steps away.
    kind = int64 if start.dtype.is_integer else float64
    return g("Range", *(g.squeeze(g.cast(v, kind), range(v.rank)) for v in (start, end, step)))


def meshgrid(g: Graph, xs: Sequence[Value]) -> tuple[list[Value]]:
    sizes = g.join([g.sizes(x) if x.rank else g.ints([1]) for x in xs])
    made = []
    for i, x in enumerate(xs):
        # A number is a grid axis of size 1.
        size = x.shape[0] if x.rank else 1
        shaped = g.reshape(x, [size if j == i else 1 for j in range(len(xs))])
        made.append(g("Expand", shaped, sizes))
    return (made,)


def moved(g: Graph, x: Value, view: Any, fill: float | None = None) -> Value:
    """Picks elements by their places, which a view of numbered elements tells.

    Args:
        g, x: The graph and the input, whose sizes must be known.
        view: ``(array of places) -> array of places``; -1 where nothing stands.
        fill: What stands there.
    """
    sizes = g.known(x)
    count = int(np.prod(sizes))
    places = np.asarray(view(np.arange(count, dtype=np.int64).reshape(sizes)))
    flat = g.reshape(x, (count,))
    if fill is not None:
        # The fill is element `count` of the flattened value: places without an element gather that one.
        flat = g("Concat", flat, g.const(np.full(1, fill).astype(x.dtype.np)), axis=0)
        places = np.where(places < 0, count, places)
    return g("Gather", flat, g.const(places.astype(np.int64)), axis=0)


# ------------------------------------------------------------------------------------------------------------------ pad
def pad(g: Graph, x: Value, pads: Pads, mode: str = "constant", value: float = 0.0) -> Value:
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in names:
        raise g.refuse(f"for mode '{mode}'")
    if not pads:
        return x
    amounts = g.ints([low for low, _ in pads] + [high for _, high in pads])
    filler = g.const(np.asarray(value).astype(x.dtype.np)) if mode == "constant" else None
    return g("Pad", x, amounts, filler, mode=names[mode])


def permuted(g: Graph, x: Value, plan: Any, last: bool) -> Value:
    """Does the moves of a :class:`Permutation` on an image; ``last``: its channels stand last."""
    source = g.transpose(x, (0, 3, 1, 2)) if last else x
    wide = g.transpose(g.reshape(source, plan.parts), plan.axes)
    out = g.reshape(wide, plan.out)
    return g.transpose(out, (0, 2, 3, 1)) if last else out
