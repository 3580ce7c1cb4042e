"""Readers of Paddle 1.x that declare their variables."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tests.io.test_generator_loader import epoch, inputs
from tstatic import fluid, static
from tstatic.errors import ProgramTypeError
from tstatic.io.errors import DataError


def test_a_reader_declares_what_it_reads() -> None:
    reader = fluid.layers.py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], lod_levels=[0, 0])
    x, y = fluid.layers.read_file(fluid.layers.double_buffer(reader))
    assert [x.name, y.name] == ["read_file_0.tmp_0", "read_file_0.tmp_1"]
    assert [x.shape, y.shape, y.dtype.name, x.stop_gradient] == [(-1, 2), (-1, 1), "int64", True]
    reader.decorate_paddle_reader(paddle.batch(lambda: (([i, i], i) for i in range(3)), 2))
    exe = static.Executor()
    assert reader.queue.size() == 0
    assert [epoch(exe, reader, None, y) for _ in range(2)] == [[[0, 1], [2]]] * 2
    reader.decorate_tensor_provider(lambda: iter([(np.ones((1, 2), "float32"), np.full((1, 1), 7))]))
    assert epoch(exe, reader, None, y) == [[7]]
    single = fluid.layers.py_reader(4, [(-1, 2)], ["float32"])
    assert fluid.layers.read_file(single).name == "read_file_1.tmp_0"


def test_a_reader_fills_given_variables() -> None:
    x, y = inputs()
    reader = fluid.layers.create_py_reader_by_data(4, [x, y])
    assert [v.name for v in fluid.layers.read_file(reader)] == ["x", "y"]
    reader.decorate_sample_list_generator(paddle.batch(lambda: iter([([1, 2], 3)]), 1))
    assert epoch(static.Executor(), reader, None, x) == [[1, 2]]


def test_bad_arguments() -> None:
    with pytest.raises(DataError, match="1 shapes, 2 dtypes, 1 lod_levels"):
        fluid.layers.py_reader(4, [(-1, 2)], ["float32", "int64"])
    with pytest.raises(ProgramTypeError):
        fluid.layers.read_file("reader")  # type: ignore[arg-type]
