"""``FLAGS_numerics=strict``: a fused program gives what the unfused one gives, bit for bit, where both run as kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

import tstatic as paddle
from tests.helpers.drawn import PLAIN, ROW_FAMILIES
from tests.helpers.soak import SOAK
from tstatic import static, testing
from tstatic.testing.runner import baseline_of, everything_on, trial_of_recipe

F = paddle.nn.functional

KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "forward": (8, {}),
    "gradients": (6, {"backward": True}),
    "special values": (4, {"special": True}),
    "rows": (5, {"families": ROW_FAMILIES, "backward": True}),
    "long rows": (2, {"families": ROW_FAMILIES, "long_rows": True}),
    "training": (4, {"optimizer": True, "runs": 2}),
}


@pytest.fixture(autouse=True)
def strict() -> None:
    paddle.set_flags({"FLAGS_numerics": "strict"})


def assert_same_bits(fused: Any, unfused: Any, what: object = "") -> None:
    """All bits but those of NaN, whose sign nobody reads."""
    assert fused.dtype == unfused.dtype, what
    if fused.dtype.kind in "fV":
        fused, unfused = (np.where(np.isnan(a), np.nan, a.astype(np.float64)) for a in (fused, unfused))
    assert fused.tobytes() == unfused.tobytes(), what


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_give_the_same_bits(kind: str) -> None:
    count, options = KINDS[kind]
    count *= 4 if SOAK else 1

    @seed(6)
    @settings(max_examples=count, **PLAIN)
    @given(testing.programs(max_ops=8, **options))
    def check(recipe: testing.Recipe) -> None:
        trial, feeds = trial_of_recipe(recipe)
        on = everything_on()
        plain = trial.run(trial.compiled(baseline_of(on)), feeds, trial.state)
        fused = trial.run(trial.compiled(on), feeds, trial.state)
        for row, other in zip(fused, plain, strict=True):
            for a, b in zip(row, other, strict=True):
                assert_same_bits(a, b, recipe)

    check()


def test_functions_of_sums_give_the_same_bits() -> None:
    main = static.Program()
    with static.program_guard(main):
        x, y = static.data("x", [257]), static.data("y", [257])
        outs = [paddle.tanh(x + y), F.gelu(x + y), F.softplus(x) * y]
    rng = np.random.default_rng(0)
    feed = {"x": 3 * rng.standard_normal(257, "f4"), "y": rng.standard_normal(257, "f4")}
    compiled = static.CompiledProgram(main, everything_on())
    fused, unfused = (static.Executor().run(p, feed=feed, fetch_list=outs) for p in (compiled, main))
    assert len(compiled.explain(fetch_list=outs).applied) == 2
    for a, b in zip(fused, unfused, strict=True):
        assert_same_bits(a, b)


def test_a_fusion_that_computes_otherwise_is_refused() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        y = static.nn.batch_norm(static.data("x", [4, 3, 5, 5]), act="relu")
    told = static.CompiledProgram(main, everything_on()).explain(fetch_list=[y])
    assert "NUM_STRICT" in {r.code for r in told.refused}
