"""References given as ready calls, so that a step costs no Python frame; low-precision floats are computed in float32."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.evaluate import allocate, metas_of
from tstatic.ir.types import Meta, float32

Calls = list[tuple[Callable[..., Any], tuple[Any, ...]]]
"""Functions with their arguments, to be called in order."""


class Bound:
    """A ``ref`` made from a function that answers with calls; low-precision arrays get float32 buffers around them.

    Args:
        inputs: Number of input slots.
        calls: ``(inputs, outputs, scratch, **attributes) -> Calls``; names the attributes that it uses. It runs once per
            plan, so nothing in it may depend on values. If it names ``given``, it gets there the metas of the inputs as
            they were before they were widened.
        needs: ``(input metas, output metas, **attributes) -> metas`` of the scratch buffers that ``calls`` gets.
        unread: Positions of inputs of which only the shape is used.
        widen: Whether low-precision arrays are computed in float32; ``False`` where values are only moved.
    """

    def __init__(
        self,
        inputs: int,
        calls: Callable[..., Calls],
        needs: Callable[..., Sequence[Meta]] | None = None,
        unread: Sequence[int] = (),
        widen: bool = True,
    ) -> None:
        self.inputs = inputs
        self.calls = calls
        self.needs = needs
        self.unread = frozenset(unread)
        self.widen = widen
        self._call_attrs = _keywords(calls)
        self._need_attrs = _keywords(needs) if needs is not None else ()
        # ``OpDef.pick`` looks here for the names that are used.
        self.function = self.__call__

    def scratch(self, *metas: Any, **attrs: Any) -> tuple[Meta, ...]:
        """Metas of all buffers: a float32 twin of each low-precision array, then what ``needs`` asks for."""
        wide = [m if m is None or not self.widen else m.with_dtype(m.dtype.compute) for m in metas]
        twins = [
            w
            for i, (m, w) in enumerate(zip(metas, wide, strict=True))
            if m is not w and m != w and i not in self.unread
        ]
        if self.needs is None:
            return tuple(twins)
        used = {n: attrs[n] for n in self._need_attrs}
        return (*twins, *self.needs(wide[: self.inputs], wide[self.inputs :], **used))

    def bind(
        self, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any], scratch: Sequence[Any] | None = None
    ) -> Calls:
        """Returns the calls for these arrays; ``scratch`` is made here when the caller has none."""
        if scratch is None:
            scratch = allocate(self.scratch(*metas_of(ins), *metas_of(outs), **attrs))
        arrays = [*ins, *outs]
        before: Calls = []
        after: Calls = []
        taken = 0
        for i, array in enumerate(arrays if self.widen else ()):
            if array is None or array.dtype.itemsize != 2 or array.dtype.kind not in "fV" or i in self.unread:
                continue
            twin = scratch[taken]
            taken += 1
            arrays[i] = twin
            if i < self.inputs:
                before.append((np.copyto, (twin, array, "unsafe")))
            else:
                after.append((np.copyto, (array, twin, "unsafe")))
        used = {n: metas_of(ins) if n == "given" else attrs[n] for n in self._call_attrs}
        calls = self.calls(arrays[: self.inputs], arrays[self.inputs :], scratch[taken:], **used)
        return [*before, *calls, *after]

    def __call__(self, *arrays: Any, scratch: Sequence[Any] | None = None, **attrs: Any) -> None:
        for function, args in self.bind(arrays[: self.inputs], arrays[self.inputs :], attrs, scratch):
            function(*args)


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)


def float_scratch(like: Meta, shape: Sequence[int]) -> Meta:
    """A buffer of the type that ``like`` is computed in."""
    return Meta(tuple(shape), like.dtype if like.dtype.is_float else float32)


def in_place(array: Any, shape: Sequence[int]) -> Any:
    """A reshaped view, or ``None`` when the strides would need a copy."""
    try:
        return array.reshape(tuple(shape), copy=False)
    except ValueError:
        return None
