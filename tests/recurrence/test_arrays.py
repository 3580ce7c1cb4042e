"""Tensor arrays: in ``While``, as loop variables, in branches; joined; with gradients against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import IndexRangeError, ProgramTypeError

torch = pytest.importorskip("torch")
L = fluid.layers


def position(i: int) -> Any:
    return paddle.full([1], i, "int64")


def torch_recurrence(x: Any, w: Any, steps: int) -> tuple[Any, Any, Any]:
    weight, leaf = torch.tensor(np.array(w), requires_grad=True), torch.tensor(x, requires_grad=True)
    state, rows = torch.zeros(x.shape[1:]), []
    for t in range(steps):
        state = torch.tanh(state @ weight + leaf[t])
        rows.append(state)
    return torch.stack(rows), leaf, weight


def test_while_reads_and_writes_arrays_and_gradients_flow_through() -> None:
    """The shape of 1.x programs: counters are incremented between the accesses."""
    x = static.data("x", [3, 2, 4])
    x.stop_gradient = False
    source = L.create_array("float32")
    for t in range(3):
        L.array_write(x[t], position(t), source)
    i, n = paddle.zeros([1], "int64"), position(3)
    start = paddle.zeros([2, 4])
    start.stop_gradient = False
    w = paddle.create_parameter([4, 4], "float32")
    out, states = L.create_array("float32"), L.array_write(start, i)
    going = paddle.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        new = paddle.tanh(paddle.matmul(L.array_read(states, i), w) + L.array_read(source, i))
        L.array_write(new, i, out)
        L.increment(i, 1, in_place=True)
        L.array_write(new, i, states)
        L.less_than(i, n, cond=going)
    joined, sizes = L.tensor_array_to_tensor(out, axis=0, use_stack=True)
    last = L.array_read(states, n)
    loss = paddle.sum(joined * joined) + paddle.sum(last * last * last)
    gradients = static.gradients([loss], [x, w])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32")}
    found = exe.run(feed=feed, fetch_list=[joined, loss, *gradients, sizes, L.array_length(out)])
    rows, leaf, weight = torch_recurrence(feed["x"], w.get_value(), 3)
    total = (rows * rows).sum() + (rows[-1] ** 3).sum()
    total.backward()
    for mine, theirs in zip(found, [rows.detach(), total.detach(), leaf.grad, weight.grad], strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert found[4].tolist() == [1, 1, 1]
    assert found[4].dtype == np.int32
    assert found[5].tolist() == [3]
    fetched = exe.run(feed=feed, fetch_list=[out])[0]
    assert isinstance(fetched, list)
    np.testing.assert_array_equal(np.stack(fetched), found[0])


@pytest.mark.parametrize("steps", [1, 4])
def test_an_array_is_a_loop_variable(steps: int) -> None:
    """Of as many steps as the batch has; an array from outside is read in every step."""
    x = static.data("x", [None, 2, 4])
    x.stop_gradient = False
    w = paddle.create_parameter([4, 4], "float32")
    weights = paddle.tensor.create_array("float32", [paddle.zeros([4, 4]), w])
    count = paddle.cast(paddle.shape(x)[0:1], "int64")
    start = paddle.zeros([2, 4])
    start.stop_gradient = False

    def body(i: Any, h: Any, rows: Any) -> list[Any]:
        product = paddle.matmul(h, paddle.tensor.array_read(weights, position(1)))
        h = paddle.tanh(product + paddle.gather(x, i)[0])
        return [i + 1, h, paddle.tensor.array_write(h, i, rows)]

    empty = paddle.tensor.create_array("float32")
    _, last, rows = static.nn.while_loop(lambda i, h, rows: i < count, body, [paddle.zeros([1], "int64"), start, empty])
    stacked, joined = paddle.stack(rows), paddle.concat(rows, axis=0)
    loss = paddle.sum(stacked * stacked) + paddle.sum(joined**3) + paddle.sum(last)
    gradients = static.gradients([loss], [x, w])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(steps, 2, 4)).astype("float32")}
    found = exe.run(feed=feed, fetch_list=[stacked, loss, *gradients])
    expected, leaf, weight = torch_recurrence(feed["x"], w.get_value(), steps)
    total = (expected**2).sum() + (expected**3).sum() + expected[-1].sum()
    total.backward()
    for mine, theirs in zip(found, [expected.detach(), total.detach(), leaf.grad, weight.grad], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_elements_may_have_other_sizes_and_are_overwritten() -> None:
    """The gradient of what was overwritten is zero."""
    a, b, c = (paddle.full([n, 2], float(n)) for n in (1, 2, 3))
    for var in (a, b, c):
        var.stop_gradient = False
    array = L.array_write(a, position(0))
    L.array_write(b, position(1), array)
    L.array_write(c, position(0), array)
    joined, sizes = L.tensor_array_to_tensor(array, axis=0)
    gradients = static.gradients([(joined * joined).sum()], [a, b, c])
    out, size, *grads = static.Executor().run(fetch_list=[joined, sizes, *gradients])
    assert out[:, 0].tolist() == [3, 3, 3, 2, 2]
    assert size.tolist() == [3, 2]
    assert [g[0, 0] for g in grads] == [0, 4, 6]


def test_wrong_accesses_are_refused() -> None:
    x, array = paddle.ones([2]), L.create_array("float32")
    with pytest.raises(ProgramTypeError, match="not a tensor array"):
        L.array_read(x, position(0))
    with pytest.raises(TypeError, match="dtype"):
        L.array_write(paddle.ones([2], "int64"), position(0), array)
    with pytest.raises(TypeError, match="data type"):
        L.array_write(x, paddle.ones([1]), array)
    with pytest.raises(ProgramTypeError, match="initialized_list"):
        L.create_array("float32", 3)
    exe = static.Executor()
    read = L.array_read(array, position(0))
    with pytest.raises(IndexRangeError, match="does not have"):
        exe.run(fetch_list=[read])
    with static.program_guard(static.Program()):
        far = L.array_write(paddle.ones([2]), position(1))
        with pytest.raises(IndexRangeError, match="beyond the end"):
            exe.run(fetch_list=[L.array_length(far)])


def sliced_array() -> Any:
    x = static.data("x", [2])
    x.stop_gradient = False
    array = L.create_array("float32")
    for i in range(4):
        L.array_write(x * (i + 1), position(i), array)
    return array


# First element and length that Paddle 2.6.2 prints for each.
SLICES = {
    "run": (lambda a, v: paddle.slice(a, [0], [1], [3]), 2, 2),
    "counted from the end": (lambda a, v: paddle.slice(a, [0], [-3], [-1]), 2, 2),
    "beyond the end": (lambda a, v: paddle.slice(a, [0], [1], [99]), 2, 3),
    "before the start": (lambda a, v: L.slice(a, [0], [-99], [2]), 1, 2),
    "a Variable": (lambda a, v: paddle.slice(a, [0], v, [3]), 2, 2),
    "a Variable in a list": (lambda a, v: paddle.slice(a, [0], [v], [3]), 2, 2),
    "brackets": (lambda a, v: a[1:3], 2, 2),
    "open brackets": (lambda a, v: a[2:], 3, 2),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_of_an_array_is_an_array_and_gradients_flow_through(name: str) -> None:
    """Guards ``paddle.slice`` of a tensor array, which was refused, or failed in the run."""
    call, first, length = SLICES[name]
    part = call(sliced_array(), static.data("v", [1], "int32"))
    x = static.default_main_program().global_block().var("x")
    loss = paddle.sum(paddle.concat(part, 0))
    fetches = [L.array_read(part, position(0)), L.array_length(part), *static.gradients([loss], [x])]
    found = static.Executor().run(feed={"x": np.ones(2, "float32"), "v": np.array([1], "int32")}, fetch_list=fetches)
    assert found[0].tolist() == [first, first]
    assert found[1].tolist() == [length]
    assert found[2].tolist() == [sum(range(first, first + length))] * 2


def test_positions_in_brackets_read_elements_of_an_array() -> None:
    array = sliced_array()
    fetches = [array[0], array[2], array[-1], array[-2], array[static.data("v", [1], "int32")]]
    found = static.Executor().run(feed={"x": np.ones(2, "float32"), "v": np.array([1], "int32")}, fetch_list=fetches)
    assert [value[0] for value in found] == [1, 3, 4, 3, 2]


def test_slices_that_an_array_does_not_have_are_errors() -> None:
    array = sliced_array()
    for wrong in (lambda: paddle.slice(array, [1], [0], [1]), lambda: paddle.slice(array, [0], [0, 0], [1, 1])):
        with pytest.raises(ValueError, match=r"axes 1|only axis"):
            wrong()
    for item in ("a", None, (0, 1), slice(0, 4, 2)):
        with pytest.raises(IndexRangeError, match="tensor array"):
            array[item]
    empty = paddle.slice(array, [0], [3], [1])
    with pytest.raises(IndexRangeError, match="holds no element"):
        static.Executor().run(feed={"x": np.ones(2, "float32")}, fetch_list=[L.array_length(empty)])
