"""Where the files of data sets are expected, and how their archives are read: in order, as bytes, with limits."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from tstatic.errors import TstaticError, reason
from tstatic.io.errors import DataError, DataUseError
from tstatic.ir.budget import FLAG, most_unpacked
from tstatic.ir.checks import check_type
from tstatic.no_effect import no_effect
from tstatic.regular import names_there, opened, read_bytes

__all__ = ["DATA_HOME", "download", "md5file"]

DATA_HOME = os.path.join(os.path.expanduser("~"), ".cache", "paddle", "dataset")
"""The folder with a folder for each module of ``paddle.dataset``."""


def md5file(fname: str) -> str:
    """Returns the MD5 sum of a file, in hexadecimal.

    Raises:
        OSError: If it cannot be read, or is not a regular file.
    """
    with opened(fname) as file:
        return hashlib.file_digest(file, "md5").hexdigest()


@no_effect(md5sum="a file that is there is taken as it is")
def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Returns the path of a data set's file, which must be there: nothing is downloaded.

    Args:
        url: Where it comes from; its last part is the file's name.
        module_name: The folder below ``DATA_HOME``.
        save_name: The file's name, if it is another.

    Raises:
        DataError: If there is no such file; it names the path and the address (a ``RuntimeError``).
    """
    path = os.path.join(DATA_HOME, module_name, save_name or url.rpartition("/")[2])
    if not os.path.isfile(path):
        raise DataError(
            f"there is no file {path}, and tstatic downloads nothing",
            expected=f"the file of the data set '{module_name}'",
            received="no file",
            fix=f"put it there, for example from {url}, or pass the path of yours",
        )
    return path


def found(given: str | None, url: str, module_name: str, download_: bool, argument: str = "data_file") -> str:
    """Returns the path that the user gave, or the one where the file is expected.

    Raises:
        DataUseError: If none was given and ``download`` is off (an ``AssertionError``).
        DataError: If there is no such file.
    """
    if given is None:
        if not download_:
            raise DataUseError(
                f"{argument} is not set and downloading automatically is disabled",
                expected=f"{argument}=path, or download=True, which looks in {DATA_HOME}",
                received=f"{argument}=None, download=False",
                fix=f"download the file by hand, and pass {argument}=its path",
            )
        return download(url, module_name, "")
    check_type(given, (str, os.PathLike), argument, expected="a path")
    if not os.path.isfile(given):
        raise DataError(
            f"there is no file {given}", expected=f"the path of a file as {argument}", received="no file",
            fix=names_there(given),
        )  # fmt: skip
    return given


def checked_mode(mode: str, modes: tuple[str, ...] = ("train", "test")) -> str:
    """Returns ``mode`` in lower case.

    Raises:
        DataUseError: If it is none of ``modes`` (an ``AssertionError``).
    """
    lower = str(mode).lower()
    if lower not in modes:
        raise DataUseError(
            f"mode should be {' or '.join(map(repr, modes))}, but got {mode}", expected=" or ".join(modes),
            received=repr(mode), fix=f"pass mode='{modes[0]}'",
        )  # fmt: skip
    return lower


# --------------------------------------------------------------------------------------------------------------- reading
@contextmanager
def reading(path: str) -> Iterator[None]:
    """Makes a DataError that names the file of what goes wrong while it is read."""
    try:
        yield
    except TstaticError:
        raise
    except (
        OSError, EOFError, ValueError, LookupError, AttributeError, TypeError, zlib.error, struct.error, tarfile.TarError,
        zipfile.BadZipFile, NotImplementedError,
    ) as error:  # fmt: skip
        raise DataError(
            f"cannot read {path}",
            expected="the data set's own file, whole",
            received=reason(error),
            fix="fetch the file again",
        ) from error


class _Limited(io.RawIOBase):
    """A file of which no more than so many bytes may be read."""

    def __init__(self, source: BinaryIO, path: str, most: int) -> None:
        super().__init__()
        self._source, self._path, self._left, self._most = source, path, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._path} unpacks to more bytes than a data set has",
                expected=f"at most {self._most} bytes",
                received="more",
                fix=f"fetch the file again; if you trust this one, raise {FLAG}",
            )
        buffer[: len(data)] = data
        return len(data)


def _limited(source: Any, path: str) -> BinaryIO:
    most = most_unpacked(os.path.getsize(path))
    return cast("BinaryIO", io.BufferedReader(_Limited(cast("BinaryIO", source), path, most), 1 << 16))


@contextmanager
def unpacked(path: str) -> Iterator[BinaryIO]:
    """Opens a file, which gzip may have packed."""
    with opened(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield _limited(gzip.GzipFile(fileobj=file) if packed else file, path)


def gunzipped(file: BinaryIO, path: str) -> BinaryIO:
    """Returns what gzip packed into a member of an archive."""
    return _limited(gzip.GzipFile(fileobj=file), path)


def members(path: str, wanted: Callable[[str], Any]) -> Iterator[tuple[str, BinaryIO]]:
    """Yields name and content of the wanted files of a tar archive, in its order; nothing is written to disk.

    Each content must be read before the next is asked for.
    """
    with reading(path), unpacked(path) as file, tarfile.open(fileobj=file, mode="r|") as tar:
        for item in tar:
            name = item.name.removeprefix("./")
            if item.isfile() and wanted(name):
                content = tar.extractfile(item)
                assert content is not None
                yield name, cast("BinaryIO", content)


def no_member(path: str, name: str) -> DataError:
    """Returns the error for an archive that lacks a file."""
    return DataError(
        f"{path} has no {name}", expected="the data set's own archive", received="another one, or a part",
        fix="fetch the file again",
    )  # fmt: skip


@contextmanager
def zip_member(path: str, name: str) -> Iterator[BinaryIO]:
    """Opens a file of a zip archive."""
    with reading(path), opened(path) as source, zipfile.ZipFile(source) as package:
        if name not in package.namelist():
            raise no_member(path, name)
        with package.open(name) as file:
            yield _limited(file, path)


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """Returns the next bytes of a file; memory is taken as they come, not as a header says.

    Raises:
        EOFError: If there are fewer.
    """
    parts = []
    while size > 0:
        part = file.read(min(size, 1 << 20))
        if not part:
            raise EOFError(f"{size} bytes are missing at the end")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def text_lines(path: str) -> list[str]:
    """Returns the lines of a text file, without their ends."""
    with reading(path):
        return read_bytes(path).decode("utf-8").splitlines()
