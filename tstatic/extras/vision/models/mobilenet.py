"""MobileNet (Howard et al., 2017), its second (Sandler et al., 2018) and its third version (Howard et al., 2019)."""

from __future__ import annotations

import functools
from typing import Any

from tstatic.extras.vision.models._blocks import Branches, PooledClassifier, check_pretrained, conv_norm, network
from tstatic.ir.checks import check_number
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.activation import Hardsigmoid, Hardswish, ReLU, ReLU6
from tstatic.nn.layer.common import Dropout, Linear
from tstatic.nn.layer.container import Sequential
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm2D
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D

STAGES_1 = {
    "conv2_1": (32, 64, 1), "conv2_2": (64, 128, 2), "conv3_1": (128, 128, 1), "conv3_2": (128, 256, 2),
    "conv4_1": (256, 256, 1), "conv4_2": (256, 512, 2), **{f"conv5_{i}": (512, 512, 1) for i in range(1, 6)},
    "conv5_6": (512, 1024, 2), "conv6": (1024, 1024, 1),
}  # fmt: skip
"""Name -> channels, filters and stride of the first version's parts."""

STAGES_2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Growth of the channels inside, filters, number of parts and first stride of the second version's stages."""

SMALL_3 = (
    (3, 16, 16, True, ReLU, 2), (3, 72, 24, False, ReLU, 2), (3, 88, 24, False, ReLU, 1), (5, 96, 40, True, Hardswish, 2),
    (5, 240, 40, True, Hardswish, 1), (5, 240, 40, True, Hardswish, 1), (5, 120, 48, True, Hardswish, 1),
    (5, 144, 48, True, Hardswish, 1), (5, 288, 96, True, Hardswish, 2), (5, 576, 96, True, Hardswish, 1),
    (5, 576, 96, True, Hardswish, 1),
)  # fmt: skip
"""Size, channels inside, filters, whether channels are weighed, activation and stride of the third version's parts."""
LARGE_3 = (
    (3, 16, 16, False, ReLU, 1), (3, 64, 24, False, ReLU, 2), (3, 72, 24, False, ReLU, 1), (5, 72, 40, True, ReLU, 2),
    (5, 120, 40, True, ReLU, 1), (5, 120, 40, True, ReLU, 1), (3, 240, 80, False, Hardswish, 2),
    (3, 200, 80, False, Hardswish, 1), (3, 184, 80, False, Hardswish, 1), (3, 184, 80, False, Hardswish, 1),
    (3, 480, 112, True, Hardswish, 1), (3, 672, 112, True, Hardswish, 1), (5, 672, 160, True, Hardswish, 2),
    (5, 960, 160, True, Hardswish, 1), (5, 960, 160, True, Hardswish, 1),
)  # fmt: skip
"""The same of its larger form."""


class DepthwiseSeparable(Layer):
    """A convolution of 3 x 3 per channel, then one of 1 x 1."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self._depthwise_conv = conv_norm(channels, channels, 3, stride, groups=channels)
        self._pointwise_conv = conv_norm(channels, filters, 1)

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return self._pointwise_conv(self._depthwise_conv(x))


@export("vision.models.MobileNetV1")
class MobileNetV1(PooledClassifier):
    """A network of depthwise convolutions for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        scale: Factor of all channels, above 0.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: If ``scale`` is not above 0.

    Example:
        >>> net = paddle.vision.models.MobileNetV1(scale=0.25, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.scale = check_number(scale, "scale", "MobileNetV1", above=0)
        self.conv1 = conv_norm(3, int(32 * scale), 3, 2)
        for name, (channels, filters, stride) in STAGES_1.items():
            self.add_sublayer(name, DepthwiseSeparable(int(channels * scale), int(filters * scale), stride))
        self._add_end("fc", int(1024 * scale))

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self.conv1(x)
        for name in STAGES_1:
            x = getattr(self, name)(x)
        return self._end(x)


def _rounded(channels: float) -> int:
    """Returns the next multiple of 8 that is at least nine tenths of a number, and 8 at least."""
    found = max(8, int(channels + 4) // 8 * 8)
    return found + 8 if found < 0.9 * channels else found


class InvertedResidual(Layer):
    """A convolution of 1 x 1 to more channels, one of 3 x 3 per channel, one of 1 x 1 to few; added to the input if it fits."""

    def __init__(self, channels: int, filters: int, stride: int, growth: int) -> None:
        super().__init__()
        inside = channels * growth
        self.use_res_connect = stride == 1 and channels == filters
        layers: list[Layer] = [conv_norm(channels, inside, 1, act=ReLU6)] if growth != 1 else []
        layers += [conv_norm(inside, inside, 3, stride, groups=inside, act=ReLU6)]
        layers += [Conv2D(inside, filters, 1, bias_attr=False), BatchNorm2D(filters)]
        self.conv = Sequential(*layers)

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


@export("vision.models.MobileNetV2")
class MobileNetV2(PooledClassifier):
    """A network of inverted residual blocks for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        scale: Factor of all channels, above 0; they are rounded to multiples of 8.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: If ``scale`` is not above 0.

    Example:
        >>> net = paddle.vision.models.MobileNetV2(scale=0.5, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        check_number(scale, "scale", "MobileNetV2", above=0)
        channels, self.last_channel = _rounded(32 * scale), _rounded(1280 * max(1.0, scale))
        features: list[Layer] = [conv_norm(3, channels, 3, 2, act=ReLU6)]
        for growth, width, count, stride in STAGES_2:
            filters = _rounded(width * scale)
            for i in range(count):
                features.append(InvertedResidual(channels, filters, stride if i == 0 else 1, growth))
                channels = filters
        features.append(conv_norm(channels, self.last_channel, 1, act=ReLU6))
        self.features = Sequential(*features)
        self._add_end("classifier", self.last_channel, [Dropout(0.2)])

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        return self._end(self.features(x))


_NORM = functools.partial(BatchNorm2D, epsilon=0.001, momentum=0.99)


class SqueezeExcitation(Layer):
    """Weighs channels by their means (Hu et al., 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inside = _rounded(channels // 4)
        self.avgpool = AdaptiveAvgPool2D(1)
        self.fc1 = Conv2D(channels, inside, 1)
        self.fc2 = Conv2D(inside, channels, 1)
        self.activation = ReLU()
        self.scale_activation = Hardsigmoid()

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x))))) * x


class _Part3(Branches):
    """An inverted residual block of the third version."""

    def __init__(
        self, channels: int, size: int, inside: int, filters: int, weighed: bool, act: type[Layer], stride: int
    ) -> None:
        layers: dict[str, Layer] = {}
        if channels != inside:
            layers["expand_conv"] = conv_norm(channels, inside, 1, act=act, norm=_NORM)
        layers["bottleneck_conv"] = conv_norm(inside, inside, size, stride, inside, act, norm=_NORM)
        if weighed:
            layers["mid_se"] = SqueezeExcitation(inside)
        layers["linear_conv"] = conv_norm(inside, filters, 1, act=None, norm=_NORM)
        super().__init__(layers)
        self.use_res_connect = stride == 1 and channels == filters

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        found = super().forward(x)
        return x + found if self.use_res_connect else found


class MobileNetV3(PooledClassifier):
    """What both forms of the third version share.

    Args:
        parts: A table like :data:`SMALL_3`.
        last: Inputs of the last layer.
        scale: Factor of all channels, above 0; they are rounded to multiples of 8.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.
    """

    pool_name = "avgpool"

    def __init__(self, parts: tuple[Any, ...], last: int, scale: float, num_classes: int, with_pool: bool) -> None:
        super().__init__(num_classes, with_pool)
        self.scale = check_number(scale, "scale", type(self).__name__, above=0)
        channels, self.last_channel = _rounded(16 * scale), _rounded(last * scale)
        self.conv = conv_norm(3, channels, 3, 2, act=Hardswish, norm=_NORM)
        blocks = []
        for size, inside, filters, weighed, act, stride in parts:
            filters = _rounded(filters * scale)
            blocks.append(_Part3(channels, size, _rounded(inside * scale), filters, weighed, act, stride))
            channels = filters
        self.blocks = Sequential(*blocks)
        self.lastconv = conv_norm(channels, channels * 6, 1, act=Hardswish, norm=_NORM)
        before = [Linear(channels * 6, self.last_channel), Hardswish(), Dropout(0.2)] if num_classes > 0 else []
        self._add_end("classifier", self.last_channel, before)

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        return self._end(self.lastconv(self.blocks(self.conv(x))))


@export("vision.models.MobileNetV3Small")
class MobileNetV3Small(MobileNetV3):
    """The smaller form of the third version, for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        scale: Factor of all channels, above 0; they are rounded to multiples of 8.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: If ``scale`` is not above 0.

    Example:
        >>> net = paddle.vision.models.MobileNetV3Small(scale=0.5, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(SMALL_3, 1024, scale, num_classes, with_pool)


@export("vision.models.MobileNetV3Large")
class MobileNetV3Large(MobileNetV3):
    """The larger form of the third version, for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        scale: Factor of all channels, above 0; they are rounded to multiples of 8.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: If ``scale`` is not above 0.

    Example:
        >>> net = paddle.vision.models.MobileNetV3Large(scale=0.5, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(LARGE_3, 1280, scale, num_classes, with_pool)


# ----------------------------------------------------------------------------------------------------------- functions
@export("vision.models.mobilenet_v1")
@network
def mobilenet_v1(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV1:
    """Returns MobileNet.

    Args:
        scale: Factor of all channels.
    """
    check_pretrained(pretrained, "mobilenet_v1")
    return MobileNetV1(scale, **kwargs)


@export("vision.models.mobilenet_v2")
@network
def mobilenet_v2(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV2:
    """Returns the second version of MobileNet.

    Args:
        scale: Factor of all channels.
    """
    check_pretrained(pretrained, "mobilenet_v2")
    return MobileNetV2(scale, **kwargs)


@export("vision.models.mobilenet_v3_small")
@network
def mobilenet_v3_small(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV3Small:
    """Returns the smaller form of MobileNet's third version.

    Args:
        scale: Factor of all channels.
    """
    check_pretrained(pretrained, "mobilenet_v3_small")
    return MobileNetV3Small(scale, **kwargs)


@export("vision.models.mobilenet_v3_large")
@network
def mobilenet_v3_large(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV3Large:
    """Returns the larger form of MobileNet's third version.

    Args:
        scale: Factor of all channels.
    """
    check_pretrained(pretrained, "mobilenet_v3_large")
    return MobileNetV3Large(scale, **kwargs)
