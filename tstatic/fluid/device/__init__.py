"""``paddle.device``: which devices there are, and which one is used when none is named.

* ``cuda``  what is known of the GPUs
"""

from __future__ import annotations

from typing import Any, NoReturn

from tstatic.aliases import public_of
from tstatic.errors import PlaceError
from tstatic.fluid.device import cuda
from tstatic.fluid.device.cuda import of_gpu
from tstatic.no_effect import no_effect
from tstatic.places import (
    cpu_count,
    device_count,
    get_device,
    is_compiled_with_cinn,
    is_compiled_with_cuda,
    is_compiled_with_custom_device,
    is_compiled_with_distribute,
    is_compiled_with_ipu,
    is_compiled_with_rocm,
    is_compiled_with_xpu,
    set_device,
)
from tstatic.unsupported import missing_in


def get_available_device() -> list[str]:
    """Returns the names of the devices of this machine that programs can run on.

    Example:
        >>> "cpu" in paddle.device.get_available_device()
        True
    """
    return ["cpu", *(f"gpu:{i}" for i in range(device_count() if is_compiled_with_cuda else 0))]


def get_all_device_type() -> list[str]:
    """Returns the kinds of those devices: ``cpu``, and ``gpu`` where there is one."""
    return list(dict.fromkeys(name.partition(":")[0] for name in get_available_device()))


def get_available_custom_device() -> list[str]:
    """Returns an empty list: there are no plug-in devices."""
    return []


def get_all_custom_device_type() -> list[str]:
    """Returns an empty list: there are no plug-in devices."""
    return []


def get_cudnn_version() -> None:
    """Returns ``None``: kernels do not come from cuDNN."""


class XPUPlace:
    """Refuses, as Paddle's build for CPUs does: there is no XPU to run on.

    Args:
        dev_id: Its number.

    Raises:
        PlaceError: Always.

    Example:
        >>> try:
        ...     place = paddle.device.XPUPlace(0)
        ... except ValueError:
        ...     place = paddle.CPUPlace()
        >>> place
        Place(cpu)
    """

    def __init__(self, dev_id: int) -> None:
        _no_place(f"XPUPlace({dev_id})", "XPU")


class IPUPlace:
    """Refuses, as Paddle's build for CPUs does: there is no IPU to run on.

    Raises:
        PlaceError: Always.

    Example:
        >>> try:
        ...     place = paddle.device.IPUPlace()
        ... except ValueError:
        ...     place = paddle.CPUPlace()
        >>> place
        Place(cpu)
    """

    def __init__(self) -> None:
        _no_place("IPUPlace()", "IPU")


def _no_place(call: str, device: str) -> NoReturn:
    raise PlaceError(
        f"Cannot use {device}: there is none that programs can run on",
        expected="paddle.CPUPlace() or paddle.CUDAPlace(0)",
        received=call,
        fix="paddle.set_device('cpu'), or paddle.set_device('gpu:0') where there is a GPU",
    )


@no_effect(device="a run returns when its results are there")
def synchronize(device: Any = None) -> None:
    """Returns at once: a run of an executor waits for its results."""


Event, Stream, current_stream, set_stream = map(of_gpu, ("Event", "Stream", "current_stream", "set_stream"))
stream_guard = of_gpu("stream")

__all__ = [
    "Event",
    "IPUPlace",
    "Stream",
    "XPUPlace",
    "cpu_count",
    "cuda",
    "current_stream",
    "device_count",
    "get_all_custom_device_type",
    "get_all_device_type",
    "get_available_custom_device",
    "get_available_device",
    "get_cudnn_version",
    "get_device",
    "is_compiled_with_cinn",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_distribute",
    "is_compiled_with_ipu",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "set_device",
    "set_stream",
    "stream_guard",
    "synchronize",
]
__getattr__ = missing_in(public_of(__name__), __all__)
