"""The first GPU as a bench of programs uses it; in a dry run the class of GPUs on tensors of the CPU, which records graphs."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

import torch  # noqa: E402 - found through the line above
from packfile import Json  # noqa: E402

from tstatic.devices.graphs import LateGraph  # noqa: E402
from tstatic.logs import get_logger  # noqa: E402


@dataclass(frozen=True)
class Gpu:
    """The first GPU.

    Attributes:
        dry: Whether tensors of the CPU stand in for it.
        cuda: ``torch.cuda``, or what stands in for it.
    """

    dry: bool
    cuda: Any

    @property
    def where(self) -> str:
        """Torch's name of the device."""
        return "cpu" if self.dry else "cuda"

    def wait(self) -> None:
        """Waits for all work."""
        self.cuda.synchronize(0)

    def alive(self) -> bool:
        """Whether anything can still be launched."""
        try:
            self.wait()
        except Exception:
            return False
        return True

    def allocated(self) -> Json:
        """Bytes that torch's allocator holds at this moment, and its most since the last reset."""
        return {
            "allocated": int(self.cuda.memory_allocated()),
            "most_allocated": int(self.cuda.max_memory_allocated()),
            "most_reserved": int(self.cuda.max_memory_reserved()),
        }


class Held:
    """What torch's allocator would say, of the tensors that live in this process."""

    def __init__(self) -> None:
        self._most = 0

    def memory_allocated(self) -> int:
        """Bytes of all storages."""
        tensors = (one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter))
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
        self._most = max(self._most, sum(storages.values()))
        return sum(storages.values())

    def max_memory_allocated(self) -> int:
        """The most that was seen; storages are looked at only when someone asks."""
        self.memory_allocated()
        return self._most

    max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self) -> None:
        """Forgets what was seen."""
        self._most = 0

    def empty_cache(self) -> None:
        """Tensors of the CPU have none."""

    def mem_get_info(self) -> tuple[int, int]:
        """Bytes that are free, and all."""
        return 2**31, 2**32


@contextlib.contextmanager
def first(dry: bool) -> Iterator[Gpu]:
    """Yields the first GPU, or in a dry run what stands in for it where ``CUDAPlace(0)`` finds it.

    Raises:
        RuntimeError: If torch finds none.
    """
    if not dry:
        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no CUDA device")
        yield Gpu(False, torch.cuda)
        return
    from tests.helpers import gpu  # needs pytest, which only a dry run does

    gpu.REAL = False  # a dry run leaves a GPU that is there alone
    with gpu.first_gpu() as made:
        held = Held()
        for name in dir(Held):
            if not name.startswith("_"):
                setattr(made.cuda, name, getattr(held, name))
        yield Gpu(True, made.cuda)


def graphs(before: Mapping[int, Any] | None = None) -> dict[int, LateGraph]:
    """The parts of plans that a device launches as graphs, which live now and did not live before."""
    found = {id(one): one for one in gc.get_objects() if type(one) is LateGraph}
    return {number: one for number, one in found.items() if number not in (before or {})}


def told(found: Mapping[int, LateGraph]) -> Json:
    """How many parts ran, how many are captured, and why others are not."""
    # A plan whose regions are one graph has a graph of each beside it, which never runs.
    found = {number: one for number, one in found.items() if one._ran}
    return {
        "graphs": len(found),
        "captured": sum(one.captured for one in found.values()),
        "refused": sorted({one.refused for one in found.values() if one.refused}),
    }


@contextlib.contextmanager
def said(topic: str) -> Iterator[list[str]]:
    """Collects what a topic of the log says."""
    lines: list[str] = []

    class Keep(logging.Handler):
        """Keeps the lines."""

        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = get_logger(topic), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
