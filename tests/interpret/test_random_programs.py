"""Random programs through the generated kernels: fused equals unfused by the tolerance rule, under drawn sets of switches."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tstatic import static, testing
from tstatic.fusion import FUSIONS
from tstatic.runtime import generated, session

SHARDS = 4
PROGRAMS = int(os.environ.get("TSTATIC_PROGRAMS", "400"))
"""Programs per run of the tests, over all shards; every fifth with gradients, every twentieth with an optimizer."""

SWITCHES = sorted({f.switch for f in FUSIONS})


@st.composite
def chosen(draw: st.DrawFn) -> static.BuildStrategy:
    """A strategy with a drawn set of fusion switches, at least one of them on."""
    strategy = static.BuildStrategy()
    on = draw(st.sets(st.sampled_from(SWITCHES), min_size=1))
    for name in SWITCHES:
        setattr(strategy, name, name in on)
    return strategy


def check(monkeypatch: pytest.MonkeyPatch, number: int, count: int, **kinds: Any) -> int:
    """Runs ``count`` programs; returns how many generated kernels were bound."""
    kernels: list[str] = []

    def counted(found: Any, known: Any) -> Any:
        kernels.append(found.kernel.name)
        return generated.generated_work(found, known)

    monkeypatch.setattr(session, "generated_work", counted)

    @seed(number)
    # A shrunk program comes from assert_equivalent itself; hypothesis' own shrinking would run thousands of kernels.
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )  # fmt: skip
    @given(recipe=testing.programs(max_ops=12, **kinds), strategy=chosen())
    def run(recipe: testing.Recipe, strategy: static.BuildStrategy) -> None:
        testing.assert_equivalent(recipe, [strategy])

    run()
    return len(kernels)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_forward(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS * 3 // 4 // SHARDS
    assert check(monkeypatch, shard, count) >= count // 2, "the programs must contain what can be fused"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_gradients(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 5 // SHARDS
    assert check(monkeypatch, 100 + shard, count, backward=True) >= count // 4


@pytest.mark.parametrize("shard", range(SHARDS))
def test_optimizers(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 20 // SHARDS
    assert check(monkeypatch, 200 + shard, count, optimizer=True) >= count // 4
