"""Public functions that reshape, join, select and sort, against torch: values and gradients, known and unknown sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import run_function, weights
from tstatic import fluid, static
from tstatic.nn import functional as F

L = fluid.layers
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape)


X = normal(4, 3, 2)
M = normal(4, 3)
IMAGE = normal(2, 3, 4, 5)
VOLUME = normal(1, 2, 3, 4, 2)
ROWS = np.array([2, 0, 2, 1])
MASK = np.array([[True, False, True], [False, False, True], [True, True, True], [False, True, False]])
COLUMNS = np.array([[0, 2], [1, 1], [2, 0], [0, 0]])

# Name -> (function of the Variables, function of torch and the tensors, inputs).
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "reshape": (lambda x: paddle.reshape(x, [0, -1]), lambda t, x: x.reshape(4, -1), (X,)),
    "reshape two unknown": (lambda x: paddle.reshape(x, [-1, 2]), lambda t, x: x.reshape(-1, 2), (X,)),
    "reshape method": (lambda x: x.reshape([-1]), lambda t, x: x.reshape(-1), (X,)),
    "reshape_": (lambda x: paddle.reshape_(x, [-1, 6]), lambda t, x: x.reshape(-1, 6), (X,)),
    "fluid reshape": (lambda x: L.reshape(x, [-1, 6], act="relu"), lambda t, x: t.relu(x.reshape(-1, 6)), (X,)),
    "transpose": (lambda x: paddle.transpose(x, [2, 0, 1]), lambda t, x: x.permute(2, 0, 1), (X,)),
    "transpose twice": (
        lambda x: x.transpose([1, 0, 2]).reshape([3, -1]),
        lambda t, x: x.permute(1, 0, 2).reshape(3, -1),
        (X,),
    ),
    "t": (paddle.t, lambda t, x: x.t(), (M,)),
    "moveaxis": (lambda x: paddle.moveaxis(x, [0, 2], [1, 0]), lambda t, x: x.movedim((0, 2), (1, 0)), (X,)),
    "swapaxes": (lambda x: paddle.swapaxes(x, 0, -1), lambda t, x: x.swapaxes(0, -1), (X,)),
    "flatten": (lambda x: paddle.flatten(x, 1), lambda t, x: x.flatten(1), (X,)),
    "flatten all": (paddle.flatten, lambda t, x: x.flatten(), (X,)),
    "flatten_": (lambda x: x.flatten_(0, 1), lambda t, x: x.flatten(0, 1), (X,)),
    "unflatten": (lambda x: paddle.unflatten(x, -1, [2, -1]), lambda t, x: x.unflatten(-1, [2, -1]), (IMAGE[..., :4],)),
    "squeeze_": (lambda x: x.squeeze_(1), lambda t, x: x.squeeze(1), (normal(2, 1, 3),)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), lambda t, x: x.unsqueeze(1), (M,)),
    "fluid flatten": (lambda x: L.flatten(x, axis=2), lambda t, x: x.reshape(12, 2), (X,)),
    "squeeze": (lambda x: paddle.squeeze(x, [1, -1]), lambda t, x: x.squeeze(3).squeeze(1), (normal(2, 1, 3, 1),)),
    "squeeze all": (paddle.squeeze, lambda t, x: x.squeeze(), (normal(2, 1, 3, 1),)),
    "squeeze nothing": (paddle.squeeze, lambda t, x: x.squeeze(), (X,)),
    "unsqueeze": (lambda x: paddle.unsqueeze(x, [0, -1]), lambda t, x: x[None, ..., None], (X,)),
    "concat": (lambda x, y: paddle.concat([x, y], -1), lambda t, x, y: t.cat([x, y], -1), (M, normal(4, 2))),
    "concat rows": (lambda x, y: paddle.concat([x, y, x]), lambda t, x, y: t.cat([x, y, x]), (M, normal(2, 3))),
    "fluid concat": (lambda x: L.concat(input=[x, x], axis=1), lambda t, x: t.cat([x, x], 1), (M,)),
    "split": (lambda x: paddle.split(x, [1, -1], 1)[1], lambda t, x: x[:, 1:], (M,)),
    "split number": (lambda x: paddle.split(x, 3, axis=1)[0], lambda t, x: x[:, :1], (M,)),
    "split all": (
        lambda x: sum(paddle.split(x, 3, 1)[1:], paddle.split(x, 3, 1)[0]),
        lambda t, x: x.sum(1, keepdim=True),
        (M,),
    ),
    "fluid split": (lambda x: L.split(x, 3)[2], lambda t, x: x[:, 2:], (M,)),
    "chunk": (lambda x: paddle.chunk(x, 2, 2)[1], lambda t, x: x.chunk(2, 2)[1], (X,)),
    "stack": (lambda x, y: paddle.stack([x, y], -1), lambda t, x, y: t.stack([x, y], -1), (M, normal(4, 3))),
    "unstack": (lambda x: paddle.unstack(x, 1)[2], lambda t, x: x[:, 2], (X,)),
    "unbind": (lambda x: paddle.unbind(x, -1)[1], lambda t, x: x[..., 1], (X,)),
    "meshgrid": (
        lambda x, y: paddle.meshgrid(x, y)[1],
        lambda t, x, y: t.meshgrid(x, y, indexing="ij")[1],
        (normal(3), normal(2)),
    ),
    "slice": (lambda x: paddle.slice(x, [0, 1], [1, -2], [3, 100]), lambda t, x: x[1:3, -2:], (X,)),
    "strided_slice": (
        lambda x: paddle.strided_slice(x, [0, 1], [3, 0], [0, 3], [-2, 2]),
        lambda t, x: x.flip(0)[0:3:2, 0:3:2],
        (X,),
    ),
    "crop": (lambda x: paddle.crop(x, [2, -1, 1], [1, 1, 0]), lambda t, x: x[1:3, 1:, :1], (X,)),
    "expand": (lambda x: paddle.expand(x, [2, -1, 3]), lambda t, x: x.expand(2, -1, 3), (normal(4, 1),)),
    "broadcast_to": (lambda x: x.broadcast_to([2, 4, 3]), lambda t, x: x.expand(2, 4, 3), (M,)),
    "expand_as": (paddle.expand_as, lambda t, x, y: x.expand_as(y), (normal(4, 1), M)),
    "broadcast_tensors": (
        lambda x, y: paddle.broadcast_tensors([x, y])[0],
        lambda t, x, y: t.broadcast_tensors(x, y)[0],
        (normal(4, 1), M),
    ),
    "tile": (lambda x: paddle.tile(x, [2, 1, 3]), lambda t, x: x.tile(2, 1, 3), (X,)),
    "fluid expand": (lambda x: L.expand(x, [2, 3]), lambda t, x: x.tile(2, 3), (M,)),
    "fluid expand_as": (lambda x, y: L.expand_as(x, y), lambda t, x, y: x.tile(1, 2), (M, normal(4, 6))),
    "repeat_interleave": (lambda x: paddle.repeat_interleave(x, 2, 1), lambda t, x: x.repeat_interleave(2, 1), (X,)),
    "repeat_interleave flat": (lambda x: x.repeat_interleave(3), lambda t, x: x.repeat_interleave(3), (M,)),
    "repeat_interleave each": (
        lambda x, n: paddle.repeat_interleave(x, n, 0),
        lambda t, x, n: x.repeat_interleave(n, 0),
        (M, np.array([1, 0, 3, 2])),
    ),
    "flip": (lambda x: paddle.flip(x, [0, -1]), lambda t, x: x.flip(0, -1), (X,)),
    "reverse": (lambda x: L.reverse(x, 1), lambda t, x: x.flip(1), (X,)),
    "rot90": (lambda x: paddle.rot90(x, 1, [0, 1]), lambda t, x: x.rot90(1, [0, 1]), (M,)),
    "rot90 back": (lambda x: paddle.rot90(x, -1, [1, 2]), lambda t, x: x.rot90(-1, [1, 2]), (X,)),
    "rot90 twice": (lambda x: paddle.rot90(x, 2), lambda t, x: x.rot90(2), (M,)),
    "rot90 never": (lambda x: paddle.rot90(x, 4), lambda t, x: x.clone(), (M,)),
    "roll": (lambda x: paddle.roll(x, [1, -2], [0, 1]), lambda t, x: x.roll([1, -2], [0, 1]), (X,)),
    "roll flat": (lambda x: paddle.roll(x, 3), lambda t, x: x.roll(3), (X,)),
    "gather": (paddle.gather, lambda t, x, i: x[i], (M, ROWS)),
    "gather axis": (lambda x, i: paddle.gather(x, i, 1), lambda t, x, i: x[:, i], (X, ROWS)),
    "gather column": (lambda x, i: L.gather(x, i), lambda t, x, i: x[i[:, 0]], (M, ROWS[:, None])),
    "gather_nd": (paddle.gather_nd, lambda t, x, i: x[i[:, 0], i[:, 1]], (X, COLUMNS)),
    "index_select": (lambda x, i: x.index_select(i, 1), lambda t, x, i: x.index_select(1, i), (X, ROWS)),
    "index_sample": (paddle.index_sample, lambda t, x, i: x.gather(1, i), (M, COLUMNS)),
    "take_along_axis": (lambda x, i: paddle.take_along_axis(x, i, 1), lambda t, x, i: x.gather(1, i), (M, COLUMNS)),
    "take_along_axis wide": (
        lambda x, i: paddle.take_along_axis(x, i, 0),
        lambda t, x, i: x.gather(0, i.expand(4, 3)),
        (M, ROWS[:, None]),
    ),
    "take_along_axis deep": (
        lambda x, i: paddle.take_along_axis(x, i, 0),
        lambda t, x, i: x.expand(4, 5, 2).gather(0, i),
        (X[:, :1], RNG.integers(0, 4, (3, 5, 2))),
    ),
    "scatter": (paddle.scatter, lambda t, x, i, u: x.index_copy(0, i, u), (M, np.array([3, 1]), normal(2, 3))),
    "scatter sums": (
        lambda x, i, u: paddle.scatter(x, i, u, overwrite=False),
        lambda t, x, i, u: x.index_fill(0, i, 0.0).index_add(0, i, u),
        (M, ROWS, normal(4, 3)),
    ),
    "fluid scatter": (
        lambda x, i, u: L.scatter(x, i, u),
        lambda t, x, i, u: x.index_copy(0, i, u),
        (M, np.array([0, 2]), normal(2, 3)),
    ),
    "scatter_nd_add": (
        paddle.scatter_nd_add,
        lambda t, x, i, u: x.index_put((i[:, 0],), u, accumulate=True),
        (M, ROWS[:, None], normal(4, 3)),
    ),
    "scatter_nd": (
        lambda i, u: paddle.scatter_nd(i, u, [4, 3]),
        lambda t, i, u: t.zeros(4, 3, dtype=t.float64).index_put((i[:, 0],), u, accumulate=True),
        (ROWS[:, None], normal(4, 3)),
    ),
    "index_add": (
        lambda x, i, v: paddle.index_add(x, i, 1, v),
        lambda t, x, i, v: x.index_add(1, i, v),
        (X, ROWS, normal(4, 4, 2)),
    ),
    "put_along_axis": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1),
        lambda t, x, i, v: x.scatter(1, i, v),
        (M, COLUMNS[:3:2].repeat(2, 0), normal(4, 2)),
    ),
    "put_along_axis add": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, "add"),
        lambda t, x, i, v: x.scatter_add(1, i, v),
        (M, COLUMNS, normal(4, 2)),
    ),
    "put_along_axis number": (
        lambda x, i: paddle.put_along_axis(x, i, 2.5, 1),
        lambda t, x, i: x.scatter(1, i, 2.5),
        (M, COLUMNS),
    ),
    "masked_select": (paddle.masked_select, lambda t, x, m: x.masked_select(m), (M, MASK)),
    "masked_select wide": (paddle.masked_select, lambda t, x, m: x.masked_select(m), (M, MASK[0])),
    "masked_fill": (lambda x, m: paddle.masked_fill(x, m, -1.5), lambda t, x, m: x.masked_fill(m, -1.5), (M, MASK)),
    "sort": (lambda x: paddle.sort(x, 0, True), lambda t, x: x.sort(0, True).values, (M,)),
    "fluid argsort": (lambda x: L.argsort(x)[0], lambda t, x: x.sort().values, (M,)),
    "topk": (lambda x: paddle.topk(x, 2)[0], lambda t, x: x.topk(2).values, (M,)),
    "topk smallest": (lambda x: x.topk(2, axis=0, largest=False)[0], lambda t, x: x.topk(2, 0, False).values, (M,)),
    "fluid topk": (lambda x: L.topk(x, k=1)[0], lambda t, x: x.topk(1).values, (M,)),
    "kthvalue": (lambda x: paddle.kthvalue(x, 2, 1)[0], lambda t, x: x.kthvalue(2, 1).values, (M,)),
    "cumsum": (lambda x: paddle.cumsum(x, 1), lambda t, x: x.cumsum(1), (X,)),
    "cumsum flat": (paddle.cumsum, lambda t, x: x.reshape(-1).cumsum(0), (X,)),
    "fluid cumsum": (
        lambda x: L.cumsum(x, axis=1, exclusive=True, reverse=True),
        lambda t, x: x.flip(1).cumsum(1).flip(1) - x,
        (M,),
    ),
    "cumprod": (lambda x: paddle.cumprod(x, 1), lambda t, x: x.cumprod(1), (X,)),
    "tril": (lambda x: paddle.tril(x, 1), lambda t, x: x.tril(1), (M,)),
    "triu": (lambda x: x.triu(-1), lambda t, x: x.triu(-1), (M,)),
    "diag": (
        lambda x: paddle.diag(x, 1, 2.0),
        lambda t, x: t.diag(x, 1) + 2.0 * (1 - t.diag(t.ones_like(x), 1)),
        (normal(3),),
    ),
    "diag of a matrix": (lambda x: paddle.diag(x, -1), lambda t, x: x.diagonal(-1), (M,)),
    "diagonal": (lambda x: paddle.diagonal(x, 1, 2, 0), lambda t, x: x.diagonal(1, 2, 0), (X,)),
    "pad": (lambda x: F.pad(x, [1, 2, 0, 1]), lambda t, x: t.nn.functional.pad(x, (1, 2, 0, 1)), (IMAGE,)),
    "pad all": (
        lambda x: F.pad(x, [1, 0, 2, 1], value=0.5),
        lambda t, x: t.nn.functional.pad(x, (2, 1, 1, 0), value=0.5),
        (M,),
    ),
    "pad reflect": (
        lambda x: F.pad(x, [1, 2, 0, 3], "reflect"),
        lambda t, x: t.nn.functional.pad(x, (1, 2, 0, 3), "reflect"),
        (IMAGE,),
    ),
    "pad circular": (
        lambda x: F.pad(x, [2, 1], "circular", data_format="NCL"),
        lambda t, x: t.nn.functional.pad(x, (2, 1), "circular"),
        (X,),
    ),
    "pad volume": (
        lambda x: F.pad(x, 1, "replicate", data_format="NCDHW"),
        lambda t, x: t.nn.functional.pad(x, (1,) * 6, "replicate"),
        (VOLUME,),
    ),
    "pad last": (
        lambda x: F.pad(x, [1, 2, 0, 1], "reflect", data_format="NHWC"),
        lambda t, x: t.nn.functional.pad(x.permute(0, 3, 1, 2), (1, 2, 0, 1), "reflect").permute(0, 2, 3, 1),
        (IMAGE,),
    ),
    "pad lines last": (
        lambda x: F.pad(x, [1, 2], "replicate", data_format="NLC"),
        lambda t, x: t.nn.functional.pad(x.permute(0, 2, 1), (1, 2), "replicate").permute(0, 2, 1),
        (X,),
    ),
    "zeropad2d": (lambda x: F.zeropad2d(x, 2), lambda t, x: t.nn.functional.pad(x, (2,) * 4), (IMAGE,)),
    "pad2d": (
        lambda x: L.pad2d(x, [1, 0, 2, 1], "reflect"),
        lambda t, x: t.nn.functional.pad(x, (2, 1, 1, 0), "reflect"),
        (IMAGE,),
    ),
    "fluid pad": (
        lambda x: L.pad(x, [1, 0, 2, 1], 0.5),
        lambda t, x: t.nn.functional.pad(x, (2, 1, 1, 0), value=0.5),
        (M,),
    ),
}

# The same for functions of whole numbers or truth, which have no gradient.
DISCRETE: dict[str, Case] = {
    "argmax": (lambda x: paddle.argmax(x), lambda t, x: x.argmax(), (M,)),
    "argmax axis": (lambda x: paddle.argmax(x, -1, True, "int32"), lambda t, x: x.argmax(-1, True).int(), (M,)),
    "argmin": (lambda x: x.argmin(0), lambda t, x: x.argmin(0), (M,)),
    "fluid argmax": (lambda x: L.argmax(x), lambda t, x: x.argmax(0), (M,)),
    "argsort": (lambda x: paddle.argsort(x, 1, True), lambda t, x: x.argsort(1, True), (M,)),
    "topk": (lambda x: paddle.topk(x, 2)[1], lambda t, x: x.topk(2).indices, (M,)),
    "nonzero": (paddle.nonzero, lambda t, x: x.nonzero(), (MASK,)),
    "nonzero columns": (lambda x: paddle.nonzero(x, True)[1], lambda t, x: x.nonzero()[:, 1:], (MASK,)),
    "fluid where": (L.where, lambda t, x: x.nonzero(), (MASK,)),
    "unique": (paddle.unique, lambda t, x: x.unique(), (ROWS,)),
    "unique columns": (lambda x: paddle.unique(x, axis=1), lambda t, x: x.unique(dim=1), (COLUMNS,)),
    "unique inverse": (
        lambda x: paddle.unique(x, return_inverse=True)[1],
        lambda t, x: x.unique(return_inverse=True)[1],
        (ROWS,),
    ),
    "unique counts": (
        lambda x: L.unique_with_counts(x)[2],
        # In order of appearance, as Paddle 1.8.5 has them (tests/raw_ops).
        lambda t, x: x.unique(return_counts=True)[1][t.tensor([2, 0, 1])].int(),
        (ROWS,),
    ),
    "unique first": (lambda x: paddle.unique(x, return_index=True)[1], lambda t, x: t.tensor([1, 3, 0]), (ROWS,)),
    "unique_consecutive": (
        lambda x: paddle.unique_consecutive(x, return_counts=True)[1],
        lambda t, x: x.unique_consecutive(return_counts=True)[1],
        (np.array([1, 1, 2, 1, 1, 1]),),
    ),
    "shape": (paddle.shape, lambda t, x: t.tensor(x.shape, dtype=t.int32), (X,)),
    "numel": (paddle.numel, lambda t, x: t.tensor(x.numel()), (X,)),
    "rank": (paddle.rank, lambda t, x: t.tensor(x.dim(), dtype=t.int32), (X,)),
    "one_hot": (lambda x: F.one_hot(x, 4), lambda t, x: t.nn.functional.one_hot(x, 4).float(), (ROWS,)),
    "fluid one_hot": (
        lambda x: L.one_hot(x, 4),
        lambda t, x: t.nn.functional.one_hot(x[:, 0], 4).float(),
        (ROWS[:, None],),
    ),
    "fluid.one_hot": (
        lambda x: fluid.one_hot(x, 2, True),
        lambda t, x: t.nn.functional.one_hot(x, 4)[:, :2].float(),
        (ROWS,),
    ),
    "eye": (
        lambda x: paddle.eye(2, 3) + paddle.cast(x[0], "float32"),
        lambda t, x: t.eye(2, 3) + x[0],
        (np.zeros(1, int),),
    ),
    "fluid eye": (
        lambda x: L.eye(2, batch_shape=[3]) + paddle.cast(x[0], "float32"),
        lambda t, x: t.eye(2).expand(3, 2, 2) + x[0],
        (np.zeros(1, int),),
    ),
    "concat whole numbers": (lambda x: paddle.concat([x, x]), lambda t, x: t.cat([x, x]), (ROWS,)),
    "cumsum of truth": (lambda x: paddle.cumsum(x, 0), lambda t, x: x.cumsum(0), (MASK,)),
    "put product": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, "mul"),
        lambda t, x, i, v: x.scatter_reduce(1, i, v, "prod"),
        (COLUMNS[:, :1].repeat(3, 1) + 2, COLUMNS, COLUMNS + 1),
    ),
    "put largest": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, "amax", False),
        lambda t, x, i, v: x.scatter_reduce(1, i, v, "amax", include_self=False),
        (COLUMNS[:, :1].repeat(3, 1), COLUMNS, COLUMNS - 5),
    ),
}


def answers(case: Case, unknown: bool, grads: bool) -> tuple[list[Any], list[Any]]:
    import torch

    build, oracle, inputs = case
    tensors = [torch.from_numpy(np.array(a)) for a in inputs]
    floats = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    expected = oracle(torch, *tensors)
    wanted = [expected.detach().numpy()]
    if grads:
        expected.backward(torch.from_numpy(weights(tuple(expected.shape))))
        wanted += [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in floats]
    return run_function(build, {f"a{i}": a for i, a in enumerate(inputs)}, unknown, grads), wanted


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", CASES)
def test_function(name: str, unknown: bool) -> None:
    found, wanted = answers(CASES[name], unknown, True)
    assert found[0].dtype == wanted[0].dtype
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    # An input that the result does not depend on has no gradient here, and zeros in torch.
    gradients = [w for w in wanted[1:] if w.any()]
    assert len(found) == 1 + len(gradients)
    for f, w in zip(found[1:], gradients, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_function(name: str, unknown: bool) -> None:
    found, wanted = answers(DISCRETE[name], unknown, False)
    assert found[0].dtype == wanted[0].dtype
    np.testing.assert_array_equal(found[0], wanted[0])


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_places_and_counts_of_unique_values_are_integers(name: str) -> None:
    with pytest.raises(ValueError, match="int32 or int64"):
        getattr(paddle, name)(static.data("x", [4], "int64"), return_counts=True, dtype="float64")


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_the_gradient_of_squeeze_has_the_rank_that_the_input_turns_out_to_have(rows: int) -> None:
    """An axis of unknown size counts as 1 when the program is built, and stays if it is not."""

    def twice(x: Any) -> Any:
        y = paddle.squeeze(x, [0, 1])
        (dx,) = static.gradients([paddle.sum(y * y)], [x])
        return dx, static.gradients([paddle.sum(dx * dx)], [x])[0]

    x = normal(rows, 1, 4)
    first, second = run_function(twice, {"x": x})
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 8 * x)


def test_a_filled_output_variable_takes_a_number_that_only_the_run_knows() -> None:
    x = static.data("x", [1])
    out = static.default_main_program().global_block().create_var(name="out", dtype="float32", shape=[2])
    assert fluid.layers.fill_constant([2], "float32", x, out=out) is out
    assert static.Executor("cpu").run(feed={"x": np.array([3], "float32")}, fetch_list=["out"])[0].tolist() == [3, 3]
