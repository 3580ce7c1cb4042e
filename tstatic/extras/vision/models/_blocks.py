"""What the networks share: convolution with norm and activation, layers side by side, ends, weights that are not there."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tstatic.errors import UnsupportedError
from tstatic.ir.program import Variable
from tstatic.nn.initializer import Uniform
from tstatic.nn.layer.activation import ReLU
from tstatic.nn.layer.common import Linear
from tstatic.nn.layer.container import Sequential
from tstatic.nn.layer.conv import Conv2D
from tstatic.nn.layer.layers import Layer
from tstatic.nn.layer.norm import BatchNorm2D
from tstatic.nn.layer.pooling import AdaptiveAvgPool2D
from tstatic.nn.param import ParamAttr
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.reshape import flatten

_F = TypeVar("_F", bound=Callable[..., Any])


def network(build: _F) -> _F:
    """Completes the docstring of a network's public function: ``pretrained`` first, arguments of the class last."""
    summary, _, others = (inspect.getdoc(build) or "").partition("\n\nArgs:\n")
    made = inspect.signature(build).return_annotation
    build.__doc__ = (
        f"{summary}\n\nArgs:\n    pretrained: ``True`` is refused: nothing is downloaded.\n{others}{chr(10) if others else ''}"
        f"    **kwargs: Further arguments of :class:`{made}`.\n\nRaises:\n    UnsupportedError: With ``pretrained``."
    )
    return build


def check_pretrained(pretrained: bool, name: str) -> None:
    """Raises UnsupportedError if the weights of a network are asked for: nothing is downloaded."""
    if pretrained:
        name = f"paddle.vision.models.{name}"
        raise UnsupportedError(
            f"{name} has no weights here: tstatic downloads nothing",
            expected="pretrained=False",
            received="pretrained=True",
            fix=f"net = {name}(), and after the startup program net.set_state_dict(paddle.load(path)) with a file of yours",
            op=name,
        )


def uniform(fan_in: float, *names: str) -> dict[str, Any]:
    """Returns attributes of these names: uniform to one over the root of the inputs."""
    bound = 1.0 / math.sqrt(fan_in)
    return {name: ParamAttr(initializer=Uniform(-bound, bound)) for name in names}


def conv_norm(
    channels: int,
    filters: int,
    size: int | tuple[int, int] = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], Layer] | None = ReLU,
    padding: int | None = None,
    norm: Callable[[int], Layer] = BatchNorm2D,
) -> Sequential:
    """Returns a convolution without bias, batch norm and an activation.

    Args:
        channels: Channels of the input.
        filters: Channels of the output.
        size: Height and width of the window.
        stride: Of the window.
        groups: Channels of input and output are cut into so many parts.
        act: Makes the activation; ``None`` for none.
        padding: Zeros on each side; ``None`` for as many as keep sizes (divided by ``stride``).
        norm: Makes the norm of a number of channels.
    """
    zeros: Any = padding
    if zeros is None:
        zeros = (size - 1) // 2 if isinstance(size, int) else [(n - 1) // 2 for n in size]
    conv = Conv2D(channels, filters, size, stride, zeros, groups=groups, bias_attr=False)
    return Sequential(conv, norm(filters), *([] if act is None else [act()]))


class Branches(Layer):
    """Layers with names, and the way of a value through them.

    Args:
        layers: By name, in the order in which their parameters are counted.
        way: A name: that layer; a function of a value: it is called; a list: one after another; a tuple: each of them for the
            same value, and the results joined along the channels. By default all layers one after another.
    """

    def __init__(self, layers: Mapping[str, Layer], way: Any = None) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_sublayer(name, layer)
        self._way = list(layers) if way is None else way

    def forward(self, x: Variable) -> Any:
        """Returns the layer's value for ``[n, channels, h, w]``."""
        return self._through(self._way, x)

    def _through(self, way: Any, x: Variable) -> Any:
        if isinstance(way, str):
            return getattr(self, way)(x)
        if isinstance(way, tuple):
            return concat([self._through(one, x) for one in way], axis=1)
        if isinstance(way, list):
            return functools.reduce(lambda value, one: self._through(one, value), way, x)
        return way(x)


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

    def _add_end(self, name: str, features: int, before: Sequence[Layer] = (), **settings: Any) -> None:
        """Adds pool and classifier under Paddle's names; called last, as names are counted.

        Args:
            name: Of the classifier.
            features: Its inputs.
            before: Layers between the mean and the linear layer, which then has the number behind theirs as its name.
            **settings: Further arguments of the linear layer.
        """
        if self.with_pool:
            self.add_sublayer(self.pool_name, AdaptiveAvgPool2D(1))
        if self.num_classes > 0:
            last = Linear(features, self.num_classes, **settings)
            self.add_sublayer(name, Sequential(*before, last) if before else last)
        self._classifier_name = name

    def _end(self, x: Variable, before: Callable[[Variable], Any] | None = None) -> Any:
        """Returns the scores; ``before`` is called with what the classifier reads."""
        if self.with_pool:
            x = getattr(self, self.pool_name)(x)
        if self.num_classes > 0:
            x = flatten(x, 1) if before is None else before(flatten(x, 1))
            x = getattr(self, self._classifier_name)(x)
        return x
