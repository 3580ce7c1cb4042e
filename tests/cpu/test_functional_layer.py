"""Layers made from one function: values and gradients against torch, signatures, and what ``train`` and ``eval`` change."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_layer, sample
from tstatic import nn, static
from tstatic.errors import ProgramTypeError
from tstatic.ir.opdef import namespace
from tstatic.nn.layer.functional_layer import FunctionalLayer

torch = pytest.importorskip("torch")
F = torch.nn.functional


def data(name: str, shape: list[Any], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


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
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert "nn.functional." in (cls.__doc__ or "")
    assert f" = paddle.nn.{name}(" in (cls.__doc__ or ""), "the example of the function, made into one of the layer"
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


def test_inputs_can_be_named_as_in_paddle() -> None:
    x, y = data("x", [2, 4]), data("y", [2, 4])
    wave = data("wave", [2, 3, 8])
    named = [
        nn.ReLU()(x=x), nn.Dropout(0.0)(input=x), nn.MaxPool1D(2)(input=wave), nn.MSELoss()(label=y, input=x),
        nn.CosineSimilarity()(x1=x, x2=y),
    ]  # fmt: skip
    placed = [
        nn.ReLU()(x), nn.Dropout(0.0)(x), nn.MaxPool1D(2)(wave), nn.MSELoss()(x, y), nn.CosineSimilarity()(x, y)
    ]  # fmt: skip
    feed = {"x": sample(2, 4), "y": sample(2, 4, seed=1), "wave": sample(2, 3, 8)}
    feed = {name: value.astype("float32") for name, value in feed.items()}
    found = static.Executor("cpu").run(feed=feed, fetch_list=[*named, *placed])
    for a, b in zip(found[:5], found[5:], strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ProgramTypeError, match=r"(?s)ReLU.forward got arguments .*missing .*'x'.*ReLU.forward\(x\)"):
        nn.ReLU()(input=x)
    with pytest.raises(
        ProgramTypeError, match=r"MSELoss.forward got arguments that it does not take: missing .*'label'"
    ):
        nn.MSELoss()(x)


def test_settings_can_be_positional_and_changed() -> None:
    layer = nn.LeakyReLU(0.3)
    layer.negative_slope = 0.4
    x = data("x", [None, 3])
    layer(x)
    assert static.default_main_program().global_block().ops[-1].attr("alpha") == 0.4


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
