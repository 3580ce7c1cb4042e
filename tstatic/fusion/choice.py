"""Chooses what a kernel launches on a chip: the one place that decides between the candidates that a kernel has there."""

from __future__ import annotations

from tstatic.devices.base import Device
from tstatic.fusion.codegen.kernel import Kernel, Launches
from tstatic.target import Target


def choose(kernel: Kernel, target: Target, device: Device | None = None) -> Launches:
    """Returns what a kernel launches.

    Nothing is timed yet: it is the first of the candidates, in the order in which a kernel's own rules rank them. A device that
    compares ways of launching (:func:`tstatic.devices.planned.planned_device`) names another one.

    Args:
        kernel: The kernel.
        target: The chip.
        device: The device that launches it; ``None``: none does.
    """
    if device is not None and device.way:
        ways = kernel.ways(target)
        if device.way < len(ways):
            return ways[device.way]
    return next(kernel.candidates(target))


def explained(kernel: Kernel, target: Target) -> str:
    """Returns which of its candidates a kernel launches, and why."""
    count = sum(1 for _ in kernel.candidates(target))
    return (
        f"launched as the first of {count} candidates: nothing was timed" if count > 1 else "launched in its only way"
    )


__all__ = ["choose", "explained"]
