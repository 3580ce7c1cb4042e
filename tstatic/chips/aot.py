"""Compiles generated kernels for chips that need not be here, and reads the figures of what came out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tstatic.chips.ir import read_copies, read_dots
from tstatic.chips.matrix import read_matrix
from tstatic.chips.processes import CompilePool, CompilePoolError, Worker
from tstatic.chips.report import SHARED_LIMIT, Report
from tstatic.chips.sass import read_log, read_ptx, read_sass, threads_per_block
from tstatic.errors import UnsupportedError
from tstatic.progress import Progress

__all__ = ["Report", "Source", "compile_all"]

# Variables by which Triton compiles differently, beside those with its prefixes.
_KNOBS = frozenset({"DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "USE_IR_LOC", "DEBUG"})


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel to compile.

    Attributes:
        text: A whole Python module that imports triton and defines the function and what it calls.
        function: Name of the ``@triton.jit`` function.
        signature: Parameter -> Triton type ("*fp32", "*bf16", "i32", "i64"), ``tl.constexpr`` parameters left out.
        constants: ``tl.constexpr`` parameters and their values.
        divisible: Parameters that are known to be multiples of 16: lengths, and pointers (in bytes).
        num_warps: Warps per program.
        num_stages: Depth of software pipelines.
        small: Pointers off the main path (a scalar, a broadcast row), whose accesses may be narrow.
        contract: Whether a product and a sum may be one operation with one rounding.
        behind: Bits of an element of the streams whose addresses lie in tables.
        scratch: Bytes of global memory per program that the launch gives to the compiled code.
    """

    text: str
    function: str
    signature: Mapping[str, str]
    constants: Mapping[str, int | float | bool | str]
    divisible: tuple[str, ...]
    num_warps: int = 4
    num_stages: int = 3
    small: tuple[str, ...] = ()
    contract: bool = True
    behind: tuple[int, ...] = ()
    scratch: int = 0

    def __post_init__(self) -> None:
        foreign = {*self.divisible, *self.small} - set(self.signature)
        assert not foreign, f"not in the signature: {sorted(foreign)}"
        assert not set(self.signature) & set(self.constants), "a parameter has a type or a constant, not both"

    @property
    def streams(self) -> dict[str, int]:
        """Pointers of the main path -> bits of an element in memory (a bool takes 8)."""
        return {
            name: max(8, int(re.findall(r"\d+", kind)[0]))
            for name, kind in self.signature.items()
            if kind.startswith("*") and name not in self.small
        }


@dataclass(frozen=True, slots=True)
class _Job:
    """One kernel for one chip."""

    name: str
    source: Source
    chip: int
    sass: bool

    def line(self) -> str:
        source = self.source
        content = {
            "text": source.text,
            "function": source.function,
            "signature": dict(source.signature),
            "constants": dict(source.constants),
            "divisible": list(source.divisible),
            "num_warps": source.num_warps,
            "num_stages": source.num_stages,
            "contract": source.contract,
            "chip": self.chip,
            "sass": self.sass,
        }
        return json.dumps(content) + "\n"


def _report(job: _Job, triton: str, answer: Mapping[str, Any]) -> Report:
    """Reads the figures out of a worker's answer."""
    if answer.get("error"):
        return Report(job.name, job.chip, triton, error=str(answer["error"]))
    kinds = job.source.signature
    try:
        used = read_log(answer["log"])
        accesses, traps = read_ptx(answer["ptx"], [(n, kinds[n].startswith("*")) for n in answer["parameters"]])
        sass = None if answer["sass"] is None else read_sass(answer["sass"])
        forms = answer["forms"]
        dots = read_dots(forms["ttir"], answer["parameters"]) if forms else ()
        copies = read_copies(forms["ttgir"]) if forms else None
    except ValueError as error:
        return Report(job.name, job.chip, triton, answer["seconds"], str(error))
    return Report(
        name=job.name,
        chip=job.chip,
        triton=triton,
        seconds=answer["seconds"],
        registers=used.registers,
        stack=used.stack,
        spill_stores=used.spill_stores,
        spill_loads=used.spill_loads,
        barriers=used.barriers,
        shared=answer["shared"],
        threads=threads_per_block(answer["ptx"]) or 32 * job.source.num_warps,
        tensor_memory=answer["tensor_memory"],
        traps=max(traps, sass.traps if sass else 0),
        accesses=accesses,
        sass=sass,
        warps=job.source.num_warps,
        stages=job.source.num_stages,
        scratch=answer["scratch"],
        dots=dots,
        copies=copies,
        matrix=read_matrix(answer["ptx"]) if forms else None,
        fused=answer["rounding"]["fused"],
        functions=tuple(answer["rounding"]["functions"]),
        summed=tuple(answer["rounding"]["summed"]),
    )


def _environment(cache: Path) -> dict[str, str]:
    """Returns a worker's environment: its figures depend on the source, the chip and the version of triton alone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.endswith("_PATH") or not (name.startswith(("TRITON_", "MLIR_", "LLVM_")) or name in _KNOBS)
    }
    # Always compiled, because only ptxas itself tells spills from local arrays; its words are read from the log.
    return kept | {"TRITON_CACHE_DIR": str(cache), "TRITON_ALWAYS_COMPILE": "1", "TRITON_DUMP_PTXAS_LOG": "1"}


def compile_all(
    sources: Mapping[str, Source] | Iterable[Source],
    targets: Sequence[int] | Mapping[str, Sequence[int]] = (80, 90, 100),
    python: str = sys.executable,
    workers: int = 2,
    sass: Iterable[int] = (90,),
    *,
    cache: Path | None = None,
    timeout: float = 60.0,
    ptx: bool = False,
) -> list[Report]:
    """Compiles every kernel for every chip, in other processes; triton is not imported into this one.

    What two sources have in common is compiled once: the same text with the same types, constants and options.

    Args:
        sources: Kernels, by name; without names each takes that of its function.
        targets: Chips, as compute capability times 10; for all kernels, or by the kernel's name.
        python: Interpreter to compile with; any that has triton (3.6 or later), this one or another environment's.
        workers: Processes at a time.
        sass: Chips whose machine code is disassembled (0.3 s per kernel).
        cache: Folder for Triton's own cache (where a compiled kernel can be found again); a temporary one by default.
        timeout: Seconds of processor time for one kernel on one chip (five times as many by the clock); then its process is
            killed, and the report says so.
        ptx: Keep the PTX in the reports.

    Returns:
        A report per kernel and chip, in the order of ``sources``, then of ``targets``. A kernel that does not compile, crashes
        the compiler or takes too long has its report, with ``error``.

    Raises:
        UnsupportedError: The interpreter cannot be started, or cannot import triton; or a chip is unknown.
    """
    named = dict(sources) if isinstance(sources, Mapping) else {s.function: s for s in sources}
    chips = targets if isinstance(targets, Mapping) else dict.fromkeys(named, targets)
    if unknown := {c for name in named for c in chips[name]} - set(SHARED_LIMIT):
        raise UnsupportedError(
            "a chip whose limits are not known", expected=f"one of {sorted(SHARED_LIMIT)}", received=sorted(unknown)
        )
    shown = frozenset(sass)
    jobs = [_Job(name, source, chip, chip in shown) for name, source in named.items() for chip in chips[name]]
    first = {job.line(): job for job in reversed(jobs)}
    reports: dict[str, Report] = {}
    progress = Progress("compiling kernels", len(first))
    with progress, tempfile.TemporaryDirectory(prefix="tstatic-aot-") as temporary:
        folder = Path(temporary)
        environment = _environment(cache or folder / "cache")

        def answered(line: str, answer: dict[str, Any], triton: str) -> None:
            report = _report(first[line], triton, answer)
            progress.advance(f"{report.name}, sm_{report.chip}")
            reports[line] = replace(report, ptx=answer.get("ptx", "")) if ptx else report

        pool = CompilePool(workers, lambda: Worker(python, folder, environment, timeout), answered)
        try:
            # In the order of the sources: all in the heap are as large.
            pool.put(dict.fromkeys((job.line() for job in jobs), 0.0))
            pool.join()
        except CompilePoolError as error:
            raise UnsupportedError(error.what, received=error.received, fix=error.fix) from error
        finally:
            pool.close()
            with contextlib.suppress(CompilePoolError):
                pool.join()
    # What is behind pointers is of no interest to the compiler: it may differ where all else is the same.
    return [
        replace(
            reports[job.line()],
            name=job.name,
            streams=job.source.streams,
            behind=job.source.behind,
            scratch_given=job.source.scratch,
        )
        for job in jobs
    ]
