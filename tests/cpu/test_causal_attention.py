"""Attentions whose masks are known when a program is compiled: what counts as causal, what does not, and what stays of the mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tstatic import static
from tstatic.fusion.attention import causal

F = paddle.nn.functional
BATCH, ROWS, SIZE = 2, 40, 8
"""So many rows that a mask takes more than what is folded anyway."""

Mask = Callable[[str], Any]


def full(value: float, dtype: str = "float32") -> Any:
    return paddle.full([ROWS, ROWS], value, dtype)


def compared(dtype: str) -> Any:
    places = paddle.arange(ROWS)
    later = paddle.unsqueeze(places, 0) > paddle.unsqueeze(places, 1)
    return paddle.cast(later, dtype) * -1e9


def chosen(dtype: str) -> Any:
    seen = paddle.tril(paddle.ones([ROWS, ROWS], "bool"))
    return paddle.where(seen, full(0.0, dtype), full(-1e9, dtype))


def summed(dtype: str) -> Any:
    half = paddle.triu(full(-5e8, dtype), 1)
    return paddle.reshape(half + half, [1, ROWS, ROWS])


CAUSAL: dict[str, Mask] = {
    "triu": lambda t: paddle.triu(full(-1e9, t), 1),
    "triu of -inf": lambda t: paddle.triu(full(float("-inf"), t), 1),
    "tril": lambda t: (1.0 - paddle.tril(full(1.0, t))) * -1e9,
    "assigned": lambda t: paddle.assign(np.triu(np.full((ROWS, ROWS), -1e9, "float32"), 1)),
    "assigned and cast": lambda t: paddle.cast(paddle.assign(np.triu(np.full((ROWS, ROWS), -1e30), 1)), t),
    "where": chosen,
    "arange": compared,
    "sum, reshaped": summed,
    "one per batch": lambda t: paddle.expand(paddle.triu(full(-1e9, t), 1), [BATCH, ROWS, ROWS]),
    "another diagonal": lambda t: paddle.triu(full(-1e9, t), 3),
}
NOT_CAUSAL: dict[str, Mask] = {
    "fed": lambda t: static.data("mask", [ROWS, ROWS], t),
    "of what is fed": lambda t: paddle.triu(full(-1e9, t) + 0.0 * static.data("mask", [ROWS, ROWS], t), 1),
    "off by one": lambda t: paddle.triu(full(-1e9, t), 0),
    "below the diagonal": lambda t: paddle.tril(full(-1e9, t), -1),
    "one row for all": lambda t: paddle.triu(full(-1e9, t), 1)[5],
    "drawn": lambda t: paddle.triu(paddle.uniform([ROWS, ROWS], t, -2e9, -1e9), 1),
}


class Net:
    """A program with an attention and its gradients."""

    def __init__(self, attention: Callable[[Any, Any, Any], Any], dtype: str = "float32", keys: int = ROWS) -> None:
        self.main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, static.Program()):
            parts = [static.data(n, [BATCH, keys if n in "kv" else ROWS, SIZE], dtype) for n in "qkv"]
            for one in parts:
                one.stop_gradient = False
            out = attention(*parts)
            given = static.data("given", list(out.shape), dtype)
            self.fetches = [v.name for v in (out, *static.gradients([out], parts, [given]))]
        rng = np.random.default_rng(1)
        self.feed = {
            v.name: rng.standard_normal([BATCH if n < 0 else n for n in v.shape]).astype(v.dtype.np)
            for v in self.main.list_vars()
            if v.is_data
        }

    def compiled(self) -> Any:
        return static.CompiledProgram(self.main, only("fuse_dot_product_attention"))

    def told(self) -> Any:
        shapes = {n: a.shape for n, a in self.feed.items()}
        told = self.compiled().explain(self.fetches, shapes)
        assert len(told.applied) == 2, [(r.code, r.reason) for r in told.refused]
        return told

    def check(self) -> None:
        exe = static.Executor("cpu")
        plain = exe.run(self.main, feed=self.feed, fetch_list=self.fetches)
        fused = exe.run(self.compiled(), feed=self.feed, fetch_list=self.fetches)
        for a, b in zip(plain, fused, strict=True):
            assert not np.isnan(a).any()
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)


def masked(mask: Mask, dtype: str = "float32", more: Callable[[Any], Any] = lambda s: s) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), 0.5) + mask(dtype)
        return paddle.matmul(F.softmax(more(scores)), v)

    return attention


def is_causal(told: Any) -> bool:
    """Whether the kernels know the diagonal; then they read no mask, and nothing makes one."""
    found = {"<= rows[:, None]" in kernel.code for kernel in told.kernels}
    assert len(found) == 1, "forward and backward agree"
    read = {b.value for kernel in told.kernels for b in kernel.inputs if b.count == ROWS * ROWS}
    assert bool(read) != found.copy().pop()
    return found.pop()


@pytest.mark.parametrize("name", CAUSAL)
def test_masks_that_are_causal(name: str) -> None:
    net = Net(masked(CAUSAL[name]))
    told = net.told()
    assert is_causal(told)
    assert not told.refused
    net.check()


@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_masks_that_are_not(name: str) -> None:
    told = Net(masked(NOT_CAUSAL[name])).told()
    assert not any("<= rows[:, None]" in kernel.code for kernel in told.kernels)
    assert not told.refused


def test_nothing_makes_the_mask_any_more() -> None:
    """In every step, that is: it is a constant of the plan, from which the CPU's operators read it."""
    net = Net(masked(CAUSAL["tril"]))
    compiled = net.compiled()
    static.Executor("cpu").run(compiled, feed=net.feed, fetch_list=net.fetches)
    types = [op.type for op in compiled.program.global_block().ops]
    assert "fused_dot_product_attention" in types
    assert not {"fill_constant", "tril_triu", "scale"} & set(types)


def test_a_mask_that_is_fetched_is_there() -> None:
    net = Net(masked(CAUSAL["triu"]))
    (name,) = (op.output("Out")[0] for op in net.main.global_block().ops if op.type == "tril_triu")
    compiled = net.compiled()
    got = static.Executor("cpu").run(compiled, feed=net.feed, fetch_list=[*net.fetches, name])[-1]
    np.testing.assert_array_equal(got, np.triu(np.full((ROWS, ROWS), -1e9, "float32"), 1))


@pytest.mark.parametrize("keys", [ROWS + 9, ROWS - 9])
def test_more_keys_or_fewer(keys: int) -> None:
    """Bottom-right aligned: with fewer keys than rows, the first rows would see none, and softmax decides what they give."""
    mask = np.triu(np.full((ROWS, keys), -1e9, "float32"), keys - ROWS + 1)
    net = Net(masked(lambda t: paddle.assign(mask)), keys=keys)
    assert any("<= rows[:, None]" in kernel.code for kernel in net.told().kernels) is (keys > ROWS)
    net.check()


# ------------------------------------------------------------------------------------------------- not far enough for it
@pytest.mark.parametrize(("dtype", "value"), [("float32", -1e4), ("float32", -9.9e8), ("float16", -65504.0)])
def test_finite_masks_are_told(dtype: str, value: float) -> None:
    net = Net(masked(lambda t: paddle.triu(full(value, t), 1), dtype), dtype)
    told = net.told()
    assert not is_causal(told)
    (no,) = told.refused
    assert no.code == "MASK_FINITE"
    assert [m.type for m in no.members] == ["elementwise_add", "softmax"]
    assert f"{value:g}" in no.reason
    assert "-inf" in no.change
    assert "MASK_FINITE" in str(told)
    if dtype == "float32":
        net.check()


def padded(net_mask: float, other: Mask, before: bool) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        parts = [paddle.triu(full(net_mask), 1), other("float32")]
        scores = paddle.matmul(q, k, transpose_y=True)
        for part in parts[::-1] if before else parts:
            scores = scores + part
        return paddle.matmul(F.softmax(scores), v)

    return attention


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("value", [-1e9, float("-inf")])
def test_beside_another_mask_only_minus_infinity_counts(value: float, before: bool) -> None:
    """Where the other mask hides all that a row sees with a number as large, the row gives what lies above the diagonal, too."""
    net = Net(padded(value, lambda t: static.data("mask", [BATCH, 1, ROWS], t), before))
    net.feed["mask"] = np.where(np.arange(ROWS) < 3, -1e9, 0).astype("float32") * np.ones((BATCH, 1, 1), "float32")
    told = net.told()
    assert any("<= rows[:, None]" in k.code for k in told.kernels) is (value != -1e9)
    assert [r.code for r in told.refused] == (["MASK_FINITE"] if value == -1e9 else [])
    net.check()


@pytest.mark.parametrize(
    ("value", "more", "wanted"),
    [
        (float("-inf"), lambda s: s * 0.5, True),
        (float("-inf"), lambda s: s * -0.5, False),
        (float("-inf"), paddle.tanh, False),
        (-1e9, lambda s: s * 1e-6, False),
        (-1e9, paddle.tanh, False),
    ],
)
def test_what_follows_the_mask_must_keep_it(value: float, more: Callable[[Any], Any], wanted: bool) -> None:
    told = Net(masked(lambda t: paddle.triu(full(value), 1), more=more)).told()
    assert any("<= rows[:, None]" in kernel.code for kernel in told.kernels) is wanted


def test_a_mask_that_is_too_large_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "LARGEST", 4 * ROWS * ROWS - 1)
    told = Net(masked(CAUSAL["triu"])).told()
    assert not any("<= rows[:, None]" in kernel.code for kernel in told.kernels)


def test_the_function_of_attention_is_causal() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (paddle.unsqueeze(part, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    net = Net(attention)
    assert is_causal(net.told())
    net.check()


def test_strict_numerics_refuse_and_change_nothing() -> None:
    net = Net(masked(CAUSAL["triu"]))
    exe = static.Executor("cpu")
    plain = exe.run(net.main, feed=net.feed, fetch_list=net.fetches)
    paddle.set_flags({"FLAGS_numerics": "strict"})
    compiled = net.compiled()
    told = compiled.explain(net.fetches, {n: a.shape for n, a in net.feed.items()})
    assert not told.applied
    assert {r.code for r in told.refused} == {"NUM_STRICT"}
    fused = exe.run(compiled, feed=net.feed, fetch_list=net.fetches)
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_array_equal(a, b)
