"""What parameters start with, as Paddle starts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.nn.initializer import Constant


def data(name: str, shape: list[Any], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


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


def test_filters_over_volumes_start_normal() -> None:
    ops = startup_ops(lambda: static.nn.conv3d(data("x", [None, 4, 8, 8, 8]), 6, 3))
    assert ops[0][0] == "gaussian_random"
    assert ops[0][1]["std"] == pytest.approx(0.1360827635, abs=1e-9)


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


def test_uniform_fills_its_diagonal() -> None:
    start = paddle.nn.initializer.Uniform(0.0, 0.5, diag_num=3, diag_step=4, diag_val=2.0)
    w = static.create_parameter([3, 4], "float32", default_initializer=start)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    value = np.array(static.global_scope().find_var(w.name).get_tensor())
    assert (value == 2.0).tolist() == np.eye(3, 4, dtype=bool).tolist()
    assert value[~np.eye(3, 4, dtype=bool)].max() < 0.5
