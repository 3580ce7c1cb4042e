"""The functions of ``fluid.profiler``: a table of operators when they stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tstatic import records
from tstatic.errors import UnsupportedError, shown
from tstatic.formats.report_files import make_folder
from tstatic.ir.checks import check_choice
from tstatic.ir.opdef import export
from tstatic.no_effect import no_effect
from tstatic.tools.profiler import chrome_trace, tables
from tstatic.tools.profiler.recording import begin_recording, end_recording

KEYS = (None, "default", "calls", "total", "max", "min", "ave")
DEVICE = "each device is watched; on a CPU there is no other"


@no_effect(state=DEVICE, tracer_option="operators are recorded one by one, without their inner parts")
@export("fluid.profiler.start_profiler", "utils.profiler.start_profiler")
def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Begins to record how long operators take; without effect while a recording is going on.

    Args:
        state: ``"CPU"``, ``"GPU"`` or ``"All"``.
        tracer_option: ``"Default"``, ``"OpDetail"`` or ``"AllOpDetail"``.

    Raises:
        ProgramError: For another value.
    """
    check_choice(state, ("CPU", "GPU", "All"), "state", "start_profiler")
    check_choice(tracer_option, ("Default", "OpDetail", "AllOpDetail"), "tracer_option", "start_profiler")
    if records.recorder is None:
        begin_recording()


@export("fluid.profiler.stop_profiler", "utils.profiler.stop_profiler")
def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Ends the recording, prints a table of operators, and writes a Chrome trace; without effect if nothing is recorded.

    Args:
        sorted_key: What rows are sorted by: ``"calls"``, ``"total"``, ``"max"``, ``"min"`` or ``"ave"``; in the order of their
            first execution if ``None`` or ``"default"``.
        profile_path: The file of the trace; its folder is made.

    Raises:
        ProgramError: For another key.

    Example:
        >>> x = paddle.tanh(paddle.ones([8]))
        >>> exe = static.Executor()
        >>> fluid.profiler.start_profiler("CPU")
        >>> _ = exe.run(fetch_list=[x])
        >>> fluid.profiler.reset_profiler(); fluid.profiler.stop_profiler("total")  # forgets the run
    """
    check_choice(sorted_key, KEYS, "sorted_key", "stop_profiler")
    recorder = end_recording()
    if recorder is None or not recorder.events:
        return
    path = Path(profile_path)
    make_folder(path.parent, "the trace")
    chrome_trace.save(recorder, path)
    ops = [event for event in recorder.events if event.kind == "op"]
    rows = list(tables.rows_of(ops, lambda e: e.name).values())
    if sorted_key not in (None, "default"):
        rows.sort(key=tables.ORDER[str(sorted_key)])
    print("\n".join(tables.overview(recorder, "ms") + tables.table("Event Summary", rows, {}, "ms")))


@export("fluid.profiler.reset_profiler", "utils.profiler.reset_profiler")
def reset_profiler() -> None:
    """Forgets what was recorded so far; a recording goes on."""
    if records.recorder is not None:
        records.recorder.clear()


@export("fluid.profiler.profiler", "utils.profiler.profiler")
@contextmanager
def profiler(
    state: str, sorted_key: str | None = None, profile_path: str = "/tmp/profile", tracer_option: str = "Default"
) -> Iterator[None]:
    """Records the statements of a ``with``; arguments as of :func:`start_profiler` and :func:`stop_profiler`.

    Args:
        state, tracer_option: As of :func:`start_profiler`.
        sorted_key, profile_path: As of :func:`stop_profiler`.

    Raises:
        ProgramError: For a value that they do not take.

    Example:
        >>> import contextlib, io, tempfile
        >>> x, exe = paddle.tanh(paddle.ones([8])), static.Executor()
        >>> with contextlib.redirect_stdout(io.StringIO()) as said:
        ...     with fluid.profiler.profiler("CPU", "total", tempfile.mkdtemp() + "/trace"):
        ...         _ = exe.run(fetch_list=[x])
        >>> "tanh" in said.getvalue()
        True
    """
    check_choice(sorted_key, KEYS, "sorted_key", "profiler")
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@export("fluid.profiler.cuda_profiler", "utils.profiler.cuda_profiler")
def cuda_profiler(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises an error: CUDA's own profilers are started around the process.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        "cuda_profiler is not part of tstatic",
        expected="fluid.profiler.profiler('All')",
        received=shown(args or kwargs),
        fix="use fluid.profiler.profiler, or start the script with 'nsys profile'",
    )
