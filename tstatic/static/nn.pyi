# Made from the registry of public names by `make api`.
from tstatic.nn.static_conv import conv2d as conv2d
from tstatic.nn.static_conv import conv2d_transpose as conv2d_transpose
from tstatic.nn.static_conv import conv3d as conv3d
from tstatic.nn.static_linear import bilinear_tensor_product as bilinear_tensor_product
from tstatic.nn.static_linear import embedding as embedding
from tstatic.nn.static_linear import fc as fc
from tstatic.nn.static_linear import prelu as prelu
from tstatic.nn.static_norm import batch_norm as batch_norm
from tstatic.nn.static_norm import group_norm as group_norm
from tstatic.nn.static_norm import instance_norm as instance_norm
from tstatic.nn.static_norm import layer_norm as layer_norm
from tstatic.nn.static_norm import spectral_norm as spectral_norm
from tstatic.ops.control.conditional import case as case
from tstatic.ops.control.conditional import cond as cond
from tstatic.ops.control.conditional import switch_case as switch_case
from tstatic.ops.control.debug import Assert as Assert
from tstatic.ops.control.loop import While as While
from tstatic.ops.control.loop import while_loop as while_loop
from tstatic.ops.control.py_func import py_func as py_func

__all__ = [
    "Assert",
    "While",
    "batch_norm",
    "bilinear_tensor_product",
    "case",
    "cond",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "embedding",
    "fc",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "prelu",
    "py_func",
    "spectral_norm",
    "switch_case",
    "while_loop",
]
