"""Functions composed of matrix products and reductions, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import normal, run_function
from tstatic import fluid, static
from tstatic.errors import DTypeError, ProgramError, ShapeError
from tstatic.nn import functional as F


def close(found: Any, expected: Any) -> None:
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


X, Y, V = normal(3, 4), normal(4, 5), normal(4)


def test_addmm() -> None:
    for c in (normal(3, 5), normal(5), normal(1, 5)):
        feeds = {"c": c, "x": X, "y": Y}
        (out,) = run_function(lambda c, x, y: paddle.addmm(c, x, y, beta=0.5, alpha=2.0), feeds, unknown=False)
        close(out, 0.5 * c + 2 * X @ Y)
    (out,) = run_function(paddle.addmm, {"c": normal(5), "x": X, "y": Y}, unknown=False)
    assert out.shape == (3, 5)


def test_addmm_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="broadcast"):
        run_function(paddle.addmm, {"c": normal(2, 3, 5), "x": X, "y": Y}, unknown=False)
    with pytest.raises(ShapeError, match="wrong number of dimensions"):
        run_function(paddle.addmm, {"c": normal(5), "x": V, "y": Y}, unknown=False)


def test_matmul_and_its_spellings() -> None:
    feeds = {"x": X, "y": Y}
    for build in (paddle.matmul, paddle.mm, lambda x, y: x @ y, lambda x, y: x.matmul(y), fluid.layers.mul):
        close(run_function(build, feeds, unknown=False)[0], X @ Y)
    close(run_function(lambda x, y: paddle.matmul(x, y, transpose_y=True), {"x": X, "y": Y.T.copy()})[0], X @ Y)
    close(run_function(lambda x, y: fluid.layers.matmul(x, y, alpha=0.5), feeds, unknown=False)[0], 0.5 * X @ Y)
    close(run_function(paddle.mv, {"x": X, "v": V}, unknown=False)[0], X @ V)
    close(run_function(paddle.dot, {"x": V, "y": 2 * V}, unknown=False)[0], 2 * V @ V)
    close(run_function(fluid.layers.matmul, {"x": V, "y": V}, unknown=False)[0], np.array([V @ V]))
    close(run_function(paddle.bmm, {"x": normal(0, 3, 4), "y": normal(0, 4, 5)})[0], np.zeros((0, 3, 5)))


def test_outer_and_inner() -> None:
    a, b = normal(2, 3), normal(4)
    close(run_function(paddle.outer, {"x": a, "y": b})[0], np.outer(a, b))
    for x, y in ((a, normal(5, 3)), (normal(3), normal(3)), (normal(2, 2, 3), normal(5, 3)), (a, normal(3)),
                 (normal(2, 3), normal(4, 2, 3))):  # fmt: skip
        close(run_function(paddle.inner, {"x": x, "y": y}, unknown=False)[0], np.inner(x, y))
    close(run_function(paddle.inner, {"x": normal(), "y": a}, unknown=False)[0].shape and a * 0, a * 0)


def test_bilinear() -> None:
    x, y, w, b = normal(3, 2), normal(3, 4), normal(5, 2, 4), normal(1, 5)
    expected = np.einsum("ni,kij,nj->nk", x, w, y)
    close(run_function(lambda x, y, w: F.bilinear(x, y, w), {"x": x, "y": y, "w": w}, unknown=False)[0], expected)
    feeds = {"x": x, "y": y, "w": w, "b": b}
    close(run_function(F.bilinear, feeds, unknown=False)[0], expected + b)


def test_cosines() -> None:
    x, y = normal(3, 4), normal(3, 4)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    close(run_function(F.cosine_similarity, {"x": x, "y": y})[0], (x * y).sum(1) / norms)
    close(run_function(fluid.layers.cos_sim, {"X": x, "Y": y})[0], ((x * y).sum(1) / norms)[:, None])
    one = normal(1, 4)
    expected = x @ one[0] / (np.linalg.norm(x, axis=1) * np.linalg.norm(one))
    close(run_function(fluid.layers.cos_sim, {"X": x, "Y": one}, unknown=False)[0], expected[:, None])


# -------------------------------------------------------------------------------------------------------------- einsum
EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,jk->ki", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhij,bjhd->bihd", (2, 3, 4, 6), (2, 6, 3, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("i,i", (3,), (3,)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,kl->kijl", (2, 3), (4, 5)),
    ("ijk,jkl->il", (2, 3, 4), (3, 4, 5)),
    ("ijkl,lk->ij", (2, 3, 4, 5), (5, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (5, 2, 4, 3)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 3)),
    ("i...,i...->...", (3, 2, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii->i", (3, 3)),
    ("ii->", (3, 3)),
    ("ii", (3, 3)),
    ("iij->ij", (3, 3, 2)),
    ("ijij->ij", (2, 3, 2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("bi,kij,bj->bk", (3, 2), (5, 2, 4), (3, 4)),
    ("ij,j->i", (3, 4), (1,)),
    ("ab,bc->ac", (0, 3), (3, 2)),
    ("ijk,jkl->il", (2, 4, 0), (4, 0, 3)),
    ("ijk,jkl->il", (0, 4, 2), (4, 2, 3)),
    (" i j , j k -> i k ", (3, 4), (4, 5)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e[0], e[1:]) for e in EQUATIONS])
def test_einsum(equation: str, shapes: tuple[Any, ...]) -> None:
    arrays = {f"x{i}": normal(*s) for i, s in enumerate(shapes)}
    expected = np.einsum(equation, *[np.broadcast_to(a, (4,)) if a.shape == (1,) else a for a in arrays.values()])
    close(run_function(lambda *xs: paddle.einsum(equation, *xs), arrays, unknown=False)[0], expected)


@pytest.mark.parametrize(
    ("equation", "x", "y"),
    [
        ("bij,bjk->bik", (None, 3, 4), (None, 4, 5)),
        ("bhid,bhjd->bhij", (None, 3, 4, 5), (None, 3, 6, 5)),
        ("bij,jk->bik", (None, 3, 4), (4, 5)),
        ("bijk,jkl->bil", (None, 3, 4, 5), (4, 5, 2)),
        ("bij,jkl->bkil", (None, 3, 4), (4, 5, 2)),
        ("bi,bj->bij", (None, 3), (None, 4)),
        ("bij,bkl->", (None, 3, 4), (None, 2, 2)),
    ],
)
def test_einsum_with_an_unknown_batch(equation: str, x: Any, y: Any) -> None:
    arrays = [normal(*[2 if s is None else s for s in shape]) for shape in (x, y)]
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = paddle.einsum(equation, static.data("x", list(x), "float64"), static.data("y", list(y), "float64"))
    found = static.Executor(paddle.CPUPlace()).run(main, feed=dict(zip("xy", arrays, strict=True)), fetch_list=[out])
    close(found[0], np.einsum(equation, *arrays))


CHAINS = [
    ("ij,jk,kl->il", ((6, 5), (5, 4), (4, 3))),
    ("ij,jk,kl->il", ((30, 30), (30, 30), (30, 1))),
    ("bi,bj,ijk->bk", ((4, 5), (4, 6), (5, 6, 3))),
    ("i,ij,jk,k->", ((3,), (3, 4), (4, 5), (5,))),
    ("a,b,c->cab", ((2,), (3,), (4,))),
    ("ab,bc,cd,de,ef->af", ((2, 9), (9, 3), (3, 8), (8, 2), (2, 7))),
    ("ab,bc,cd,de,ef,fg,ga->", ((2, 3), (3, 4), (4, 2), (2, 3), (3, 2), (2, 4), (4, 2))),
    ("...i,ij,...j->...", ((2, 5, 3), (3, 4), (5, 4))),
    ("ij,jk,kl->il", ((6, 1), (5, 4), (4, 3))),
    ("ij,j,jk->ik", ((0, 3), (3,), (3, 2))),
]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(("equation", "shapes"), CHAINS)
def test_einsum_of_several_operands(equation: str, shapes: tuple[tuple[int, ...], ...], unknown: bool) -> None:
    arrays = {f"x{i}": normal(*s) for i, s in enumerate(shapes)}
    stretched = [np.broadcast_to(a, (6, 5)) if a.shape == (6, 1) else a for a in arrays.values()]
    expected = np.einsum(equation, *stretched)
    close(run_function(lambda *xs: paddle.einsum(equation, *xs), arrays, unknown)[0], expected)


def test_einsum_takes_the_order_with_the_fewest_multiplications() -> None:
    """From left to right the first product of three matrices and a vector has 50 x 50 elements."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        shapes = {"a": [50, 50], "b": [50, 50], "c": [50, 50], "v": [50]}
        inputs = [static.data(n, s) for n, s in shapes.items()]
        assert paddle.einsum("ij,jk,kl,l->i", *inputs).shape == (50,)
        batch = [static.data(n, [None, *s]) for n, s in {"x": [50, 50], "y": [50, 50], "z": [50, 1]}.items()]
        assert paddle.einsum("bij,bjk,bkl->bil", *batch).shape == (-1, 50, 1)
    made = [main.global_block().var(n).shape for op in main.global_block().ops for n in op.output("Out")]
    assert all(shape.count(50) == 1 for shape in made), made


def test_an_order_of_einsum_that_unknown_sizes_do_not_allow_is_not_taken() -> None:
    """Two unknown sizes that were merged could not be told apart again."""
    arrays = {"x": normal(3, 4, 5), "y": normal(5, 2), "z": normal(2, 6)}
    main = static.Program()
    with static.program_guard(main, static.Program()):
        ins = [static.data("x", [None, None, 5], "float64"), static.data("y", [5, None], "float64")]
        ins.append(static.data("z", [None, 6], "float64"))
        before = len(main.global_block().vars)
        out = paddle.einsum("abi,ij,jk->abk", *ins)
        named = [n for n in main.global_block().vars if n.startswith("operand_")]
        assert before == 3
        assert named == []
    (found,) = static.Executor().run(main, feed=arrays, fetch_list=[out])
    close(found, np.einsum("abi,ij,jk->abk", *arrays.values()))


def test_einsum_is_differentiable() -> None:
    x, y = normal(2, 3, 4), normal(2, 4, 5)
    out, dx, dy = run_function(lambda x, y: paddle.einsum("bij,bjk->ibk", x, y), {"x": x, "y": y}, grads=True)
    seed = np.cos(np.arange(out.size, dtype=float)).reshape(out.shape)
    close(dx, np.einsum("ibk,bjk->bij", seed, y))
    close(dy, np.einsum("ibk,bij->bjk", seed, x))


@pytest.mark.parametrize(
    ("equation", "shapes", "error"),
    [
        ("ij,jk->ik", ((3, 4),), ProgramError),
        ("ij,jk->il", ((3, 4), (4, 5)), ProgramError),
        ("ij,jk->ii", ((3, 4), (4, 5)), ProgramError),
        ("i1,jk->ik", ((3, 4), (4, 5)), ProgramError),
        ("ijk,jk->ik", ((3, 4), (4, 5)), ProgramError),
        ("i,jk->ik", ((3, 4), (4, 5)), ProgramError),
        ("ij,jk->ik", ((3, 4), (5, 5)), ShapeError),
        ("ii->i", ((3, 4),), ShapeError),
    ],
)
def test_einsum_refuses(equation: str, shapes: Any, error: Any) -> None:
    with pytest.raises(error, match="fix:"):
        run_function(
            lambda *xs: paddle.einsum(equation, *xs), {f"x{i}": normal(*s) for i, s in enumerate(shapes)}, unknown=False
        )


# ---------------------------------------------------------------------------------------------------------- reductions
A = normal(3, 4, 5)


@pytest.mark.parametrize("unknown", [True, False])
def test_variance(unknown: bool) -> None:
    feeds = {"x": A}
    for axis in (None, 0, 1, [0, 2], -1):
        where = tuple(axis) if isinstance(axis, list) else axis
        close(run_function(lambda x, a=axis: paddle.var(x, a), feeds, unknown)[0], A.var(where, ddof=1))
        close(run_function(lambda x, a=axis: paddle.std(x, a, unbiased=False), feeds, unknown)[0], A.std(where))
    found = run_function(lambda x: x.std(1, keepdim=True), feeds, unknown)
    close(found[0], A.std(1, ddof=1, keepdims=True))
    close(run_function(lambda x: paddle.var(x, 1), {"x": normal(3, 1)}, unknown)[0], np.zeros(3))


def test_variance_is_differentiable() -> None:
    for unknown in (True, False):
        out, dx = run_function(lambda x: paddle.var(x, 0), {"x": A}, unknown, grads=True)
        seed = np.cos(np.arange(out.size, dtype=float)).reshape(out.shape)
        close(dx, seed * 2 * (A - A.mean(0)) / 2)


def test_norms() -> None:
    m = normal(3, 4)
    feeds = {"x": m}
    close(run_function(paddle.norm, feeds)[0], np.linalg.norm(m))
    for p in (1, 2, 3.5, np.inf, -np.inf, 0):
        close(run_function(lambda x, p=p: paddle.norm(x, p, 1), feeds)[0], np.linalg.norm(m, p, 1))
        close(run_function(lambda x, p=p: paddle.norm(x, p, 0, keepdim=True), feeds)[0], np.linalg.norm(m, p, 0, True))
        close(run_function(lambda x, p=p: x.norm(p), feeds)[0], np.linalg.norm(m.ravel(), p))
    close(run_function(lambda x: paddle.norm(x, "fro", [0, 1]), feeds)[0], np.linalg.norm(m))
    close(run_function(lambda x: paddle.norm(x, 3, [0, 1]), feeds)[0], (abs(m) ** 3).sum() ** (1 / 3))
    close(run_function(lambda x: paddle.norm(x, np.inf, [0, 1]), feeds)[0], abs(m).max())
    close(run_function(lambda x, y: paddle.dist(x, y, 1), {"x": m, "y": m[:1]}, unknown=False)[0], abs(m - m[:1]).sum())
    with pytest.raises(ProgramError, match="order"):
        run_function(lambda x: paddle.norm(x, "nuc"), feeds)
    with pytest.raises(ProgramError, match="axes"):
        run_function(lambda x: paddle.norm(x, 2, [0, 1, 2]), {"x": A})


def test_division_by_norms() -> None:
    m = normal(3, 4)
    close(run_function(F.normalize, {"x": m})[0], m / np.linalg.norm(m, axis=1, keepdims=True))
    zero = run_function(F.normalize, {"x": np.zeros((2, 3))})[0]
    assert (zero == 0).all()
    expected = m / np.sqrt((m * m).sum(0, keepdims=True) + 1e-12)
    close(run_function(lambda x: fluid.layers.l2_normalize(x, 0), {"x": m})[0], expected)


def test_full_reductions_of_the_1x_names_have_one_element() -> None:
    layers = fluid.layers
    for build, expected in (
        (layers.reduce_sum, A.sum()),
        (layers.reduce_mean, A.mean()),
        (layers.reduce_max, A.max()),
        (layers.reduce_min, A.min()),
        (layers.reduce_prod, A.prod()),
        (layers.mean, A.mean()),
    ):
        close(run_function(build, {"x": A})[0], np.array([expected]))
    close(run_function(lambda x: layers.reduce_sum(x, dim=[0, 1]), {"x": A})[0], A.sum((0, 1)))
    close(run_function(lambda x: layers.reduce_sum(x, keep_dim=True), {"x": A})[0], A.sum(keepdims=True))
    truth = run_function(lambda x: layers.reduce_all(x > -99.0), {"x": A})[0]
    assert truth.shape == (1,)
    assert truth.all()


def test_full_reductions_of_the_2x_names_have_rank_0() -> None:
    for build, expected in (
        (paddle.sum, A.sum()), (paddle.mean, A.mean()), (paddle.max, A.max()), (paddle.min, A.min()),
        (paddle.prod, A.prod()), (paddle.amax, A.max()), (lambda x: x.sum(), A.sum()), (lambda x: x.mean(), A.mean()),
        (lambda x: paddle.sum(x, axis=[]), A.sum()),
    ):  # fmt: skip
        close(run_function(build, {"x": A})[0], expected)
    assert run_function(lambda x: paddle.any(x > 99.0), {"x": A})[0].shape == ()


def test_sums_of_integers_are_wide() -> None:
    x = np.full((70000,), 40000, np.int32)
    (out,) = run_function(paddle.sum, {"x": x})
    assert out.dtype == np.int64
    assert out == 2_800_000_000
    (out,) = run_function(lambda v: paddle.sum(v, dtype="float64"), {"x": x})
    assert out.dtype == np.float64
    with pytest.raises(DTypeError, match="mean"):
        run_function(paddle.mean, {"x": x})


def test_ties_of_max_and_amax() -> None:
    x = np.array([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    seed = np.cos(np.arange(2.0))
    _, dx = run_function(lambda v: paddle.max(v, 1), {"x": x}, grads=True)
    close(dx, np.array([[0, 1, 1], [1, 1, 1]]) * seed[:, None])
    _, dx = run_function(lambda v: paddle.amax(v, 1), {"x": x}, grads=True)
    close(dx, np.array([[0, 0.5, 0.5], [1 / 3] * 3]) * seed[:, None])


def test_mean_of_nothing_is_nan_and_extrema_of_nothing_are_refused() -> None:
    assert np.isnan(run_function(paddle.mean, {"x": np.zeros((0, 3))}, unknown=False)[0])
    with pytest.raises(ShapeError, match="no elements"):
        run_function(lambda x: paddle.max(x, 0), {"x": np.zeros((0, 3))}, unknown=False)


@pytest.mark.parametrize(
    ("shapes", "transposed", "axes"),
    [
        (((3,), (1, 4)), (True, False), ((1,), ())),
        (((3, 1), (4,)), (False, True), ((), (0,))),
        (((3,), (4,)), (True, True), ((1,), (0,))),
        (((3,), (3, 4)), (False, False), ((0,), ())),
        (((3,), (2, 1, 4)), (True, False), ((1,), ())),
    ],
)
def test_a_transposed_vector_of_the_1x_matmul_is_a_column_or_a_row(shapes: Any, transposed: Any, axes: Any) -> None:
    arrays = {n: normal(*s) for n, s in zip("xy", shapes, strict=True)}
    found = run_function(lambda x, y: fluid.layers.matmul(x, y, *transposed), arrays, unknown=False)[0]
    full = [np.expand_dims(a, at) if at else a for a, at in zip(arrays.values(), axes, strict=True)]
    expected = full[0] @ full[1]
    close(found, expected if any(transposed) else expected[0])
