"""Random programs agree under random subsets and orders of passes, and under every two settings of a BuildStrategy together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from tests.helpers.covering import choices, covering, pairs, strategies
from tests.helpers.drawn import PLAIN, drawn, few, recipes_of
from tests.helpers.linear_loss_programs import of_short_chunks
from tests.helpers.soak import SOAK
from tstatic import static, testing
from tstatic.static.compile import pipeline
from tstatic.testing.runner import everything_on

FUSIONS = of_short_chunks()
KINDS: tuple[dict[str, Any], ...] = ({}, {"backward": True}, {"optimizer": True})
kinds = pytest.mark.parametrize(
    "kind",
    [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])],
    ids=["forward", "gradients", "training"],
)


@st.composite
def some(draw: st.DrawFn, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """A subset in any order."""
    return tuple(draw(st.randoms(use_true_random=False)).sample(items, draw(st.integers(1, len(items)))))


@kinds
def test_subsets_and_orders_of_passes_agree(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    passes_of, on = pipeline.passes_of, everything_on()
    passes = passes_of(on)
    orders = set()

    @seed(4)
    @settings(max_examples=40 if SOAK else 24, **PLAIN)
    @given(testing.programs(2, 40 if not kind else 15, **kind), some(FUSIONS), some(passes))
    def check(recipe: testing.Recipe, fusions: tuple[Any, ...], clean_ups: tuple[Any, ...]) -> None:
        note(f"fusions {[f.name for f in fusions]}, passes {[p.name for p in clean_ups]}")
        orders.add(tuple(f.name for f in fusions))
        # The run without fusions keeps its own passes.
        monkeypatch.setattr(pipeline, "passes_of", lambda s: clean_ups if s.enable_auto_fusion else passes_of(s))
        monkeypatch.setattr(pipeline, "FUSIONS", fusions)
        testing.assert_equivalent(recipe, on)

    check()
    assert len(orders) > 10


@pytest.mark.slow
@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda f: f.name)
def test_another_fusion_before_changes_nothing(fusion: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that contain a fusion's pattern, with the other fusions in any order before and after it."""

    @seed(5)
    @settings(max_examples=few(fusion, 8 if SOAK else 4), **PLAIN)
    @given(recipes_of(fusion, backward=True), st.randoms(use_true_random=False))
    def check(recipe: testing.Recipe, random: Any) -> None:
        fusions = tuple(random.sample(FUSIONS, len(FUSIONS)))
        note(f"fusions {[f.name for f in fusions]}")
        monkeypatch.setattr(pipeline, "FUSIONS", fusions)
        testing.assert_equivalent(recipe, everything_on())

    check()


def test_the_covering_array_covers_all_pairs() -> None:
    factors = choices()
    rows = covering(factors)
    covered = set().union(*map(pairs, rows))
    for a, b in itertools.combinations(sorted(factors), 2):
        for x, y in itertools.product(factors[a], factors[b]):
            assert ((a, x), (b, y)) in covered
    assert len(rows) <= 20
    assert covered != set().union(*map(pairs, rows[1:])), "no row is there for nothing"


@kinds
def test_every_two_settings_agree(kind: dict[str, Any]) -> None:
    found = strategies()
    assert all(isinstance(s, static.BuildStrategy) for s in found)
    count = 8 if SOAK else 4 if not kind else 3
    for recipe in drawn(testing.programs(max_ops=10, **kind), count, 6):
        testing.assert_equivalent(recipe, found)
