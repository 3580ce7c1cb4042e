# Made from the registry of public names by `make api`.
from tstatic.ops.conv.conv import conv1d as conv1d
from tstatic.ops.conv.conv import conv1d_transpose as conv1d_transpose
from tstatic.ops.conv.conv import conv2d as conv2d
from tstatic.ops.conv.conv import conv2d_transpose as conv2d_transpose
from tstatic.ops.conv.conv import conv3d as conv3d
from tstatic.ops.conv.interpolate_functions import interpolate as interpolate
from tstatic.ops.conv.interpolate_functions import upsample as upsample
from tstatic.ops.conv.pool_functions import adaptive_avg_pool1d as adaptive_avg_pool1d
from tstatic.ops.conv.pool_functions import adaptive_avg_pool2d as adaptive_avg_pool2d
from tstatic.ops.conv.pool_functions import adaptive_max_pool1d as adaptive_max_pool1d
from tstatic.ops.conv.pool_functions import adaptive_max_pool2d as adaptive_max_pool2d
from tstatic.ops.conv.pool_functions import avg_pool1d as avg_pool1d
from tstatic.ops.conv.pool_functions import avg_pool2d as avg_pool2d
from tstatic.ops.conv.pool_functions import max_pool1d as max_pool1d
from tstatic.ops.conv.pool_functions import max_pool2d as max_pool2d
from tstatic.ops.conv.unfold import fold as fold
from tstatic.ops.conv.unfold import unfold as unfold
from tstatic.ops.elementwise.activation import gelu as gelu
from tstatic.ops.elementwise.activation import log_sigmoid as log_sigmoid
from tstatic.ops.elementwise.activation import mish as mish
from tstatic.ops.elementwise.activation import sigmoid as sigmoid
from tstatic.ops.elementwise.activation import silu as silu
from tstatic.ops.elementwise.activation import softplus as softplus
from tstatic.ops.elementwise.activation import softsign as softsign
from tstatic.ops.elementwise.activation import swish as swish
from tstatic.ops.elementwise.activation import tanh as tanh
from tstatic.ops.elementwise.activation import tanh as tanh_
from tstatic.ops.elementwise.activation import tanhshrink as tanhshrink
from tstatic.ops.elementwise.activation_piecewise import celu as celu
from tstatic.ops.elementwise.activation_piecewise import elu as elu
from tstatic.ops.elementwise.activation_piecewise import elu as elu_
from tstatic.ops.elementwise.activation_piecewise import hardshrink as hardshrink
from tstatic.ops.elementwise.activation_piecewise import hardsigmoid as hardsigmoid
from tstatic.ops.elementwise.activation_piecewise import hardswish as hardswish
from tstatic.ops.elementwise.activation_piecewise import hardtanh as hardtanh
from tstatic.ops.elementwise.activation_piecewise import hardtanh as hardtanh_
from tstatic.ops.elementwise.activation_piecewise import leaky_relu as leaky_relu
from tstatic.ops.elementwise.activation_piecewise import leaky_relu as leaky_relu_
from tstatic.ops.elementwise.activation_piecewise import prelu as prelu
from tstatic.ops.elementwise.activation_piecewise import relu as relu
from tstatic.ops.elementwise.activation_piecewise import relu as relu_
from tstatic.ops.elementwise.activation_piecewise import relu6 as relu6
from tstatic.ops.elementwise.activation_piecewise import selu as selu
from tstatic.ops.elementwise.activation_piecewise import softshrink as softshrink
from tstatic.ops.elementwise.activation_piecewise import thresholded_relu as thresholded_relu
from tstatic.ops.elementwise.activation_piecewise import thresholded_relu as thresholded_relu_
from tstatic.ops.elementwise.maxout import maxout as maxout
from tstatic.ops.indexing.embedding import embedding as embedding
from tstatic.ops.indexing.embedding import one_hot as one_hot
from tstatic.ops.loss.binary_loss import binary_cross_entropy as binary_cross_entropy
from tstatic.ops.loss.binary_loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from tstatic.ops.loss.binary_loss import log_loss as log_loss
from tstatic.ops.loss.binary_loss import sigmoid_focal_loss as sigmoid_focal_loss
from tstatic.ops.loss.classification_loss import cross_entropy as cross_entropy
from tstatic.ops.loss.classification_loss import label_smooth as label_smooth
from tstatic.ops.loss.classification_loss import nll_loss as nll_loss
from tstatic.ops.loss.regression_loss import dice_loss as dice_loss
from tstatic.ops.loss.regression_loss import kl_div as kl_div
from tstatic.ops.loss.regression_loss import l1_loss as l1_loss
from tstatic.ops.loss.regression_loss import margin_ranking_loss as margin_ranking_loss
from tstatic.ops.loss.regression_loss import mse_loss as mse_loss
from tstatic.ops.loss.regression_loss import smooth_l1_loss as smooth_l1_loss
from tstatic.ops.loss.regression_loss import square_error_cost as square_error_cost
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_with_cross_entropy as softmax_with_cross_entropy
from tstatic.ops.matmul.linear import bilinear as bilinear
from tstatic.ops.matmul.linear import cosine_similarity as cosine_similarity
from tstatic.ops.matmul.linear import linear as linear
from tstatic.ops.norm.batch_norm import batch_norm as batch_norm
from tstatic.ops.norm.group_norm import group_norm as group_norm
from tstatic.ops.norm.group_norm import instance_norm as instance_norm
from tstatic.ops.norm.layer_norm import layer_norm as layer_norm
from tstatic.ops.norm.lrn import local_response_norm as local_response_norm
from tstatic.ops.norm.softmax import log_softmax as log_softmax
from tstatic.ops.norm.softmax import softmax as softmax
from tstatic.ops.norm.softmax import softmax as softmax_
from tstatic.ops.random.dropout import dropout as dropout
from tstatic.ops.random.dropout import dropout2d as dropout2d
from tstatic.ops.random.dropout import dropout3d as dropout3d
from tstatic.ops.reduce.vector_norm import normalize as normalize
from tstatic.ops.shape.pad import pad as pad
from tstatic.ops.shape.pad import zeropad2d as zeropad2d
from tstatic.ops.shape.vision import channel_shuffle as channel_shuffle
from tstatic.ops.shape.vision import pixel_shuffle as pixel_shuffle
from tstatic.ops.shape.vision import pixel_unshuffle as pixel_unshuffle

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "cosine_similarity",
    "cross_entropy",
    "dice_loss",
    "dropout",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "fold",
    "gelu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "label_smooth",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_loss",
    "log_sigmoid",
    "log_softmax",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "maxout",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "selu",
    "sigmoid",
    "sigmoid_focal_loss",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmax_",
    "softmax_with_cross_entropy",
    "softplus",
    "softshrink",
    "softsign",
    "square_error_cost",
    "swish",
    "tanh",
    "tanh_",
    "tanhshrink",
    "thresholded_relu",
    "thresholded_relu_",
    "unfold",
    "upsample",
    "zeropad2d",
]
