"""Moves variables of a scope into flat buffers, so that one kernel updates many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tstatic.devices import Device
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan.flat_buffers import PAD
from tstatic.runtime.scope import Flat, Scope, ScopeVar


def move_values(scope: Scope, variables: Iterable[str], device: Device) -> None:
    """Moves values that are not on the device there: those of other devices, and those that the user set."""
    for var in variables:
        array = scope.array(var)
        if array is not None and not device.holds(array):
            scope._move(var, device)


def flatten(scope: Scope, wanted: Mapping[str, Sequence[str]], device: Device) -> int:
    """Moves variables that are not in a flat buffer yet into new buffers, one per stream and dtype.

    Values, shapes and dtypes stay; bound plans bind anew. Variables without a value, and empty ones, are not moved.

    Args:
        scope: The scope that has the variables, or whose parents have them.
        wanted: Stream -> variables in order.
        device: The device that holds the variables, and will hold the buffers.

    Returns:
        How many variables were moved.
    """
    touched: dict[int, Scope] = {}
    moved = 0
    for stream, names in wanted.items():
        loose: dict[str, list[ScopeVar]] = {}
        # Once each: a variable that two ops share must not get two places.
        for name in dict.fromkeys(names):
            var = scope.find_var(name)
            array = None if var is None else var.get_tensor().array
            if var is not None and array is not None and array.size and var.get_tensor().flat is None:
                loose.setdefault(dtype_of(array.dtype).name, []).append(var)
        for group in loose.values():
            touched.update((id(v.scope), v.scope) for v in group)
            # Before the move, too: if an exception interrupts it, no plan may stay bound to a variable that has moved.
            for owner in touched.values():
                owner._layout_changed()
            _move(stream, group, device)
            moved += len(group)
    for owner in touched.values():
        owner._layout_changed()
    return moved


def _move(stream: str, group: Sequence[ScopeVar], device: Device) -> None:
    offsets: list[int] = []
    total = 0
    dtype = None
    for var in group:
        array = var.get_tensor().array
        assert array is not None
        offsets.append(total)
        # Kernels of updates take whole blocks, which reach into the padding but never into the next variable.
        total += -(-array.size // PAD) * PAD
        dtype = array.dtype
    assert dtype is not None
    memory = device.allocate(total * dtype.itemsize, purpose="parameters and moments")
    memory.touch()
    flat = Flat(
        stream, device.view(memory, 0, Meta((total,), dtype_of(dtype))), tuple(v.name for v in group), tuple(offsets)
    )
    for var, offset in zip(group, offsets, strict=True):
        var.get_tensor()._move_to(flat, offset)
