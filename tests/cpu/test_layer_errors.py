"""Bad arguments of layers: the class of the error, all parts of its message, and a program that stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cpu.layer_check import check_error
from tstatic import fluid, nn, static
from tstatic.errors import DTypeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError

HERE = "test_layer_errors.py"


def data(name: str, shape: list[Any], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


def x2() -> Any:
    return data("x", [None, 6])


def x4() -> Any:
    return data("images", [None, 4, 8, 8])


FUNCTIONS = {
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
    "fc: callable": (lambda: static.nn.fc(x2(), 2, activation=nn.functional.relu), ProgramTypeError, "by name"),
    "fc: attrs": (lambda: static.nn.fc(x2(), 2, weight_attr=["a", "b"]), ProgramError, "2: ['a', 'b']"),
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
    "conv3d: rank": (lambda: static.nn.conv3d(x4(), 3, 3), ShapeError, "NCDHW"),
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_layer_calls_are_refused(name: str) -> None:
    call, kind, words = FUNCTIONS[name]
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


CLASSES = {
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


@pytest.mark.parametrize("name", CLASSES)
def test_bad_constructors_are_refused(name: str) -> None:
    call, kind, words = CLASSES[name]
    check_error(call, kind, words=words, file=HERE)


CALLS = {
    "Linear: features": (lambda: nn.Linear(5, 2), x2, ShapeError, "size 5"),
    "Linear: number": (lambda: nn.Linear(5, 2), lambda: 3, ProgramTypeError, "Variable"),
    "Linear: ints": (lambda: nn.Linear(5, 2), lambda: data("n", [2, 5], "int64"), DTypeError, "int64"),
    "Embedding: floats": (lambda: nn.Embedding(3, 2), x2, DTypeError, "float32"),
    "Conv2D: rank": (lambda: nn.Conv2D(3, 4, 3), x2, ShapeError, "NCHW"),
    "Conv2D: channels": (lambda: nn.Conv2D(3, 4, 3), x4, ShapeError, "size 3 (in_channels"),
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
