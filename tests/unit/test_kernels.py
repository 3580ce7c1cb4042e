"""The tuned numpy kernels against torch in float64, over drawn shapes, strides and types, with a bound per element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tstatic.ir.evaluate import evaluate, metas_of
from tstatic.ir.opdef import op_def
from tstatic.tuned import conv, conv_bands, norm, pool, softmax, special
from tstatic.tuned._common import BLOCK, make
from tstatic.tuned._windows import COLS, Geometry, conv_plan, output_size

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")]

Array = np.ndarray[Any, Any]
DTYPES = st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)])
SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = st.sampled_from(["plain", "reversed", "fortran", "gaps"])


def odd(array: Array, layout: str) -> Array:
    """The same values behind other strides."""
    if layout == "reversed":
        return array[..., ::-1].copy()[..., ::-1]
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "gaps":
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def buffers(needs: Any) -> tuple[Array, ...]:
    """Scratch that holds NaN (or garbage): nothing of it may reach a result."""
    made = make(needs)
    for buffer in made:
        buffer.fill(np.nan if buffer.dtype.kind == "f" else 77)
    return made


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    return np.full(tuple(shape), np.nan, dtype)


def wide(array: Array, grad: bool = False) -> Any:
    """The array as a float64 tensor."""
    return torch.tensor(np.ascontiguousarray(array).astype(np.float64), requires_grad=grad)


def check(actual: Array, exact: Any, size: Any, ulps: float) -> None:
    """``abs(actual - exact) <= ulps * eps * size``, with ``size`` the sum of the magnitudes that were added."""
    expected = exact.detach().numpy() if hasattr(exact, "detach") else np.asarray(exact)
    size = size.detach().numpy() if hasattr(size, "detach") else size
    assert actual.shape == expected.shape
    bad = np.isnan(expected)
    assert (np.isnan(actual) == bad).all(), "NaN in other places"
    bound = ulps * np.finfo(actual.dtype).eps * np.maximum(np.abs(expected), size) + np.finfo(actual.dtype).tiny
    with np.errstate(invalid="ignore"):
        wrong = ~bad & (actual != expected) & ~(np.abs(actual - expected) <= bound)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} off, worst by {np.abs(actual - expected)[wrong].max()}"


def test_check_sees_one_wrong_element() -> None:
    good = np.ones((3, 4), np.float32)
    off = good.copy()
    off[1, 2] += 1e-5
    check(good, good.astype(np.float64), 1.0, 2)
    for bad in (off, np.where(off > 1, np.nan, good).astype(np.float32)):
        with pytest.raises(AssertionError):
            check(bad, good.astype(np.float64), 1.0, 2)


# ---------------------------------------------------------------------------------------------------------- convolution
Conv = tuple[Any, ...]


@st.composite
def convolutions(draw: st.DrawFn) -> Conv:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = (groups * draw(st.sampled_from([1, 2, 4, 8, 11])) for _ in range(2))
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    strides = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3), (2, 1)]))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    pads = draw(st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 0), (4, 4, 4, 4)]))
    least = [
        max(1, d * (k - 1) + 1 - a - b) for k, d, a, b in zip(kernel, dilations, pads[::2], pads[1::2], strict=True)
    ]
    h, w = (m + draw(st.integers(0, 20)) for m in least)
    n = draw(st.sampled_from([0, 1, 2, 5]))
    return (n, channels, h, w), (filters, channels // groups, *kernel), strides, pads, dilations, groups


def check_convolution(case: Conv, dtype: np.dtype[Any], seed: int, layout: str) -> None:
    x_shape, w_shape, strides, pads, dilations, groups = case
    rng = np.random.default_rng(seed)
    geometry = Geometry(strides, pads, dilations, groups)
    x, w = rng.standard_normal(x_shape).astype(dtype), rng.standard_normal(w_shape).astype(dtype)

    def exact(x: Any, w: Any) -> Any:
        top, bottom, left, right = pads
        return F.conv2d(F.pad(x, (left, right, top, bottom)), w, None, strides, 0, dilations, groups)

    tx, tw = wide(x, True), wide(w, True)
    ty = exact(tx, tw)
    dy = rng.standard_normal(tuple(ty.shape)).astype(dtype)
    ty.backward(wide(dy))
    ax, aw = wide(np.abs(x), True), wide(np.abs(w), True)
    size = exact(ax, aw)
    size.backward(wide(np.abs(dy)))
    x, w, dy = odd(x, layout), odd(w, layout), odd(dy, layout)

    out = odd(empty(ty.shape, dtype), layout)
    conv.conv2d_forward(x, w, out, geometry, buffers(conv.conv2d_forward_scratch(x_shape, w_shape, geometry, dtype)))
    check(out, ty, size, 8)
    dx = odd(empty(x_shape, dtype), layout)
    needs = conv.conv2d_input_grad_scratch(x_shape, w_shape, dy.shape, geometry, dtype)
    conv.conv2d_input_grad(dy, w, dx, geometry, buffers(needs))
    check(dx, tx.grad, ax.grad, 8)
    dw = odd(empty(w_shape, dtype), layout)
    needs = conv.conv2d_filter_grad_scratch(x_shape, w_shape, geometry, dtype)
    conv.conv2d_filter_grad(x, dy, dw, geometry, buffers(needs))
    check(dw, tw.grad, aw.grad, 8)
    repeated = empty(w_shape, dtype)
    conv.conv2d_filter_grad(x, dy, repeated, geometry, buffers(needs))
    assert (repeated == dw).all()


@given(convolutions(), DTYPES, SEEDS, LAYOUTS)
def test_conv(case: Conv, dtype: np.dtype[Any], seed: int, layout: str) -> None:
    check_convolution(case, dtype, seed, layout)


LARGE = {
    # Each mode, blocks of several images, and rows of one image in several blocks.
    "rows, several images": ((9, 3, 20, 20), (32, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "rows, parts of one image": ((2, 7, 160, 150), (5, 7, 5, 5), (2, 1), (1, 1, 1, 1), (1, 1), 1),
    "wide, several images": ((3, 5, 40, 30), (2, 5, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "wide, parts of one image": ((2, 3, 120, 60), (4, 3, 5, 5), (1, 1), (1, 0, 2, 1), (1, 1), 1),
    "wide, few channels in a group": ((2, 6, 16, 16), (18, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 6),
    "shifts, several images": ((9, 16, 20, 20), (8, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "shifts, parts of one image": ((2, 16, 300, 300), (8, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "shifts, all different": ((3, 12, 17, 40), (6, 6, 3, 4), (1, 2), (3, 0, 1, 2), (2, 3), 2),
    "pixels, several images": ((9, 16, 20, 20), (8, 16, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    "pixels, parts of one image": ((2, 16, 90, 70), (24, 16, 3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 1),
    "pixels, small images": ((130, 24, 7, 7), (12, 24, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    "pixels, no border": ((5, 8, 6, 8), (8, 8, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "rows, one pixel of a strided image": ((3, 9, 24, 26), (6, 9, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    "depthwise, small images": ((70, 12, 7, 20), (12, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 12),
    "depthwise, parts of the channels": ((3, 40, 60, 64), (80, 1, 5, 3), (1, 1), (2, 2, 1, 1), (1, 1), 40),
    "depthwise, all different": ((5, 6, 11, 27), (12, 1, 2, 4), (1, 1), (3, 0, 1, 2), (2, 3), 6),
    "depthwise, one row": ((5, 6, 1, 300), (6, 1, 1, 7), (1, 1), (0, 0, 3, 3), (1, 1), 6),
    "direct": ((2, 6, 12, 12), (5, 6, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "direct, small images": ((130, 12, 7, 7), (5, 12, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "direct, grouped": ((2, 6, 12, 12), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_conv_modes(name: str) -> None:
    case = LARGE[name]
    plan = conv_plan(*case[:2], Geometry(*case[2:]))
    assert plan.mode == name.split(",")[0]
    if "parts of the channels" in name:
        assert 1 < plan.planes < plan.channels
    elif "parts" in name:
        assert plan.rows < plan.out[0]
        assert plan.columns <= (4 * COLS if plan.mode == "shifts" else COLS)
    if "several" in name:
        assert plan.images > 1
    if "small" in name and plan.mode != "direct":
        assert 1 < plan.images < plan.batch
    check_convolution(case, np.dtype(np.float32), 3, "plain")


@st.composite
def depthwise(draw: st.DrawFn) -> Conv:
    channels = draw(st.integers(2, 6))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    strides, dilations = (draw(st.tuples(st.integers(1, 3), st.integers(1, most))) for most in (3, 2))
    pads = tuple(draw(st.integers(0, 5)) for _ in range(4))
    least = [
        max(1, d * (k - 1) + 1 - a - b) for k, d, a, b in zip(kernel, dilations, pads[::2], pads[1::2], strict=True)
    ]
    h, w = (m + draw(st.integers(0, most)) for m, most in zip(least, (20, 60), strict=True))
    filters = channels * draw(st.sampled_from([1, 1, 2]))
    return (draw(st.integers(1, 9)), channels, h, w), (filters, 1, *kernel), strides, pads, dilations, channels


@given(depthwise(), DTYPES, SEEDS, LAYOUTS)
# An image one column wide, whose rows lie backwards: the stride of its last axis says nothing.
@example(((1, 2, 2, 1), (4, 1, 2, 1), (1, 1), (2, 2, 0, 0), (2, 1), 2), np.dtype(np.float32), 0, "reversed")
def test_depthwise_conv(case: Conv, dtype: np.dtype[Any], seed: int, layout: str) -> None:
    """Bands and columns alike: strips with and without padding, blocks that the size is no multiple of, taps that meet nothing."""
    check_convolution(case, dtype, seed, layout)


BANDS = {
    "one strip": ((70, 12, 9, 5), (12, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 12),
    "two filters of a channel": ((6, 12, 9, 7), (24, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 12),
    "strides": ((9, 24, 40, 70), (24, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 24),
    "all different": ((5, 6, 31, 47), (6, 1, 2, 4), (3, 2), (3, 0, 1, 2), (2, 3), 6),
    "one row": ((5, 6, 1, 300), (6, 1, 1, 7), (1, 2), (0, 0, 3, 3), (1, 1), 6),
}


@pytest.mark.parametrize("name", BANDS)
def test_depthwise_conv_as_banded_products(name: str) -> None:
    case = BANDS[name]
    x_shape, w_shape, *rest = case
    plan = conv_bands.correlation(x_shape, w_shape, Geometry(*rest))
    assert plan is not None
    assert (plan.columns.count == 1) == (rest[0] == (1, 1))
    if name == "strides":
        assert 1 < plan.planes < plan.channels
    if w_shape[0] == x_shape[1]:
        out = conv_plan(x_shape, w_shape, Geometry(*rest)).out
        assert conv_bands.adjoint(x_shape, w_shape, (x_shape[0], w_shape[0], *out), Geometry(*rest)) is not None
    check_convolution(case, np.dtype(np.float32), 3, "plain")
    check_convolution(case, np.dtype(np.float64), 3, "fortran")


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_reaches_only_the_results_that_it_belongs_to(name: str, bad: float) -> None:
    """A band holds zeros, and zero times infinity is NaN."""
    x_shape, w_shape, strides, pads, dilations, groups = BANDS[name]
    geometry, dtype, rng = Geometry(strides, pads, dilations, groups), np.dtype(np.float32), np.random.default_rng(3)

    def run(x: Any, w: Any, dy: Any) -> list[np.ndarray[Any, Any]]:
        """The convolution of x and w, and for the gradient dy that of the input and that of the filters."""
        out, dx, dw = empty(dy.shape, dtype), empty(x_shape, dtype), empty(w_shape, dtype)
        conv.conv2d_forward(
            x, w, out, geometry, buffers(conv.conv2d_forward_scratch(x_shape, w_shape, geometry, dtype))
        )
        needs = conv.conv2d_input_grad_scratch(x_shape, w_shape, dy.shape, geometry, dtype)
        conv.conv2d_input_grad(dy, w, dx, geometry, buffers(needs))
        needs = conv.conv2d_filter_grad_scratch(x_shape, w_shape, geometry, dtype)
        conv.conv2d_filter_grad(x, dy, dw, geometry, buffers(needs))
        return [out, dx, dw]

    def spoilt(shape: Any) -> tuple[Any, Any, Any]:
        """Numbers, the same with a few that are not finite, and where those are."""
        clean = rng.standard_normal(shape).astype(dtype)
        where = np.zeros(shape, bool)
        where.reshape(-1)[rng.integers(0, where.size, 3)] = True
        where[-1, 1, -1, -1] = True
        return np.where(where, dtype.type(0), clean), np.where(where, dtype.type(bad), clean), where.astype(dtype)

    shape = (x_shape[0], w_shape[0], *conv_plan(x_shape, w_shape, geometry).out)
    (x, bad_x, in_x), (dy, bad_dy, in_dy) = spoilt(x_shape), spoilt(shape)
    w, ones = rng.standard_normal(w_shape).astype(dtype), np.ones(w_shape, dtype)
    with np.errstate(invalid="ignore"):
        found = run(bad_x, w, dy)[0], run(x, w, bad_dy)[1], run(bad_x, w, dy)[2]
    wanted, touched = run(x, w, dy), (run(in_x, ones, dy)[0], run(x, ones, in_dy)[1], run(in_x, w, np.ones_like(dy))[2])
    for got, right, reached in zip(found, wanted, touched, strict=True):
        np.testing.assert_array_equal(np.isfinite(got), reached < 0.5)
        np.testing.assert_allclose(got[reached < 0.5], right[reached < 0.5], rtol=1e-4, atol=1e-5)


WIDE_FILTERS = {
    "text": ((4, 1, 20, 32), (6, 1, 3, 32), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "groups": ((3, 4, 9, 16), (6, 2, 2, 14), (2, 1), (1, 0, 0, 1), (1, 1), 2),
    "dilated": ((2, 3, 9, 21), (4, 3, 3, 8), (1, 2), (0, 1, 2, 0), (2, 2), 1),
}


@pytest.mark.parametrize("name", WIDE_FILTERS)
def test_input_gradient_of_filters_about_as_wide_as_the_image(name: str) -> None:
    """A correlation with mirrored filters would meet a border many times as large as the image."""
    case = WIDE_FILTERS[name]
    x_shape, w_shape, *rest = case
    assert conv_plan(x_shape, w_shape, Geometry(*rest), narrow=True, scatter=True).mode == "windows"
    out = conv_plan(x_shape, w_shape, Geometry(*rest)).out
    assert conv._mirrored(x_shape, w_shape, (x_shape[0], w_shape[0], *out), Geometry(*rest)) is None
    check_convolution(case, np.dtype(np.float32), 3, "plain")
    check_convolution(case, np.dtype(np.float64), 3, "fortran")


PHASES = {
    "four": (((3, 16, 12, 13), (32, 16, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1), 4),
    "places that no filter meets": (((2, 6, 9, 11), (6, 6, 1, 2), (2, 3), (0, 0, 0, 0), (1, 1), 1), 2),
    "dilated, not all different": (((3, 8, 15, 14), (12, 4, 3, 2), (2, 3), (2, 1, 0, 3), (2, 2), 2), 2),
    "padding beyond the reach": (((2, 9, 8, 7), (8, 9, 2, 2), (1, 2), (3, 4, 2, 5), (1, 1), 1), 2),
}


@pytest.mark.parametrize("name", PHASES)
def test_input_gradient_by_phases_of_the_strides(name: str) -> None:
    """Each phase is a correlation with some places of the filter; what the padding reads is cropped."""
    case, count = PHASES[name]
    x_shape, w_shape, *rest = case
    out = conv_plan(x_shape, w_shape, Geometry(*rest)).out
    found = conv._mirrored(x_shape, w_shape, (x_shape[0], w_shape[0], *out), Geometry(*rest))
    assert found is not None
    assert len(found) == count
    check_convolution(case, np.dtype(np.float32), 3, "plain")
    check_convolution(case, np.dtype(np.float64), 3, "fortran")


@pytest.mark.parametrize("case", [
    ((3, 2, 9, 12), (40, 2, 3, 5), (1, 1), (1, 1, 2, 2), (1, 1), 1),
    ((2, 6, 9, 8), (120, 2, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3),
])  # fmt: skip
def test_input_gradient_of_many_filters_on_few_channels(case: Conv) -> None:
    """A correlation with mirrored filters would copy a column for every filter, and multiply it by as few rows as channels."""
    x_shape, w_shape, *rest = case
    out = conv_plan(x_shape, w_shape, Geometry(*rest)).out
    found = conv._mirrored(x_shape, w_shape, (x_shape[0], w_shape[0], *out), Geometry(*rest))
    assert found is None
    check_convolution(case, np.dtype(np.float32), 3, "plain")


def test_filter_gradient_of_few_places_is_one_product_of_all_images() -> None:
    case = ((32, 1, 4, 70), (6, 1, 4, 70), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    plan = conv_plan(*case[:2], Geometry(*case[2:]), narrow=True, filter_grad=True)
    assert (plan.mode, plan.images) == ("pixels", 32)
    check_convolution(case, np.dtype(np.float32), 3, "plain")


def test_conv_with_channels_last() -> None:
    """Transposed views of images with channels last; columns without a border are the images themselves."""
    rng = np.random.default_rng(1)
    for kernel, pad in ((3, 1), (1, 0)):
        x = rng.standard_normal((3, 6, 7, 12)).astype(np.float32)
        w = rng.standard_normal((9, 12, kernel, kernel)).astype(np.float32)
        geometry = Geometry((1, 1), (pad,) * 4, (1, 1), 1)
        out = empty((3, 6, 7, 9), x.dtype)
        view = x.transpose(0, 3, 1, 2)
        needs = conv.conv2d_forward_scratch(view.shape, w.shape, geometry, x.dtype)
        conv.conv2d_forward(view, w, out.transpose(0, 3, 1, 2), geometry, buffers(needs))
        size = F.conv2d(wide(np.abs(view)), wide(np.abs(w)), padding=pad)
        check(out.transpose(0, 3, 1, 2), F.conv2d(wide(view), wide(w), padding=pad), size, 8)


def test_conv_of_nothing() -> None:
    geometry = Geometry((1, 1), (1, 1, 1, 1), (1, 1), 1)
    dtype = np.dtype(np.float32)
    for x_shape, w_shape in (((0, 2, 4, 4), (3, 2, 3, 3)), ((2, 2, 4, 4), (0, 2, 3, 3)), ((2, 0, 4, 4), (3, 0, 3, 3))):
        out = empty((x_shape[0], w_shape[0], 4, 4), dtype)
        x, w = np.ones(x_shape, dtype), np.ones(w_shape, dtype)
        conv.conv2d_forward(
            x, w, out, geometry, buffers(conv.conv2d_forward_scratch(x_shape, w_shape, geometry, dtype))
        )
        assert (out == 0).all()
        dx, dw = empty(x_shape, dtype), empty(w_shape, dtype)
        needs = conv.conv2d_input_grad_scratch(x_shape, w_shape, out.shape, geometry, dtype)
        conv.conv2d_input_grad(out, w, dx, geometry, buffers(needs))
        needs = conv.conv2d_filter_grad_scratch(x_shape, w_shape, geometry, dtype)
        conv.conv2d_filter_grad(x, out, dw, geometry, buffers(needs))
        assert (dx == 0).all()
        assert (dw == 0).all()


# -------------------------------------------------------------------------------------------------------------- pooling
@given(
    st.sampled_from([0, 1, 3, 40]),
    st.integers(1, 4),
    st.integers(4, 13),
    st.integers(4, 13),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["smooth", "ties", "nan", "infinite gradient"]),
    DTYPES,
    SEEDS,
    LAYOUTS,
)
def test_pool(
    n: int,
    c: int,
    h: int,
    w: int,
    k: int,
    s: int,
    pad: bool,
    ceil: bool,
    values: str,
    dtype: Any,
    seed: int,
    layout: str,
) -> None:
    rng = np.random.default_rng(seed)
    p = k // 2 if pad else 0
    x = rng.standard_normal((n, c, h, w)).astype(dtype)
    if values == "ties":
        x = np.round(x)
    if values == "nan":
        x[rng.random(x.shape) < 0.1] = np.nan
    tx = wide(x, True)
    ty = F.max_pool2d(tx, k, s, p, ceil_mode=ceil)
    dy = rng.standard_normal(tuple(ty.shape)).astype(dtype)
    if values == "infinite gradient" and dy.size:
        dy[..., 0, 0] = np.inf
    ty.backward(wide(dy))
    oh, ow = ty.shape[2:]
    axes = pool.pool_bounds(h, k, s, p, oh), pool.pool_bounds(w, k, s, p, ow)
    xs, dys = odd(x, layout), odd(dy, layout)
    out, dx = odd(empty(ty.shape, dtype), layout), empty(x.shape, dtype)
    pool.max_pool(xs, out, axes, buffers(pool.max_pool_scratch(x.shape, out.shape, dtype)))
    check(out, ty, 0, 0)
    needs = pool.max_pool_grad_scratch(x.shape, out.shape, dtype)
    pool.max_pool_grad(xs, out, dys, dx, axes, buffers(needs))
    check(dx, tx.grad, F.max_pool2d(wide(np.ones_like(x)), 1) * 16, 4)

    for exclusive in (True, False):
        tx = wide(x, True)
        ty = F.avg_pool2d(tx, k, s, p, ceil, not exclusive)
        ty.backward(wide(dy))
        extents = (
            None if exclusive else (pool.padded_extents(h, k, s, p, p, oh), pool.padded_extents(w, k, s, p, p, ow))
        )
        out, dx = empty(ty.shape, dtype), odd(empty(x.shape, dtype), layout)
        pool.avg_pool(xs, out, axes, extents)
        check(out, ty, F.avg_pool2d(wide(np.abs(x)), k, s, p, ceil, not exclusive), 8)
        needs = pool.avg_pool_grad_scratch(x.shape, out.shape, dtype)
        pool.avg_pool_grad(dys, dx, axes, buffers(needs), extents)
        check(dx, tx.grad, 16.0, 8)


@given(st.integers(1, 3), st.integers(1, 13), st.integers(1, 13), st.integers(1, 8), st.integers(1, 8), DTYPES, SEEDS)
def test_adaptive_pool(n: int, h: int, w: int, oh: int, ow: int, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3, h, w)).astype(dtype)
    dy = rng.standard_normal((n, 3, oh, ow)).astype(dtype)
    axes = pool.adaptive_bounds(h, oh), pool.adaptive_bounds(w, ow)
    out, dx = empty(dy.shape, dtype), empty(x.shape, dtype)
    tx = wide(x, True)
    ty = F.adaptive_avg_pool2d(tx, (oh, ow))
    ty.backward(wide(dy))
    pool.avg_pool(x, out, axes)
    check(out, ty, np.abs(x).max(), 8)
    pool.avg_pool_grad(dy, dx, axes, buffers(pool.avg_pool_grad_scratch(x.shape, dy.shape, dtype)))
    check(dx, tx.grad, 64 * np.abs(dy).max(), 8)
    tx = wide(x, True)
    ty = F.adaptive_max_pool2d(tx, (oh, ow))
    ty.backward(wide(dy))
    pool.max_pool(x, out, axes, buffers(pool.max_pool_scratch(x.shape, out.shape, dtype)))
    check(out, ty, 0, 0)
    needs = pool.max_pool_grad_scratch(x.shape, dy.shape, dtype)
    pool.max_pool_grad(x, out, dy, dx, axes, buffers(needs))
    check(dx, tx.grad, 64 * np.abs(dy).max(), 8)


def test_a_window_in_the_padding_is_empty() -> None:
    bounds = pool.pool_bounds(4, 2, 3, 1, 3)
    assert bounds == ((0, 1), (2, 4), (4, 4))
    assert output_size(4, 2, 3, 1, 1) == 2
    x, out = np.ones((1, 1, 4, 4), np.float32), empty((1, 1, 3, 3), np.dtype(np.float32))
    pool.avg_pool(x, out, (bounds, bounds))
    assert (out[0, 0] == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]).all()
    pool.max_pool(x, out, (bounds, bounds))
    assert (out[0, 0, 2] == -np.inf).all()


def test_the_maximum_of_integers_in_one_window() -> None:
    x, out = np.arange(-12, -4).reshape(1, 1, 2, 2, 2), np.empty((1, 1, 1, 1, 1), np.int64)
    pool.max_pool(x, out, (((0, 2),),) * 3)
    assert out.item() == -5


@given(
    st.integers(1, 3), st.tuples(*[st.integers(3, 7)] * 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), SEEDS
)
def test_pool_of_volumes(n: int, sizes: tuple[int, int, int], k: int, s: int, exclusive: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, dtype = k // 2, np.dtype(np.float32)
    x = np.round(rng.standard_normal((n, 2, *sizes)), 1).astype(dtype)
    tx = wide(x, True)
    ty, places = F.max_pool3d(tx, k, s, p, return_indices=True)
    dy = rng.standard_normal(tuple(ty.shape)).astype(dtype)
    ty.backward(wide(dy))
    axes = tuple(pool.pool_bounds(size, k, s, p, out) for size, out in zip(sizes, ty.shape[2:], strict=True))
    out, dx, mask = empty(ty.shape, dtype), empty(x.shape, dtype), np.empty(ty.shape, np.int32)
    pool.max_pool(x, out, axes)
    check(out, ty, 0, 0)
    pool.max_pool_index(x, out, mask, axes)
    assert (mask == places.numpy()).all()
    pool.max_pool_grad(x, out, dy, dx, axes, buffers(pool.max_pool_grad_scratch(x.shape, out.shape, dtype)))
    check(dx, tx.grad, 64.0, 8)
    tx = wide(x, True)
    ty = F.avg_pool3d(tx, k, s, p, False, not exclusive)
    ty.backward(wide(dy))
    extents = (
        None
        if exclusive
        else tuple(pool.padded_extents(size, k, s, p, p, out) for size, out in zip(sizes, ty.shape[2:], strict=True))
    )
    pool.avg_pool(x, out, axes, extents)
    check(out, ty, np.abs(x).max(), 8)
    pool.avg_pool_grad(dy, dx, axes, buffers(pool.avg_pool_grad_scratch(x.shape, out.shape, dtype)), extents)
    check(dx, tx.grad, 64.0, 8)


# ------------------------------------------------------------------------------------------------------ softmax, losses
MATRICES = st.tuples(st.sampled_from([0, 1, 7, 300]), st.sampled_from([1, 2, 10, 24, 25, 128, 700]))


def softmax_error(x: Array, y: Array) -> Array:
    """How far a row of logarithms may move: its distance from the maximum is rounded before ``exp``."""
    distance = x.astype(np.float64)
    distance = distance.max(-1, keepdims=True, initial=-np.inf) - distance
    return np.asarray(y) * (1 + distance)


@given(MATRICES, DTYPES, SEEDS, LAYOUTS, st.sampled_from([1.0, 30.0]))
def test_softmax(shape: tuple[int, int], dtype: Any, seed: int, layout: str, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x, dy = (rng.standard_normal(shape).astype(dtype) * dtype.type(s) for s in (scale, 1))
    xs, dys = odd(x, layout), odd(dy, layout)
    scratch = buffers(softmax.rows_scratch(*shape, dtype))
    total = np.abs(dy.astype(np.float64)).sum(1, keepdims=True)
    out, dx = odd(empty(shape, dtype), layout), odd(empty(shape, dtype), layout)

    tx = wide(x, True)
    ty = torch.softmax(tx, 1)
    softmax.softmax(xs, out, scratch)
    check(out, ty, softmax_error(x, ty.detach()), 16)
    tz = wide(out)
    softmax.softmax_grad(out, dys, dx, scratch)
    check(dx, tz * (wide(dy) - (wide(dy) * tz).sum(1, keepdim=True)), total * out, 16)
    inplace = odd(x.copy(), layout)
    softmax.softmax(inplace, inplace, scratch)
    assert (inplace == out).all()

    ty = torch.log_softmax(tx, 1)
    softmax.log_softmax(xs, out, scratch)
    check(out, ty, 1 + np.abs(x).max(initial=0), 16)
    softmax.log_softmax_grad(out, dys, dx, scratch)
    check(dx, wide(dy) - wide(out).exp() * wide(dy).sum(1, keepdim=True), (1 + np.abs(out)) * total, 16)


def test_softmax_of_infinities_and_nan() -> None:
    x = np.zeros((5, 30), np.float32)
    x[0], x[1, 3], x[2, 4], x[3, :] = -np.inf, np.nan, np.inf, 1e38
    x[4, :7] = -np.inf
    for row in (x, x[:, :9]):
        out = empty(row.shape, np.dtype(np.float32))
        softmax.softmax(row, out, buffers(softmax.rows_scratch(*row.shape, out.dtype)))
        check(out, torch.softmax(wide(row), 1), 1.0, 4)


@given(MATRICES, DTYPES, SEEDS, LAYOUTS, st.sampled_from(["int64", "int32"]))
def test_cross_entropy(shape: tuple[int, int], dtype: Any, seed: int, layout: str, index: str) -> None:
    rng = np.random.default_rng(seed)
    rows, length = shape
    x = 3 * rng.standard_normal(shape).astype(dtype)
    label = rng.integers(0, length, rows).astype(index)
    label[rng.random(rows) < 0.2] = -100
    dloss = rng.standard_normal(rows).astype(dtype)
    scratch = buffers(softmax.rows_scratch(*shape, dtype))
    out, loss, dx = empty(shape, dtype), empty((rows,), dtype), empty(shape, dtype)
    tx = wide(x, True)
    exact = F.cross_entropy(tx, torch.tensor(label.astype(np.int64)), reduction="none", ignore_index=-100)
    exact.backward(wide(dloss))
    size = 1 + np.abs(x).max(initial=0)
    softmax.cross_entropy(odd(x, layout), label, out, loss, -100, scratch)
    check(loss, exact, size, 16)
    check(out, torch.softmax(tx, 1), softmax_error(x, torch.softmax(tx, 1).detach()), 16)
    softmax.cross_entropy_grad(out, label, dloss, dx, -100, scratch)
    check(dx, tx.grad, size * np.abs(dloss)[:, None], 16)
    alone = empty((rows,), dtype)
    softmax.cross_entropy(x, label, None, alone, -100, scratch)
    assert (alone == loss).all()

    soft = rng.random(shape).astype(dtype)
    tx = wide(x, True)
    exact = F.cross_entropy(tx, wide(soft), reduction="none")
    exact.backward(wide(dloss))
    softmax.soft_cross_entropy(x, odd(soft, layout), out, loss, scratch)
    size = size * soft.astype(np.float64).sum(1)
    check(loss, exact, 4 * size, 16)
    softmax.soft_cross_entropy_grad(out, soft, dloss, dx, scratch)
    check(dx, tx.grad, (size * np.abs(dloss))[:, None], 16)
    softmax.soft_cross_entropy(x, odd(soft, layout), None, alone, scratch)
    assert (alone == loss).all()


def test_a_label_outside_the_classes_gives_nan_and_no_gradient_of_others() -> None:
    x, label = np.zeros((3, 4), np.float32), np.array([0, 4, -1])
    out, loss, dx = np.empty_like(x), np.empty(3, np.float32), np.empty_like(x)
    scratch = make(softmax.rows_scratch(3, 4, x.dtype))
    softmax.cross_entropy(x, label, out, loss, -100, scratch)
    assert list(np.isnan(loss)) == [False, True, True]
    softmax.cross_entropy_grad(out, label, np.ones(3, np.float32), dx, -100, scratch)
    assert (dx[0] == [-0.75, 0.25, 0.25, 0.25]).all()


# -------------------------------------------------------------------------------------------------------- normalisation
def normal_size(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """How much an error of one unit in ``x`` weighs after normalisation."""
    return (x.abs().amax(axes, keepdim=True) + 1) / (x.var(axes, unbiased=False, keepdim=True) + epsilon).sqrt()


@given(
    st.sampled_from([1, 3, 300]),
    st.sampled_from([3, 10, 128, 600]),
    st.booleans(),
    st.booleans(),
    DTYPES,
    SEEDS,
    LAYOUTS,
)
def test_layer_norm(rows: int, length: int, scaled: bool, biased: bool, dtype: Any, seed: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, length)).astype(dtype) + dtype.type(3)
    dy = rng.standard_normal(x.shape).astype(dtype)
    scale = rng.standard_normal(length).astype(dtype) if scaled else None
    bias = rng.standard_normal(length).astype(dtype) if biased else None
    tx = wide(x, True)
    ts, tb = (None if v is None else wide(v, True) for v in (scale, bias))
    ty = F.layer_norm(tx, (length,), ts, tb, 1e-3)
    ty.backward(wide(dy))
    size = normal_size(tx.detach(), (1,), 1e-3)
    largest = max(1.0, *(np.abs(v).max() for v in (scale, bias) if v is not None)) if scaled or biased else 1.0
    scratch = buffers(norm.layer_norm_scratch(rows, length, dtype))
    y, mean, variance = odd(empty(x.shape, dtype), layout), empty((rows,), dtype), empty((rows,), dtype)
    xs, dys = odd(x, layout), odd(dy, layout)
    norm.layer_norm(xs, scale, bias, y, mean, variance, 1e-3, scratch)
    check(y, ty, size * largest * (1 + ty.abs().max()), 16)
    check(mean, tx.mean(1), tx.abs().amax(1), 16)
    check(variance, tx.var(1, unbiased=False), tx.abs().amax(1) ** 2, 16)
    dx = odd(empty(x.shape, dtype), layout)
    dscale = empty((length,), dtype) if scaled else None
    dbias = empty((length,), dtype) if biased else None
    norm.layer_norm_grad(xs, scale, mean, variance, dys, dx, dscale, dbias, 1e-3, scratch)
    swing = float(size.max()) ** 2 * largest * np.abs(dy).max() * math.sqrt(length)
    check(dx, tx.grad, swing, 64)
    if dscale is not None:
        check(dscale, ts.grad, np.abs(dy).sum(0).max() * float(size.max()) * 4, 32)
    if dbias is not None:
        check(dbias, tb.grad, np.abs(dy).sum(0), 16)
    halves = [None if v is None else [np.empty_like(v) for _ in range(2)] for v in (dscale, dbias)]
    for half in range(2):
        part = slice(half * (rows // 2), rows // 2 if half == 0 else rows)
        sums = [None if h is None else h[half] for h in halves]
        norm.layer_norm_grad(x[part], scale, mean[part], variance[part], dy[part], None, *sums, 1e-3, scratch)
    for whole, pair in zip((dscale, dbias), halves, strict=True):
        if whole is not None and pair is not None:
            check(pair[0] + pair[1], whole.astype(np.float64), np.abs(dy).sum(0).max() * float(size.max()) * 4, 32)


@given(
    st.sampled_from([1, 2, 9]),
    st.sampled_from([1, 3, 40]),
    st.sampled_from([2, 16, 600]),
    st.booleans(),
    DTYPES,
    SEEDS,
    st.sampled_from(["plain", "channels last", "reversed"]),
)
def test_batch_norm(n: int, c: int, values: int, affine: bool, dtype: Any, seed: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, c, values)).astype(dtype) + dtype.type(2)
    dy = rng.standard_normal(x.shape).astype(dtype)
    scale, bias = (rng.standard_normal(c).astype(dtype) if affine else None for _ in range(2))
    tx = wide(x, True)
    ts, tb = (None if v is None else wide(v, True) for v in (scale, bias))
    ty = F.batch_norm(tx, None, None, ts, tb, True, 0.1, 1e-3)
    ty.backward(wide(dy))

    def lay(array: Array) -> Array:
        if layout == "channels last":
            return np.ascontiguousarray(array.transpose(0, 2, 1)).transpose(0, 2, 1)
        return odd(array, layout)

    size = float(normal_size(tx.detach(), (0, 2), 1e-3).max())
    largest = 1.0 if scale is None else max(1.0, np.abs(scale).max())
    scratch = buffers(norm.batch_norm_scratch(x.shape, dtype))
    y, dx = lay(empty(x.shape, dtype)), lay(empty(x.shape, dtype))
    mean, variance, inverse, dscale, dbias = (empty((c,), dtype) for _ in range(5))
    norm.batch_norm(lay(x), scale, bias, y, mean, variance, inverse, 1e-3, scratch)
    check(y, ty, size * largest * 8, 16)
    check(inverse, (tx.var((0, 2), unbiased=False) + 1e-3).rsqrt(), size**2, 16)
    norm.batch_norm_grad(lay(x), scale, mean, inverse, lay(dy), dx, dscale, dbias, scratch)
    total = np.abs(dy).sum((0, 2)).max()
    check(dx, tx.grad, size**2 * largest * np.abs(dy).max() * math.sqrt(n * values), 64)
    if affine:
        check(dscale, ts.grad, total * size * 4, 32)
        check(dbias, tb.grad, total, 16)

    tx = wide(x, True)
    ty = F.batch_norm(tx, wide(mean), wide(variance), ts, tb, False, 0.1, 1e-3)
    ty.backward(wide(dy))
    norm.batch_norm_inference(lay(x), scale, bias, mean, variance, y, 1e-3)
    check(y, ty, size * largest * 8, 16)
    norm.batch_norm_grad(lay(x), scale, mean, inverse, lay(dy), dx, dscale, dbias, scratch, global_statistics=True)
    check(dx, tx.grad, size * largest * np.abs(dy).max(), 16)


def test_batch_norm_of_a_large_mean_keeps_its_digits() -> None:
    x = (np.random.default_rng(0).standard_normal((8, 2, 500)) + 1000).astype(np.float32)
    y, scratch = np.empty_like(x), make(norm.batch_norm_scratch(x.shape, x.dtype))
    mean, variance, inverse = (np.empty(2, np.float32) for _ in range(3))
    norm.batch_norm(x, None, None, y, mean, variance, inverse, 1e-5, scratch)
    check(variance, wide(x).var((0, 2), unbiased=False), 1.0, 2000)


# ---------------------------------------------------------------------------------------------------- special functions
def ulps(actual: Array, exact: Array) -> Array:
    return np.abs(actual - exact) / np.spacing(
        np.maximum(np.abs(exact), np.finfo(actual.dtype).tiny).astype(actual.dtype)
    )


def test_erf_is_within_three_ulp() -> None:
    x = np.concatenate([np.linspace(-6, 6, 1_000_001), np.geomspace(1e-30, 1, 100_000)]).astype(np.float32)
    out = np.empty_like(x)
    special.erf(x, out, make(special.special_scratch(x.size, x.dtype)))
    error = ulps(out, torch.special.erf(wide(x)).numpy())
    assert error.max() < 3
    assert error.mean() < 0.4


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_keeps_its_digits(approximate: bool) -> None:
    x = np.linspace(-4, 6, 500_001).astype(np.float32)
    tx = wide(x, True)
    ty = F.gelu(tx, approximate="tanh") if approximate else tx * torch.special.ndtr(tx)
    dy = np.linspace(-1, 1, x.size).astype(np.float32)
    ty.backward(wide(dy))
    out, scratch = np.empty_like(x), make(special.special_scratch(x.size, x.dtype))
    special.gelu(x, out, approximate, scratch)
    assert ulps(out, ty.detach().numpy()).max() < 25
    special.gelu_grad(x, dy, out, approximate, scratch)
    check(out, tx.grad, np.abs(dy), 20)


@given(st.sampled_from([(), (0, 3), (7,), (3, 5), (2, BLOCK + 11)]), DTYPES, SEEDS, st.booleans(), st.booleans())
def test_special_shapes(shape: tuple[int, ...], dtype: Any, seed: int, approximate: bool, turned: bool) -> None:
    rng = np.random.default_rng(seed)
    x, dy = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    x, dy, out = (odd(a, "reversed") if turned and shape else a for a in (x, dy, empty(shape, dtype)))
    scratch = buffers(special.special_scratch(x.size, dtype))
    special.erf(x, out, scratch)
    check(out, torch.erf(wide(x)).reshape(shape), 0, 4)
    tx = wide(x, True)
    ty = F.gelu(tx, approximate="tanh" if approximate else "none")
    ty.backward(wide(dy).reshape(ty.shape))
    special.gelu(x, out, approximate, scratch)
    check(out, ty.reshape(shape), np.abs(x), 8)
    special.gelu_grad(x, dy, out, approximate, scratch)
    check(out, tx.grad.reshape(shape), 4 * np.abs(dy), 8)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_infinities_and_nan(approximate: bool) -> None:
    x = np.array([np.nan, np.inf, -0.0, 0.0, -50, 50, 1e30], np.float32)
    out = np.empty_like(x)
    special.gelu(x, out, approximate, make(special.special_scratch(x.size, x.dtype)))
    assert np.isnan(out[0])
    assert list(out[1:]) == [np.inf, 0, 0, 0, 50, np.float32(1e30)]
    special.gelu_grad(x, np.ones_like(x), out, approximate, make(special.special_scratch(x.size, x.dtype)))
    assert np.isnan(out[0])
    assert np.abs(out[2:] - [0.5, 0.5, 0, 1, 1]).max() < 1e-6
    special.erf(x, out, make(special.special_scratch(x.size, x.dtype)))
    assert np.isnan(out[0])
    assert list(out[1:]) == [1, 0, 0, -1, 1, 1]
    assert list(np.signbit(out[2:4])) == [True, False]


# -------------------------------------------------------------------------------------------------------------- updates
def run_updates(
    step: Callable[[Array, Array, int], None], optimizer: Any, tensor: Any, param: Array, seed: int, ulps: float
) -> None:
    rng = np.random.default_rng(seed)
    for t in range(1, 8):
        grad = rng.standard_normal(param.size).astype(param.dtype)
        tensor.grad = wide(grad)
        optimizer.step()
        step(param, grad, t)
    check(param, tensor, 1.0, ulps)


def update_in_place(type: str, attrs: dict[str, Any], **given: Array) -> None:
    """One step of an update op that overwrites what it is given; scratch holds NaN."""
    definition = op_def(type)
    ins = [given.get(s.name) for s in definition.inputs]
    outs = [given.get(s.name.removesuffix("Out")) for s in definition.outputs]
    done = definition.complete(attrs)
    metas = definition.ref.scratch(metas_of(ins), metas_of(outs), done)
    scratch = buffers([(m.shape, m.dtype.np) for m in metas])
    for function, args in definition.ref.bind_arrays(ins, outs, done, scratch, {}):
        function(*args)


COUNTS = st.sampled_from([0, 1, 1000, 3000, BLOCK + 5])


@given(COUNTS, DTYPES, SEEDS, st.sampled_from([0.0, 0.1]))
def test_adam(count: int, dtype: Any, seed: int, decay: float) -> None:
    param = np.random.default_rng(seed).standard_normal(count).astype(dtype)
    state = {"Moment1": np.zeros(count, dtype), "Moment2": np.zeros(count, dtype)}
    state |= {"Beta1Pow": np.full(1, 0.9), "Beta2Pow": np.full(1, 0.999), "LearningRate": np.full(1, 0.01)}
    tensor = wide(param, True)

    def step(p: Array, g: Array, t: int) -> None:
        update_in_place("adamw", {"coeff": decay}, Param=p, Grad=g, **state)

    run_updates(step, torch.optim.AdamW([tensor], lr=0.01, weight_decay=decay), tensor, param, seed, 32)


@given(COUNTS, DTYPES, SEEDS, st.booleans(), st.sampled_from([0.0, 0.1]), st.sampled_from([1.0, 0.5]))
def test_momentum(count: int, dtype: Any, seed: int, nesterov: bool, decay: float, rescale: float) -> None:
    param = np.random.default_rng(seed).standard_normal(count).astype(dtype)
    state = {"Velocity": np.zeros(count, dtype), "LearningRate": np.full(1, 0.1)}
    tensor = wide(param, True)
    optimizer = torch.optim.SGD([tensor], lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=decay)
    attrs = {"mu": 0.9, "use_nesterov": nesterov, "regularization_coeff": decay, "rescale_grad": rescale}

    def step(p: Array, g: Array, t: int) -> None:
        whole = (g / dtype.type(rescale)).astype(dtype)
        update_in_place("momentum", {**attrs, "regularization_method": "l2_decay"}, Param=p, Grad=whole, **state)

    run_updates(step, optimizer, tensor, param, seed, 64)


@given(COUNTS, DTYPES, SEEDS)
def test_sgd(count: int, dtype: Any, seed: int) -> None:
    param = np.random.default_rng(seed).standard_normal(count).astype(dtype)
    tensor = wide(param, True)

    def step(p: Array, g: Array, t: int) -> None:
        update_in_place("sgd", {}, Param=p, Grad=g, LearningRate=np.full(1, 0.1))

    run_updates(step, torch.optim.SGD([tensor], lr=0.1), tensor, param, seed, 16)


def test_updates_write_elsewhere_when_told_to() -> None:
    param, grad, one = np.ones(10, np.float32), np.full(10, 2, np.float32), np.full(1, 0.5, np.float32)
    (out, *_) = evaluate(op_def("sgd"), [param, one, grad, None, None, None], {})
    assert (param == 1).all()
    assert (out == 0).all()
    m, v, powers = np.zeros(10, np.float32), np.zeros(10, np.float32), [np.full(1, 0.5), np.full(1, 0.5)]
    _, m2, v2, *_ = evaluate(op_def("adam"), [param, grad, one, m, v, *powers, *[None] * 7], {})
    assert (param == 1).all()
    assert (m == 0).all()
    assert (v == 0).all()
    assert np.allclose(m2, 0.2)
    assert np.allclose(v2, 0.004)
