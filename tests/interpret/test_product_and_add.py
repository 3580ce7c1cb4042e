"""A product to which a bias, or a gradient that is there, is added: a chip's library makes both in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tests.interpret.kernels import run_kernel
from tstatic import static
from tstatic.devices.torch.forms import TorchForm
from tstatic.fusion.codegen.kernel import Kernel, Launches, LibraryProduct
from tstatic.ir.types import Meta, float32
from tstatic.runtime.product_and_add import PRODUCT_AND_ADD
from tstatic.target import DEFAULT_TARGET, TINY


def kernel(dtype: str = "float32", act: str | None = None, columns: int = 9) -> Kernel:
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x = static.data("x", [2, 3, 16], dtype)
        w = static.data("w", [16, columns], dtype)
        y = paddle.matmul(x, w) + static.data("b", [columns], dtype)
        if act:
            y = getattr(paddle.nn.functional, act)(y)
    told = static.CompiledProgram(main, only("fuse_gemm_epilogue")).explain([y])
    (found,) = told.kernels
    assert isinstance(found, Kernel)
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_library_adds_a_bias_that_stands_alone(dtype: str) -> None:
    made = kernel(dtype, columns=8)
    (launch,) = made.plan(DEFAULT_TARGET).launches
    assert isinstance(launch, LibraryProduct)
    assert launch.addend == "b"
    assert made.moved == (launch.dtype.itemsize * (6 * 16 + 16 * 8 + 6 * 8 + 8),), "each operand and the result once"
    assert made.moved == (made.nbytes,)


@pytest.mark.parametrize(
    "case",
    [{"act": "relu"}, {"act": "relu", "dtype": "bfloat16", "columns": 16}, {"columns": 1}],
    ids=["act", "act of 16 bits", "one column"],
)
def test_other_tails_are_kernels(case: dict[str, Any]) -> None:
    for launch in kernel(**case).plan(DEFAULT_TARGET).launches:
        assert not getattr(launch, "addend", "")


def test_strict_numerics_keep_the_bits_of_the_add() -> None:
    """What counts is the flag of the compilation: it decides which functions the kernel's text has."""
    paddle.set_flags({"FLAGS_numerics": "strict"})
    made = kernel()
    paddle.set_flags({"FLAGS_numerics": "default"})
    launches = made.plan(DEFAULT_TARGET).launches
    assert launches
    assert not any(getattr(one, "addend", "") for one in launches)


def test_the_bits_are_those_of_the_product_and_the_add() -> None:
    made = kernel()
    rng = np.random.default_rng(1)
    arrays = {v: rng.normal(size=s).astype("float32") for v, s in (("x", (2, 3, 16)), ("w", (16, 9)), ("b", (9,)))}
    (out,) = (b.value for b in made.outputs)
    wanted = arrays["x"] @ arrays["w"] + arrays["b"]
    calls: Launches = made.plan(DEFAULT_TARGET)
    found = run_kernel(made, arrays, {out: Meta((2, 3, 9), float32)}, calls=calls)
    assert np.allclose(found[out], wanted, 1e-6, 1e-6)
    assert made.plan(TINY).launches[0].function != "library product", "the interpreter runs the generated product"


def accumulated(swapped: bool = False, op: str = "add_n") -> tuple[Kernel, str]:
    """A product to which a matrix is added, and that matrix."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x, w = static.data("x", [16, 6], "float32"), static.data("w", [16, 9], "float32")
        product, there = paddle.matmul(x, w, transpose_x=True), static.data("there", [6, 9], "float32")
        pair = [there, product] if swapped else [product, there]
        y = paddle.add_n(pair) if op == "add_n" else pair[0] + pair[1]
    told = static.CompiledProgram(main, only("fuse_gemm_epilogue")).explain([y])
    (found,) = told.kernels
    assert isinstance(found, Kernel)
    return found, y.name


@pytest.mark.parametrize("op", ["add_n", "elementwise_add"])
@pytest.mark.parametrize("swapped", [False, True], ids=["product first", "product second"])
def test_the_library_adds_to_what_is_there(swapped: bool, op: str) -> None:
    made, out = accumulated(swapped, op)
    (launch,) = made.plan(DEFAULT_TARGET).launches
    assert isinstance(launch, LibraryProduct)
    assert (launch.addend, launch.addend_rows, launch.addend_shape) == ("there", 6, (6, 9))
    assert made.moved == (made.nbytes,) == (4 * (16 * 6 + 16 * 9 + 2 * 6 * 9),), "each array once"
    assert made.inplace == (("there", out),), "the sum may take its place: beta = 1 without a copy"
    rng = np.random.default_rng(2)
    arrays = {v: rng.normal(size=s).astype("float32") for v, s in (("x", (16, 6)), ("w", (16, 9)), ("there", (6, 9)))}
    wanted = arrays["x"].T @ arrays["w"] + arrays["there"]
    found = run_kernel(made, arrays, {out: Meta((6, 9), float32)}, calls=made.plan(DEFAULT_TARGET))
    assert np.allclose(found[out], wanted, 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_addend_may_lie_where_the_sum_goes(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, y, there = (rng.normal(size=s).astype(dtype) for s in ((5, 7), (7, 6), (5, 6)))
    wanted = (x.astype("float64") @ y + there).astype(dtype)
    for function, arguments in PRODUCT_AND_ADD.ref.bind_arrays((x, y, there), (there,), {}, (), {}):
        function(*arguments)
    assert np.allclose(there, wanted, 2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_its_two_forms_agree(turned: tuple[bool, bool]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    x, y, bias = (rng.normal(size=s) for s in ((5, 7) if turned[0] else (7, 5), (6, 5) if turned[1] else (5, 6), (6,)))
    attrs = {"trans_x": turned[0], "trans_y": turned[1]}
    wanted = (x.T if turned[0] else x) @ (y.T if turned[1] else y) + bias
    out = np.empty((7, 6))
    for function, arguments in PRODUCT_AND_ADD.ref.bind_arrays((x, y, bias), (out,), attrs, (), {}):
        function(*arguments)
    assert np.allclose(out, wanted)
    assert TorchForm(PRODUCT_AND_ADD).writes, "it writes where it is told"
    assert PRODUCT_AND_ADD.lower is not None
    given = [torch.from_numpy(a) for a in (x, y, bias)]
    place = torch.empty(7, 6, dtype=torch.float64)
    PRODUCT_AND_ADD.lower(torch, *given, **attrs, out=place)
    assert np.allclose(place.numpy(), wanted)
