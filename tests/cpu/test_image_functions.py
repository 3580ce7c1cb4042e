"""Functions on images and sequences (convolution, pooling, normalisation, lookup, resizing), against torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import run_function, weights
from tests.ops.oracles import check_infer, check_lower
from tests.ops.sampler import samples
from tstatic import fluid, static
from tstatic.errors import (
    DTypeError,
    IndexRangeError,
    ProgramError,
    ProgramTypeError,
    ShapeError,
    TstaticError,
    UnsupportedError,
)
from tstatic.ir.opdef import Case, Domain, op_def, with_
from tstatic.nn import functional as F

torch = pytest.importorskip("torch")
T = torch.nn.functional
RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def agree(
    build: Callable[..., Any],
    reference: Callable[..., Any],
    feeds: Mapping[str, Array],
    unknown: bool = True,
) -> None:
    """Value and gradients by all float inputs equal torch's."""
    found = run_function(build, feeds, unknown=unknown, grads=True)
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in feeds.values()]
    expected = reference(*tensors)
    leaves = [t for t in tensors if t.requires_grad]
    grads = torch.autograd.grad(expected, leaves, torch.tensor(weights(tuple(expected.shape))))
    for mine, theirs in zip(found, (expected, *grads), strict=True):
        assert mine.shape == tuple(theirs.shape)
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-9, atol=1e-10)


IMAGES, FILTERS, BIAS = normal(2, 4, 7, 8), normal(6, 4, 3, 3), normal(6)


# ---------------------------------------------------------------------------------------------------------- convolution
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({}, {}),
        ({"padding": 1, "stride": 2}, {"padding": 1, "stride": 2}),
        ({"padding": [1, 2], "dilation": [2, 1]}, {"padding": (1, 2), "dilation": (2, 1)}),
        ({"padding": [[0, 0], [0, 0], [1, 1], [2, 2]]}, {"padding": (1, 2)}),
        ({"padding": "SAME"}, {"padding": "same"}),
        ({"padding": "valid"}, {"padding": 0}),
    ],
)
def test_conv2d(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    feeds = {"x": IMAGES, "w": FILTERS, "b": BIAS}
    agree(lambda x, w, b: F.conv2d(x, w, b, **mine), lambda x, w, b: T.conv2d(x, w, b, **theirs), feeds, unknown=False)


def test_conv2d_sides_that_differ() -> None:
    def padded(x: Any, w: Any) -> Any:
        return T.conv2d(T.pad(x, (2, 0, 0, 1)), w)

    feeds = {"x": IMAGES, "w": FILTERS}
    agree(lambda x, w: F.conv2d(x, w, padding=[0, 1, 2, 0]), padded, feeds, unknown=False)


def test_conv2d_channels_last_is_the_same_moved() -> None:
    feeds = {"x": np.moveaxis(IMAGES, 1, -1).copy(), "w": FILTERS, "b": BIAS}

    def moved(x: Any, w: Any, b: Any) -> Any:
        return T.conv2d(x.movedim(-1, 1), w, b, padding=1).movedim(1, -1)

    agree(lambda x, w, b: F.conv2d(x, w, b, padding=1, data_format="NHWC"), moved, feeds, unknown=False)


def types(build: Callable[[], Any]) -> list[str]:
    program = static.Program()
    with static.program_guard(program, static.Program()):
        build()
    return [op.type for op in program.global_block().ops]


def test_a_filter_per_channel_is_a_depthwise_convolution() -> None:
    def build(groups: int) -> Callable[[], Any]:
        def run() -> Any:
            x = static.data("x", [None, 4, 8, 8])
            w = static.data("w", [8, 4 // groups, 3, 3])
            return F.conv2d(x, w, groups=groups)

        return run

    assert types(build(4)) == ["depthwise_conv2d"]
    assert types(build(2)) == ["conv2d"]
    feeds = {"x": IMAGES, "w": normal(8, 1, 3, 3)}
    agree(lambda x, w: F.conv2d(x, w, groups=4), lambda x, w: T.conv2d(x, w, groups=4), feeds, unknown=False)


def test_conv1d() -> None:
    x, w, b = normal(2, 4, 9), normal(6, 2, 3), normal(6)
    feeds = {"x": x, "w": w, "b": b}
    agree(
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, groups=2),
        lambda x, w, b: T.conv1d(x, w, b, stride=2, padding=1, groups=2),
        feeds,
        unknown=False,
    )
    feeds["x"] = np.moveaxis(x, 1, -1).copy()
    agree(
        lambda x, w, b: F.conv1d(x, w, b, padding=[2, 1], groups=2, data_format="NLC"),
        lambda x, w, b: T.conv1d(T.pad(x.movedim(-1, 1), (2, 1)), w, b, groups=2).movedim(1, -1),
        feeds,
        unknown=False,
    )


def test_transposed_convolutions() -> None:
    x, w, b = normal(2, 4, 4, 5), normal(4, 3, 3, 3), normal(6)
    options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    feeds = {"x": x, "w": w, "b": b}
    agree(
        lambda x, w, b: F.conv2d_transpose(x, w, b, **options),
        lambda x, w, b: T.conv_transpose2d(x, w, b, **options),
        feeds,
        unknown=False,
    )
    agree(
        lambda x, w, b: F.conv2d_transpose(x, w, b, stride=2, padding=1, groups=2, output_size=[8, 9]),
        lambda x, w, b: T.conv_transpose2d(x, w, b, stride=2, padding=1, groups=2, output_padding=(1, 0)),
        feeds,
        unknown=False,
    )
    feeds = {"x": normal(2, 4, 5), "w": normal(4, 3, 3)}
    agree(
        lambda x, w: F.conv1d_transpose(x, w, stride=3, padding=1, output_padding=2),
        lambda x, w: T.conv_transpose1d(x, w, stride=3, padding=1, output_padding=2),
        feeds,
        unknown=False,
    )


def test_conv3d() -> None:
    feeds = {"x": normal(2, 4, 5, 4, 6), "w": normal(6, 2, 3, 2, 3), "b": normal(6)}
    agree(
        lambda x, w, b: F.conv3d(x, w, b, stride=[2, 1, 2], padding=1, groups=2),
        lambda x, w, b: T.conv3d(x, w, b, stride=(2, 1, 2), padding=1, groups=2),
        feeds,
        unknown=False,
    )


# -------------------------------------------------------------------------------------------------------------- pooling
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": [2, 3], "stride": [1, 2], "padding": [1, 0]},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    ],
)
def test_pooling(options: dict[str, Any]) -> None:
    feeds = {"x": IMAGES}
    agree(lambda x: F.max_pool2d(x, **options), lambda x: T.max_pool2d(x, **options), feeds)
    for exclusive in (True, False):
        agree(
            lambda x, e=exclusive: F.avg_pool2d(x, exclusive=e, **options),
            lambda x, e=exclusive: T.avg_pool2d(x, count_include_pad=not e, **options),
            feeds,
        )
    agree(
        lambda x: fluid.layers.pool2d(
            x, options["kernel_size"], "avg", options.get("stride", 2), options.get("padding", 0),
            ceil_mode=options.get("ceil_mode", False), exclusive=False,
        ),
        lambda x: T.avg_pool2d(x, **options),
        feeds,
    )  # fmt: skip


def test_an_average_of_integers_is_refused_when_the_program_is_built() -> None:
    image, line = static.data("i", [1, 1, 4, 4], "int64"), static.data("l", [1, 1, 4], "int64")
    for pool, x in (
        (F.avg_pool2d, image),
        (F.avg_pool1d, line),
        (F.adaptive_avg_pool2d, image),
        (F.adaptive_avg_pool1d, line),
    ):
        with pytest.raises(DTypeError, match="data type of 'X'"):
            pool(x, 2)
    assert F.max_pool2d(image, 2).shape == (1, 1, 2, 2)


def test_pooling_with_a_divisor_and_channels_last() -> None:
    agree(
        lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
        lambda x: T.avg_pool2d(x, 3, 2, 1, divisor_override=5),
        {"x": IMAGES},
    )
    last = {"x": np.moveaxis(IMAGES, 1, -1).copy()}
    agree(
        lambda x: F.max_pool2d(x, 2, data_format="NHWC"),
        lambda x: T.max_pool2d(x.movedim(-1, 1), 2).movedim(1, -1),
        last,
    )


def test_pooling_by_same_padding_and_to_one_place() -> None:
    agree(
        lambda x: F.avg_pool2d(x, 3, 2, "SAME"),
        lambda x: T.avg_pool2d(T.pad(x, (0, 1, 1, 1)), 3, 2) * 9 / T.avg_pool2d(T.pad(torch.ones_like(x), (0, 1, 1, 1)), 3, 2) / 9,
        {"x": IMAGES},
        unknown=False,
    )  # fmt: skip
    agree(
        lambda x: fluid.layers.pool2d(x, global_pooling=True, pool_type="avg"),
        lambda x: x.mean((2, 3), keepdim=True),
        {"x": IMAGES},
    )


def test_adaptive_pooling() -> None:
    feeds = {"x": IMAGES}
    for size in (3, [2, 5], [None, 2]):
        agree(lambda x, s=size: F.adaptive_avg_pool2d(x, s), lambda x, s=size: T.adaptive_avg_pool2d(x, s), feeds)
        agree(lambda x, s=size: F.adaptive_max_pool2d(x, s), lambda x, s=size: T.adaptive_max_pool2d(x, s), feeds)
    agree(lambda x: fluid.layers.adaptive_pool2d(x, 2, "avg"), lambda x: T.adaptive_avg_pool2d(x, 2), feeds)
    flat = {"x": normal(2, 3, 7)}
    agree(lambda x: F.adaptive_avg_pool1d(x, 3), lambda x: T.adaptive_avg_pool1d(x, 3), flat)
    agree(lambda x: F.adaptive_max_pool1d(x, 4), lambda x: T.adaptive_max_pool1d(x, 4), flat)


def test_pooling_of_sequences() -> None:
    flat = {"x": normal(2, 3, 9)}
    agree(lambda x: F.max_pool1d(x, 3, 2, 1), lambda x: T.max_pool1d(x, 3, 2, 1), flat)
    agree(lambda x: F.max_pool1d(x, 2, ceil_mode=True), lambda x: T.max_pool1d(x, 2, ceil_mode=True), flat)
    agree(lambda x: F.avg_pool1d(x, 3, 2, 1, exclusive=False), lambda x: T.avg_pool1d(x, 3, 2, 1), flat)


def test_places_of_maxima() -> None:
    for build, reference in (
        (lambda x: F.max_pool2d(x, 3, 2, 1, True), lambda x: T.max_pool2d(x, 3, 2, 1, return_indices=True)),
        (lambda x: F.adaptive_max_pool2d(x, [2, 3], True), lambda x: T.adaptive_max_pool2d(x, (2, 3), True)),
        (lambda x: fluid.layers.adaptive_pool2d(x, 3, require_index=True), lambda x: T.adaptive_max_pool2d(x, 3, True)),
    ):
        out, mask, dx = run_function(build, {"x": IMAGES}, grads=True)
        source = torch.tensor(IMAGES, requires_grad=True)
        expected, index = reference(source)
        assert np.array_equal(out, expected.detach().numpy())
        assert np.array_equal(mask, index.numpy())
        assert mask.dtype == np.int32
        (grad,) = torch.autograd.grad(expected, source, torch.tensor(weights(out.shape)))
        np.testing.assert_allclose(dx, grad.numpy())
    flat = normal(2, 3, 9)
    out, mask = run_function(lambda x: F.max_pool1d(x, 3, return_mask=True), {"x": flat})
    assert np.array_equal(np.take_along_axis(flat, mask.astype(int), 2), out)


def test_ties_and_nan_of_a_maximum() -> None:
    x = np.array([[1.0, 1.0, np.nan, 0.0], [1.0, 1.0, 2.0, np.nan]])[None, None]
    out, mask, dx = run_function(lambda x: F.max_pool2d(x, 2, return_mask=True), {"x": x}, grads=True)
    assert mask.ravel().tolist() == [0, 7]
    assert out[0, 0, 0, 0] == 1
    assert np.isnan(out[0, 0, 0, 1])
    assert np.flatnonzero(dx).tolist() == [0, 7]
    (out, dx) = run_function(lambda x: F.max_pool2d(x, 2), {"x": x}, grads=True)
    assert np.flatnonzero(dx).tolist() == [0, 7]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "windows"),
    [
        (7, 2, 2, 1, 5),
        (11, 3, 3, 1, 5),
        (4, 2, 3, 1, 3),
        (4, 3, 3, 2, 3),
        (6, 2, 3, 0, 3),
        (5, 1, 3, 0, 3),
        (6, 14, 7, 0, 1),
        (8, 2, 2, 0, 4),
    ],
)
def test_ceil_mode_keeps_a_window_that_begins_behind_the_input(
    size: int, kernel: int, stride: int, padding: int, windows: int
) -> None:
    """Counts are those of Paddle. Without values a maximum is minus infinity, its place -1, an average 0."""
    x, how = normal(2, 3, size), (kernel, stride, padding)
    begin = np.arange(windows) * stride - padding
    inside = [slice(max(b, 0), max(b + kernel, 0)) for b in begin]
    largest = np.stack([x[..., s].max(-1, initial=-np.inf) for s in inside], -1)
    out, place, dx = run_function(lambda x: F.max_pool1d(x, *how, True, ceil_mode=True), {"x": x}, grads=True)
    np.testing.assert_array_equal(out, largest)
    expected = [s.start + x[..., s].argmax(-1) if x[..., s].size else np.full((2, 3), -1) for s in inside]
    np.testing.assert_array_equal(place, np.stack(expected, -1))
    alone, same = run_function(lambda x: F.max_pool1d(x, *how, ceil_mode=True), {"x": x}, grads=True)
    np.testing.assert_array_equal(alone, largest)
    np.testing.assert_array_equal(dx, same)
    assert np.count_nonzero(dx) > 0
    given = weights(out.shape)
    np.testing.assert_allclose(dx.sum(), given[out > -np.inf].sum())
    for exclusive in (True, False):
        ends = [s.stop if exclusive else min(b + kernel, size + padding) for s, b in zip(inside, begin, strict=True)]
        counts = [
            max(min(e, size) - s.start if exclusive else e - b, 1) for s, b, e in zip(inside, begin, ends, strict=True)
        ]
        sums = np.stack([x[..., s].sum(-1) for s in inside], -1)
        mean, dx = run_function(lambda x, e=exclusive: F.avg_pool1d(x, *how, e, ceil_mode=True), {"x": x}, grads=True)
        np.testing.assert_allclose(mean, sums / counts, rtol=1e-12)
        share = given / counts
        wanted = np.stack(
            [
                sum(share[..., i] for i, s in enumerate(inside) if s.start <= j < s.stop) + np.zeros((2, 3))
                for j in range(size)
            ],
            -1,
        )
        np.testing.assert_allclose(dx, wanted, rtol=1e-12)


@pytest.mark.parametrize("type", ["pool2d", "max_pool2d_with_index"])
def test_windows_without_values_by_the_generic_oracles(type: str) -> None:
    """They are not in the operators' domains, where differences of infinite maxima would be NaN."""
    attrs = {"ksize": (2, 2), "strides": (2, 3), "paddings": (1, 0), "ceil_mode": True}
    definition = with_(op_def(type), domain=Domain(cases=(Case(((1, 2, 7, 6),), attrs), Case(((3, 1, 3, 3),), attrs))))
    for sample in samples(definition, 20):
        check_infer(definition, sample)
        check_lower(definition, sample)


@pytest.mark.parametrize("unknown", [True, False])
def test_a_window_larger_than_the_image_takes_what_is_there(unknown: bool) -> None:
    feeds = {"x": IMAGES}
    agree(lambda x: F.avg_pool2d(x, [8, 9], 8), lambda x: x.mean((2, 3), keepdim=True), feeds, unknown)
    agree(lambda x: F.avg_pool2d(x, 8, 8, exclusive=False), lambda x: x.mean((2, 3), keepdim=True), feeds, unknown)
    agree(lambda x: F.max_pool2d(x, [8, 3], [2, 3]), lambda x: T.max_pool2d(x, [7, 3], [2, 3]), feeds, unknown)
    _, place = run_function(lambda x: F.max_pool2d(x, 9, 9, return_mask=True), feeds, unknown)
    np.testing.assert_array_equal(place[..., 0, 0], IMAGES.reshape(2, 4, -1).argmax(-1))


# -------------------------------------------------------------------------------------------------------- normalisation
def test_layer_group_and_instance_norm() -> None:
    feeds = {"x": IMAGES, "w": normal(7, 8), "b": normal(7, 8)}
    agree(
        lambda x, w, b: F.layer_norm(x, [7, 8], w, b, 1e-3),
        lambda x, w, b: T.layer_norm(x, (7, 8), w, b, 1e-3),
        feeds,
        unknown=False,
    )
    feeds = {"x": IMAGES, "w": normal(4), "b": normal(4)}
    agree(
        lambda x, w, b: F.group_norm(x, 2, weight=w, bias=b),
        lambda x, w, b: T.group_norm(x, 2, w, b),
        feeds,
        unknown=False,
    )
    agree(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: T.instance_norm(x, weight=w, bias=b),
        feeds,
        unknown=False,
    )


def test_local_response_norm() -> None:
    for size in (3, 4, 5):
        agree(
            lambda x, n=size: F.local_response_norm(x, n, alpha=0.3, k=1.5),
            lambda x, n=size: T.local_response_norm(x, n, alpha=0.3, k=1.5),
            {"x": IMAGES},
        )
    agree(
        lambda x: fluid.layers.lrn(x, n=3, alpha=0.1),
        lambda x: T.local_response_norm(x, 3, alpha=0.3),
        {"x": IMAGES},
    )


def batch_norm_program(**options: Any) -> list[Array]:
    """Output, running mean and running variance after one run."""
    main, start = static.Program(), static.Program()
    with static.program_guard(main, start):
        x = static.data("x", [None, 4, 7, 8], "float64")
        mean, variance = (
            paddle.static.create_global_var([4], value, "float64", persistable=True, name=name)
            for name, value in (("mean", 0.5), ("variance", 2.0))
        )
        y = F.batch_norm(x, mean, variance, **options)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(start)
    results = exe.run(main, feed={"x": IMAGES}, fetch_list=[y])
    scope = static.global_scope()
    return [results[0], *(np.array(scope.find_var(n).get_tensor()) for n in ("mean", "variance"))]


def test_batch_norm_in_training_keeps_the_old_statistics_by_momentum() -> None:
    y, mean, variance = batch_norm_program(training=True, momentum=0.7)
    center, spread = IMAGES.mean((0, 2, 3)), IMAGES.var((0, 2, 3))
    wide = (slice(None), None, None)
    np.testing.assert_allclose(y, (IMAGES - center[wide]) / np.sqrt(spread[wide] + 1e-5))
    np.testing.assert_allclose(mean, 0.7 * 0.5 + 0.3 * center)
    np.testing.assert_allclose(variance, 0.7 * 2.0 + 0.3 * spread)


@pytest.mark.parametrize("options", [{}, {"training": True, "use_global_stats": True}])
def test_batch_norm_by_running_statistics(options: dict[str, Any]) -> None:
    y, mean, variance = batch_norm_program(**options)
    np.testing.assert_allclose(y, (IMAGES - 0.5) / np.sqrt(2.0 + 1e-5))
    assert mean.tolist() == [0.5] * 4
    assert variance.tolist() == [2.0] * 4


@pytest.mark.numpy_device
def test_one_value_per_channel_normalises_to_the_bias() -> None:
    main, start = static.Program(), static.Program()
    with static.program_guard(main, start):
        x, b = static.data("x", [1, 3], "float64"), static.data("b", [3], "float64")
        mean, variance = (static.create_global_var([3], 1.0, "float64", persistable=True) for _ in range(2))
        y = F.batch_norm(x, mean, variance, bias=b, training=True)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(start)
    (out,) = exe.run(main, feed={"x": normal(1, 3), "b": np.arange(3.0)}, fetch_list=[y])
    assert out.tolist() == [[0.0, 1.0, 2.0]]


# --------------------------------------------------------------------------------------------------------------- lookup
def test_embedding() -> None:
    ids, table = RNG.integers(0, 5, (3, 4)), normal(5, 6)
    agree(lambda i, w: F.embedding(i, w), lambda i, w: T.embedding(i, w), {"i": ids, "w": table}, unknown=False)
    agree(
        lambda i, w: F.embedding(i, w, padding_idx=-2, sparse=True),
        lambda i, w: T.embedding(i, w) * (i != 3)[..., None],
        {"i": ids, "w": table},
        unknown=False,
    )
    (out,) = run_function(lambda i, w: F.embedding(i, w), {"i": ids.astype(np.int32), "w": table}, unknown=False)
    assert np.array_equal(out, table[ids])


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_embedding_refuses_an_index_that_is_no_row(wrong: int) -> None:
    ids = np.array([[0, 1], [wrong, 4]])
    with pytest.raises(IndexRangeError, match="out of range") as caught:
        run_function(F.embedding, {"i": ids, "w": normal(5, 6)}, unknown=False)
    assert str(wrong) in str(caught.value)
    assert "[1, 0]" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- resizing
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [[9, 5], [3, 16]])
def test_interpolate_to_a_size(mode: str, size: list[int]) -> None:
    agree(
        lambda x: F.interpolate(x, size, mode=mode),
        lambda x: T.interpolate(x, size, mode=mode),
        {"x": IMAGES},
        unknown=False,
    )
    if mode in ("bilinear", "bicubic"):
        agree(
            lambda x: F.upsample(x, size, mode=mode, align_corners=True),
            lambda x: T.interpolate(x, size, mode=mode, align_corners=True),
            {"x": IMAGES},
            unknown=False,
        )


@pytest.mark.parametrize(("mode", "corners", "shape", "size"), [
    ("nearest", False, (1, 1, 3, 4), [5, 6]),
    *(
        (mode, corners, shape, size)
        for mode, shape, size in (
            ("bilinear", (1, 1, 3, 4), [5, 6]), ("bicubic", (1, 1, 3, 4), [5, 6]), ("linear", (1, 1, 4), [6]),
            ("trilinear", (1, 1, 2, 3, 4), [3, 2, 6]),
        )
        for corners in (False, True)
    ),
])  # fmt: skip
def test_align_mode_moves_the_places_of_linear_methods_without_corners_alone(
    mode: str, corners: bool, shape: tuple[int, ...], size: list[int]
) -> None:
    x = (np.arange(np.prod(shape)).reshape(shape) ** 1.5).astype("float32")
    layout = {3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(shape)]
    middles, edges = (
        run_function(lambda x, a=a: F.interpolate(x, size, None, mode, corners, a, layout), {"x": x}, unknown=False)[0][
            0
        ]
        for a in (0, 1)
    )
    assert np.allclose(middles, edges, 1e-5) == (corners or mode in ("nearest", "bicubic"))
    if mode == "linear":
        # What Paddle 2.6.2 gives.
        wanted = (
            [0, 0.6, 1.36569, 2.46274, 3.77552, 5.19615]
            if corners
            else [0, 0.666667, 1.60948, 2.82843, 4.40691, 5.19615]
        )
        np.testing.assert_allclose(edges.ravel(), wanted, rtol=1e-5)


def test_interpolate_by_a_scale_and_at_other_ranks() -> None:
    feeds = {"x": IMAGES}
    for mode in ("nearest", "bilinear"):
        agree(
            lambda x, m=mode: F.interpolate(x, scale_factor=[2, 1.5], mode=m),
            lambda x, m=mode: T.interpolate(x, scale_factor=(2, 1.5), mode=m),
            feeds,
        )
    flat, volume = {"x": normal(2, 3, 5)}, {"x": normal(1, 2, 3, 4, 2)}
    agree(lambda x: F.interpolate(x, [8], mode="linear"), lambda x: T.interpolate(x, 8, mode="linear"), flat)
    agree(
        lambda x: F.interpolate(x, [2, 5, 3], mode="trilinear", data_format="NCDHW"),
        lambda x: T.interpolate(x, (2, 5, 3), mode="trilinear"),
        volume,
    )


def test_integers_are_resized_to_the_nearest_alone() -> None:
    labels = np.array([[[[1, 2], [3, 9]]]])
    x = static.data("x", [-1, 1, 2, 2], "int64")
    (large,) = static.Executor().run(feed={"x": labels}, fetch_list=[F.interpolate(x, [4, 4])])
    assert large.dtype == np.int64
    assert (large == labels.repeat(2, 2).repeat(2, 3)).all()
    with pytest.raises(DTypeError, match="The data type of 'X' is not supported"):
        F.interpolate(x, [4, 4], mode="bilinear")


def test_resizing_of_1x_keeps_corners_by_default() -> None:
    feeds = {"x": IMAGES}
    agree(
        lambda x: fluid.layers.resize_bilinear(x, [5, 11]),
        lambda x: T.interpolate(x, (5, 11), mode="bilinear", align_corners=True),
        feeds,
    )
    agree(
        lambda x: fluid.layers.image_resize(x, scale=1.5, align_corners=False, align_mode=0),
        lambda x: T.interpolate(x, (10, 12), mode="bilinear"),
        feeds,
    )
    agree(
        lambda x: fluid.layers.resize_nearest(x, [14, 4], align_corners=False),
        lambda x: T.interpolate(x, (14, 4), mode="nearest"),
        feeds,
    )
    out = run_function(lambda x: fluid.layers.resize_nearest(x, [3, 3]), feeds)[0]
    assert np.array_equal(out, IMAGES[:, :, [0, 3, 6]][..., [0, 4, 7]])


def test_blocks_and_shuffles() -> None:
    feeds = {"x": IMAGES}
    agree(
        lambda x: F.unfold(x, [3, 2], 2, [1, 0], [1, 2]),
        lambda x: T.unfold(x, (3, 2), (1, 2), (1, 0), 2),
        feeds,
        unknown=False,
    )
    agree(lambda x: F.fold(x, [4, 5], 2), lambda x: T.fold(x, (4, 5), 2), {"x": normal(2, 8, 12)})
    agree(lambda x: F.pixel_shuffle(x, 2), lambda x: T.pixel_shuffle(x, 2), feeds)
    agree(lambda x: F.pixel_unshuffle(x, 4), lambda x: T.pixel_unshuffle(x, 4), {"x": normal(2, 3, 4, 8)})
    agree(lambda x: F.channel_shuffle(x, 2), lambda x: T.channel_shuffle(x, 2), feeds)
    agree(lambda x: fluid.layers.shuffle_channel(x, 2), lambda x: T.channel_shuffle(x, 2), feeds)
    agree(lambda x: F.maxout(x, 2), lambda x: x.unflatten(1, (2, 2)).amax(2), feeds)
    agree(lambda x: fluid.layers.maxout(x, 4, axis=3), lambda x: x.unflatten(3, (2, 4)).amax(4), feeds)


def test_space_to_depth_has_the_order_of_paddle() -> None:
    x = np.arange(16.0).reshape(1, 4, 2, 2)
    out, _ = run_function(lambda x: fluid.layers.space_to_depth(x, 2), {"x": x}, grads=True)
    assert out.shape == (1, 16, 1, 1)
    assert out.ravel().tolist() == [0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15]


# --------------------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("build", "kind", "says"),
    [
        (lambda x: F.conv2d(x, static.data("w", [2, 3, 3, 3], "float64")), ShapeError, "channels \\* groups"),
        (lambda x: F.conv2d(x, static.data("w", [3, 2, 3, 3], "float64"), groups=2), ShapeError, "divisible by groups"),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 9, 9], "float64")), ShapeError, "does not fit"),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float32")), DTypeError, "different dtypes"),
        (lambda x: F.conv2d(x, FILTERS), ProgramTypeError, "weight"),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), stride=0), ProgramError, "strides"),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), stride=[1, 2, 3]), ShapeError, "stride"),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), padding="FULL"), ShapeError, "SAME"),
        (
            lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), padding=-1),
            ShapeError,
            "larger than or equal",
        ),
        (
            lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), data_format="NCL"),
            ShapeError,
            "data_format",
        ),
        (lambda x: F.conv2d(x, static.data("w", [2, 4, 3, 3], "float64"), groups=0), ProgramError, "groups"),
        (
            lambda x: F.conv2d_transpose(
                x, static.data("w", [4, 2, 3, 3], "float64"), output_padding=1, output_size=[9, 10]
            ),
            ShapeError,
            "cannot both",
        ),
        (
            lambda x: F.conv2d_transpose(x, static.data("w", [4, 2, 3, 3], "float64"), output_padding=1),
            ShapeError,
            "out of range",
        ),
        (lambda x: F.max_pool2d(x, 0, 1), ShapeError, "'ksize' has a size of 0"),
        (lambda x: F.max_pool2d(x, 2, padding=2), ShapeError, "without values"),
        (lambda x: F.max_pool2d(x, 20, 10), ShapeError, "does not fit"),
        (lambda x: F.avg_pool2d(x, 8, 1), ShapeError, "does not fit"),
        (lambda x: F.max_pool2d(x, 2, ceil_mode=1), ProgramTypeError, "ceil_mode"),
        (lambda x: F.max_pool2d(x, "2"), ProgramTypeError, "kernel_size"),
        (lambda x: F.adaptive_avg_pool2d(x, 0), ShapeError, "at least 1"),
        (lambda x: fluid.layers.pool2d(x), ShapeError, "pool_size"),
        (lambda x: fluid.layers.pool2d(x, 2, "sum"), ShapeError, "pool_type"),
        (lambda x: F.max_pool2d(x, 2, 2, "SAME", True), UnsupportedError, "numbers"),
        (lambda x: F.layer_norm(x, [7, 9]), ShapeError, "normalized_shape"),
        (lambda x: F.layer_norm(x, [8], static.data("w", [7], "float64")), ShapeError, "one value"),
        (lambda x: F.group_norm(x, 3), ShapeError, "divisible by groups"),
        (lambda x: F.group_norm(x, 0), ProgramError, "groups"),
        (lambda x: F.instance_norm(x, use_input_stats=False), UnsupportedError, "statistics"),
        (lambda x: F.layer_norm(x, [8], epsilon=1.0), ProgramError, "epsilon"),
        (lambda x: F.local_response_norm(x, 0), ProgramError, "window"),
        (lambda x: fluid.layers.lrn(x, n=4), ShapeError, "odd"),
        (lambda x: F.embedding(x, static.data("w", [4, 2], "float64")), DTypeError, "integers"),
        (lambda x: F.interpolate(x), ShapeError, "size or a scale"),
        (lambda x: F.interpolate(x, [3]), ShapeError, "size"),
        (lambda x: F.interpolate(x, scale_factor=-1.0), ShapeError, "scale"),
        (lambda x: F.interpolate(x, [3, 3], mode="linear"), ShapeError, "rank"),
        (lambda x: F.interpolate(x, [3, 3], mode="cubic"), ShapeError, "mode"),
        (lambda x: F.interpolate(x, [3, 3], align_corners=True), ShapeError, "align_corners"),
        (lambda x: F.interpolate(x, paddle.shape(x)), ShapeError, "one per spatial axis"),
        (lambda x: F.pixel_shuffle(x, 3), ShapeError, "divisible by upscale_factor"),
        (lambda x: F.pixel_unshuffle(x, 3), ShapeError, "height of pixel_unshuffle must be divisible"),
        (lambda x: F.unfold(x, 20), ShapeError, "does not fit"),
        (lambda x: F.maxout(x, 3), ShapeError, "divisible by groups"),
    ],
)
def test_arguments_that_do_not_fit(build: Callable[[Any], Any], kind: type[TstaticError], says: str) -> None:
    with static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [None, 4, 7, 8], "float64")
        with pytest.raises(kind, match=says) as caught:
            build(x)
    text = str(caught.value)
    assert "fix:" in text
    assert "test_image_functions.py" in text
