"""Opens regular files only, never waiting for the writer of a FIFO and never a device or socket; says where missing ones may be."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from io import BufferedReader

__all__ = ["kind_of", "names_there", "open_regular", "opened", "read_bytes", "require"]

_MOST_NAMES = 8
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


def names_there(path: str | os.PathLike[str]) -> str:
    """Says for a file that is missing what its folder has, names that begin as its own first; or which folder is missing."""
    parent, name = os.path.split(os.fspath(path))
    folder = parent or os.curdir
    while not os.path.isdir(folder) and folder != (above := os.path.dirname(folder) or os.curdir):
        folder = above
    found: list[str] = []
    with contextlib.suppress(OSError):
        stem = os.path.splitext(name)[0]
        found = sorted(os.listdir(folder), key=lambda other: (not other.startswith(stem), other))
    here = "the current folder" if folder == os.curdir else folder
    missing = f"there is no folder {parent}, and " if folder != (parent or os.curdir) else ""
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return f"{missing}{here} has {', '.join(found[:_MOST_NAMES])}{more}" if found else f"{missing}{here} is empty"


def _check(path: str | os.PathLike[str], info: os.stat_result) -> None:
    kind = kind_of(info)
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}", os.fspath(path))
