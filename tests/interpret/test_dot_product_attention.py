"""Kernels of attentions: drawn programs agree with the operators alone, rows that attend to nothing, planted faults."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.attention_programs import attention_recipe
from tests.helpers.drawn import BY_NAME, made, only
from tests.helpers.soak import SOAK, shards
from tests.interpret.faults import ATTENTION_FAULTS, Fault, caught
from tests.interpret.kernels import MOST_PROGRAMS, metas_by_name, run_kernel, run_ops
from tests.interpret.test_attention import made as attention_of
from tests.interpret.test_gemm import numbers
from tests.interpret.test_script import run_here
from tstatic import static, testing
from tstatic.fusion.attention.kernel import attention_kernel
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import cache
from tstatic.target import H200, TINY

FUSION = BY_NAME["dot_product_attention"]
MOST = 40
"""Programs within which a fault must be caught."""
PROGRAMS = int(os.environ.get("TSTATIC_ATTENTIONS", "20000" if SOAK else str(4 * MOST)))
SHARDS = 20 if SOAK else 4


def kind_of(number: int) -> str:
    """Every fifth program has all gradients, every twentieth is trained."""
    return "training" if number % 20 == 19 else "gradients" if number % 5 == 4 else "forward"


def rounding_of_sums(recipe: testing.Recipe) -> float:
    """How far a gradient in 16 bits may be off because a row's gradients of scores take their sum from the rounded result.

    The operators alone do not have this rounding. Where one weight of a row is nearly 1, its gradient is the small difference of
    two large numbers, the gradient of this weight and the sum over the row. That sum is off by up to half a unit of the result's
    type, times the absolute products of result and gradient; what follows multiplies by the weights, whose sum is 1, and by the
    other operand of the product.
    """
    built = recipe.build()
    given = next((name for name in built.feeds if name.endswith("_bar")), None)
    if given is None:
        return 0.0
    (out,) = static.Executor().run(built.main, feed=built.feeds, fetch_list=[given.removesuffix("_bar")])
    products = np.abs(out.astype(np.float64) * built.feeds[given].astype(np.float64)).sum(-1)
    operands = max(float(np.abs(built.feeds[name].astype(np.float64)).max()) for name in ("x0", "x1"))
    half = float(ml_dtypes.finfo(out.dtype).eps) / 2
    return half * float(products.max()) * operands


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_drawn_programs_agree(shard: int) -> None:
    count: Counter[str] = Counter()
    for place in range(shard * PROGRAMS // SHARDS, (shard + 1) * PROGRAMS // SHARDS):
        recipe = attention_recipe(place, kind_of(place))
        records = made(FUSION, recipe)
        if not records and [one.name for one in recipe.inputs if one.parameter] == ["x2"]:
            # Its gradient is a product with the weights, which the unfused forward part must leave behind.
            count["only values are trained"] += 1
        for record in records:
            count[record.op] += 1
            assert record.kernel is not None
            for launch in record.kernel.plan(TINY).launches:
                # Two blocks along each axis, and few, as each costs milliseconds.
                assert launch.grid[0] > 1, launch.function
                assert math.prod(launch.grid) <= MOST_PROGRAMS, launch.function
            count["causal"] += "<= rows[:, None]" in record.kernel.code
            count["dropout"] += "draws + " in record.kernel.code
        count["mixed precision"] += any(step.type == "cast" for step in recipe.steps)
        try:
            testing.assert_equivalent(recipe, only(FUSION.switch), shrink=False)
        except testing.EquivalenceError as error:
            found = error.difference
            low = found is not None and found.reason == "value" and found.fused.dtype.itemsize == 2
            more = rounding_of_sums(recipe) if low else 0.0
            if not (low and abs(float(found.fused) - float(found.y64)) <= found.allowed + more):
                raise AssertionError(f"program {place} ({kind_of(place)}): {error}") from None
            count["near"] += 1
    print(dict(count))
    programs = PROGRAMS // SHARDS
    assert count["fused_dot_product_attention"] + count["only values are trained"] == programs
    assert count["near"] <= programs // 200
    assert count["fused_dot_product_attention_grad"] + count["only values are trained"] >= programs // 5
    assert count["causal"] >= programs // 10
    assert count["dropout"]


def test_what_is_drawn() -> None:
    count: Counter[str] = Counter()
    for place in range(100):
        types = {step.type for step in attention_recipe(place, kind_of(place)).steps}
        count.update(types)
        count["mixed, causal, gradients"] += {"cast", "tril_triu"} <= types and kind_of(place) != "forward"
    assert count["dropout"] >= 20
    assert count["cast"] >= 10
    assert count["mixed, causal, gradients"] >= 3


@pytest.mark.parametrize(
    ("causal", "line", "change"),
    [
        (True, r"sums = tl\.where\(.*\), sums\)", "pass"),
        # A row of one key takes the gradient of its weight from itself; no rounding of that gradient would show.
        (False, r"tl\.where\(p >= [\d.]+, d, (sums\[.*?\])\)", r"(1.002 * \1)"),
    ],
    ids=["sums of the stored result", "a row of one key takes a rounded sum"],
)
def test_small_gradients_of_a_softmax_in_32_bits(
    causal: bool, line: str, change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is left of a difference where a row sees a key or two."""
    triangle = np.triu(np.full((33, 33), -np.inf, np.float32), 1)
    # A mask that is fed, and leaves each row the first key.
    mask = np.where(np.arange(33) > 0, -1e4, 0).astype(np.float32)

    def check() -> Sequence[Kernel]:
        main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            q, k, v, given = (static.data(name, [2, 33, 16], "bfloat16") for name in ("q", "k", "v", "given"))
            for one in (q, k, v):
                one.stop_gradient = False
            scores = (paddle.matmul(q, k, transpose_y=True) * 0.25).astype("float32")
            scores = scores + (paddle.assign(triangle) if causal else static.data("mask", [33], "float32"))
            out = paddle.matmul(paddle.nn.functional.softmax(scores).astype("bfloat16"), v)
            fetches = [out, *static.gradients([out], [q, k, v], [given])]
        sizes = {"q": 8, "k": 2, "v": 4, "given": 4}
        feeds = [
            {n: size * numbers((2, 33, 16), "bfloat16", seed + i) for i, (n, size) in enumerate(sizes.items())}
            | ({} if causal else {"mask": mask})
            for seed in range(6)
        ]
        testing.assert_equivalent(main, only(FUSION.switch), feeds, fetches, shrink=False)
        return static.CompiledProgram(main, only(FUSION.switch)).explain(fetch_list=fetches).kernels

    for kernel in check():
        code, printed = run_here(kernel.text, tmp_path / "kernel.py")
        assert code == 0, printed
    load = cache.load
    monkeypatch.setattr(cache, "load", lambda text, title: load(re.sub(line, change, text), title))
    with pytest.raises(testing.EquivalenceError, match="q@GRAD"):
        check()


def _masked() -> tuple[Any, Any]:
    """An attention whose rows attend to nothing: in the first block of keys, in the last one, in all."""
    found, saving, mixed = attention_of("rows x columns", "float32")
    q, k = (2, 33, 16), (2, 40, 16)
    arrays = {"q": numbers(q, "float32", 0), "k": numbers(k, "float32", 1), "v": numbers(k, "float32", 2)}
    arrays["mask"] = np.zeros((33, 40), np.float32)
    arrays["mask"][3, :32] = arrays["mask"][5, 32:] = arrays["mask"][7] = -np.inf
    known = run_ops([*found.ops, *saving, mixed], arrays)
    metas = metas_by_name(known)
    kernel = attention_kernel(found, mixed, metas, "lse", saving)
    return run_kernel(kernel, arrays, {n: metas[n] for n in ("o", "lse")}), known


def test_rows_without_keys() -> None:
    got, known = _masked()
    for name in ("o", "lse"):
        np.testing.assert_allclose(got[name], known[name], rtol=1e-5, atol=1e-6)
    # Softmax of nothing is NaN, as for the operators alone; a block of nothing is not.
    assert np.isnan(got["o"][:, 7]).all()
    assert not np.isnan(got["o"][:, [3, 5]]).any()


def test_a_row_without_keys_is_what_the_shift_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    load = cache.load
    change = (re.compile(r'tl\.where\(peak == float\("-inf"\), 0\.0, ([^)]*)\)'), r"\1")
    monkeypatch.setattr(cache, "load", lambda text, title: load(change[0].sub(change[1], text), title))
    got, known = _masked()
    assert np.isnan(got["o"][:, 3]).any()
    assert not np.isnan(known["o"][:, 3]).any()


@pytest.mark.parametrize(("dtype", "keys"), [("float32", 1), ("bfloat16", 1), ("bfloat16", 5)])
def test_gradients_of_a_row_that_sees_one_key_cancel_exactly(dtype: str, keys: int) -> None:
    """A rest of 4e-8 in the row's sum would be a whole step of Adam. In mixed precision the first causal row is such a row."""
    rng = np.random.default_rng(0)
    main = static.Program()
    with static.program_guard(main):
        given = {"q": (2, 2, keys, 8), "k": (2, 2, keys, 8), "v": (2, 2, keys, 8)}
        q, k, v = (static.data(name, list(shape)) for name, shape in given.items())
        for one in (q, k, v):
            one.stop_gradient = False
        mask = paddle.triu(paddle.full([keys, keys], -1e9), 1)
        scores = paddle.matmul(*(paddle.cast(one, dtype) for one in (q, k)), transpose_y=True) * 0.35
        weights = paddle.nn.functional.softmax(paddle.cast(scores, "float32") + mask)
        out = paddle.matmul(weights if dtype == "float32" else paddle.cast(weights, dtype), paddle.cast(v, dtype))
        loss = paddle.sum(paddle.cast(out, "float32") * static.data("u", [2, 2, keys, 8]))
        gradients = static.gradients([loss], [q, k])
    strategy = static.BuildStrategy()
    strategy.fuse_dot_product_attention = True
    compiled = static.CompiledProgram(main, strategy)
    assert "fused_dot_product_attention_grad" in str(compiled.explain(fetch_list=gradients))
    # With one key the scores are large: what lies beside it in a block counts as 0, not as the power of a large number.
    size = 40 if keys == 1 else 1
    feed = {name: size * rng.standard_normal((2, 2, keys, 8)).astype("f4") for name in (*given, "u")}
    for program in (main, compiled):
        by_q, by_k = static.Executor().run(program, feed=feed, fetch_list=gradients)
        assert not by_q[:, :, 0].any()
        assert keys > 1 or not by_k.any()
        assert keys == 1 or (by_q[:, :, 1:].any() and by_k.any())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_products_of_float32_are_rounded_to_tf32_where_that_is_allowed(dtype: str, tmp_path: Path) -> None:
    def kernels() -> list[Kernel]:
        main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            q, k, v = (static.data(name, [2, 33, 16], dtype) for name in "qkv")
            for one in (q, k, v):
                one.stop_gradient = False
            out = paddle.matmul(paddle.nn.functional.softmax(paddle.matmul(q, k, transpose_y=True)), v)
            fetches = [out, *static.gradients([out], [q, k, v])]
        return list(static.CompiledProgram(main, only(FUSION.switch)).explain(fetch_list=fetches).kernels)

    exact = kernels()
    paddle.set_flags({"FLAGS_allow_tf32": True})
    try:
        rounded = kernels()
    finally:
        paddle.set_flags({"FLAGS_allow_tf32": False})
    assert len(exact) == len(rounded) == 2
    for a, b in zip(exact, rounded, strict=True):
        assert 'input_precision="tf32"' not in a.text
        assert ('input_precision="tf32"' in b.text) == (dtype == "float32")
        assert (a.text == b.text) == (dtype != "float32")
        if dtype == "float32":
            # As the launches are planned later, the flag is what it was when the kernel was made.
            assert b.plan(H200).launches[-1].constants != a.plan(H200).launches[-1].constants
            code, printed = run_here(b.text, tmp_path / "kernel.py")
            assert code == 0, printed


@pytest.mark.slow
@pytest.mark.parametrize("fault", ATTENTION_FAULTS, ids=lambda f: f.name)
def test_planted_faults_are_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(fault, monkeypatch, attention_recipe, FUSION.switch, MOST) is not None
