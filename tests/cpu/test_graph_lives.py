"""A captured graph ends with its plan, behind its last launch, and the memory of a stream's graphs with the last of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_graphs import standing_in
from tests.helpers.gpu import Recorded, StandIn
from tstatic import static

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)


class Doubled:
    """A small program that trains a weight, and its executor.

    Args:
        rows: Its batch.
    """

    def __init__(self, rows: int = 2) -> None:
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            x = static.data("x", [None, 1, 4, 4])
            self.loss = paddle.mean(static.nn.conv2d(x, 2, 3, bias_attr=False))
            paddle.optimizer.SGD(0.1).minimize(self.loss)
            self.main, self.scope = static.default_main_program(), static.Scope()
            self.exe = static.Executor(paddle.CPUPlace())
            with static.scope_guard(self.scope):
                self.exe.run(static.default_startup_program())
        self.step(rows, 0)

    def step(self, rows: int = 2, times: int = 1) -> None:
        with static.scope_guard(self.scope):
            for _ in range(times):
                self.exe.run(self.main, feed={"x": np.ones((rows, 1, 4, 4), "float32")}, fetch_list=[self.loss])


def alive(gpu: StandIn) -> list[Recorded]:
    return [one for one in gpu.cuda.graphs if one.pool is not None]


def in_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as other:
        return other.submit(work).result()


def test_a_graph_ends_with_its_executor_and_the_pool_with_its_last_graph() -> None:
    with standing_in("gpu") as gpu:
        first, second = Doubled(), Doubled()
        first.step(times=3)
        second.step(times=3)
        assert len(alive(gpu)) == 2
        assert gpu.cuda.pools[0] is gpu.cuda.pools[1], "graphs that one stream launches share their memory"
        first.exe.close()
        assert len(alive(gpu)) == 1
        second.step()
        second.exe.close()
        assert alive(gpu) == []
        assert [one.graphs for one in gpu.cuda.pools] == [0, 0]
        # torch has given the pool up, and refuses to capture another graph into it.
        third = Doubled()
        third.step(times=3)
        assert gpu.cuda.pools[2] is not gpu.cuda.pools[0]
        assert [one.launches for one in alive(gpu)] == [2]


def test_a_plan_that_is_evicted_takes_its_graph_along() -> None:
    """The one that was not used for longest."""
    with standing_in("gpu") as gpu:
        net = Doubled()
        for rows in (2, 3, 4):
            net.step(rows, 3)
        assert len(alive(gpu)) == 3
        net.step(2)
        launched = [one.launches for one in gpu.cuda.graphs]
        kept = paddle.get_flags("FLAGS_plan_cache_bytes")
        try:
            # Of the four plans only the newest stays.
            paddle.set_flags({"FLAGS_plan_cache_bytes": 1})
            net.step(5, 3)
        finally:
            paddle.set_flags(kept)
        assert [one.launches for one in gpu.cuda.graphs[:3]] == launched
        (left,) = alive(gpu)
        assert left is gpu.cuda.graphs[3]


def test_a_graph_is_destroyed_behind_its_last_launch() -> None:
    with standing_in("gpu") as gpu:
        stream = gpu.streams().streams[0]
        place = gpu.upload(np.ones(4, "float32"))
        graph = gpu.capture([(gpu.fill, (place, 2.0, stream))], [stream])
        for _ in range(3):
            gpu.replay(graph)
        assert gpu.cuda.in_flight
        graph.free()
        assert not gpu.cuda.in_flight
        assert alive(gpu) == []
        graph.free()
        again = gpu.capture([(gpu.fill, (place, 3.0, stream))], [stream])
        for _ in range(3):
            gpu.replay(again)
        assert gpu.cuda.in_flight
        # Nobody frees it: it goes with its last name.
        del again
        gc.collect()
        assert not gpu.cuda.in_flight
        assert alive(gpu) == []
        assert stream.pool is None


def test_graphs_that_share_memory_are_launched_by_one_stream_whichever_thread_runs_them() -> None:
    with standing_in("gpu") as gpu:
        launched: dict[int, set[int]] = {}
        replay = Recorded.replay

        def noted(graph: Recorded) -> None:
            launched.setdefault(id(graph.pool), set()).add(id(gpu.cuda.now))
            replay(graph)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Recorded, "replay", noted)
            # The first run, which binds the session to streams, in this thread; its capture in another one.
            mine = Doubled()
            mine.step(times=1)

            def there() -> Doubled:
                mine.step(times=3)
                theirs = Doubled()
                theirs.step(times=3)
                return theirs

            theirs = in_thread(there)
            mine.step(times=2)
            theirs.step(times=2)
            other = Doubled()
            other.step(times=3)
        assert len(alive(gpu)) == 3
        assert len(launched) == 2, "one pool for each thread's streams"
        assert all(len(streams) == 1 for streams in launched.values())


def test_the_graphs_of_a_thread_that_ended_go_with_their_executor() -> None:
    with standing_in("gpu") as gpu:

        def work() -> None:
            net = Doubled()
            net.step(times=3)
            assert len(alive(gpu)) == 1

        in_thread(work)
        gc.collect()
        assert alive(gpu) == []
        assert [one.graphs for one in gpu.cuda.pools] == [0]


@pytest.mark.parametrize("name", ["gpu", "fake"])
def test_a_session_that_binds_anew_drops_the_graphs_of_before(name: str) -> None:
    """As it does when variables of its scope get other memory."""
    with standing_in(name) as device:
        net = Doubled()
        net.step(times=3)
        (session,) = [one for kept in net.exe._cache._entries.values() for one in kept.bound.sessions if one.runs == 3]
        assert session.bound is not None
        before = [graph for one in (session.bound.whole, *session.bound.schedules.values()) for graph in one.graphs]
        assert any(one.captured for one in before)
        session.bind_plan()
        if name == "gpu":
            assert alive(device) == []
        net.step(times=3)
        if name == "gpu":
            assert len(alive(device)) == 1
        net.exe.close()
        assert session.bound is None
        if name == "gpu":
            assert alive(device) == []
