"""Opens regular files only: reading never waits for the writer of a FIFO and never opens a device or a socket."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

__all__ = ["kind_of", "open_regular", "opened", "read_bytes", "require"]

_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link",
}  # fmt: skip


def kind_of(info: os.stat_result) -> str | None:
    """Returns what an entry is, in words; ``None`` for a regular file."""
    return None if stat.S_ISREG(info.st_mode) else _KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")


def open_regular(path: str | os.PathLike[str], dir_fd: int | None = None, follow: bool = True) -> int:
    """Opens a regular file for reading and returns its descriptor.

    Args:
        path: The file.
        dir_fd: Descriptor of the folder that a relative path starts from.
        follow: ``False`` refuses a link in the last component.

    Raises:
        OSError: If there is no such file, if it cannot be opened, or if it is of another kind (``EINVAL``).
    """
    path = os.fspath(path)  # a number would be a descriptor, and closed at the end
    # Its kind is checked first, because opening can already have an effect: it rewinds a tape, and it wakes a FIFO's writer.
    _check(path, os.stat(path, dir_fd=dir_fd, follow_symlinks=follow))
    # What has replaced the file since then must not make this wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags, dir_fd=dir_fd)
    try:
        _check(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """Opens a regular file for reading, as :func:`open` with mode ``"rb"`` does.

    Raises:
        OSError: As for :func:`open_regular`.
    """
    return open(os.fspath(path), "rb", opener=lambda name, flags: open_regular(name))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Reads a regular file.

    Raises:
        OSError: As for :func:`open_regular`.
    """
    with opened(path) as file:
        return file.read()


def require(path: str | os.PathLike[str]) -> None:
    """Checks that a path leads to a regular file, for libraries that open it themselves.

    Raises:
        OSError: If it does not.
    """
    path = os.fspath(path)
    _check(path, os.stat(path))


def _check(path: str | os.PathLike[str], info: os.stat_result) -> None:
    kind = kind_of(info)
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}", os.fspath(path))
