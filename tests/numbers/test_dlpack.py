"""Tensors for other libraries and theirs as tensors: shared memory, copies of a scope's values, and what has no value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tstatic as paddle
from tstatic import errors, static

dlpack = paddle.utils.dlpack


def test_a_fetched_tensor_shares_its_memory_with_torch_and_back() -> None:
    x = static.data("x", [2, 2])
    exe, value = static.Executor(), np.float32([[1, 2], [3, 4]])
    (tensor,) = exe.run(feed={"x": value}, fetch_list=[x * 2.0], return_numpy=False)
    theirs = torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(tensor))
    theirs[0, 0] = 9.0
    assert np.array(tensor)[0, 0] == 9
    back = dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))
    assert np.array_equal(np.array(back), theirs.numpy())
    assert np.array_equal(exe.run(feed={"x": back}, fetch_list=[x])[0], theirs.numpy())
    assert np.array(dlpack.from_dlpack(theirs)).tolist() == theirs.tolist()


def test_a_tensor_of_a_scope_gives_a_copy() -> None:
    paddle.create_parameter([2], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(3.0))
    static.Executor().run(static.default_startup_program())
    tensor = static.global_scope().find_var("w").get_tensor()
    theirs = torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(tensor))
    theirs.zero_()
    assert np.array(tensor).tolist() == [3, 3]


def test_complex_values_pass() -> None:
    value = np.complex64([1 + 2j, 3])
    assert np.array(dlpack.from_dlpack(dlpack.to_dlpack(value))).tolist() == value.tolist()


def test_what_has_no_value_is_refused() -> None:
    for call in (
        lambda: dlpack.to_dlpack(static.data("x", [1])),
        lambda: dlpack.to_dlpack([1.0]),
        lambda: dlpack.from_dlpack(3),
    ):
        with pytest.raises(errors.ProgramTypeError):
            call()
