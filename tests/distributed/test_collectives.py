"""Collectives as ops of a program, on one process: identities, gradients, groups, and errors at the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import distributed, static
from tstatic.comm.rendezvous import launch
from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, UnsupportedError


def _run(fetches: Any, x: Any = (1.0, 2.0)) -> list[Any]:
    return static.Executor().run(feed={"x": np.float32(x)}, fetch_list=fetches)


def test_each_kind_of_reduction_is_an_identity() -> None:
    x = static.data("x", [2])
    found = []
    for op in (*range(5), "sum", "AVG"):
        y = x * 3.0
        distributed.all_reduce(y, op=op)
        found.append(y)
    for value in _run(found):
        assert value.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool", "bfloat16"])
def test_any_dtype_and_shape(dtype: str) -> None:
    x = paddle.cast(static.data("x", [None, 2]), dtype)
    distributed.all_reduce(x, op=distributed.ReduceOp.MAX)
    distributed.broadcast(x, src=0)
    parts: list[Any] = []
    distributed.all_gather(parts, x)
    (found,) = _run(parts, [[1, 0], [1, 1], [0, 1]])
    assert found.astype("float32").tolist() == [[1, 0], [1, 1], [0, 1]]


def test_sums_have_a_gradient_and_other_reductions_refuse_one() -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    y = x * x
    distributed.all_reduce(y)
    (dx,) = static.gradients(paddle.sum(y * 2.0), x)
    assert _run([dx])[0].tolist() == [4.0, 8.0]
    z = x * x
    distributed.all_reduce(z, op=distributed.ReduceOp.MAX)
    with pytest.raises(UnsupportedError, match="MAX, MIN or PROD has no gradient"):
        static.gradients(paddle.sum(z), x)


def test_given_lists_are_written_and_empty_ones_filled() -> None:
    x = static.data("x", [2])
    mine = paddle.zeros([2], "float32")
    parts = [mine]
    distributed.all_gather(parts, x)
    assert parts[0] is mine
    out: list[Any] = []
    distributed.alltoall([x + 1.0], out)
    flat = paddle.zeros([2], "float32")
    distributed.alltoall_single(x, flat)
    gathered: list[Any] = []
    distributed.gather(x, gathered, dst=0)
    assert [v.tolist() for v in _run([mine, out[0], flat, gathered[0]])] == [[1, 2], [2, 3], [1, 2], [1, 2]]
    distributed.wait(mine)


def test_groups() -> None:
    group = distributed.new_group([0])
    assert (group.nranks, group.rank, group.is_member(), group.get_group_rank(3)) == (1, 0, True, -1)
    assert distributed.get_group(group.id) is group
    assert distributed.get_group(0).ranks == (0,)
    assert (distributed.get_rank(group), distributed.get_world_size(group)) == (0, 1)
    x = static.data("x", [2])
    y = x * 2.0
    distributed.all_reduce(y, group=group)
    assert _run([y])[0].tolist() == [2.0, 4.0]
    with pytest.raises(ProgramError, match="each rank once"):
        distributed.new_group([0, 0])
    with pytest.raises(ProgramError, match="ranks"):
        distributed.new_group([1])
    with pytest.raises(ProgramTypeError, match="group"):
        distributed.all_reduce(x, group=[0])


def test_wrong_arguments_append_nothing() -> None:
    x = static.data("x", [2])
    block = static.default_main_program().global_block()
    before = len(block.ops)
    for call, error in (
        (lambda: distributed.all_reduce(3.0), ProgramTypeError), (lambda: distributed.all_reduce(x, op=7), ProgramError),
        (lambda: distributed.broadcast(x, src=1), ProgramError), (lambda: distributed.reduce(x, dst=-1), ProgramError),
        (lambda: distributed.all_gather((), x), ProgramTypeError), (lambda: distributed.all_gather([x, x], x), ShapeError),
        (lambda: distributed.reduce_scatter(x, [x, x]), ShapeError), (lambda: distributed.scatter(x), ProgramTypeError),
        (lambda: distributed.send(x, dst=1), ProgramError), (lambda: distributed.recv(x, src=0), ProgramError),
        (lambda: distributed.alltoall_single(x, x, [1, 2]), UnsupportedError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    assert len(block.ops) == before


def test_a_collective_inside_of_a_branch_is_refused() -> None:
    x = static.data("x", [1])

    def branch() -> Any:
        y = x * 2.0
        distributed.all_reduce(y)
        return y

    with pytest.raises(UnsupportedError, match="inside of control flow"):
        static.nn.cond(paddle.sum(x) > 0, branch, lambda: x)


def test_programs_with_collectives_are_cloned_saved_and_compiled() -> None:
    x = static.data("x", [2])
    y = x * 2.0
    distributed.all_reduce(y)
    main = static.default_main_program()
    feed = {"x": np.float32([1, 2])}
    other = static.Program.parse_from_string(main.desc.serialize_to_string())
    for program in (main, main.clone(), main.clone(for_test=True), other, static.CompiledProgram(main)):
        (found,) = static.Executor().run(program, feed=feed, fetch_list=[y.name])
        assert found.tolist() == [2.0, 4.0]
    compiled = static.CompiledProgram(main).with_data_parallel(places=[paddle.CPUPlace()] * 2)
    with pytest.raises(UnsupportedError, match="one place in each process"):
        static.Executor().run(compiled, feed=[feed, feed], fetch_list=[y.name])


def test_other_functions_of_one_process() -> None:
    assert distributed.is_available()
    assert not distributed.is_initialized()
    assert distributed.get_backend() == "GLOO"
    distributed.destroy_process_group()


def test_a_barrier_is_an_op_where_a_program_is_built() -> None:
    main = static.Program()
    with static.program_guard(main):
        y = static.data("x", [2]) * 2.0
        distributed.barrier()
    assert [op.type for op in main.global_block().ops][-2:] == ["fill_constant", "barrier"]
    assert static.Executor().run(main, feed={"x": np.float32([1, 2])}, fetch_list=[y])[0].tolist() == [2.0, 4.0]
    with pytest.raises(ProgramTypeError, match="group"):
        distributed.barrier([0])


def test_objects_of_one_process() -> None:
    found: list[Any] = []
    distributed.all_gather_object(found, {"a": 1})
    assert found == [{"a": 1}]
    listed = [1, "b"]
    distributed.broadcast_object_list(listed, src=0)
    assert listed == [1, "b"]
    distributed.scatter_object_list(found, [(1, 2)], src=0)
    assert found == [(1, 2)]
    with pytest.raises(ShapeError):
        distributed.scatter_object_list(found, [1, 2])
    with pytest.raises(ProgramError, match="src"):
        distributed.broadcast_object_list(listed, src=1)
    distributed.gloo_init_parallel_env(0, 1, "127.0.0.1:6170")
    distributed.gloo_barrier()
    distributed.gloo_release()


def test_a_sparse_embedding_is_a_table_on_one_process_and_refused_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = static.data("ids", [None, 1], "int64")
    rows = static.nn.sparse_embedding(ids, [10, 3], padding_idx=4, entry=None)
    assert rows.shape == (-1, 3)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    (found,) = exe.run(feed={"ids": np.array([[1], [4]])}, fetch_list=[rows])
    assert found.shape == (2, 3)
    assert not found[1].any()
    for name, value in {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2", "PADDLE_MASTER": "h:1"}.items():
        monkeypatch.setenv(name, value)
    launch._reset_for_tests()
    with pytest.raises(UnsupportedError, match="is_sparse=True"):
        static.nn.sparse_embedding(ids, [10, 3])
