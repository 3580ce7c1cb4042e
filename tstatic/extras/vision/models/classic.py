"""LeNet (LeCun et al., 1998), AlexNet (Krizhevsky et al., 2012) and VGG (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from typing import Any

from tstatic.extras.vision.models._blocks import check_pretrained, network, uniform
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.functional import relu
from tstatic.nn.layer.activation import ReLU
from tstatic.nn.layer.common import Dropout, Linear
from tstatic.nn.layer.container import Sequential
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm2D
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D, MaxPool2D
from tstatic.ops.shape.reshape import flatten


@export("vision.models.LeNet")
class LeNet(Layer):
    """Two convolutions and three linear layers, for grey images ``[n, 1, 28, 28]``; 61,610 parameters for 10 classes.

    Args:
        num_classes: Outputs; with 0 there are no linear layers.

    Example:
        >>> net = paddle.vision.models.LeNet()
        >>> x = static.data("x", [None, 1, 28, 28])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.features = Sequential(
            Conv2D(1, 6, 3, stride=1, padding=1), ReLU(), MaxPool2D(2, 2),
            Conv2D(6, 16, 5, stride=1, padding=0), ReLU(), MaxPool2D(2, 2),
        )  # fmt: skip
        if num_classes > 0:
            self.fc = Sequential(Linear(400, 120), Linear(120, 84), Linear(84, num_classes))

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 1, 28, 28]``."""
        x = self.features(x)
        return self.fc(flatten(x, 1)) if self.num_classes > 0 else x


def _uniform(fan_in: int) -> dict[str, Any]:
    return uniform(fan_in, "weight_attr", "bias_attr")


class ConvPoolLayer(Layer):
    """A convolution, relu, and the largest of overlapping 3 x 3 windows."""

    def __init__(self, channels: int, filters: int, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self._conv = Conv2D(channels, filters, size, stride, padding, **_uniform(channels * size * size))
        self._pool = MaxPool2D(3, stride=2, padding=0)

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return self._pool(relu(self._conv(x)))


@export("vision.models.AlexNet")
class AlexNet(Layer):
    """Five convolutions and three linear layers, for images ``[n, 3, 224, 224]``.

    Args:
        num_classes: Outputs; with 0 there are no linear layers.

    Example:
        >>> net = paddle.vision.models.AlexNet(num_classes=10)
        >>> x = static.data("x", [None, 3, 224, 224])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.num_classes = num_classes
        self._conv1 = ConvPoolLayer(3, 64, 11, 4, 2)
        self._conv2 = ConvPoolLayer(64, 192, 5, 1, 2)
        self._conv3 = Conv2D(192, 384, 3, stride=1, padding=1, **_uniform(192 * 9))
        self._conv4 = Conv2D(384, 256, 3, stride=1, padding=1, **_uniform(384 * 9))
        self._conv5 = ConvPoolLayer(256, 256, 3, 1, 1)
        if num_classes > 0:
            self._drop1 = Dropout(0.5, mode="downscale_in_infer")
            self._fc6 = Linear(256 * 36, 4096, **_uniform(256 * 36))
            self._drop2 = Dropout(0.5, mode="downscale_in_infer")
            self._fc7 = Linear(4096, 4096, **_uniform(256 * 36))
            self._fc8 = Linear(4096, num_classes, **_uniform(256 * 36))

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, 224, 224]``."""
        x = relu(self._conv3(self._conv2(self._conv1(x))))
        x = self._conv5(relu(self._conv4(x)))
        if self.num_classes > 0:
            x = relu(self._fc6(self._drop1(flatten(x, 1))))
            x = self._fc8(relu(self._fc7(self._drop2(x))))
        return x


@export("vision.models.alexnet")
@network
def alexnet(pretrained: bool = False, **kwargs: Any) -> AlexNet:
    """Returns AlexNet."""
    check_pretrained(pretrained, "alexnet")
    return AlexNet(**kwargs)


# ----------------------------------------------------------------------------------------------------------------- VGG
STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Layers -> number of convolutions in each stage; a stage has twice the channels of the one before, up to 512."""


@export("vision.models.VGG")
class VGG(Layer):
    """Convolutions of 3 x 3, and three linear layers, for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        features: The layer of the convolutions, which gives ``[n, 512, h, w]``.
        num_classes: Outputs; with 0 there are no linear layers.
        with_pool: Whether means over 7 x 7 windows are taken.

    Example:
        >>> features = paddle.nn.Sequential(paddle.nn.Conv2D(3, 512, 3), paddle.nn.ReLU())
        >>> net = paddle.vision.models.VGG(features, num_classes=10)
        >>> x = static.data("x", [None, 3, 32, 32])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, features: Layer, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.features = features
        self.num_classes = num_classes
        self.with_pool = with_pool
        if with_pool:
            self.avgpool = AdaptiveAvgPool2D((7, 7))
        if num_classes > 0:
            self.classifier = Sequential(
                Linear(512 * 49, 4096),
                ReLU(),
                Dropout(),
                Linear(4096, 4096),
                ReLU(),
                Dropout(),
                Linear(4096, num_classes),
            )

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self.features(x)
        if self.with_pool:
            x = self.avgpool(x)
        return self.classifier(flatten(x, 1)) if self.num_classes > 0 else x


def _vgg(layers: int, batch_norm: bool, settings: dict[str, Any]) -> VGG:
    found: list[Layer] = []
    channels = 3
    for stage, count in enumerate(STAGES[layers]):
        filters = min(64 * 2**stage, 512)
        for _ in range(count):
            found += [Conv2D(channels, filters, 3, padding=1), *([BatchNorm2D(filters)] if batch_norm else []), ReLU()]
            channels = filters
        found.append(MaxPool2D(2, stride=2))
    return VGG(Sequential(*found), **settings)


@export("vision.models.vgg11")
@network
def vgg11(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """Returns VGG of 11 layers.

    Args:
        batch_norm: Whether each convolution has a batch norm.
    """
    check_pretrained(pretrained, "vgg11")
    return _vgg(11, batch_norm, kwargs)


@export("vision.models.vgg13")
@network
def vgg13(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """Returns VGG of 13 layers.

    Args:
        batch_norm: Whether each convolution has a batch norm.
    """
    check_pretrained(pretrained, "vgg13")
    return _vgg(13, batch_norm, kwargs)


@export("vision.models.vgg16")
@network
def vgg16(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """Returns VGG of 16 layers.

    Args:
        batch_norm: Whether each convolution has a batch norm.
    """
    check_pretrained(pretrained, "vgg16")
    return _vgg(16, batch_norm, kwargs)


@export("vision.models.vgg19")
@network
def vgg19(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """Returns VGG of 19 layers.

    Args:
        batch_norm: Whether each convolution has a batch norm.
    """
    check_pretrained(pretrained, "vgg19")
    return _vgg(19, batch_norm, kwargs)
