"""``paddle.utils.dlpack``: tensors shared with other libraries."""

from __future__ import annotations

from typing import Any

from tstatic.ir.checks import check_type
from tstatic.runtime.dlpack import CAPSULE, array_of
from tstatic.runtime.scope import LoDTensor, tensor_of


def to_dlpack(x: LoDTensor) -> Any:
    """Returns a tensor as a DLPack capsule; a fetched one shares its memory with what is made of it.

    Args:
        x: What ``exe.run(..., return_numpy=False)`` gives, or a tensor of a scope, which is copied.

    Raises:
        ProgramTypeError: For another value.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> (found,) = static.Executor().run(fetch_list=[x], return_numpy=False)
        >>> capsule = paddle.utils.dlpack.to_dlpack(found)
        >>> np.array(paddle.utils.dlpack.from_dlpack(capsule))
        array([1., 2.], dtype=float32)
    """
    return check_type(x, LoDTensor, "x", "to_dlpack").__dlpack__()


def from_dlpack(dlpack: Any) -> LoDTensor:
    """Returns a tensor that shares a capsule's memory.

    Args:
        dlpack: A capsule of the host's memory, which no one has read yet.

    Raises:
        ProgramTypeError: For another value.

    Example:
        >>> array = np.array([1, 2])
        >>> tensor = paddle.utils.dlpack.from_dlpack(array.__dlpack__())
        >>> tensor.shape()
        [2]
    """
    return tensor_of(array_of(check_type(dlpack, CAPSULE, "dlpack", "from_dlpack", expected="a PyCapsule")))


__all__ = ["from_dlpack", "to_dlpack"]
