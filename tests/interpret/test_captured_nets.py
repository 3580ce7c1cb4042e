from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from tests.helpers import graph_faults
from tests.helpers.captured_nets import NETS
from tests.helpers.captured_runs import differences, ran, standing_in
from tests.parallel.golden import strategy
from tstatic import static

pytestmark = pytest.mark.numpy_device("interprets kernels on the fake device", not_on=("torch",))

EVERYTHING = {"enable_auto_fusion": True, "fuse_all_optimizer_ops": True, "fuse_dot_product_attention": True}


def fused() -> static.BuildStrategy:
    return strategy(**EVERYTHING)


def by_default() -> None:
    """Each dropout is a kernel of its own."""


DRAWING = ("dropout", "three iterations a run", "bad positions with dropout", "attention", "values that are set")
FEW = [("dropout", by_default), ("bad positions with dropout", fused)]


@pytest.mark.parametrize(
    ("name", "build"),
    [*itertools.product(DRAWING, [by_default, fused])] if os.environ.get("TSTATIC_GRAPHS") == "all" else FEW,
)
def test_captured_kernels_leave_the_bits_of_uncaptured_ones(
    name: str, build: Callable[[], static.BuildStrategy | None]
) -> None:
    with standing_in("kernels") as device:
        plain = ran(NETS[name], "off", build())
        assert device.launches == 0
        captured = ran(NETS[name], "auto", build())
        assert device.launches >= 3
    assert differences(plain, captured) == []


def test_a_seed_in_the_graph_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read seed and number of the run from memory that each run writes, before it launches the graph."""
    with standing_in("kernels"):
        plain = ran(NETS["dropout"], "off")
        graph_faults.frozen_seed(monkeypatch)
        assert differences(plain, ran(NETS["dropout"], "auto"))
