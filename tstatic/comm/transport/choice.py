"""Chooses what moves values between places and between processes, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tstatic import flags
from tstatic.comm.transport import ProcessTransport, Transport, nccl
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.comm.transport.host import HostTransport
from tstatic.comm.transport.nccl_transport import NcclPlaces, NcclProcesses
from tstatic.devices import Device
from tstatic.devices.cuda import CudaDevice
from tstatic.errors import MissingPackageError, PlaceError
from tstatic.logs import get_logger

Asked = Literal["auto", "nccl", "gloo", "host"]
"""What ``FLAGS_collectives`` may be."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What moves values.

    Attributes:
        name: ``device``: the devices add each other's arrays in their streams; ``nccl``; ``gloo``; ``host``: the host adds.
        why: The reason, as the end of a sentence.
    """

    name: Literal["device", "nccl", "gloo", "host"]
    why: str

    def __str__(self) -> str:
        return f"{self.name}, since {self.why}"


def asked() -> Asked:
    """Returns what the flag says."""
    found: Asked = flags.flag("FLAGS_collectives")
    return found


def between_places(devices: Sequence[Device], wanted: Asked) -> Choice:
    """Chooses for the places of one process.

    Args:
        devices: The device of each place.
        wanted: What the flag says.

    Raises:
        PlaceError: If NCCL is asked for, and cannot connect these places.
        MissingPackageError: If it is asked for, and not installed.
    """
    first = devices[0]
    if not first.deferred:
        _refuse(wanted, "the places share the host's memory", first)
        return Choice("host", "the places share the host's memory")
    if wanted == "host":
        return Choice("host", "FLAGS_collectives=host")
    # NCCL takes each GPU once in a communicator.
    apart = len(set(devices)) == len(devices) > 1 and all(isinstance(one, CudaDevice) for one in devices)
    if not apart:
        reason = "the places are one device" if len(devices) > 1 else "there is one place"
        if len(devices) > 1:
            _refuse(wanted, reason, first)
        return Choice("device", reason)
    if wanted == "gloo":
        return Choice("device", "FLAGS_collectives=gloo, which connects processes only")
    missing = _missing(wanted)
    if missing:
        return Choice("device", f"NCCL cannot be loaded: {missing}")
    return Choice("nccl", "each place is a GPU of its own" if wanted == "auto" else "FLAGS_collectives=nccl")


def between_processes(devices: Sequence[Device], wanted: Asked, whose: Sequence[Sequence[str]]) -> Choice:
    """Chooses for several processes; all of them choose the same.

    Args:
        devices: The device of each place of this process.
        wanted: What the flag says.
        whose: For each process, what identifies the GPUs that it uses; empty for a process that cannot use NCCL.

    Raises:
        PlaceError: If NCCL is asked for, and cannot connect these processes.
    """
    if wanted in ("gloo", "host"):
        return Choice("gloo", f"FLAGS_collectives={wanted}")
    # All that decides is the same on all processes, so that all choose the same: their own devices are of one kind.
    first = devices[0]
    gpus = [gpu for of_process in whose for gpu in of_process]
    if not isinstance(first, CudaDevice):
        reason = f"the places are not GPUs, but of the device '{first.name}'"
    elif len(devices) > 1:
        reason = "a process has several places, and NCCL connects processes of one GPU each"
    elif not all(whose):
        without = [rank for rank, of_process in enumerate(whose) if not of_process]
        reason = f"NCCL cannot be loaded on rank {without[0]}"
    elif len(set(gpus)) < len(gpus):
        twice = next(gpu for gpu in gpus if gpus.count(gpu) > 1)
        reason = f"two processes use one GPU ({twice})"
    else:
        return Choice("nccl", "each process has a GPU of its own" if wanted == "auto" else "FLAGS_collectives=nccl")
    _refuse(wanted, reason, first)
    return Choice("gloo", reason)


def identity(devices: Sequence[Device], host: str) -> list[str]:
    """Returns what identifies the GPUs of this process to the others; empty if NCCL cannot use them.

    Args:
        devices: The device of each place.
        host: Name of this machine.
    """
    if not all(isinstance(one, CudaDevice) for one in devices) or _missing("auto"):
        return []
    return [f"{host} {one.identity}" for one in devices if isinstance(one, CudaDevice)]


def for_places(devices: Sequence[Device], choice: Choice) -> Transport:
    """Returns what moves values between the places of a process."""
    if choice.name == "nccl":
        return NcclPlaces([one for one in devices if isinstance(one, CudaDevice)], nccl.load())
    return HostTransport(len(devices), through_host=choice.name == "host" and devices[0].deferred)


def for_processes(devices: Sequence[Device], choice: Choice, outer: Any) -> ProcessTransport:
    """Returns what moves values between processes.

    Args:
        devices: The device of each place of this process.
        choice: What was chosen.
        outer: The processes.
    """
    if choice.name == "nccl":
        (device,) = devices
        assert isinstance(device, CudaDevice)
        return NcclProcesses(outer, device, nccl.load())
    return GlooTransport(outer)


def tell(what: str, choice: Choice) -> None:
    """Writes to the ``dist`` log what was chosen."""
    get_logger("dist").info("values move %s by %s", what, choice)


def _missing(wanted: Asked) -> str:
    """Returns why NCCL cannot be loaded; empty if it can.

    Raises:
        MissingPackageError: If it is asked for.
    """
    try:
        nccl.load()
    except MissingPackageError as error:
        if wanted == "nccl":
            raise
        return str(error.received or error.what)
    return ""


def _refuse(wanted: Asked, reason: str, device: Device) -> None:
    if wanted == "nccl":
        raise PlaceError(
            f"NCCL cannot connect these places: {reason}",
            expected="a GPU of its own for each place, and one place in each of several processes",
            received=f"the device '{device.name}'",
            fix="set FLAGS_collectives=auto, which takes NCCL where it can be",
        )


__all__ = [
    "Asked",
    "Choice",
    "asked",
    "between_places",
    "between_processes",
    "for_places",
    "for_processes",
    "identity",
    "tell",
]
