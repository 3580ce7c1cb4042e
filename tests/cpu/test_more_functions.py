"""Gated and noisy activations, shifts of frames, and reading at grids, against torch or in their statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.run_function import compare, run_function
from tstatic import nn
from tstatic.errors import ProgramError, ShapeError
from tstatic.nn import functional as F

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
T = torch.nn.functional
RNG = np.random.default_rng(13)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_glu(axis: int) -> None:
    x = normal(4, 6, 2)
    compare(lambda x: nn.GLU(axis)(x), lambda x: T.glu(x, axis), {"x": x}, False)
    with pytest.raises(ShapeError):
        run_function(F.glu, {"x": normal(4, 3)})
    with pytest.raises(ShapeError):
        run_function(lambda x: F.glu(x, 3), {"x": x})


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_draws_categories_with_their_chances(hard: bool) -> None:
    chances = np.array([0.1, 0.2, 0.7])
    x = np.log(np.broadcast_to(chances[:, None], (20, 3, 1000)).copy())
    y, dx = run_function(lambda x: F.gumbel_softmax(x, 0.5, hard, 1), {"x": x}, grads=True)
    np.testing.assert_allclose(y.sum(1), 1.0, rtol=1e-6)
    counts = np.bincount(y.argmax(1).reshape(-1), minlength=3) / 20000
    np.testing.assert_allclose(counts, chances, atol=0.02)
    assert set(np.unique(y)) == {0.0, 1.0} if hard else len(np.unique(y)) > 1000
    # Through a softmax a gradient sums to 0.
    assert np.abs(dx).max() > 1e-3
    np.testing.assert_allclose(dx.sum(1), 0.0, atol=1e-9)
    with pytest.raises(ProgramError, match="temperature"):
        run_function(lambda x: F.gumbel_softmax(x, 0.0), {"x": x})


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = normal(200, 300)
    y, dx = run_function(lambda x: nn.AlphaDropout(0.3)(x), {"x": x}, grads=True)
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1.0) < 0.03
    dropped = dx == 0
    assert abs(dropped.mean() - 0.3) < 0.02
    assert len(np.unique(y[dropped])) == 1
    kept = np.polyfit(x[~dropped], y[~dropped], 1)
    limit = -1.6732632423543772 * 1.0507009873554805
    slope = (0.7 * (1 + 0.3 * limit**2)) ** -0.5
    np.testing.assert_allclose(kept, [slope, -slope * limit * 0.3], rtol=1e-9)


def test_alpha_dropout_at_its_limits() -> None:
    x = normal(3, 4)
    np.testing.assert_array_equal(run_function(lambda x: F.alpha_dropout(x, 0.5, False), {"x": x})[0], x)
    np.testing.assert_array_equal(run_function(lambda x: F.alpha_dropout(x, 0.0), {"x": x})[0], x)
    np.testing.assert_array_equal(run_function(lambda x: F.alpha_dropout(x, 1), {"x": x})[0], x * 0)
    with pytest.raises(ProgramError, match="'p'"):
        run_function(lambda x: F.alpha_dropout(x, 1.5), {"x": x})


def test_rrelu() -> None:
    x = -np.abs(normal(100, 200))
    y, dx = run_function(lambda x: nn.RReLU(0.2, 0.6)(x), {"x": x}, grads=True)
    slopes = y / x
    assert slopes.min() >= 0.2
    assert slopes.max() <= 0.6
    assert abs(slopes.mean() - 0.4) < 0.01
    np.testing.assert_allclose(dx, slopes * np.cos(np.arange(20000.0)).reshape(x.shape), rtol=1e-9)
    compare(lambda x: F.rrelu(x, 0.2, 0.6, False), lambda x: T.rrelu(x, 0.2, 0.6, False), {"x": normal(5, 6)})
    np.testing.assert_array_equal(run_function(F.rrelu, {"x": -x})[0], -x)
    for low, high in ((0.5, 0.2), (-0.1, 0.2), (0.1, 1.5)):
        with pytest.raises(ProgramError):
            run_function(lambda x: F.rrelu(x, low, high), {"x": x})  # noqa: B023


@pytest.mark.parametrize(("frames", "ratio"), [(3, 0.25), (2, 0.4), (6, 0.5), (1, 0.25), (3, 0.0)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_temporal_shift(frames: int, ratio: float, layout: str) -> None:
    def theirs(x: Any) -> Any:
        first = x if layout == "NCHW" else x.permute(0, 3, 1, 2)
        videos = first.reshape(-1, frames, *first.shape[1:])
        a, b = int(videos.shape[2] * ratio), int(videos.shape[2] * 2 * ratio)
        moved = torch.zeros_like(videos)
        moved[:, 1:, :a] = videos[:, :-1, :a]
        moved[:, :-1, a:b] = videos[:, 1:, a:b]
        moved[:, :, b:] = videos[:, :, b:]
        moved = moved.reshape(first.shape)
        return moved if layout == "NCHW" else moved.permute(0, 2, 3, 1)

    x = normal(6, 8, 2, 3) if layout == "NCHW" else normal(6, 2, 3, 8)
    for unknown in (True, False):
        compare(lambda x: F.temporal_shift(x, frames, ratio, data_format=layout), theirs, {"x": x}, unknown)


def test_temporal_shift_refuses() -> None:
    with pytest.raises(ProgramError, match="shift_ratio"):
        run_function(lambda x: F.temporal_shift(x, 2, 0.7), {"x": normal(4, 4, 2, 2)})
    with pytest.raises(ShapeError):
        run_function(lambda x: F.temporal_shift(x, 2), {"x": normal(4, 4, 2)})


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("corners", [True, False])
def test_affine_grid(corners: bool) -> None:
    for theta, shape in ((normal(2, 2, 3), [2, 3, 4, 5]), (normal(2, 3, 4), [2, 3, 4, 1, 5])):
        compare(
            lambda t: F.affine_grid(t, shape, corners),  # noqa: B023
            lambda t: T.affine_grid(t, shape, corners),  # noqa: B023
            {"t": theta},
        )
    with pytest.raises(ShapeError, match="theta"):
        run_function(lambda t: F.affine_grid(t, [2, 3, 4, 5]), {"t": normal(2, 3, 4)})


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 3, 1, 4), (2, 2, 3, 4, 3)])
def test_grid_sample(shape: tuple[int, ...], padding: str, corners: bool) -> None:
    axes = len(shape) - 2
    x, grid = normal(*shape), RNG.uniform(-2.5, 2.5, (2, *(3, 2, 4)[:axes], axes))
    for mode in ("bilinear", "nearest"):
        compare(
            lambda x, g: F.grid_sample(x, g, mode, padding, corners),  # noqa: B023
            lambda x, g: T.grid_sample(x, g, mode, padding, corners),  # noqa: B023
            {"x": x, "g": grid},
        )
    compare(
        lambda g, x: F.grid_sample(x, g, "bilinear", padding, corners),
        lambda g, x: T.grid_sample(x, g, "bilinear", padding, corners),
        {"g": grid, "x": x},
        False,
    )


def test_grid_sample_refuses() -> None:
    x, grid = normal(2, 3, 4, 5), normal(2, 3, 2, 2)
    with pytest.raises(ProgramError, match="mode"):
        run_function(lambda x, g: F.grid_sample(x, g, "bicubic"), {"x": x, "g": grid})
    with pytest.raises(ProgramError, match="padding_mode"):
        run_function(lambda x, g: F.grid_sample(x, g, padding_mode="mirror"), {"x": x, "g": grid})
    with pytest.raises(ShapeError, match="do not fit"):
        run_function(F.grid_sample, {"x": x, "g": normal(2, 3, 2, 3)})


def test_unflatten() -> None:
    compare(lambda x: nn.Unflatten(1, [2, -1])(x), lambda x: x.unflatten(1, (2, -1)), {"x": normal(3, 6, 2)})
    with pytest.raises(ShapeError):
        run_function(lambda x: nn.Unflatten(1, [4, -1])(x), {"x": normal(3, 6, 2)})
