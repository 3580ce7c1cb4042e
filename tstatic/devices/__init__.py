"""Backends: one file each, and one line each in ``DEVICES``.

* ``base``  the interface of a device: memory, copies, streams and events, and how a step becomes calls
* ``step``  steps that are bound, as a device schedules them, and the calls of a region
* ``immediate``, ``queued``  schedules: chains where calls end with their work, streams and graphs where it runs late
* ``graphs``  what is captured and launched as one
* ``skeleton``  the least that a device with memory of its own consists of, to be copied
* ``region_log``  how the ops of a region are timed
* ``cpu``  runs every op definition's ``ref`` on numpy arrays: threads, tiles, memory, BLAS
* ``interpret``, ``planned``  the CPU, with generated kernels in Triton's interpreter, or launched as a chip that is not here does
* ``torch``  any device of torch: ops as their torch forms
* ``cuda``  NVIDIA GPUs: torch's device with streams, events, graphs and pinned memory
* ``fake``  memory that the host cannot access, and work that runs late and out of order (for tests)
* ``null``  runs nothing, to measure overhead
* ``seen_arrays``  a device's arrays as references on the host see them
* ``refusals``  the launches for which a chip has no room
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

from tstatic.devices import cuda, fake, interpret, null
from tstatic.devices.base import Array, Device, DeviceArray
from tstatic.devices.cpu import blas
from tstatic.devices.cpu.device import DEVICE as HOST
from tstatic.devices.fake import with_torch as fake_torch
from tstatic.devices.step import HostArray
from tstatic.devices.torch import device as torch_device
from tstatic.errors import DeviceError, UnsupportedError
from tstatic.places import CUDAPlace, Place, resolve

DEVICES: dict[str, Device] = {
    "cpu": HOST,
    "interpret": interpret.DEVICE,
    "null": null.DEVICE,
    "fake": fake.DEVICE,
    "fake+torch": fake_torch.DEVICE,
    "torch": torch_device.DEVICE,
    "torch+interpret": torch_device.WITH_KERNELS,
}

_VARIABLE = "TSTATIC_CPU_BACKEND"
_chosen: str | None = None
_stand_in: ContextVar[Device | None] = ContextVar("stand-in", default=None)
# Beside `_chosen`, which tests switch: only the first choice is compared with the environment.
_first: str | None = None


def _wanted() -> str:
    name = os.environ.get(_VARIABLE, "") or "numpy"
    return "cpu" if name == "numpy" else name


def cpu_device() -> Device:
    """Returns the device of CPU places (``TSTATIC_CPU_BACKEND``); chosen once, at the first use.

    Raises:
        DeviceError: If the variable does not name a device.
    """
    global _chosen, _first
    if (found := _stand_in.get()) is not None:
        return found
    if _chosen is None:
        wanted = _wanted()
        if wanted not in DEVICES:
            raise DeviceError(
                f"{_VARIABLE} names no backend: {wanted!r}",
                expected="'numpy' or one of " + ", ".join(map(repr, DEVICES)),
                received=repr(wanted),
                fix=f"unset it, or export {_VARIABLE}=interpret",
            )
        # Before the choice is noted: if it raises, the next use tries again instead of running on a device that is not prepared.
        DEVICES[wanted].begin()
        # Here, and not only in threads that run programs: where a library has one number for the process, all follow it.
        blas.hold()
        _chosen = _first = wanted
    return DEVICES[_chosen]


def check_backend() -> None:
    """Checks that the choice has not changed since the first use.

    Raises:
        DeviceError: If it has.
    """
    if _first is not None and (wanted := _wanted()) != _first:
        raise DeviceError(
            f"{_VARIABLE} changed after a CPU place was used",
            expected=f"{_first!r}, as it was at the first use",
            received=repr(wanted),
            fix="set it before the program starts; one process either interprets kernels or does not",
        )


@contextlib.contextmanager
def use(name: str) -> Iterator[Device]:
    """Runs CPU places on another device inside the block (for tests)."""
    global _chosen
    # First, so that there is a choice to come back to: `None` would read the environment anew, behind `check_backend`.
    cpu_device()
    before = _chosen
    device = DEVICES[name]
    device.begin()
    _chosen = name
    try:
        yield device
    finally:
        _chosen = before


@contextlib.contextmanager
def standing_in(device: Device) -> Iterator[None]:
    """Runs CPU places on another device inside the block, in this thread and in those that take its context variables along."""
    device.begin()
    token = _stand_in.set(device)
    try:
        yield
    finally:
        _stand_in.reset(token)


def of_place(place: Place) -> Device:
    """Returns the device that runs programs on a place.

    Raises:
        DeviceError: If this machine does not have the GPU, and ``FLAGS_cpu_fallback`` is off.
        UnsupportedError: If no device runs programs on such a place.
    """
    if place.kind != "cpu":
        # It may become a CPU place (FLAGS_cpu_fallback), so the kind is asked after it.
        place = resolve(place)
    if place.kind == "cpu":
        return cpu_device()
    if isinstance(place, CUDAPlace):
        return cuda.device(place.id)
    device = DEVICES.get(place.kind)
    if device is None:
        raise UnsupportedError(
            f"no device runs programs on {place}",
            expected="CPUPlace() or CUDAPlace(number)",
            received=repr(place),
            fix="use static.Executor(CPUPlace())",
        )
    return device


def owner_of(array: Array) -> Device:
    """Returns the device in whose memory an array is."""
    return array.owner if isinstance(array, DeviceArray) else HOST


def read(array: Array) -> HostArray:
    """Returns the values of an array of any device: the array itself if the host can read it, else a copy."""
    return array.owner.to_host(array) if isinstance(array, DeviceArray) else array


__all__ = [
    "DEVICES",
    "HOST",
    "Array",
    "Device",
    "HostArray",
    "check_backend",
    "cpu_device",
    "of_place",
    "owner_of",
    "read",
    "standing_in",
    "use",
]
