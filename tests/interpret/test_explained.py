"""What explain shows is what runs: the same sources, byte for byte, whatever is fetched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import mixture
from tests.helpers.fusion_programs import CASES, build
from tests.helpers.seed import SEED
from tests.helpers.soak import SOAK
from tests.parallel.golden import strategy
from tests.parallel.test_equality import EVERY_FUSION, Nets, batch_of
from tstatic import static
from tstatic.runtime import binding, generated
from tstatic.testing.runner import everything_on, trial_of_recipe

PROGRAMS = 48 if SOAK else 24
SHARDS = 4
MOST_NAMES = 8
"""So many inner values of a program are fetched; all in ``make proof``."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources of the kernels that were bound."""
    sources: list[str] = []

    def noted(found: Any, *where: Any) -> Any:
        sources.append(found.kernel.text)
        return generated.generated_work(found, *where)

    monkeypatch.setattr(binding, "generated_work", noted)
    return sources


def shown(compiled: Any, fetches: Sequence[Any], feeds: dict[str, Any]) -> list[str]:
    """Sources that an explanation shows: as kernels and as plain data the same ones."""
    told = compiled.explain(fetch_list=list(fetches), feed_shapes={n: a.shape for n, a in feeds.items()})
    texts = [k.text for k in told.kernels]
    plain = told.to_dict()["fusions"]
    sources = [*(a["source"] for a in plain["applied"] if "source" in a), *plain["shared"]]
    assert texts == [source["text"] for source in sources]
    return texts


@pytest.mark.parametrize("shard", range(SHARDS))
def test_drawn_programs(shard: int, ran: list[str]) -> None:
    """With the fetches that were drawn, and with every value fetched."""
    count = 0
    for recipe, drawn in mixture(PROGRAMS, 20)[shard::SHARDS]:
        trial, feeds = trial_of_recipe(replace(recipe, runs=1))
        block = trial.program.global_block()
        every = [n for op in block.ops for n in op.output_arg_names if block.var(n).type == "dense_tensor"]
        for chosen, fetches in ((drawn, trial.fetches), (everything_on(), trial.fetches), (drawn, every[::2])):
            ran.clear()
            compiled = static.CompiledProgram(trial.program, build_strategy=chosen)
            replace(trial, fetches=list(dict.fromkeys(fetches))).run(compiled, feeds, trial.state)
            assert sorted(shown(compiled, fetches, feeds)) == sorted(ran)
            count += len(ran)
    assert count >= PROGRAMS // SHARDS


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_any_inner_value_is_fetched(case: Any, ran: list[str]) -> None:
    built = build(case)
    block = built.main.global_block()
    names = list(dict.fromkeys(n for op in block.ops for n in op.output_arg_names))
    if not SOAK:
        names = random.Random(SEED + case.name).sample(names, min(len(names), MOST_NAMES))
    for name in names:
        scope, executor = static.Scope(), static.Executor("cpu")
        executor.run(built.startup, scope=scope)
        ran.clear()  # of what draws the starting values
        compiled = static.CompiledProgram(built.main, build_strategy=everything_on())
        executor.run(compiled, feed=built.feed, fetch_list=[*built.fetches, name], scope=scope)
        assert sorted(shown(compiled, [*built.fetches, name], built.feed)) == sorted(ran), name


def test_a_fusion_that_is_taken_into_another_shows_no_kernel_of_its_own() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = static.data("x", [4, 8]), static.data("y", [4, 8])
        with static.fuse_together():
            total = paddle.nn.functional.relu(x + y)
        out = paddle.exp(total)
    told = static.CompiledProgram(main, build_strategy=strategy(enable_auto_fusion=True)).explain(fetch_list=[out])
    assert [(a.switch, a.kernel is None) for a in told.applied] == [
        ("fuse_together()", True),
        ("enable_auto_fusion", False),
    ]
    assert len(told.kernels) == 1
    assert ["source" in row for row in told.to_dict()["fusions"]["applied"]] == [False, True]
    assert "computed by the kernel of fusion_group, by enable_auto_fusion" in told.to_text(verbose=True)
    assert "computed by the kernel of" in told.to_html()


def test_what_draws_by_itself_is_shown(ran: list[str]) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4, 8])
        out = paddle.matmul(paddle.nn.functional.dropout(x, 0.5), paddle.randn([8, 4]))
    compiled, feed = static.CompiledProgram(main), {"x": np.ones((4, 8), np.float32)}
    static.Executor("cpu").run(compiled, feed=feed, fetch_list=[out])
    texts = shown(compiled, [out], feed)
    assert len(texts) == 2
    assert sorted(texts) == sorted(ran)


def test_two_places(ran: list[str]) -> None:
    nets = Nets("adamw", "global")
    exe, scope, main, loss = nets.start(False)
    ran.clear()
    compiled = static.CompiledProgram(main).with_data_parallel(
        loss.name, strategy(**dict.fromkeys(EVERY_FUSION, True)), places=[paddle.CPUPlace()] * 2
    )
    batch = batch_of(8, 2)
    exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)
    texts = shown(compiled, [loss], batch)
    assert len(texts) > 2
    # Both places run the same kernels.
    assert sorted([*texts, *texts]) == sorted(ran)
