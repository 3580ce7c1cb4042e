"""``paddle.distributed.spawn``: processes that run a function together."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tstatic import places
from tstatic.comm import processes
from tstatic.distributed.departures import Departures
from tstatic.distributed.launching import environment, first_failure, free_ports, without_launcher
from tstatic.errors import ProgramError, RankFailedError
from tstatic.ir.checks import check_callable, check_int
from tstatic.ir.export import door
from tstatic.locks import lock

_environ = lock()


class _Started:
    """A process of :func:`spawn`."""

    def __init__(self, process: Any, errors: Any) -> None:
        self.process = process
        self.errors = errors

    @property
    def pid(self) -> int | None:
        return int(self.process.pid)

    def code(self) -> int | None:
        return self.process.exitcode  # type: ignore[no-any-return]


class SpawnContext:
    """The processes that :func:`spawn` started.

    Attributes:
        processes: The processes, in the order of their ranks.
    """

    def __init__(self, started: Sequence[_Started], departures: Departures) -> None:
        self._started = list(started)
        self._departures = departures
        self.processes = [one.process for one in started]

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the processes; returns whether all have ended well.

        Args:
            timeout: Seconds to wait; without it until they end, and after the first failure the others are ended.

        Raises:
            RankFailedError: If one failed: it has the rank, and its traceback.
        """
        failed: int | None
        if timeout is None:
            failed = first_failure(self._started, self._departures.tell)
        else:
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline and any(one.code() is None for one in self._started):
                self._departures.tell([one.code() for one in self._started])
                time.sleep(0.01)
            if all(one.code() in (0, None) for one in self._started):
                return all(one.code() == 0 for one in self._started)
            failed = first_failure(self._started, self._departures.tell)
        if failed is None:
            return True
        one = self._started[failed]
        text = one.errors.recv() if one.errors.poll() else ""
        code = one.code() or 0
        how = "raised" if text else f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise RankFailedError(
            f"rank {failed} of {len(self._started)} {how}{f': {text.strip().splitlines()[-1]}' if text else ''}",
            expected="a function that returns on all ranks",
            received=f"\n{text}" if text else f"exit code {code}",
            fix="look at that rank's own error",
        )


def _run(function: Callable[..., Any], args: Sequence[Any], errors: Any) -> None:
    """Runs the function in a process, and sends the traceback of an error."""
    try:
        function(*args)
    except Exception as error:
        errors.send(traceback.format_exc())
        if processes._world is not None:
            processes._world.failed(error)  # multiprocessing ends the process as if it had ended well
        raise


@door("distributed.spawn")
def spawn(
    func: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = -1, join: bool = True, daemon: bool = False,
    **options: Any,
) -> SpawnContext:  # fmt: skip
    """Runs a function in several processes that train together.

    Args:
        func: A function of a module, not a lambda: each process imports it.
        args: Its arguments, the same for all; they must be picklable.
        nprocs: Number of processes; -1: one for each GPU, or ``CPU_NUM``.
        join: Wait for all; otherwise ``join`` of the result waits.
        daemon: End the processes when this one ends.
        **options: ``gpus`` or ``selected_devices``: numbers of their GPUs, as text. ``ips`` with other machines is refused.

    Returns:
        The processes.

    Raises:
        ProgramTypeError: If ``func`` is not callable.
        ProgramError: For an unknown option, or ``nprocs`` of 0 or below -1.
        RankFailedError: If one failed: it has the rank, and its traceback.
    """
    check_callable(func, "func", "distributed.spawn")
    count = check_int(nprocs, "nprocs", "distributed.spawn", least=-1, error=ProgramError)
    unknown = options.keys() - {"gpus", "selected_devices", "selected_gpus", "started_port", "print_config", "backend"}
    if unknown or count == 0:
        raise ProgramError(
            f"distributed.spawn does not know {', '.join(sorted(unknown))}" if unknown else "nprocs is 0",
            expected="nprocs of at least 1, or -1, and the options gpus or selected_devices",
            received=f"nprocs={nprocs}, {options}",
            fix="processes on several machines are started by python -m tstatic.distributed.launch on each",
            op="distributed.spawn",
        )
    named = options.get("gpus") or options.get("selected_devices") or options.get("selected_gpus") or ""
    devices = [one.strip() for one in str(named).split(",") if one.strip()]
    if count < 0:
        count = len(devices) or places.device_count() or len(places.cpu_places())
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(count)]
    job = uuid.uuid4().hex
    told = [
        environment(endpoints, rank, rank, job, 1, devices[rank % len(devices)] if devices else None)
        for rank in range(count)
    ]
    context = multiprocessing.get_context("spawn")
    started: list[_Started] = []
    with _environ:
        before = dict(os.environ)
        try:
            for rank in range(count):
                # Set here, as a new process has it from its first instruction: its modules may ask who they are.
                os.environ.clear()
                os.environ.update(without_launcher(before) | told[rank])
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_run, args=(func, tuple(args), sender), daemon=daemon)
                process.start()
                sender.close()
                started.append(_Started(process, receiver))
        finally:
            os.environ.clear()
            os.environ.update(before)
    made = SpawnContext(started, Departures(told))
    if join:
        made.join()
    return made


__all__ = ["SpawnContext", "spawn"]
