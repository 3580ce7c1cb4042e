"""Writes reports, traces and pages: a file is whole or as it was before, and what goes wrong is a typed error that names it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tstatic.errors import ReportError


@contextlib.contextmanager
def reporting(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Makes a ReportError of what the system refuses while a report is written.

    Args:
        path: Its file or folder, for the message.
        what: What is written, as the subject of a sentence: ``the trace``.
    """
    try:
        yield
    except ReportError:
        raise
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{what} could not be written to {os.fspath(path)!r}",
            expected="a file in a folder that exists and can be written, and a disk with room for it",
            received=str(error),
            fix="make the folder, make room, or pass another path",
        ) from error


def write_report(path: str | os.PathLike[str], content: str | bytes, what: str) -> None:
    """Writes a report, all of it or nothing: where it fails, the old file stays, and no part of a new one.

    Args:
        path: The file; a device or a pipe, such as ``/dev/stdout``, is written to as it is.
        content: The report; a text is written as UTF-8.
        what: What it is, as the subject of a sentence: ``the trace``.

    Raises:
        ReportError: If it cannot be written (an ``OSError``).
    """

    def write(place: Path) -> None:
        place.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)

    save_report(path, write, what)


def save_report(path: str | os.PathLike[str], write: Callable[[Path], None], what: str) -> None:
    """Lets a function write a report to a file beside it, which then takes its place (see :func:`write_report`).

    Args:
        path: The file.
        write: Writes to the path that it gets, whose suffix is that of ``path``.
        what: What is written, as the subject of a sentence.

    Raises:
        ReportError: If it cannot be written (an ``OSError``).
    """
    with reporting(path, what):
        # Through links, so that a link to a report stays one.
        target = Path(os.path.realpath(path))
        # A device or a pipe cannot be replaced, and must not be.
        if target.exists() and not target.is_file():
            write(Path(path))
            return
        beside = target.with_name(f".{os.urandom(4).hex()}.part{target.suffix}")
        try:
            write(beside)
            if target.exists():
                # Before the rename: under its name the report never has other rights than it had.
                beside.chmod(target.stat().st_mode & 0o7777)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def make_folder(path: str | os.PathLike[str], what: str) -> Path:
    """Makes the folder that reports go to, and those around it.

    Raises:
        ReportError: If it cannot be made (an ``OSError``).
    """
    with reporting(path, what):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
