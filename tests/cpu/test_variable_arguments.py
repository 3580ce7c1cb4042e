"""Sizes, axes, parts and paddings that are Variables give what numbers give, with the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, static
from tstatic.nn import functional as F

X = np.random.default_rng(3).normal(size=(1, 2, 3, 4)).astype("float32")
CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    **{
        f"interpolate {mode} corners={corners} align_mode={align}": (
            lambda x, v, m=mode, c=corners, a=align: F.interpolate(x, size=v, mode=m, align_corners=c, align_mode=a), [5, 7]
        )
        for mode, corners, align in (
            ("nearest", False, 0), ("bilinear", False, 0), ("bilinear", False, 1), ("bilinear", True, 0),
            ("bicubic", False, 0), ("bicubic", True, 0),
        )
    },
    "concat": (lambda x, v: paddle.concat([x, x * 2], axis=v), [-2]),
    "concat of other sizes": (lambda x, v: paddle.concat([x, x[:, :, :1]], axis=v), [2]),
    "gather": (lambda x, v: paddle.gather(x, paddle.assign(np.array([1, 0, 1])), axis=v), [1]),
    "squeeze": (lambda x, v: paddle.squeeze(x, v), [0]),
    "squeeze of a list": (lambda x, v: paddle.squeeze(x[:, :, :1], [v, -2]), [0]),
    "squeeze of two": (lambda x, v: paddle.squeeze(x[:, :, :1], v), [2, -4]),
    "squeeze of all": (lambda x, v: paddle.squeeze(x[:, :1, :1, 0], v), [2, 0, 1]),
    "unsqueeze of a list": (lambda x, v: paddle.unsqueeze(x, [0, v]), [2]),
    "unsqueeze of two": (lambda x, v: paddle.unsqueeze(x, v), [0, -1]),
    "split by sizes": (lambda x, v: paddle.split(x, [1, 2], axis=v)[1], [2]),
    "sum": (lambda x, v: paddle.sum(x, axis=v), [2]),
    "mean": (lambda x, v: paddle.mean(x, axis=v, keepdim=True), [-1]),
    "max": (lambda x, v: paddle.max(x, axis=v), [1]),
    "min": (lambda x, v: paddle.min(x, axis=v), [3]),
    "prod": (lambda x, v: paddle.prod(x, axis=v), [1]),
    "cumsum": (lambda x, v: paddle.cumsum(x, axis=v), [2]),
    "unsqueeze": (lambda x, v: paddle.unsqueeze(x, v), [-1]),
    "split": (lambda x, v: paddle.split(x, 2, axis=v)[1], [3]),
    "split sizes": (lambda x, v: paddle.split(x, [v, -1], axis=3)[1], [1]),
    "pad": (lambda x, v: F.pad(x, v, value=2.0), [1, 0, 2, 1]),
    "pad channels last": (lambda x, v: F.pad(x, v, value=2.0, data_format="NHWC"), [1, 0, 2, 1]),
    "interpolate channels last": (lambda x, v: F.interpolate(x, size=v, mode="bilinear", data_format="NHWC"), [5, 7]),
    "pad all axes": (lambda x, v: F.pad(x, v), [0, 1, 1, 0, 0, 2, 1, 0]),
}  # fmt: skip


def numbers(name: str, value: list[int]) -> Any:
    """The argument as numbers."""
    return value[0] if len(value) == 1 else value


@pytest.mark.parametrize("name", CALLS)
def test_a_variable_means_what_its_numbers_mean(name: str) -> None:
    call, value = CALLS[name]
    x = static.data("x", [-1, 2, 3, 4])
    x.stop_gradient = False
    given = static.data("given", [len(value)], "int32")
    ways = [call(x, given), call(x, numbers(name, value))]
    gradients = [static.gradients([paddle.sum(y * y)], [x])[0] for y in ways]
    feed = {"x": X, "given": np.array(value, "int32")}
    found = static.Executor().run(feed=feed, fetch_list=[*ways, *gradients])
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], found[3], rtol=1e-5, atol=1e-5)


def test_positions_along_an_axis_that_is_a_variable() -> None:
    x, axis = static.data("x", [-1, 2, 3, 4]), static.data("axis", [1], "int32")
    found = static.Executor().run(
        feed={"x": X, "axis": np.array([2], "int32")},
        fetch_list=[paddle.argmax(x, axis=axis), paddle.argmin(x, axis=axis, keepdim=True)],
    )
    np.testing.assert_array_equal(found[0], X.argmax(2))
    np.testing.assert_array_equal(found[1], X.argmin(2, keepdims=True))


@pytest.mark.parametrize("known", [True, False])
def test_values_of_other_sizes_are_joined_along_an_axis_that_is_a_variable(known: bool) -> None:
    """Guards ``concat(axis=Variable)``: sizes are compared along the axis of the run, not along axes that it might have been."""
    shape = [2, 3] if known else [-1, -1]
    x, y = static.data("x", shape), static.data("y", [2, 5] if known else shape)
    axis = static.data("axis", [1], "int32")
    joined = paddle.concat([x, y], axis=axis)
    exe = static.Executor()
    wide = np.full((2, 5), 2, "float32")
    feed = {"x": np.ones((2, 3), "float32"), "y": wide}
    for number in (1, -1):
        (found,) = exe.run(feed={**feed, "axis": np.array([number], "int32")}, fetch_list=[joined])
        np.testing.assert_array_equal(found, np.concatenate([feed["x"], wide], 1))
    with pytest.raises(errors.TstaticError):
        exe.run(feed={**feed, "axis": np.array([0], "int32")}, fetch_list=[joined])


def test_values_that_fit_along_no_axis_are_refused_when_the_program_is_built() -> None:
    x, y, axis = static.data("x", [2, 3]), static.data("y", [4, 5]), static.data("axis", [1], "int32")
    with pytest.raises(errors.ShapeError, match="no axis can be"):
        paddle.concat([x, y], axis=axis)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        paddle.concat([x, paddle.ones([2])], axis=axis)
    with pytest.raises(errors.ShapeError, match="no axis can be"):
        paddle.split(x, [1, 5], axis=axis)


def test_an_axis_of_another_size_than_1_is_not_squeezed_by_a_variable() -> None:
    x, axis = static.data("x", [-1, 2, 3, 4]), static.data("axis", [2], "int32")
    y = paddle.squeeze(x, axis)
    assert y.shape == (-1, -1)
    for wrong in ([0, 1], [0, 0], [0, 7], [0, -4]):
        with pytest.raises(errors.FeedError, match="Assert"):
            static.Executor().run(feed={"x": X, "axis": np.array(wrong, "int32")}, fetch_list=[y])


def test_sizes_of_another_value_are_taken() -> None:
    x, y = static.data("x", [-1, 2, 3, 4]), static.data("y", [-1, 2, -1, -1])
    out = F.interpolate(x, size=paddle.shape(y)[2:])
    half = F.interpolate(x, scale_factor=[paddle.full([1], 2.0), 0.5])
    found = static.Executor().run(feed={"x": X, "y": np.zeros((1, 2, 6, 8), "f4")}, fetch_list=[out, half])
    assert [v.shape for v in found] == [(1, 2, 6, 8), (1, 2, 6, 2)]
    np.testing.assert_array_equal(found[0], X.repeat(2, 2).repeat(2, 3))


def test_a_constant_axis_leaves_the_shape_known() -> None:
    x = static.data("x", [2, 3])
    axis = paddle.full([1], 1, "int32")
    assert paddle.concat([x, x], axis=axis).shape == (2, 6)
    assert paddle.unsqueeze(x, axis).shape == (2, 1, 3)
    with pytest.raises(errors.ShapeError, match="axis"):
        paddle.concat([x, x], axis=paddle.full([1], 5, "int32"))


def test_an_axis_out_of_range_is_an_error_when_the_program_runs() -> None:
    x, axis = static.data("x", [2, 3]), static.data("axis", [1], "int32")
    y = paddle.concat([x, x], axis=axis)
    with pytest.raises(errors.TstaticError):
        static.Executor().run(feed={"x": np.ones((2, 3), "f4"), "axis": np.array([4], "int32")}, fetch_list=[y])


def test_what_cannot_be_known_later_is_refused() -> None:
    x, sizes = static.data("x", [1, 2, 3, 4]), static.data("sizes", [2], "int32")
    with pytest.raises(errors.UnsupportedError, match="area"):
        F.interpolate(x, size=sizes, mode="area")
    with pytest.raises(errors.UnsupportedError, match="reflect"):
        F.pad(x, static.data("pad", [4], "int32"), mode="reflect")
    with pytest.raises(errors.ShapeError, match="one per spatial axis"):
        F.interpolate(x, size=static.data("three", [3], "int32"))


# ------------------------------------------------------------------------------------------- numbers of which sizes depend
@pytest.mark.parametrize("known", [True, False])
def test_dropout_with_a_chance_that_is_a_variable(known: bool) -> None:
    """Guards dropout(p=Variable): its share, its scale, whole channels, and inference by ``clone(for_test=True)``."""
    p = paddle.full([1], 0.25) if known else static.data("p", [1])
    x = static.data("x", [-1, 50, 4, 5])
    x.stop_gradient = False
    ways = [F.dropout(x, p), F.dropout(x, p, mode="downscale_in_infer"), F.dropout2d(x, p), F.dropout(x, p, axis=0)]
    gradients = [static.gradients([y], [x])[0] for y in ways]
    main = static.default_main_program()
    test = main.clone(for_test=True)
    feed = {"x": np.ones((40, 50, 4, 5), "float32")} | ({} if known else {"p": np.array([0.25], "float32")})
    plain, down, channels, rows, *slopes = static.Executor().run(feed=feed, fetch_list=[*ways, *gradients])
    for value, kept in ((plain, 1 / 0.75), (down, 1.0), (channels, 1 / 0.75), (rows, 1 / 0.75)):
        np.testing.assert_allclose(np.unique(value), [0.0, kept], rtol=1e-6)
    for value in (plain, down, channels):
        assert abs((value == 0).mean() - 0.25) < 0.05
    assert (channels == channels[:, :, :1, :1]).all()
    assert (rows == rows[:, :1, :1, :1]).all()
    for value, slope in zip((plain, down, channels, rows), slopes, strict=True):
        np.testing.assert_array_equal(value, slope)
    inferred = static.Executor().run(test, feed=feed, fetch_list=[y.name for y in ways])
    for value, wanted in zip(inferred, (1.0, 0.75, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(value, np.full_like(value, wanted), rtol=1e-6)
    if not known:
        (none,) = static.Executor().run(feed={**feed, "p": np.array([1], "float32")}, fetch_list=[ways[0]])
        np.testing.assert_array_equal(none, np.zeros_like(none))


def test_numbers_drawn_between_variables() -> None:
    """Guards uniform(min, max) and randint(shape) with Variables."""
    low, high, count = static.data("low", []), static.data("high", [1]), static.data("count", [1], "int32")
    drawn = paddle.uniform([1000], min=low, max=high)
    whole = paddle.randint(-3, 4, shape=[count, 2], dtype="int32")
    feed = {"low": np.float32(2), "high": np.array([5], "float32"), "count": np.array([700], "int32")}
    a, b = static.Executor().run(feed=feed, fetch_list=[drawn, whole])
    assert a.min() >= 2
    assert a.max() < 5
    assert abs(a.mean() - 3.5) < 0.15
    assert b.shape == (700, 2)
    assert b.dtype == np.int32
    assert set(np.unique(b)) == set(range(-3, 4))


def test_a_count_that_is_a_variable() -> None:
    """Guards linspace, logspace and eye, also with a count of 1, and one below it."""
    n = static.data("n", [1], "int64")
    line, logs, square = paddle.linspace(2, 5, n), paddle.logspace(0, 2, n), paddle.eye(n, 3)
    exe = static.Executor()
    for count in (4, 1):
        found = exe.run(feed={"n": np.array([count])}, fetch_list=[line, logs, square])
        np.testing.assert_allclose(found[0], np.linspace(2, 5, count), rtol=1e-6)
        np.testing.assert_allclose(found[1], np.logspace(0, 2, count), rtol=1e-6)
        np.testing.assert_array_equal(found[2], np.eye(count, 3))
    with pytest.raises(errors.TstaticError):
        exe.run(feed={"n": np.array([0])}, fetch_list=[line])


def test_distances_of_a_roll_that_are_variables() -> None:
    x, shifts = static.data("x", [-1, 2, 3, 4]), static.data("shifts", [2], "int32")
    x.stop_gradient = False
    y, flat = paddle.roll(x, shifts, axis=[1, -1]), paddle.roll(x, shifts[0])
    (gradient,) = static.gradients([paddle.sum(y * y)], [x])
    feed = {"x": X, "shifts": np.array([-5, 3], "int32")}
    found = static.Executor().run(feed=feed, fetch_list=[y, flat, gradient])
    np.testing.assert_array_equal(found[0], np.roll(X, (-5, 3), (1, 3)))
    np.testing.assert_array_equal(found[1], np.roll(X, -5))
    np.testing.assert_allclose(found[2], 2 * X, rtol=1e-6)


def test_wrong_variables_are_refused_by_name() -> None:
    """Guards the one helper: a Variable of several elements, or of another dtype, is named with its argument."""
    several, text = static.data("several", [3]), static.data("flags", [1], "bool")
    for call, name in (
        (lambda v: paddle.eye(v), "num_rows"),
        (lambda v: paddle.linspace(0, 1, v), "num"),
        (lambda v: F.dropout(paddle.ones([2, 3]), v), "p"),
        (lambda v: paddle.uniform([2], max=v), "max"),
    ):
        for wrong in (several, text):
            with pytest.raises(errors.TstaticError, match=name):
                call(wrong)
