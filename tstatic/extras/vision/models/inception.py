"""GoogLeNet (Szegedy et al., 2014) and InceptionV3 (Szegedy et al., 2015): convolutions of several sizes side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.extras.vision.models._blocks import (
    Branches,
    PooledClassifier,
    check_pretrained,
    conv_norm,
    network,
    uniform,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.functional import relu
from tstatic.nn.layer.common import Dropout, Linear
from tstatic.nn.layer.container import LayerList
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D, AvgPool2D, MaxPool2D
from tstatic.ops.shape.reshape import flatten

# ----------------------------------------------------------------------------------------------------------- GoogLeNet
BLOCKS = {
    "_ince3a": (192, 64, 96, 128, 16, 32, 32), "_ince3b": (256, 128, 128, 192, 32, 96, 64),
    "_ince4a": (480, 192, 96, 208, 16, 48, 64), "_ince4b": (512, 160, 112, 224, 24, 64, 64),
    "_ince4c": (512, 128, 128, 256, 24, 64, 64), "_ince4d": (512, 112, 144, 288, 32, 64, 64),
    "_ince4e": (528, 256, 160, 320, 32, 128, 128), "_ince5a": (832, 256, 160, 320, 32, 128, 128),
    "_ince5b": (832, 384, 192, 384, 48, 128, 128),
}  # fmt: skip
"""Channels of the input, of 1 x 1, of 3 x 3 and before it, of 5 x 5 and before it, and behind the pool."""


def _conv(channels: int, filters: int, size: int, stride: int = 1) -> Branches:
    return Branches({"_conv": Conv2D(channels, filters, size, stride, (size - 1) // 2, bias_attr=False)})


def _first_inception(channels: int, one: int, to_3: int, three: int, to_5: int, five: int, pooled: int) -> Branches:
    layers = {
        "_conv1": _conv(channels, one, 1), "_conv3r": _conv(channels, to_3, 1), "_conv3": _conv(to_3, three, 3),
        "_conv5r": _conv(channels, to_5, 1), "_conv5": _conv(to_5, five, 5), "_pool": MaxPool2D(3, stride=1, padding=1),
        "_convprj": _conv(channels, pooled, 1),
    }  # fmt: skip
    return Branches(layers, [("_conv1", ["_conv3r", "_conv3"], ["_conv5r", "_conv5"], ["_pool", "_convprj"]), relu])


@export("vision.models.GoogLeNet")
class GoogLeNet(Layer):
    """The first Inception network, for images ``[n, 3, 224, 224]``, with two more classifiers on the way.

    Args:
        num_classes: Outputs; with 0 there are no classifiers.
        with_pool: Whether the mean over all positions is taken.

    Example:
        >>> net = paddle.vision.models.GoogLeNet(num_classes=10)
        >>> out, early, middle = net(static.data("x", [None, 3, 224, 224]))
        >>> out.shape, early.shape, middle.shape
        ((-1, 10), (-1, 10), (-1, 10))
    """

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool
        self._conv = _conv(3, 64, 7, 2)
        self._pool = MaxPool2D(3, stride=2)
        self._conv_1 = _conv(64, 64, 1)
        self._conv_2 = _conv(64, 192, 3)
        for name, channels in BLOCKS.items():
            self.add_sublayer(name, _first_inception(*channels))
        if with_pool:
            self._pool_5 = AdaptiveAvgPool2D(1)
            self._pool_o1, self._pool_o2 = AvgPool2D(5, stride=3), AvgPool2D(5, stride=3)
        if num_classes > 0:
            self._drop = Dropout(0.4, mode="downscale_in_infer")
            self._fc_out = Linear(1024, num_classes, **uniform(1024 / 3, "weight_attr"))
            for i, channels_ in ((1, 512), (2, 528)):
                self.add_sublayer(f"_conv_o{i}", _conv(channels_, 128, 1))
                self.add_sublayer(f"_fc_o{i}", Linear(1152, 1024, **uniform(2048 / 3, "weight_attr")))
                self.add_sublayer(f"_drop_o{i}", Dropout(0.7, mode="downscale_in_infer"))
                self.add_sublayer(f"_out{i}", Linear(1024, num_classes, **uniform(1024 / 3, "weight_attr")))

    def forward(self, x: Variable) -> Any:
        """Returns the scores ``[n, num_classes]`` of all three classifiers for images ``[n, 3, 224, 224]``, the last one first."""
        x = self._pool(self._conv_2(self._conv_1(self._pool(self._conv(x)))))
        x = self._pool(self._ince3b(self._ince3a(x)))
        early = self._ince4a(x)
        middle = self._ince4d(self._ince4c(self._ince4b(early)))
        out = self._ince5b(self._ince5a(self._pool(self._ince4e(middle))))
        if self.with_pool:
            out, early, middle = self._pool_5(out), self._pool_o1(early), self._pool_o2(middle)
        if self.num_classes > 0:
            out = self._fc_out(flatten(self._drop(out), 1))
            # Only one of the two has an activation, as in Paddle.
            early = relu(self._fc_o1(flatten(self._conv_o1(early), 1)))
            early = self._out1(self._drop_o1(early))
            middle = self._out2(self._drop_o2(self._fc_o2(flatten(self._conv_o2(middle), 1))))
        return [out, early, middle]


@export("vision.models.googlenet")
@network
def googlenet(pretrained: bool = False, **kwargs: Any) -> GoogLeNet:
    """Returns GoogLeNet."""
    check_pretrained(pretrained, "googlenet")
    return GoogLeNet(**kwargs)


# --------------------------------------------------------------------------------------------------------- InceptionV3
Conv = tuple[Any, ...]
"""Filters, size, and the stride where it is not 1."""


def _inception(channels: int, branches: Mapping[str, Sequence[Any]], pooled: int = 0) -> Branches:
    """Returns branches of convolutions with norm, and one that pools.

    Args:
        channels: Channels of the input.
        branches: The convolutions of each branch: :data:`Conv`, or at its end a list of those that stand side by side.
        pooled: Channels behind the pool; 0 for a block that halves sizes, whose pool takes the largest values.
    """
    layers: dict[str, Layer] = {}

    def add(name: str, before: int, conv: Conv) -> str:
        # What halves sizes looks at no zeros.
        filters, size, stride = (*conv, 1)[:3]
        layers[name] = conv_norm(before, filters, size, stride, padding=0 if stride == 2 else None)
        return name

    ways: list[Any] = []
    for branch, convs in branches.items():
        way: list[Any] = []
        before = channels
        for i, conv in enumerate(convs, 1):
            name = f"{branch}_{i}" if len(convs) > 1 else branch
            if isinstance(conv, list):
                way.append(tuple(add(f"{name}{letter}", before, one) for letter, one in zip("ab", conv, strict=True)))
            else:
                way.append(add(name, before, conv))
                before = conv[0]
        ways.append(way)
    layers["branch_pool"] = AvgPool2D(3, stride=1, padding=1, exclusive=False) if pooled else MaxPool2D(3, stride=2)
    ways.append(["branch_pool", *([add("branch_pool_conv", channels, (pooled, 1))] if pooled else [])])
    return Branches(layers, tuple(ways))


def _small(channels: int, pooled: int) -> Branches:
    double = [(64, 1), (96, 3), (96, 3)]
    return _inception(
        channels, {"branch1x1": [(64, 1)], "branch5x5": [(48, 1), (64, 5)], "branch3x3dbl": double}, pooled
    )


def _narrow(channels: int, inside: int) -> Branches:
    row, column = (inside, (1, 7)), (inside, (7, 1))
    seven = [(inside, 1), row, (192, (7, 1))]
    double = [(inside, 1), column, row, column, (192, (1, 7))]
    return _inception(channels, {"branch1x1": [(192, 1)], "branch7x7": seven, "branch7x7dbl": double}, 192)


def _wide(channels: int) -> Branches:
    fork = [(384, (1, 3)), (384, (3, 1))]
    branches: dict[str, list[Any]] = {
        "branch1x1": [(320, 1)],
        "branch3x3": [(384, 1), fork],
        "branch3x3dbl": [(448, 1), (384, 3), fork],
    }
    return _inception(channels, branches, 192)


@export("vision.models.InceptionV3")
class InceptionV3(PooledClassifier):
    """The third Inception network, for images ``[n, 3, h, w]``; 299 x 299 in the paper.

    Args:
        num_classes: Outputs; with 0 there is no classifier.
        with_pool: Whether the mean over all positions is taken.

    Example:
        >>> net = paddle.vision.models.InceptionV3(num_classes=10)
        >>> x = static.data("x", [None, 3, 96, 96])
        >>> net(x).shape
        (-1, 10)
    """

    pool_name = "avg_pool"

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        stem = {
            "conv_1a_3x3": conv_norm(3, 32, 3, 2, padding=0), "conv_2a_3x3": conv_norm(32, 32, 3, padding=0),
            "conv_2b_3x3": conv_norm(32, 64, 3), "max_pool": MaxPool2D(3, stride=2),
            "conv_3b_1x1": conv_norm(64, 80, 1), "conv_4a_3x3": conv_norm(80, 192, 3, padding=0),
        }  # fmt: skip
        self.inception_stem = Branches(stem, [*stem, "max_pool"])
        halved: dict[str, list[Conv]] = {"branch3x3": [(384, 3, 2)], "branch3x3dbl": [(64, 1), (96, 3), (96, 3, 2)]}
        halved_again: dict[str, list[Conv]] = {
            "branch3x3": [(192, 1), (320, 3, 2)], "branch7x7x3": [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)],
        }  # fmt: skip
        self.inception_block_list = LayerList([
            _small(192, 32), _small(256, 64), _small(288, 64), _inception(288, halved), _narrow(768, 128),
            _narrow(768, 160), _narrow(768, 160), _narrow(768, 192), _inception(768, halved_again), _wide(1280), _wide(2048),
        ])  # fmt: skip
        self.dropout = Dropout(0.2, mode="downscale_in_infer")
        self._add_end("fc", 2048, **uniform(2048, "weight_attr"))

    def forward(self, x: Variable) -> Any:
        """Returns scores ``[n, num_classes]`` for images ``[n, 3, h, w]``."""
        x = self.inception_stem(x)
        for block in self.inception_block_list:
            x = block(x)
        return self._end(x, self.dropout)


@export("vision.models.inception_v3")
@network
def inception_v3(pretrained: bool = False, **kwargs: Any) -> InceptionV3:
    """Returns InceptionV3."""
    check_pretrained(pretrained, "inception_v3")
    return InceptionV3(**kwargs)
