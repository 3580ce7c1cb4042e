"""DLPack capsules of arrays and arrays of capsules, bfloat16 among them, which numpy knows nothing of."""

from __future__ import annotations

import ctypes
import datetime
from typing import Any

import numpy as np

from tstatic.errors import FeedError, shown
from tstatic.ir.types import dtype_of

CAPSULE = type(datetime.datetime_CAPI)
"""``PyCapsule``, for which Python has no name."""
# The tensor stands first in a capsule, or behind version, owner, deleter and flags; its dtype behind data, device and rank.
_TENSOR = {b"dltensor": 0, b"dltensor_versioned": 32}
_DTYPE = 20  # a pointer, two ints of the device, one of the rank
_INT, _BFLOAT = 0, 4  # kDLInt and kDLBfloat of dlpack.h

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dtype(capsule: Any) -> Any:
    """Returns code and bits of a capsule's dtype, which may be written; ``None`` if it was read before."""
    name = _api.PyCapsule_GetName(capsule)
    if name not in _TENSOR:
        return None
    return (ctypes.c_uint8 * 2).from_address(_api.PyCapsule_GetPointer(capsule, name) + _TENSOR[name] + _DTYPE)


def capsule_of(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """Returns an array as a capsule, which shares its memory.

    Args:
        array: Of any dtype that DLPack has.
        **options: Those of numpy's ``__dlpack__``.
    """
    low = dtype_of("bfloat16").np
    if array.dtype != low:
        return array.__dlpack__(**options)
    # numpy refuses a dtype that it does not know: it hands over integers, and the capsule is told what they are.
    capsule = array.view(np.int16).__dlpack__(**options)
    _dtype(capsule)[0] = _BFLOAT
    return capsule


class _Holder:
    """A capsule on its own, as the object that numpy wants."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        # kDLCPU, device 0.
        return 1, 0


def array_of(capsule: Any) -> np.ndarray[Any, Any]:
    """Returns an array that shares a capsule's memory.

    Raises:
        FeedError: If the capsule was read before, or is of another kind.
    """
    dtype = _dtype(capsule)
    if dtype is None:
        raise FeedError(
            "this capsule holds no tensor, or it was read before",
            expected="a DLPack capsule that nobody has read",
            received=shown(capsule),
            fix="make a new capsule for each reader, or pass the tensor itself",
        )
    if list(dtype) != [_BFLOAT, 16]:
        return np.from_dlpack(_Holder(capsule))
    # And here the other way round. The capsule is read now, so nobody else sees the change.
    dtype[0] = _INT
    return np.from_dlpack(_Holder(capsule)).view(dtype_of("bfloat16").np)
