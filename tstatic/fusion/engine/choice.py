"""Chooses what a kernel launches on a chip: the one place that decides between the candidates that a kernel has there."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.devices.base import Device
from tstatic.devices.refusals import NOT_COMPILED
from tstatic.errors import NoRoomError
from tstatic.fusion.codegen.kernel import Kernel, Launch, Launches
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.target import Target


def choose(kernel: Kernel, target: Target, device: Device | None = None) -> Launches:
    """Returns what a kernel launches.

    Nothing is timed yet: it is the first of the candidates that the chip has room for, in the order in which a kernel's own rules
    rank them. A device that compares ways of launching (:func:`tstatic.devices.planned.planned_device`) names another one.

    Args:
        kernel: The kernel.
        target: The chip.
        device: The device that launches it; ``None``: none does.

    Raises:
        NoRoomError: If none fits. Strict numerics know one way alone, whose bits are those of every chip.
    """
    if device is not None and device.way:
        ways = kernel.ways(target)
        if device.way < len(ways):
            return ways[device.way]
    reasons = []
    for one in kernel.candidates(target):
        reason = _refused(kernel, one, device)
        if not reason:
            return one
        reasons.append(reason)
        # Another way to launch would have other bits.
        if strict_numerics():
            break
    tried = "its only way" if len(reasons) == 1 else f"each of its {len(reasons)} ways"
    raise NoRoomError(
        f"{target.name} {_lacks(reasons)} the kernel {kernel.name}",
        expected=f"a chip on which {tried} to launch it fits, and a compiler that compiles it",
        received="; ".join(dict.fromkeys(reasons)),
        fix=NO_ROOM,
    )


NO_ROOM = "switch the fusion that made the kernel off (explain() says which one it is), or ask for smaller blocks"


def _lacks(reasons: Sequence[str]) -> str:
    return "has no way to run" if any(one.startswith(NOT_COMPILED) for one in reasons) else "has no room for"


def _refused(kernel: Kernel, way: Launches, device: Device | None) -> str:
    if device is None:
        return ""
    return device.refusals.of(kernel.name, [one.call for one in way.launches if isinstance(one, Launch)])


def explained(kernel: Kernel, target: Target, device: Device | None = None) -> str:
    """Returns which of its candidates a kernel launches, and why."""
    candidates = [*kernel.candidates(target)]
    refused = [reason for one in candidates if (reason := _refused(kernel, one, device))]
    if refused and len(refused) < len(candidates):
        why = "; ".join(dict.fromkeys(refused))
        return f"launched in another of its {len(candidates)} ways, as the chip {_lacks(refused)} the first: {why}"
    if len(candidates) > 1:
        return f"launched as the first of {len(candidates)} candidates: nothing was timed"
    return "launched in its only way"


__all__ = ["NO_ROOM", "choose", "explained"]
