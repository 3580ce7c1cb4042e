"""Kernels of random programs keep within the limits of registers, spills and shared memory on a chip that is drawn, too."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.helpers.seed import SEED
from tests.kernels import environments, registry
from tests.kernels.environments import ALL
from tests.kernels.limits import violations
from tstatic import static, testing
from tstatic.chips.aot import Source, compile_all
from tstatic.chips.report import Report
from tstatic.fusion import FUSIONS

CHIPS = (80, 90, 100)
NUMBER = int(SEED)
COUNT = int(os.environ.get("TSTATIC_SAMPLE", "2000" if ALL else "100"))

KINDS: tuple[dict[str, Any], ...] = ({}, {"backward": True}, {}, {"backward": True}, {"optimizer": True})


def stays_at_few_registers(report: Report) -> bool:
    """Returns whether ptxas moved a few values to the stack so as to stay at a number of registers where more threads fit.

    Most registers are left then, and it does the same where it is told that it may take 64 (``--maxrregcount=64``): it is a choice
    of the assembler, and not a kernel that is too large. Of 5,852 compilations one in 400 is such a one, with 4 to 40 bytes.
    """
    most = {80: 40, 90: 40, 100: 48}.get(report.chip, 0)
    return report.registers <= most and 0 < report.spill_stores <= 40 and report.spill_loads <= 40


def drawn(count: int, number: int) -> dict[str, Source]:
    """Kernels of random programs with all fusions on, forward, backward and updates; each once."""
    found: dict[str, Source] = {}
    known: set[str] = set()
    strategy = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(strategy, fusion.switch, True)

    def take(recipe: testing.Recipe) -> None:
        built = recipe.build()
        shapes = {n: a.shape for n, a in built.feeds.items()}
        compiled = static.CompiledProgram(built.main, strategy)
        for kernel in compiled.explain(fetch_list=built.fetches, feed_shapes=shapes).kernels:
            for chip, function, source in registry.launched(kernel):
                if repr(source) not in known and len(found) < count:
                    known.add(repr(source))
                    found[f"{len(found)}.{kernel.name}{chip}.{function}"] = source

    turn = 0
    while len(found) < count:

        @seed(number * 1000 + turn)
        @settings(
            max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
        )  # fmt: skip
        @given(recipe=testing.programs(max_ops=16, **KINDS[turn % len(KINDS)]))
        def some(recipe: testing.Recipe) -> None:
            take(recipe)

        some()
        turn += 1
    return found


@pytest.mark.timeout(7200 if ALL else 900)
@pytest.mark.parametrize("which", ["pinned", "3.6"] if ALL else ["pinned"])
def test_kernels_of_random_programs_keep_within_the_limits(which: str) -> None:
    python = environments.python(which)
    print(f"seed {NUMBER}: set TSTATIC_SEED for another")
    kernels = drawn(COUNT, NUMBER)
    rng = random.Random(NUMBER)
    able = {name: registry.chips(name, pinned=which == "pinned") for name in kernels}
    chips = {name: some if ALL else (rng.choice(some),) for name, some in able.items()}
    reports = compile_all(kernels, chips, python, sass=CHIPS if ALL else ())
    assert len(reports) == sum(map(len, chips.values())) >= COUNT
    kept = [r for r in reports if stays_at_few_registers(r)]
    bad = [text for r in reports if r not in kept for text in violations(r, kind=registry.kind_of(kernels[r.name]))]
    assert bad == [], f"seed {NUMBER}"
    assert len(kept) <= COUNT // 100, [r.name for r in kept]


def test_the_seed_decides_what_is_drawn() -> None:
    once, again, other = drawn(12, 5), drawn(12, 5), drawn(12, 6)
    assert once == again
    assert once != other
    assert len(once) == 12
