"""DenseNet (Huang et al., 2017): each layer reads what all layers before it in its block gave."""

from __future__ import annotations

from typing import Any

from tstatic.extras.vision.models._blocks import Branches, PooledClassifier, check_pretrained, network, uniform
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.common import Dropout
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm
from tstatic.nn.layer.pooling import AvgPool2D, MaxPool2D

SPECS = {
    121: (64, 32, (6, 12, 24, 16)), 161: (96, 48, (6, 12, 36, 24)), 169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)), 264: (64, 32, (6, 12, 64, 48)),
}  # fmt: skip
"""Layers -> channels of the first convolution, channels that each layer adds, layers in each block."""


def _conv(channels: int, filters: int, size: int, stride: int = 1) -> Conv2D:
    return Conv2D(channels, filters, size, stride, (size - 1) // 2, bias_attr=False)


def _norm_conv(channels: int, filters: int, size: int) -> Branches:
    return Branches({"_batch_norm": BatchNorm(channels, act="relu"), "_conv": _conv(channels, filters, size)})


def _dense_layer(channels: int, growth: int, bn_size: int, dropout: float) -> Branches:
    """Returns a layer that joins its input and the channels that it makes of it."""
    inside = bn_size * growth
    layers: dict[str, Layer] = {
        "bn_ac_func1": _norm_conv(channels, inside, 1), "bn_ac_func2": _norm_conv(inside, growth, 3),
    }  # fmt: skip
    if dropout:
        layers["dropout_func"] = Dropout(dropout, mode="downscale_in_infer")
    return Branches(layers, ([], list(layers)))


@export("vision.models.DenseNet")
class DenseNet(PooledClassifier):
    """A network of dense blocks for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        layers: 121, 161, 169, 201 or 264.
        bn_size: How many times the channels that a layer adds are inside of it.
        dropout: Share of the values that each layer drops in training.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: For another number of layers.

    Example:
        >>> net = paddle.vision.models.DenseNet(121, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(
        self, layers: int = 121, bn_size: int = 4, dropout: float = 0.0, num_classes: int = 1000, with_pool: bool = True
    ) -> None:
        super().__init__(num_classes, with_pool)
        channels, growth, counts = SPECS[check_choice(layers, tuple(SPECS), "layers", "DenseNet")]
        self.conv1_func = Branches({"_conv": _conv(3, channels, 7, 2), "_batch_norm": BatchNorm(channels, act="relu")})
        self.pool2d_max = MaxPool2D(3, stride=2, padding=1)
        self._blocks: list[str] = []
        for stage, count in enumerate(counts, 2):
            block: dict[str, Layer] = {}
            for i in range(count):
                block[f"conv{stage}_{i + 1}"] = _dense_layer(channels, growth, bn_size, dropout)
                channels += growth
            self._add(f"db_conv_{stage}", Branches(block))
            if stage <= len(counts):
                half = {"conv_ac_func": _norm_conv(channels, channels // 2, 1), "pool2d_avg": AvgPool2D(2, stride=2)}
                self._add(f"tr_conv{stage}_blk", Branches(half))
                channels //= 2
        self.batch_norm = BatchNorm(channels, act="relu")
        self._add_end("out", channels, **uniform(channels, "weight_attr"))

    def _add(self, name: str, layer: Layer) -> None:
        self._blocks.append(name)
        self.add_sublayer(name, layer)

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self.pool2d_max(self.conv1_func(x))
        for name in self._blocks:
            x = getattr(self, name)(x)
        return self._end(self.batch_norm(x))


@export("vision.models.densenet121")
@network
def densenet121(pretrained: bool = False, **kwargs: Any) -> DenseNet:
    """Returns DenseNet of 121 layers."""
    check_pretrained(pretrained, "densenet121")
    return DenseNet(121, **kwargs)


@export("vision.models.densenet161")
@network
def densenet161(pretrained: bool = False, **kwargs: Any) -> DenseNet:
    """Returns DenseNet of 161 layers."""
    check_pretrained(pretrained, "densenet161")
    return DenseNet(161, **kwargs)


@export("vision.models.densenet169")
@network
def densenet169(pretrained: bool = False, **kwargs: Any) -> DenseNet:
    """Returns DenseNet of 169 layers."""
    check_pretrained(pretrained, "densenet169")
    return DenseNet(169, **kwargs)


@export("vision.models.densenet201")
@network
def densenet201(pretrained: bool = False, **kwargs: Any) -> DenseNet:
    """Returns DenseNet of 201 layers."""
    check_pretrained(pretrained, "densenet201")
    return DenseNet(201, **kwargs)


@export("vision.models.densenet264")
@network
def densenet264(pretrained: bool = False, **kwargs: Any) -> DenseNet:
    """Returns DenseNet of 264 layers."""
    check_pretrained(pretrained, "densenet264")
    return DenseNet(264, **kwargs)
