"""``Linear``, ``Embedding``, dropout, padding, resizing and other general layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, INTEGERS, check_choice, check_int, check_ints, check_size
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.functional_layer import functional_layer
from tstatic.nn.layer.layers import Layer, own_constructor
from tstatic.nn.param import check_enabled
from tstatic.no_effect import no_effect
from tstatic.ops.functions.interpolate_functions import interpolate
from tstatic.ops.functions.linear import bilinear, linear
from tstatic.ops.indexing.embedding import padding_row
from tstatic.ops.shape.pad import pad
from tstatic.ops.shape.reshape import flatten, unflatten

Dropout = functional_layer("Dropout", "dropout", names=("input",))
Dropout2D = functional_layer("Dropout2D", "dropout2d", names=("input",))
Dropout3D = functional_layer("Dropout3D", "dropout3d", names=("input",))
CosineSimilarity = functional_layer("CosineSimilarity", "cosine_similarity", inputs=2)
PairwiseDistance = functional_layer("PairwiseDistance", "pairwise_distance", inputs=2)
AlphaDropout = functional_layer("AlphaDropout", "alpha_dropout", names=("input",))
Upsample = functional_layer("Upsample", "upsample")
PixelShuffle = functional_layer("PixelShuffle", "pixel_shuffle")
PixelUnshuffle = functional_layer("PixelUnshuffle", "pixel_unshuffle")
ChannelShuffle = functional_layer("ChannelShuffle", "channel_shuffle")
LocalResponseNorm = functional_layer("LocalResponseNorm", "local_response_norm", names=("input",))
Unfold = functional_layer(
    "Unfold", "unfold", order=("kernel_sizes", "dilations", "paddings", "strides", "name"), names=("input",)
)
Fold = functional_layer(
    "Fold", "fold", order=("output_sizes", "kernel_sizes", "dilations", "paddings", "strides", "name"), names=("input",)
)


@no_effect(args="the layer has no settings", kwargs="the layer has no settings")
@export("nn.Identity")
class Identity(Layer):
    """Returns its input.

    Example:
        >>> layer = paddle.nn.Identity()
        >>> y = layer(paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 2.], dtype=float32)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Returns ``input``."""
        return input


@export("nn.Linear", op="matmul_v2")
class Linear(Layer):
    """``x @ weight + bias`` along the last axis.

    Args:
        in_features: Size of the input's last axis.
        out_features: Size of the output's last axis.
        weight_attr: ParamAttr, name or initializer of the weight ``[in_features, out_features]``; Xavier uniform by default.
        bias_attr: The same for the bias ``[out_features]``; ``False`` for none.
        name: Name of the ops' layer; parameters keep the generated name.

    Example:
        >>> layer = paddle.nn.Linear(3, 2, weight_attr=paddle.nn.initializer.Constant(0.5))
        >>> y = layer(paddle.to_tensor([[1.0, 2.0, 3.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[3., 3.]], dtype=float32)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_int(in_features, "in_features", "Linear", 1)
        self.out_features = check_int(out_features, "out_features", "Linear", 1)
        check_enabled(weight_attr, "weight_attr", "Linear")
        self._name = name
        self.weight = self.create_parameter((in_features, out_features), weight_attr)
        self.bias = self.create_parameter((out_features,), bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """Maps ``[..., in_features]`` to ``[..., out_features]``."""
        check_variable(input, "input", "Linear", FLOATS)
        fix = "check in_features, or flatten the input first"
        check_size(input, -1, self.in_features, "input", "Linear", why="in_features", fix=fix)
        return linear(input, self.weight, self.bias, self._name)

    def extra_repr(self) -> str:
        """Returns sizes and dtype."""
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._dtype.name}"


@export("nn.Embedding", op="lookup_table_v2")
class Embedding(Layer):
    """Looks up rows of a table.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Width of a row.
        padding_idx: Row that gives zeros and gets no gradient; a negative number counts from the end.
        sparse: Updates with ``lazy_mode`` leave rows alone that the batch does not name; other updates are the same.
        weight_attr: ParamAttr, name or initializer of the table; Xavier uniform by default.
        name: Name of the op's layer; the table keeps the generated name.

    Example:
        >>> table = paddle.nn.initializer.Assign(np.array([[0, 0], [1, 10], [2, 20]], "float32"))
        >>> layer = paddle.nn.Embedding(3, 2, weight_attr=table)
        >>> y = layer(paddle.to_tensor([2, 1]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[ 2., 20.],
               [ 1., 10.]], dtype=float32)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        sparse: bool = False,
        weight_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._num_embeddings = check_int(num_embeddings, "num_embeddings", "Embedding", 1)
        self._embedding_dim = check_int(embedding_dim, "embedding_dim", "Embedding", 1)
        self._padding_idx = padding_row(padding_idx, num_embeddings, "Embedding")
        check_enabled(weight_attr, "weight_attr", "Embedding")
        self._sparse, self._name = bool(sparse), name
        self.weight = self.create_parameter((num_embeddings, embedding_dim), weight_attr)

    def forward(self, x: Variable) -> Variable:
        """Maps ints of any shape to ``[*x.shape, embedding_dim]``."""
        check_variable(x, "x", "Embedding", INTEGERS)
        inputs = {"Ids": x, "W": self.weight}
        attrs = {"padding_idx": self._padding_idx, "is_sparse": self._sparse}
        return emit("lookup_table_v2", inputs, attrs, name=self._name, prefix="embedding")  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Returns sizes and settings."""
        padding = f", padding_idx={self._padding_idx}" if self._padding_idx != -1 else ""
        return f"{self._num_embeddings}, {self._embedding_dim}{padding}, sparse={self._sparse}"


@export("nn.Flatten", "fluid.dygraph.nn.Flatten", op="flatten_contiguous_range")
class Flatten(Layer):
    """Merges the axes from ``start_axis`` to ``stop_axis`` into one; by default all but the first.

    Args:
        start_axis, stop_axis: The first and the last axis that are merged; negative ones count from the end.

    Example:
        >>> layer = paddle.nn.Flatten()
        >>> x = static.data("x", [None, 3, 4])
        >>> layer(x).shape
        (-1, 12)
    """

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__()
        self.start_axis, self.stop_axis = start_axis, stop_axis

    def forward(self, input: Variable) -> Variable:
        """Returns the same values in fewer axes."""
        return flatten(input, self.start_axis, self.stop_axis)

    def extra_repr(self) -> str:
        """Returns the range of axes."""
        return f"start_axis={self.start_axis}, stop_axis={self.stop_axis}"


@export("nn.Unflatten", op="reshape2")
class Unflatten(Layer):
    """Splits an axis into several.

    Args:
        axis: Which axis.
        shape: Sizes whose product is that of the axis; one may be -1.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.Unflatten(1, [2, -1])
        >>> x = static.data("x", [None, 6, 4])
        >>> layer(x).shape
        (-1, 2, 3, 4)
    """

    def __init__(self, axis: int, shape: Sequence[int], name: str | None = None) -> None:
        super().__init__()
        self.axis, self.shape, self.name = axis, shape, name

    def forward(self, input: Variable) -> Variable:
        """Returns the same values in more axes."""
        return unflatten(input, self.axis, self.shape, self.name)

    def extra_repr(self) -> str:
        """Returns the axis and its sizes."""
        return f"axis={self.axis}, shape={self.shape}"


@export("nn.Bilinear")
class Bilinear(Layer):
    """``x1 W_k x2 + b_k`` for each of ``out_features`` matrices ``W_k``.

    Args:
        in1_features, in2_features: Widths of the two inputs.
        out_features: Number of matrices.
        weight_attr: ParamAttr, name or initializer of the weight ``[out_features, in1_features, in2_features]``.
        bias_attr: The same for the bias ``[1, out_features]``; ``False`` for none.
        name: Name of the ops' layer.

    Example:
        >>> one = paddle.nn.initializer.Constant(1.0)
        >>> layer = paddle.nn.Bilinear(2, 2, 1, weight_attr=one)
        >>> y = layer(paddle.to_tensor([[1.0, 2.0]]), paddle.to_tensor([[3.0, 4.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[21.]], dtype=float32)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._sizes = tuple(
            check_int(n, arg, "Bilinear", 1)
            for n, arg in (
                (in1_features, "in1_features"),
                (in2_features, "in2_features"),
                (out_features, "out_features"),
            )
        )
        check_enabled(weight_attr, "weight_attr", "Bilinear")
        self._name = name
        self.weight = self.create_parameter((out_features, in1_features, in2_features), weight_attr)
        self.bias = self.create_parameter((1, out_features), bias_attr, is_bias=True)

    def forward(self, x1: Variable, x2: Variable) -> Variable:
        """Maps ``x1``, ``[n, in1_features]``, and ``x2``, ``[n, in2_features]``, to ``[n, out_features]``."""
        return bilinear(x1, x2, self.weight, self.bias, self._name)

    def extra_repr(self) -> str:
        """Returns the sizes."""
        first, second, out = self._sizes
        return f"in1_features={first}, in2_features={second}, out_features={out}, dtype={self._dtype.name}"


# -------------------------------------------------------------------------------------------------------------- padding
class Pad(Layer):
    """Base of the padding layers: pads the positions of its input."""

    _rank = 2
    _layout = "NCHW"

    def __init__(
        self,
        padding: Any,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        function = type(self).__name__
        self._pad = list(check_ints(padding, 2 * self._rank, "padding", function))
        self._mode = check_choice(mode, ("constant", "reflect", "replicate", "circular"), "mode", function)
        self._value = value
        self._data_format = self._layout if data_format is None else data_format
        self._name = name

    def forward(self, x: Variable) -> Variable:
        """Returns the padded input."""
        return pad(x, self._pad, mode=self._mode, value=self._value, data_format=self._data_format, name=self._name)

    def extra_repr(self) -> str:
        """Returns all settings."""
        return f"padding={self._pad}, mode={self._mode}, value={self._value}, data_format={self._data_format}"


@export("nn.Pad1D")
@own_constructor(data_format="NCL")
class Pad1D(Pad):
    """Pads the positions of ``[n, c, l]``.

    Args:
        padding: An int for all sides, or two ints (before, after) per axis, the last axis first.
        mode: ``"constant"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        value: The padding of ``"constant"``.
        data_format: Layout of the axes, which says where the channels are.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.Pad1D([1, 2])
        >>> y = layer(paddle.to_tensor([[[1.0, 2.0]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[0., 1., 2., 0., 0.]]], dtype=float32)
    """

    _rank, _layout = 1, "NCL"


@export("nn.Pad2D")
@own_constructor(data_format="NCHW")
class Pad2D(Pad):
    """Pads the positions of ``[n, c, h, w]``; arguments as in :class:`Pad1D`.

    Example:
        >>> layer = paddle.nn.Pad2D([1, 0, 0, 1])
        >>> y = layer(paddle.to_tensor([[[[1.0, 2.0]]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[0., 1., 2.],
                 [0., 0., 0.]]]], dtype=float32)
    """


@export("nn.Pad3D")
@own_constructor(data_format="NCDHW")
class Pad3D(Pad):
    """Pads the positions of ``[n, c, d, h, w]``; arguments as in :class:`Pad1D`.

    Example:
        >>> layer = paddle.nn.Pad3D([1, 0, 0, 1, 0, 0], value=7.0)
        >>> y = layer(paddle.to_tensor([[[[[1.0, 2.0]]]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[7., 1., 2.],
                  [7., 7., 7.]]]]], dtype=float32)
    """

    _rank, _layout = 3, "NCDHW"


@export("nn.ZeroPad2D")
class ZeroPad2D(Pad):
    """Pads images with zeros; ``padding`` is an int or ``[left, right, top, bottom]``.

    Args:
        padding: Rows and columns of zeros, at least 0.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.ZeroPad2D([1, 0, 0, 1])
        >>> y = layer(paddle.to_tensor([[[[1.0, 2.0]]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[0., 1., 2.],
                 [0., 0., 0.]]]], dtype=float32)
    """

    def __init__(self, padding: Any, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__(padding, "constant", 0.0, data_format, name)


# ------------------------------------------------------------------------------------------------------------- resizing
class _Resize(Layer):
    _mode, _align_corners = "nearest", False

    def __init__(
        self, size: Any = None, scale_factor: Any = None, data_format: str = "NCHW", name: str | None = None
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.data_format, self.name = size, scale_factor, data_format, name

    def forward(self, x: Variable) -> Variable:
        """Resizes ``[n, c, h, w]`` to the new height and width."""
        return interpolate(
            x, self.size, self.scale_factor, self._mode, self._align_corners, 0, self.data_format, self.name
        )

    def extra_repr(self) -> str:
        """Returns the new size, or the factor."""
        given = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{given}, data_format={self.data_format}"


@export("nn.UpsamplingNearest2D")
class UpsamplingNearest2D(_Resize):
    """Resizes images to ``size``, or by ``scale_factor``, taking the nearest value.

    Args:
        size: ``[height, width]`` of the result; give this or ``scale_factor``.
        scale_factor: A number, or one per axis.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.UpsamplingNearest2D(scale_factor=2)
        >>> y = layer(paddle.to_tensor([[[[1.0, 2.0]]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1., 1., 2., 2.],
                 [1., 1., 2., 2.]]]], dtype=float32)
    """


@export("nn.UpsamplingBilinear2D")
class UpsamplingBilinear2D(_Resize):
    """Resizes images to ``size``, or by ``scale_factor``, between the four nearest values; corners stay in the corners.

    Args:
        size: ``[height, width]`` of the result; give this or ``scale_factor``.
        scale_factor: A number, or one per axis.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.UpsamplingBilinear2D(size=[1, 3])
        >>> y = layer(paddle.to_tensor([[[[1.0, 2.0]]]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1. , 1.5, 2. ]]]], dtype=float32)
    """

    _mode, _align_corners = "bilinear", True
