"""Segments and messages along edges: Paddle's examples, ties, empty places, what is refused; neighbours and new numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.numbers.test_complex import run
from tstatic import errors, static

geometric = paddle.geometric


def test_segments_are_pooled_as_in_paddles_example() -> None:
    x, ids = static.data("x", [None, 3]), static.data("ids", [None], "int32")
    value = np.float32([[1, 2, 3], [3, 2, 1], [4, 5, 6], [7, 8, 9]])
    names = ("sum", "mean", "max", "min")
    found = run([getattr(geometric, f"segment_{n}")(x, ids) for n in names], x=value, ids=np.int32([0, 0, 2, 2]))
    wanted = [value[:2].sum(0), value[:2].mean(0), value[:2].max(0), value[:2].min(0)]
    last = [value[2:].sum(0), value[2:].mean(0), value[2:].max(0), value[2:].min(0)]
    for got, first, third in zip(found, wanted, last, strict=True):
        np.testing.assert_array_equal(got, [first, [0, 0, 0], third])
    assert paddle.incubate.segment_sum is geometric.segment_sum


def test_rows_that_are_the_maximum_share_the_gradient() -> None:
    x = static.data("x", [3], "float64")
    x.stop_gradient = False
    y = geometric.segment_max(x, paddle.to_tensor([0, 0, 1]))
    (dx,) = paddle.grad(y, x)
    assert run([dx], x=np.array([2.0, 2.0, 5.0]))[0].tolist() == [0.5, 0.5, 1.0]


def test_numbers_of_segments_that_fall_are_refused_when_the_program_runs() -> None:
    x, ids = static.data("x", [2, 1]), static.data("ids", [2], "int64")
    y = geometric.segment_sum(x, ids)
    for wrong in ([1, 0], [-1, 0]):
        with pytest.raises(errors.IndexRangeError, match="must rise"):
            run([y], x=np.ones((2, 1), np.float32), ids=np.array(wrong))
    with pytest.raises(errors.ShapeError, match="number of its segment"):
        geometric.segment_sum(x, static.data("other", [3], "int64"))


EDGES = np.array([0, 1, 2, 0]), np.array([1, 2, 1, 0])
NODES = np.float32([[0, 2, 3], [1, 4, 5], [2, 6, 7]])


@pytest.mark.parametrize(
    ("reduce_op", "wanted"),
    [
        ("sum", [[0, 2, 3], [2, 8, 10], [1, 4, 5]]), ("mean", [[0, 2, 3], [1, 4, 5], [1, 4, 5]]),
        ("max", [[0, 2, 3], [2, 6, 7], [1, 4, 5]]), ("min", [[0, 2, 3], [0, 2, 3], [1, 4, 5]]),
    ],
)  # fmt: skip
def test_nodes_send_their_rows_as_in_paddles_example(reduce_op: str, wanted: Any) -> None:
    x, source, target = (
        static.data("x", [3, 3]), static.data("source", [4], "int64"), static.data("target", [4], "int64"),
    )  # fmt: skip
    y = geometric.send_u_recv(x, source, target, reduce_op)
    wide = paddle.incubate.graph_send_recv(x, source, target, reduce_op, out_size=4)
    found = run([y, wide], x=NODES, source=EDGES[0], target=EDGES[1])
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], [*wanted, [0, 0, 0]])


@pytest.mark.parametrize(
    ("message_op", "function"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)]
)
def test_edges_carry_rows_of_their_own_and_of_both_ends(message_op: str, function: Any) -> None:
    x, e = static.data("x", [3, 3]), static.data("e", [4, 1])
    for v in (x, e):
        v.stop_gradient = False
    source, target = paddle.to_tensor(EDGES[0]), paddle.to_tensor(EDGES[1])
    received = geometric.send_ue_recv(x, e, source, target, message_op, "sum")
    per_edge = geometric.send_uv(x, x + 1.0, source, target, message_op)
    grads = paddle.grad(paddle.sum(received), [x, e])
    own = np.float32([[1], [2], [3], [4]])
    found = run([received, per_edge, *grads], x=NODES, e=own)
    messages, wanted = function(NODES[EDGES[0]], own), np.zeros((3, 3), np.float32)
    np.add.at(wanted, EDGES[1], messages)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(found[1], function(NODES[EDGES[0]], NODES[EDGES[1]] + 1), rtol=1e-6)
    for got, like in zip(found[2:], (NODES, own), strict=True):
        step = 1e-2
        for at in np.ndindex(like.shape):
            moved = [np.float64(NODES), np.float64(own)]
            which = 0 if like is NODES else 1
            totals = []
            for sign in (1, -1):
                moved[which] = np.float64(like).copy()
                moved[which][at] += sign * step
                totals.append(function(moved[0][EDGES[0]], moved[1]).sum())
            assert got[at] == pytest.approx((totals[0] - totals[1]) / (2 * step), rel=1e-3, abs=1e-3)


def test_a_node_that_does_not_exist_is_refused() -> None:
    x, source = static.data("x", [3, 1]), static.data("source", [2], "int64")
    y = geometric.send_u_recv(x, source, source)
    with pytest.raises(errors.IndexRangeError):
        run([y], x=np.ones((3, 1), np.float32), source=np.array([0, 3]))
    with pytest.raises(errors.ProgramError, match="reduce_op"):
        geometric.send_u_recv(x, source, source, "prod")
    with pytest.raises(errors.ProgramError, match="message_op"):
        geometric.send_uv(x, x, source, source, "pow")


def test_nodes_of_a_part_get_the_numbers_of_paddles_example() -> None:
    x, neighbors = paddle.to_tensor([0, 1, 2]), paddle.to_tensor([8, 9, 0, 4, 7, 6, 7])
    count = paddle.to_tensor([2, 3, 2], dtype="int32")
    found = run(list(geometric.reindex_graph(x, neighbors, count)))
    assert [f.tolist() for f in found] == [[3, 4, 0, 5, 6, 7, 6], [0, 0, 1, 1, 1, 2, 2], [0, 1, 2, 8, 9, 4, 7, 6]]
    more, counts = paddle.to_tensor([0, 2, 3, 5, 1]), paddle.to_tensor([1, 3, 1], dtype="int32")
    both = run(list(geometric.reindex_heter_graph(x, [neighbors, more], [count, counts])))
    assert [f.tolist() for f in both] == [
        [3, 4, 0, 5, 6, 7, 6, 0, 2, 8, 9, 1], [0, 0, 1, 1, 1, 2, 2, 0, 1, 1, 1, 2], [0, 1, 2, 8, 9, 4, 7, 6, 3, 5],
    ]  # fmt: skip


def test_neighbours_are_drawn_without_putting_back_and_by_weight() -> None:
    row, colptr = paddle.to_tensor(np.arange(40)), paddle.to_tensor([0, 10, 12, 40])
    weight = paddle.to_tensor(np.float32([1000.0] * 3 + [1e-3] * 7 + [1.0] * 30))
    nodes = paddle.to_tensor([0, 1, 2, 0])
    drawn = geometric.sample_neighbors(row, colptr, nodes, 4, paddle.to_tensor(np.arange(100, 140)), True)
    heavy = geometric.weighted_sample_neighbors(row, colptr, weight, nodes, 3)
    found, counts, edges, chosen, _ = run([*drawn, *heavy])
    assert counts.tolist() == [4, 2, 4, 4]
    assert np.array_equal(edges, found + 100)
    parts = np.split(found, np.cumsum(counts)[:-1])
    assert all(len(set(p.tolist())) == len(p) for p in parts)
    for part, (low, high) in zip(parts, ((0, 10), (10, 12), (12, 40), (0, 10)), strict=True):
        assert np.all((low <= part) & (part < high))
    assert chosen[:3].tolist() == [0, 1, 2]
    assert parts[0].tolist() != parts[3].tolist()


def test_masked_softmax_and_a_marked_loss() -> None:
    x, mask = static.data("x", [1, 2, 3, 3]), static.data("mask", [1, 1, 3, 3])
    fetched = [
        paddle.incubate.softmax_mask_fuse(x, mask), paddle.incubate.softmax_mask_fuse_upper_triangle(x),
        paddle.incubate.identity_loss(x, "mean"), paddle.incubate.identity_loss(x, 0), paddle.incubate.identity_loss(x),
    ]  # fmt: skip
    value = np.random.default_rng(0).normal(size=(1, 2, 3, 3)).astype(np.float32)
    hidden = np.triu(np.full((3, 3), -np.inf, np.float32), 1)[None, None]
    found = run(fetched, x=value, mask=np.maximum(hidden, -1e4))
    weights = np.exp(value + hidden)
    weights /= weights.sum(-1, keepdims=True)
    for got in found[:2]:
        np.testing.assert_allclose(got, weights, rtol=1e-5, atol=1e-7)
    assert found[2] == pytest.approx(value.mean(), rel=1e-5)
    assert found[3] == pytest.approx(value.sum(), rel=1e-5)
    np.testing.assert_array_equal(found[4], value)
    with pytest.raises(errors.ProgramError, match="reduction"):
        paddle.incubate.identity_loss(x, "max")
