"""DataFeeder converts as Paddle 2.6.2 does, and what it makes can be run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic import base, fluid, static
from tstatic.errors import NotFoundError
from tstatic.io.errors import DataError, DataTypeError, DataUseError


def feeder(*specs: tuple[str, list[Any], str]) -> fluid.DataFeeder:
    return fluid.DataFeeder([static.data(*spec) for spec in specs], fluid.CPUPlace())


def test_values_take_dtype_and_shape_of_the_variables() -> None:
    made = feeder(("x", [None, 1, 2, 2], "float32"), ("label", [None, 1], "int64"))
    feed = made.feed([(np.arange(4.0), 1.7), ([4, 5, 6, 7], 0)])
    x, label = np.array(feed["x"]), np.array(feed["label"])
    assert (x.dtype, x.shape, x.sum()) == (np.float32, (2, 1, 2, 2), 28)
    assert (label.dtype, label.tolist()) == (np.int64, [[1], [0]])
    assert base.DataFeeder is fluid.data_feeder.DataFeeder is fluid.DataFeeder


def test_what_has_the_rank_or_two_unknown_sizes_is_not_reshaped() -> None:
    made = feeder(("x", [None, 3], "float32"), ("y", [None, None, 2], "float32"))
    feed = made.feed([([1, 2], [1, 2, 3, 4])])
    assert [feed["x"].shape(), feed["y"].shape()] == [[1, 2], [1, 4]]


def test_a_feed_can_be_run() -> None:
    made = feeder(("x", [None, 2], "float32"), ("label", [None, 1], "int64"))
    x, label = made.variables
    rows = [([1, 2], 0), ([3, 4], 1)]
    found = static.Executor().run(feed=made.feed(rows), fetch_list=[x * 2, label])
    assert [v.tolist() for v in found] == [[[2, 4], [6, 8]], [[0], [1]]]


def test_nested_lists_give_lengths() -> None:
    words = static.data("words", [None, 1], "int64", lod_level=1)
    feed = fluid.DataFeeder(["words"], fluid.CPUPlace()).feed([([1, 2, 3],), ([4],)])
    assert np.array(feed[words.name]).tolist() == [[1], [2], [3], [4]]
    assert feed["words"].recursive_sequence_lengths() == [[3, 1]]
    assert feed["words"].lod() == [[0, 3, 4]]
    static.data("pages", [None, 1], "int64", lod_level=2)
    feed = fluid.DataFeeder(["pages"], fluid.CPUPlace()).feed([([[1, 2], [3]],), ([[4]],)])
    assert feed["pages"].recursive_sequence_lengths() == [[2, 1], [2, 1, 1]]


def test_bad_samples_are_refused() -> None:
    made = feeder(("x", [None, 1, 2, 2], "float32"), ("y", [None], "int64"))
    text = r"^Reshape error. What is defined in data layer is \(-1, 1, 2, 2\), but receive \(1, 3\)"
    with pytest.raises(ValueError, match=text):
        made.feed([([1, 2, 3], 0)])
    text = r"^The number of fields in data \(1\) does not match len\(feed_list\) \(2\)"
    with pytest.raises(AssertionError, match=text):
        made.feed([([1, 2, 3, 4],)])
    with pytest.raises(DataError, match="the samples for 'x' do not make an array"):
        made.feed([([1, 2, 3, 4], 0), ([1], 0)])
    assert issubclass(DataUseError, AssertionError)


def test_bad_variables_are_refused() -> None:
    with pytest.raises(DataTypeError, match=r"^Feed list should contain a list of variable") as caught:
        fluid.DataFeeder([3], fluid.CPUPlace())  # type: ignore[list-item]
    assert isinstance(caught.value, TypeError)
    with pytest.raises(NotFoundError):
        fluid.DataFeeder(["nothing"], fluid.CPUPlace())


def test_places_share_batches() -> None:
    made = feeder(("x", [None, 1], "float32"))
    batches = [[(1,), (2,)], [(3,)], [(4,)]]
    assert [f["x"].shape() for f in made.feed_parallel(batches, 3)] == [[2, 1], [1, 1], [1, 1]]
    with pytest.raises(DataError, match="got 3 batches for 2 places"):
        made.feed_parallel(batches, 2)
    single = made.decorate_reader(lambda: iter(batches), multi_devices=False)
    assert [f["x"].shape() for f in single()] == [[2, 1], [1, 1], [1, 1]]
    several = made.decorate_reader(lambda: iter(batches), multi_devices=True, num_places=2)
    assert [[np.array(f["x"]).tolist() for f in group] for group in several()] == [[[[1], [2]], [[3]]]]
    kept = made.decorate_reader(lambda: iter(batches), multi_devices=True, num_places=2, drop_last=False)
    with pytest.raises(DataError, match="1 batches are left at the end, which 2 places cannot share"):
        list(kept())


def test_places_are_counted_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    made = feeder(("x", [None, 1], "float32"))
    assert len(list(made.feed_parallel([[(1,)], [(2,)]]))) == 2
