"""What each topic of the logs says of a program that is built, run and trained."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest

import tstatic as paddle
from tstatic import logs, static
from tstatic.fusion.engine import cache

Lines = pytest.LogCaptureFixture


def lines(caplog: Lines, topic: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == logs.TOPICS[topic]]


@pytest.fixture
def program(caplog: Lines) -> tuple[static.Executor, static.CompiledProgram, static.Variable]:
    x = static.data("x", [None, 4])
    unread = paddle.exp(x)
    assert unread.shape == (-1, 4)
    loss = paddle.mean(paddle.nn.functional.relu(static.nn.fc(x, 3)))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    caplog.set_level(logging.DEBUG, logger="tstatic")
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    return exe, static.CompiledProgram(static.default_main_program(), strategy), loss


def feed(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 4), "f4")}


def test_passes_names_each_pass_that_changed_the_program_with_op_counts(program, caplog: Lines) -> None:
    exe, compiled, loss = program
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    said = [re.sub(r"[\d.]+ ms", "ms", line) for line in lines(caplog, "passes")]
    assert said == ["dce: 5 ops -> 4 ops in ms"]


def test_fusion_names_what_was_fused_with_lines_and_what_was_not_with_its_code(program, caplog: Lines) -> None:
    exe, compiled, loss = program
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    (made,) = lines(caplog, "fusion")
    assert "became fused_elemwise_add_activation" in made
    assert made.count(Path(__file__).name) == 2
    caplog.clear()
    summed = next(v for v in static.default_main_program().list_vars() if v.name.endswith("tmp_1"))
    exe.run(compiled, feed=feed(2), fetch_list=[loss, summed])
    (refused,) = lines(caplog, "fusion")
    assert "stay apart: FETCHED" in refused


def test_recompiles_says_which_sizes_of_the_feed_differ(program, caplog: Lines) -> None:
    exe, compiled, loss = program
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    exe.run(compiled, feed=feed(3), fetch_list=[loss])
    first, second = lines(caplog, "recompiles")
    assert first.endswith("first run")
    assert second.endswith("differs in feed signature (x: (2, 4) float32 -> (3, 4) float32)")


def test_recompiles_says_the_same_of_a_program_on_several_places(program, caplog: Lines) -> None:
    exe, _, loss = program
    compiled = static.CompiledProgram(static.default_main_program()).with_data_parallel(places=["cpu", "cpu"])
    exe.run(compiled, feed=feed(4), fetch_list=[loss])
    exe.run(compiled, feed=feed(5), fetch_list=[loss])
    first, second = lines(caplog, "recompiles")
    assert " for 2 places in " in first
    assert first.endswith("first run")
    assert second.endswith("differs in feed signature (replica 1: x: (2, 4) float32 -> (3, 4) float32)")


@pytest.mark.numpy_device
def test_memory_says_what_is_allocated_and_freed_in_bytes(program, caplog: Lines) -> None:
    exe, compiled, loss = program
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    arena = f"{compiled.plan.arena_bytes} bytes"
    assert f"allocated {arena} for an arena of temporaries" in lines(caplog, "memory")
    exe.close()
    assert f"freed {arena} of an arena of temporaries" in lines(caplog, "memory")


def test_kernels_says_what_is_generated_and_what_the_cache_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Lines
) -> None:
    monkeypatch.setenv("TSTATIC_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.DEBUG, logger="tstatic")
    path = cache.store("a = 1\n", "one")
    assert lines(caplog, "kernels") == [f"{path} is generated"]
    cache.store("a = 1\n", "one")
    assert lines(caplog, "kernels")[1:] == [f"{path} is in the cache"]


def test_a_program_that_logs_at_info_gets_no_line_per_step(program, caplog: Lines) -> None:
    exe, compiled, loss = program
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    assert len(lines(caplog, "steps")) == 1
    caplog.clear()
    caplog.set_level(logging.INFO, logger="tstatic")
    exe.run(compiled, feed=feed(2), fetch_list=[loss])
    assert caplog.records == []
