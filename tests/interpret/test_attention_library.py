"""Attentions whose products the library makes: float32 in full precision, planned as for a chip, a few batches at a time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.attention_blocks import block_recipe, layout_recipe
from tests.helpers.attention_programs import attention_recipe
from tests.helpers.chips import chip
from tests.helpers.drawn import BY_NAME, only
from tests.interpret.faults import Fault, _replaced, caught
from tests.interpret.kernels import run_kernel
from tstatic import static, testing
from tstatic.fusion.attention.library import MOST_BYTES, LibraryWay, cuts
from tstatic.fusion.codegen.kernel import Kernel, LibraryProduct
from tstatic.ir.types import Meta
from tstatic.runtime import generated
from tstatic.target import H200, TINY

CORE, BLOCK = BY_NAME["dot_product_attention"], BY_NAME["attention"]
SMALL = replace(H200, l2_bytes=1 << 13)
"""A chip whose cache holds the scores of one batch or two of the drawn programs."""

Recipe = Callable[[int, str], testing.Recipe]


def is_full_precision(recipe: testing.Recipe) -> bool:
    return all(str(getattr(one, "dtype", "float32")) in ("float32", "float64", "int64") for one in recipe.inputs)


def numbers(recipe: Recipe, kind: str, count: int) -> list[int]:
    """Numbers of drawn programs that are of float32."""
    found: list[int] = []
    number = 0
    while len(found) < count:
        if is_full_precision(recipe(number, kind)):
            found.append(number)
        number += 1
    return found


@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize("kind", ["interpret", "gpu"])
@pytest.mark.parametrize(
    ("recipe", "switch", "count"),
    [
        (attention_recipe, CORE.switch, 8),
        (layout_recipe, CORE.switch, 4),
        (block_recipe, BLOCK.switch, 3),
    ],
    ids=["attentions", "packed operands", "whole blocks"],
)
def test_drawn_programs_agree(
    recipe: Recipe, switch: str, count: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    product = generated._product

    def counted(device: Any, one: LibraryProduct, *rest: Any) -> Any:
        if one.batched:
            seen["gradients" if one.trans_a else "scores" if one.trans_b else "results"] += 1
            seen["through strides"] += not all(at.lie_together for _, at in one.matrices)
        return product(device, one, *rest)

    monkeypatch.setattr(generated, "_product", counted)
    with chip(kind, monkeypatch, SMALL):
        for number in numbers(recipe, "gradients", count):
            try:
                testing.assert_equivalent(recipe(number, "gradients"), only(switch), shrink=False)
            except testing.EquivalenceError as error:
                raise AssertionError(f"program {number}: {error}") from None
    print(dict(seen))
    # Six products for each run of batches, two of scores forward, and there are more runs than programs.
    assert seen["scores"] > 3 * count
    assert min(seen["gradients"], seen["results"], seen["through strides"]) > count


def explained(dtype: str, heads: int = 2, shared: bool = False, rows: int = 33) -> static.Explanation:
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q = static.data("q", [3, heads, rows, 16], dtype)
        k, v = (static.data(name, [3, 1 if shared else heads, rows, 16], dtype) for name in "kv")
        for one in (q, k, v):
            one.stop_gradient = False
        out = paddle.matmul(paddle.nn.functional.softmax(paddle.matmul(q, k, transpose_y=True)), v)
        fetches = [out, *static.gradients([out], [q, k, v])]
    return static.CompiledProgram(main, only(CORE.switch)).explain(fetch_list=fetches)


def kernels(dtype: str, heads: int = 2, shared: bool = False, rows: int = 33) -> list[Kernel]:
    return list(explained(dtype, heads, shared, rows).kernels)


def ways(made: list[Kernel]) -> list[bool]:
    """Whether the library makes the products, forward and backward."""
    return [any(isinstance(one, LibraryProduct) for one in kernel.plan(H200).launches) for kernel in made]


def test_which_attentions_the_library_multiplies() -> None:
    assert ways(kernels("float32")) == [True, True]
    assert ways(kernels("float64")) == [True, True]
    assert ways(kernels("bfloat16")) == [False, False]
    assert ways(kernels("float32", shared=True)) == [True, False], "gradients of shared keys are sums over heads"
    assert ways(kernels("float32", rows=1 << 13)) == [True, True]
    long = (1 << 13) + 1
    assert 4 * long**2 > MOST_BYTES
    assert ways(kernels("float32", rows=long)) == [False, False], "scores that are not to be held"
    paddle.set_flags({"FLAGS_allow_tf32": True})
    try:
        assert ways(kernels("float32")) == [False, False]
    finally:
        paddle.set_flags({"FLAGS_allow_tf32": False})


def test_explanations_say_so_and_what_would_be_a_kernel() -> None:
    for dtype, remedy in (("float32", "FLAGS_allow_tf32, or 16 bits, make"), ("float64", "16 bits make")):
        told = explained(dtype)
        line = f"attentions of {dtype}: 9 launches, since only the library multiplies it in full precision; {remedy} each a kernel"
        assert line in str(told)
        assert " bytes in 2 x library product, " in told.to_text(verbose=True)
    assert "only the library" not in str(explained("bfloat16"))


def test_scores_of_as_many_batches_are_held_as_the_cache_has_room_for() -> None:
    for kernel, buffers in zip(kernels("float32", heads=64, rows=512), (1, 2), strict=True):
        calls = kernel.plan(H200)
        held = sum(n * dtype.itemsize for n, dtype in calls.partials.values())
        assert H200.l2_bytes / 4 < held <= H200.l2_bytes / 2
        products = [one for one in calls.launches if isinstance(one, LibraryProduct)]
        # Of 192 batches of 1 MiB each.
        assert sum(one.count for one in products) == 192 * (2 if buffers == 1 else 5)
        # Half of the cache is 25 MiB: runs of 22 heads, or of 11 where there are two buffers, in each of three batches.
        assert len(calls.launches) == (3 * 3 * 3 if buffers == 1 else 6 * 6 * 3)


@pytest.mark.parametrize(
    ("batch", "most"), [((), 1), ((5,), 2), ((2, 3), 4), ((4, 3, 2), 6), ((4, 3, 2), 5), ((2, 2), 99)]
)
def test_runs_of_batches_are_all_batches_in_order(batch: tuple[int, ...], most: int) -> None:
    first = 0
    for cut in cuts(batch, most):
        assert cut.first == first
        assert 1 <= cut.count <= max(1, most)
        assert len(cut.along) == len(batch)
        first += cut.count
    assert first == math.prod(batch)


def _first_batch(patch: pytest.MonkeyPatch, hits: list[str]) -> None:
    """Every run of batches reads masks and random numbers of the first one."""
    launch = LibraryWay._rows_launch

    def first(self: LibraryWay, name: str, cut: Any, target: Any) -> Any:
        hits.append(name)
        return launch(self, name, replace(cut, first=0), target)

    patch.setattr(LibraryWay, "_rows_launch", first)


def _both_ways(change: Callable[[str], str]) -> dict[str, list[Any]]:
    """Results of a causal attention and of its gradients by kernels alone and by the library; what is not finite reaches."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q, k, v = (static.data(name, [2, 40, 16], "float32") for name in "qkv")
        given = static.data("given", [2, 40, 16], "float32")
        for one in (q, k, v):
            one.stop_gradient = False
        mask = paddle.triu(paddle.full([40, 40], float("-inf")), 1)
        out = paddle.matmul(paddle.nn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.25 + mask), v)
        fetches = [out, *static.gradients([out], [q, k, v], [given])]
    kernels = static.CompiledProgram(main, only(CORE.switch)).explain(fetch_list=fetches).kernels
    arrays = {name: np.random.default_rng(i).standard_normal((2, 40, 16), np.float32) for i, name in enumerate("qkv")}
    arrays["given"] = arrays["q"][::-1].copy()
    found: dict[str, list[Any]] = {}
    for kernel in kernels:
        outputs = {b.value: Meta((2, 40, b.count // 80), b.dtype) for b in kernel.outputs}
        inputs = {b.value: arrays[b.value] for b in kernel.inputs}
        first, *_, last = [*kernel.candidates(TINY)] * 2
        for way in (first, last):
            broken = replace(kernel, code=change(kernel.code)) if way.name == "library" else kernel
            got = run_kernel(broken, inputs, outputs, calls=way)
            for name, array in got.items():
                found.setdefault(name, []).append(array)
        arrays |= {name: found[name][0] for name in outputs}
    # A row that is NaN; a value that is infinite.
    inputs = {b.value: arrays[b.value] for b in kernels[1].inputs}
    row, value = ({name: array.copy() for name, array in inputs.items()} for _ in range(2))
    row["q"][1, 21] = row[next(name for name in row if name.endswith("@SAVED"))][1, 21] = np.nan
    value["v"][1, 30] = np.inf
    with np.errstate(invalid="ignore"):
        found["reached"] = [
            np.isnan(run_kernel(broken, given, outputs, calls=way)[name]).any(-1)
            for given, name in ((row, "v@GRAD"), (value, "q@GRAD"))
        ]
    return found


def _agree(found: dict[str, list[Any]]) -> bool:
    *pairs, (values, rows) = found.values()
    # A row reaches the gradients of the values that it sees, a value those of the rows that see it.
    whole = values[0].any() or values[1, 22:].any() or rows[0].any() or rows[1, :30].any()
    return all(np.allclose(a, b, 1e-4, 1e-5) for a, b in pairs) and not whole


def test_rows_of_several_blocks_agree_with_the_kernels_that_multiply() -> None:
    found = _both_ways(lambda text: text)
    assert len(found) == 6
    assert _agree(found)
    values, rows = found["reached"]
    assert values[1, :22].all()
    assert rows[1, 30:].all()


@pytest.mark.parametrize(
    ("line", "by"),
    [
        (r"tl\.where\(seen, (tl\.exp\(.*\)), 0\.0\)", r"\1"),
        (r"d = tl\.where\(seen, (tl\.load.*), 0\.0\)", r"d = \1"),
        (r"total = total \* tl\.exp\(top - shift\) \+", "total ="),
    ],
    ids=[
        "what a row does not see is left",
        "gradients that it does not see are left",
        "powers of the last block alone",
    ],
)
def test_faults_in_several_blocks_of_a_row_are_caught(line: str, by: str) -> None:
    hits: list[int] = []

    def change(text: str) -> str:
        broken, count = re.subn(line, by, text)
        hits.append(count)
        return broken

    assert not _agree(_both_ways(change))
    assert any(hits)


FAULTS = (
    Fault("masks and numbers of other batches", _first_batch),
    _replaced("weights that do not add up to 1", r"/ total\[:, None\]", ""),
    _replaced("gradient without its sums", r"p \* \(d - sums\[:, None\]\)", "p * d"),
)


@pytest.mark.slow
@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_planted_faults_are_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = numbers(attention_recipe, "gradients", 30)
    with pytest.MonkeyPatch.context() as patch, chip("interpret", patch, SMALL):
        found = caught(fault, monkeypatch, lambda i, kind: attention_recipe(chosen[i], kind), CORE.switch, 30)
    assert found is not None
