"""Layer classes with parameters: values and gradients against torch's layers with the same weights, names as in Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cpu.layer_check import check_layer, sample
from tstatic import nn, static

torch = pytest.importorskip("torch")
F = torch.nn.functional


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


@pytest.mark.parametrize(("settings", "other"), PAIRS)
def test_conv3d(settings: dict[str, Any], other: dict[str, Any]) -> None:
    check_layer(
        lambda x: nn.Conv3D(2, 4, (2, 3, 2), **settings)(x),
        lambda p, x: torch_layer(torch.nn.Conv3d(2, 4, (2, 3, 2), **other), p, "conv3d_0.w_0", "conv3d_0.b_0")(x),
        {"x": sample(2, 2, 4, 5, 5)},
        result="conv3d_1.tmp_0" if "bias_attr" in settings else "conv3d_1.tmp_1",
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


@pytest.mark.parametrize("name", ["group_norm", "instance_norm"])
def test_a_large_epsilon_of_group_and_instance_norm(name: str) -> None:
    make = {
        "group_norm": lambda x: nn.GroupNorm(2, 4, epsilon=0.5)(x),
        "instance_norm": lambda x: nn.InstanceNorm2D(4, epsilon=0.5)(x),
    }
    theirs = {
        "group_norm": lambda p, x: F.group_norm(x, 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"], 0.5),
        "instance_norm": lambda p, x: F.instance_norm(
            x, weight=p["instance_norm2d_0.w_0"], bias=p["instance_norm2d_0.b_0"], eps=0.5
        ),
    }
    prefix = {"group_norm": "group_norm_0", "instance_norm": "instance_norm2d_0"}[name]
    parameters = [f"{prefix}.w_0", f"{prefix}.b_0"]
    check_layer(make[name], theirs[name], {"x": sample(2, 4, 3, 2)}, parameters=parameters, result=f"{name}_0.tmp_2")


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
