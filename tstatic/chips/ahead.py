"""Compiles the kernels of a plan in other processes before the first run needs them; what they compile lies in Triton's cache."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tstatic.chips.aot_worker import alike, entry_of
from tstatic.chips.processes import LOST, CompilePool, Worker, usable_environment
from tstatic.devices.cpu.pool import usable_cpus
from tstatic.devices.refusals import NOT_COMPILED, KernelLaunch, LaunchTooLargeError
from tstatic.display import counted
from tstatic.fusion.codegen.kernel import Kernel, Launch, Launches, argument_types
from tstatic.fusion.engine import cache
from tstatic.locks import rlock
from tstatic.logs import get_logger, warn_once
from tstatic.progress import Progress

__all__ = ["VARIABLE", "Batch", "begin", "cancel", "finish", "processes"]

VARIABLE = "TSTATIC_COMPILE_PROCESSES"
"""The environment variable that says how many processes compile at most; 0 or 1: this one compiles."""

MOST = 8
"""Processes by default: the slowest kernel and the start of Python decide from there on."""

TIMEOUT = 120.0
"""Seconds of processor time for one kernel, and five times as many by the clock."""

_OF_TRITON = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
}  # fmt: skip
"""Triton's type -> torch's, of which a launch makes it again."""

_LOOK = 0.2
"""Seconds between two looks of who waits, so that progress is shown."""

_log = get_logger("kernels")


@dataclass(eq=False, slots=True)
class _Job:
    """One kernel that is not in Triton's cache.

    Attributes:
        entry: Its name there.
        label: Kernel and function.
        line: The job, as a process reads it.
        size: Characters of what is compiled.
        batch: The batch whose processes were given it; ``None`` before.
        dropped: Whether its processes were ended before they had compiled it.
        done: Whether nobody works on it any more.
        tries: How many processes worked on it.
        seconds: What it took.
        error: Why it was not compiled; empty if it was, or if nobody tried.
        fatal: Whether it must not be compiled in this process either: it ended its own, or hung.
    """

    entry: str
    label: str
    line: str
    size: int
    batch: Batch | None = None
    dropped: bool = False
    done: bool = False
    tries: int = 1
    seconds: float = 0.0
    error: str = ""
    fatal: bool = False


@dataclass(eq=False, repr=False)
class Batch:
    """The kernels of one plan that other processes compile.

    Attributes:
        asked: How many kernels the plan launches.
        jobs: Those that were not in Triton's cache.
        began, ended: When, by ``time.perf_counter``; ``ended`` is 0 until all are done.
        waited: Seconds that this process waited for them.
        progress: Shows how far they are.
        pool: The processes; ``None`` if there is nothing to compile.
        start: Makes others.
    """

    asked: int = 0
    jobs: list[_Job] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    waited: float = 0.0
    progress: Progress | None = None
    pool: CompilePool | None = None
    start: Callable[[], CompilePool] | None = None

    @property
    def failed(self) -> list[str]:
        """What was not compiled, each with the reason."""
        return [f"{job.label}: {job.error}" for job in self.jobs if job.error]

    def __str__(self) -> str:
        compiled = [job for job in self.jobs if job.done and not job.error and job.seconds]
        if not self.jobs:
            return f"{counted(self.asked, 'kernel')}, all in Triton's cache"
        started = 0 if self.pool is None else self.pool.started
        text = f"{len(compiled)} of {self.asked} kernels compiled in {started} process{'es' * (started != 1)}"
        if compiled:
            slowest = max(compiled, key=lambda job: job.seconds)
            text += f", slowest {slowest.label} {slowest.seconds:.1f} s"
        return text + (f", {len(self.failed)} not compiled" if self.failed else "")


_changed = threading.Condition(rlock())
_by_launch: dict[Hashable, list[_Job]] = {}
"""Launch -> what it needs; of plans whose kernels are being compiled, or could not be."""
_by_entry: dict[str, _Job] = {}
_batches: list[Batch] = []
"""Those that are not done."""
_leaving = False
"""Whether the program ends."""
_registered: list[int] = []
"""The process whose end ends the others."""


def processes() -> int:
    """Returns how many processes compile kernels: what :data:`VARIABLE` says, else one for each core of this rank, at most 8.

    Below 2 this process compiles.
    """
    given = os.environ.get(VARIABLE, "").strip()
    try:
        ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        ranks = 1
    default = min(MOST, max(1, usable_cpus() // ranks))
    if not given:
        return default
    if given.isdecimal():
        return int(given)
    warn_once(
        (VARIABLE, given), f"{VARIABLE} counts processes, and cannot be '{given}'; {default} are used", topic="kernels"
    )  # fmt: skip
    return default


# ------------------------------------------------------------------------------------------------------------------ begin
def begin(kernels: Iterable[tuple[Kernel, Launches]], unaligned: Collection[str] = ()) -> Batch | None:
    """Has other processes compile the kernels that Triton's cache lacks, and returns at once.

    Args:
        kernels: Those of a plan, with what is launched, for the chip of torch's current device.
        unaligned: Values that begin between two multiples of 16 bytes.

    Returns:
        What was begun; ``None`` where this process compiles.
    """
    count = processes()
    if count < 2 or not sys.executable or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    batch = Batch()
    try:
        import triton  # heavy, and optional
        from triton import knobs
        from triton.runtime import driver, jit

        # A hook of the user's changes what is compiled, in this process alone; and nothing is looked up by whoever always compiles.
        if knobs.compilation.always_compile or getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None:
            return None
        target = driver.active.get_current_target()
        if target.backend != "cuda":
            return None
        common = {"chip": target.arch, "launcher": True, "limit": TIMEOUT}
        for job in _missing(kernels, unaligned, jit.JITFunction, common, batch):
            batch.jobs.append(job)
            if batch.pool is None:
                batch.start = partial(_started, batch, count, triton.__version__, str(knobs.cache.dir))
                batch.pool = batch.start()
            batch.pool.put({job.line: float(job.size)})
    except BaseException as error:
        _release(batch.jobs)
        if batch.pool is not None:
            batch.pool.close()
        if not isinstance(error, Exception):
            raise
        # Whatever it is, a launch will say it better.
        _log.debug("kernels are compiled one by one in this process: %s: %s", type(error).__name__, error)
        return None
    finally:
        if batch.pool is not None:
            batch.pool.seal()
    return batch


def _missing(
    kernels: Iterable[tuple[Kernel, Launches]],
    unaligned: Collection[str],
    kind: type,
    common: Mapping[str, Any],
    batch: Batch,
) -> Iterator[_Job]:
    """Yields what is to be compiled, each once, and notes who needs it."""
    seen: dict[str, _Job | None] = {}
    for kernel, calls in kernels:
        for launch in (one for one in calls.launches if isinstance(one, Launch)):
            text, name = cache.shared(kernel)
            types = launch.types or argument_types(kernel.parameters)
            job = {
                "text": text, "function": launch.function, "constants": dict(launch.constants), "options": launch.options,
                "arguments": [
                    {"pointer": _OF_TRITON[of.removeprefix("*")], **({"odd": True} if a in unaligned else {})}
                    if isinstance(a, str) else {"value": a}
                    for a, of in zip(launch.arguments, types, strict=True)
                ],
            }  # fmt: skip
            key = alike(job)
            if key not in seen:
                module = cache.load(text, name)
                function = getattr(module, launch.function)
                # A function that chooses its own blocks compiles what it times.
                compiled = isinstance(function, kind)
                batch.asked += compiled
                seen[key] = _job(job, function, module, kernel, common) if compiled else None
            if (found := seen[key]) is None:
                continue
            with _changed:
                needed = _by_launch.setdefault(_key(kernel.code, launch.call), [])
                if found not in needed:
                    needed.append(found)
                fresh = found.batch is None
                found.batch = found.batch or batch
            if fresh:
                yield found


def _job(
    job: dict[str, Any], function: Any, module: Any, kernel: Kernel, common: Mapping[str, Any]
) -> _Job | None:  # fmt: skip
    """Returns a job, which may be that of another plan; ``None`` if Triton's cache has what it is for."""
    entry, there = entry_of(function, job)
    if there:
        return None
    path = str(getattr(module, "__file__", None) or f"<{kernel.name}>")
    line = json.dumps({**job, **common, "path": path}) + "\n"
    with _changed:
        return _by_entry.setdefault(entry, _Job(entry, f"{kernel.name}.{function.__name__}", line, len(kernel.code)))


def _key(code: str, launch: KernelLaunch) -> Hashable:
    function, _, _, constants, options = launch
    return hash(code), function, frozenset(constants.items()), frozenset(options.items())


def _started(batch: Batch, count: int, version: str, folder_of_triton: str) -> CompilePool:
    """Returns the processes of a batch; each is started when there is a job for it."""
    # Also for what the compiler's own tools leave behind when they are killed.
    temporary = tempfile.TemporaryDirectory(prefix="tstatic-compile-", ignore_cleanup_errors=True)
    environment = usable_environment(TRITON_CACHE_DIR=folder_of_triton, TMPDIR=temporary.name)

    def answered(line: str, answer: dict[str, Any], triton: str) -> None:
        job = next(one for one in batch.jobs if one.line == line)
        if triton != version:
            # What it compiled is of no use, and neither is what it says.
            _done(job, 0.0, f"{sys.executable} has triton {triton}, this process has {version}")
        elif answer.get(LOST) == "died" and job.tries < 2:
            # The system may have ended the process for want of memory, which says nothing about the kernel.
            job.tries += 1
            pool.put({line: job.size})
        else:
            _done(job, answer.get("seconds", 0.0), answer.get("error", ""), fatal=LOST in answer)

    def ended() -> None:
        if pool.error is not None:
            _log.debug("kernels are compiled one by one in this process: %s", pool.error)
        # Whoever still waits when the program ends is not woken: nothing may be compiled any more.
        if not _leaving:
            _release(batch.jobs)
        with _changed:
            batch.ended = time.perf_counter()
            if batch in _batches:
                _batches.remove(batch)
            _changed.notify_all()
        temporary.cleanup()

    pool = CompilePool(
        count, lambda: Worker(sys.executable, Path(temporary.name), environment, TIMEOUT), answered, ended
    )
    batch.progress = Progress("compiling kernels", 0)
    with _changed:
        if not _registered:
            _registered.append(os.getpid())
            atexit.register(_leave)
        _batches.append(batch)
    return pool


def _release(jobs: Iterable[_Job], dropped: bool = False) -> None:
    """Leaves to this process what no other has compiled; ``dropped``: unless a launch needs it later."""
    with _changed:
        for job in jobs:
            if not job.done:
                job.done, job.dropped = True, dropped
                _by_entry.pop(job.entry, None)
        _changed.notify_all()


def _done(job: _Job, seconds: float, error: str, fatal: bool = False) -> None:
    with _changed:
        if job.done:
            return
        job.done, job.seconds, job.error, job.fatal = True, seconds, error, fatal
        if not fatal:
            # A launch looks it up, or compiles it and says why that cannot be done.
            _by_entry.pop(job.entry, None)
        _changed.notify_all()
    if error:
        how = "it is launched in another way" if fatal else "it is compiled in this process"
        warn_once(("not compiled ahead", job.entry), f"kernel {job.label}: {error}\n{how}, if at all", topic="kernels")


# ----------------------------------------------------------------------------------------------------------------- finish
def finish(code: str, launches: Sequence[KernelLaunch]) -> None:
    """Waits until the launches of a kernel are compiled; those of others may go on.

    Args:
        code: The functions of its module.
        launches: What is launched.

    Raises:
        LaunchTooLargeError: If compiling one ended its process, or did not end.
    """
    if not _by_launch:
        return
    with _changed:
        needed = [(one, _by_launch.get(_key(code, one), [])) for one in launches]
    try:
        _wait([job for _, jobs in needed for job in jobs])
    except BaseException:  # Ctrl-C
        cancel()
        raise
    for one, jobs in needed:
        for job in jobs:
            if job.fatal:
                raise LaunchTooLargeError(one, NOT_COMPILED + job.error.strip().splitlines()[0])
        with _changed:
            _by_launch.pop(_key(code, one), None)


def _wait(jobs: Sequence[_Job]) -> None:
    if all(job.done and not job.dropped for job in jobs):
        return
    for job in jobs:
        if job.dropped and job.batch is not None:
            _begin_again(job.batch)
    batches = [batch for batch in _batches if any(job in batch.jobs for job in jobs)]
    begun = time.perf_counter()
    try:
        with _changed:
            while any(not job.done for job in jobs):
                _changed.wait(_LOOK)
                for batch in batches:
                    _show(batch)
    finally:
        for batch in batches:
            batch.waited += time.perf_counter() - begun
            if batch.progress is not None:
                # Off the line, on which others may show their progress.
                batch.progress.close()


def _begin_again(batch: Batch) -> None:
    """Starts processes for what those that were ended have left."""
    assert batch.start is not None
    with _changed:
        dropped = [job for job in batch.jobs if job.dropped]
        for job in dropped:
            job.done = job.dropped = False
            _by_entry[job.entry] = job
    if dropped:
        batch.ended = 0.0
        batch.pool = batch.start()
        batch.pool.put({job.line: float(job.size) for job in dropped})
        batch.pool.seal()


def _show(batch: Batch) -> None:
    done = [job for job in batch.jobs if job.done]
    if batch.progress is not None:
        batch.progress.total = len(batch.jobs)
        batch.progress.advance(done[-1].label if done else "", len(done) - batch.progress.done)


def cancel() -> None:
    """Ends all processes that compile; others compile what they have not as soon as a launch needs it."""
    with _changed:
        batches = list(_batches)
    for batch in batches:
        _release(batch.jobs, dropped=True)
    _close(batches)


def _leave() -> None:
    global _leaving
    _leaving = True
    _close(list(_batches))


def _close(batches: Sequence[Batch]) -> None:
    for batch in batches:
        if batch.pool is not None:
            batch.pool.close()
    for batch in batches:
        if batch.pool is not None:
            with contextlib.suppress(Exception):
                batch.pool.join()


def _forget() -> None:
    """Forgets, in a forked child, what its parent's processes do: nobody here would be told."""
    global _changed
    _changed = threading.Condition(rlock())
    for batch in _batches:
        for job in batch.jobs:
            job.done = True
    _by_launch.clear()
    _by_entry.clear()
    _batches.clear()
    _registered.clear()
    atexit.unregister(_leave)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
