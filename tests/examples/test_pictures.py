"""The style that all pictures of the examples share can be read in grey."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path

import pytest


def lightness(color: str) -> float:
    """CIE L* of a colour ``#rrggbb``: 0 is black, 100 white."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    y = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_lines_differ_in_lightness_and_keep_clear_of_the_background() -> None:
    pytest.importorskip("tqdm")
    training = importlib.import_module("training")
    levels = [lightness(color) for color in training.COLORS[:4]]
    assert all(after - before > 10 for before, after in pairwise(levels)), levels
    assert lightness("#ffffff") - levels[-1] > 25


def test_a_picture_has_its_title_and_lines_of_different_styles(tmp_path: Path) -> None:
    for package in ("tqdm", "matplotlib"):
        pytest.importorskip(package)
    training = importlib.import_module("training")
    with training.picture(tmp_path / "a.png", "Loss") as axes:
        training.curves(axes, [1, 2], {name: [1.0, 2.0] for name in "abcd"}, "step", "nats")
        assert axes.figure.get_suptitle() == "Loss"
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "nats")
        assert len({line.get_linestyle() for line in axes.get_lines()}) == 4
    assert (tmp_path / "a.png").stat().st_size > 1000
