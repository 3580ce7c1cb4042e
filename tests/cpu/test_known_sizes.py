"""Sizes that depend on values which are known before a run: masks of given lengths, constants, shapes of what is fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, static
from tstatic.ir.opdef import OPS
from tstatic.plan.known_values import KnownValues

F = paddle.nn.functional


def x() -> static.Variable:
    return static.data("x", [-1, 4])


def lengths() -> static.Variable:
    return static.data("l", [-1], "int64")


def number(value: int, dtype: str = "int64") -> static.Variable:
    return paddle.full([1], value, dtype)


def of_x(make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: make(x())


MASK = np.array([[True, False, True, True]] * 3)
STATIC: dict[str, Callable[[], Any]] = {
    "sequence_mask of a length": lambda: F.sequence_mask(lengths(), 7),
}
"""Programs of which no step is dynamic."""
KNOWN: dict[str, Callable[[], Any]] = {
    "sequence_mask, constant length": lambda: F.sequence_mask(lengths(), number(7)),
    "sequence_mask, as long as x": lambda: F.sequence_mask(lengths(), paddle.shape(x())[1]),
    "sequence_mask, constant lengths": lambda: F.sequence_mask(paddle.to_tensor([1, 3, 2])),
    "nonzero of a constant": lambda: paddle.gather_nd(x(), paddle.nonzero(paddle.to_tensor(np.array([1, 0, 1])))),
    "masked_select, constant mask": lambda: paddle.masked_select(x(), paddle.to_tensor(MASK)),
    "x[constant mask]": lambda: x()[paddle.to_tensor(np.array([True, False, True]))],
    "reshape to a shape": of_x(lambda v: paddle.reshape(v, [paddle.shape(v)[0], 2, 2])),
    "reshape, constant": lambda: paddle.reshape(x(), paddle.to_tensor([-1, 2])),
    "arange up to a shape": of_x(lambda v: paddle.arange(0, paddle.shape(v)[0])),
    "zeros of a shape": of_x(lambda v: v + paddle.zeros([paddle.shape(v)[0], 4])),
    "tile, constant": lambda: paddle.tile(x(), paddle.to_tensor([2, 1])),
    "slice up to a shape": of_x(lambda v: v[: paddle.shape(v)[0] - 1]),
    "repeat, constant": lambda: paddle.repeat_interleave(x(), paddle.to_tensor([1, 2, 3]), 0),
    "unique of a constant": lambda: paddle.unique(paddle.to_tensor([1, 2, 2])),
    "bincount of a constant": lambda: paddle.bincount(paddle.to_tensor([1, 2, 2])),
    "one_hot, constant depth": lambda: F.one_hot(lengths(), number(7, "int32")),
    "topk, constant k": lambda: paddle.topk(x(), number(2, "int32"))[0],
    "segments, constant": lambda: paddle.incubate.segment_sum(x(), paddle.to_tensor([0, 0, 1])),
}
"""Programs in which only operators whose sizes values decide allocate; what reads their results is planned."""
FEED = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "l": np.array([1, 5, 3])}


def run(build: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """Returns the plan of a program, and what it computes: the value, and a sum and a gradient behind it."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        out = build()
        behind = paddle.sum(paddle.tanh(paddle.cast(out, "float32")))
        fetches = [out, behind]
        if "x" in main.global_block().vars:
            given = main.global_block().var("x")
            given.stop_gradient = False
            fetches += [g for g in static.gradients(behind, given) if g is not None]
    compiled = static.CompiledProgram(main)
    names = main.global_block().vars
    feed = {name: value for name, value in FEED.items() if name in names}
    found = static.Executor(paddle.CPUPlace()).run(compiled, feed=feed, fetch_list=fetches)
    return compiled.plan, found


@pytest.mark.numpy_device(
    "the bits of torch's sums and products depend on where arrays lie and on threads", not_on=("torch",)
)
@pytest.mark.parametrize("name", [*STATIC, *KNOWN])
def test_what_is_known_is_planned(name: str) -> None:
    """Every value has a place in the plan, and the bits are those of sizes that the run finds."""
    plan, found = run({**STATIC, **KNOWN}[name])
    dynamic = [step.op.type for step in plan.steps if step.how == "dynamic"]
    assert len(dynamic) <= (name in KNOWN)
    assert not [v for v, slot in plan.storage.items() if slot.kind == "dynamic"]
    with mock.patch.object(KnownValues, "_computed", return_value={}):
        slow, expected = run({**STATIC, **KNOWN}[name])
    assert bool(KNOWN.get(name)) == any(slot.kind == "dynamic" for slot in slow.storage.values())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def test_a_length_that_says_nothing_leaves_the_size_to_the_run() -> None:
    """A constant length of -1 means the greatest length, which the run finds."""
    plan, (mask, *_) = run(lambda: F.sequence_mask(lengths(), number(-1)))
    assert [step.how for step in plan.steps][-1] == "dynamic"
    assert mask.shape == (3, 5)


def test_what_a_constant_shape_refuses_is_refused_as_before() -> None:
    """The error has the operator and the user's line, although the size was tried before the run."""
    with pytest.raises(errors.TstaticError) as caught:
        run(lambda: paddle.reshape(x(), paddle.to_tensor([5, -1])))
    assert caught.value.op == "reshape2"
    assert caught.value.where is not None


DYNAMIC = {
    "arange": "the bounds and the step",
    "array_zeros_like": "what was written to the array",
    "assign_array": "what was written to the array",
    "beam_search": "the candidates that are kept",
    "beam_search_decode": "the sentences that the search found",
    "bincount": "the greatest value",
    "c_gather_rows": "the rows that all replicas look up",
    "class_center_sample": "the classes of the batch",
    "create_array": "what was written to the array",
    "ctc_align": "the tokens that are kept",
    "decode_jpeg": "the picture",
    "detection_map": "the matches that are found",
    "distribute_fpn_proposals": "the boxes of each level",
    "full_with_tensor": "the values of the shape",
    "generate_proposals_v2": "the boxes that are kept",
    "graph_reindex": "the different nodes",
    "graph_sample_neighbors": "the neighbours that are drawn",
    "lod_array_length": "what was written to the array",
    "masked_select": "the elements where the mask is true",
    "matrix_nms": "the boxes that are kept",
    "multiclass_nms": "the boxes that are kept",
    "nms": "the boxes that are kept",
    "py_func": "the user's function",
    "read_file": "the file",
    "read_from_array": "what was written to the array",
    "read_from_array_grad": "what was written to the array",
    "segment_pool": "the greatest number of a segment",
    "sequence_erase": "the tokens that are kept",
    "sequence_expand": "the numbers of repeats",
    "sequence_mask": "the greatest length, or a value, where no length is given",
    "sequence_pad": "the longest sequence, where no length is given",
    "sequence_slice": "the rows of the parts that are taken",
    "sequence_unpad": "the lengths",
    "slice_array": "what was written to the array",
    "slice_array_grad": "what was written to the array",
    "sum_arrays": "what was written to the array",
    "tensor_array_to_tensor": "what was written to the array",
    "tensor_array_to_tensor_grad": "what was written to the array",
    "unique": "the different elements",
    "unique_consecutive": "the runs of equal elements",
    "viterbi_decode": "the longest sequence",
    "where_index": "the elements that are not zero",
    "write_to_array": "what was written to the array",
    "write_to_array_grad": "what was written to the array",
}


def test_operators_with_sizes_that_depend_on_values_say_why() -> None:
    """The list of all of them. One that is new here makes what reads its results slower: could its size be stated?"""
    found = {type: OPS[type].dynamic for type in sorted(OPS) if OPS[type].dynamic is not None}
    assert {type: one.why for type, one in found.items() if one is not None} == DYNAMIC
