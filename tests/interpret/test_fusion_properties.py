"""Properties of every fusion of the registry, by drawn programs that contain its pattern or almost do; none is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.helpers.drawn import PLAIN, drawn, explained, few, made, only, recipes_of
from tests.helpers.near_misses import BREAKS, Miss, another_operator
from tests.helpers.soak import SOAK
from tstatic import testing
from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Applied, Fusion, OpInfo, Rewriting
from tstatic.ir.opdef import OPS
from tstatic.testing import Input, Step
from tstatic.testing.op_kinds import family_of
from tstatic.testing.runner import Trial, everything_on, start_values, trial_of_recipe

KINDS: tuple[dict[str, Any], ...] = ({}, {"backward": True}, {"optimizer": True, "runs": 5 if SOAK else 3})
# Patterns list the activations that are loaded.
assert len(OPS) > 400
# What a rewriting leaves are ordinary operators, of which other fusions make kernels: it has tests of its own.
KERNELS = [f for f in FUSIONS if not isinstance(f.finder, Rewriting)]
fusions = pytest.mark.parametrize("fusion", KERNELS, ids=lambda f: f.name)
OWN_TESTS = () if SOAK else ("gemm_epilogue",)
# What fuses updates is drawn trained whatever the kind: the forward case alone has its programs.
UPDATES = {f.name for f in KERNELS if f.switch in ("fuse_adamw", "fuse_all_optimizer_ops")}


@pytest.mark.parametrize(
    ("fusion", "kind"),
    [
        pytest.param(fusion, kind, marks=pytest.mark.slow if kind else (), id=f"{fusion.name}-{name}")
        for name, kind in zip(("forward", "gradients", "training"), KINDS, strict=True)
        for fusion in KERNELS
        if not kind or fusion.name not in UPDATES
    ],
)
def test_fused_equals_unfused(fusion: Fusion, kind: dict[str, Any]) -> None:
    count: Counter[str] = Counter()
    seen: set[str] = set()

    @seed(1)
    @settings(max_examples=few(fusion, 20 if SOAK else 10, OWN_TESTS), **PLAIN)
    @given(recipes_of(fusion, **kind))
    def check(recipe: testing.Recipe) -> None:
        assert recipe.optimizer or fusion.name not in UPDATES
        kernels = {r.kernel.name for r in made(fusion, recipe)}
        count["made"] += bool(kernels)
        # Drawn programs repeat themselves; a kernel may take a second in the interpreter.
        if not kernels or not kernels <= seen:
            testing.assert_equivalent(recipe, only(fusion.switch))
        seen.update(kernels)

    check()
    assert count["made"] >= 2, "what is drawn must contain what the fusion looks for"


@pytest.mark.slow
@fusions
def test_any_inner_variable_can_be_fetched_with_every_switch_on(fusion: Fusion) -> None:
    @seed(2)
    @settings(max_examples=few(fusion, 5, OWN_TESTS), **PLAIN)
    @given(recipes_of(fusion, backward=True), st.integers(0, 255))
    def check(recipe: testing.Recipe, pick: int) -> None:
        trial, feeds = trial_of_recipe(recipe)
        block = trial.program.global_block()
        names = [n for op in block.ops for n in op.output_arg_names if block.var(n).type == "dense_tensor"]
        for name in {names[pick % len(names)], names[pick // 3 % len(names)]}:
            alone = replace(trial, fetches=[name], steps=1, _compiled={}, _plain={})
            assert alone.compare(everything_on(), feeds) is None, name
        together = replace(trial, fetches=list(dict.fromkeys(names)), steps=1, _compiled={}, _plain={})
        assert together.compare(everything_on(), feeds) is None

    check()


def plain(value: str) -> str:
    """The variable behind a value of a program in single-assignment form."""
    return value.split("#")[0]


@pytest.mark.slow
@fusions
def test_near_misses_stay_unfused_with_the_right_code(fusion: Fusion) -> None:
    tried: Counter[str] = Counter()
    seen: set[str] = set()

    @seed(3)
    @settings(max_examples=28 if SOAK else max(4, few(fusion, 14, OWN_TESTS)), **PLAIN)
    @given(recipes_of(fusion, backward=True), st.integers(0, 255))
    def check(recipe: testing.Recipe, pick: int) -> None:
        records = made(fusion, recipe)
        if not records:
            return
        record = records[pick % len(records)]
        for broken in BREAKS:
            miss = broken(fusion, recipe, record, pick)
            if miss is not None:
                tried[broken.__name__] += 1
                _stays_unfused(fusion, miss, {m.outputs for m in record.members}, seen)

    check()
    # Updates have no inner values, so there is nothing to break.
    assert len(tried) >= 6 if fusion.finder.patterns else not tried or len(tried) >= 5, tried


@pytest.mark.parametrize("fusion", [f for f in FUSIONS if f.finder.patterns], ids=lambda f: f.name)
def test_another_operator_gives_what_the_next_one_takes(fusion: Fusion) -> None:
    """Whatever number it chooses by: no truth values where floats are read, and no error while it builds."""
    recipe, records = next((r, m) for r in drawn(recipes_of(fusion), 60, number=3) if (m := made(fusion, r)))
    plain_block = recipe.build().main.global_block()
    dtypes = {n: plain_block.var(n).dtype for s in recipe.steps for n in s.writes}
    for pick in range(len(family_of("unary"))):
        miss = another_operator(fusion, recipe, records[0], pick)
        if miss is not None:
            block = miss.built.main.global_block()
            assert {n: block.var(n).dtype for n in dtypes} == dtypes, pick


def test_programs_with_inner_truth_values_can_be_broken_too() -> None:
    """A fusion whose first op compares gets near misses that build and run."""
    recipe = testing.Recipe(
        (Input("x", (3, 4)), Input("y", (3, 4))),
        (
            Step.of("greater_than", {"X": "x", "Y": "y"}, {"Out": "larger"}),
            Step.of("cast", {"X": "larger"}, {"Out": "number"}, {"in_dtype": "bool", "out_dtype": "float32"}),
        ),
        ("number",),
    )
    members = OpInfo("greater_than", ("larger",), None), OpInfo("cast", ("number",), None)
    record = Applied("any", "any", "any", members, ("larger",), (), None)
    tried = set()
    for broken in BREAKS:
        miss = broken(FUSIONS[0], recipe, record, 0)
        if miss is not None:
            tried.add(miss.code)
            trial = Trial(miss.built.main, start_values(miss.built.main, miss.built.startup), list(miss.built.fetches))
            assert trial.compare(everything_on(), miss.built.feeds) is None, broken.__name__
    assert tried >= {"FETCHED", "PERSISTABLE", "EXTRA_READER", "FORBIDDEN"}


def _stays_unfused(fusion: Fusion, miss: Miss, members: set[tuple[str, ...]], seen: set[str]) -> None:
    built = miss.built
    told = explained(fusion, built.main, built.fetches)
    for record in told.applied:
        if record.fusion == fusion.name:
            assert miss.value not in map(plain, record.gone), f"{miss.code}: '{miss.value}' is gone"
            if fusion.finder.patterns:
                assert {m.outputs for m in record.members} != members
    # A shorter match may take what is left over: that needs no reason.
    taken = any(miss.value in map(plain, m.outputs) for r in told.applied if r.fusion == fusion.name for m in r.members)
    if fusion.finder.patterns and miss.code and not taken:
        codes = {
            r.code
            for r in told.refused
            if r.fusion == fusion.name and any(miss.value in map(plain, m.outputs) for m in r.members)
        }
        assert miss.code in codes, f"{codes} instead of {miss.code} for '{miss.value}'"
    kernels = {r.kernel.name for r in told.applied}
    if kernels and kernels <= seen:
        return
    state = start_values(built.main, built.startup)
    trial = Trial(built.main, state, list(built.fetches))
    failure = trial.compare(only(fusion.switch), built.feeds)
    assert failure is None, f"{miss.code}: {failure}"
    seen.update(kernels)
