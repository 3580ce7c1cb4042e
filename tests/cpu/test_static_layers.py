"""Layers as functions: values and gradients against torch, names and first values as in Paddle, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_error, check_layer, sample
from tstatic import fluid, static
from tstatic.errors import DTypeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.nn.initializer import Constant

torch = pytest.importorskip("torch")
F = torch.nn.functional
HERE = "test_static_layers.py"


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


# --------------------------------------------------------------------------------------------------------- first values
def startup_ops(build: Callable[[], Any]) -> list[tuple[str, dict[str, Any]]]:
    """(type, attributes) of the ops that give first values."""
    build()
    return [(op.type, dict(op.attrs)) for op in static.default_startup_program().global_block().ops]


@pytest.mark.parametrize(
    ("build", "limit"),
    [
        (lambda: static.nn.fc(data("x", [None, 4]), 2), 1.0),
        (lambda: static.nn.embedding(data("i", [None], "int64"), [10, 4]), 0.6546536707),
        (lambda: static.nn.conv2d_transpose(data("x", [None, 4, 8, 8]), 6, filter_size=3), 0.2581988897),
        (lambda: static.nn.bilinear_tensor_product(data("x", [None, 6]), data("y", [None, 5]), 7), 0.3038218101),
    ],
)
def test_weights_start_uniform(build: Any, limit: float) -> None:
    type, attrs = startup_ops(build)[0]
    assert type == "uniform_random"
    assert attrs["max"] == pytest.approx(limit, abs=1e-9)
    assert attrs["min"] == -attrs["max"]


@pytest.mark.parametrize(("channels", "filters", "groups", "std"), [(3, 4, 1, 0.2721655270), (4, 4, 4, 0.2357022604)])
def test_filters_start_normal_by_all_channels(channels: int, filters: int, groups: int, std: float) -> None:
    ops = startup_ops(lambda: static.nn.conv2d(data("x", [None, channels, 8, 8]), filters, 3, groups=groups))
    assert ops[0][0] == "gaussian_random"
    assert (ops[0][1]["mean"], ops[0][1]["std"]) == (0.0, pytest.approx(std, abs=1e-9))
    assert (ops[1][0], ops[1][1]["value"]) == ("fill_constant", 0.0)


@pytest.mark.parametrize(
    ("build", "values"),
    [
        (lambda: static.nn.batch_norm(data("x", [None, 3])), [1.0, 0.0, 0.0, 1.0]),
        (lambda: static.nn.layer_norm(data("x", [None, 3])), [1.0, 0.0]),
        (lambda: static.nn.group_norm(data("x", [None, 4, 2]), 2), [1.0, 0.0]),
        (lambda: static.nn.instance_norm(data("x", [None, 4, 2])), [1.0, 0.0]),
        (lambda: static.nn.prelu(data("x", [None, 3]), "all"), [0.25]),
    ],
)
def test_constants_that_parameters_start_with(build: Any, values: list[float]) -> None:
    ops = startup_ops(build)
    assert [t for t, _ in ops] == ["fill_constant"] * len(values)
    assert [a["value"] for _, a in ops] == values


def test_global_initializer_beats_the_layers_default() -> None:
    paddle.nn.initializer.set_global_initializer(Constant(2.0), Constant(3.0))
    try:
        ops = startup_ops(lambda: static.nn.conv2d(data("x", [None, 3, 4, 4]), 2, 3))
    finally:
        paddle.nn.initializer.set_global_initializer(None)
    assert [(t, a["value"]) for t, a in ops] == [("fill_constant", 2.0), ("fill_constant", 3.0)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_statistics_of_low_precision_are_float32(dtype: str) -> None:
    static.nn.batch_norm(data("x", [None, 3], dtype))
    static.nn.fc(data("y", [None, 3], dtype), 2)
    kinds = {p.name: p.dtype.name for p in static.default_main_program().all_parameters()}
    wide = dtype if dtype == "float64" else "float32"
    assert {kinds[f"batch_norm_0.{n}"] for n in ("w_0", "b_0", "w_1", "w_2")} == {wide}
    assert kinds["fc_0.w_0"] == dtype


# --------------------------------------------------------------------------------------------------- data and fluid.nets
def test_fluid_data_prepends_the_batch_axis() -> None:
    assert fluid.layers.data("a", [3, 4]).shape == (-1, 3, 4)
    assert fluid.layers.data("b", [3], append_batch_size=False).shape == (3,)
    assert fluid.layers.data("c", [None, 3]).shape == (-1, 3)
    assert fluid.layers.data("d", [-1, 3]).shape == (-1, 3)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    assert (label.shape, label.dtype.name, label.stop_gradient, label.is_data) == ((-1, 1), "int64", True, True)
    assert not fluid.layers.data("e", [1], stop_gradient=False).stop_gradient


def test_simple_img_conv_pool() -> None:
    run = check_layer(
        lambda x: fluid.nets.simple_img_conv_pool(x, 4, 3, pool_size=2, pool_stride=2, act="relu", conv_padding=1),
        lambda p, x: F.max_pool2d(F.relu(F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], padding=1)), 2),
        {"x": sample(2, 1, 6, 6)},
        result="pool2d_0.tmp_0",
    )
    assert run.ops() == ["conv2d", "elementwise_add", "relu", "pool2d"]


def test_img_conv_group() -> None:
    def reference(p: Any, x: Any) -> Any:
        x = F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], padding=1)
        x = F.relu(F.batch_norm(x, None, None, p["batch_norm_0.w_0"], p["batch_norm_0.b_0"], True))
        x = F.relu(F.conv2d(x, p["conv2d_1.w_0"], p["conv2d_1.b_0"], padding=1))
        return F.avg_pool2d(x, 2, 1)

    run = check_layer(
        lambda x: fluid.nets.img_conv_group(
            x, [4, 3], pool_size=2, conv_act="relu", conv_with_batchnorm=[True, False], pool_type="avg"
        ),
        reference,
        {"x": sample(2, 2, 5, 5)},
    )
    assert run.ops() == [
        "conv2d",
        "elementwise_add",
        "batch_norm",
        "relu",
        "conv2d",
        "elementwise_add",
        "relu",
        "pool2d",
    ]


def test_img_conv_group_drops_after_a_norm() -> None:
    x = fluid.layers.data("x", [2, 5, 5])
    fluid.nets.img_conv_group(x, [4, 3], 2, conv_with_batchnorm=True, conv_batchnorm_drop_rate=[0.3, 0.0])
    ops = static.default_main_program().global_block().ops
    assert [op.type for op in ops].count("dropout") == 1
    assert next(op.attr("dropout_prob") for op in ops if op.type == "dropout") == 0.3


def test_a_small_classifier_learns() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, (64, 1))
    images = draw.normal(0, 0.3, (64, 1, 8, 8)).astype("float32")
    for image, label in zip(images, labels[:, 0], strict=True):
        image[0, 2 * label : 2 * label + 3] += 1.0
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 5
    with static.program_guard(main, startup):
        x = fluid.layers.data("x", [1, 8, 8])
        y = fluid.layers.data("y", [1], dtype="int64")
        hidden = fluid.nets.simple_img_conv_pool(x, 4, 3, 2, 2, act="relu")
        scores = fluid.layers.fc(fluid.layers.batch_norm(hidden), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, y))
        paddle.optimizer.Adam(0.02).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    losses = [
        exe.run(main, feed={"x": images, "y": labels}, fetch_list=[loss], scope=scope)[0].item() for _ in range(30)
    ]
    assert losses[0] > 0.7
    assert losses[-1] < 0.1


# --------------------------------------------------------------------------------------------------------------- errors
def x2() -> Any:
    return data("x", [None, 6])


def x4() -> Any:
    return data("images", [None, 4, 8, 8])


BAD = {
    "fc: no Variable": (lambda: static.nn.fc(3, 2), ProgramTypeError, "a Variable"),
    "fc: no inputs": (lambda: static.nn.fc([], 2), ProgramTypeError, ""),
    "fc: ints": (lambda: static.nn.fc(data("n", [None, 3], "int64"), 2), DTypeError, "int64"),
    "fc: size 0": (lambda: static.nn.fc(x2(), 0), ShapeError, "size"),
    "fc: size -1": (lambda: static.nn.fc(x2(), -1), ShapeError, "-1"),
    "fc: size 2.5": (lambda: static.nn.fc(x2(), 2.5), ProgramTypeError, "2.5"),
    "fc: unknown features": (lambda: static.nn.fc(data("u", [None, None]), 2), ShapeError, "known"),
    "fc: no features": (lambda: static.nn.fc(data("z", [None, 0]), 2), ShapeError, "0"),
    "fc: axis": (lambda: static.nn.fc(x2(), 2, num_flatten_dims=2), ShapeError, "num_flatten_dims=2"),
    "fc: axis 0": (lambda: static.nn.fc(x2(), 2, num_flatten_dims=0), ShapeError, "num_flatten_dims=0"),
    "fc: scalar": (lambda: static.nn.fc(data("s", []), 2), ShapeError, "[]"),
    "fc: activation": (lambda: static.nn.fc(x2(), 2, activation="rleu"), NotFoundError, "rleu"),
    "fc: attrs": (lambda: static.nn.fc(x2(), 2, weight_attr=["a", "b"]), ProgramError, "2 attributes"),
    "fc: no weight": (lambda: static.nn.fc(x2(), 2, weight_attr=False), ProgramError, "weight_attr"),
    "fluid fc: activation": (lambda: fluid.layers.fc(x2(), 2, act="nosuch"), NotFoundError, "nosuch"),
    "embedding: floats": (lambda: static.nn.embedding(x2(), [3, 2]), DTypeError, "float32"),
    "embedding: size": (lambda: static.nn.embedding(data("i", [3], "int64"), [3]), ShapeError, "[3]"),
    "embedding: rows": (lambda: static.nn.embedding(data("i", [3], "int64"), [0, 2]), ShapeError, "size[0]"),
    "embedding: padding": (
        lambda: static.nn.embedding(data("i", [3], "int64"), [3, 2], padding_idx=3), ShapeError, "padding_idx",
    ),
    "conv2d: rank": (lambda: static.nn.conv2d(x2(), 2, 3), ShapeError, "NCHW"),
    "conv2d: channels": (lambda: static.nn.conv2d(data("c", [None, None, 8, 8]), 2, 3), ShapeError, "channels"),
    "conv2d: groups": (lambda: static.nn.conv2d(x4(), 4, 3, groups=3), ShapeError, "groups=3"),
    "conv2d: filters": (lambda: static.nn.conv2d(x4(), 3, 3, groups=2), ShapeError, "filters"),
    "conv2d: filter size": (lambda: static.nn.conv2d(x4(), 3, [3, 3, 3]), ShapeError, "filter_size"),
    "conv2d: filter text": (lambda: static.nn.conv2d(x4(), 3, "3"), ProgramTypeError, "filter_size"),
    "conv2d: padding": (lambda: static.nn.conv2d(x4(), 3, 3, padding="HALF"), ShapeError, "HALF"),
    "conv2d: layout": (lambda: static.nn.conv2d(x4(), 3, 3, data_format="CHW"), ProgramError, "CHW"),
    "conv2d: activation": (lambda: static.nn.conv2d(x4(), 3, 3, act="no"), NotFoundError, "no"),
    "transpose: no size": (lambda: static.nn.conv2d_transpose(x4(), 3), ShapeError, "filter_size"),
    "transpose: small": (lambda: static.nn.conv2d_transpose(x4(), 3, output_size=4), ShapeError, "filter_size"),
    "batch_norm: rank": (lambda: static.nn.batch_norm(data("b", [3])), ShapeError, "[3]"),
    "batch_norm: layout": (lambda: static.nn.batch_norm(x4(), data_layout="X"), ProgramError, "'X'"),
    "batch_norm: scale": (lambda: static.nn.batch_norm(x4(), param_attr=False), ProgramError, "param_attr"),
    "batch_norm: bias": (lambda: static.nn.batch_norm(x4(), bias_attr=False), ProgramError, "bias_attr"),
    "batch_norm: channels": (lambda: static.nn.batch_norm(data("c", [None, None])), ShapeError, "known"),
    "layer_norm: axis": (lambda: static.nn.layer_norm(x2(), begin_norm_axis=2), ShapeError, "begin_norm_axis"),
    "layer_norm: axis 0": (lambda: static.nn.layer_norm(data("k", [3, 4]), begin_norm_axis=0), ShapeError, "begin"),
    "layer_norm: unknown": (lambda: static.nn.layer_norm(data("u", [None, None])), ShapeError, "known"),
    "group_norm: rank": (lambda: static.nn.group_norm(data("b", [3]), 1), ShapeError, "[3]"),
    "group_norm: groups": (lambda: static.nn.group_norm(x4(), 0), ShapeError, "groups"),
    "instance_norm: one": (lambda: static.nn.instance_norm(x4(), param_attr=False), ProgramError, "param_attr"),
    "prelu: mode": (lambda: static.nn.prelu(x4(), "channels"), ProgramError, "channels"),
    "prelu: unknown": (lambda: static.nn.prelu(data("u", [None, None]), "element"), ShapeError, "known"),
    "bilinear: rank": (lambda: static.nn.bilinear_tensor_product(x4(), x2(), 3), ShapeError, "[n, features]"),
    "spectral_norm: unknown": (lambda: static.nn.spectral_norm(x2()), ShapeError, "known"),
    "spectral_norm: dim": (lambda: static.nn.spectral_norm(data("w", [3, 4]), dim=2), ShapeError, "dim"),
    "img_conv_group: int": (lambda: fluid.nets.img_conv_group(x4(), 3, 2), ProgramTypeError, "conv_num_filter"),
    "img_conv_group: length": (
        lambda: fluid.nets.img_conv_group(x4(), [3, 3], 2, conv_padding=[1, 1, 1]), ShapeError, "conv_padding",
    ),
    "fluid data: shape": (lambda: fluid.layers.data("q", 3.5), ProgramTypeError, "shape"),
    "fluid data: name": (lambda: fluid.layers.data(3, [1]), ProgramTypeError, "name"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_are_refused(name: str) -> None:
    call, kind, words = BAD[name]
    # Inputs are declared once before, so that a call changes nothing of its own.
    try:
        call()
    except kind:
        check_error(call, kind, words=words, file=HERE)
    else:
        pytest.fail("accepted")


def test_fluid_embedding_needs_a_last_axis_of_one() -> None:
    ids = data("ids", [None, 3], "int64")
    with pytest.raises(ShapeError, match="1"):
        fluid.layers.embedding(ids, [5, 2])
