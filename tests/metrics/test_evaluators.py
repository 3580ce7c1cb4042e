"""Evaluators add up the counts of runs, as the metrics of fetched values do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic import fluid, static
from tstatic.errors import ProgramError


def _tokens(rng: np.random.Generator, lengths: list[int]) -> Any:
    return fluid.create_lod_tensor(rng.integers(0, 5, (sum(lengths), 1)), [lengths])


def _data() -> list[Any]:
    return [static.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "wanted")]


def _feed(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    lengths = [int(n) for n in rng.integers(1, 6, 3)]
    return {"found": _tokens(rng, lengths), "wanted": _tokens(rng, lengths)}


def test_chunks_over_runs() -> None:
    found, wanted = _data()
    evaluator = fluid.evaluator.ChunkEvaluator(found, wanted, chunk_scheme="IOB", num_chunk_types=2)
    counts = fluid.layers.chunk_eval(found, wanted, "IOB", 2)[3:]
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for _ in range(2):
        metric = fluid.metrics.ChunkEvaluator()
        evaluator.reset(exe)
        for seed in range(4):
            metric.update(*exe.run(feed=_feed(seed), fetch_list=[*counts]))
        values = evaluator.eval(exe)
        assert [v.shape for v in values] == [(1,)] * 3
        np.testing.assert_allclose(np.concatenate(values), metric.eval(), rtol=1e-6)
        assert 0 < values[2][0] < 1
    evaluator.reset(exe)
    assert [float(v[0]) for v in evaluator.eval(exe)] == [0.0] * 3


def test_distances_over_runs() -> None:
    found, wanted = _data()
    evaluator = fluid.evaluator.EditDistance(found, wanted)
    parts = fluid.layers.edit_distance(found, wanted)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    metric = fluid.metrics.EditDistance("distance")
    for seed in range(4):
        distances, count, batch, _ = exe.run(feed=_feed(seed), fetch_list=[*parts, *evaluator.metrics])
        metric.update(distances, count)
        assert float(np.ravel(batch)[0]) == pytest.approx(float(distances.sum()))
    np.testing.assert_allclose(np.concatenate(evaluator.eval(exe)), metric.eval(), rtol=1e-6)
    evaluator.reset(exe)
    with pytest.raises(ProgramError, match="There is no data"):
        evaluator.eval(exe)


def test_counts_stay_in_evaluation_programs_of_ones_own() -> None:
    found, wanted = _data()
    evaluator = fluid.evaluator.EditDistance(found, wanted)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    exe.run(feed=_feed(1))
    before = str(static.default_main_program())
    mine = static.Program()
    assert np.array_equal(evaluator.eval(exe, mine)[0], evaluator.eval(exe)[0])
    assert str(static.default_main_program()) == before
    assert mine.global_block().ops
