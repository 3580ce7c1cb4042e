"""ShuffleNet, second version (Ma et al., 2018): half of the channels pass each unit as they are, then all are mixed."""

from __future__ import annotations

from typing import Any

from tstatic.extras.vision.models._blocks import Branches, PooledClassifier, check_pretrained, conv_norm, network
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.functional import channel_shuffle
from tstatic.nn.layer.activation import ReLU, Swish
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.pooling import MaxPool2D
from tstatic.ops.shape.joining import concat, split

CHANNELS = {
    0.25: (24, 24, 48, 96, 512), 0.33: (24, 32, 64, 128, 512), 0.5: (24, 48, 96, 192, 1024),
    1.0: (24, 116, 232, 464, 1024), 1.5: (24, 176, 352, 704, 1024), 2.0: (24, 224, 488, 976, 2048),
}  # fmt: skip
"""Scale -> channels of the first convolution, of the three stages, and of the last convolution."""
UNITS = (4, 8, 4)
"""Units of each stage; the first of them halves sizes."""


def _mixed(x: Variable) -> Any:
    return channel_shuffle(x, 2)


def _halving(channels: int, filters: int, act: type[Layer] | None) -> Branches:
    half = filters // 2
    layers = {
        "_conv_dw_1": conv_norm(channels, channels, 3, 2, channels, None),
        "_conv_linear_1": conv_norm(channels, half, 1, act=act), "_conv_pw_2": conv_norm(channels, half, 1, act=act),
        "_conv_dw_2": conv_norm(half, half, 3, 2, half, None), "_conv_linear_2": conv_norm(half, half, 1, act=act),
    }  # fmt: skip
    names = list(layers)
    return Branches(layers, [(names[:2], names[2:]), _mixed])


class _Unit(Branches):
    """Changes the second half of the channels, and mixes both."""

    def __init__(self, channels: int, act: type[Layer] | None) -> None:
        half = channels // 2
        super().__init__({
            "_conv_pw": conv_norm(half, half, 1, act=act), "_conv_dw": conv_norm(half, half, 3, 1, half, None),
            "_conv_linear": conv_norm(half, half, 1, act=act),
        })  # fmt: skip

    def forward(self, x: Variable) -> Any:
        """Returns the unit's value for ``[n, channels, h, w]``."""
        kept, changed = split(x, 2, axis=1)
        return _mixed(concat([kept, super().forward(changed)], axis=1))


@export("vision.models.ShuffleNetV2")
class ShuffleNetV2(PooledClassifier):
    """A network of shuffled channels for images ``[n, 3, h, w]``; 224 x 224 in the paper.

    Args:
        scale: 0.25, 0.33, 0.5, 1.0, 1.5 or 2.0: how many channels there are.
        act: ``"relu"``, ``"swish"`` or ``None``.
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Raises:
        ProgramError: For another scale or activation.

    Example:
        >>> net = paddle.vision.models.ShuffleNetV2(0.5, num_classes=10)
        >>> x = static.data("x", [None, 3, 64, 64])
        >>> net(x).shape
        (-1, 10)
    """

    pool_name = "_pool2d_avg"

    def __init__(
        self, scale: float = 1.0, act: str | None = "relu", num_classes: int = 1000, with_pool: bool = True
    ) -> None:
        super().__init__(num_classes, with_pool)
        first, *stages, last = CHANNELS[check_choice(scale, tuple(CHANNELS), "scale", "ShuffleNetV2")]
        check_choice(act, ("relu", "swish", None), "act", "ShuffleNetV2")
        kind = None if act is None else Swish if act == "swish" else ReLU
        self.scale = scale
        self._conv1 = conv_norm(3, first, 3, 2, act=kind)
        self._max_pool = MaxPool2D(3, stride=2, padding=1)
        self._units = [f"{stage}_{i + 1}" for stage, count in enumerate(UNITS, 2) for i in range(count)]
        channels = first
        for name in self._units:
            stage, number = name.split("_")
            filters = stages[int(stage) - 2]
            unit = _halving(channels, filters, kind) if number == "1" else _Unit(filters, kind)
            self.add_sublayer(name, unit)
            channels = filters
        self._last_conv = conv_norm(channels, last, 1, act=kind)
        self._add_end("_fc", last)

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self._max_pool(self._conv1(x))
        for name in self._units:
            x = getattr(self, name)(x)
        return self._end(self._last_conv(x))


@export("vision.models.shufflenet_v2_x0_25")
@network
def shufflenet_v2_x0_25(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with a quarter of the channels."""
    check_pretrained(pretrained, "shufflenet_v2_x0_25")
    return ShuffleNetV2(0.25, **kwargs)


@export("vision.models.shufflenet_v2_x0_33")
@network
def shufflenet_v2_x0_33(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with a third of the channels."""
    check_pretrained(pretrained, "shufflenet_v2_x0_33")
    return ShuffleNetV2(0.33, **kwargs)


@export("vision.models.shufflenet_v2_x0_5")
@network
def shufflenet_v2_x0_5(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with half of the channels."""
    check_pretrained(pretrained, "shufflenet_v2_x0_5")
    return ShuffleNetV2(0.5, **kwargs)


@export("vision.models.shufflenet_v2_x1_0")
@network
def shufflenet_v2_x1_0(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with the channels of the paper."""
    check_pretrained(pretrained, "shufflenet_v2_x1_0")
    return ShuffleNetV2(1.0, **kwargs)


@export("vision.models.shufflenet_v2_x1_5")
@network
def shufflenet_v2_x1_5(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with 1.5 times the channels."""
    check_pretrained(pretrained, "shufflenet_v2_x1_5")
    return ShuffleNetV2(1.5, **kwargs)


@export("vision.models.shufflenet_v2_x2_0")
@network
def shufflenet_v2_x2_0(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with twice the channels."""
    check_pretrained(pretrained, "shufflenet_v2_x2_0")
    return ShuffleNetV2(2.0, **kwargs)


@export("vision.models.shufflenet_v2_swish")
@network
def shufflenet_v2_swish(pretrained: bool = False, **kwargs: Any) -> ShuffleNetV2:
    """Returns the second version of ShuffleNet with swish in the place of relu."""
    check_pretrained(pretrained, "shufflenet_v2_swish")
    return ShuffleNetV2(1.0, "swish", **kwargs)
