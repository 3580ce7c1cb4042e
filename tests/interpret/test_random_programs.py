"""Random programs through the generated kernels: fused equals unfused by the tolerance rule, under drawn sets of switches."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, seed, settings

from tests.helpers.drawn import PLAIN, ROW_FAMILIES, chosen
from tests.helpers.soak import SOAK, shards
from tstatic import errors, static, testing
from tstatic.runtime import binding, generated

PROGRAMS = int(os.environ.get("TSTATIC_PROGRAMS", "500"))
"""Programs per run of the tests, more than twice those within which a planted fault must be caught (test_faults.py).

Every fifth has gradients (``TSTATIC_GRADIENTS=1``: all), every twentieth is trained or has NaN, every tenth has special values,
every 250th long rows.
"""
GRADIENTS = os.environ.get("TSTATIC_GRADIENTS", "") == "1"
SHARDS = max(2, PROGRAMS // 500)
"""Tests that share them; each draws from seeds of its own."""
MOST_PROGRAMS = 4
"""Programs of a launch: each costs a millisecond in the interpreter."""


def check(monkeypatch: pytest.MonkeyPatch, number: int, count: int, **kinds: Any) -> int:
    """Runs ``count`` programs; returns how many generated kernels were bound."""
    kernels: list[str] = []

    def counted(found: Any, *where: Any) -> Any:
        kernels.append(found.kernel.name)
        for launch in found.calls.launches:
            programs = 1
            for size in launch.grid:
                programs *= size
            # What has one program per tensor follows their number.
            assert programs <= MOST_PROGRAMS or found.calls.tables, f"{found.kernel.name}: grid {launch.grid}"
        return generated.generated_work(found, *where)

    monkeypatch.setattr(binding, "generated_work", counted)

    @seed(number)
    @settings(max_examples=count, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds), strategy=chosen())
    def run(recipe: testing.Recipe, strategy: static.BuildStrategy) -> None:
        try:
            testing.assert_equivalent(recipe, [strategy])
        except errors.NumericsError:
            # What the unfused run refuses raises as it is: LAPACK, of matrices that hold NaN or an infinity.
            assert kinds.get("nan") or kinds.get("special")
        except testing.EquivalenceError as error:
            error.add_note(
                f"seed {number} of {count} programs ({kinds}); TSTATIC_PROGRAMS={PROGRAMS} runs the same ones"
            )
            raise

    run()
    return len(kernels)


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_forward(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS * 595 // 1000 // SHARDS
    assert check(monkeypatch, shard, count, backward=GRADIENTS) >= count // 2, "programs must contain what can be fused"


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_forward_with_nan(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 20 // SHARDS
    assert check(monkeypatch, 1000 + shard, count, nan=True, backward=GRADIENTS) >= count // 8


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_infinities_huge_values_and_signed_zeros(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 10 // SHARDS
    assert check(monkeypatch, 4000 + shard, count, special=True, backward=GRADIENTS or bool(shard % 2)) >= count // 8


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_long_rows(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = max(2, PROGRAMS // 250 // SHARDS)
    kinds = {"long_rows": True, "families": ROW_FAMILIES, "backward": GRADIENTS or shard == 1}
    assert check(monkeypatch, 5000 + shard, count, **kinds) >= count // 2


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_gradients(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 5 // SHARDS
    assert check(monkeypatch, 2000 + shard, count, backward=True) >= count // 4


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_training(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = PROGRAMS // 20 // SHARDS
    assert check(monkeypatch, 3000 + shard, count, optimizer=True, runs=5 if SOAK else 3) >= count // 4
