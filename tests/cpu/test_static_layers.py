"""Layers as functions: values and gradients against torch, names as in Paddle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_layer, sample
from tstatic import fluid, static
from tstatic.nn.initializer import Constant

torch = pytest.importorskip("torch")
F = torch.nn.functional


def data(name: str, shape: list[Any], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


# ------------------------------------------------------------------------------------------------------------------- fc
def test_fc() -> None:
    run = check_layer(
        lambda x: static.nn.fc(x, 4, activation="tanh"),
        lambda p, x: torch.tanh(x @ p["fc_0.w_0"] + p["fc_0.b_0"]),
        {"x": sample(5, 3)},
        parameters=["fc_0.w_0", "fc_0.b_0"],
        result="fc_0.tmp_2",
    )
    assert run.ops() == ["mul", "elementwise_add", "tanh"]
    add = run.main.global_block().ops[1]
    assert add.attr("axis") == 1
    assert add.output("Out") == ["fc_0.tmp_1"]


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_fc_flattens_the_axes_behind(axis: int) -> None:
    at = 2 if axis == -1 else axis
    check_layer(
        lambda x: static.nn.fc(x, 4, num_flatten_dims=axis),
        lambda p, x: x.reshape(*x.shape[:at], -1) @ p["fc_0.w_0"] + p["fc_0.b_0"],
        {"x": sample(2, 3, 5)},
        result="fc_0.tmp_1",
    )


def test_fc_adds_several_inputs() -> None:
    run = check_layer(
        lambda x, y: fluid.layers.fc([x, y], 4, act="sigmoid", name="both"),
        lambda p, x, y: torch.sigmoid(x @ p["both.w_0"] + y @ p["both.w_1"] + p["both.b_0"]),
        {"x": sample(5, 3), "y": sample(5, 2)},
        parameters=["both.w_0", "both.w_1", "both.b_0"],
        result="both.tmp_4",
    )
    assert run.ops() == ["mul", "mul", "sum", "elementwise_add", "sigmoid"]


def test_fc_without_bias_and_with_attributes() -> None:
    attr = paddle.ParamAttr(name="mine", initializer=Constant(0.5), learning_rate=0.1, trainable=False)
    run = check_layer(
        lambda x: fluid.layers.fc(input=x, size=2, param_attr=attr, bias_attr=False),
        lambda p, x: x @ p["mine"],
        {"x": sample(4, 3)},
        parameters=["mine"],
        result="fc_0.tmp_0",
    )
    w = run.main.global_block().var("mine")
    assert (w.trainable, w.stop_gradient, w.optimize_attr) == (False, True, {"learning_rate": 0.1})
    assert np.all(run.value("mine") == 0.5)


def test_equal_names_share_a_parameter() -> None:
    attr = paddle.ParamAttr(name="shared")
    run = check_layer(
        lambda x: static.nn.fc(
            static.nn.fc(x, 3, weight_attr=attr, bias_attr=False), 3, weight_attr=attr, bias_attr=False
        ),
        lambda p, x: x @ p["shared"] @ p["shared"],
        {"x": sample(4, 3)},
        parameters=["shared"],
    )
    assert [op.output("Out") for op in run.startup.global_block().ops] == [["shared"]]


# ------------------------------------------------------------------------------------------------------------ embedding
IDS = np.array([[1, 0, 4], [4, 4, 2]])


@pytest.mark.parametrize("padding", [None, 4, -1])
def test_embedding(padding: int | None) -> None:
    run = check_layer(
        lambda ids: static.nn.embedding(ids, [5, 3], padding_idx=padding, is_sparse=True, dtype="float64"),
        lambda p, ids: F.embedding(ids, p["embedding_0.w_0"] * _but(padding, p["embedding_0.w_0"])),
        {"ids": IDS},
        parameters=["embedding_0.w_0"],
        result="embedding_0.tmp_0",
    )
    assert run.ops() == ["lookup_table_v2"]
    assert run.main.global_block().ops[0].attr("padding_idx") == (-1 if padding is None else 4)


def _but(row: int | None, table: Any) -> Any:
    """Ones, with zeros in one row: what a padding row means."""
    keep = torch.ones_like(table)
    if row is not None:
        keep[row] = 0
    return keep


def test_embedding_of_fluid_layers_drops_the_last_axis() -> None:
    run = check_layer(
        lambda ids: fluid.layers.embedding(ids, size=[5, 3], dtype="float64"),
        lambda p, ids: F.embedding(ids[:, :, 0], p["embedding_0.w_0"]),
        {"ids": IDS[:, :, None]},
        result="embedding_0.tmp_0",
    )
    assert run.out.shape == (2, 3, 3)


def test_embedding_spellings() -> None:
    assert fluid.embedding is static.nn.embedding
    assert fluid.layers.embedding is not static.nn.embedding


# --------------------------------------------------------------------------------------------------------- convolutions
@pytest.mark.parametrize(
    ("settings", "torch_settings"),
    [
        ({}, {}),
        ({"stride": 2, "padding": 1}, {"stride": 2, "padding": 1}),
        (
            {"stride": (2, 1), "padding": [2, 1], "dilation": (1, 2)},
            {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2)},
        ),
        ({"groups": 2}, {"groups": 2}),
        ({"groups": 4, "padding": "VALID"}, {"groups": 4}),
        ({"padding": "SAME"}, {"padding": "same"}),
        ({"groups": 4, "use_cudnn": False}, {"groups": 4}),
    ],
)
def test_conv2d(settings: dict[str, Any], torch_settings: dict[str, Any]) -> None:
    kind = "depthwise_conv2d" if settings.get("use_cudnn") is False else "conv2d"
    run = check_layer(
        lambda x: static.nn.conv2d(x, 8, 3, act="relu", **settings),
        lambda p, x: F.relu(F.conv2d(x, p[f"{kind}_0.w_0"], p[f"{kind}_0.b_0"], **torch_settings)),
        {"x": sample(2, 4, 7, 8)},
        parameters=[f"{kind}_0.w_0", f"{kind}_0.b_0"],
        result=f"{kind}_0.tmp_2",
    )
    assert run.ops() == [kind, "elementwise_add", "relu"]
    assert run.main.global_block().ops[1].attr("axis") == 1


def test_conv2d_channels_last() -> None:
    run = check_layer(
        lambda x: fluid.layers.conv2d(
            x, 6, [3, 2], padding=[[0, 0], [1, 0], [0, 1], [0, 0]], data_format="NHWC", name="c"
        ),
        lambda p, x: F.conv2d(F.pad(x.permute(0, 3, 1, 2), (0, 1, 1, 0)), p["c.w_0"], p["c.b_0"]).permute(0, 2, 3, 1),
        {"x": sample(2, 5, 6, 4)},
        result="c.tmp_1",
    )
    assert run.main.global_block().ops[1].attr("axis") == 3


@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_conv3d(layout: str) -> None:
    def reference(p: Any, x: Any) -> Any:
        x = x.movedim(-1, 1) if layout == "NDHWC" else x
        y = F.conv3d(x, p["conv3d_0.w_0"], p["conv3d_0.b_0"], stride=(1, 2, 1), padding=1, groups=2)
        return torch.tanh(y.movedim(1, -1) if layout == "NDHWC" else y)

    run = check_layer(
        lambda x: static.nn.conv3d(
            x, 4, (2, 3, 2), stride=[1, 2, 1], padding=1, groups=2, act="tanh", data_format=layout
        ),
        reference,
        {"x": sample(2, 4, 3, 5, 4)},
        parameters=["conv3d_0.w_0", "conv3d_0.b_0"],
        result="conv3d_0.tmp_2",
    )
    assert run.main.global_block().ops[1].attr("axis") == (4 if layout == "NDHWC" else 1)


@pytest.mark.parametrize(
    ("settings", "torch_settings"),
    [
        ({"filter_size": 3}, {}),
        ({"filter_size": 3, "stride": 2, "padding": 1}, {"stride": 2, "padding": 1}),
        ({"filter_size": (3, 2), "stride": 2, "output_size": [10, 11]}, {"stride": 2, "output_padding": (1, 1)}),
        ({"output_size": [9, 11], "stride": 2}, {"stride": 2}),
        ({"filter_size": 2, "groups": 2, "dilation": 2}, {"groups": 2, "dilation": 2}),
        ({"filter_size": 2, "groups": 4, "use_cudnn": False}, {"groups": 4}),
    ],
)
def test_conv2d_transpose(settings: dict[str, Any], torch_settings: dict[str, Any]) -> None:
    filters = 4
    kind = "depthwise_conv2d_transpose" if settings.get("use_cudnn") is False else "conv2d_transpose"
    run = check_layer(
        lambda x: static.nn.conv2d_transpose(x, filters, act="tanh", **settings),
        lambda p, x: torch.tanh(F.conv_transpose2d(x, p[f"{kind}_0.w_0"], p[f"{kind}_0.b_0"], **torch_settings)),
        {"x": sample(2, 4, 4, 5)},
        parameters=[f"{kind}_0.w_0", f"{kind}_0.b_0"],
        result=f"{kind}_0.tmp_2",
    )
    assert run.ops()[0] == kind
    if "filter_size" not in settings:
        assert run.value(f"{kind}_0.w_0").shape == (4, 4, 3, 3)


# -------------------------------------------------------------------------------------------------------- normalisation
@pytest.mark.parametrize(
    ("shape", "layout"), [((4, 3, 2, 5), "NCHW"), ((6, 3), "NCHW"), ((3, 4, 2, 3), "NHWC"), ((4, 3, 5), "NCHW")]
)
def test_batch_norm(shape: tuple[int, ...], layout: str) -> None:
    def reference(p: Any, x: Any) -> Any:
        x = x.movedim(-1, 1) if layout == "NHWC" else x
        y = F.batch_norm(x, None, None, p["batch_norm_0.w_0"], p["batch_norm_0.b_0"], True, 0.0, 1e-4)
        return F.relu(y.movedim(1, -1) if layout == "NHWC" else y)

    x = sample(*shape)
    run = check_layer(
        lambda v: static.nn.batch_norm(v, act="relu", momentum=0.7, epsilon=1e-4, data_layout=layout),
        reference,
        {"x": x},
        parameters=["batch_norm_0.w_0", "batch_norm_0.b_0", "batch_norm_0.w_1", "batch_norm_0.w_2"],
        result="batch_norm_0.tmp_4",
    )
    axes = tuple(i for i in range(x.ndim) if i != (x.ndim - 1 if layout == "NHWC" else 1))
    # 0.7 is the weight of the old value, and the running variance is the biased one.
    np.testing.assert_allclose(run.value("batch_norm_0.w_1"), 0.3 * x.mean(axes), atol=1e-12)
    np.testing.assert_allclose(run.value("batch_norm_0.w_2"), 0.7 + 0.3 * x.var(axes), atol=1e-12)
    block = run.main.global_block()
    assert [block.var(n).trainable for n in run.names] == [True, True, False, False]
    assert [block.var(n).stop_gradient for n in run.names] == [False, False, True, True]
    assert block.ops[0].output("Y") == ["batch_norm_0.tmp_3"]
    assert block.ops[0].output("SavedMean") == ["batch_norm_0.tmp_0"]


@pytest.mark.parametrize("how", ["is_test", "use_global_stats"])
def test_batch_norm_by_running_statistics(how: str) -> None:
    statistics = {"m": sample(3), "v": sample(3, low=0.5, high=2.0)}
    run = check_layer(
        lambda x: static.nn.batch_norm(x, moving_mean_name="m", moving_variance_name="v", **{how: True}),
        lambda p, x: F.batch_norm(x, p["m"], p["v"], p["batch_norm_0.w_0"], p["batch_norm_0.b_0"], False, 0.0, 1e-5),
        {"x": sample(4, 3, 2, 2)},
        fixed=statistics,
        result="batch_norm_0.tmp_2" if how == "is_test" else "batch_norm_0.tmp_3",
    )
    for name, value in statistics.items():
        assert np.array_equal(run.value(name), value)


def test_batch_norm_takes_its_momentum_from_a_variable() -> None:
    x = sample(4, 3, 2, 2)
    run = check_layer(
        lambda v: static.nn.batch_norm(v, momentum=paddle.full([1], 0.25, "float64")),
        lambda p, v: F.batch_norm(v, None, None, p["batch_norm_0.w_0"], p["batch_norm_0.b_0"], True),
        {"x": x},
    )
    np.testing.assert_allclose(run.value("batch_norm_0.w_1"), 0.75 * x.mean((0, 2, 3)), atol=1e-12)


def test_clone_for_test_freezes_statistics() -> None:
    x = sample(4, 3)
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup):
        y = static.nn.batch_norm(data("x", [None, 3]))
        test = main.clone(for_test=True)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    (frozen,) = exe.run(test, feed={"x": x.astype("float32")}, fetch_list=[y.name], scope=scope)
    np.testing.assert_allclose(frozen, x / np.sqrt(1 + 1e-5), rtol=1e-5)
    exe.run(main, feed={"x": x.astype("float32")}, fetch_list=[y.name], scope=scope)
    mean = np.array(scope.find_var("batch_norm_0.w_1").get_tensor())
    np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_layer_norm(axis: int) -> None:
    shape = (3, 4, 5)
    at = axis % 3
    run = check_layer(
        lambda x: static.nn.layer_norm(x, begin_norm_axis=axis, epsilon=1e-4, act="tanh"),
        lambda p, x: torch.tanh(
            F.layer_norm(
                x,
                shape[at:],
                p["layer_norm_0.w_0"].reshape(shape[at:]),
                p["layer_norm_0.b_0"].reshape(shape[at:]),
                1e-4,
            )
        ),
        {"x": sample(*shape)},
        parameters=["layer_norm_0.w_0", "layer_norm_0.b_0"],
        result="layer_norm_0.tmp_3",
    )
    assert run.value("layer_norm_0.w_0").shape == (math.prod(shape[at:]),)


def test_layer_norm_without_scale() -> None:
    check_layer(
        lambda x: fluid.layers.layer_norm(x, scale=False),
        lambda p, x: F.layer_norm(x, (4,), None, p["layer_norm_0.b_0"]),
        {"x": sample(3, 4)},
        parameters=["layer_norm_0.b_0"],
        result="layer_norm_0.tmp_2",
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_group_norm(layout: str) -> None:
    def reference(p: Any, x: Any) -> Any:
        x = x.movedim(-1, 1) if layout == "NHWC" else x
        y = F.group_norm(x, 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"], 1e-5)
        return y.movedim(1, -1) if layout == "NHWC" else y

    check_layer(
        lambda x: static.nn.group_norm(x, 2, data_layout=layout),
        reference,
        {"x": sample(2, 4, 3, 4)},
        parameters=["group_norm_0.w_0", "group_norm_0.b_0"],
        result="group_norm_0.tmp_2",
    )


@pytest.mark.parametrize("plain", [False, True])
def test_instance_norm(plain: bool) -> None:
    attrs: dict[str, Any] = {"param_attr": False, "bias_attr": False} if plain else {}
    check_layer(
        lambda x: static.nn.instance_norm(x, **attrs),
        lambda p, x: F.instance_norm(x, weight=p.get("instance_norm_0.w_0"), bias=p.get("instance_norm_0.b_0")),
        {"x": sample(2, 3, 4, 5)},
        parameters=[] if plain else ["instance_norm_0.w_0", "instance_norm_0.b_0"],
        result="instance_norm_0.tmp_2",
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_spectral_norm(dim: int) -> None:
    w = sample(3, 4, 2)

    def reference(p: Any, weight: Any) -> Any:
        matrix = weight.movedim(dim, 0).reshape(weight.shape[dim], -1)
        left, right = p["spectral_norm_0.w_0"], p["spectral_norm_0.w_1"]
        with torch.no_grad():
            for _ in range(3):
                right = matrix.T @ left
                right = right / (right.norm() + 1e-12)
                left = matrix @ right
                left = left / (left.norm() + 1e-12)
        return weight / (left @ matrix @ right)

    run = check_layer(
        lambda v: static.nn.spectral_norm(v, dim=dim, power_iters=3),
        reference,
        {"w": w},
        parameters=["spectral_norm_0.w_0", "spectral_norm_0.w_1"],
        result="spectral_norm_0.tmp_0",
        unknown=False,
    )
    assert run.value("spectral_norm_0.w_0").shape == (w.shape[dim],)


# --------------------------------------------------------------------------------------------------------------- others
@pytest.mark.parametrize(
    ("mode", "layout", "shape"),
    [
        ("all", "NCHW", (1,)),
        ("channel", "NCHW", (1, 3, 1, 1)),
        ("channel", "NHWC", (1, 1, 1, 5)),
        ("element", "NCHW", (1, 3, 4, 5)),
    ],
)
def test_prelu(mode: str, layout: str, shape: tuple[int, ...]) -> None:
    run = check_layer(
        lambda x: static.nn.prelu(x, mode, data_format=layout),
        lambda p, x: torch.where(x > 0, x, x * p["prelu_0.w_0"]),
        {"x": sample(2, 3, 4, 5)},
        parameters=["prelu_0.w_0"],
        result="prelu_0.tmp_0",
    )
    assert run.value("prelu_0.w_0").shape == shape


@pytest.mark.parametrize("bias", [None, False])
def test_bilinear_tensor_product(bias: Any) -> None:
    name = "bilinear_tensor_product_0"
    check_layer(
        lambda x, y: static.nn.bilinear_tensor_product(x, y, 4, act="tanh", bias_attr=bias),
        lambda p, x, y: torch.tanh(F.bilinear(x, y, p[f"{name}.w_0"], p[f"{name}.b_0"][0] if bias is None else None)),
        {"x": sample(5, 3), "y": sample(5, 2)},
        parameters=[f"{name}.w_0", f"{name}.b_0"] if bias is None else [f"{name}.w_0"],
        result=f"{name}.tmp_1",
    )
