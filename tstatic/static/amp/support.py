"""Which 16-bit floats a device computes with."""

from __future__ import annotations

from tstatic.ir.export import export
from tstatic.places import Place, expected_place, to_place


def _place(device: Place | str | None) -> Place:
    return expected_place() if device is None else to_place(device)


@export("amp.is_float16_supported")
def is_float16_supported(device: Place | str | None = None) -> bool:
    """Returns whether a device is made for float16: a GPU. A CPU rounds to it too, but gains nothing, as in Paddle.

    Args:
        device: A place or its name; by default that of executors which are given none.

    Example:
        >>> paddle.amp.is_float16_supported("cpu"), paddle.amp.is_bfloat16_supported("cpu")
        (False, True)
    """
    return _place(device).is_gpu_place()


@export("amp.is_bfloat16_supported")
def is_bfloat16_supported(device: Place | str | None = None) -> bool:
    """Returns whether a device computes with bfloat16: every one does.

    Args:
        device: A place or its name; by default that of executors which are given none.
    """
    place = _place(device)
    return place.is_cpu_place() or place.is_gpu_place()
