"""Compares the memory report of a program with what torch's allocator and the driver of a GPU say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tstatic.display import size
from tstatic.plan.report import MemoryReport

STEPS = 3
"""So many steps come before: calls, the capture, and the first launch that allocates nothing."""


@dataclass(frozen=True)
class MemoryComparison:
    """What a report says, and what was measured in one step behind the third.

    Attributes:
        reported: Bytes by part, as the report has them.
        allocated_bytes: The most that tensors had at one time, beside what was there before the program.
        pool_bytes: What pools of graphs hold beyond that: results that lie there only while a graph runs.
        context_bytes: What the driver had taken before the first step, beside the allocator: context, handles, modules.
        later_bytes: What it has taken since: modules, and nodes of graphs.
    """

    reported: dict[str, int]
    allocated_bytes: int
    pool_bytes: int
    context_bytes: int
    later_bytes: int

    @property
    def measured_bytes(self) -> int:
        """What the report is compared with."""
        return self.allocated_bytes + self.pool_bytes

    @property
    def reported_bytes(self) -> int:
        """All that the report says."""
        return sum(self.reported.values())

    @property
    def off(self) -> float:
        """By what share the report is above what was measured; negative: below."""
        return self.reported_bytes / max(1, self.measured_bytes) - 1

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in self.reported.items() if nbytes)
        return (
            f"reported {size(self.reported_bytes)} ({parts}); measured {size(self.measured_bytes)}, {self.off:+.1%}: tensors "
            f"{size(self.allocated_bytes)}, pools of graphs {size(self.pool_bytes)}; apart: context and handles "
            f"{size(self.context_bytes)}, modules and nodes of graphs {size(self.later_bytes)}"
        )


class GpuMemory:
    """The memory of a GPU, from before a program is made.

    Args:
        cuda: ``torch.cuda``.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._tensors = cuda.memory_allocated()
        self._driver = self._of_driver()

    def compare(self, step: Callable[[], Any], report: Callable[[], MemoryReport]) -> MemoryComparison:
        """Runs some steps, watches one more, and compares.

        Args:
            step: Runs the program once, and waits for it.
            report: Makes the program's report.
        """
        for _ in range(STEPS):
            step()
        cuda = self._cuda
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        step()
        cuda.synchronize()
        most = cuda.max_memory_allocated() - self._tensors
        # Tensors of a captured graph are gone, and their memory is its own all the same.
        pools = [one for one in cuda.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0)]
        held = sum(one["total_size"] - one["allocated_size"] for one in pools)
        return MemoryComparison(report().parts, most, held, self._driver, max(0, self._of_driver() - self._driver))

    def _of_driver(self) -> int:
        """Returns what is taken of the GPU beside the allocator, by this process and all others."""
        free, total = self._cuda.mem_get_info()
        return int(total - free - self._cuda.memory_reserved())


__all__ = ["GpuMemory", "MemoryComparison"]
