"""Linear layers with a cross entropy in chunks of rows, with the kernels that other fusions make of the chunks' operators."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import tstatic as paddle
from tests.helpers.linear_loss_programs import SWITCH, linear_loss_recipe, with_short_chunks
from tests.helpers.soak import SOAK
from tests.interpret.faults import CHUNK_FAULT
from tests.interpret.test_script import run_here
from tstatic import static, testing
from tstatic.testing.runner import everything_on

F = paddle.nn.functional
PROGRAMS = int(os.environ.get("TSTATIC_LINEAR_LOSSES", "1000" if SOAK else "8"))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    with_short_chunks(monkeypatch)


@pytest.mark.parametrize("shard", range(2))
def test_drawn_programs_agree_with_every_switch_on(shard: int) -> None:
    count: Counter[str] = Counter()
    for place in range(shard * PROGRAMS // 2, (shard + 1) * PROGRAMS // 2):
        kind = "training" if place % 4 == 3 else "forward" if place % 4 == 0 else "gradients"
        recipe = linear_loss_recipe(10_000 + place, kind, 2)
        built = recipe.build()
        applied = static.CompiledProgram(built.main, everything_on()).explain(fetch_list=built.fetches).applied
        count.update(a.switch for a in applied)
        try:
            testing.assert_equivalent(recipe, everything_on(), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"program {place} ({kind}): {error}") from None
    assert count[SWITCH] >= 0.6 * PROGRAMS / 2
    assert count["build_cinn_pass"] >= PROGRAMS // 2, "the chunks' losses are kernels along rows"
    assert count["fuse_gemm_epilogue"], "and their products take in the sums"


def test_a_chunk_is_a_product_a_kernel_along_rows_and_the_gradients(
    tmp_path: Path,
) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, label = static.data("x", [6, 4], "float32"), static.data("label", [6, 1], "int64")
        w = static.data("w", [4, 8], "float32")
        x.stop_gradient = w.stop_gradient = False
        loss = paddle.mean(F.softmax_with_cross_entropy(paddle.matmul(x, w), label))
        grads = static.gradients([loss], [x, w])
    compiled = static.CompiledProgram(main, everything_on())
    explained = compiled.explain(fetch_list=[loss, *grads])
    groups = [[m.type for m in a.members] for a in explained.applied if a.kernel is not None]
    both = ["softmax_with_cross_entropy", "softmax_with_cross_entropy_grad"]
    assert groups.count(both) == 2, "forward and backward in one pass, in the place of the logits"
    assert groups.count(["matmul_v2_grad", "elementwise_add"]) == 1, "the second chunk adds to the first one's sum"
    for number, kernel in enumerate(explained.kernels):
        code, printed = run_here(kernel.text, tmp_path / f"kernel{number}.py")
        assert code == 0, printed


def test_a_lost_sum_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[str] = []
    CHUNK_FAULT.plant(monkeypatch, hits)
    # Labels and rows of other chunks, and parts in another order, are faults of the rewriting: the references show them.
    for place in range(12):
        try:
            testing.assert_equivalent(linear_loss_recipe(place, "gradients"), everything_on(), shrink=False)
        except testing.EquivalenceError:
            assert hits
            return
    raise AssertionError("no program shows it")
