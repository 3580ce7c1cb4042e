"""References given as ready calls, so that a step costs no Python frame; low-precision floats are computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.ir.evaluate import metas_of
from tstatic.ir.ref import Attrs, Calls, Metas, Ref, Slots, keywords
from tstatic.ir.types import Meta, float32

Number = bool | int | float


class CallRef(Ref):
    """A reference made from a function that returns calls; low-precision arrays get float32 buffers around them.

    Args:
        calls: ``(inputs, outputs, scratch, *, attributes) -> Calls``; names the attributes that it uses. It runs once per
            plan, so nothing in it may depend on values. If it names ``given``, it gets there the metas of the inputs as
            they were before they were widened.
        scratch_metas: ``(input metas, output metas, *, attributes) -> metas`` of the scratch buffers that ``calls`` gets.
        unread: Positions of inputs of which only the shape is used.
        widen: Whether low-precision arrays are computed in float32; ``False`` where values are only moved.
        attrs: The attributes that both functions use, where their signatures do not say them.
        fresh: For results whose sizes depend on values: ``(*inputs, *outputs, *, attributes) -> one result per output slot``.
        fresh_attrs: The attributes that ``fresh`` uses, where its signature does not say them.
        constant: ``(attributes) -> number`` that every element of the result is; it uses ``attrs``.
    """

    def __init__(
        self,
        calls: Callable[..., Calls],
        scratch_metas: Callable[..., Sequence[Meta]] | None = None,
        unread: Sequence[int] = (),
        widen: bool = True,
        attrs: Sequence[str] | None = None,
        fresh: Callable[..., Sequence[Any]] | None = None,
        fresh_attrs: Sequence[str] | None = None,
        constant: Callable[..., Number] | None = None,
    ) -> None:
        self.calls = calls
        self.scratch_metas = scratch_metas
        self.unread = frozenset(unread)
        self.widen = widen
        self.fresh = fresh
        self.number = constant
        self._call_attrs = _names(calls, attrs)
        self._scratch_attrs = _names(scratch_metas, attrs)
        self._fresh_attrs = _names(fresh, fresh_attrs)
        # `given` is the arrays' metadata, not an attribute.
        self.attrs: frozenset[str] = frozenset((*self._call_attrs, *self._scratch_attrs, *self._fresh_attrs)) - {
            "given"
        }
        self.functions = tuple(f for f in (calls, scratch_metas, fresh, constant) if f is not None)

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        """Metas of all buffers: a float32 buffer for each low-precision array, then what ``scratch_metas`` asks for."""
        wide = [*ins, *outs]
        buffers = []
        for i, meta in enumerate(wide if self.widen else ()):
            if meta is not None and (compute := meta.dtype.compute) is not meta.dtype:
                wide[i] = meta.with_dtype(compute)
                # What is not read needs no copy.
                if i not in self.unread:
                    buffers.append(wide[i])
        if self.scratch_metas is None:
            return tuple(buffers)
        asked = {n: attrs[n] for n in self._scratch_attrs}
        return (*buffers, *self.scratch_metas(wide[: len(ins)], wide[len(ins) :], **asked))

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        count = len(ins)
        arrays = [*ins, *outs]
        before: Calls = []
        after: Calls = []
        # In the order of ``scratch``: first the buffers of low-precision arrays, then those that ``calls`` asked for.
        taken = 0
        for i, array in enumerate(arrays if self.widen else ()):
            if array is None or array.dtype.itemsize != 2 or array.dtype.kind not in "fV" or i in self.unread:
                continue
            buffer = scratch[taken]
            taken += 1
            arrays[i] = buffer
            if i < count:
                before.append((np.copyto, (buffer, array, "unsafe")))
            else:
                after.append((np.copyto, (array, buffer, "unsafe")))
        used = {n: metas_of(ins) if n == "given" else attrs[n] for n in self._call_attrs}
        return [*before, *self.calls(arrays[:count], arrays[count:], scratch[taken:], **used), *after]

    def compute(self, ins: Slots, outs: Slots, attrs: Attrs, reserved: Attrs) -> list[Any]:
        if self.fresh is None:
            return super().compute(ins, outs, attrs, reserved)
        return list(self.fresh(*ins, *outs, **{n: attrs[n] for n in self._fresh_attrs}))

    def constant(self, attrs: Attrs) -> Number | None:
        return None if self.number is None else self.number(**{n: attrs[n] for n in self._call_attrs})


def _names(function: Callable[..., Any] | None, given: Sequence[str] | None) -> tuple[str, ...]:
    if function is None:
        return ()
    return keywords(function) if given is None else tuple(given)


def copies(
    calls: Callable[..., Calls],
    fresh: Callable[..., Sequence[Any]] | None = None,
    attrs: Sequence[str] | None = None,
) -> CallRef:
    """Makes a reference that only moves values, mostly by ``np.copyto`` between views.

    Args:
        calls: ``(*inputs, *outputs, *, attributes) -> Calls``.
        fresh: As in :class:`CallRef`.
        attrs: The attributes that both use, where their signatures do not say them.
    """

    def bound(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], **values: Any) -> Calls:
        return calls(*ins, *outs, **values)

    ref = CallRef(bound, widen=False, attrs=keywords(calls) if attrs is None else attrs, fresh=fresh, fresh_attrs=attrs)
    ref.functions = (calls,) if fresh is None else (calls, fresh)
    return ref


def float_scratch(like: Meta, shape: Sequence[int]) -> Meta:
    """Returns a buffer of the type that ``like`` is computed in."""
    return Meta(tuple(shape), like.dtype if like.dtype.is_inexact else float32)
