"""``paddle.device.cuda``: what is known of the GPUs; ValueError without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.aliases import public_of
from tstatic.errors import PlaceError
from tstatic.places import device_count, is_compiled_with_cuda
from tstatic.unsupported import missing_in


def of_gpu(name: str) -> Callable[..., Any]:
    """Returns the function ``torch.cuda.name``, which raises PlaceError without a GPU."""

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


Event, Stream, current_stream = map(of_gpu, ("Event", "Stream", "current_stream"))
stream_guard = of_gpu("stream")
empty_cache, synchronize = map(of_gpu, ("empty_cache", "synchronize"))
get_device_capability, get_device_name, get_device_properties = map(
    of_gpu, ("get_device_capability", "get_device_name", "get_device_properties")
)
max_memory_allocated, max_memory_reserved, memory_allocated, memory_reserved = map(
    of_gpu, ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
)

__all__ = [
    "Event",
    "Stream",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "stream_guard",
    "synchronize",
]
__getattr__ = missing_in(public_of(__name__), __all__)
