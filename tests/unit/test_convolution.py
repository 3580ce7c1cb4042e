"""How convolutions are cut: over the batch, over output channels, and filters by their first axis."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.sampler import Sample
from tests.ops.tiles import check_split, pieces_of
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, op_def
from tstatic.ir.split import tile_size
from tstatic.ops.conv import _convolution
from tstatic.tuned import conv
from tstatic.tuned._windows import Geometry, output_size

RNG = np.random.default_rng(8)


def sample(type: str, x: tuple[int, ...], w: tuple[int, ...], out: tuple[int, ...] | None, **attrs: Any) -> Sample:
    shapes = (x, w) if out is None else (x, w, out)
    return Sample(tuple(RNG.normal(size=s) for s in shapes), attrs, "float64")


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with tile_size(1e4):
        yield


NHWC = {"data_format": "NHWC"}
CASES = [
    ("conv2d", (8, 3, 6, 6), (4, 3, 3, 3), (8, 4, 4, 4), {}),
    ("conv2d", (1, 3, 6, 6), (256, 3, 3, 3), (1, 256, 4, 4), {}),
    ("conv2d", (1, 6, 6, 3), (256, 3, 3, 3), (1, 4, 4, 256), NHWC),
    ("conv2d", (4, 6, 6, 3), (4, 3, 3, 3), (4, 4, 4, 4), NHWC),
    ("conv2d", (6, 4, 6, 6), (4, 2, 3, 3), (6, 4, 4, 4), {"groups": 2}),
    ("depthwise_conv2d", (4, 4, 6, 6), (4, 1, 3, 3), (4, 4, 4, 4), {"groups": 4}),
    ("conv2d_transpose", (6, 3, 5, 5), (3, 4, 3, 3), (6, 4, 7, 7), {}),
    ("conv2d_transpose", (1, 3, 5, 5), (3, 256, 3, 3), (1, 256, 7, 7), {}),
    ("conv3d", (5, 2, 4, 4, 4), (3, 2, 2, 2, 2), (5, 3, 3, 3, 3), {}),
]


@pytest.mark.parametrize(("type", "x", "w", "out", "attrs"), CASES)
@pytest.mark.parametrize("large", [False, True])
def test_cut(
    type: str, x: Any, w: Any, out: Any, attrs: dict[str, Any], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(_convolution, "_LARGE_FILTER", 16)
        monkeypatch.setattr(_convolution, "_COLUMNS", 10**6)
    with tile_size(1e3):
        assert check_split(op_def(type), sample(type, x, w, None, **attrs)) == 1 or large
        assert check_split(op_def(f"{type}_grad"), sample(type, x, w, out, **attrs)) >= 1


def test_a_batch_gives_pieces_of_images() -> None:
    tiles, _ = pieces_of(op_def("conv2d"), sample("conv2d", (8, 3, 6, 6), (4, 3, 3, 3), None))
    assert tiles == [((slice(i, i + 4),), WHOLE, (slice(i, i + 4),)) for i in (0, 4)]


def test_one_image_is_cut_by_its_output_channels() -> None:
    tiles, _ = pieces_of(op_def("conv2d"), sample("conv2d", (1, 3, 6, 6), (256, 3, 3, 3), None))
    every = slice(None)
    assert tiles == [(WHOLE, (slice(i, i + 128),), (every, slice(i, i + 128))) for i in (0, 128)]


def test_small_filters_are_summed_and_large_ones_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sample("conv2d", (8, 3, 6, 6), (256, 3, 3, 3), (8, 256, 4, 4))
    tiles, _ = pieces_of(op_def("conv2d_grad"), given, [False, True])
    assert {p[-1] for p in tiles} == {PARTIAL_SUM}
    monkeypatch.setattr(_convolution, "_LARGE_FILTER", 100)
    tiles, _ = pieces_of(op_def("conv2d_grad"), given, [False, True])
    assert [p[-1] for p in tiles] == [(slice(0, 128),), (slice(128, 256),)]


def test_pieces_do_not_depend_on_anything_but_shapes() -> None:
    definition, given = op_def("conv2d"), sample("conv2d", (16, 3, 6, 6), (4, 3, 3, 3), None)
    assert pieces_of(definition, given)[0] == pieces_of(definition, given)[0]


def _drawn(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], Geometry]:
    """Shapes of input and filters, with every proportion that some block or order of the channels is chosen by."""
    draw = random.Random(seed)
    kernel = draw.choice([(1, 1), (1, 1), (3, 3), (1, draw.randint(2, 9)), (draw.randint(1, 5), draw.randint(1, 5))])
    groups = draw.choice((1, 1, 2, 6))
    channels, filters = groups * draw.choice((1, 2, 3, 8, 24)), groups * draw.choice((1, 2, 5, 20, 64))
    size = (draw.randint(5, 24), draw.choice((5, 9, 16, 33)))
    strides, dilations, pads = (1, 1), (1, 1), (0, 0, 0, 0)
    # Half of them plain: what is rare in each of eight numbers is never drawn in all.
    if draw.random() < 0.5:
        strides = (draw.choice((1, 2, 3)), draw.choice((1, 2, 3)))
        dilations = (draw.choice((1, 2)), draw.choice((1, 2)))
        pads = (draw.randint(0, 3), draw.randint(0, 3), draw.randint(0, 3), draw.randint(0, 3))
    geometry = Geometry(strides, pads, dilations, groups)
    return (draw.choice((1, 2, 5)), channels, *size), (filters, channels // groups, *kernel), geometry


@pytest.mark.parametrize("seed", range(0, 400, 50))
def test_the_three_passes_are_adjoint_for_any_shape(seed: int) -> None:
    """``<conv(x, w), g> = <x, dx> = <w, dw>``, with the buffers that each pass asks for."""
    rng = np.random.default_rng(seed)
    double = np.dtype(np.float64)
    for number in range(seed, seed + 50):
        xs, ws, geometry = _drawn(number)
        (top, bottom, left, right), strides, dilations = geometry.pads, geometry.strides, geometry.dilations
        sizes = [
            output_size(size, k, s, low, high, d)
            for size, k, s, low, high, d in zip(
                xs[2:], ws[2:], strides, (top, left), (bottom, right), dilations, strict=True
            )
        ]
        if min(sizes) < 1:
            continue
        os = (xs[0], ws[0], *sizes)
        x, w, g = (rng.normal(size=s) for s in (xs, ws, os))
        out, dx, dw = np.full(os, np.nan), np.full(xs, np.nan), np.full(ws, np.nan)
        conv.conv2d_forward(x, w, out, geometry, _made(conv.conv2d_forward_scratch(xs, ws, geometry, double)))
        conv.conv2d_input_grad(g, w, dx, geometry, _made(conv.conv2d_input_grad_scratch(xs, ws, os, geometry, double)))
        conv.conv2d_filter_grad(x, g, dw, geometry, _made(conv.conv2d_filter_grad_scratch(xs, ws, geometry, double)))
        wanted = np.vdot(out, g)
        bound = 1e-10 * np.linalg.norm(out) * np.linalg.norm(g)
        assert abs(np.vdot(x, dx) - wanted) <= bound, (xs, ws, geometry)
        assert abs(np.vdot(w, dw) - wanted) <= bound, (xs, ws, geometry)


def _made(buffers: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.full(shape, np.nan, dtype) for shape, dtype in buffers]
