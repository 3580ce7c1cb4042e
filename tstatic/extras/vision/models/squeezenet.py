"""SqueezeNet (Iandola et al., 2016)."""

from __future__ import annotations

from typing import Any

from tstatic.extras.vision.models._blocks import check_pretrained, network
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.functional import relu
from tstatic.nn.layer.common import Dropout
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D, MaxPool2D
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.reshape import squeeze

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of the squeezing convolution, and of each expanding one, per fire module."""


class MakeFireConv(Layer):
    """A convolution that keeps the size, and relu."""

    def __init__(self, channels: int, filters: int, size: int) -> None:
        super().__init__()
        self._conv = Conv2D(channels, filters, size, padding=size // 2)

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return relu(self._conv(x))


class MakeFire(Layer):
    """A convolution of 1 x 1 to few channels, then ones of 1 x 1 and 3 x 3 side by side."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self._conv = MakeFireConv(channels, squeezed, 1)
        self._conv_path1 = MakeFireConv(squeezed, expanded, 1)
        self._conv_path2 = MakeFireConv(squeezed, expanded, 3)

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        x = self._conv(x)
        return concat([self._conv_path1(x), self._conv_path2(x)], axis=1)


@export("vision.models.SqueezeNet")
class SqueezeNet(Layer):
    """A small network for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        version: ``"1.0"`` or ``"1.1"``, which pools earlier.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: For another version.

    Example:
        >>> net = paddle.vision.models.SqueezeNet("1.1", num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    def __init__(self, version: str, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.version = check_choice(version, ("1.0", "1.1"), "version", "SqueezeNet")
        self.num_classes = num_classes
        self.with_pool = with_pool
        first = version == "1.0"
        channels = 96 if first else 64
        self._conv = Conv2D(3, channels, 7 if first else 3, stride=2, padding=0 if first else 1)
        self._pool = MaxPool2D(3, stride=2, padding=0)
        for i, (squeezed, expanded) in enumerate(FIRES):
            self.add_sublayer(f"_conv{i + 1}", MakeFire(channels, squeezed, expanded))
            channels = 2 * expanded
        self._drop = Dropout(0.5, mode="downscale_in_infer")
        self._conv9 = Conv2D(512, num_classes, 1) if num_classes > 0 else None
        self._avg_pool = AdaptiveAvgPool2D(1)

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self._pool(relu(self._conv(x)))
        for i in range(1, 9):
            x = getattr(self, f"_conv{i}")(x)
            if i in ((3, 7) if self.version == "1.0" else (2, 4)):
                x = self._pool(x)
        if self._conv9 is not None:
            x = self._conv9(self._drop(x))
        return squeeze(self._avg_pool(relu(x)), axis=[2, 3]) if self.with_pool else x


@export("vision.models.squeezenet1_0")
@network
def squeezenet1_0(pretrained: bool = False, **kwargs: Any) -> SqueezeNet:
    """Returns SqueezeNet 1.0."""
    check_pretrained(pretrained, "squeezenet1_0")
    return SqueezeNet("1.0", **kwargs)


@export("vision.models.squeezenet1_1")
@network
def squeezenet1_1(pretrained: bool = False, **kwargs: Any) -> SqueezeNet:
    """Returns SqueezeNet 1.1, which needs less arithmetic."""
    check_pretrained(pretrained, "squeezenet1_1")
    return SqueezeNet("1.1", **kwargs)
