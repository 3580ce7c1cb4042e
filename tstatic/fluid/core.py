"""``fluid.core``: the names that scripts take from Paddle's compiled module."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from tstatic import flags as _flags
from tstatic.errors import EOFException, NotFoundError, TstaticError
from tstatic.ir import types as _types
from tstatic.ir.operator import OpRole
from tstatic.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    is_compiled_with_cuda,
    is_compiled_with_rocm,
    is_compiled_with_xpu,
)
from tstatic.places import device_count as get_cuda_device_count
from tstatic.runtime.scope import LoDTensor, LoDTensorArray, Scope
from tstatic.static.amp.support import is_bfloat16_supported, is_float16_supported
from tstatic.static.files.predictor_config import get_version
from tstatic.static.internals import convert_np_dtype_to_dtype_
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.unsupported import missing_in

Tensor = LoDTensor
EnforceNotMet = TstaticError


class VarDesc:
    """Holds the enumeration of variable types.

    Example:
        >>> types = fluid.core.VarDesc.VarType
        >>> x = static.data("x", [2], dtype=types.FP32)
        >>> x.dtype == types.FP32, x.dtype == "float32"
        (True, True)
    """

    class VarType:
        """Element types by Paddle's short names, and what a variable is if not an array of elements."""

        BOOL = _types.bool_
        UINT8 = _types.uint8
        INT8 = _types.int8
        INT16 = _types.int16
        INT32 = _types.int32
        INT64 = _types.int64
        FP16 = _types.float16
        BF16 = _types.bfloat16
        FP32 = _types.float32
        FP64 = _types.float64
        COMPLEX64 = _types.complex64
        COMPLEX128 = _types.complex128
        LOD_TENSOR = _types.VAR_KINDS[7]
        DENSE_TENSOR = _types.VAR_KINDS[7]
        SELECTED_ROWS = _types.VAR_KINDS[8]
        FEED_MINIBATCH = _types.VAR_KINDS[9]
        FETCH_LIST = _types.VAR_KINDS[10]
        STEP_SCOPES = _types.VAR_KINDS[11]
        LOD_RANK_TABLE = _types.VAR_KINDS[12]
        LOD_TENSOR_ARRAY = _types.VAR_KINDS[13]
        DENSE_TENSOR_ARRAY = _types.VAR_KINDS[13]
        PLACE_LIST = _types.VAR_KINDS[14]
        READER = _types.VAR_KINDS[15]
        RAW = _types.VAR_KINDS[17]
        STRING = _types.VarKind("string", 25)
        STRINGS = _types.VarKind("strings", 26)
        VOCAB = _types.VarKind("vocab", 27)


class op_proto_and_checker_maker:
    """Names of the automatic attributes of ops.

    Example:
        >>> y = paddle.tanh(static.data("x", [2]))
        >>> op = static.default_main_program().global_block().ops[0]
        >>> op.attr(fluid.core.op_proto_and_checker_maker.kOpRoleAttrName()) == fluid.framework.OpRole.Forward
        True
    """

    OpRole = OpRole

    @staticmethod
    def kOpRoleAttrName() -> str:
        return "op_role"

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        return "op_role_var"

    @staticmethod
    def kOpDeviceAttrName() -> str:
        return "op_device"

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        return "op_namescope"


class _Flags(MutableMapping[str, Any]):
    """The flags of this process by their names; setting one is :func:`tstatic.set_flags`."""

    def __getitem__(self, name: str) -> Any:
        try:
            return _flags.get_flags(name)[name]
        except NotFoundError as error:
            raise KeyError(str(error)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        _flags.set_flags({name: value})

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"flag {name} cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(_flags.REGISTRY)

    def __len__(self) -> int:
        return len(_flags.REGISTRY)

    def is_public(self, name: str) -> bool:
        """Returns whether there is a flag of that name."""
        return name in self


def globals() -> _Flags:
    """Returns all flags as a mapping: what is set in it is a flag of this process.

    Example:
        >>> fluid.core.globals()["FLAGS_check_nan_inf"]
        False
    """
    return _Flags()


def supports_bfloat16() -> bool:
    """Returns whether the CPU computes with bfloat16: it rounds to it."""
    return is_bfloat16_supported("cpu")


def cudnn_version() -> int:
    """Returns -1: no kernel comes from cuDNN."""
    return -1


def is_compiled_with_mkldnn() -> bool:
    """Returns ``False``: no kernel comes from oneDNN."""
    return False


__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "ExecutionStrategy",
    "LoDTensor",
    "LoDTensorArray",
    "Place",
    "Scope",
    "Tensor",
    "VarDesc",
    "convert_np_dtype_to_dtype_",
    "cudnn_version",
    "get_cuda_device_count",
    "get_version",
    "globals",
    "is_bfloat16_supported",
    "is_compiled_with_cuda",
    "is_compiled_with_mkldnn",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "is_float16_supported",
    "op_proto_and_checker_maker",
    "supports_bfloat16",
]

__getattr__ = missing_in(__name__, __all__)
