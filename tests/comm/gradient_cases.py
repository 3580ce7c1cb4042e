"""Ranks of which some compute gradients that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np

import tstatic as paddle
from tests.comm.cases import say
from tests.parallel.merging import RUNS, Job, rows
from tstatic import distributed, static
from tstatic.errors import RankNumericsError


def _net(places: int, amp: bool) -> tuple[Any, Any, Any]:
    paddle.seed(3)
    x, i = static.data("x", [None, 3]), static.data("i", [None], "int64")
    table = static.nn.embedding(i, [10, 3], is_sparse=True, param_attr=paddle.ParamAttr(name="table"))
    loss = paddle.mean(static.nn.fc(x * table, 2))
    optimizer: Any = paddle.optimizer.Adam(0.1)
    if amp:
        optimizer = static.amp.decorate(optimizer, init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
    optimizer.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    compiled = static.CompiledProgram(static.default_main_program())
    return exe, compiled.with_data_parallel(loss.name, places=[paddle.CPUPlace()] * places), loss


def _state() -> dict[str, Any]:
    names = [v.name for v in static.default_main_program().list_vars() if v.persistable]
    return {n: np.array(static.global_scope().find_var(n).get_tensor()) for n in names}


def bad_gradients(places: int, victims: list[int], amp: bool = False) -> None:
    """Says after each of three steps what happened; the victims' second one has a NaN in the last row."""
    paddle.enable_static()
    rank = distributed.get_rank()
    exe, compiled, loss = _net(places, amp)
    for step in range(3):
        feed = {"x": np.full((4, 3), 0.5 + 0.1 * rank, "float32"), "i": np.arange(4)}
        if step == 1 and rank in victims:
            feed["x"][-1] = np.nan
        before = _state()
        try:
            exe.run(compiled, feed=feed, fetch_list=[loss])
            said = ""
        except RankNumericsError as error:
            said = f"{error.what} | {error.received} | {error.where}"
        after = _state()
        kept = all(np.array_equal(before[n], after[n]) for n in before if "loss_scaling" not in n and "step" not in n)
        finite = all(np.isfinite(one).all() for one in after.values())
        say(step, said, kept, finite)


def sums_over_runs(places: int) -> None:
    """Says after each run what the process sees of its sums and parameters, and how many collectives there were."""
    paddle.enable_static()
    rank = distributed.get_rank()
    job = Job(places)
    for number in range(2 * RUNS):
        job.step(number, x=rows(10 * number + rank))
        say(number, {name: value.tolist() for name, value in job.values().items()}, job.group.calls)
