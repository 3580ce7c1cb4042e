"""Drawn programs run, stay finite, differ from each other, and are hardly ever rejected; drawn feeds fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import static, testing
from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError
from tstatic.fusion.engine.pattern import Op, Pattern
from tstatic.ir.types import dtype_of
from tstatic.testing import Recipe
from tstatic.testing.program_builder import ProgramBuilder
from tstatic.testing.runner import baseline_of, trial_of_recipe
from tstatic.testing.strategies import FAMILIES
from tstatic.testing.tolerance import check, retyped, ulps_of

PLAIN = {"phases": [Phase.generate], "deadline": None, "database": None, "derandomize": True}


def drawn(strategy: st.SearchStrategy[Recipe], count: int, fixed: int | None = None) -> list[Recipe]:
    """Draws examples; by a seed where statistics of them are asserted, as a repeatable run draws by the test's own text."""
    found: list[Recipe] = []

    @settings(max_examples=count, **PLAIN)
    @given(strategy)
    def collect(recipe: Recipe) -> None:
        found.append(recipe)

    (collect if fixed is None else seed(fixed)(collect))()
    return found


def values(recipe: Recipe) -> list[np.ndarray]:
    trial, feeds = trial_of_recipe(recipe)
    return [v for row in trial.run(trial.program, feeds, trial.state) for v in row]


def _is_finite(value: np.ndarray) -> bool:
    # numpy knows no NaN in types of other libraries, as bfloat16 is.
    return bool(np.isfinite(value if value.dtype.kind == "c" else value.astype(np.float64)).all())


# ------------------------------------------------------------------------------------------------------------- programs
def test_programs_run_and_stay_finite() -> None:
    recipes = drawn(testing.programs(max_ops=20), 60)
    assert len(recipes) == 60
    for recipe in recipes:
        assert all(_is_finite(v) for v in values(recipe))


@pytest.mark.parametrize("options", [{"backward": True}, {"optimizer": True}], ids=["backward", "optimizer"])
def test_gradients_and_training_stay_finite(options: dict[str, bool]) -> None:
    recipes = drawn(testing.programs(max_ops=10, **options), 25)
    assert sum(bool(r.gradients) or bool(r.optimizer) for r in recipes) >= 22
    for recipe in recipes:
        assert all(_is_finite(v) for v in values(recipe))


@pytest.mark.slow
def test_programs_are_many_kinds() -> None:
    recipes = drawn(testing.programs(), 120, fixed=0)
    types = Counter(s.type for r in recipes for s in r.steps)
    assert len(types) > 100
    assert max(types.values()) < sum(types.values()) / 5
    sizes = [len(r.steps) for r in recipes]
    assert min(sizes) <= 3
    assert max(sizes) >= 35
    assert 15 <= np.mean(sizes) <= 28
    assert {dtype_of(i.dtype).name for r in recipes for i in r.inputs} >= {"float32", "bfloat16", "float16"}
    reads = [Counter(n for s in r.steps for n in s.reads) for r in recipes]
    # Values with two readers, values that an op reads twice, inner values that are fetched.
    assert sum(any(c > 1 for c in counts.values()) for counts in reads) > 60
    assert any(len(set(s.reads)) < len(s.reads) for r in recipes for s in r.steps)
    assert sum(any(n in counts for n in r.fetches) for r, counts in zip(recipes, reads, strict=True)) > 30
    ranks = {len(i.shape) for r in recipes for i in r.inputs}
    assert ranks >= {0, 1, 2, 3, 4}
    assert any(0 in i.shape for r in recipes for i in r.inputs)
    assert any(dict(s.attrs).get("axis", -1) >= 0 for r in recipes for s in r.steps if s.type.startswith("elementwise"))


@pytest.mark.slow
def test_hardly_any_draw_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis.internal.conjecture.data import Status
    from hypothesis.internal.conjecture.engine import ConjectureRunner

    seen: Counter[Status] = Counter()
    run = ConjectureRunner.test_function

    def count(self: ConjectureRunner, data: object) -> None:
        try:
            run(self, data)  # type: ignore[arg-type]
        finally:
            seen[data.status] += 1  # type: ignore[attr-defined]

    monkeypatch.setattr(ConjectureRunner, "test_function", count)
    drawn(testing.programs(), 100)
    # OVERRUN is hypothesis trying short inputs of its own; INVALID is a draw that the strategy rejects.
    assert seen[Status.INVALID] < 0.01 * seen[Status.VALID]
    assert seen[Status.VALID] == 100


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_alone_makes_programs(family: str) -> None:
    recipes = drawn(testing.programs(2, 6, families=(family,)), 6)
    for recipe in recipes:
        assert len(recipe.steps) >= 2
        values(recipe)


def test_focus_makes_most_steps() -> None:
    recipes = drawn(testing.programs(4, 10, focus=("elementwise_add", "relu")), 20)
    types = Counter(s.type for r in recipes for s in r.steps)
    assert types["elementwise_add"] + types["relu"] > sum(types.values()) / 3
    with pytest.raises(NotFoundError):
        testing.programs(focus=("rleu",))
    with pytest.raises(ValueError, match="there is no family 'unari'"):
        testing.programs(families=("unari",))


def test_a_pattern_without_a_result_is_refused() -> None:
    def forgetful(p: Pattern) -> Any:
        p.op("act", "tanh", X=p.value("x"))

    with pytest.raises(ProgramTypeError, match=r"return act\.Out"):
        next(iter(drawn(testing.programs(patterns=(forgetful,)), 1)))


def test_patterns_are_contained() -> None:
    def softmax_of_scaled_product(p: Pattern) -> Op:
        product = p.op("product", "matmul_v2", X=p.value("x"), Y=p.value("y"))
        scaled = p.op("scaled", ("scale", "tanh"), X=product.Out)
        return p.op("softmax", "softmax", X=scaled.Out)

    def gradient(p: Pattern) -> Op:
        return p.op("act", "tanh_grad", Out_GRAD=p.value("dout"))

    count = 0
    for recipe in drawn(testing.programs(max_ops=4, patterns=(softmax_of_scaled_product, gradient)), 20):
        maker = {n: s for s in recipe.steps for n in s.writes}
        for step in recipe.steps:
            inner = maker.get(step.reads[0]) if step.type == "softmax" else None
            first = maker.get(inner.reads[0]) if inner is not None and inner.type in ("scale", "tanh") else None
            count += first is not None and first.type == "matmul_v2"
        assert not any(s.type == "tanh_grad" for s in recipe.steps)
    # Of twenty; in the others a later step took the place of one of the three.
    assert count >= 12


def test_nan_reaches_results() -> None:
    recipes = drawn(testing.programs(max_ops=6, nan=True), 25)
    assert sum(any(i.nan for i in r.inputs) for r in recipes) >= 20
    with np.errstate(all="ignore"):
        found = [any(np.isnan(v.astype(np.float64)).any() for v in values(r) if v.dtype.kind != "b") for r in recipes]
    assert sum(found) >= 15


def test_training_may_be_told_its_optimizer_and_steps() -> None:
    recipes = drawn(testing.programs(max_ops=5, optimizer=("AdamW",), runs=5), 15)
    trained = [r for r in recipes if r.optimizer]
    assert {r.optimizer for r in trained} == {"AdamW"}
    assert {r.runs for r in trained} == {5}
    assert {bool(r.clip) for r in trained} == {True, False}


def test_a_witness_shows_a_rounding() -> None:
    draft = ProgramBuilder()
    draft.witness(draft.fresh((40,), "float32"), "bfloat16")
    (name,) = draft.asides
    assert name not in draft.pool
    (value,) = values(draft.recipe([]))[-1:]
    assert 5 < value.sum() < 35, "some numbers are rounded down, some up"


def test_min_and_max_ops() -> None:
    for recipe in drawn(testing.programs(3, 3), 20):
        assert 3 <= len(recipe.steps) <= 6


@settings(max_examples=60, **PLAIN)
@given(testing.programs(max_ops=15, dtypes=("bfloat16", "float16")))
def test_a_fused_program_that_rounds_less_often_passes_the_rule(recipe: Recipe) -> None:
    """Arithmetic in float32 with one rounding at the end is what a right fusion does: no draw may call it wrong."""
    trial, feeds = trial_of_recipe(recipe)
    unfused = trial.run(trial.compiled(baseline_of(static.BuildStrategy())), feeds, trial.state)

    def wide(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32) if dtype_of(array.dtype).is_float else array

    fused = trial.run(retyped(trial.program, dtype_of("float32")), {n: wide(a) for n, a in feeds.items()}, {})
    y64, spread = trial.reference(feeds, 0)
    k = ulps_of(trial.program, trial.fetches)
    for i, name in enumerate(trial.fetches):
        u = unfused[0][i]
        assert check(y64[0][i], u, fused[0][i].astype(u.dtype), k[name], spread[0][i]) is None


def test_a_comparison_that_rounding_could_turn_is_refused() -> None:
    draft = ProgramBuilder()
    x = draft.fresh((40,), "float16")
    (y,) = draft.emit("exp", {"X": x}, {}) or [""]
    near = draft.fresh((40,), "float16")
    assert draft.emit("less_than", {"X": x, "Y": near}, {})  # inputs: no rounding comes between
    (z,) = draft.emit("log1p", {"X": y}, {}) or [""]
    (w,) = draft.emit("scale", {"X": z}, {"scale": 1.0}) or [""]
    assert draft.emit("less_than", {"X": z, "Y": w}, {}) is None or draft.values[z].exact
    assert draft.emit("exp", {"X": draft.fresh((3,), "float16", seed=1)}, {}) is not None


# ---------------------------------------------------------------------------------------------------------------- feeds
def classifier() -> static.Program:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        ids = static.data("ids", [None, None], "int64")
        label = static.data("label", [None, 1], "int64")
        weight = static.data("weight", [None, 1])
        rows = static.nn.embedding(ids, size=(11, 6))
        logits = static.nn.fc(paddle.mean(rows, axis=1), size=5)
        paddle.mean(paddle.nn.functional.cross_entropy(logits, label) * paddle.log(weight))
    return main


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_feeds_fit_any_program(data: st.DataObject) -> None:
    main = classifier()
    feeds = data.draw(testing.feeds_for(main))
    assert set(feeds) == {"ids", "label", "weight"}
    assert feeds["ids"].shape[0] == feeds["label"].shape[0] == feeds["weight"].shape[0]
    # The bounds are those of the table, of the classes and of the logarithm.
    assert feeds["ids"].min() >= 0
    assert feeds["ids"].max() < 11
    assert feeds["label"].max() < 5
    assert feeds["weight"].min() > 0


def test_ranges_beat_what_the_ops_say() -> None:
    feeds = testing.sample_feeds(classifier(), 1, {"ids": (3, 5), "weight": (7.0, 8.0)})
    assert set(np.unique(feeds["ids"])) <= {3, 4}
    assert (feeds["weight"] >= 7).all()
    with pytest.raises(ProgramError, match="'lable'"):
        testing.sample_feeds(classifier(), 1, {"lable": (0, 2)})


def test_sizes_that_do_not_fit_are_made_equal() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, None])
        paddle.matmul(x, x)
    assert testing.sample_feeds(main, sizes=(3, 5))["x"].shape == (3, 3)


def test_feeds_of_a_recipe() -> None:
    recipe = drawn(testing.programs(max_ops=5), 1)[0]

    @settings(max_examples=3, **PLAIN)
    @given(testing.feeds_for(recipe))
    def fits(feeds: dict[str, np.ndarray]) -> None:
        main = recipe.build().main
        static.Executor("cpu").run(main, feed=feeds, fetch_list=list(recipe.fetches))

    fits()


def test_special_values_and_long_rows_are_drawn_where_asked_for() -> None:
    array = testing.sample((300,), special=True)
    zeros = np.signbit(array[array == 0])
    assert np.isnan(array).any()
    assert {np.inf, -np.inf} <= set(array[np.isinf(array)])
    assert zeros.any()
    assert not zeros.all()
    assert (np.abs(array[np.isfinite(array)]) > 1e12).any()
    assert (np.abs(np.nan_to_num(testing.sample((300,), "float16", special=True), posinf=0, neginf=0)) < 3).all()
    assert sum(i.special for r in drawn(testing.programs(max_ops=3, special=True), 5) for i in r.inputs) >= 5
    for recipe in drawn(testing.programs(max_ops=3, families=("unary", "norm"), long_rows=True), 3):
        long = [i for i in recipe.inputs if i.shape[-1:] == (20001,)]
        assert long
        assert all(i.array().mean() > 0.5 for i in long if len(i.shape) == 2)
