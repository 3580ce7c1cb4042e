"""``fluid.core``: the names that scripts take from Paddle's compiled module."""

from tstatic.errors import EOFException, TstaticError
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
        """Element types by Paddle's short names."""

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
        LOD_TENSOR = "dense_tensor"
        DENSE_TENSOR = "dense_tensor"


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
    "get_cuda_device_count",
    "is_compiled_with_cuda",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "op_proto_and_checker_maker",
]

__getattr__ = missing_in(__name__, __all__)
