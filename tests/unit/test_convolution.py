"""How convolutions are cut: over the batch, over output channels, and filters by their first axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.sampler import Sample
from tests.ops.tiles import check_split, pieces_of
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, op_def
from tstatic.ir.split import tile_size
from tstatic.ops.conv import _convolution

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
