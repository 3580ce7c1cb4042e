"""Matrix products with what follows them: every way to make them, against the ops one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tstatic.fusion.codegen.kernel import Kernel, Launch, Launches, LibraryProduct
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.gemm import gemm_kernel
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.rng import RngKey
from tstatic.ir.types import dtype_of
from tstatic.target import A100, B200, H200, TINY

CLOSE = {"float32": 2e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of the largest value: two units in the last place of 16-bit types; of the others, sums in another order."""


def op(kind: str, ins: dict[str, str | None], outs: dict[str, str | None], **attrs: Any) -> FrozenOp:
    """An op by its slots; those that are not named are absent."""
    definition = op_def(kind)
    return FrozenOp(
        definition,
        tuple(ins.get(s.name) for s in definition.inputs),
        tuple(outs.get(s.name) for s in definition.outputs),
        definition.complete(attrs),
    )


@dataclass(frozen=True)
class Problem:
    """A body, arrays for what it reads, and what it writes to memory."""

    body: list[FrozenOp]
    arrays: dict[str, Any]
    needed: list[str]


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(dtype_of(dtype).np)


Sizes = tuple[int, int, int]


def linear(
    dtype: str = "float32", act: str = "gelu", saved: bool = True, sizes: Sizes = (34, 53, 37), **attrs: Any
) -> Problem:
    """A product of two times half of the rows with a bias and an activation; the pre-activation is kept."""
    m, k, n = sizes
    x = (k, m) if attrs.get("trans_x") else (2, m // 2, k)
    y = (n, k) if attrs.get("trans_y") else (k, n)
    axis = len(x) - 1
    body = [
        op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}, **attrs),
        op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"}, axis=axis),
        op(act, {"X": "z"}, {"Out": "y"}),
    ]
    arrays = {"x": numbers(x, dtype, 0), "w": numbers(y, dtype, 1), "b": numbers((n,), dtype, 2)}
    return Problem(body, arrays, ["z", "y"] if saved else ["y"])


def check(problem: Problem, dtype: str, rng: RngKey | None = None) -> None:
    """Every candidate gives what the ops give; the interpreter's and the chips' are planned."""
    known = run_ops(problem.body, problem.arrays)
    metas = metas_by_name(known)
    kernel = gemm_kernel(problem.body, metas, problem.needed)
    outputs = {n: metas[n] for n in problem.needed}
    ways = tuple(kernel.candidates(TINY))
    assert len({way.name for way in ways}) == len(ways) >= 2
    for way in ways:
        found = run_kernel(kernel, problem.arrays, outputs, rng=rng, calls=way)
        for name in problem.needed:
            wanted = known[name].astype(np.float64)
            error = np.abs(found[name].astype(np.float64) - wanted).max()
            assert error <= CLOSE[dtype] * np.abs(wanted).max(), (way.name, name, error)
    for chip in (A100, H200, B200):
        assert tuple(kernel.candidates(chip))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_forward(dtype: str) -> None:
    check(linear(dtype), dtype)


@pytest.mark.parametrize("trans_x", [False, True])
@pytest.mark.parametrize("trans_y", [False, True])
def test_transposed_operands(trans_x: bool, trans_y: bool) -> None:
    check(linear(act="relu", saved=False, trans_x=trans_x, trans_y=trans_y), "float32")
    check(gradients(trans_x=trans_x, trans_y=trans_y), "float32")


def gradients(
    dtype: str = "float32",
    wanted: tuple[str, ...] = ("dz", "db", "dw"),
    sizes: Sizes = (34, 53, 37),
    **attrs: Any,
) -> Problem:
    """Both gradients of a product; that of its input goes through the activation's, and is summed for the bias."""
    m, k, n = sizes
    x, y = ((k, m) if attrs.get("trans_x") else (m, k)), ((n, k) if attrs.get("trans_y") else (k, n))
    ins = {"X": "x", "Y": "w", "Out@GRAD": "dy"}
    body = [
        op("matmul_v2_grad", ins, {"X@GRAD": "dx", "Y@GRAD": "dw" if "dw" in wanted else None}, **attrs),
        op("gelu_grad", {"X": "z", "Out@GRAD": "dx"}, {"X@GRAD": "dz"}),
        op(
            "elementwise_add_grad",
            {"X": "z", "Y": "b", "Out@GRAD": "dz"},
            {"X@GRAD": None, "Y@GRAD": "db"},
            axis=1,
        ),
    ]
    shapes = {"x": x, "w": y, "dy": (m, n), "z": x, "b": x[1:]}
    return Problem(body, {v: numbers(s, dtype, i) for i, (v, s) in enumerate(shapes.items())}, list(wanted))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_backward(dtype: str) -> None:
    check(gradients(dtype), dtype)


def by_library(problem: Problem) -> tuple[Kernel, Launches]:
    """A kernel, and the way in which an H200's library makes the product."""
    kernel = gemm_kernel(problem.body, metas_by_name(run_ops(problem.body, problem.arrays)), problem.needed)
    return kernel, next(way for way in kernel.candidates(H200) if way.name == "library")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("saved", [False, True], ids=["dropped", "kept"])
def test_the_library_adds_the_bias_and_writes_what_is_kept(dtype: str, saved: bool) -> None:
    kernel, way = by_library(linear(dtype, saved=saved, sizes=(40, 56, 48)))
    product, behind = way.launches
    assert isinstance(product, LibraryProduct)
    assert isinstance(behind, Launch)
    assert (product.addend, product.addend_shape) == ("b", (48,)), (
        "one dimension: cuBLASLt adds it on the way to memory"
    )
    assert "b" not in behind.arguments
    assert behind.arguments == ((product.out, "y"))
    assert bool(way.partials) != saved
    if saved:
        assert product.out == "z"
        assert kernel.plan(H200).name == "library", "one tensor is read and one written behind the product"
        assert kernel.moved == (2 * (40 * 56 + 56 * 48 + 40 * 48 + 48), 2 * 2 * 40 * 48)


def test_the_library_writes_a_product_that_is_kept() -> None:
    problem = linear("bfloat16", sizes=(40, 56, 48))
    _, way = by_library(Problem(problem.body, problem.arrays, ["p", "y"]))
    product, behind = way.launches
    assert (product.arguments, behind.arguments) == (("x", "w", "p"), ("p", "b", "y"))
    assert not way.partials


@pytest.mark.parametrize("case", ["float32", "another type", "read twice", "a matrix"])
def test_other_sums_are_made_behind_the_library(case: str) -> None:
    dtype = "float32" if case == "float32" else "bfloat16"
    problem = linear(dtype, sizes=(40, 56, 48))
    if case == "another type":
        problem.arrays["b"] = numbers((48,), "float32", 3)
        problem.body[1:2] = [
            op("cast", {"X": "p"}, {"Out": "wide"}, in_dtype="bfloat16", out_dtype="float32"),
            op("elementwise_add", {"X": "wide", "Y": "b"}, {"Out": "z"}, axis=2),
        ]
    elif case == "read twice":
        problem.body[2] = op("elementwise_mul", {"X": "z", "Y": "p"}, {"Out": "y"})
    elif case == "a matrix":
        problem.arrays["b"] = numbers((2, 20, 48), "bfloat16", 3)
        problem.body[1] = op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"})
    product, behind = by_library(problem)[1].launches
    assert isinstance(product, LibraryProduct)
    assert not product.addend
    assert "b" in behind.arguments
    check(problem, dtype)


def test_the_library_comes_first_where_sums_follow() -> None:
    """And for several results. Elsewhere tiles keep what follows in registers."""
    sums = gradients("bfloat16", sizes=(1024, 1024, 1024))

    def names(problem: Problem) -> list[str]:
        metas = metas_by_name(run_ops(problem.body, problem.arrays))
        return [way.name for way in gemm_kernel(problem.body, metas, problem.needed).candidates(H200)]

    assert names(sums)[0] == "library + library"
    assert not any("256" in name for name in names(sums) if name.endswith("+ library"))
    one = linear("bfloat16", saved=False, sizes=(2048, 64, 4096))
    assert names(one)[:2] == ["generated 128x128x64", "generated 128x256x64"]
    one.body[2:] = [op("scale", {"X": "z"}, {"Out": "s"}, scale=2.0), op("relu", {"X": "s"}, {"Out": "y"})]
    assert names(Problem(one.body, one.arrays, ["s", "y"]))[0] == "library"
    few = linear("bfloat16", saved=False, sizes=(128, 64, 128))
    assert names(few)[0] == "generated 64x64x64", "the smallest where there are fewer tiles than multiprocessors"


def test_one_gradient() -> None:
    check(gradients(wanted=("dz", "db")), "float32")


def test_accumulation_of_a_weight_gradient() -> None:
    """What another branch has made is added as the product is stored, in its memory."""
    problem = gradients(wanted=("dw",))
    body = [
        op("matmul_v2_grad", {"X": "x", "Y": "w", "Out@GRAD": "dy"}, {"Y@GRAD": "dw"}),
        FrozenOp(op_def("sum"), (("before", "dw"),), ("total",), op_def("sum").complete({})),
    ]
    arrays = {n: problem.arrays[n] for n in ("x", "w", "dy")} | {"before": numbers((53, 37), "float32", 9)}
    check(Problem(body, arrays, ["total"]), "float32")
    known = {**arrays, "dw": arrays["before"], "total": arrays["before"]}
    kernel = gemm_kernel(body, metas_by_name(known), ["total"])
    assert kernel.inplace == (("before", "total"),)


def test_the_product_itself_is_kept() -> None:
    problem = linear("bfloat16")
    check(Problem(problem.body, problem.arrays, ["p", "y"]), "bfloat16")


def test_mul_flattens() -> None:
    body = [
        op("mul", {"X": "x", "Y": "w"}, {"Out": "p"}, x_num_col_dims=2, y_num_col_dims=2),
        op("elementwise_add", {"X": "p", "Y": "r"}, {"Out": "y"}),
    ]
    shapes = {"x": (3, 11, 4, 5), "w": (4, 5, 7, 6), "r": (3, 11, 7, 6)}
    check(Problem(body, {v: numbers(s, "float32", i) for i, (v, s) in enumerate(shapes.items())}, ["y"]), "float32")


@pytest.mark.parametrize("sizes", [(1, 7, 5), (40, 1, 3), (3, 5, 1), (1, 1, 1), (33, 17, 33), (64, 64, 64)])
def test_sizes(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    body = [
        op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}),
        op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"}, axis=1),
        op("tanh", {"X": "z"}, {"Out": "y"}),
    ]
    arrays = {"x": numbers((m, k), "float32", 0), "w": numbers((k, n), "float32", 1), "b": numbers((n,), "float32", 2)}
    check(Problem(body, arrays, ["y"]), "float32")


def test_no_product_of_batches() -> None:
    arrays = {"x": numbers((2, 3, 4), "float32", 0), "w": numbers((2, 4, 5), "float32", 1)}
    body = [op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}), op("relu", {"X": "p"}, {"Out": "y"})]
    known = run_ops(body, arrays)
    with pytest.raises(CodegenUnsupported) as found:
        gemm_kernel(body, metas_by_name(known), ["y"])
    assert found.value.code == "NOT_A_MATRIX"


def test_sums_over_other_axes_are_refused() -> None:
    body = [
        op("matmul_v2_grad", {"X": "x", "Y": "w", "Out@GRAD": "dy"}, {"X@GRAD": "dx"}),
        op("elementwise_add_grad", {"X": "x", "Y": "b", "Out@GRAD": "dx"}, {"Y@GRAD": "db"}, axis=0),
    ]
    shapes = {"x": (34, 53), "w": (53, 37), "dy": (34, 37), "b": (34,)}
    arrays = {v: numbers(s, "float32", i) for i, (v, s) in enumerate(shapes.items())}
    with pytest.raises(CodegenUnsupported) as found:
        gemm_kernel(body, metas_by_name(run_ops(body, arrays)), ["db"])
    assert found.value.code == "SUM_SHAPE"


def test_chips_multiply_wide_types_by_their_library() -> None:
    """Kernels for chips multiply 16-bit elements whose loads are wide; TF32 is nobody's default."""

    def planned(dtype: str, k: int, *needed: str) -> str:
        body = linear(dtype).body
        shapes = {
            "x": (2, 512, k),
            "w": (k, 512),
            "b": (512,),
            "p": (2, 512, 512),
            "z": (2, 512, 512),
            "y": (2, 512, 512),
        }
        metas = metas_by_name({n: np.empty(s, dtype_of(dtype).np) for n, s in shapes.items()})
        return gemm_kernel(body, metas, needed).plan(H200).name

    assert planned("bfloat16", 768, "y").startswith("generated")
    assert planned("bfloat16", 767, "y") == "library"
    assert planned("bfloat16", 768, "z", "y") == "library"
    assert planned("float32", 768, "z", "y") == "library"
