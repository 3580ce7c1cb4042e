"""Residual networks (He et al., 2015), wide (Zagoruyko and Komodakis, 2016) and grouped (Xie et al., 2017) ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.extras.vision.models._blocks import PooledClassifier, check_pretrained, conv_norm, network
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.activation import ReLU
from tstatic.nn.layer.container import Sequential
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm2D
from tstatic.nn.layer.pooling import MaxPool2D

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Depth -> number of blocks of each of the four stages."""


@export("vision.models.resnet.BasicBlock")
class BasicBlock(Layer):
    """Two convolutions of 3 x 3 and what they are added to.

    Args:
        inplanes: Channels of the input.
        planes: Channels of both convolutions.
        stride: Of the first convolution.
        downsample: Layer for the input, where its shape is not the output's.
        groups, base_width, dilation: 1, 64 and 1: this block has no other forms.
        norm_layer: Makes a normalisation for a number of channels; ``nn.BatchNorm2D`` if ``None``.

    Example:
        >>> from tstatic.vision.models.resnet import BasicBlock
        >>> block = BasicBlock(4, 4)
        >>> x = static.data("x", [None, 4, 8, 8])
        >>> block(x).shape
        (-1, 4, 8, 8)
    """

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Layer | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[[int], Layer] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_choice(groups, (1,), "groups", "BasicBlock")
        check_choice(base_width, (64,), "base_width", "BasicBlock")
        check_choice(dilation, (1,), "dilation", "BasicBlock")
        norm = BatchNorm2D if norm_layer is None else norm_layer
        self.conv1 = Conv2D(inplanes, planes, 3, padding=1, stride=stride, bias_attr=False)
        self.bn1 = norm(planes)
        self.relu = ReLU()
        self.conv2 = Conv2D(planes, planes, 3, padding=1, bias_attr=False)
        self.bn2 = norm(planes)
        self.downsample = downsample

    def forward(self, x: Variable) -> Any:
        """Returns ``[n, planes, h / stride, w / stride]`` for ``[n, inplanes, h, w]``."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


@export("vision.models.resnet.BottleneckBlock")
class BottleneckBlock(Layer):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, and what they are added to.

    Args:
        inplanes: Channels of the input.
        planes: A quarter of the output's channels.
        stride: Of the middle convolution.
        downsample: Layer for the input, where its shape is not the output's.
        groups: Of the middle convolution.
        base_width: Its channels are ``planes * base_width / 64 * groups``.
        dilation: Distance of the middle filter's elements.
        norm_layer: Makes a normalisation for a number of channels; ``nn.BatchNorm2D`` if ``None``.

    Example:
        >>> from tstatic.vision.models.resnet import BottleneckBlock
        >>> block = BottleneckBlock(16, 4)
        >>> x = static.data("x", [None, 16, 8, 8])
        >>> block(x).shape
        (-1, 16, 8, 8)
    """

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Layer | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[[int], Layer] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = BatchNorm2D if norm_layer is None else norm_layer
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = Conv2D(inplanes, width, 1, bias_attr=False)
        self.bn1 = norm(width)
        self.conv2 = Conv2D(
            width, width, 3, padding=dilation, stride=stride, dilation=dilation, groups=groups, bias_attr=False
        )
        self.bn2 = norm(width)
        self.conv3 = Conv2D(width, planes * self.expansion, 1, bias_attr=False)
        self.bn3 = norm(planes * self.expansion)
        self.relu = ReLU()
        self.downsample = downsample

    def forward(self, x: Variable) -> Any:
        """Returns ``[n, 4 * planes, h / stride, w / stride]`` for ``[n, inplanes, h, w]``."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


@export("vision.models.ResNet")
class ResNet(PooledClassifier):
    """A residual network for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        block: Class of the blocks: ``vision.models.resnet.BasicBlock`` or ``BottleneckBlock``.
        depth: 18, 34, 50, 101 or 152.
        width: Channels per group of the blocks' middle convolutions, in the first stage.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.
        groups: Of the blocks' middle convolutions.

    Raises:
        ProgramError: For another depth.

    Example:
        >>> from tstatic.vision.models.resnet import BasicBlock
        >>> net = paddle.vision.models.ResNet(BasicBlock, 18, num_classes=10)
        >>> x = static.data("x", [None, 3, 32, 32])
        >>> net(x).shape
        (-1, 10)
    """

    pool_name = "avgpool"

    def __init__(
        self, block: type[BasicBlock | BottleneckBlock], depth: int = 50, width: int = 64, num_classes: int = 1000,
        with_pool: bool = True, groups: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(num_classes, with_pool)
        counts = BLOCKS[check_choice(depth, tuple(BLOCKS), "depth", "ResNet")]
        self.conv1 = Conv2D(3, 64, 7, stride=2, padding=3, bias_attr=False)
        self.bn1 = BatchNorm2D(64)
        self.relu = ReLU()
        self.maxpool = MaxPool2D(3, stride=2, padding=1)
        channels = 64
        for stage, count in enumerate(counts):
            planes = 64 * 2**stage
            blocks: list[Layer] = []
            for i in range(count):
                stride = 2 if stage and not i else 1
                short = None
                if stride != 1 or channels != planes * block.expansion:
                    short = conv_norm(channels, planes * block.expansion, 1, stride, act=None)
                blocks.append(block(channels, planes, stride, short, groups, width))
                channels = planes * block.expansion
            self.add_sublayer(f"layer{stage + 1}", Sequential(*blocks))
        self._add_end("fc", channels)

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self._end(x)


def _resnet(depth: int, settings: dict[str, Any], **fixed: int) -> ResNet:
    return ResNet(BasicBlock if depth < 50 else BottleneckBlock, depth, **{**fixed, **settings})


@export("vision.models.resnet18")
@network
def resnet18(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 18 layers."""
    check_pretrained(pretrained, "resnet18")
    return _resnet(18, kwargs)


@export("vision.models.resnet34")
@network
def resnet34(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 34 layers."""
    check_pretrained(pretrained, "resnet34")
    return _resnet(34, kwargs)


@export("vision.models.resnet50")
@network
def resnet50(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 50 layers."""
    check_pretrained(pretrained, "resnet50")
    return _resnet(50, kwargs)


@export("vision.models.resnet101")
@network
def resnet101(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 101 layers."""
    check_pretrained(pretrained, "resnet101")
    return _resnet(101, kwargs)


@export("vision.models.resnet152")
@network
def resnet152(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 152 layers."""
    check_pretrained(pretrained, "resnet152")
    return _resnet(152, kwargs)


@export("vision.models.resnext50_32x4d")
@network
def resnext50_32x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 50 layers with 32 groups of 4 channels."""
    check_pretrained(pretrained, "resnext50_32x4d")
    return _resnet(50, kwargs, width=4, groups=32)


@export("vision.models.resnext50_64x4d")
@network
def resnext50_64x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 50 layers with 64 groups of 4 channels."""
    check_pretrained(pretrained, "resnext50_64x4d")
    return _resnet(50, kwargs, width=4, groups=64)


@export("vision.models.resnext101_32x4d")
@network
def resnext101_32x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 101 layers with 32 groups of 4 channels."""
    check_pretrained(pretrained, "resnext101_32x4d")
    return _resnet(101, kwargs, width=4, groups=32)


@export("vision.models.resnext101_64x4d")
@network
def resnext101_64x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 101 layers with 64 groups of 4 channels."""
    check_pretrained(pretrained, "resnext101_64x4d")
    return _resnet(101, kwargs, width=4, groups=64)


@export("vision.models.resnext152_32x4d")
@network
def resnext152_32x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 152 layers with 32 groups of 4 channels."""
    check_pretrained(pretrained, "resnext152_32x4d")
    return _resnet(152, kwargs, width=4, groups=32)


@export("vision.models.resnext152_64x4d")
@network
def resnext152_64x4d(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 152 layers with 64 groups of 4 channels."""
    check_pretrained(pretrained, "resnext152_64x4d")
    return _resnet(152, kwargs, width=4, groups=64)


@export("vision.models.wide_resnet50_2")
@network
def wide_resnet50_2(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 50 layers, twice as wide."""
    check_pretrained(pretrained, "wide_resnet50_2")
    return _resnet(50, kwargs, width=128)


@export("vision.models.wide_resnet101_2")
@network
def wide_resnet101_2(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Returns the residual network of 101 layers, twice as wide."""
    check_pretrained(pretrained, "wide_resnet101_2")
    return _resnet(101, kwargs, width=128)
