"""Arguments that mean nothing are refused where they are given, not accepted, or found out in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import fluid, static


def _x(*shape: int) -> Any:
    return static.data("x", list(shape))


def _stats() -> tuple[Any, Any]:
    return paddle.zeros([3]), paddle.ones([3])


REFUSED: dict[str, Callable[[], Any]] = {
    "SGD(nan)": lambda: paddle.optimizer.SGD(float("nan")),
    "Adam(inf)": lambda: paddle.optimizer.Adam(float("inf")),
    "fluid SGD(nan)": lambda: fluid.optimizer.SGD(float("nan")),
    "Momentum(momentum=nan)": lambda: paddle.optimizer.Momentum(0.1, float("nan")),
    "RMSProp(momentum=inf)": lambda: paddle.optimizer.RMSProp(0.1, momentum=float("inf")),
    "static batch_norm(momentum=5)": lambda: static.nn.batch_norm(_x(2, 3, 4, 4), momentum=5),
    "batch_norm(momentum=-0.1)": lambda: F.batch_norm(_x(2, 3, 4, 4), *_stats(), momentum=-0.1, training=True),
    "BatchNorm2D(momentum=2)": lambda: paddle.nn.BatchNorm2D(3, momentum=2.0),
    "BatchSampler(3)": lambda: paddle.io.BatchSampler(3),
    "BatchSampler(function)": lambda: paddle.io.BatchSampler(len),
    "Normalize(text)": lambda: paddle.vision.transforms.Normalize("x"),
    "Normalize(std=[None])": lambda: paddle.vision.transforms.Normalize(0.5, [None]),
    "normalize(dict)": lambda: paddle.vision.transforms.normalize(np.ones((3, 2, 2)), {1: 2}, 1.0),
    "interpolate([-1, -1])": lambda: F.interpolate(_x(1, 2, 4, 4), [-1, -1]),
    "interpolate([0, 3])": lambda: F.interpolate(_x(1, 2, 4, 4), [0, 3]),
    "resize_nearest([-1, 2])": lambda: fluid.layers.resize_nearest(_x(1, 2, 4, 4), [-1, 2]),
    "unsqueeze to 65 axes": lambda: paddle.unsqueeze(_x(3, 3), list(range(63))),
    "reshape to 65 axes": lambda: paddle.reshape(_x(3, 3), [1] * 63 + [3, 3]),
    "tile to 65 axes": lambda: paddle.tile(_x(3, 3), [1] * 65),
    "basic_lstm of 2**31 layers": lambda: fluid.contrib.layers.basic_lstm(_x(2, 3, 4), None, None, 4, num_layers=2**31),
    "fluid lstm of 2**31 layers": lambda: fluid.layers.lstm(
        _x(5, 2, 3), static.data("h", [1, 2, 4]), static.data("c", [1, 2, 4]), 5, 4, 2**31
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(paddle.errors.TstaticError) as caught:
        REFUSED[name]()
    assert not isinstance(caught.value, MemoryError)
    assert caught.value.expected


@pytest.mark.parametrize("offset", [2**31, -(2**31), 2**63, -(2**70)])
def test_a_diagonal_far_outside_has_no_elements(offset: int) -> None:
    x = paddle.ones([3, 3])
    line, total = static.Executor().run(fetch_list=[paddle.diagonal(x, offset), paddle.trace(x, offset)])
    assert line.shape == (0,)
    assert total == 0


def test_as_many_axes_as_arrays_have_are_accepted() -> None:
    (found,) = static.Executor().run(fetch_list=[paddle.unsqueeze(paddle.ones([3, 3]), list(range(62)))])
    assert found.ndim == 64
