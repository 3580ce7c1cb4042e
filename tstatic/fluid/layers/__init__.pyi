# Made from the registry of public names by `make api`.
from tstatic.fluid.layers import control_flow as control_flow
from tstatic.fluid.layers import io as io
from tstatic.fluid.layers import learning_rate_scheduler as learning_rate_scheduler
from tstatic.fluid.layers import nn as nn
from tstatic.fluid.layers import ops as ops
from tstatic.fluid.layers import tensor as tensor
from tstatic.nn.nets import data as data
from tstatic.nn.param import create_global_var as create_global_var
from tstatic.nn.param import create_parameter as create_parameter
from tstatic.nn.static_conv import conv2d as conv2d
from tstatic.nn.static_conv import conv2d_transpose as conv2d_transpose
from tstatic.nn.static_conv import conv3d as conv3d
from tstatic.nn.static_linear import bilinear_tensor_product as bilinear_tensor_product
from tstatic.nn.static_linear import fluid_embedding as embedding
from tstatic.nn.static_linear import fluid_fc as fc
from tstatic.nn.static_linear import prelu as prelu
from tstatic.nn.static_norm import batch_norm as batch_norm
from tstatic.nn.static_norm import group_norm as group_norm
from tstatic.nn.static_norm import instance_norm as instance_norm
from tstatic.nn.static_norm import layer_norm as layer_norm
from tstatic.nn.static_norm import spectral_norm as spectral_norm
from tstatic.ops.control.conditional import Switch as Switch
from tstatic.ops.control.conditional import case as case
from tstatic.ops.control.conditional import cond as cond
from tstatic.ops.control.conditional import switch_case as switch_case
from tstatic.ops.control.debug import Assert as Assert
from tstatic.ops.control.debug import Print as Print
from tstatic.ops.control.loop import While as While
from tstatic.ops.control.loop import while_loop as while_loop
from tstatic.ops.control.py_func import py_func as py_func
from tstatic.ops.conv.interpolate_functions import image_resize as image_resize
from tstatic.ops.conv.interpolate_functions import resize_bilinear as resize_bilinear
from tstatic.ops.conv.interpolate_functions import resize_linear as resize_linear
from tstatic.ops.conv.interpolate_functions import resize_nearest as resize_nearest
from tstatic.ops.conv.interpolate_functions import resize_trilinear as resize_trilinear
from tstatic.ops.conv.pool_functions import adaptive_pool2d as adaptive_pool2d
from tstatic.ops.conv.pool_functions import pool2d as pool2d
from tstatic.ops.conv.unfold import unfold as unfold
from tstatic.ops.elementwise.activation import fluid_mish as mish
from tstatic.ops.elementwise.activation import fluid_softplus as softplus
from tstatic.ops.elementwise.activation import fluid_swish as swish
from tstatic.ops.elementwise.activation import gelu as gelu
from tstatic.ops.elementwise.activation import logsigmoid as logsigmoid
from tstatic.ops.elementwise.activation import sigmoid as sigmoid
from tstatic.ops.elementwise.activation import soft_relu as soft_relu
from tstatic.ops.elementwise.activation import softsign as softsign
from tstatic.ops.elementwise.activation import stanh as stanh
from tstatic.ops.elementwise.activation import tanh as tanh
from tstatic.ops.elementwise.activation import tanhshrink as tanh_shrink
from tstatic.ops.elementwise.activation_piecewise import brelu as brelu
from tstatic.ops.elementwise.activation_piecewise import elu as elu
from tstatic.ops.elementwise.activation_piecewise import fluid_leaky_relu as leaky_relu
from tstatic.ops.elementwise.activation_piecewise import fluid_relu6 as relu6
from tstatic.ops.elementwise.activation_piecewise import fluid_selu as selu
from tstatic.ops.elementwise.activation_piecewise import fluid_softshrink as softshrink
from tstatic.ops.elementwise.activation_piecewise import fluid_thresholded_relu as thresholded_relu
from tstatic.ops.elementwise.activation_piecewise import hard_shrink as hard_shrink
from tstatic.ops.elementwise.activation_piecewise import hard_sigmoid as hard_sigmoid
from tstatic.ops.elementwise.activation_piecewise import hard_swish as hard_swish
from tstatic.ops.elementwise.activation_piecewise import relu as relu
from tstatic.ops.elementwise.add_n import fluid_sum as sum
from tstatic.ops.elementwise.add_n import fluid_sum as sums
from tstatic.ops.elementwise.arithmetic import elementwise_add as elementwise_add
from tstatic.ops.elementwise.arithmetic import elementwise_div as elementwise_div
from tstatic.ops.elementwise.arithmetic import elementwise_floordiv as elementwise_floordiv
from tstatic.ops.elementwise.arithmetic import elementwise_max as elementwise_max
from tstatic.ops.elementwise.arithmetic import elementwise_min as elementwise_min
from tstatic.ops.elementwise.arithmetic import elementwise_mod as elementwise_mod
from tstatic.ops.elementwise.arithmetic import elementwise_mul as elementwise_mul
from tstatic.ops.elementwise.arithmetic import elementwise_pow as elementwise_pow
from tstatic.ops.elementwise.arithmetic import elementwise_sub as elementwise_sub
from tstatic.ops.elementwise.logic import all_finite as isfinite
from tstatic.ops.elementwise.logic import fluid_equal as equal
from tstatic.ops.elementwise.logic import fluid_greater_equal as greater_equal
from tstatic.ops.elementwise.logic import fluid_greater_than as greater_than
from tstatic.ops.elementwise.logic import fluid_is_empty as is_empty
from tstatic.ops.elementwise.logic import fluid_less_equal as less_equal
from tstatic.ops.elementwise.logic import fluid_less_than as less_than
from tstatic.ops.elementwise.logic import fluid_not_equal as not_equal
from tstatic.ops.elementwise.logic import has_inf as has_inf
from tstatic.ops.elementwise.logic import has_nan as has_nan
from tstatic.ops.elementwise.logic import logical_and as logical_and
from tstatic.ops.elementwise.logic import logical_not as logical_not
from tstatic.ops.elementwise.logic import logical_or as logical_or
from tstatic.ops.elementwise.logic import logical_xor as logical_xor
from tstatic.ops.elementwise.maxout import maxout_1x as maxout
from tstatic.ops.elementwise.scale import cast as cast
from tstatic.ops.elementwise.scale import fluid_clip as clip
from tstatic.ops.elementwise.scale import fluid_increment as increment
from tstatic.ops.elementwise.scale import scale as scale
from tstatic.ops.elementwise.unary import abs as abs
from tstatic.ops.elementwise.unary import acos as acos
from tstatic.ops.elementwise.unary import asin as asin
from tstatic.ops.elementwise.unary import atan as atan
from tstatic.ops.elementwise.unary import ceil as ceil
from tstatic.ops.elementwise.unary import cos as cos
from tstatic.ops.elementwise.unary import cosh as cosh
from tstatic.ops.elementwise.unary import erf as erf
from tstatic.ops.elementwise.unary import exp as exp
from tstatic.ops.elementwise.unary import floor as floor
from tstatic.ops.elementwise.unary import fluid_pow as pow
from tstatic.ops.elementwise.unary import log as log
from tstatic.ops.elementwise.unary import log1p as log1p
from tstatic.ops.elementwise.unary import reciprocal as reciprocal
from tstatic.ops.elementwise.unary import round as round
from tstatic.ops.elementwise.unary import rsqrt as rsqrt
from tstatic.ops.elementwise.unary import sign as sign
from tstatic.ops.elementwise.unary import sin as sin
from tstatic.ops.elementwise.unary import sinh as sinh
from tstatic.ops.elementwise.unary import sqrt as sqrt
from tstatic.ops.elementwise.unary import square as square
from tstatic.ops.elementwise.unary import tan as tan
from tstatic.ops.indexing.embedding import fluid_layers_one_hot as one_hot
from tstatic.ops.indexing.gather import fluid_gather as gather
from tstatic.ops.indexing.gather import gather_nd as gather_nd
from tstatic.ops.indexing.masking import fluid_where as where
from tstatic.ops.indexing.scatter import fluid_scatter as scatter
from tstatic.ops.indexing.scatter import fluid_scatter_nd_add as scatter_nd_add
from tstatic.ops.indexing.scatter import scatter_nd as scatter_nd
from tstatic.ops.indexing.unique import fluid_unique as unique
from tstatic.ops.indexing.unique import fluid_unique_with_counts as unique_with_counts
from tstatic.ops.loss.binary_loss import log_loss as log_loss
from tstatic.ops.loss.binary_loss import sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits
from tstatic.ops.loss.classification_loss import fluid_label_smooth as label_smooth
from tstatic.ops.loss.cross_entropy import fluid_cross_entropy as cross_entropy
from tstatic.ops.loss.metric import fluid_accuracy as accuracy
from tstatic.ops.loss.metric import fluid_auc as auc
from tstatic.ops.loss.regression_loss import bpr_loss as bpr_loss
from tstatic.ops.loss.regression_loss import dice_loss as dice_loss
from tstatic.ops.loss.regression_loss import fluid_mse_loss as mse_loss
from tstatic.ops.loss.regression_loss import fluid_smooth_l1 as smooth_l1
from tstatic.ops.loss.regression_loss import huber_loss as huber_loss
from tstatic.ops.loss.regression_loss import kldiv_loss as kldiv_loss
from tstatic.ops.loss.regression_loss import margin_rank_loss as margin_rank_loss
from tstatic.ops.loss.regression_loss import rank_loss as rank_loss
from tstatic.ops.loss.regression_loss import square_error_cost as square_error_cost
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_with_cross_entropy as softmax_with_cross_entropy
from tstatic.ops.matmul.linear import cos_sim as cos_sim
from tstatic.ops.matmul.matmul import fluid_matmul as matmul
from tstatic.ops.matmul.matmul import mul as mul
from tstatic.ops.norm.lrn import lrn as lrn
from tstatic.ops.norm.softmax import fluid_softmax as softmax
from tstatic.ops.random.distributions import gaussian_random as gaussian_random
from tstatic.ops.random.distributions import gaussian_random_batch_size_like as gaussian_random_batch_size_like
from tstatic.ops.random.distributions import uniform_random as uniform_random
from tstatic.ops.random.distributions import uniform_random_batch_size_like as uniform_random_batch_size_like
from tstatic.ops.random.dropout import fluid_dropout as dropout
from tstatic.ops.random.sampling import sampling_id as sampling_id
from tstatic.ops.reduce.cumsum import fluid_cumsum as cumsum
from tstatic.ops.reduce.extrema import reduce_all as reduce_all
from tstatic.ops.reduce.extrema import reduce_any as reduce_any
from tstatic.ops.reduce.extrema import reduce_max as reduce_max
from tstatic.ops.reduce.extrema import reduce_min as reduce_min
from tstatic.ops.reduce.ordering import fluid_argmax as argmax
from tstatic.ops.reduce.ordering import fluid_argmin as argmin
from tstatic.ops.reduce.ordering import fluid_argsort as argsort
from tstatic.ops.reduce.ordering import fluid_topk as topk
from tstatic.ops.reduce.reduction import fluid_mean as mean
from tstatic.ops.reduce.reduction import reduce_mean as reduce_mean
from tstatic.ops.reduce.reduction import reduce_prod as reduce_prod
from tstatic.ops.reduce.reduction import reduce_sum as reduce_sum
from tstatic.ops.reduce.vector_norm import clip_by_norm as clip_by_norm
from tstatic.ops.reduce.vector_norm import l2_normalize as l2_normalize
from tstatic.ops.shape.creation import assign as assign
from tstatic.ops.shape.creation import create_tensor as create_tensor
from tstatic.ops.shape.creation import fill_constant as fill_constant
from tstatic.ops.shape.creation import fill_constant_batch_size_like as fill_constant_batch_size_like
from tstatic.ops.shape.creation import fluid_ones as ones
from tstatic.ops.shape.creation import fluid_ones_like as ones_like
from tstatic.ops.shape.creation import fluid_zeros as zeros
from tstatic.ops.shape.creation import fluid_zeros_like as zeros_like
from tstatic.ops.shape.diagonal import fluid_diag as diag
from tstatic.ops.shape.diagonal import fluid_eye as eye
from tstatic.ops.shape.diagonal import tril as tril
from tstatic.ops.shape.diagonal import triu as triu
from tstatic.ops.shape.expanding import fluid_expand as expand
from tstatic.ops.shape.expanding import fluid_expand_as as expand_as
from tstatic.ops.shape.joining import fluid_concat as concat
from tstatic.ops.shape.joining import fluid_split as split
from tstatic.ops.shape.joining import stack as stack
from tstatic.ops.shape.joining import unbind as unbind
from tstatic.ops.shape.joining import unstack as unstack
from tstatic.ops.shape.pad import fluid_pad as pad
from tstatic.ops.shape.pad import pad2d as pad2d
from tstatic.ops.shape.reshape import fluid_flatten as flatten
from tstatic.ops.shape.reshape import fluid_reshape as reshape
from tstatic.ops.shape.reshape import fluid_squeeze as squeeze
from tstatic.ops.shape.reshape import fluid_unsqueeze as unsqueeze
from tstatic.ops.shape.sequence import fluid_size as size
from tstatic.ops.shape.sequence import linspace as linspace
from tstatic.ops.shape.sequence import range_ as range
from tstatic.ops.shape.sequence import rank as rank
from tstatic.ops.shape.sequence import shape as shape
from tstatic.ops.shape.slicing import crop as crop_tensor
from tstatic.ops.shape.slicing import fluid_crop as crop
from tstatic.ops.shape.slicing import fluid_strided_slice as strided_slice
from tstatic.ops.shape.slicing import slice_ as slice
from tstatic.ops.shape.transpose import reverse as reverse
from tstatic.ops.shape.transpose import transpose as transpose
from tstatic.ops.shape.vision import pixel_shuffle_1x as pixel_shuffle
from tstatic.ops.shape.vision import shuffle_channel as shuffle_channel
from tstatic.ops.shape.vision import space_to_depth as space_to_depth
from tstatic.optimizer.decay_ops import autoincreased_step_counter as autoincreased_step_counter
from tstatic.optimizer.decay_ops import cosine_decay as cosine_decay
from tstatic.optimizer.decay_ops import exponential_decay as exponential_decay
from tstatic.optimizer.decay_ops import inverse_time_decay as inverse_time_decay
from tstatic.optimizer.decay_ops import linear_lr_warmup as linear_lr_warmup
from tstatic.optimizer.decay_ops import natural_exp_decay as natural_exp_decay
from tstatic.optimizer.decay_ops import noam_decay as noam_decay
from tstatic.optimizer.decay_ops import piecewise_decay as piecewise_decay
from tstatic.optimizer.decay_ops import polynomial_decay as polynomial_decay

__all__ = [
    "Assert",
    "Print",
    "Switch",
    "While",
    "abs",
    "accuracy",
    "acos",
    "adaptive_pool2d",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "assign",
    "atan",
    "auc",
    "autoincreased_step_counter",
    "batch_norm",
    "bilinear_tensor_product",
    "bpr_loss",
    "brelu",
    "case",
    "cast",
    "ceil",
    "clip",
    "clip_by_norm",
    "concat",
    "cond",
    "control_flow",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "cos",
    "cos_sim",
    "cosh",
    "cosine_decay",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "crop",
    "crop_tensor",
    "cross_entropy",
    "cumsum",
    "data",
    "diag",
    "dice_loss",
    "dropout",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "elu",
    "embedding",
    "equal",
    "erf",
    "exp",
    "expand",
    "expand_as",
    "exponential_decay",
    "eye",
    "fc",
    "fill_constant",
    "fill_constant_batch_size_like",
    "flatten",
    "floor",
    "gather",
    "gather_nd",
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "gelu",
    "greater_equal",
    "greater_than",
    "group_norm",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "has_inf",
    "has_nan",
    "huber_loss",
    "image_resize",
    "increment",
    "instance_norm",
    "inverse_time_decay",
    "io",
    "is_empty",
    "isfinite",
    "kldiv_loss",
    "l2_normalize",
    "label_smooth",
    "layer_norm",
    "leaky_relu",
    "learning_rate_scheduler",
    "less_equal",
    "less_than",
    "linear_lr_warmup",
    "linspace",
    "log",
    "log1p",
    "log_loss",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsigmoid",
    "lrn",
    "margin_rank_loss",
    "matmul",
    "maxout",
    "mean",
    "mish",
    "mse_loss",
    "mul",
    "natural_exp_decay",
    "nn",
    "noam_decay",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "ops",
    "pad",
    "pad2d",
    "piecewise_decay",
    "pixel_shuffle",
    "polynomial_decay",
    "pool2d",
    "pow",
    "prelu",
    "py_func",
    "range",
    "rank",
    "rank_loss",
    "reciprocal",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "relu",
    "relu6",
    "reshape",
    "resize_bilinear",
    "resize_linear",
    "resize_nearest",
    "resize_trilinear",
    "reverse",
    "round",
    "rsqrt",
    "sampling_id",
    "scale",
    "scatter",
    "scatter_nd",
    "scatter_nd_add",
    "selu",
    "shape",
    "shuffle_channel",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "sign",
    "sin",
    "sinh",
    "size",
    "slice",
    "smooth_l1",
    "soft_relu",
    "softmax",
    "softmax_with_cross_entropy",
    "softplus",
    "softshrink",
    "softsign",
    "space_to_depth",
    "spectral_norm",
    "split",
    "sqrt",
    "square",
    "square_error_cost",
    "squeeze",
    "stack",
    "stanh",
    "strided_slice",
    "sum",
    "sums",
    "swish",
    "switch_case",
    "tan",
    "tanh",
    "tanh_shrink",
    "tensor",
    "thresholded_relu",
    "topk",
    "transpose",
    "tril",
    "triu",
    "unbind",
    "unfold",
    "uniform_random",
    "uniform_random_batch_size_like",
    "unique",
    "unique_with_counts",
    "unsqueeze",
    "unstack",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]
