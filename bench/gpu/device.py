"""A device that launches generated kernels and times them, and one that needs no GPU: it interprets them and invents the times.

Needs torch, triton and numpy alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
from packfile import LIBTRITON, described

PAD = 128
"""Tensors reach to a multiple of so many elements, as in memory of plans: kernels may read that far."""

GAPS = 100
"""Launches of a graph whose gaps are measured."""

Call = Callable[[], Any]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DeviceLostError(Exception):
    """Nothing can be launched on the device any more."""


class Device:
    """Tensors, launches and times on one device.

    Attributes:
        where: torch's name of the device.
        cache_bytes: Its last level cache: what is timed works on more.
    """

    where = "cpu"
    cache_bytes = 1 << 20

    # -------------------------------------------------------------------------------------------------------- tensors
    def empty(self, count: int, dtype: str) -> Any:
        """A flat tensor, padded, whose every byte is 0xFF: NaN for floats."""
        kind: Any = getattr(torch, dtype)
        whole = torch.empty(-(-max(1, count) // PAD) * PAD, dtype=kind, device=self.where)
        whole.view(torch.uint8).fill_(255)
        return whole[:count]

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Any:
        """A flat tensor with an array's numbers; a bfloat16 array comes as its bits, or as the type of ``ml_dtypes``.

        Raises:
            TypeError: If the array has another type.
        """
        bits = dtype == "bfloat16" and values.dtype.itemsize == 2
        if not bits and values.dtype.name != dtype:
            raise TypeError(f"expected an array of {dtype}, received one of {values.dtype.name}")
        made = self.empty(values.size, dtype)
        flat = np.ascontiguousarray(values).reshape(-1)
        source = torch.from_numpy(flat.view(np.int16) if bits else flat.copy())
        made.copy_(source.view(made.dtype) if bits else source)
        return made

    def get(self, tensor: Any) -> np.ndarray[Any, Any]:
        """A tensor's numbers: floats in 64 bits, others as they are."""
        tensor = tensor.detach().cpu()
        found: np.ndarray[Any, Any] = (tensor.double() if tensor.dtype.is_floating_point else tensor).numpy()
        return found

    def numbers(self, scalars: Sequence[Any]) -> list[float]:
        """The values of tensors with one element each, brought back together."""
        found: list[float] = torch.stack([s.reshape(()).double() for s in scalars]).tolist()
        return found

    def read_into(self, tensor: Any, array: np.ndarray[Any, Any]) -> None:
        """Copies a tensor's bytes into an array of the same size and type."""
        bits = _BITS[array.dtype.itemsize]
        plain = tensor.detach().cpu().view(bits).numpy()
        array.reshape(-1).view(plain.dtype)[:] = plain

    def draw(self, count: int, dtype: str, kind: str, below: int = 2) -> Any:
        """A flat tensor of random numbers: ``normal``, ``positive``, ``power``, ``rate``, or an ``index`` below a number."""
        made = self.empty(count, dtype)
        if kind == "index":
            return made.random_(0, below)
        if kind == "positive":
            made.uniform_(0.5, 2.0)
        elif kind == "power":
            made.uniform_(0.5, 0.9)
        elif kind == "rate":
            made.fill_(0.01)
        elif made.dtype.is_floating_point:
            made.normal_()
        else:
            made.fill_(1)
        return made

    # ------------------------------------------------------------------------------------------------------- launches
    def bind_launches(
        self, module: ModuleType, launches: Sequence[Mapping[str, Any]], tensors: Mapping[str, Any]
    ) -> list[Call]:
        """Ready calls of a kernel's launches, whose arguments name tensors."""
        return [self._bound(module, launch, tensors) for launch in launches]

    def _bound(self, module: ModuleType, launch: Mapping[str, Any], tensors: Mapping[str, Any]) -> Call:
        if "product" in launch:
            return self._product_of(launch, tensors)
        values = [tensors[a] if isinstance(a, str) else a for a in launch["arguments"]]
        run = getattr(module, launch["function"])[tuple(launch["grid"])]
        options = self.options(launch)
        return lambda: run(*values, **launch["constants"], **options)

    def _product_of(self, launch: Mapping[str, Any], tensors: Mapping[str, Any]) -> Call:
        """A product that torch makes between the launches."""
        first, second, *addend, last = launch["arguments"]
        a, b, out = (
            tensors[name].as_strided(*place)
            for name, place in zip((first, second, last), launch["product"], strict=True)
        )
        turned_a, turned_b = launch["turned"]
        a, b = a.mT if turned_a else a, b.mT if turned_b else b
        if addend:
            added = tensors[addend[0]].view(launch["addend"])
            return lambda: torch.addmm(added, a, b, out=out)
        return lambda: torch.matmul(a, b, out=out)

    def options(self, launch: Mapping[str, Any]) -> dict[str, Any]:
        """What a launch says to the compiler."""
        return dict(launch["options"])

    def wait(self) -> None:
        """Waits until all launches are done.

        Raises:
            DeviceLostError: If none will ever be.
        """

    # ---------------------------------------------------------------------------------------------------------- facts
    def facts(self) -> dict[str, Any]:
        """Versions, and what the device says of itself."""
        return {
            "python": sys.version.split()[0], "system": platform.platform(), "torch": torch.__version__,
            "triton": triton.__version__, "numpy": np.__version__, "libtriton_sha256": libtriton(), "device": self.where,
        }  # fmt: skip

    def ceilings(self) -> dict[str, Any]:
        """``bytes_per_s`` of the best copy, read and written, and ``flops_per_s`` of a large bfloat16 matrix product."""
        raise NotImplementedError

    def gaps(self, count: int = 1000) -> dict[str, Any]:
        """Seconds from a launch to the next, of kernels that do nearly nothing.

        Args:
            count: Launches in a row.

        Returns:
            ``host_s``, what the host takes to launch one; ``eager_s``, with the work; ``graph_s``, within a graph; and the same of
            a kernel of Triton's.
        """
        from copying import copy

        a = torch.zeros(PAD, device=self.where)
        b = torch.zeros_like(a)
        run = copy[(1,)]
        calls: dict[str, Call] = {
            "torch": functools.partial(a.add_, 1.0),
            "triton": functools.partial(run, a, b, PAD, BLOCK=PAD),
        }
        found: dict[str, Any] = {}
        for name, call in calls.items():
            self.wait()
            begun = time.perf_counter()
            for _ in range(count):
                call()
            queued = time.perf_counter()
            self.wait()
            told = {"host_s": (queued - begun) / count, "eager_s": (time.perf_counter() - begun) / count}
            graph = self.race({"graph": [[call] * GAPS]}, GAPS * 2e-6)["graph"]
            found[name] = told | ({"graph_s": graph["median_s"] / GAPS} if "median_s" in graph else graph)
        return found

    def race(self, competitors: Mapping[str, Sequence[Sequence[Call]]], expected: float) -> dict[str, dict[str, Any]]:
        """Times each competitor: ``median_s``, ``p20_s``, ``p80_s`` of one run, or the ``error`` that kept it from running.

        Args:
            competitors: Of each its calls on several sets of tensors, which take turns.
            expected: Seconds of a run, as predicted.
        """
        raise NotImplementedError

    def seconds(self, sets: Sequence[Sequence[Call]], expected: float) -> dict[str, Any]:
        """Times one.

        Raises:
            RuntimeError: If it does not run.
        """
        found = self.race({"alone": sets}, expected)["alone"]
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def compiled(self, function: Call) -> Call:
        """The function through torch.compile."""
        raise NotImplementedError


def _scratch(size: int, alignment: int, stream: int | None) -> Any:
    """Memory for a launch. The next one of its stream may have it again, when this one is done."""
    return torch.empty(size, dtype=torch.uint8, device=Cuda.where)


def libtriton() -> str:
    """The hash of Triton's compiled part: what makes two installations of one version differ."""
    if known := os.environ.get(LIBTRITON):
        return known
    digest = hashlib.sha256()
    for path in sorted(Path(triton.__file__).parent.glob("_C/libtriton*.so")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Cuda(Device):
    """The first CUDA device, as it is found: none of its settings is touched."""

    where = "cuda"
    REPLAYS = 31
    WARM = 3
    REPLAY_S = 0.005

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise DeviceLostError("torch finds no CUDA device")
        self.properties: Any = torch.cuda.get_device_properties(0)
        self.cache_bytes = int(getattr(self.properties, "L2_cache_size", 0)) or 50 * 2**20

    def _bound(self, module: ModuleType, launch: Mapping[str, Any], tensors: Mapping[str, Any]) -> Call:
        call = super()._bound(module, launch, tensors)

        def run() -> None:
            # Descriptors that a kernel makes lie in memory that the launch asks for; each thread has a setting of its own.
            triton.set_allocator(_scratch)
            call()

        return run

    def wait(self) -> None:
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise DeviceLostError(str(error).splitlines()[0]) from error

    def facts(self) -> dict[str, Any]:
        p = self.properties
        told = {
            "name": p.name, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count,
            "memory_bytes": p.total_memory, "cache_bytes": self.cache_bytes, "cuda": torch.version.cuda,
        }  # fmt: skip
        try:
            query = [
                "nvidia-smi",
                "--query-gpu=driver_version,clocks.sm,clocks.mem,power.draw",
                "--format=csv,noheader",
            ]
            told["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            told["nvidia_smi"] = "not there"
        return super().facts() | told

    def ceilings(self) -> dict[str, Any]:
        return self._copies(2**31) | {"flops_per_s": self._product(8192)}

    def _copies(self, size: int) -> dict[str, Any]:
        """The best of the driver's copy and of kernels with blocks of several sizes."""
        from copying import copy

        a = torch.empty(size // 4, device="cuda").normal_()
        b = torch.empty_like(a)
        calls: dict[str, Call] = {"memcpy": lambda: b.copy_(a)}
        for block, warps in ((1024, 4), (2048, 8), (4096, 8)):
            run = copy[(-(-a.numel() // block),)]
            calls[f"kernel of {block}"] = functools.partial(run, a, b, a.numel(), BLOCK=block, num_warps=warps)
        found = self.race({name: [[call]] for name, call in calls.items()}, 2 * size / 3e12)
        return best_copy({n: 2 * size / f["median_s"] if "median_s" in f else f["error"] for n, f in found.items()})

    def _product(self, n: int) -> float:
        x, y = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        out = torch.empty_like(x)
        return float(2 * n**3 / self.seconds([[lambda: torch.mm(x, y, out=out)]], 2 * n**3 / 7e14)["median_s"])

    def compiled(self, function: Call) -> Call:
        made: Call = torch.compile(function, dynamic=False, fullgraph=True)
        return made

    def race(self, competitors: Mapping[str, Sequence[Sequence[Call]]], expected: float) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        ready: dict[str, tuple[Call, int, list[tuple[Any, Any]]]] = {}
        for name, sets in competitors.items():
            try:
                replay, turns, found[name] = self._ready(sets)
                ready[name] = (replay, turns, [])
            except DeviceLostError:
                raise
            except Exception as error:
                self.wait()
                found[name] = {"error": described(error)}
        # In turns, so that a clock that drifts does so for all.
        for number in range(self.WARM + self.REPLAYS):
            for replay, _, marks in ready.values():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                replay()
                end.record()
                if number >= self.WARM:
                    marks.append((start, end))
        self.wait()
        for name, (_, turns, marks) in ready.items():
            found[name] |= quantiles([start.elapsed_time(end) / 1e3 / turns for start, end in marks])
        return found

    def _ready(self, sets: Sequence[Sequence[Call]]) -> tuple[Call, int, dict[str, Any]]:
        """What runs several turns at once, how many, and whether as a graph: then no launch waits for Python."""
        for calls in sets:
            for call in calls:
                call()
        self.wait()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for call in sets[0]:
            call()
        ended.record()
        self.wait()
        once = max(begun.elapsed_time(ended) / 1e3, 1e-6)
        # Long enough that the events' own half microsecond does not count; short enough for the time limit.
        turns = max(len(sets), min(20, int(self.REPLAY_S / once)))
        order = [call for turn in range(turns) for call in sets[turn % len(sets)]]

        def plainly() -> None:
            for call in order:
                call()

        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                plainly()
        except Exception as error:
            self.wait()
            return plainly, turns, {"graph": described(error)}
        return graph.replay, turns, {"graph": True}


class DryRun(Device):
    """Stands in for a GPU: interprets kernels on the CPU (``TRITON_INTERPRET=1`` before triton's import), invents the times.

    Args:
        slower: What a run takes, as a multiple of what is predicted.
    """

    def __init__(self, slower: float = 1.1) -> None:
        self.slower = slower

    def options(self, launch: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def _bound(self, module: ModuleType, launch: Mapping[str, Any], tensors: Mapping[str, Any]) -> Call:
        call = super()._bound(module, launch, tensors)

        def quiet() -> None:
            with np.errstate(all="ignore"):
                call()

        return quiet

    def gaps(self, count: int = 10) -> dict[str, Any]:
        return super().gaps(count)

    def ceilings(self) -> dict[str, Any]:
        from copying import copy

        a = torch.arange(1000.0)
        b = torch.zeros_like(a)
        copy[(4,)](a, b, 1000, BLOCK=256)
        right = 3.1e12 if torch.equal(a, b) else "the kernel copies something else"
        return best_copy({"memcpy": 3.0e12, "kernel of 256": right}) | {"flops_per_s": 7.5e14}

    def compiled(self, function: Call) -> Call:
        # Traced as on a GPU, but nothing is compiled: that would take minutes.
        made: Call = torch.compile(function, dynamic=False, fullgraph=True, backend="eager")
        return made

    def race(self, competitors: Mapping[str, Sequence[Sequence[Call]]], expected: float) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, sets in competitors.items():
            try:
                for call in sets[0]:
                    call()
                found[name] = quantiles([expected * self.slower])
            except Exception as error:
                found[name] = {"error": described(error)}
        return found


def best_copy(found: Mapping[str, Any]) -> dict[str, Any]:
    """``bytes_per_s`` of the fastest way to copy, and what each reached or why it did not run.

    Raises:
        RuntimeError: If none ran.
    """
    ran = {name: speed for name, speed in found.items() if isinstance(speed, float)}
    if not ran:
        raise RuntimeError(f"nothing copies: {dict(found)}")
    best = max(ran, key=ran.__getitem__)
    return {"bytes_per_s": ran[best], "best_copy": best, "copies": dict(found)}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median, and the values that a fifth lies below and above."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "median_s": statistics.median(ordered),
        "p20_s": ordered[round(0.2 * last)],
        "p80_s": ordered[round(0.8 * last)],
    }
