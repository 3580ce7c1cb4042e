"""What the networks share: convolution with norm and activation, the end of a network, weights that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import UnsupportedError
from tstatic.ir.program import Variable
from tstatic.nn.layer.activation import ReLU
from tstatic.nn.layer.common import Linear
from tstatic.nn.layer.container import Sequential
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm2D
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D
from tstatic.ops.shape.reshape import flatten


def check_pretrained(pretrained: bool, name: str) -> None:
    """Raises UnsupportedError if weights are asked for: nothing is downloaded."""
    if pretrained:
        raise UnsupportedError(
            f"{name} has no weights here: tstatic downloads nothing",
            expected="pretrained=False",
            received="pretrained=True",
            fix=f"net = {name}(), and after the startup program net.set_state_dict(paddle.load(path)) with a file of yours",
            op=name,
        )


def conv_norm(
    channels: int, filters: int, size: int = 3, stride: int = 1, groups: int = 1, act: type[Layer] | None = ReLU
) -> Sequential:
    """Returns a convolution without bias that keeps sizes (divided by ``stride``), batch norm and an activation.

    Args:
        channels: Channels of the input.
        filters: Channels of the output.
        size: Height and width of the window.
        stride: Of the window.
        groups: Channels of input and output are cut into so many parts.
        act: Class of the activation; ``None`` for none.
    """
    conv = Conv2D(channels, filters, size, stride, (size - 1) // 2, groups=groups, bias_attr=False)
    return Sequential(conv, BatchNorm2D(filters), *([] if act is None else [act()]))


class PooledClassifier(Layer):
    """The end of a network: a mean over all positions and a linear layer, each unless it is switched off.

    Args:
        num_classes: Outputs of the linear layer; with 0 there is none.
        with_pool: Whether there is a mean.
    """

    pool_name = "pool2d_avg"

    def __init__(self, num_classes: int, with_pool: bool) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool

    def _add_end(self, name: str, features: int, before: Sequence[Layer] = ()) -> None:
        """Adds pool and classifier under Paddle's names; called last, as names are counted.

        Args:
            name: Of the classifier.
            features: Its inputs.
            before: Layers between the mean and the linear layer.
        """
        if self.with_pool:
            self.add_sublayer(self.pool_name, AdaptiveAvgPool2D(1))
        if self.num_classes > 0:
            last = Linear(features, self.num_classes)
            self.add_sublayer(name, Sequential(*before, last) if before else last)
        self._classifier_name = name

    def _end(self, x: Variable) -> Any:
        if self.with_pool:
            x = getattr(self, self.pool_name)(x)
        if self.num_classes > 0:
            x = getattr(self, self._classifier_name)(flatten(x, 1))
        return x
