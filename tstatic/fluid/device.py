"""``paddle.device``: which devices there are, and which one is used when none is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any, NoReturn

from tstatic.aliases import public_of
from tstatic.errors import PlaceError
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


def _of_gpu(name: str) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        if not is_compiled_with_cuda:
            raise PlaceError(
                f"paddle.device.cuda.{name} needs a GPU",
                expected="a machine with an NVIDIA GPU",
                received="none that programs can run on",
                fix="ask paddle.device.cuda.device_count() first",
            )
        import torch

        return getattr(torch.cuda, name)(*args, **kwargs)

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = f"""Answers as ``torch.cuda.{name}`` does.

    Raises:
        PlaceError: Without a GPU.
    """
    return ask


Event, Stream, current_stream, set_stream = map(_of_gpu, ("Event", "Stream", "current_stream", "set_stream"))
stream_guard = _of_gpu("stream")

cuda = module_from_spec(ModuleSpec(f"{__name__}.cuda", None))
cuda.__doc__ = "``paddle.device.cuda``: what is known of the GPUs; ValueError without one."
_ASKED = [
    "Event",
    "Stream",
    "current_stream",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "synchronize",
]
vars(cuda).update({name: _of_gpu(name) for name in _ASKED}, device_count=device_count, stream_guard=stream_guard)
vars(cuda)["__all__"] = sorted([*_ASKED, "device_count", "stream_guard"])
vars(cuda)["__getattr__"] = missing_in(public_of(cuda.__name__), vars(cuda)["__all__"])
# ``import paddle.device.cuda`` finds it among the loaded modules.
sys.modules.update({cuda.__name__: cuda, public_of(cuda.__name__): cuda})

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
