# Made from the registry of public names by `make api`.
from tstatic.ir.program import Variable
from tstatic.nn import clip as clip
from tstatic.nn import functional as functional
from tstatic.nn import initializer as initializer
from tstatic.nn import layer as layer
from tstatic.nn import nets as nets
from tstatic.nn import param as param
from tstatic.nn import regularizer as regularizer
from tstatic.nn import static_conv as static_conv
from tstatic.nn import static_linear as static_linear
from tstatic.nn import static_norm as static_norm
from tstatic.nn import utils as utils
from tstatic.nn.clip import ClipGradByGlobalNorm as ClipGradByGlobalNorm
from tstatic.nn.clip import ClipGradByNorm as ClipGradByNorm
from tstatic.nn.clip import ClipGradByValue as ClipGradByValue
from tstatic.nn.layer import loss as loss
from tstatic.nn.layer.activation import PReLU as PReLU
from tstatic.nn.layer.activation import Softmax2D as Softmax2D
from tstatic.nn.layer.common import Bilinear as Bilinear
from tstatic.nn.layer.common import Embedding as Embedding
from tstatic.nn.layer.common import Flatten as Flatten
from tstatic.nn.layer.common import Identity as Identity
from tstatic.nn.layer.common import Linear as Linear
from tstatic.nn.layer.common import Pad1D as Pad1D
from tstatic.nn.layer.common import Pad2D as Pad2D
from tstatic.nn.layer.common import Pad3D as Pad3D
from tstatic.nn.layer.common import UpsamplingBilinear2D as UpsamplingBilinear2D
from tstatic.nn.layer.common import UpsamplingNearest2D as UpsamplingNearest2D
from tstatic.nn.layer.common import ZeroPad2D as ZeroPad2D
from tstatic.nn.layer.container import LayerDict as LayerDict
from tstatic.nn.layer.container import LayerList as LayerList
from tstatic.nn.layer.container import ParameterList as ParameterList
from tstatic.nn.layer.container import Sequential as Sequential
from tstatic.nn.layer.conv import Conv1D as Conv1D
from tstatic.nn.layer.conv import Conv1DTranspose as Conv1DTranspose
from tstatic.nn.layer.conv import Conv2D as Conv2D
from tstatic.nn.layer.conv import Conv2DTranspose as Conv2DTranspose
from tstatic.nn.layer.conv import Conv3D as Conv3D
from tstatic.nn.layer.functional_layer import FunctionalLayer as _FunctionalLayer
from tstatic.nn.layer.layers import Layer as Layer
from tstatic.nn.layer.norm import BatchNorm as BatchNorm
from tstatic.nn.layer.norm import BatchNorm1D as BatchNorm1D
from tstatic.nn.layer.norm import BatchNorm2D as BatchNorm2D
from tstatic.nn.layer.norm import BatchNorm3D as BatchNorm3D
from tstatic.nn.layer.norm import GroupNorm as GroupNorm
from tstatic.nn.layer.norm import InstanceNorm1D as InstanceNorm1D
from tstatic.nn.layer.norm import InstanceNorm2D as InstanceNorm2D
from tstatic.nn.layer.norm import InstanceNorm3D as InstanceNorm3D
from tstatic.nn.layer.norm import LayerNorm as LayerNorm
from tstatic.nn.layer.norm import SpectralNorm as SpectralNorm
from tstatic.nn.layer.norm import SyncBatchNorm as SyncBatchNorm
from tstatic.nn.layer.transformer import MultiHeadAttention as MultiHeadAttention
from tstatic.nn.layer.transformer import Transformer as Transformer
from tstatic.nn.layer.transformer import TransformerDecoder as TransformerDecoder
from tstatic.nn.layer.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from tstatic.nn.layer.transformer import TransformerEncoder as TransformerEncoder
from tstatic.nn.layer.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.ops.reduce.vector_norm import clip_by_norm as clip_by_norm
from typing import Any

class AdaptiveAvgPool1D(_FunctionalLayer):
    def __init__(self, output_size: Any, name: str | None = ...) -> None: ...

class AdaptiveAvgPool2D(_FunctionalLayer):
    def __init__(self, output_size: Any, data_format: str = ..., name: str | None = ...) -> None: ...

class AdaptiveMaxPool1D(_FunctionalLayer):
    def __init__(self, output_size: Any, return_mask: bool = ..., name: str | None = ...) -> None: ...

class AdaptiveMaxPool2D(_FunctionalLayer):
    def __init__(self, output_size: Any, return_mask: bool = ..., name: str | None = ...) -> None: ...

class AvgPool1D(_FunctionalLayer):
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., exclusive: bool = ..., ceil_mode: bool = ..., name: str | None = ...) -> None: ...

class AvgPool2D(_FunctionalLayer):
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., ceil_mode: bool = ..., exclusive: bool = ..., divisor_override: float | None = ..., data_format: str = ..., name: str | None = ...) -> None: ...

class BCELoss(_FunctionalLayer):
    def __init__(self, weight: Variable | None = ..., reduction: str = ..., name: str | None = ...) -> None: ...

class BCEWithLogitsLoss(_FunctionalLayer):
    def __init__(self, weight: Variable | None = ..., reduction: str = ..., pos_weight: Variable | None = ..., name: str | None = ...) -> None: ...

class CELU(_FunctionalLayer):
    def __init__(self, alpha: float = ..., name: str | None = ...) -> None: ...

class ChannelShuffle(_FunctionalLayer):
    def __init__(self, groups: int, data_format: str = ..., name: str | None = ...) -> None: ...

class CosineSimilarity(_FunctionalLayer):
    def __init__(self, axis: int = ..., eps: float = ...) -> None: ...

class CrossEntropyLoss(_FunctionalLayer):
    def __init__(self, weight: Variable | None = ..., ignore_index: int = ..., reduction: str = ..., soft_label: bool = ..., axis: int = ..., use_softmax: bool = ..., label_smoothing: float = ..., name: str | None = ...) -> None: ...

class Dropout(_FunctionalLayer):
    def __init__(self, p: float = ..., axis: Any = ..., mode: str = ..., name: str | None = ...) -> None: ...

class Dropout2D(_FunctionalLayer):
    def __init__(self, p: float = ..., data_format: str = ..., name: str | None = ...) -> None: ...

class Dropout3D(_FunctionalLayer):
    def __init__(self, p: float = ..., data_format: str = ..., name: str | None = ...) -> None: ...

class ELU(_FunctionalLayer):
    def __init__(self, alpha: float = ..., name: str | None = ...) -> None: ...

class Fold(_FunctionalLayer):
    def __init__(self, output_sizes: Any, kernel_sizes: Any, dilations: Any = ..., paddings: Any = ..., strides: Any = ..., name: str | None = ...) -> None: ...

class GELU(_FunctionalLayer):
    def __init__(self, approximate: bool = ..., name: str | None = ...) -> None: ...

class Hardshrink(_FunctionalLayer):
    def __init__(self, threshold: float = ..., name: str | None = ...) -> None: ...

class Hardsigmoid(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Hardswish(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Hardtanh(_FunctionalLayer):
    def __init__(self, min: float = ..., max: float = ..., name: str | None = ...) -> None: ...

class KLDivLoss(_FunctionalLayer):
    def __init__(self, reduction: str = ..., name: str | None = ...) -> None: ...

class L1Loss(_FunctionalLayer):
    def __init__(self, reduction: str = ..., name: str | None = ...) -> None: ...

class LeakyReLU(_FunctionalLayer):
    def __init__(self, negative_slope: float = ..., name: str | None = ...) -> None: ...

class LocalResponseNorm(_FunctionalLayer):
    def __init__(self, size: int, alpha: float = ..., beta: float = ..., k: float = ..., data_format: str = ..., name: str | None = ...) -> None: ...

class LogSigmoid(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class LogSoftmax(_FunctionalLayer):
    def __init__(self, axis: int = ..., name: str | None = ...) -> None: ...

class MSELoss(_FunctionalLayer):
    def __init__(self, reduction: str = ..., name: str | None = ...) -> None: ...

class MarginRankingLoss(_FunctionalLayer):
    def __init__(self, margin: float = ..., reduction: str = ..., name: str | None = ...) -> None: ...

class MaxPool1D(_FunctionalLayer):
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., return_mask: bool = ..., ceil_mode: bool = ..., name: str | None = ...) -> None: ...

class MaxPool2D(_FunctionalLayer):
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., return_mask: bool = ..., ceil_mode: bool = ..., data_format: str = ..., name: str | None = ...) -> None: ...

class Maxout(_FunctionalLayer):
    def __init__(self, groups: int, axis: int = ..., name: str | None = ...) -> None: ...

class Mish(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class NLLLoss(_FunctionalLayer):
    def __init__(self, weight: Variable | None = ..., ignore_index: int = ..., reduction: str = ..., name: str | None = ...) -> None: ...

class PixelShuffle(_FunctionalLayer):
    def __init__(self, upscale_factor: int, data_format: str = ..., name: str | None = ...) -> None: ...

class PixelUnshuffle(_FunctionalLayer):
    def __init__(self, downscale_factor: int, data_format: str = ..., name: str | None = ...) -> None: ...

class ReLU(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class ReLU6(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class SELU(_FunctionalLayer):
    def __init__(self, scale: float = ..., alpha: float = ..., name: str | None = ...) -> None: ...

class Sigmoid(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Silu(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class SmoothL1Loss(_FunctionalLayer):
    def __init__(self, reduction: str = ..., delta: float = ..., name: str | None = ...) -> None: ...

class Softmax(_FunctionalLayer):
    def __init__(self, axis: int = ..., name: str | None = ...) -> None: ...

class Softplus(_FunctionalLayer):
    def __init__(self, beta: float = ..., threshold: float = ..., name: str | None = ...) -> None: ...

class Softshrink(_FunctionalLayer):
    def __init__(self, threshold: float = ..., name: str | None = ...) -> None: ...

class Softsign(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Swish(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Tanh(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class Tanhshrink(_FunctionalLayer):
    def __init__(self, name: str | None = ...) -> None: ...

class ThresholdedReLU(_FunctionalLayer):
    def __init__(self, threshold: float = ..., name: str | None = ...) -> None: ...

class Unfold(_FunctionalLayer):
    def __init__(self, kernel_sizes: Any, dilations: Any = ..., paddings: Any = ..., strides: Any = ..., name: str | None = ...) -> None: ...

class Upsample(_FunctionalLayer):
    def __init__(self, size: Any = ..., scale_factor: Any = ..., mode: str = ..., align_corners: bool = ..., align_mode: int = ..., data_format: str = ..., name: str | None = ...) -> None: ...

__all__ = [
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D",
    "AvgPool1D",
    "AvgPool2D",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm",
    "BatchNorm1D",
    "BatchNorm2D",
    "BatchNorm3D",
    "Bilinear",
    "CELU",
    "ChannelShuffle",
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout2D",
    "Dropout3D",
    "ELU",
    "Embedding",
    "Flatten",
    "Fold",
    "GELU",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "InstanceNorm1D",
    "InstanceNorm2D",
    "InstanceNorm3D",
    "KLDivLoss",
    "L1Loss",
    "Layer",
    "LayerDict",
    "LayerList",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MaxPool1D",
    "MaxPool2D",
    "Maxout",
    "Mish",
    "MultiHeadAttention",
    "NLLLoss",
    "PReLU",
    "Pad1D",
    "Pad2D",
    "Pad3D",
    "ParamAttr",
    "ParameterList",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReLU",
    "ReLU6",
    "SELU",
    "Sequential",
    "Sigmoid",
    "Silu",
    "SmoothL1Loss",
    "Softmax",
    "Softmax2D",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SpectralNorm",
    "Swish",
    "SyncBatchNorm",
    "Tanh",
    "Tanhshrink",
    "ThresholdedReLU",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2D",
    "UpsamplingNearest2D",
    "ZeroPad2D",
    "clip",
    "clip_by_norm",
    "functional",
    "initializer",
    "layer",
    "loss",
    "nets",
    "param",
    "regularizer",
    "static_conv",
    "static_linear",
    "static_norm",
    "utils",
]
