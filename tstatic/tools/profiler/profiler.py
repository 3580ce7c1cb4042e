"""The Profiler, its states and schedules, and events of one's own."""

from __future__ import annotations

import enum
import functools
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tstatic import places, records
from tstatic.errors import ProgramError
from tstatic.formats.report_files import make_folder
from tstatic.ir.checks import check_choice, check_int, check_type
from tstatic.ir.opdef import export
from tstatic.no_effect import no_effect
from tstatic.tools.profiler import chrome_trace, paddle_trace
from tstatic.tools.profiler.recording import begin_recording, end_recording
from tstatic.tools.profiler.summary import summary
from tstatic.tools.profiler.tables import UNITS

F = TypeVar("F", bound=Callable[..., Any])
Trace = Callable[["Profiler"], Any]
Schedule = Callable[[int], "ProfilerState"]


@export("profiler.ProfilerState", "profiler.profiler.ProfilerState")
class ProfilerState(enum.Enum):
    """What a Profiler does in a step: nothing, nothing yet, record, or record and hand out at its end.

    Example:
        >>> State = paddle.profiler.ProfilerState
        >>> schedule = lambda step: State.RECORD if step < 2 else State.CLOSED
        >>> profiler = paddle.profiler.Profiler(scheduler=schedule)
        >>> profiler.current_state
        <ProfilerState.CLOSED: 0>
    """

    CLOSED = 0
    READY = 1
    RECORD = 2
    RECORD_AND_RETURN = 3


@export("profiler.ProfilerTarget", "profiler.profiler.ProfilerTarget")
class ProfilerTarget(enum.Enum):
    """What is watched.

    Example:
        >>> Target = paddle.profiler.ProfilerTarget
        >>> profiler = paddle.profiler.Profiler(targets=[Target.CPU])
        >>> profiler.targets
        {<ProfilerTarget.CPU: 0>}
    """

    CPU = 0
    GPU = 1
    XPU = 2
    CUSTOM_DEVICE = 3


@export("profiler.SortedKeys")
class SortedKeys(enum.Enum):
    """How tables are sorted; those of the GPU sort as those of the CPU.

    Example:
        >>> with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler:
        ...     pass
        >>> profiler.summary(sorted_by=paddle.profiler.SortedKeys.CPUMax, views=[])
        <BLANKLINE>
    """

    CPUTotal = 0
    CPUAvg = 1
    CPUMax = 2
    CPUMin = 3
    GPUTotal = 4
    GPUAvg = 5
    GPUMax = 6
    GPUMin = 7


@export("profiler.SummaryView", "profiler.profiler.SummaryView")
class SummaryView(enum.Enum):
    """The tables of a summary. By default those that a recording has nothing for are left out; asked for, they say why.

    Example:
        >>> with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler:
        ...     pass
        >>> profiler.summary(views=paddle.profiler.SummaryView.UDFView)
        UDFView: there was no RecordEvent
    """

    DeviceView = 0
    OverView = 1
    ModelView = 2
    DistributedView = 3
    KernelView = 4
    OperatorView = 5
    MemoryView = 6
    MemoryManipulationView = 7
    UDFView = 8


_RECORDS = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)


@export("profiler.make_scheduler", "profiler.profiler.make_scheduler")
def make_scheduler(*, closed: int, ready: int, record: int, repeat: int = 0, skip_first: int = 0) -> Schedule:
    """Returns a schedule: steps that are skipped, then rounds of closed, ready and recorded steps.

    Args:
        closed: Steps of a round in which nothing is recorded.
        ready: Steps after them in which nothing is recorded either.
        record: Steps that are recorded, at least 1; at the end of the last one the round's recording is handed out.
        repeat: Number of rounds; 0 for no end.
        skip_first: Steps before the first round.

    Returns:
        A function from the number of a step to its :class:`ProfilerState`.

    Raises:
        ProgramError: If a number is out of range.

    Example:
        >>> schedule = paddle.profiler.make_scheduler(closed=1, ready=1, record=2, repeat=1)
        >>> [schedule(step).name for step in range(5)]
        ['CLOSED', 'READY', 'RECORD', 'RECORD_AND_RETURN', 'CLOSED']
    """
    for name, value, least in (
        ("closed", closed, 0), ("ready", ready, 0), ("record", record, 1), ("repeat", repeat, 0), ("skip_first", skip_first, 0),
    ):  # fmt: skip
        check_int(value, name, "make_scheduler", least=least, error=ProgramError)
    period = closed + ready + record

    def schedule(step: int) -> ProfilerState:
        turn, at = divmod(step - skip_first, period)
        if turn < 0 or (repeat and turn >= repeat) or at < closed:
            return ProfilerState.CLOSED
        if at < closed + ready:
            return ProfilerState.READY
        return ProfilerState.RECORD_AND_RETURN if at == period - 1 else ProfilerState.RECORD

    return schedule


@export("profiler.export_chrome_tracing", "profiler.profiler.export_chrome_tracing")
def export_chrome_tracing(dir_name: str, worker_name: str | None = None) -> Trace:
    """Returns what a Profiler calls with each finished recording: it writes a Chrome trace into a folder, which it makes.

    Args:
        dir_name: The folder.
        worker_name: Begins the names of the files; host and process by default.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> x = paddle.tanh(paddle.ones([4]))
        >>> with paddle.profiler.Profiler(on_trace_ready=paddle.profiler.export_chrome_tracing(folder, "me")):
        ...     _ = static.Executor().run(fetch_list=[x])
        >>> [name.startswith("me_time_") for name in __import__("os").listdir(folder)]
        [True]
    """
    return _writer(dir_name, worker_name, "json", "export_chrome_tracing")


@export("profiler.export_protobuf", "profiler.profiler.export_protobuf")
def export_protobuf(dir_name: str, worker_name: str | None = None) -> Trace:
    """Returns what a Profiler calls with each finished recording: it writes Paddle's own format into a folder, which it makes.

    Args:
        dir_name: The folder.
        worker_name: Begins the names of the files; host and process by default.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> x = paddle.tanh(paddle.ones([4]))
        >>> with paddle.profiler.Profiler(on_trace_ready=paddle.profiler.export_protobuf(folder, "me")):
        ...     _ = static.Executor().run(fetch_list=[x])
        >>> [name.endswith(".paddle_trace.pb") for name in __import__("os").listdir(folder)]
        [True]
    """
    return _writer(dir_name, worker_name, "pb", "export_protobuf")


def _writer(dir_name: str, worker_name: str | None, form: str, function: str) -> Trace:
    check_type(dir_name, (str, os.PathLike), "dir_name", function)
    folder = Path(dir_name)

    def write(profiler: Profiler) -> None:
        make_folder(folder, "the recording")
        worker = worker_name or f"host_{socket.gethostname()}pid_{os.getpid()}"
        now = datetime.now().strftime("%Y_%m_%d_%H_%M_%S_%f")
        profiler.export(str(folder / f"{worker}_time_{now}.paddle_trace.{form}"), form)

    return write


class _Timer:
    """Mean time of the steps since it was last asked."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds, self.steps, self.samples, self.counted = 0.0, 0, 0.0, True

    def step(self, samples: float | None) -> None:
        now = time.perf_counter()
        self.seconds += now - self.last
        self.steps += 1
        self.last = now
        if samples is None:
            self.counted = False
        else:
            self.samples += samples

    def take(self, unit: str) -> str:
        if not self.steps:
            return ""
        rate, unit = (self.samples, unit) if self.counted else (float(self.steps), "steps")
        text = f" batch_cost: {self.seconds / self.steps:.5f} s ips: {rate / self.seconds:.3f} {unit}/s"
        self.seconds, self.steps, self.samples = 0.0, 0, 0.0
        return text


@no_effect(
    emit_nvtx="there are no marks for NVIDIA's profilers",
    custom_device_types="there are no devices of that kind",
    with_flops="paddle.flops counts a layer's operations",
)
@export("profiler.Profiler", "profiler.profiler.Profiler")
class Profiler:
    """Records how long operators take, in the steps that a schedule names.

    Nothing is paid while nothing is recorded. Times are those of the calls that compute an operator, read from the
    system's clock around each; an operator whose work is cut over threads has the sum of its parts.

    Args:
        targets: Of :class:`ProfilerTarget`; the CPU, and a GPU if there is one, by default. Without the GPU its kernels are
            not recorded one by one, only operators.
        scheduler: A function from the number of a step to its :class:`ProfilerState`, see :func:`make_scheduler`; or
            ``(first, end)``: the steps from ``first`` up to before ``end``. All steps by default.
        on_trace_ready: Called with the Profiler at the end of each recording; by default
            ``export_chrome_tracing("./profiler_log/")``.
        record_shapes: Keep the shapes of operators' inputs.
        profile_memory: Note how many bytes temporaries hold after each run.
        timer_only: Measure steps alone, for :meth:`step_info`.

    Raises:
        ProgramError: If ``scheduler`` is a pair that names no steps, or ``targets`` has another entry.

    Example:
        >>> x, exe = paddle.tanh(static.data("x", [8])), static.Executor()
        >>> with paddle.profiler.Profiler(scheduler=(1, 3), on_trace_ready=lambda profiler: None) as profiler:
        ...     for _ in range(4):
        ...         _ = exe.run(feed={"x": np.ones(8, "float32")}, fetch_list=[x])
        ...         profiler.step()
        >>> [event.name for event in profiler.events if event.kind == "op"]
        ['tanh', 'tanh']
    """

    def __init__(
        self,
        *,
        targets: Iterable[ProfilerTarget] | None = None,
        scheduler: Schedule | Sequence[int] | None = None,
        on_trace_ready: Trace | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        timer_only: bool = False,
        emit_nvtx: bool = False,
        custom_device_types: Sequence[str] = (),
        with_flops: bool = False,
    ) -> None:
        here = {ProfilerTarget.CPU, *([ProfilerTarget.GPU] if places.is_compiled_with_cuda() else [])}
        chosen = here if targets is None else {check_type(t, ProfilerTarget, "targets", "Profiler") for t in targets}
        self.targets = chosen & here
        self._schedule = _scheduled(scheduler)
        self._on_trace_ready = on_trace_ready or export_chrome_tracing("./profiler_log/")
        self._settings = bool(record_shapes), bool(profile_memory)
        self._timer_only = bool(timer_only)
        self.step_num = 0
        self.current_state = ProfilerState.CLOSED
        self._recording: records.Recorder | None = None
        self._result: records.Recorder | None = None
        self._began = 0
        self._timer = _Timer()

    @property
    def events(self) -> list[records.Record]:
        """The events of the last finished recording: ``kind``, ``name``, ``start`` and ``end`` in nanoseconds, ``op``."""
        return [] if self._result is None else self._result.events

    def start(self) -> None:
        """Begins with step 0.

        Raises:
            ProgramError: If another recording is going on.
        """
        self._timer = _Timer()
        if not self._timer_only:
            self._enter(self._schedule(self.step_num))

    def stop(self) -> None:
        """Ends the last step; a recording that is going on is handed out."""
        if self._timer_only:
            return
        if self.current_state in _RECORDS:
            self._finish(handed_out=True)
        self.current_state = ProfilerState.CLOSED

    def step(self, num_samples: int | None = None) -> None:
        """Ends a step and begins the next one.

        Args:
            num_samples: How many samples the step took, for :meth:`step_info`.
        """
        self._timer.step(num_samples)
        self.step_num += 1
        if not self._timer_only:
            self._enter(self._schedule(self.step_num))

    def step_info(self, unit: str | None = None) -> str:
        """Returns the mean time of the steps since the last call, and how many samples (or steps) that is in a second.

        Args:
            unit: What samples are called.

        Example:
            >>> profiler = paddle.profiler.Profiler(timer_only=True)
            >>> profiler.start(); profiler.step(num_samples=32)
            >>> profiler.step_info("images").split(":")[0]
            ' batch_cost'
        """
        return self._timer.take(unit or "samples")

    def _enter(self, state: ProfilerState) -> None:
        before, self.current_state = self.current_state, check_type(state, ProfilerState, "scheduler", "Profiler.step")
        if self._recording is not None:
            self._recording.add("step", f"ProfileStep#{self.step_num - 1}", self._began)
        if before is ProfilerState.RECORD_AND_RETURN or (before is ProfilerState.RECORD and state not in _RECORDS):
            # A schedule that leaves RECORD without RECORD_AND_RETURN throws the recording away, as in Paddle.
            self._finish(handed_out=before is ProfilerState.RECORD_AND_RETURN)
        if state in _RECORDS and self._recording is None:
            self._recording = begin_recording(*self._settings, kernels=ProfilerTarget.GPU in self.targets)
        self._began = time.perf_counter_ns()

    def _finish(self, handed_out: bool) -> None:
        self._recording, recording = None, end_recording()
        if handed_out:
            self._result = recording
            self._on_trace_ready(self)

    def export(self, path: str = "", format: str = "json") -> None:
        """Writes the last finished recording.

        Args:
            path: The file.
            format: ``"json"``: a Chrome trace; ``"pb"``: Paddle's own format, which :func:`load_profiler_result` reads.

        Raises:
            ProgramError: For another format, or without a recording.
            ReportError: If the file cannot be written (an ``OSError``).
        """
        check_choice(format, ("json", "pb"), "format", "Profiler.export")
        write = paddle_trace.save if format == "pb" else chrome_trace.save
        write(self._finished("export"), Path(path))

    def _finished(self, method: str) -> records.Recorder:
        if self._result is None:
            raise ProgramError(
                f"Profiler.{method} found no finished recording",
                expected="a schedule that came to RECORD_AND_RETURN, or stop() while it recorded",
                received=f"{self.step_num} steps, state {self.current_state.name}",
                fix="call start() before the steps, and stop() after them",
            )
        return self._result

    def summary(
        self,
        sorted_by: SortedKeys = SortedKeys.CPUTotal,
        op_detail: bool = True,
        thread_sep: bool = False,
        time_unit: str = "ms",
        views: SummaryView | Sequence[SummaryView] | None = None,
    ) -> None:
        """Prints tables of the last finished recording.

        Args:
            sorted_by: What rows are sorted by.
            op_detail: Show below each operator type its places in the script.
            thread_sep: A table of operators for each thread.
            time_unit: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
            views: Which tables; by default all that the recording has something for. One that is asked for and empty says why.

        Raises:
            ProgramError: Without a recording, or for another unit.
        """
        found = self._finished("summary")
        check_choice(time_unit, tuple(UNITS), "time_unit", "Profiler.summary")
        check_type(sorted_by, SortedKeys, "sorted_by", "Profiler.summary")
        wanted = None if views is None else [views] if isinstance(views, SummaryView) else list(views)
        for one in wanted or ():
            check_type(one, SummaryView, "views", "Profiler.summary")
        order = ("total", "ave", "max", "min")[sorted_by.value % 4]
        names = [one.name for one in (SummaryView if wanted is None else wanted)]
        print("\n".join(summary(found, names, wanted is not None, order, op_detail, thread_sep, time_unit)))

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _scheduled(scheduler: Any) -> Schedule:
    if scheduler is None:
        return lambda step: ProfilerState.RECORD
    if callable(scheduler):
        return scheduler  # type: ignore[no-any-return]
    pair = check_type(scheduler, (tuple, list), "scheduler", "Profiler", expected="a function or (first, end)")
    if len(pair) != 2 or not pair[1] > max(pair[0], 0):
        raise ProgramError(
            "'scheduler' names no steps",
            expected="(first, end) with end > first, or a function of a step's number",
            received=repr(scheduler),
            fix="Profiler(scheduler=(2, 5)) records the steps 2, 3 and 4",
        )
    first = max(pair[0], 0)
    return make_scheduler(closed=max(first - 1, 0), ready=min(first, 1), record=pair[1] - first, repeat=1)


@no_effect(event_type="a recording tells operators, runs and events of one's own apart by itself")
@export("profiler.RecordEvent")
class RecordEvent:
    """Records how long a part of the script takes: in a ``with``, as a decorator, or between ``begin`` and ``end``.

    Args:
        name: What it is called in tables and traces.

    Example:
        >>> with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler:
        ...     with paddle.profiler.RecordEvent("loading"):
        ...         _ = np.ones(4)
        >>> [event.name for event in profiler.events]
        ['loading']
    """

    def __init__(self, name: str, event_type: Any = None) -> None:
        self.name = check_type(name, str, "name", "RecordEvent")
        self._starts: list[tuple[records.Recorder | None, int]] = []

    def begin(self) -> None:
        """Begins an event, if a profiler records."""
        self._starts.append((records.recorder, time.perf_counter_ns()))

    def end(self) -> None:
        """Ends the last event that began; does nothing without one, or if the recording is over."""
        recorder, start = self._starts.pop() if self._starts else (None, 0)
        if recorder is not None and recorder is records.recorder:
            recorder.add("user", self.name, start)

    def __enter__(self) -> RecordEvent:
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __call__(self, function: F) -> F:
        """Returns a function that is recorded each time it is called."""

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]
