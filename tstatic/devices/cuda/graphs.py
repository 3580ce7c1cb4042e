"""Captures what is put into streams of a GPU as torch's graphs, and destroys them once their last launch has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tstatic.devices.queued import QueuedDevice
from tstatic.devices.step import Stream
from tstatic.locks import lock


class GraphPool:
    """Memory of graphs that are launched in one order, so that what one of them no longer reads is another's.

    torch gives the memory up with the last graph, and then refuses to capture another one into the pool.

    Attributes:
        handle: torch's name of it.
        graphs: How many use it.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.graphs = 0


class CudaStream(Stream):
    """A stream of torch.

    Attributes:
        queue: torch's stream.
        pool: The memory of the graphs that it launches; ``None`` while there are none.
    """

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.pool: GraphPool | None = None


_counting = lock()


class CapturedGraph:
    """A graph of torch, in the stream that launches it.

    Args:
        made: torch's graph.
        stream: The stream.
        pool: The memory that it uses.
    """

    def __init__(self, made: Any, stream: CudaStream, pool: GraphPool) -> None:
        self.made: Any = made
        self._stream, self._pool = stream, pool
        with _counting:
            pool.graphs += 1

    def destroy(self) -> None:
        """Destroys the graph when its last launch has ended; its pool goes with the last graph."""
        made, self.made = self.made, None
        if made is None:
            return
        # Where work failed, the context is lost, and with it the graph.
        with contextlib.suppress(RuntimeError):
            self._stream.queue.synchronize()
            made.reset()
        with _counting:
            self._pool.graphs -= 1
            if not self._pool.graphs and self._stream.pool is self._pool:
                self._stream.pool = None

    def __del__(self) -> None:
        # At the end of the process torch, or CUDA, may be gone.
        with contextlib.suppress(Exception):
            self.destroy()


class _Capture:
    """A capture that goes on: torch's graph, its memory, and the block of torch's current stream."""

    def __init__(self, made: Any, stream: CudaStream, pool: GraphPool, entered: contextlib.ExitStack) -> None:
        self.made, self.stream, self.pool, self.entered = made, stream, pool, entered


class CudaGraphs(QueuedDevice):
    """How a GPU captures and launches graphs.

    Attributes:
        index: Number of the GPU.
    """

    index: int

    @property
    def cuda(self) -> Any:
        """``torch.cuda``, or what tests put in its place."""
        raise NotImplementedError

    def begin_capture(self, streams: Sequence[Stream]) -> Any:
        first = streams[0]
        assert isinstance(first, CudaStream)
        # Of the stream that launches, and not of the thread that captures: a session may be another thread's the next time.
        pool = first.pool
        if pool is None:
            pool = first.pool = GraphPool(self.cuda.graph_pool_handle())
        made = self.cuda.CUDAGraph()
        entered = contextlib.ExitStack()
        entered.enter_context(self.cuda.stream(first.queue))
        try:
            # Other threads may allocate meanwhile: replicas, and the user's own.
            made.capture_begin(pool=pool.handle, capture_error_mode="thread_local")
        except BaseException:
            entered.close()
            raise
        return _Capture(made, first, pool, entered)

    def end_capture(self, token: Any) -> Any:
        with token.entered:
            token.made.capture_end()
        return CapturedGraph(token.made, token.stream, token.pool)

    def abandon_capture(self, token: Any) -> None:
        with token.entered:
            try:
                token.made.capture_end()
            except RuntimeError:
                # CUDA ends an invalid capture with an error, which says no more than the one that broke it; torch goes on giving
                # memory of the graph's pool then, until it is told.
                told = getattr(getattr(self.cuda, "memory", None), "_cuda_endAllocateToPool", None)
                if told is not None:
                    with contextlib.suppress(RuntimeError):
                        told(self.index, token.pool.handle)
        token.made.reset()
        # What the broken capture allocated stays in its pool: the next one begins another.
        token.stream.pool = None

    def launch_graph(self, made: Any, stream: Stream) -> None:
        assert isinstance(stream, CudaStream)
        with self.cuda.stream(stream.queue):
            made.made.replay()

    def pool_bytes(self, streams: Sequence[Stream]) -> int:
        pools = [one.pool.handle for one in streams if isinstance(one, CudaStream) and one.pool is not None]
        if not pools:
            return 0
        return sum(int(one["total_size"]) for one in self.cuda.memory_snapshot() if one["segment_pool_id"] in pools)

    def drop_graph(self, made: Any, stream: Stream) -> None:
        made.destroy()


__all__ = ["CapturedGraph", "CudaGraphs", "CudaStream", "GraphPool"]
