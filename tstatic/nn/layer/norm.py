"""Batch (also synchronised), layer, group, instance and spectral normalisation layers."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_axis, check_choice, check_int, check_ints, check_number, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import dtype_of
from tstatic.nn.initializer import Constant, Normal
from tstatic.nn.layer.layers import Layer, own_constructor
from tstatic.nn.param import ParamAttr, check_activation
from tstatic.nn.static_norm import check_both_or_none, normalised, spectral, spectral_sizes, statistic
from tstatic.no_effect import IN_PLACE, no_effect
from tstatic.ops.norm.batch_norm import batch_norm
from tstatic.ops.norm.layer_norm import layer_norm


def scale_and_bias(layer: Layer, count: int, weight_attr: Any, bias_attr: Any) -> None:
    """Makes ``weight`` (1) and ``bias`` (0), each unless its attribute is ``False``."""
    layer.weight = layer.create_parameter((count,), weight_attr, default_initializer=Constant(1.0))
    layer.bias = layer.create_parameter((count,), bias_attr, is_bias=True)


class _BatchNorm(Layer):
    """Normalises each channel over the batch and all positions (Ioffe and Szegedy, 2015)."""

    _ranks: tuple[int, ...] = (2, 3, 4, 5)
    _layouts: tuple[str, ...] = ("NCHW", "NC", "NCL", "NLC", "NHWC", "NCDHW", "NDHWC")

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        function = type(self).__name__
        self._num_features = check_int(num_features, "num_features", function, 1)
        layout = self._layouts[0] if data_format is None else data_format
        self._data_format = check_choice(layout, self._layouts, "data_format", function)
        self._momentum = check_number(momentum, "momentum", function, least=0.0, most=1.0)
        self._epsilon = epsilon
        self._use_global_stats, self._name = use_global_stats, name
        if self._dtype.is_low:
            self.__dict__["_dtype"] = dtype_of("float32")
        scale_and_bias(self, num_features, weight_attr, bias_attr)
        self._mean = self.create_parameter((num_features,), statistic(None, 0.0))
        self._variance = self.create_parameter((num_features,), statistic(None, 1.0))

    def forward(self, input: Variable) -> Variable:
        """Returns a value of the same shape as ``input``."""
        function = type(self).__name__
        check_variable(input, "input", function, FLOATS)
        check_rank(input, self._ranks, "input", function, layout=self._data_format)
        return batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            training=self.training,
            momentum=self._momentum,
            epsilon=self._epsilon,
            data_format=self._data_format,
            use_global_stats=self._use_global_stats,
            name=self._name,
        )

    def extra_repr(self) -> str:
        """Returns size, momentum and epsilon."""
        layout = f", data_format={self._data_format}" if self._data_format != self._layouts[0] else ""
        return f"num_features={self._num_features}, momentum={self._momentum}, epsilon={self._epsilon}{layout}"


@export("nn.BatchNorm1D", op="batch_norm")
@own_constructor(data_format="NCL")
class BatchNorm1D(_BatchNorm):
    """Batch normalisation of ``[n, c]`` or ``[n, c, l]`` (``NLC``: ``[n, l, c]``) (Ioffe and Szegedy, 2015).

    Each channel is normalised over the batch and all positions.

    Args:
        num_features: Number of channels.
        momentum: Weight of the OLD running statistic.
        epsilon: Added to the variance, at most 0.001.
        weight_attr: ParamAttr, name or initializer of the scale, which starts at 1; ``False`` for none.
        bias_attr: The same for the bias.
        data_format: Layout of the axes, which says where the channels are.
        use_global_stats: ``True``: running statistics always; ``False``: the batch's always; ``None``: the batch's in training.
        name: Name of the op's layer; parameters keep the generated name.

    Example:
        >>> layer = paddle.nn.BatchNorm1D(2, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """

    _ranks, _layouts = (2, 3), ("NCL", "NC", "NLC")


@export("nn.BatchNorm2D", op="batch_norm")
@own_constructor(data_format="NCHW")
class BatchNorm2D(_BatchNorm):
    """Batch normalisation of images ``[n, c, h, w]`` (``NHWC``: ``[n, h, w, c]``); arguments as in :class:`BatchNorm1D`.

    Example:
        >>> layer = paddle.nn.BatchNorm2D(1, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[[[1.0, 3.0], [3.0, 1.0]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[-1.,  1.],
                 [ 1., -1.]]]], dtype=float32)
    """

    _ranks, _layouts = (4,), ("NCHW", "NHWC")


@export("nn.BatchNorm3D", op="batch_norm")
@own_constructor(data_format="NCDHW")
class BatchNorm3D(_BatchNorm):
    """Batch normalisation of volumes ``[n, c, d, h, w]`` (``NDHWC``: channels last); arguments as in :class:`BatchNorm1D`.

    Example:
        >>> layer = paddle.nn.BatchNorm3D(1, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[[[[1.0, 3.0], [3.0, 1.0]]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[[-1.,  1.],
                  [ 1., -1.]]]]], dtype=float32)
    """

    _ranks, _layouts = (5,), ("NCDHW", "NDHWC")


@export("nn.SyncBatchNorm", op="batch_norm")
class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all devices; on one device it is :class:`BatchNorm2D` of any rank.

    Arguments are those of :class:`BatchNorm1D`. Over several places, ``BuildStrategy.sync_batch_norm = True`` makes every batch
    norm use the statistics of all places.

    Example:
        >>> layer = paddle.nn.SyncBatchNorm(2, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(num_features, momentum, epsilon, weight_attr, bias_attr, data_format, None, name)

    def forward(self, x: Variable) -> Variable:
        """Returns a value of the same shape as ``x``."""
        return super().forward(x)

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """Replaces every batch norm in ``layer`` by one of this class with the same parameters; returns the result."""
        done: dict[int, Layer] = {}

        def converted(child: Layer) -> Layer:
            if not isinstance(child, _BatchNorm) or isinstance(child, SyncBatchNorm):
                return child
            if id(child) not in done:
                done[id(child)] = new = cls.__new__(cls)
                new.__dict__.update(child.__dict__)
            return done[id(child)]

        for owner in layer.sublayers(include_self=True):
            table = owner.__dict__["_sub_layers"]
            table.update({name: converted(child) for name, child in table.items() if child is not None})
        return converted(layer)


@no_effect(in_place=IN_PLACE)
@export("nn.BatchNorm", "fluid.dygraph.BatchNorm", op="batch_norm")
class BatchNorm(Layer):
    """The 1.x class of batch normalisation, for inputs of rank 2 to 5.

    Args:
        num_channels: Number of channels.
        act: Op type of an activation.
        is_test: Uses the running statistics in every call.
        momentum: Weight of the OLD running statistic.
        epsilon: Added to the variance, at most 0.001.
        param_attr: ParamAttr, name or initializer of the scale, which starts at 1; ``False`` fixes it at 1.
        bias_attr: The same for the bias, fixed at 0.
        dtype: Float type of the parameters.
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        moving_mean_name, moving_variance_name: Names of the running statistics.
        do_model_average_for_mean_and_var: Whether averages of parameters take in the running statistics.
        use_global_stats: Uses the running statistics in training too.
        trainable_statistics: Takes the batch's statistics in inference too.

    Example:
        >>> layer = paddle.nn.BatchNorm(2, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__(dtype="float32" if dtype_of(dtype).is_low else dtype)
        count = check_int(num_channels, "num_channels", "BatchNorm", 1)
        check_activation(act, "BatchNorm")
        self._data_layout = check_choice(data_layout, ("NCHW", "NHWC"), "data_layout", "BatchNorm")
        self._act, self._is_test, self._momentum, self._epsilon = act, is_test, momentum, epsilon
        self._use_global_stats, self._trainable_statistics = use_global_stats, trainable_statistics
        fixed = ParamAttr(trainable=False)
        self.weight = self.create_parameter(
            (count,), fixed if param_attr is False else param_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter((count,), fixed if bias_attr is False else bias_attr, is_bias=True)
        self._mean = self.create_parameter(
            (count,), statistic(moving_mean_name, 0.0, do_model_average_for_mean_and_var)
        )
        self._variance = self.create_parameter(
            (count,), statistic(moving_variance_name, 1.0, do_model_average_for_mean_and_var)
        )

    def forward(self, input: Variable) -> Variable:
        """Returns a value of the same shape as ``input``."""
        layout = "[n, c, ...]" if self._data_layout == "NCHW" else "[n, ..., c]"
        check_variable(input, "input", "BatchNorm", FLOATS)
        check_rank(input, range(2, 6), "input", "BatchNorm", layout=layout)
        inputs = {
            "X": input,
            "Scale": self.weight,
            "Bias": self.bias,
            "Mean": self._mean,
            "Variance": self._variance,
        }
        attrs = {
            "momentum": self._momentum,
            "epsilon": self._epsilon,
            "is_test": self._is_test or not self.training,
            "data_layout": self._data_layout,
            "use_global_stats": self._use_global_stats,
            "trainable_statistics": self._trainable_statistics,
        }
        return normalised(self._helper, inputs, attrs, self._act)


@export("nn.LayerNorm", op="layer_norm")
class LayerNorm(Layer):
    """Normalises the last axes, each sample by itself (Ba et al., 2016).

    Args:
        normalized_shape: An int, or the sizes of the last axes.
        epsilon: Added to the variance, at most 0.001.
        weight_attr: ParamAttr, name or initializer of the scale, which starts at 1; ``False`` for none.
        bias_attr: The same for the bias.
        name: Name of the op's layer; parameters keep the generated name.

    Example:
        >>> layer = paddle.nn.LayerNorm(2, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[1.0, 3.0], [10.0, 30.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: Any,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        count = len(normalized_shape) if isinstance(normalized_shape, list | tuple) else 1
        sizes = check_ints(normalized_shape, max(count, 1), "normalized_shape", "LayerNorm")
        self._normalized_shape = [check_int(s, f"normalized_shape[{i}]", "LayerNorm", 1) for i, s in enumerate(sizes)]
        self._epsilon, self._name = epsilon, name
        scale_and_bias(self, math.prod(sizes), weight_attr, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Returns a value of the same shape as ``input``."""
        return layer_norm(input, self._normalized_shape, self.weight, self.bias, self._epsilon, self._name)

    def extra_repr(self) -> str:
        """Returns sizes and epsilon."""
        return f"normalized_shape={self._normalized_shape}, epsilon={self._epsilon}"


@export("nn.GroupNorm", op="group_norm")
class GroupNorm(Layer):
    """Normalises groups of channels, each sample by itself (Wu and He, 2018).

    Args:
        num_groups: Number of groups; it divides ``num_channels``.
        num_channels: Number of channels.
        epsilon: Added to the variance.
        weight_attr: ParamAttr, name or initializer of the scale, which starts at 1; ``False`` for none.
        bias_attr: The same for the bias.
        data_format: ``"NCHW"`` (or ``NCL``, ``NCDHW``), or ``"NHWC"`` (``NLC``, ``NDHWC``).
        name: Name of the op's layer; parameters keep the generated name.

    Example:
        >>> layer = paddle.nn.GroupNorm(num_groups=2, num_channels=4, epsilon=0.0)
        >>> y = paddle.flatten(layer(paddle.to_tensor([[[[1.0]], [[3.0]], [[10.0]], [[30.0]]]])))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([-1.,  1., -1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        layouts = ("NCHW", "NHWC", "NC", "NCL", "NLC", "NCDHW", "NDHWC")
        self._data_format = check_choice(data_format, layouts, "data_format", "GroupNorm")
        self._num_groups = check_int(num_groups, "num_groups", "GroupNorm", 1)
        self._num_channels = check_int(num_channels, "num_channels", "GroupNorm", 1)
        self._epsilon, self._name = epsilon, name
        scale_and_bias(self, num_channels, weight_attr, bias_attr)

    def forward(self, input: Variable) -> Any:
        """Returns a value of the same shape as ``input``."""
        check_variable(input, "input", "GroupNorm", FLOATS)
        check_rank(input, range(2, 6), "input", "GroupNorm", layout=self._data_format)
        layout = "NCHW" if self._data_format[1] == "C" else "NHWC"
        attrs = {"epsilon": self._epsilon, "groups": self._num_groups, "data_layout": layout}
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        order = ("Mean", "Variance", "Y")
        if self._name is not None:
            return emit("group_norm", inputs, attrs, name=self._name, order=order)
        return self._helper.emit("group_norm", inputs, attrs, order=order)

    def extra_repr(self) -> str:
        """Returns sizes and epsilon."""
        return f"num_groups={self._num_groups}, num_channels={self._num_channels}, epsilon={self._epsilon}"


class _InstanceNorm(Layer):
    """Normalises each channel of each sample over its positions (Ulyanov et al., 2016)."""

    _ranks: tuple[int, ...] = (4,)
    _layouts: tuple[str, ...] = ("NCHW",)

    @no_effect(momentum="there are no running statistics")
    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        function = type(self).__name__
        self._num_features = check_int(num_features, "num_features", function, 1)
        layout = self._layouts[0] if data_format is None else data_format
        self._data_format = check_choice(layout, self._layouts, "data_format", function)
        check_both_or_none(weight_attr, bias_attr, "weight_attr", function)
        self._epsilon, self._name = epsilon, name
        self.scale = self.create_parameter((num_features,), weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter((num_features,), bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Any:
        """Returns a value of the same shape as ``input``."""
        function = type(self).__name__
        check_variable(input, "input", function, FLOATS)
        check_rank(input, self._ranks, "input", function, layout=self._data_format)
        inputs = {"X": input, "Scale": self.scale, "Bias": self.bias}
        order = ("SavedMean", "SavedVariance", "Y")
        return emit("instance_norm", inputs, {"epsilon": self._epsilon}, name=self._name, order=order)

    def extra_repr(self) -> str:
        """Returns size and epsilon."""
        return f"num_features={self._num_features}, epsilon={self._epsilon}"


@export("nn.InstanceNorm1D", op="instance_norm")
@own_constructor(data_format="NCL")
class InstanceNorm1D(_InstanceNorm):
    """Instance normalisation of ``[n, c, l]``: each channel of each sample, over its positions (Ulyanov et al., 2016).

    Args:
        num_features: Number of channels.
        epsilon: Added to the variance.
        weight_attr: ParamAttr, name or initializer of the scale, which starts at 1; ``False`` for no scale and no bias.
        bias_attr: The same for the bias; ``False`` exactly when ``weight_attr`` is.
        data_format: Layout of the axes; channels are the second axis of each that is accepted.
        name: Name of the op's layer; parameters keep the generated name.

    Example:
        >>> layer = paddle.nn.InstanceNorm1D(2, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[[1.0, 3.0], [10.0, 30.0]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[-1.,  1.],
                [-1.,  1.]]], dtype=float32)
    """

    _ranks, _layouts = (2, 3), ("NCL", "NC")


@export("nn.InstanceNorm2D", op="instance_norm")
@own_constructor(data_format="NCHW")
class InstanceNorm2D(_InstanceNorm):
    """Instance normalisation of images ``[n, c, h, w]``; arguments as in :class:`InstanceNorm1D`.

    Example:
        >>> layer = paddle.nn.InstanceNorm2D(1, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[[[1.0, 3.0], [3.0, 1.0]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[-1.,  1.],
                 [ 1., -1.]]]], dtype=float32)
    """


@export("nn.InstanceNorm3D", op="instance_norm")
@own_constructor(data_format="NCDHW")
class InstanceNorm3D(_InstanceNorm):
    """Instance normalisation of volumes ``[n, c, d, h, w]``; arguments as in :class:`InstanceNorm1D`.

    Example:
        >>> layer = paddle.nn.InstanceNorm3D(1, epsilon=0.0)
        >>> y = layer(paddle.to_tensor([[[[[1.0, 3.0], [3.0, 1.0]]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[[-1.,  1.],
                  [ 1., -1.]]]]], dtype=float32)
    """

    _ranks, _layouts = (5,), ("NCDHW",)


@export("nn.SpectralNorm", "fluid.dygraph.nn.SpectralNorm")
class SpectralNorm(Layer):
    """Divides a weight by its largest singular value, as power iterations find it (Miyato et al., 2018).

    Args:
        weight_shape: Shape of the weight, rank 2 to 5.
        dim: The axis of rows: 0 for ``Linear`` and ``Conv2D`` filters, 1 for transposed ones.
        power_iters: Iterations from vectors that start at random and stay.
        eps: Added to norms.
        dtype: Float type of the vectors.

    Example:
        >>> w = paddle.to_tensor([[3.0, 0.0], [0.0, 6.0]])
        >>> y = paddle.nn.SpectralNorm([2, 2], power_iters=20)(w)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[0.5, 0. ],
               [0. , 1. ]], dtype=float32)
    """

    def __init__(
        self, weight_shape: Any, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, dtype: Any = "float32"
    ) -> None:
        super().__init__(dtype=dtype)
        function = "SpectralNorm"
        shape = check_ints(weight_shape, len(weight_shape), "weight_shape", function)
        for i, n in enumerate(shape):
            check_int(n, f"weight_shape[{i}]", function, 1)
        self._weight_shape, self._eps = shape, eps
        self._dim = check_axis(dim, len(shape), "dim", function)
        self._power_iters = check_int(power_iters, "power_iters", function, 0)
        rows, columns = spectral_sizes(shape, self._dim)
        start = ParamAttr(initializer=Normal(0.0, 1.0), trainable=False)
        self.weight_u = self.create_parameter((rows,), start)
        self.weight_v = self.create_parameter((columns,), start)

    def forward(self, x: Variable) -> Variable:
        """Returns a value of the same shape as ``x``."""
        if check_variable(x, "x", "SpectralNorm", FLOATS).shape != self._weight_shape:
            raise ShapeError(
                "the weight has another shape than SpectralNorm was made for",
                expected=list(self._weight_shape),
                received=f"'{x.name}' of shape {list(x.shape)}",
                fix="pass that weight, or make SpectralNorm with its shape",
                op="SpectralNorm",
                var=x.name,
            )
        return spectral(self._helper, x, self.weight_u, self.weight_v, self._dim, self._power_iters, self._eps)


__all__ = [
    "BatchNorm",
    "BatchNorm1D",
    "BatchNorm2D",
    "BatchNorm3D",
    "GroupNorm",
    "InstanceNorm1D",
    "InstanceNorm2D",
    "InstanceNorm3D",
    "LayerNorm",
    "SpectralNorm",
    "SyncBatchNorm",
]
