"""Each row of docs/differences.md about generated kernels has an example, which fails once the row is no longer true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import BY_NAME
from tests.interpret.test_special_cases import CORE, ROWS, Feeds, attention, block, both, causal, fused
from tests.interpret.test_special_fusions import EXCUSES, LISTED, PAGE
from tstatic import static

Array = np.ndarray[Any, Any]
F = paddle.nn.functional
Results = tuple[list[Array], list[Array]]
"""Unfused and fused."""


def spoilt(name: str, made: tuple[Any, list[Any], Feeds], change: Callable[[Feeds], None]) -> Results:
    """Runs a program of which the fusion takes the softmax, with feeds that are changed."""
    main, fetches, feeds = made
    fusion = BY_NAME[name]
    assert "softmax" in fused(main, fusion.switch, fetches)
    change(feeds)
    return both(main, fusion.switch, fetches, feeds)


def last_key(feeds: Feeds) -> None:
    """NaN in what all but the last query of a causal attention must not see."""
    feeds["x" if "x" in feeds else "k"][..., -1, 0] = np.nan


def arriving(feeds: Feeds) -> None:
    feeds["given"][0, ..., 0, 0] = np.inf


def padded(value: float, dtype: str = "float32") -> Results:
    """A convolution that meets padding, with a filter of which one place is such a number, and its gradient by the filter."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        x, w = static.data("x", [1, 2, 4, 4], dtype), static.data("w", [2, 1, 3, 3], dtype)
        w.stop_gradient = False
        y = F.conv2d(F.relu(x), w, padding=1, groups=2)
        fetches = [y, *static.gradients([paddle.square(y)], [w])]
    feeds = {"x": np.ones((1, 2, 4, 4), dtype), "w": np.ones((2, 1, 3, 3), dtype)}
    feeds["w"][0, 0, 0, 0] = value
    switch = BY_NAME["relu_depthwise_conv"].switch
    assert "relu" in fused(main, switch, fetches)
    return both(main, switch, fetches, feeds)


MASK = causal(float("-inf"))
EXAMPLES: dict[tuple[str, str, str], Callable[[], Results]] = {
    ("infinite", "attention", "NaN unfused, under a causal mask"): (
        # Blocks of keys behind a query are not visited.
        lambda: spoilt("attention", block(MASK, rows=40), last_key)
    ),
    ("infinite", "dot_product_attention", "NaN unfused, under a causal mask"): (
        lambda: spoilt("dot_product_attention", attention(mask=MASK), last_key)
    ),
    ("infinite", "dot_product_attention", "NaN unfused, of an infinite gradient"): (
        lambda: spoilt("dot_product_attention", attention(), arriving)
    ),
    ("infinite", "relu_depthwise_conv", "NaN fused"): lambda: padded(float("inf")),
    # Where the square overflows, the gradient that arrives is infinite.
    ("huge", "relu_depthwise_conv", "NaN fused"): lambda: padded(3e38),
    ("huge in float16", "relu_depthwise_conv", "NaN fused"): lambda: padded(6e4, "float16"),
}
"""Kind of values, fusion and results -> an example."""


@pytest.mark.parametrize("row", EXAMPLES, ids=" ".join)
def test_rows_are_true(row: tuple[str, str, str]) -> None:
    kind, name, results = row
    assert results in LISTED[kind, name]
    _, differ = EXCUSES[results]
    unfused, found = EXAMPLES[row]()
    differing = [
        (np.isnan(u) != np.isnan(f)) | (np.isfinite(u) != np.isfinite(f)) for u, f in zip(unfused, found, strict=True)
    ]
    assert any((bad & differ(u, f)).any() for bad, u, f in zip(differing, unfused, found, strict=True))


def test_all_rows_have_an_example() -> None:
    assert {(kind, name, row) for (kind, name), rows in LISTED.items() for row in rows} == set(EXAMPLES)


def test_scores_beyond_1e10_in_bfloat16() -> None:
    """The sentence below the table: such rows are NaN where unfused weights are 0 and 1; of 1e8 they are not."""
    assert "In bfloat16 without a mask in memory, a row whose\nscores are beyond 1e10 is NaN" in PAGE.read_text()
    for size, is_nan in ((1e4, False), (1e6, True)):
        main, fetches, feeds = attention(dtype="bfloat16")
        feeds["q"], feeds["k"] = (np.array(feeds[n] * size).astype(feeds[n].dtype) for n in "qk")
        unfused, found = both(main, CORE.switch, fetches[:1], feeds)
        assert np.isfinite(unfused[0].astype("f8")).all()
        assert np.isnan(found[0].astype("f8")).any() == is_nan


def test_rows_masked_whole_in_float64() -> None:
    """The other sentence: beyond 1e17, gradients of values are as many times too large as there are keys; at 1e9 they are right."""
    assert "In float64, a row whose every score is beyond 1e17" in PAGE.read_text()
    for value, times in ((-1e9, 1), (-1e18, ROWS)):
        main, fetches, feeds = attention(dtype="float64", mask=lambda s, by=value: s + by)
        unfused, found = both(main, CORE.switch, fetches, feeds)
        np.testing.assert_allclose(found[0], unfused[0], atol=1e-6)
        np.testing.assert_allclose(found[3], times * unfused[3], atol=1e-6)


def test_values_near_the_largest_number() -> None:
    """The sentence above the table: with values of a third of it, nine weights of 1 overflow before they are divided."""
    assert "kernels of attentions divide a row's sum of values by its sum of weights at the end" in PAGE.read_text()
    for size, right in ((1e37, True), (1e38, False)):
        main, fetches, feeds = attention()
        feeds["q"], feeds["v"] = np.zeros_like(feeds["q"]), np.full_like(feeds["v"], size)
        unfused, found = both(main, CORE.switch, fetches[:1], feeds)
        np.testing.assert_allclose(unfused[0], size, rtol=1e-5)
        assert np.isfinite(found[0]).all() == right
