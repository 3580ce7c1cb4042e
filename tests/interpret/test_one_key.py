"""A query that sees one key: its weight is 1, so that gradients of queries and keys are exactly 0, fused and unfused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.attention_blocks import Block, recipe
from tests.helpers.drawn import BY_NAME, only
from tests.helpers.soak import SOAK
from tstatic import flags, static
from tstatic.devices import standing_in
from tstatic.devices.planned import planned_device
from tstatic.runtime.scope import Scope
from tstatic.target import TINY
from tstatic.testing.runner import start_values

Array = np.ndarray[Any, Any]
F = paddle.nn.functional
CORE, BLOCK = BY_NAME["dot_product_attention"], BY_NAME["attention"]
ROWS, KEYS = 20, 35
ONLY = np.random.default_rng(5).integers(0, KEYS, ROWS)
"""The key that each query sees under a mask in memory."""
QUICK = ("shared keys", "float16", "behind a cast")


def one_each(value: float) -> Array:
    mask = np.full((ROWS, KEYS), value, "f4")
    mask[np.arange(ROWS), ONLY] = 0
    return mask


def padding(value: float) -> Array:
    mask = np.full((2, 1, 1, KEYS), value, "f4")
    mask[..., 3] = 0
    return mask


def causal(value: float) -> Callable[[Any], Any]:
    return lambda s: s + paddle.triu(paddle.full(s.shape[-2:], value, s.dtype), 1)


def fed(mask: Array) -> Callable[[Any], Any]:
    return lambda s: s + paddle.assign(mask).astype(s.dtype)


MASKS: dict[str, tuple[Callable[[Any], Any], slice]] = {
    "one key": (lambda s: s, slice(None)),
    "causal": (causal(float("-inf")), slice(0, 1)),
    "causal, finite": (causal(-1e9), slice(0, 1)),
    "one for each query": (fed(one_each(float("-inf"))), slice(None)),
    "one for each query, finite": (fed(one_each(-3e4)), slice(None)),
    "padding": (fed(padding(-3e4)), slice(None)),
}
"""How scores are masked, and the queries that see one key."""
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared keys": {"shared": True},
    "dropout": {"dropout": 0.25},
    "behind a cast": {"wide": True, "dtype": "float16"},
    "float16": {"dtype": "float16"},
    "float64": {"dtype": "float64"},
    "tf32": {"tf32": True},
    "unscaled": {"scale": None},
}
PAIRS = [
    (mask, form)
    for mask in MASKS
    for form in FORMS
    if SOAK
    or form == "plain"
    or (mask == "causal" and form in (*QUICK, "tf32"))
    or (mask == "one for each query" and form in QUICK)
    or (mask == "one key" and form == "dropout")
]


def program(mask: str, *, dtype: str = "float32", shared: bool = False, dropout: float = 0.0, wide: bool = False,
            scale: float | None = 0.35, **_: Any) -> tuple[Any, list[Any]]:  # fmt: skip
    """An attention, and the gradients of queries, keys and values of what arrives."""
    keys, heads = 1 if mask == "one key" else KEYS, 1 if shared else 3
    main = static.Program()
    main.random_seed = 7
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q = static.data("q", [2, 3, ROWS, 16], dtype)
        k, v = (static.data(name, [2, heads, keys, 16], dtype) for name in "kv")
        for one in (q, k, v):
            one.stop_gradient = False
        scores = paddle.matmul(q, k, transpose_y=True)
        scores = scores if scale is None else paddle.scale(scores, scale)
        weights = F.softmax(MASKS[mask][0](scores.astype("float32") if wide else scores))
        weights = F.dropout(weights, dropout) if dropout else weights
        out = paddle.matmul(weights.astype(dtype), v)
        gradients = static.gradients([out], [q, k, v], [static.data("given", list(out.shape), dtype)])
    return main, [out, *gradients]


def arrays(mask: str, dtype: str, shared: bool = False) -> dict[str, Array]:
    """Large scores, where nothing but the one weight is not 0; what arrives is 0 for other queries."""
    rng = np.random.default_rng(3)
    keys, heads = 1 if mask == "one key" else KEYS, 1 if shared else 3
    shapes = {"q": (2, 3, ROWS, 16), "k": (2, heads, keys, 16), "v": (2, heads, keys, 16), "given": (2, 3, ROWS, 16)}
    found = {name: 3 * rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    kept = np.zeros_like(found["given"])
    kept[..., MASKS[mask][1], :] = found["given"][..., MASKS[mask][1], :]
    return {name: array.astype(dtype) for name, array in (found | {"given": kept}).items()}


@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize(("mask", "form"), PAIRS)
def test_gradients_of_queries_and_keys_are_zero_in_every_way(mask: str, form: str) -> None:
    """Adam makes a full step of whatever is left, even of 4e-8: each way in which a chip may launch is run."""
    given = FORMS[form]
    dtype = given.get("dtype", "float32")
    allowed = flags.get_flags("FLAGS_allow_tf32")
    paddle.set_flags({"FLAGS_allow_tf32": given.get("tf32", False)})
    try:
        main, fetches = program(mask, **given)
        feed = arrays(mask, dtype, given.get("shared", False))
        compiled = static.CompiledProgram(main, only(CORE.switch))
        told = compiled.explain(fetch_list=fetches)
        assert {a.op for a in told.applied} == {"fused_dot_product_attention", "fused_dot_product_attention_grad"}
        unfused = static.Executor().run(main, feed=feed, fetch_list=fetches)
        check(unfused, "unfused")
        for way in range(max(len(kernel.ways(TINY)) for kernel in told.kernels)):
            with standing_in(planned_device(TINY, way)):
                fused = static.Executor().run(compiled, feed=feed, fetch_list=fetches)
            check(fused, f"way {way}")
    finally:
        paddle.set_flags(allowed)


def check(found: list[Array], which: str) -> None:
    _, by_q, by_k, by_v = found
    assert not by_q.any(), f"{which}: queries {np.abs(by_q).max()}"
    assert not by_k.any(), f"{which}: keys {np.abs(by_k).max()}"
    assert by_v.any(), which


@pytest.mark.numpy_device("makes devices of its own", not_on=("torch",))
@pytest.mark.parametrize("packing", ["parts", "separate"])
def test_so_are_those_of_whole_blocks(packing: str) -> None:
    """The block's mask leaves one key for each query: weights and biases that make queries and keys have no gradient."""
    block = Block(projected=True, packing=packing, mask="pairs", rows=17, norm="pre", residual="left")
    built = recipe(block, "gradients").build()
    assert {"mask", "w_out"} <= set(built.feeds)
    mask = np.full(built.feeds["mask"].shape, -1e9, "f4")
    mask[..., np.arange(17), np.random.default_rng(1).integers(0, 17, 17)] = 0
    feeds = {**built.feeds, "mask": mask}
    names = ("w_q", "w_k", "b_q", "b_k", "w_v") if packing == "separate" else ("w_qkv", "b_qkv")
    fetches = [f"{name}@GRAD" for name in names]
    compiled = static.CompiledProgram(built.main, only(BLOCK.switch))
    told = compiled.explain(fetch_list=[*built.fetches, *fetches])
    assert {"fused_attention", "fused_attention_grad"} == {a.op for a in told.applied}
    state = start_values(built.main, built.startup)

    def run(what: Any) -> list[Array]:
        scope = Scope()
        for name, array in state.items():
            scope.publish(name, array.copy())
        found: list[Array] = static.Executor().run(what, feed=feeds, fetch_list=fetches, scope=scope)
        return found

    results = {"unfused": run(built.main)}
    for way in range(max(len(kernel.ways(TINY)) for kernel in told.kernels)):
        with standing_in(planned_device(TINY, way)):
            results[f"way {way}"] = run(compiled)
    for which, found in results.items():
        if packing == "separate":
            *zeros, values = found
        else:
            width = block.heads * block.size
            zeros, values = [one[..., : 2 * width] for one in found], found[0][..., 2 * width :]
        assert values.any()
        assert not any(one.any() for one in zeros), (which, [np.abs(one).max() for one in zeros])


@pytest.mark.parametrize("value", [-1e9, -1e30, float(np.finfo("f4").min)])
def test_rows_that_are_masked_whole_by_large_numbers(value: float) -> None:
    """All weights of such a row are equal; its gradients were as many times too large as there are keys."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q, k, v = (static.data(name, [2, ROWS, 16]) for name in "qkv")
        for one in (q, k, v):
            one.stop_gradient = False
        mask = static.data("mask", [2, 1, ROWS])
        out = paddle.matmul(F.softmax(paddle.scale(paddle.matmul(q, k, transpose_y=True), 0.25) + mask), v)
        fetches = [out, *static.gradients([out], [q, k, v])]
    rng = np.random.default_rng(0)
    feed = {name: rng.standard_normal((2, ROWS, 16)).astype("f4") for name in "qkv"}
    feed["mask"] = np.array([value, 0.0], "f4")[:, None, None] * np.ones((2, 1, ROWS), "f4")
    compiled = static.CompiledProgram(main, only(CORE.switch))
    unfused = static.Executor().run(main, feed=feed, fetch_list=fetches)
    for way in range(max(len(kernel.ways(TINY)) for kernel in compiled.explain(fetch_list=fetches).kernels)):
        with standing_in(planned_device(TINY, way)):
            fused = static.Executor().run(compiled, feed=feed, fetch_list=fetches)
        for got, wanted in zip(fused, unfused, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
