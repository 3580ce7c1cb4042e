"""What a step waits for its exchange on devices with addresses and a clock: the figures of the page, and faults that they show."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
before = list(sys.path)
sys.path.insert(0, str(DOCS))
clock: ModuleType = importlib.import_module("scaling_clock")
model: ModuleType = importlib.import_module("scaling_model")
tables: ModuleType = importlib.import_module("scaling_table")
sys.path[:] = before

pytestmark = [pytest.mark.slow, pytest.mark.torch]
MODEL = {"gpt-bf16": 0.035, "gpt": 0.055}
"""The most of a step of eight GPUs that may be exposed."""


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """Plans of whole models are kept while this file runs, and not longer."""
    yield
    clock.planned.cache_clear()
    clock._simplified.cache_clear()


def told(name: str, devices: int, network: Any, limit: float | None) -> float:
    """Seconds of waiting by the formula of the page."""
    seconds: float = model.all_reduce_step(tables.short_step(name), devices, network, limit).waited
    return seconds


@pytest.mark.parametrize("name", MODEL)
def test_eight_gpus_wait_as_little_as_the_page_says(name: str) -> None:
    step, work = clock.planned(name, 8), tables.short_step(name)
    found = clock.waited(step, 8)
    assert found <= MODEL[name] * work.alone
    assert found == pytest.approx(told(name, 8, tables.SWITCH, tables.LIMIT), rel=0.1)
    assert step.report.after == model.all_reduce_traffic(work, tables.LIMIT).calls
    assert step.report.nbytes == work.nbytes


@pytest.mark.parametrize(
    ("devices", "network"),
    [(8, tables.H100.fast), (64, tables.SWITCH), (1024, tables.SWITCH), (64, tables.H100.slow)],
    ids=["8 in a ring", "64", "1024", "64 with one slow card"],
)
def test_the_formula_holds_where_more_is_exposed(devices: int, network: Any) -> None:
    """With the times at which the fused steps complete their gradients. Replicas are alike, so two of them are run."""
    step = clock.planned("gpt-bf16", 8)
    found = clock.waited(step, devices, network, replicas=2)
    wanted = model.all_reduce_step(clock.work_of("gpt-bf16"), devices, network, tables.LIMIT).waited
    assert found == pytest.approx(wanted, rel=0.1)


def test_the_parts_of_a_step_take_what_they_are_said_to_take() -> None:
    step = clock.planned("gpt-bf16", 8)
    found = dict.fromkeys(tables.PARTS, 0.0)
    for one in step.plan.steps:
        if not one.op.definition.collective and one.how not in ("view", "joined"):
            found[clock.part_of(one.op)] += step.seconds[one.op.writes()[0]]
    assert found == pytest.approx(tables.PARTS)
    alone = clock.run(clock.planned("gpt-bf16", 1), 1, tables.SWITCH)
    # Feeds, fetches and events come on top.
    assert sum(tables.PARTS.values()) < alone < 1.01 * sum(tables.PARTS.values())


def test_one_bucket_behind_the_backward_part_is_seen() -> None:
    found = clock.waited(clock.planned("gpt-bf16", 8, None), 8, replicas=2)
    assert found == pytest.approx(told("gpt-bf16", 8, tables.SWITCH, None), rel=0.1)
    assert found > 2 * clock.waited(clock.planned("gpt-bf16", 8), 8, replicas=2)


def test_in_the_stream_of_the_computation_everything_is_exposed() -> None:
    step = clock.planned("gpt-bf16", 8, same_stream=True)
    work = tables.short_step("gpt-bf16")
    all_calls = [n for b in model.buckets(work.gradients, tables.LIMIT) for n in model.calls(b, tables.LIMIT)]
    wanted = sum(tables.SWITCH.time(8, model.ring_all_reduce(n, 8), 2) for n in all_calls)
    assert clock.waited(step, 8, replicas=2) == pytest.approx(wanted, rel=0.1)


def test_a_longer_link_shows_in_the_run() -> None:
    """The figures are those of the links, not of the device's own table of costs."""
    step = clock.planned("gpt-bf16", 8)
    slower = replace(tables.SWITCH, inside=tables.SWITCH.inside / 2)
    assert clock.waited(step, 8, slower, replicas=2) > 1.5 * clock.waited(step, 8, replicas=2)


def test_buckets_are_cut_from_the_back_of_the_flat_gradient_buffer() -> None:
    step = clock.planned("gpt-bf16", 8)
    sums = [one.op for one in step.plan.steps if one.op.type == "c_allreduce_sum"]
    firsts: dict[str, list[int]] = {}
    for op in sums:
        slots = [(step.plan.storage[v].offset, step.metas[v]) for v in op.outputs[0] or ()]
        firsts.setdefault(slots[0][1].dtype.name, []).append(min(offset for offset, _ in slots))
    assert {dtype: len(found) for dtype, found in firsts.items()} == {"bfloat16": 9, "float32": 1}
    for found in firsts.values():
        assert found == sorted(found, reverse=True)
