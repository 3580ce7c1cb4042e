"""Sizes, bounds and counts that are Variables: known when the program runs, with gradients through what they shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import run_function, weights
from tstatic import fluid, static
from tstatic.errors import IndexRangeError, ShapeError
from tstatic.nn import functional as F

X = np.random.default_rng(3).standard_normal((4, 6))
THREE = np.array([3], np.int32)
SIZES = np.array([8, 3], np.int64)

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "reshape, one size": (lambda x, n: paddle.reshape(x, [n, -1]), lambda t, x, n: x.reshape(3, 8), (THREE,)),
    "reshape, all sizes": (lambda x, n: paddle.reshape(x, n), lambda t, x, n: x.reshape(8, 3), (SIZES,)),
    "reshape, by shape": (
        lambda x: paddle.reshape(x, [paddle.shape(x)[1], paddle.shape(x)[0]]),
        lambda t, x: x.reshape(6, 4),
        (),
    ),
    "fluid reshape": (
        lambda x, n: fluid.layers.reshape(x, [-1, 2], actual_shape=n),
        lambda t, x, n: x.reshape(8, 3),
        (SIZES,),
    ),
    "expand": (lambda x, n: paddle.expand(x[:, :1], [n, 4, 2]), lambda t, x, n: x[:, :1].expand(3, 4, 2), (THREE,)),
    "tile": (lambda x, n: paddle.tile(x, [1, n]), lambda t, x, n: x.tile(1, 3), (THREE,)),
    "fluid expand": (lambda x, n: fluid.layers.expand(x, [n, 2]), lambda t, x, n: x.tile(3, 2), (THREE,)),
    "slice": (lambda x, n: paddle.slice(x, [1, 0], [1, 0], [n, 2]), lambda t, x, n: x[:2, 1:3], (THREE,)),
    "slice, one Variable": (lambda x, n: paddle.slice(x, [0, 1], [0, 0], n), lambda t, x, n: x[:8, :3], (SIZES,)),
    "strided_slice": (
        lambda x, n: paddle.strided_slice(x, [1], [0], [6], [n]),
        lambda t, x, n: x[:, ::3],
        (THREE,),
    ),
    "crop": (lambda x, n: paddle.crop(x, [2, n], [1, 2]), lambda t, x, n: x[1:3, 2:5], (THREE,)),
    "crop, by offset": (lambda x, n: paddle.crop(x, [2, 2], [1, n]), lambda t, x, n: x[1:3, 3:5], (THREE,)),
    "topk": (lambda x, n: paddle.topk(x, n)[0], lambda t, x, n: x.topk(3).values, (THREE,)),
    "masked rows": (
        lambda x: paddle.reshape(x[x[:, 0] > 0], [-1, 3]) * 2.0,
        lambda t, x: x[x[:, 0] > 0].reshape(-1, 3) * 2,
        (),
    ),
}


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", CASES)
def test_sizes_from_variables(name: str, unknown: bool) -> None:
    import torch

    build, oracle, rest = CASES[name]
    x = torch.from_numpy(X.copy()).requires_grad_()
    expected = oracle(torch, x, *rest)
    found = run_function(build, {"x": X, **{f"n{i}": a for i, a in enumerate(rest)}}, unknown and not rest, grads=True)
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=1e-12)
    expected.backward(torch.from_numpy(weights(tuple(expected.shape))))
    np.testing.assert_allclose(found[1], x.grad.numpy(), rtol=1e-12, atol=1e-12)


def test_one_hot_of_a_depth_known_at_run_time() -> None:
    (out,) = run_function(lambda x, n: F.one_hot(x, n), {"x": np.array([0, 2]), "n": THREE}, unknown=False)
    np.testing.assert_array_equal(out, np.eye(3)[[0, 2]])


def test_gradient_of_a_reshape_of_two_unknown_sizes() -> None:
    x = static.data("x", [None, None, 4], "float64")
    x.stop_gradient = False
    y = paddle.reshape(x, [-1, 4])
    (gradient,) = static.gradients([paddle.sum(y * y)], [x])
    assert gradient.shape == (-1, -1, 4)
    exe = static.Executor(paddle.CPUPlace())
    for shape in ((2, 3, 4), (5, 1, 4), (0, 3, 4)):
        value = np.random.default_rng(1).standard_normal(shape)
        (found,) = exe.run(feed={"x": value}, fetch_list=[gradient])
        np.testing.assert_allclose(found, 2 * value)


def test_gradient_of_a_concat_of_unknown_sizes() -> None:
    parts = [static.data(n, [None, 2], "float64") for n in "abc"]
    for part in parts:
        part.stop_gradient = False
    out = paddle.concat(parts)
    gradients = static.gradients([paddle.sum(out * out)], parts)
    feed = {n: np.random.default_rng(i).standard_normal((i, 2)) for i, n in enumerate("abc")}
    found = static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=gradients)
    for name, gradient in zip("abc", found, strict=True):
        np.testing.assert_allclose(gradient, 2 * feed[name])


def test_a_run_time_shape_that_does_not_fit_is_an_error_at_the_users_line() -> None:
    with pytest.raises(ShapeError, match="as many elements") as caught:
        run_function(lambda x, n: paddle.reshape(x, n), {"x": X, "n": np.array([5, 5])}, unknown=False)
    assert "test_shape_variables.py" in str(caught.value)
    with pytest.raises(ShapeError, match="known length"):
        run_function(lambda x, n: paddle.reshape(x, n), {"x": X, "n": SIZES}, unknown=True)


@pytest.mark.parametrize(
    ("build", "index"),
    [
        (lambda x, i: paddle.gather(x, i), [0, 4]),
        (lambda x, i: paddle.gather(x, i), [-1]),
        (lambda x, i: paddle.index_select(x, i, 1), [6]),
        (lambda x, i: paddle.gather_nd(x, paddle.unsqueeze(i, -1)), [-5]),
        (lambda x, i: paddle.scatter(x, i, x[:1]), [9]),
        (lambda x, i: paddle.take_along_axis(x, paddle.reshape(i, [1, 1]), 0), [7]),
        (lambda x, i: F.one_hot(i, 3), [3]),
        (lambda x, i: fluid.layers.one_hot(paddle.reshape(i, [1, 1]), 3), [-1]),
        (lambda x, i: paddle.put_along_axis(x, paddle.reshape(i, [1, 1]), 1.0, 0), [4]),
        (lambda x, i: paddle.index_add(x, i, 0, x[:1]), [4]),
    ],
)
def test_an_index_out_of_range_is_an_error_that_says_which(build: Any, index: list[int]) -> None:
    with pytest.raises(IndexRangeError, match="out of range") as caught:
        run_function(build, {"x": X, "i": np.array(index)}, unknown=False)
    assert isinstance(caught.value, IndexError)
    assert re.search(rf"received: {index[-1]} at \[[\d, ]*\] \(\d in all\)", str(caught.value))
    assert "test_shape_variables.py" in str(caught.value)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda x, n: paddle.full([n, 1, 28, 28], 1.0), (-1, 1, 28, 28)),
        (lambda x, n: paddle.zeros([4, n]), (4, -1)),
        (lambda x, n: fluid.layers.fill_constant([n, 0, 2], "int64", 1), (-1, 0, 2)),
        (lambda x, n: paddle.empty([n, 4]), (-1, 4)),
        (lambda x, n: paddle.randn([n, 4]), (-1, 4)),
        (lambda x, n: paddle.uniform([n, 4]), (-1, 4)),
        (lambda x, n: paddle.expand(paddle.ones([1, 1, 6]), [n, -1, 6]), (-1, 1, 6)),
        (lambda x, n: paddle.expand(paddle.ones([1, 6]), paddle.shape(x)), (-1, 6)),
        (lambda x, n: paddle.slice(paddle.ones([5, 6]), [0, 1], [0, n], [3, 6]), (3, -1)),
        (lambda x, n: paddle.strided_slice(x, [0, 1], [0, 1], [n, 6], [1, 2]), (-1, 3)),
        (lambda x, n: x[n:, 1:4, None, 0:1], None),
        (lambda x, n: x[n:, 1:4], (-1, 3)),
        (lambda x, n: paddle.ones([5, 6])[2, n:], (-1,)),
    ],
)
def test_numbers_beside_a_variable_stay_in_the_declared_shape(build: Any, shape: tuple[int, ...] | None) -> None:
    """A layer that follows, as a convolution, needs them."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 6])
        n = paddle.shape(x)[0]
        if shape is None:
            with pytest.raises(IndexRangeError):
                build(x, n)
            return
        out = build(x, n)
        assert out.shape == shape
    (found,) = static.Executor().run(main, feed={"x": np.ones((2, 6), np.float32)}, fetch_list=[out])
    assert all(s in (-1, n) for s, n in zip(shape, found.shape, strict=True))
