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
from tstatic.ops.activation import stanh as stanh
from tstatic.ops.activation import tanh as tanh
from tstatic.ops.activation import tanh as tanh_
from tstatic.ops.add_n import add_n as add_n
from tstatic.ops.along_axis import index_sample as index_sample
from tstatic.ops.along_axis import take_along_axis as take_along_axis
from tstatic.ops.arg_max import argmax as argmax
from tstatic.ops.arg_max import argmin as argmin
from tstatic.ops.argsort import argsort as argsort
from tstatic.ops.argsort import sort as sort
from tstatic.ops.cast import cast as cast
from tstatic.ops.clip import clip as clip
from tstatic.ops.clip import clip as clip_
from tstatic.ops.close import allclose as allclose
from tstatic.ops.close import equal_all as equal_all
from tstatic.ops.close import isclose as isclose
from tstatic.ops.compare import equal as equal
from tstatic.ops.compare import greater_equal as greater_equal
from tstatic.ops.compare import greater_than as greater_than
from tstatic.ops.compare import less_equal as less_equal
from tstatic.ops.compare import less_than as less_than
from tstatic.ops.compare import not_equal as not_equal
from tstatic.ops.creation import assign as assign
from tstatic.ops.creation import empty as empty
from tstatic.ops.creation import empty_like as empty_like
from tstatic.ops.creation import fill_constant as fill_constant
from tstatic.ops.creation import full as full
from tstatic.ops.creation import full_like as full_like
from tstatic.ops.creation import ones as ones
from tstatic.ops.creation import ones_like as ones_like
from tstatic.ops.creation import to_tensor as to_tensor
from tstatic.ops.creation import zeros as zeros
from tstatic.ops.creation import zeros_like as zeros_like
from tstatic.ops.cropping import crop as crop
from tstatic.ops.cumsum import cumprod as cumprod
from tstatic.ops.cumsum import cumsum as cumsum
from tstatic.ops.diagonal import diag as diag
from tstatic.ops.diagonal import diagonal as diagonal
from tstatic.ops.diagonal import eye as eye
from tstatic.ops.dot import dot as dot
from tstatic.ops.einsum import einsum as einsum
from tstatic.ops.elementwise import add as add
from tstatic.ops.elementwise import add as add_
from tstatic.ops.elementwise import atan2 as atan2
from tstatic.ops.elementwise import divide as divide
from tstatic.ops.elementwise import divide as divide_
from tstatic.ops.elementwise import floor_divide as floor_divide
from tstatic.ops.elementwise import fmax as fmax
from tstatic.ops.elementwise import fmin as fmin
from tstatic.ops.elementwise import maximum as maximum
from tstatic.ops.elementwise import minimum as minimum
from tstatic.ops.elementwise import multiply as multiply
from tstatic.ops.elementwise import multiply as multiply_
from tstatic.ops.elementwise import remainder as floor_mod
from tstatic.ops.elementwise import remainder as mod
from tstatic.ops.elementwise import remainder as remainder
from tstatic.ops.elementwise import remainder as remainder_
from tstatic.ops.elementwise import subtract as subtract
from tstatic.ops.elementwise import subtract as subtract_
from tstatic.ops.expanding import broadcast_shape as broadcast_shape
from tstatic.ops.expanding import broadcast_tensors as broadcast_tensors
from tstatic.ops.expanding import broadcast_to as broadcast_to
from tstatic.ops.expanding import expand as expand
from tstatic.ops.expanding import expand_as as expand_as
from tstatic.ops.extrema import all as all
from tstatic.ops.extrema import amax as amax
from tstatic.ops.extrema import amin as amin
from tstatic.ops.extrema import any as any
from tstatic.ops.extrema import max as max
from tstatic.ops.extrema import min as min
from tstatic.ops.flip import flip as flip
from tstatic.ops.flip import reverse as reverse
from tstatic.ops.flip import roll as roll
from tstatic.ops.flip import rot90 as rot90
from tstatic.ops.gather import gather as gather
from tstatic.ops.gather import gather_nd as gather_nd
from tstatic.ops.gather import index_select as index_select
from tstatic.ops.gaussian_random import normal as normal
from tstatic.ops.gaussian_random import randn as randn
from tstatic.ops.gaussian_random import standard_normal as standard_normal
from tstatic.ops.index_add import index_add as index_add
from tstatic.ops.joining import chunk as chunk
from tstatic.ops.joining import concat as concat
from tstatic.ops.joining import split as split
from tstatic.ops.joining import vsplit as vsplit
from tstatic.ops.lerp import lerp as lerp
from tstatic.ops.lerp import lerp as lerp_
from tstatic.ops.linear import addmm as addmm
from tstatic.ops.linear import inner as inner
from tstatic.ops.linear import outer as outer
from tstatic.ops.logic import bitwise_and as bitwise_and
from tstatic.ops.logic import bitwise_not as bitwise_not
from tstatic.ops.logic import bitwise_or as bitwise_or
from tstatic.ops.logic import bitwise_xor as bitwise_xor
from tstatic.ops.logic import is_empty as is_empty
from tstatic.ops.logic import isfinite as isfinite
from tstatic.ops.logic import isinf as isinf
from tstatic.ops.logic import isnan as isnan
from tstatic.ops.logic import logical_and as logical_and
from tstatic.ops.logic import logical_not as logical_not
from tstatic.ops.logic import logical_or as logical_or
from tstatic.ops.logic import logical_xor as logical_xor
from tstatic.ops.logsumexp import logsumexp as logsumexp
from tstatic.ops.masking import masked_fill as masked_fill
from tstatic.ops.masking import masked_fill_ as masked_fill_
from tstatic.ops.masking import masked_select as masked_select
from tstatic.ops.masking import nonzero as nonzero
from tstatic.ops.matmul import bmm as bmm
from tstatic.ops.matmul import matmul as matmul
from tstatic.ops.matmul import mm as mm
from tstatic.ops.matmul import mv as mv
from tstatic.ops.meshgrid import meshgrid as meshgrid
from tstatic.ops.prod import prod as prod
from tstatic.ops.put_along_axis import put_along_axis as put_along_axis
from tstatic.ops.random import randint as randint
from tstatic.ops.random import randperm as randperm
from tstatic.ops.reduction import mean as mean
from tstatic.ops.reduction import sum as sum
from tstatic.ops.repeat import repeat_interleave as repeat_interleave
from tstatic.ops.reshape import flatten as flatten
from tstatic.ops.reshape import flatten_ as flatten_
from tstatic.ops.reshape import reshape as reshape
from tstatic.ops.reshape import reshape_ as reshape_
from tstatic.ops.reshape import unflatten as unflatten
from tstatic.ops.rounding import ceil as ceil
from tstatic.ops.rounding import ceil as ceil_
from tstatic.ops.rounding import floor as floor
from tstatic.ops.rounding import floor as floor_
from tstatic.ops.rounding import frac as frac
from tstatic.ops.rounding import round as round
from tstatic.ops.rounding import round as round_
from tstatic.ops.rounding import trunc as trunc
from tstatic.ops.sampling import bernoulli as bernoulli
from tstatic.ops.sampling import multinomial as multinomial
from tstatic.ops.scale import increment as increment
from tstatic.ops.scale import scale as scale
from tstatic.ops.scale import scale as scale_
from tstatic.ops.scatter import scatter as scatter
from tstatic.ops.scatter import scatter_ as scatter_
from tstatic.ops.scatter import scatter_nd as scatter_nd
from tstatic.ops.scatter import scatter_nd_add as scatter_nd_add
from tstatic.ops.sequence import arange as arange
from tstatic.ops.sequence import linspace as linspace
from tstatic.ops.sizes import numel as numel
from tstatic.ops.sizes import rank as rank
from tstatic.ops.sizes import shape as shape
from tstatic.ops.slicing import slice_ as slice
from tstatic.ops.slicing import strided_slice as strided_slice
from tstatic.ops.squeeze import squeeze as squeeze
from tstatic.ops.squeeze import squeeze_ as squeeze_
from tstatic.ops.squeeze import unsqueeze as unsqueeze
from tstatic.ops.squeeze import unsqueeze_ as unsqueeze_
from tstatic.ops.stacking import stack as stack
from tstatic.ops.stacking import unbind as unbind
from tstatic.ops.stacking import unstack as unstack
from tstatic.ops.tiling import tile as tile
from tstatic.ops.topk import kthvalue as kthvalue
from tstatic.ops.topk import topk as topk
from tstatic.ops.transpose import moveaxis as moveaxis
from tstatic.ops.transpose import swapaxes as swapaxes
from tstatic.ops.transpose import t as t
from tstatic.ops.transpose import transpose as transpose
from tstatic.ops.transpose import transpose_ as transpose_
from tstatic.ops.triangles import tril as tril
from tstatic.ops.triangles import triu as triu
from tstatic.ops.trigonometry import acos as acos
from tstatic.ops.trigonometry import acosh as acosh
from tstatic.ops.trigonometry import asin as asin
from tstatic.ops.trigonometry import asinh as asinh
from tstatic.ops.trigonometry import atan as atan
from tstatic.ops.trigonometry import atanh as atanh
from tstatic.ops.trigonometry import cos as cos
from tstatic.ops.trigonometry import cosh as cosh
from tstatic.ops.trigonometry import sin as sin
from tstatic.ops.trigonometry import sin as sin_
from tstatic.ops.trigonometry import sinh as sinh
from tstatic.ops.trigonometry import tan as tan
from tstatic.ops.unary import abs as abs
from tstatic.ops.unary import erf as erf
from tstatic.ops.unary import exp as exp
from tstatic.ops.unary import expm1 as expm1
from tstatic.ops.unary import log as log
from tstatic.ops.unary import log10 as log10
from tstatic.ops.unary import log1p as log1p
from tstatic.ops.unary import log2 as log2
from tstatic.ops.unary import logit as logit
from tstatic.ops.unary import neg as neg
from tstatic.ops.unary import pow as pow
from tstatic.ops.unary import pow as pow_
from tstatic.ops.unary import reciprocal as reciprocal
from tstatic.ops.unary import reciprocal as reciprocal_
from tstatic.ops.unary import rsqrt as rsqrt
from tstatic.ops.unary import rsqrt as rsqrt_
from tstatic.ops.unary import sign as sign
from tstatic.ops.unary import sqrt as sqrt
from tstatic.ops.unary import sqrt as sqrt_
from tstatic.ops.unary import square as square
from tstatic.ops.uniform_random import rand as rand
from tstatic.ops.uniform_random import uniform as uniform
from tstatic.ops.unique import unique as unique
from tstatic.ops.unique import unique_consecutive as unique_consecutive
from tstatic.ops.variance import dist as dist
from tstatic.ops.variance import norm as norm
from tstatic.ops.variance import std as std
from tstatic.ops.variance import var as var
from tstatic.ops.where import where as where
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
