"""Kernels of matrix products with what follows them: drawn programs agree with the operators alone, and planted faults are seen."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from tests.helpers.drawn import BY_NAME, made, only
from tests.helpers.epilogue_programs import epilogue_recipe
from tests.helpers.soak import SOAK, shards
from tests.interpret.faults import PRODUCT_FAULTS, Fault, caught
from tests.interpret.kernels import check_grids, kind_of
from tstatic import testing
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient
from tstatic.ir.opdef import op_def
from tstatic.testing.runner import everything_on, trial_of_recipe

FUSION = BY_NAME["gemm_epilogue"]
PROGRAMS = int(os.environ.get("TSTATIC_EPILOGUES", "20000" if SOAK else "200"))
"""More than three times those within which a fault must be caught."""
SHARDS = max(5, PROGRAMS // 2000)
MOST = 60
"""Programs within which a fault must be caught."""


@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_drawn_programs_agree(shard: int) -> None:
    count: Counter[str] = Counter()
    for number in range(shard, PROGRAMS, SHARDS):
        # The strides of kinds and shards have common factors: a shard has all kinds.
        place = number // SHARDS + shard * (PROGRAMS // SHARDS)
        recipe = epilogue_recipe(place, kind_of(place))
        for record in made(FUSION, recipe):
            count[record.op] += 1
            assert record.kernel is not None
            check_grids(record.kernel, count)
        # Of what the other switches change, other tests see enough.
        every = place % 10 == 7
        try:
            testing.assert_equivalent(recipe, everything_on() if every else only(FUSION.switch), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"program {place} ({kind_of(place)}): {error}") from None
    print(dict(count))
    programs = PROGRAMS // SHARDS
    assert count["fused_gemm_epilogue"] >= 0.9 * programs
    assert count["fused_gemm_epilogue_grad"] >= 0.05 * programs
    assert count["with a rest of the depth"] >= 0.3 * count["products"]
    assert count["split"] >= programs // 25


@pytest.mark.parametrize("number", [4, 9, 14])
def test_every_inner_value_can_be_fetched(number: int) -> None:
    """Alone, and all of them together."""
    recipe = epilogue_recipe(number, "gradients")
    assert made(FUSION, recipe)
    trial, feeds = trial_of_recipe(recipe)
    block = trial.program.global_block()
    names = [n for op in block.ops for n in op.output_arg_names if block.var(n).type == "dense_tensor"]
    products = [
        n
        for op in block.ops
        if is_product(op_def(op.type)) or is_product_gradient(op_def(op.type))
        for n in op.output_arg_names
    ]
    chosen = names if SOAK else products
    for fetches in ([names], *([n] for n in chosen)):
        flat = fetches[0] if isinstance(fetches[0], list) else fetches
        alone = replace(trial, fetches=list(dict.fromkeys(flat)), steps=1, _compiled={}, _plain={})
        assert alone.compare(only(FUSION.switch), feeds) is None, flat


@pytest.mark.parametrize("fault", PRODUCT_FAULTS, ids=lambda f: f.name)
def test_planted_faults_are_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    place = caught(fault, monkeypatch, epilogue_recipe, FUSION.switch, MOST)
    print(f"{fault.name}: caught by program {place}")
    assert place is not None
