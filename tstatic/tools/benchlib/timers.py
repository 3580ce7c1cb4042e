"""Times calls on a device: the CPU by its clock, a GPU by events in its stream."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tstatic.devices.cpu.copy_speed import copy_speed
from tstatic.errors import DeviceError, MissingPackageError
from tstatic.places import CPUPlace, CUDAPlace
from tstatic.tools.benchlib import machine

Run = Callable[[], Any]


class Timer(Protocol):
    """What measures: how long calls take, and how a device is called.

    Attributes:
        device: ``cpu`` or ``cuda``.
        threads: Threads of each peer on the CPU.
        pause: Seconds between two peers: threads of some libraries spin for milliseconds after their work.
        cache_bytes: What inputs must exceed so that they are not found in a cache; 0 where that is not wanted.
    """

    device: str
    threads: int
    pause: float
    cache_bytes: int

    def seconds(self, runs: list[Run], times: int) -> float:
        """Returns seconds that so many runs take, which go through ``runs`` in turn, until all work is done."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...

    def place(self) -> Any:
        """Returns the place on which tstatic runs."""
        ...

    def facts(self) -> dict[str, Any]:
        """Returns what the device says of itself."""
        ...

    def roofs(self) -> Roofs:
        """Returns how fast the device copies and multiplies, measured now."""
        ...


@dataclass(frozen=True)
class Roofs:
    """What a device reaches at most, measured.

    Attributes:
        bytes_per_s: Bytes that a copy of large arrays reads and writes in a second.
        flops_per_s: Floating-point operations of a large product of float32 matrices in a second.
    """

    bytes_per_s: float
    flops_per_s: float


@dataclass
class CpuTimer:
    """Times by the clock of the process, without Python's garbage collection in between.

    Args:
        threads: How many threads the peers have, and the machine's speed is measured with.
        clock: Seconds.
    """

    threads: int = 1
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    device: str = field(default="cpu", init=False)
    pause: float = 0.005
    # Repeated runs find their inputs in the cache, for all peers alike, as the next op of a program would.
    cache_bytes: int = field(default=0, init=False)

    def seconds(self, runs: list[Run], times: int) -> float:
        with _no_collection():
            start = self.clock()
            for number in range(times):
                runs[number % len(runs)]()
            return self.clock() - start

    def place(self) -> Any:
        return CPUPlace()

    def facts(self) -> dict[str, Any]:
        return {"device": "cpu", "threads": self.threads}

    def roofs(self) -> Roofs:
        import threadpoolctl

        size = 1024
        a = np.random.default_rng(0).standard_normal((size, size), np.float32)
        out = np.empty_like(a)
        with threadpoolctl.threadpool_limits(self.threads):
            best = min(self.seconds([lambda: np.matmul(a, a, out)], 1) for _ in range(4))
        return Roofs(copy_speed(self.threads), 2 * size**3 / max(best, 1e-9))


class _Paused:
    def __enter__(self) -> None:
        self.was = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self.was:
            gc.enable()


def _no_collection() -> AbstractContextManager[None]:
    return _Paused() if gc.isenabled() else nullcontext()


class CudaTimer:
    """Times by events around the calls, which are queued behind each other: the time of the slower of host and device.

    Raises:
        MissingPackageError, DeviceError: If there is no torch, or it finds no GPU; the error says what was looked for.
    """

    device = "cuda"
    threads = 1
    pause = 0.0

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingPackageError(
                "device cuda needs torch",
                expected="an installed torch with CUDA",
                received=str(error),
                fix="pip install 'tstatic[gpu]', or use --device cpu",
            ) from error
        if not torch.cuda.is_available():
            built = torch.version.cuda
            raise DeviceError(
                "device cuda: there is no GPU to measure",
                expected="a CUDA device that torch finds",
                received=f"torch {torch.__version__} ({f'built for CUDA {built}' if built else 'built without CUDA'}), "
                f"{torch.cuda.device_count()} devices; {machine.gpu_query()}",
                fix="use --device cpu, or run tstatic doctor",
            )
        self._torch: Any = torch
        self._properties: Any = torch.cuda.get_device_properties(0)
        # Four caches full of inputs, in turn: a kernel must not find what its last run left there.
        self.cache_bytes = 4 * (int(getattr(self._properties, "L2_cache_size", 0)) or 50 << 20)

    def seconds(self, runs: list[Run], times: int) -> float:
        cuda = self._torch.cuda
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        with _no_collection():
            start.record()
            for number in range(times):
                runs[number % len(runs)]()
            end.record()
            cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def place(self) -> Any:
        return CUDAPlace(0)

    def facts(self) -> dict[str, Any]:
        p = self._properties
        return {
            "device": "cuda", "name": p.name, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count,
            "memory_bytes": p.total_memory, "cuda": self._torch.version.cuda, "nvidia_smi": machine.gpu_query(),
        }  # fmt: skip

    def roofs(self) -> Roofs:
        torch = self._torch
        source = torch.empty(1 << 28, device="cuda").normal_()
        target = torch.empty_like(source)
        copy = min(self.seconds([lambda: target.copy_(source)], 5) / 5 for _ in range(5))
        size = 8192
        a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        product = min(self.seconds([lambda: torch.mm(a, b, out=out)], 2) / 2 for _ in range(4))
        return Roofs(2 * source.nbytes / copy, 2 * size**3 / product)


def timer_of(device: str, threads: int) -> Timer:
    """Returns what times a device.

    Raises:
        MissingPackageError, DeviceError: If it is not there.
    """
    return CudaTimer() if device == "cuda" else CpuTimer(threads)


def sets_for(timer: Timer, nbytes: int) -> int:
    """Returns how many sets of inputs take turns, so that the caches hold none of them: between 1 and 16."""
    return 1 if not timer.cache_bytes else max(1, min(16, math.ceil(timer.cache_bytes / max(1, nbytes))))
