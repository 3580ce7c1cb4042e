# Made from the registry of public names by `make api`.
from tstatic import autodiff as autodiff
from tstatic import base as base
from tstatic import device as device
from tstatic import distributed as distributed
from tstatic import errors as errors
from tstatic import fluid as fluid
from tstatic import framework as framework
from tstatic import io as io
from tstatic import metric as metric
from tstatic import nn as nn
from tstatic import optimizer as optimizer
from tstatic import regularizer as regularizer
from tstatic import static as static
from tstatic import tensor as tensor
from tstatic import utils as utils
from tstatic import version as version
from tstatic.autodiff.api import gradients as grad
from tstatic.flags import get_flags as get_flags
from tstatic.flags import set_flags as set_flags
from tstatic.fusion.register import register_kernel as register_kernel
from tstatic.ir.declare import get_default_dtype as get_default_dtype
from tstatic.ir.declare import set_default_dtype as set_default_dtype
from tstatic.ir.program import Variable as Tensor
from tstatic.ir.types import DType as dtype
from tstatic.ir.types import bfloat16 as bfloat16
from tstatic.ir.types import bool_ as bool
from tstatic.ir.types import float16 as float16
from tstatic.ir.types import float32 as float32
from tstatic.ir.types import float64 as float64
from tstatic.ir.types import int16 as int16
from tstatic.ir.types import int32 as int32
from tstatic.ir.types import int64 as int64
from tstatic.ir.types import int8 as int8
from tstatic.ir.types import uint8 as uint8
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.nn.param import create_global_var as create_global_var
from tstatic.nn.param import create_parameter as create_parameter
from tstatic.ops.elementwise.activation import stanh as stanh
from tstatic.ops.elementwise.activation import tanh as tanh
from tstatic.ops.elementwise.activation import tanh as tanh_
from tstatic.ops.elementwise.add_n import add_n as add_n
from tstatic.ops.elementwise.arithmetic import add as add
from tstatic.ops.elementwise.arithmetic import add as add_
from tstatic.ops.elementwise.arithmetic import atan2 as atan2
from tstatic.ops.elementwise.arithmetic import divide as divide
from tstatic.ops.elementwise.arithmetic import divide as divide_
from tstatic.ops.elementwise.arithmetic import floor_divide as floor_divide
from tstatic.ops.elementwise.arithmetic import fmax as fmax
from tstatic.ops.elementwise.arithmetic import fmin as fmin
from tstatic.ops.elementwise.arithmetic import lerp as lerp
from tstatic.ops.elementwise.arithmetic import lerp as lerp_
from tstatic.ops.elementwise.arithmetic import maximum as maximum
from tstatic.ops.elementwise.arithmetic import minimum as minimum
from tstatic.ops.elementwise.arithmetic import multiply as multiply
from tstatic.ops.elementwise.arithmetic import multiply as multiply_
from tstatic.ops.elementwise.arithmetic import remainder as floor_mod
from tstatic.ops.elementwise.arithmetic import remainder as mod
from tstatic.ops.elementwise.arithmetic import remainder as remainder
from tstatic.ops.elementwise.arithmetic import remainder as remainder_
from tstatic.ops.elementwise.arithmetic import subtract as subtract
from tstatic.ops.elementwise.arithmetic import subtract as subtract_
from tstatic.ops.elementwise.logic import allclose as allclose
from tstatic.ops.elementwise.logic import bitwise_and as bitwise_and
from tstatic.ops.elementwise.logic import bitwise_not as bitwise_not
from tstatic.ops.elementwise.logic import bitwise_or as bitwise_or
from tstatic.ops.elementwise.logic import bitwise_xor as bitwise_xor
from tstatic.ops.elementwise.logic import equal as equal
from tstatic.ops.elementwise.logic import equal_all as equal_all
from tstatic.ops.elementwise.logic import greater_equal as greater_equal
from tstatic.ops.elementwise.logic import greater_than as greater_than
from tstatic.ops.elementwise.logic import is_empty as is_empty
from tstatic.ops.elementwise.logic import isclose as isclose
from tstatic.ops.elementwise.logic import isfinite as isfinite
from tstatic.ops.elementwise.logic import isinf as isinf
from tstatic.ops.elementwise.logic import isnan as isnan
from tstatic.ops.elementwise.logic import less_equal as less_equal
from tstatic.ops.elementwise.logic import less_than as less_than
from tstatic.ops.elementwise.logic import logical_and as logical_and
from tstatic.ops.elementwise.logic import logical_not as logical_not
from tstatic.ops.elementwise.logic import logical_or as logical_or
from tstatic.ops.elementwise.logic import logical_xor as logical_xor
from tstatic.ops.elementwise.logic import not_equal as not_equal
from tstatic.ops.elementwise.logic import where as where
from tstatic.ops.elementwise.scale import cast as cast
from tstatic.ops.elementwise.scale import clip as clip
from tstatic.ops.elementwise.scale import clip as clip_
from tstatic.ops.elementwise.scale import increment as increment
from tstatic.ops.elementwise.scale import scale as scale
from tstatic.ops.elementwise.scale import scale as scale_
from tstatic.ops.elementwise.unary import abs as abs
from tstatic.ops.elementwise.unary import acos as acos
from tstatic.ops.elementwise.unary import acosh as acosh
from tstatic.ops.elementwise.unary import asin as asin
from tstatic.ops.elementwise.unary import asinh as asinh
from tstatic.ops.elementwise.unary import atan as atan
from tstatic.ops.elementwise.unary import atanh as atanh
from tstatic.ops.elementwise.unary import ceil as ceil
from tstatic.ops.elementwise.unary import ceil as ceil_
from tstatic.ops.elementwise.unary import cos as cos
from tstatic.ops.elementwise.unary import cosh as cosh
from tstatic.ops.elementwise.unary import erf as erf
from tstatic.ops.elementwise.unary import exp as exp
from tstatic.ops.elementwise.unary import expm1 as expm1
from tstatic.ops.elementwise.unary import floor as floor
from tstatic.ops.elementwise.unary import floor as floor_
from tstatic.ops.elementwise.unary import frac as frac
from tstatic.ops.elementwise.unary import log as log
from tstatic.ops.elementwise.unary import log10 as log10
from tstatic.ops.elementwise.unary import log1p as log1p
from tstatic.ops.elementwise.unary import log2 as log2
from tstatic.ops.elementwise.unary import logit as logit
from tstatic.ops.elementwise.unary import neg as neg
from tstatic.ops.elementwise.unary import pow as pow
from tstatic.ops.elementwise.unary import pow as pow_
from tstatic.ops.elementwise.unary import reciprocal as reciprocal
from tstatic.ops.elementwise.unary import reciprocal as reciprocal_
from tstatic.ops.elementwise.unary import round as round
from tstatic.ops.elementwise.unary import round as round_
from tstatic.ops.elementwise.unary import rsqrt as rsqrt
from tstatic.ops.elementwise.unary import rsqrt as rsqrt_
from tstatic.ops.elementwise.unary import sign as sign
from tstatic.ops.elementwise.unary import sin as sin
from tstatic.ops.elementwise.unary import sin as sin_
from tstatic.ops.elementwise.unary import sinh as sinh
from tstatic.ops.elementwise.unary import sqrt as sqrt
from tstatic.ops.elementwise.unary import sqrt as sqrt_
from tstatic.ops.elementwise.unary import square as square
from tstatic.ops.elementwise.unary import tan as tan
from tstatic.ops.elementwise.unary import trunc as trunc
from tstatic.ops.indexing.along_axis import index_sample as index_sample
from tstatic.ops.indexing.along_axis import put_along_axis as put_along_axis
from tstatic.ops.indexing.along_axis import take_along_axis as take_along_axis
from tstatic.ops.indexing.gather import gather as gather
from tstatic.ops.indexing.gather import gather_nd as gather_nd
from tstatic.ops.indexing.gather import index_select as index_select
from tstatic.ops.indexing.masking import masked_fill as masked_fill
from tstatic.ops.indexing.masking import masked_fill_ as masked_fill_
from tstatic.ops.indexing.masking import masked_select as masked_select
from tstatic.ops.indexing.masking import nonzero as nonzero
from tstatic.ops.indexing.scatter import index_add as index_add
from tstatic.ops.indexing.scatter import scatter as scatter
from tstatic.ops.indexing.scatter import scatter_ as scatter_
from tstatic.ops.indexing.scatter import scatter_nd as scatter_nd
from tstatic.ops.indexing.scatter import scatter_nd_add as scatter_nd_add
from tstatic.ops.indexing.unique import unique as unique
from tstatic.ops.indexing.unique import unique_consecutive as unique_consecutive
from tstatic.ops.matmul.einsum import einsum as einsum
from tstatic.ops.matmul.linear import addmm as addmm
from tstatic.ops.matmul.linear import inner as inner
from tstatic.ops.matmul.linear import outer as outer
from tstatic.ops.matmul.matmul import bmm as bmm
from tstatic.ops.matmul.matmul import dot as dot
from tstatic.ops.matmul.matmul import matmul as matmul
from tstatic.ops.matmul.matmul import mm as mm
from tstatic.ops.matmul.matmul import mv as mv
from tstatic.ops.random.distributions import normal as normal
from tstatic.ops.random.distributions import rand as rand
from tstatic.ops.random.distributions import randn as randn
from tstatic.ops.random.distributions import standard_normal as standard_normal
from tstatic.ops.random.distributions import uniform as uniform
from tstatic.ops.random.integers import randint as randint
from tstatic.ops.random.integers import randperm as randperm
from tstatic.ops.random.sampling import bernoulli as bernoulli
from tstatic.ops.random.sampling import multinomial as multinomial
from tstatic.ops.reduce.cumsum import cumprod as cumprod
from tstatic.ops.reduce.cumsum import cumsum as cumsum
from tstatic.ops.reduce.extrema import all as all
from tstatic.ops.reduce.extrema import amax as amax
from tstatic.ops.reduce.extrema import amin as amin
from tstatic.ops.reduce.extrema import any as any
from tstatic.ops.reduce.extrema import logsumexp as logsumexp
from tstatic.ops.reduce.extrema import max as max
from tstatic.ops.reduce.extrema import min as min
from tstatic.ops.reduce.ordering import argmax as argmax
from tstatic.ops.reduce.ordering import argmin as argmin
from tstatic.ops.reduce.ordering import argsort as argsort
from tstatic.ops.reduce.ordering import kthvalue as kthvalue
from tstatic.ops.reduce.ordering import sort as sort
from tstatic.ops.reduce.ordering import topk as topk
from tstatic.ops.reduce.reduction import mean as mean
from tstatic.ops.reduce.reduction import prod as prod
from tstatic.ops.reduce.reduction import sum as sum
from tstatic.ops.reduce.vector_norm import dist as dist
from tstatic.ops.reduce.vector_norm import norm as norm
from tstatic.ops.reduce.vector_norm import std as std
from tstatic.ops.reduce.vector_norm import var as var
from tstatic.ops.shape.creation import assign as assign
from tstatic.ops.shape.creation import empty as empty
from tstatic.ops.shape.creation import empty_like as empty_like
from tstatic.ops.shape.creation import fill_constant as fill_constant
from tstatic.ops.shape.creation import full as full
from tstatic.ops.shape.creation import full_like as full_like
from tstatic.ops.shape.creation import ones as ones
from tstatic.ops.shape.creation import ones_like as ones_like
from tstatic.ops.shape.creation import to_tensor as to_tensor
from tstatic.ops.shape.creation import zeros as zeros
from tstatic.ops.shape.creation import zeros_like as zeros_like
from tstatic.ops.shape.diagonal import diag as diag
from tstatic.ops.shape.diagonal import diagonal as diagonal
from tstatic.ops.shape.diagonal import eye as eye
from tstatic.ops.shape.diagonal import tril as tril
from tstatic.ops.shape.diagonal import triu as triu
from tstatic.ops.shape.expanding import broadcast_shape as broadcast_shape
from tstatic.ops.shape.expanding import broadcast_tensors as broadcast_tensors
from tstatic.ops.shape.expanding import broadcast_to as broadcast_to
from tstatic.ops.shape.expanding import expand as expand
from tstatic.ops.shape.expanding import expand_as as expand_as
from tstatic.ops.shape.expanding import repeat_interleave as repeat_interleave
from tstatic.ops.shape.expanding import tile as tile
from tstatic.ops.shape.joining import chunk as chunk
from tstatic.ops.shape.joining import concat as concat
from tstatic.ops.shape.joining import split as split
from tstatic.ops.shape.joining import stack as stack
from tstatic.ops.shape.joining import unbind as unbind
from tstatic.ops.shape.joining import unstack as unstack
from tstatic.ops.shape.joining import vsplit as vsplit
from tstatic.ops.shape.reshape import flatten as flatten
from tstatic.ops.shape.reshape import flatten_ as flatten_
from tstatic.ops.shape.reshape import reshape as reshape
from tstatic.ops.shape.reshape import reshape_ as reshape_
from tstatic.ops.shape.reshape import squeeze as squeeze
from tstatic.ops.shape.reshape import squeeze_ as squeeze_
from tstatic.ops.shape.reshape import unflatten as unflatten
from tstatic.ops.shape.reshape import unsqueeze as unsqueeze
from tstatic.ops.shape.reshape import unsqueeze_ as unsqueeze_
from tstatic.ops.shape.sequence import arange as arange
from tstatic.ops.shape.sequence import linspace as linspace
from tstatic.ops.shape.sequence import meshgrid as meshgrid
from tstatic.ops.shape.sequence import numel as numel
from tstatic.ops.shape.sequence import rank as rank
from tstatic.ops.shape.sequence import shape as shape
from tstatic.ops.shape.slicing import crop as crop
from tstatic.ops.shape.slicing import slice_ as slice
from tstatic.ops.shape.slicing import strided_slice as strided_slice
from tstatic.ops.shape.transpose import flip as flip
from tstatic.ops.shape.transpose import moveaxis as moveaxis
from tstatic.ops.shape.transpose import reverse as reverse
from tstatic.ops.shape.transpose import roll as roll
from tstatic.ops.shape.transpose import rot90 as rot90
from tstatic.ops.shape.transpose import swapaxes as swapaxes
from tstatic.ops.shape.transpose import t as t
from tstatic.ops.shape.transpose import transpose as transpose
from tstatic.ops.shape.transpose import transpose_ as transpose_
from tstatic.places import CPUPlace as CPUPlace
from tstatic.places import CUDAPinnedPlace as CUDAPinnedPlace
from tstatic.places import CUDAPlace as CUDAPlace
from tstatic.places import get_device as get_device
from tstatic.places import is_compiled_with_cuda as is_compiled_with_cuda
from tstatic.places import is_compiled_with_custom_device as is_compiled_with_custom_device
from tstatic.places import is_compiled_with_rocm as is_compiled_with_rocm
from tstatic.places import is_compiled_with_xpu as is_compiled_with_xpu
from tstatic.places import set_device as set_device
from tstatic.runtime.random import seed as seed
from tstatic.static.mode import disable_static as disable_static
from tstatic.static.mode import enable_static as enable_static
from tstatic.static.mode import in_dynamic_mode as in_dynamic_mode
from tstatic.static.mode import no_grad as no_grad
from tstatic.version import __version__ as __version__
from tstatic.version import show_versions as show_versions

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ParamAttr",
    "Tensor",
    "__version__",
    "abs",
    "acos",
    "acosh",
    "add",
    "add_",
    "add_n",
    "addmm",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "assign",
    "atan",
    "atan2",
    "atanh",
    "autodiff",
    "base",
    "bernoulli",
    "bfloat16",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "bool",
    "broadcast_shape",
    "broadcast_tensors",
    "broadcast_to",
    "cast",
    "ceil",
    "ceil_",
    "chunk",
    "clip",
    "clip_",
    "concat",
    "cos",
    "cosh",
    "create_global_var",
    "create_parameter",
    "crop",
    "cumprod",
    "cumsum",
    "device",
    "diag",
    "diagonal",
    "disable_static",
    "dist",
    "distributed",
    "divide",
    "divide_",
    "dot",
    "dtype",
    "einsum",
    "empty",
    "empty_like",
    "enable_static",
    "equal",
    "equal_all",
    "erf",
    "errors",
    "exp",
    "expand",
    "expand_as",
    "expm1",
    "eye",
    "fill_constant",
    "flatten",
    "flatten_",
    "flip",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_",
    "floor_divide",
    "floor_mod",
    "fluid",
    "fmax",
    "fmin",
    "frac",
    "framework",
    "full",
    "full_like",
    "gather",
    "gather_nd",
    "get_default_dtype",
    "get_device",
    "get_flags",
    "grad",
    "greater_equal",
    "greater_than",
    "in_dynamic_mode",
    "increment",
    "index_add",
    "index_sample",
    "index_select",
    "inner",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "is_empty",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "kthvalue",
    "lerp",
    "lerp_",
    "less_equal",
    "less_than",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "masked_fill",
    "masked_fill_",
    "masked_select",
    "matmul",
    "max",
    "maximum",
    "mean",
    "meshgrid",
    "metric",
    "min",
    "minimum",
    "mm",
    "mod",
    "moveaxis",
    "multinomial",
    "multiply",
    "multiply_",
    "mv",
    "neg",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "normal",
    "not_equal",
    "numel",
    "ones",
    "ones_like",
    "optimizer",
    "outer",
    "pow",
    "pow_",
    "prod",
    "put_along_axis",
    "rand",
    "randint",
    "randn",
    "randperm",
    "rank",
    "reciprocal",
    "reciprocal_",
    "register_kernel",
    "regularizer",
    "remainder",
    "remainder_",
    "repeat_interleave",
    "reshape",
    "reshape_",
    "reverse",
    "roll",
    "rot90",
    "round",
    "round_",
    "rsqrt",
    "rsqrt_",
    "scale",
    "scale_",
    "scatter",
    "scatter_",
    "scatter_nd",
    "scatter_nd_add",
    "seed",
    "set_default_dtype",
    "set_device",
    "set_flags",
    "shape",
    "show_versions",
    "sign",
    "sin",
    "sin_",
    "sinh",
    "slice",
    "sort",
    "split",
    "sqrt",
    "sqrt_",
    "square",
    "squeeze",
    "squeeze_",
    "stack",
    "standard_normal",
    "stanh",
    "static",
    "std",
    "strided_slice",
    "subtract",
    "subtract_",
    "sum",
    "swapaxes",
    "t",
    "take_along_axis",
    "tan",
    "tanh",
    "tanh_",
    "tensor",
    "tile",
    "to_tensor",
    "topk",
    "transpose",
    "transpose_",
    "tril",
    "triu",
    "trunc",
    "uint8",
    "unbind",
    "unflatten",
    "uniform",
    "unique",
    "unique_consecutive",
    "unsqueeze",
    "unsqueeze_",
    "unstack",
    "utils",
    "var",
    "version",
    "vsplit",
    "where",
    "zeros",
    "zeros_like",
]
