"""``paddle.utils.dlpack``: values of tensors for other libraries, and theirs as tensors, without copies where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.export import door
from tstatic.ir.program import Variable
from tstatic.runtime.feed import host_array, is_foreign
from tstatic.runtime.scope import LoDTensor, tensor_of

__all__ = ["from_dlpack", "to_dlpack"]


@door("utils.dlpack.to_dlpack")
def to_dlpack(x: Any) -> Any:
    """Returns the value of a tensor as a DLPack capsule.

    A fetched tensor or an array shares its memory with what is made of the capsule; a tensor of a scope gives a copy, for its
    storage changes with every step.

    Args:
        x: A fetched tensor (``return_numpy=False``), a tensor of a scope, or an array.

    Raises:
        ProgramTypeError: For anything else, a Variable too: it has no value before the program runs.

    Example:
        >>> tensor = fluid.create_lod_tensor(np.float32([[1.0], [2.0]]), [[2]], fluid.CPUPlace())
        >>> capsule = paddle.utils.dlpack.to_dlpack(tensor)
        >>> np.array(paddle.utils.dlpack.from_dlpack(capsule)).ravel()
        array([1., 2.], dtype=float32)
    """
    if not isinstance(x, LoDTensor | np.ndarray):
        raise ProgramTypeError(
            "The type of 'x' in to_dlpack must be a tensor with a value",
            expected="a fetched tensor, scope.find_var(name).get_tensor(), or an array",
            received=shown(x),
            fix="fetch it: exe.run(..., fetch_list=[x], return_numpy=False)[0]" if isinstance(x, Variable) else "",
            op="to_dlpack",
        )
    return x.__dlpack__()


@door("utils.dlpack.from_dlpack")
def from_dlpack(dlpack: Any) -> LoDTensor:
    """Returns a tensor of what another library holds, which may be fed; on a CPU it shares the memory.

    Args:
        dlpack: A DLPack capsule, or an array or tensor that can give one.

    Raises:
        ProgramTypeError: For anything else.
    """
    if not is_foreign(dlpack):
        raise ProgramTypeError(
            "from_dlpack takes a DLPack capsule",
            expected="a capsule, or an object with __dlpack__",
            received=shown(dlpack),
            fix="pass torch.utils.dlpack.to_dlpack(tensor), or the tensor itself",
            op="from_dlpack",
        )
    return tensor_of(host_array(dlpack))
