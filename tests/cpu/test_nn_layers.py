"""Layer classes: values and gradients against torch's layers with the same weights, names as in Paddle, modes and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_error, check_layer, sample
from tstatic import nn, static
from tstatic.errors import DTypeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.opdef import namespace
from tstatic.nn.layer.functional_layer import FunctionalLayer

torch = pytest.importorskip("torch")
F = torch.nn.functional
HERE = "test_nn_layers.py"


def data(name: str, shape: list[Any], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


# --------------------------------------------------------------------------------------------------- linear and embedding
def test_linear() -> None:
    run = check_layer(
        lambda x: nn.Linear(3, 4)(x),
        lambda p, x: x @ p["linear_0.w_0"] + p["linear_0.b_0"],
        {"x": sample(2, 5, 3)},
        parameters=["linear_0.w_0", "linear_0.b_0"],
        result="linear_1.tmp_1",
    )
    assert run.ops() == ["matmul_v2", "elementwise_add"]


def test_linear_named_and_without_bias() -> None:
    check_layer(
        lambda x: nn.Linear(3, 4, bias_attr=False, name="mine")(x),
        lambda p, x: x @ p["linear_0.w_0"],
        {"x": sample(2, 3)},
        parameters=["linear_0.w_0"],
        result="mine.tmp_0",
    )


def test_a_layer_called_twice_shares_its_parameters() -> None:
    def build(x: Any) -> Any:
        layer = nn.Linear(3, 3)
        return layer(layer(x))

    run = check_layer(
        build,
        lambda p, x: F.linear(
            F.linear(x, p["linear_0.w_0"].T, p["linear_0.b_0"]), p["linear_0.w_0"].T, p["linear_0.b_0"]
        ),
        {"x": sample(2, 3)},
        parameters=["linear_0.w_0", "linear_0.b_0"],
        result="linear_2.tmp_1",
    )
    assert len(run.startup.global_block().ops) == 2


@pytest.mark.parametrize("padding", [None, -2])
def test_embedding(padding: int | None) -> None:
    run = check_layer(
        lambda ids: nn.Embedding(5, 3, padding_idx=padding, sparse=True)(ids),
        lambda p, ids: F.embedding(ids, p["embedding_0.w_0"]) * (1 if padding is None else (ids != 3)[..., None]),
        {"ids": np.array([[1, 0, 3], [4, 4, 2]])},
        parameters=["embedding_0.w_0"],
        result="embedding_1.tmp_0",
    )
    assert run.ops() == ["lookup_table_v2"]


def test_bilinear() -> None:
    check_layer(
        lambda x, y: nn.Bilinear(3, 2, 4)(x, y),
        lambda p, x, y: F.bilinear(x, y, p["bilinear_0.w_0"], p["bilinear_0.b_0"][0]),
        {"x": sample(5, 3), "y": sample(5, 2)},
        parameters=["bilinear_0.w_0", "bilinear_0.b_0"],
        result="bilinear_1.tmp_0",
    )


# --------------------------------------------------------------------------------------------------------- convolutions
PAIRS = [
    ({}, {}),
    ({"stride": 2, "padding": 1, "dilation": 2}, {"stride": 2, "padding": 1, "dilation": 2}),
    ({"groups": 2, "bias_attr": False}, {"groups": 2, "bias": False}),
    ({"padding": 2, "padding_mode": "reflect"}, {"padding": 2, "padding_mode": "reflect"}),
    ({"padding": 1, "padding_mode": "replicate"}, {"padding": 1, "padding_mode": "replicate"}),
    ({"padding": 1, "padding_mode": "circular"}, {"padding": 1, "padding_mode": "circular"}),
]


def torch_layer(layer: Any, p: dict[str, Any], weight: str, bias: str) -> Callable[..., Any]:
    """A torch layer that runs with given parameters."""
    own = {"weight": p[weight]} | ({"bias": p[bias]} if bias in p else {})
    return lambda *x: torch.func.functional_call(layer, own, x)


@pytest.mark.parametrize(("settings", "other"), PAIRS)
def test_conv2d(settings: dict[str, Any], other: dict[str, Any]) -> None:
    run = check_layer(
        lambda x: nn.Conv2D(4, 6, (3, 2), **settings)(x),
        lambda p, x: torch_layer(torch.nn.Conv2d(4, 6, (3, 2), **other), p, "conv2d_0.w_0", "conv2d_0.b_0")(x),
        {"x": sample(2, 4, 7, 8)},
        result="conv2d_1.tmp_0" if "bias_attr" in settings else "conv2d_1.tmp_1",
    )
    tail = [] if "bias_attr" in settings else ["reshape2", "elementwise_add"]
    assert run.ops()[run.ops().index("conv2d") :] == ["conv2d", *tail]


@pytest.mark.parametrize(("settings", "other"), PAIRS)
def test_conv1d(settings: dict[str, Any], other: dict[str, Any]) -> None:
    check_layer(
        lambda x: nn.Conv1D(4, 6, 3, **settings)(x),
        lambda p, x: torch_layer(torch.nn.Conv1d(4, 6, 3, **other), p, "conv1d_0.w_0", "conv1d_0.b_0")(x),
        {"x": sample(2, 4, 9)},
    )


def test_conv2d_per_channel_is_depthwise() -> None:
    run = check_layer(
        lambda x: nn.Conv2D(4, 8, 3, groups=4, padding="SAME")(x),
        lambda p, x: F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], groups=4, padding="same"),
        {"x": sample(2, 4, 5, 5)},
        parameters=["conv2d_0.w_0", "conv2d_0.b_0"],
        result="depthwise_conv2d_0.tmp_1",
    )
    assert run.ops() == ["depthwise_conv2d", "reshape2", "elementwise_add"]


def test_conv2d_channels_last() -> None:
    run = check_layer(
        lambda x: nn.Conv2D(4, 6, 3, data_format="NHWC")(x),
        lambda p, x: F.conv2d(x.permute(0, 3, 1, 2), p["conv2d_0.w_0"], p["conv2d_0.b_0"]).permute(0, 2, 3, 1),
        {"x": sample(2, 5, 6, 4)},
    )
    assert run.main.global_block().ops[1].attr("shape") == [1, 1, 1, 6]


TRANSPOSED = [
    ({}, {}, None),
    ({"stride": 2, "padding": 1, "output_padding": 1}, {"stride": 2, "padding": 1, "output_padding": 1}, None),
    ({"stride": 2}, {"stride": 2}, True),
    ({"groups": 2, "dilation": 2, "bias_attr": False}, {"groups": 2, "dilation": 2, "bias": False}, None),
    ({"groups": 4}, {"groups": 4}, None),
]


@pytest.mark.parametrize(("settings", "other", "sized"), TRANSPOSED)
def test_conv2d_transpose(settings: dict[str, Any], other: dict[str, Any], sized: bool | None) -> None:
    name = "conv2d_transpose_0"
    size = {"output_size": [10, 12]} if sized else {}
    layer = torch.nn.ConvTranspose2d(4, 4, 3, **other)

    def reference(p: Any, x: Any) -> Any:
        own = {"weight": p[f"{name}.w_0"]} | ({"bias": p[f"{name}.b_0"]} if f"{name}.b_0" in p else {})
        return torch.func.functional_call(layer, own, (x,), size)

    check_layer(lambda x: nn.Conv2DTranspose(4, 4, 3, **settings)(x, **size), reference, {"x": sample(2, 4, 4, 5)})


@pytest.mark.parametrize(("settings", "other", "sized"), TRANSPOSED)
def test_conv1d_transpose(settings: dict[str, Any], other: dict[str, Any], sized: bool | None) -> None:
    name = "conv1d_transpose_0"
    size = {"output_size": [12]} if sized else {}
    layer = torch.nn.ConvTranspose1d(4, 4, 3, **other)

    def reference(p: Any, x: Any) -> Any:
        own = {"weight": p[f"{name}.w_0"]} | ({"bias": p[f"{name}.b_0"]} if f"{name}.b_0" in p else {})
        return torch.func.functional_call(layer, own, (x,), size)

    check_layer(lambda x: nn.Conv1DTranspose(4, 4, 3, **settings)(x, **size), reference, {"x": sample(2, 4, 5)})


# -------------------------------------------------------------------------------------------------------- normalisation
BATCH_NORMS = [
    (lambda: nn.BatchNorm1D(3), (6, 3), "batch_norm1d"),
    (lambda: nn.BatchNorm1D(3), (4, 3, 5), "batch_norm1d"),
    (lambda: nn.BatchNorm2D(3), (4, 3, 2, 3), "batch_norm2d"),
    (lambda: nn.BatchNorm3D(3), (2, 3, 2, 2, 3), "batch_norm3d"),
    (lambda: nn.SyncBatchNorm(3), (4, 3, 2, 3), "sync_batch_norm"),
    (lambda: nn.BatchNorm(3), (4, 3, 2, 3), "batch_norm"),
]


@pytest.mark.parametrize(("make", "shape", "name"), BATCH_NORMS)
def test_batch_norm_in_training(make: Any, shape: tuple[int, ...], name: str) -> None:
    x = sample(*shape)
    run = check_layer(
        lambda v: make()(v),
        lambda p, v: F.batch_norm(v, None, None, p[f"{name}_0.w_0"], p[f"{name}_0.b_0"], True, 0.0, 1e-5),
        {"x": x},
        parameters=[f"{name}_0.{n}" for n in ("w_0", "b_0", "w_1", "w_2")],
        result="batch_norm_0.tmp_3" if name == "batch_norm" else "batch_norm_0.tmp_2",
    )
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(run.value(f"{name}_0.w_1"), 0.1 * x.mean(axes), atol=1e-12)
    np.testing.assert_allclose(run.value(f"{name}_0.w_2"), 0.9 + 0.1 * x.var(axes), atol=1e-12)


@pytest.mark.parametrize(("make", "shape", "name"), BATCH_NORMS)
def test_batch_norm_after_eval(make: Any, shape: tuple[int, ...], name: str) -> None:
    statistics = {f"{name}_0.w_1": sample(3), f"{name}_0.w_2": sample(3, low=0.5, high=2.0)}

    def build(x: Any) -> Any:
        layer = make()
        layer.eval()
        return layer(x)

    run = check_layer(
        build,
        lambda p, x: F.batch_norm(x, *(p[n] for n in statistics), p[f"{name}_0.w_0"], p[f"{name}_0.b_0"], False),
        {"x": sample(*shape)},
        fixed=statistics,
    )
    for key, value in statistics.items():
        assert np.array_equal(run.value(key), value)


def test_batch_norm_without_scale_and_bias() -> None:
    check_layer(
        lambda x: nn.BatchNorm2D(4, weight_attr=False, bias_attr=False, data_format="NHWC")(x),
        lambda p, x: F.batch_norm(x.movedim(-1, 1), None, None, None, None, True).movedim(1, -1),
        {"x": sample(3, 2, 3, 4)},
        parameters=["batch_norm2d_0.w_0", "batch_norm2d_0.w_1"],
    )


def test_batch_norm_of_one_x_takes_an_activation_and_fixes_parameters() -> None:
    run = check_layer(
        lambda x: nn.BatchNorm(3, act="relu", param_attr=False, bias_attr=False)(x),
        lambda p, x: F.relu(F.batch_norm(x, None, None, None, None, True)),
        {"x": sample(4, 3)},
        result="batch_norm_0.tmp_4",
    )
    assert not any(p.trainable for p in run.main.all_parameters())


def test_layer_norm() -> None:
    check_layer(
        lambda x: nn.LayerNorm([4, 5], epsilon=1e-4)(x),
        lambda p, x: F.layer_norm(
            x, (4, 5), p["layer_norm_0.w_0"].reshape(4, 5), p["layer_norm_0.b_0"].reshape(4, 5), 1e-4
        ),
        {"x": sample(3, 4, 5)},
        parameters=["layer_norm_0.w_0", "layer_norm_0.b_0"],
        result="layer_norm_1.tmp_2",
    )


def test_layer_norm_without_scale() -> None:
    check_layer(
        lambda x: nn.LayerNorm(5, weight_attr=False)(x),
        lambda p, x: F.layer_norm(x, (5,), None, p["layer_norm_0.b_0"]),
        {"x": sample(3, 5)},
        parameters=["layer_norm_0.b_0"],
    )


def test_group_norm() -> None:
    check_layer(
        lambda x: nn.GroupNorm(2, 4, epsilon=1e-4)(x),
        lambda p, x: F.group_norm(x, 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"], 1e-4),
        {"x": sample(2, 4, 3, 2)},
        parameters=["group_norm_0.w_0", "group_norm_0.b_0"],
        result="group_norm_0.tmp_2",
    )


@pytest.mark.parametrize(
    ("make", "shape", "name"),
    [
        (lambda: nn.InstanceNorm1D(3), (2, 3, 5), "instance_norm1d"),
        (lambda: nn.InstanceNorm2D(3), (2, 3, 4, 2), "instance_norm2d"),
        (lambda: nn.InstanceNorm3D(3), (2, 3, 2, 2, 2), "instance_norm3d"),
    ],
)
def test_instance_norm(make: Any, shape: tuple[int, ...], name: str) -> None:
    check_layer(
        lambda x: make()(x),
        lambda p, x: F.instance_norm(x, weight=p[f"{name}_0.w_0"], bias=p[f"{name}_0.b_0"]),
        {"x": sample(*shape)},
        parameters=[f"{name}_0.w_0", f"{name}_0.b_0"],
        result="instance_norm_0.tmp_2",
    )


def test_spectral_norm() -> None:
    def reference(p: Any, w: Any) -> Any:
        with torch.no_grad():
            right = F.normalize(w.T @ p["spectral_norm_0.w_0"], dim=0, eps=0)
            left = F.normalize(w @ right, dim=0, eps=0)
        return w / (left @ w @ right)

    check_layer(
        lambda w: nn.SpectralNorm([4, 3])(w),
        reference,
        {"w": sample(4, 3)},
        parameters=["spectral_norm_0.w_0", "spectral_norm_0.w_1"],
        result="spectral_norm_0.tmp_0",
        unknown=False,
    )


def test_convert_sync_batchnorm_keeps_parameters() -> None:
    norm = nn.BatchNorm2D(3)
    net = nn.Sequential(nn.Conv2D(1, 3, 3), norm, nn.Sequential(nn.BatchNorm1D(4), nn.ReLU()))
    names = [p.name for p in net.parameters()]
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert converted is net
    assert isinstance(net[1], nn.SyncBatchNorm)
    assert isinstance(net[2][0], nn.SyncBatchNorm)
    assert net[1].weight is norm.weight
    assert [p.name for p in net.parameters()] == names
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2D(3)), nn.SyncBatchNorm)
    net[1](data("x", [None, 3, 4, 4]))


# ----------------------------------------------------------------------------------------- layers made from one function
@pytest.mark.parametrize(
    ("name", "settings", "reference"),
    [
        ("ReLU", {}, torch.nn.ReLU()),
        ("ReLU6", {}, torch.nn.ReLU6()),
        ("LeakyReLU", {"negative_slope": 0.2}, torch.nn.LeakyReLU(0.2)),
        ("ELU", {"alpha": 0.7}, torch.nn.ELU(0.7)),
        ("SELU", {}, torch.nn.SELU()),
        ("CELU", {"alpha": 0.5}, torch.nn.CELU(0.5)),
        ("GELU", {}, torch.nn.GELU()),
        ("GELU", {"approximate": True}, torch.nn.GELU("tanh")),
        ("Silu", {}, torch.nn.SiLU()),
        ("Swish", {}, torch.nn.SiLU()),
        ("Mish", {}, torch.nn.Mish()),
        ("Sigmoid", {}, torch.nn.Sigmoid()),
        ("LogSigmoid", {}, torch.nn.LogSigmoid()),
        ("Hardsigmoid", {}, None),
        ("Hardswish", {}, torch.nn.Hardswish()),
        ("Hardtanh", {"min": -0.5, "max": 0.7}, torch.nn.Hardtanh(-0.5, 0.7)),
        ("Hardshrink", {}, torch.nn.Hardshrink()),
        ("Softshrink", {}, torch.nn.Softshrink()),
        ("Softplus", {"beta": 2.0}, torch.nn.Softplus(2.0)),
        ("Softsign", {}, torch.nn.Softsign()),
        ("Tanh", {}, torch.nn.Tanh()),
        ("Tanhshrink", {}, torch.nn.Tanhshrink()),
        ("ThresholdedReLU", {"threshold": 0.3}, torch.nn.Threshold(0.3, 0.0)),
        ("Softmax", {"axis": 1}, torch.nn.Softmax(1)),
        ("LogSoftmax", {}, torch.nn.LogSoftmax(-1)),
        ("Softmax2D", {}, torch.nn.Softmax2d()),
        ("Flatten", {}, torch.nn.Flatten()),
        ("Identity", {}, torch.nn.Identity()),
        ("MaxPool2D", {"kernel_size": 2, "padding": 1}, torch.nn.MaxPool2d(2, padding=1)),
        ("AvgPool2D", {"kernel_size": 2, "stride": 1}, torch.nn.AvgPool2d(2, 1)),
        ("AdaptiveAvgPool2D", {"output_size": 3}, torch.nn.AdaptiveAvgPool2d(3)),
        ("AdaptiveMaxPool2D", {"output_size": 3}, torch.nn.AdaptiveMaxPool2d(3)),
        ("PixelShuffle", {"upscale_factor": 2}, torch.nn.PixelShuffle(2)),
        ("PixelUnshuffle", {"downscale_factor": 2}, torch.nn.PixelUnshuffle(2)),
        ("ChannelShuffle", {"groups": 2}, torch.nn.ChannelShuffle(2)),
        ("Pad2D", {"padding": [1, 2, 0, 1], "value": 0.5}, torch.nn.ConstantPad2d((1, 2, 0, 1), 0.5)),
        ("Pad2D", {"padding": 1, "mode": "reflect"}, torch.nn.ReflectionPad2d(1)),
        ("ZeroPad2D", {"padding": [1, 2, 0, 1]}, torch.nn.ZeroPad2d((1, 2, 0, 1))),
        ("Upsample", {"scale_factor": 2}, torch.nn.Upsample(scale_factor=2)),
        ("UpsamplingNearest2D", {"size": [8, 12]}, torch.nn.UpsamplingNearest2d((8, 12))),
        ("UpsamplingBilinear2D", {"scale_factor": 2}, torch.nn.UpsamplingBilinear2d(scale_factor=2)),
        ("LocalResponseNorm", {"size": 3, "alpha": 0.1}, torch.nn.LocalResponseNorm(3, 0.1, 0.75, 1.0)),
        ("Unfold", {"kernel_sizes": 2, "dilations": 2}, torch.nn.Unfold(2, 2)),
    ],
)
def test_layers_of_one_input(name: str, settings: dict[str, Any], reference: Any) -> None:
    other = reference or (lambda x: F.relu6(6 * (x * 0.1666667 + 0.5)) / 6)
    check_layer(lambda x: getattr(nn, name)(**settings)(x), lambda p, x: other(x) * 1.0, {"x": sample(2, 4, 4, 6)})


@pytest.mark.parametrize(
    ("name", "settings", "reference", "shape"),
    [
        ("MaxPool1D", {"kernel_size": 2}, torch.nn.MaxPool1d(2), (2, 3, 8)),
        ("AvgPool1D", {"kernel_size": 2}, torch.nn.AvgPool1d(2), (2, 3, 8)),
        ("AdaptiveAvgPool1D", {"output_size": 3}, torch.nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
        ("AdaptiveMaxPool1D", {"output_size": 3}, torch.nn.AdaptiveMaxPool1d(3), (2, 3, 8)),
        ("Pad1D", {"padding": [1, 2]}, torch.nn.ConstantPad1d((1, 2), 0.0), (2, 3, 8)),
        ("Pad3D", {"padding": 1}, torch.nn.ConstantPad3d(1, 0.0), (2, 2, 2, 3, 2)),
        ("Fold", {"output_sizes": [4, 5], "kernel_sizes": 2}, torch.nn.Fold((4, 5), 2), (2, 8, 12)),
    ],
)
def test_layers_of_other_ranks(name: str, settings: dict[str, Any], reference: Any, shape: tuple[int, ...]) -> None:
    check_layer(lambda x: getattr(nn, name)(**settings)(x), lambda p, x: reference(x), {"x": sample(*shape)})


def test_maxout() -> None:
    check_layer(lambda x: nn.Maxout(2)(x), lambda p, x: x.reshape(2, 2, 2, 3).amax(2), {"x": sample(2, 4, 3)})


@pytest.mark.parametrize(("count", "shape"), [(1, (1,)), (4, (1, 4, 1, 1))])
def test_prelu(count: int, shape: tuple[int, ...]) -> None:
    check_layer(
        lambda x: nn.PReLU(count)(x),
        lambda p, x: torch.where(x > 0, x, x * p["p_re_lu_0.w_0"].reshape(shape)),
        {"x": sample(2, 4, 3, 2)},
        parameters=["p_re_lu_0.w_0"],
        result="prelu_0.tmp_0",
    )


LABELS = np.array([[2], [0], [3]])
CLASS_WEIGHTS = np.array([0.5, 1.0, 2.0, 0.7])


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # torch's advice on KLDivLoss
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("name", "reference", "low"),
    [
        ("MSELoss", torch.nn.MSELoss, -1.5),
        ("L1Loss", torch.nn.L1Loss, -1.5),
        ("SmoothL1Loss", torch.nn.HuberLoss, -1.5),
        ("BCELoss", torch.nn.BCELoss, 0.05),
        ("BCEWithLogitsLoss", torch.nn.BCEWithLogitsLoss, 0.05),
        ("KLDivLoss", torch.nn.KLDivLoss, 0.05),
    ],
)
def test_losses(name: str, reference: Any, low: float, reduction: str) -> None:
    check_layer(
        lambda x, y: getattr(nn, name)(reduction=reduction)(x, y),
        lambda p, x, y: reference(reduction=reduction)(x, y),
        {"x": sample(3, 4, low=low, high=0.95), "y": sample(3, 4, seed=1, low=low, high=0.95)},
        constant=("y",),
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_loss(weighted: bool) -> None:
    weight = torch.tensor(CLASS_WEIGHTS) if weighted else None
    check_layer(
        lambda x, y: nn.CrossEntropyLoss(weight=paddle.assign(CLASS_WEIGHTS) if weighted else None, ignore_index=3)(
            x, y
        ),
        lambda p, x, y: F.cross_entropy(x, y[:, 0], weight, ignore_index=3),
        {"x": sample(3, 4), "y": LABELS},
    )


def test_nll_loss() -> None:
    check_layer(
        lambda x, y: nn.NLLLoss()(x, y),
        lambda p, x, y: F.nll_loss(x, y),
        {"x": sample(3, 4), "y": LABELS[:, 0]},
    )


def test_margin_ranking_loss() -> None:
    check_layer(
        lambda a, b, y: nn.MarginRankingLoss(margin=0.3)(a, b, y),
        lambda p, a, b, y: F.margin_ranking_loss(a, b, y, margin=0.3),
        {"a": sample(6, seed=1), "b": sample(6, seed=2), "y": np.sign(sample(6, seed=3))},
        constant=("y",),
    )


def test_cosine_similarity() -> None:
    check_layer(
        lambda x, y: nn.CosineSimilarity(axis=1)(x, y),
        lambda p, x, y: F.cosine_similarity(x, y, dim=1),
        {"x": sample(3, 4), "y": sample(3, 4, seed=1)},
    )


FUNCTIONAL = sorted(n for n, c in namespace("nn").items() if inspect.isclass(c) and issubclass(c, FunctionalLayer))


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_layers_of_functions_are_described(name: str) -> None:
    cls = getattr(nn, name)
    assert cls.__name__ == name
    assert "nn.functional." in (cls.__doc__ or "")
    settings = inspect.signature(cls).parameters
    assert settings == cls._settings.parameters
    assert "training" not in settings
    inner = inspect.signature(cls._function).parameters
    assert all(n in inner for n in settings)
    required = {n: 2 for n, p in settings.items() if p.default is p.empty}
    layer = cls(**required)
    assert repr(layer).startswith(f"{name}(")
    assert all(getattr(layer, n) == 2 for n in required)


def test_functional_layers_exist() -> None:
    assert len(FUNCTIONAL) > 50


def test_settings_can_be_positional_and_changed() -> None:
    layer = nn.LeakyReLU(0.3)
    layer.negative_slope = 0.4
    x = data("x", [None, 3])
    layer(x)
    assert static.default_main_program().global_block().ops[-1].attr("alpha") == 0.4


# ----------------------------------------------------------------------------------------------------------------- modes
def test_dropout_follows_train_and_eval() -> None:
    x = data("x", [None, 100])
    layer = nn.Sequential(nn.Dropout(0.5))
    assert layer(x).name == "dropout_1.tmp_0"
    layer.eval()
    y = layer(x)
    layer.train()
    layer(x)
    ops = static.default_main_program().global_block().ops
    assert [op.attr("is_test") for op in ops] == [False, True, False]
    assert {op.attr("dropout_implementation") for op in ops} == {"upscale_in_train"}
    exe = static.Executor(paddle.CPUPlace())
    feed = np.ones((8, 100), "float32")
    dropped, kept = exe.run(feed={"x": feed}, fetch_list=["dropout_1.tmp_0", y])
    assert np.array_equal(kept, feed)
    assert set(np.unique(dropped)) == {0.0, 2.0}


@pytest.mark.parametrize(
    ("make", "shape"), [(lambda: nn.Dropout2D(0.5), (4, 50, 2, 3)), (lambda: nn.Dropout3D(0.5), (4, 50, 2, 2, 2))]
)
def test_dropout_of_channels(make: Any, shape: tuple[int, ...]) -> None:
    y = make()(data("x", [None, *shape[1:]]))
    exe = static.Executor(paddle.CPUPlace())
    (out,) = exe.run(feed={"x": np.ones(shape, "float32")}, fetch_list=[y])
    flat = out.reshape(*shape[:2], -1)
    assert np.all(flat == flat[:, :, :1])
    assert set(np.unique(out)) == {0.0, 2.0}


# --------------------------------------------------------------------------------------------------------------- errors
def x2() -> Any:
    return data("x", [None, 6])


def x4() -> Any:
    return data("images", [None, 4, 8, 8])


BAD = {
    "Linear: size": (lambda: nn.Linear(0, 2), ShapeError, "in_features"),
    "Linear: text": (lambda: nn.Linear("3", 2), ProgramTypeError, "in_features"),
    "Linear: attr": (lambda: nn.Linear(3, 2, weight_attr=False), ProgramError, "weight_attr"),
    "Embedding: padding": (lambda: nn.Embedding(3, 2, padding_idx=5), ShapeError, "padding_idx"),
    "Conv2D: groups": (lambda: nn.Conv2D(3, 4, 3, groups=2), ShapeError, "groups=2"),
    "Conv2D: mode": (lambda: nn.Conv2D(3, 4, 3, padding_mode="foo"), ProgramError, "foo"),
    "Conv2D: layout": (lambda: nn.Conv2D(3, 4, 3, data_format="NCL"), ProgramError, "NCL"),
    "Conv2D: kernel": (lambda: nn.Conv2D(3, 4, (3, 3, 3)), ShapeError, "kernel_size"),
    "Conv1D: padding": (lambda: nn.Conv1D(3, 4, 3, padding=-1), ShapeError, "padding"),
    "BatchNorm2D: size": (lambda: nn.BatchNorm2D(0), ShapeError, "num_features"),
    "BatchNorm2D: layout": (lambda: nn.BatchNorm2D(3, data_format="NCL"), ProgramError, "NCL"),
    "BatchNorm: act": (lambda: nn.BatchNorm(3, act="nosuch"), NotFoundError, "nosuch"),
    "LayerNorm: shape": (lambda: nn.LayerNorm("3"), ProgramTypeError, "normalized_shape"),
    "LayerNorm: size": (lambda: nn.LayerNorm([3, 0]), ShapeError, "normalized_shape"),
    "LayerNorm: attr": (lambda: nn.LayerNorm(3, weight_attr=3), ProgramTypeError, "int"),
    "InstanceNorm2D: one": (lambda: nn.InstanceNorm2D(3, weight_attr=False), ProgramError, "weight_attr"),
    "SpectralNorm: dim": (lambda: nn.SpectralNorm([3, 4], dim=2), ShapeError, "dim"),
    "PReLU: size": (lambda: nn.PReLU(0), ShapeError, "num_parameters"),
    "MSELoss: reduction": (lambda: nn.MSELoss("foo"), ProgramError, "foo"),
    "CrossEntropyLoss: reduction": (lambda: nn.CrossEntropyLoss(reduction="x"), ProgramError, "'x'"),
    "ReLU: argument": (lambda: nn.ReLU(alpha=1), ProgramTypeError, "alpha"),
    "MaxPool2D: none": (lambda: nn.MaxPool2D(), ProgramTypeError, "kernel_size"),
    "Pad2D: mode": (lambda: nn.Pad2D(1, mode="mirror"), ProgramError, "mirror"),
    "Pad2D: length": (lambda: nn.Pad2D([1, 2, 3]), ShapeError, "padding"),
    "Upsample: call": (lambda: nn.Upsample(scale_factor=2)(3), ProgramTypeError, "Variable"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_constructors_are_refused(name: str) -> None:
    call, kind, words = BAD[name]
    check_error(call, kind, words=words, file=HERE)


CALLS = {
    "Linear: features": (lambda: nn.Linear(5, 2), x2, ShapeError, "size 5"),
    "Linear: number": (lambda: nn.Linear(5, 2), lambda: 3, ProgramTypeError, "Variable"),
    "Linear: ints": (lambda: nn.Linear(5, 2), lambda: data("n", [2, 5], "int64"), DTypeError, "int64"),
    "Embedding: floats": (lambda: nn.Embedding(3, 2), x2, DTypeError, "float32"),
    "Conv2D: rank": (lambda: nn.Conv2D(3, 4, 3), x2, ShapeError, "NCHW"),
    "Conv2D: channels": (lambda: nn.Conv2D(3, 4, 3), x4, ShapeError, "3 channels"),
    "Conv2D: small": (lambda: nn.Conv2D(4, 4, 9), x4, ShapeError, "window"),
    "BatchNorm2D: rank": (lambda: nn.BatchNorm2D(3), x2, ShapeError, "4 dimensions"),
    "BatchNorm1D: rank": (lambda: nn.BatchNorm1D(4), x4, ShapeError, "2 or 3 dimensions"),
    "BatchNorm2D: channels": (lambda: nn.BatchNorm2D(3), x4, ShapeError, "4 values"),
    "LayerNorm: shape": (lambda: nn.LayerNorm(3), x2, ShapeError, "[3]"),
    "GroupNorm: channels": (lambda: nn.GroupNorm(2, 6), x4, ShapeError, "6"),
    "SpectralNorm: shape": (lambda: nn.SpectralNorm([4, 3]), x2, ShapeError, "[4, 3]"),
    "PixelShuffle: factor": (lambda: nn.PixelShuffle(3), x4, ShapeError, "3"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_bad_inputs_are_refused(name: str) -> None:
    make, value, kind, words = CALLS[name]
    layer, x = make(), value()
    check_error(lambda: layer(x), kind, words=words, file=HERE)
