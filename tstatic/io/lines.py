"""The lines of a data set's file, as a shell command prints them: of limited length, and the command ends with its reader."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import weakref
from collections.abc import Callable, Generator, Iterator

from tstatic import flags
from tstatic.io.errors import DataError
from tstatic.logs import warn_once
from tstatic.shield import shield

LIMIT = "FLAGS_max_line_bytes"
_BLOCK = 1 << 16
_BROKEN_PIPE = 128 + signal.SIGPIPE
"""What a shell says of a stage whose reader had enough, such as that before ``head``."""
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a disk"}


class Commands:
    """The shell commands that somebody reads from; :meth:`end` ends them and everything that they started."""

    def __init__(self) -> None:
        self.ended = False
        # Each with the process that started it: a fork has a copy, and ends nothing of its parent's.
        self._running: dict[subprocess.Popen[bytes], int] = {}
        _everyones.add(self)

    def start(self, command: str, stdin: int) -> subprocess.Popen[bytes]:
        """Starts a command; call it under the shield, so that Ctrl-C finds it noted."""
        # A session of its own, so that the whole pipeline can be ended, and Ctrl-C in a terminal reaches the reader alone.
        process = subprocess.Popen(_shell(command), stdin=stdin, stdout=subprocess.PIPE, start_new_session=True)
        self._running[process] = os.getpid()
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Ends a command that was not waited for."""
        self._running.pop(process, None)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        if process.returncode is None:
            process.wait()

    def end(self) -> None:
        """Ends all commands, whoever reads from them: that reader gets an error."""
        self.ended = True
        for process, owner in list(self._running.items()):
            if owner == os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


_everyones: weakref.WeakSet[Commands] = weakref.WeakSet()


def _end_all() -> None:
    for commands in list(_everyones):
        commands.end()


# Whoever holds a half-read file when the process ends, as the traceback of an uncaught Ctrl-C does.
atexit.register(_end_all)


def _shell(command: str) -> list[str]:
    """Returns how a command is run: any stage of a pipeline that fails is a failure, where there is a shell that can say so."""
    bash = shutil.which("bash")
    if bash is not None:
        return [bash, "-o", "pipefail", "-c", command]
    if "|" in command:
        warn_once(
            "pipe_command without bash",
            "there is no bash on this machine: of a pipe_command with several stages only a failure of the last one is noticed",
        )
    return ["/bin/sh", "-c", command]


def lines_of(path: str, command: str, commands: Commands) -> Generator[bytes, None, None]:
    """Yields the lines that a command makes of a file; ends the command when no more of them are wanted.

    Args:
        path: The file.
        command: Of a shell; ``cat`` reads the file itself.
        commands: Notes the command while it runs.

    Raises:
        DataError: If the file cannot be read, a line is too long, or the command fails.
    """
    file = _opened(path)
    try:
        if command == "cat":
            yield from _split(lambda: _read(file, path), path)
        else:
            yield from _printed(path, command, file, commands)
    finally:
        os.close(file)


def _opened(path: str) -> int:
    """Opens a file without waiting for somebody who writes to it."""
    kind = None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        kind = _KINDS.get(stat.S_IFMT(os.fstat(file).st_mode))
        if kind is None:
            os.set_blocking(file, True)
            return file
        os.close(file)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read the dataset's file {path}",
            expected="a file of MultiSlot text",
            received=str(error),
            fix="pass paths of local files to set_filelist",
        ) from error
    raise DataError(
        f"the dataset's file {path} is {kind}",
        expected="a file, which can be read again",
        received=kind,
        fix=f"write what comes to a file first, or let pipe_command read it: pipe_command='cat {path}' for a file that is empty"
        if kind == "a FIFO"
        else "pass paths of files to set_filelist",
    )


def _read(file: int, path: str) -> bytes:
    try:
        return os.read(file, _BLOCK)
    except OSError as error:
        raise DataError(
            f"cannot read on in {path}", expected="a file that can be read to its end", received=str(error),
            fix="copy the file to another disk, or fetch it again",
        ) from error  # fmt: skip


def _split(read: Callable[[], bytes], path: str) -> Iterator[bytes]:
    """Yields the lines of blocks. Between two blocks Ctrl-C gets through, however long a line is."""
    most, number = flags.flag(LIMIT), 1
    parts: list[bytes] = []
    size = 0
    while block := read():
        first, *rest = block.split(b"\n")
        size += len(first)
        _check_size(size, most, number, path)
        parts.append(first)
        if rest:
            yield b"".join(parts)
            number += 1
            for line in rest[:-1]:
                _check_size(len(line), most, number, path)
                yield line
                number += 1
            parts, size = [rest[-1]], len(rest[-1])
            _check_size(size, most, number, path)
    if size:
        yield b"".join(parts)


def _check_size(size: int, most: int, number: int, path: str) -> None:
    if size > most:
        raise DataError(
            f"line {number} of {path} is longer than a line may be",
            expected=f"at most {most:,} bytes ({LIMIT})",
            received=f"no end of the line in {size:,} bytes",
            fix=f"unpack the file in pipe_command ('gzip -dc') if it is packed; raise {LIMIT} if its lines are so long",
        )


def _printed(path: str, command: str, file: int, commands: Commands) -> Iterator[bytes]:
    """Yields the lines that a command prints."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with shield:
            process = commands.start(command, file)
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        yield from _split(lambda: _read(pipe, f"what {command!r} makes of {path}"), f"what {command!r} makes of {path}")
        code = process.wait()
        if commands.ended or code not in (0, _BROKEN_PIPE):
            raise DataError(
                f"pipe_command failed on {path}",
                expected="a command all of whose stages end with exit code 0",
                received="an end from outside" if commands.ended else f"exit code {code} of {command!r}",
                fix=f"try it in a shell: {command} < {path}",
            )
    finally:
        _finish(process, commands)


def _finish(process: subprocess.Popen[bytes] | None, commands: Commands) -> None:
    """Ends a command, also if a signal arrives on the way to the shield."""
    if process is None:
        return
    try:
        with shield:
            commands.finish(process)
    except BaseException:
        with shield:
            commands.finish(process)
        raise
