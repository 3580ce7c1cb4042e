"""Products of a device's library with generated kernels behind them: planned as for a chip, run by both kinds of devices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.chips import chip
from tests.helpers.drawn import BY_NAME, only
from tests.helpers.epilogue_programs import epilogue_recipe
from tests.helpers.feedforward_programs import Block, recipe
from tstatic import static, testing
from tstatic.fusion.codegen.kernel import LibraryProduct
from tstatic.runtime import generated

GEMM, BLOCK = BY_NAME["gemm_epilogue"].switch, BY_NAME["feedforward"].switch


@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize("kind", ["interpret", "gpu"])
def test_the_library_multiplies_and_kernels_go_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32, and of sizes whose loads are narrow."""
    count: Counter[str] = Counter()
    product = generated._product

    def counted(device: Any, one: LibraryProduct, *rest: Any) -> Any:
        count[type(device).__name__] += 1
        count[one.dtype.name] += 1
        count["turned"] += one.trans_a or one.trans_b
        return product(device, one, *rest)

    monkeypatch.setattr(generated, "_product", counted)
    with chip(kind, monkeypatch):
        for number in range(4, 44, 10):
            testing.assert_equivalent(epilogue_recipe(number, "gradients"), only(GEMM), shrink=False)
        testing.assert_equivalent(epilogue_recipe(19, "training"), only(GEMM), shrink=False)
        block = recipe(Block(norm="pre", dropout=(0.3, 0.25)), backward=True)
        testing.assert_equivalent(block, only(BLOCK), shrink=False)
    print(dict(count))
    assert set(count) >= {"float32", "turned", "Chip" if kind == "gpu" else "InterpretDevice"}
    assert len(count) >= 4, "a type of 16 bits, too"
    assert count["float32"] >= 5


@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize("kind", ["interpret", "gpu"])
def test_the_library_adds_a_bias_of_16_bits_and_a_kernel_reads_the_sum(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward it writes what the gradient reads; backward a kernel makes sums over the rows of what it made."""
    seen: list[LibraryProduct] = []
    product = generated._product

    def counted(device: Any, one: LibraryProduct, *rest: Any) -> Any:
        seen.append(one)
        return product(device, one, *rest)

    monkeypatch.setattr(generated, "_product", counted)
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x, w, b = (static.data(n, s, "bfloat16") for n, s in (("x", [24, 16]), ("w", [16, 40]), ("b", [40])))
        last = static.data("last", [40, 8], "bfloat16")
        given = [x, w, b, last]
        for v in given:
            v.stop_gradient = False
        out = paddle.matmul(paddle.nn.functional.gelu(paddle.matmul(x, w) + b), last)
        gradients = static.gradients([out], given)
    with chip(kind, monkeypatch):
        testing.assert_equivalent(main, only(GEMM), fetch_list=[out, *gradients])
    assert any(one.addend == "b" and one.addend_shape == (40,) and not one.out.startswith("partial:") for one in seen)
    assert any(one.out.startswith("partial:") for one in seen), "that of the gradient lies in memory of its own"
