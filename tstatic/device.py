"""``paddle.device``: which devices there are, and which one is used when none is named."""

from tstatic.places import (
    cpu_count,
    device_count,
    get_device,
    is_compiled_with_cuda,
    is_compiled_with_custom_device,
    is_compiled_with_rocm,
    is_compiled_with_xpu,
    set_device,
)

__all__ = [
    "cpu_count",
    "device_count",
    "get_device",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "set_device",
]
