"""``fleet.utils.LocalFS``: files and folders of this machine, by the interface that Paddle has for remote file systems."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

from tstatic.errors import UnsupportedError
from tstatic.no_effect import no_effect
from tstatic.regular import read_bytes

_LOCAL = "a missing source or an existing target is an error in any case"


class LocalFS:
    """Files and folders of this machine.

    Example:
        >>> import tempfile
        >>> from tstatic.distributed.fleet.utils import LocalFS
        >>> client = LocalFS()
        >>> folder = tempfile.mkdtemp()
        >>> client.touch(f"{folder}/a.txt")
        >>> client.mkdirs(f"{folder}/models")
        >>> client.ls_dir(folder)
        (['models'], ['a.txt'])
        >>> client.delete(folder)
    """

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and of the files in a folder, sorted; nothing for one that does not exist."""
        if not os.path.isdir(fs_path):
            return [], []
        entries = sorted(Path(fs_path).iterdir())
        return [one.name for one in entries if one.is_dir()], [one.name for one in entries if not one.is_dir()]

    def list_dirs(self, fs_path: str) -> list[str]:
        """Returns the names of the folders in a folder."""
        return self.ls_dir(fs_path)[0]

    def mkdirs(self, fs_path: str) -> None:
        """Makes a folder and those around it; one that exists stays as it is.

        Raises:
            FileExistsError: If a file has that name.
        """
        os.makedirs(fs_path, exist_ok=True)

    def delete(self, fs_path: str) -> None:
        """Removes a file, or a folder with all that is in it; what does not exist is ignored."""
        if os.path.isdir(fs_path) and not os.path.islink(fs_path):
            shutil.rmtree(fs_path)
        elif os.path.lexists(fs_path):
            os.remove(fs_path)

    def is_exist(self, fs_path: str) -> bool:
        """Returns whether a file or folder exists."""
        return os.path.exists(fs_path)

    def is_file(self, fs_path: str) -> bool:
        """Returns whether it is a file."""
        return os.path.isfile(fs_path)

    def is_dir(self, fs_path: str) -> bool:
        """Returns whether it is a folder."""
        return os.path.isdir(fs_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Makes an empty file.

        Args:
            fs_path: Its path.
            exist_ok: Leave a file that exists as it is.

        Raises:
            FileExistsError: If it exists, and ``exist_ok`` is false.
        """
        Path(fs_path).touch(exist_ok=exist_ok)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Gives a file or folder another path; an existing file of that path is replaced.

        Args:
            fs_src_path: The path that it has.
            fs_dst_path: The path that it gets.
        """
        os.rename(fs_src_path, fs_dst_path)

    @no_effect(test_exists=_LOCAL)
    def mv(self, src_path: str, dst_path: str, overwrite: bool = False, test_exists: bool = False) -> None:
        """Moves a file or folder.

        Args:
            src_path: The path that it has.
            dst_path: The path that it gets.
            overwrite: Remove what has that path.

        Raises:
            FileNotFoundError: If ``src_path`` does not exist.
            FileExistsError: If ``dst_path`` exists, and ``overwrite`` is false.
        """
        if not self.is_exist(src_path):
            raise FileNotFoundError(f"LocalFS.mv: there is no '{src_path}'")
        if overwrite:
            self.delete(dst_path)
        elif self.is_exist(dst_path):
            raise FileExistsError(f"LocalFS.mv: '{dst_path}' exists; pass overwrite=True to replace it")
        self.rename(src_path, dst_path)

    def cat(self, fs_path: str) -> str:
        """Returns the text of a file.

        Raises:
            OSError: If it cannot be read, or is not a regular file.
        """
        return read_bytes(fs_path).decode()

    def need_upload_download(self) -> bool:
        """Returns False: files are on this machine already."""
        return False

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copies a file or folder, as to a remote file system.

        Args:
            local_path: What to copy.
            fs_path: The path of the copy.
        """
        if self.is_dir(local_path):
            shutil.copytree(local_path, fs_path, dirs_exist_ok=True)
        else:
            shutil.copyfile(local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copies a file or folder, as from a remote file system.

        Args:
            fs_path: What to copy.
            local_path: The path of the copy.
        """
        self.upload(fs_path, local_path)

    def upload_dir(self, local_dir: str, dest_dir: str) -> None:
        """Copies a folder.

        Args:
            local_dir: What to copy.
            dest_dir: The path of the copy.
        """
        self.upload(local_dir, dest_dir)


class HDFSClient:
    """Raises UnsupportedError: Hadoop's file system is not part of tstatic.

    Args:
        args, kwargs: Named in the error.

    Example:
        >>> from tstatic.distributed.fleet.utils import HDFSClient
        >>> try:
        ...     HDFSClient("/usr/local/hadoop", {})
        ... except paddle.errors.UnsupportedError as error:
        ...     print(error.received)
        HDFSClient('/usr/local/hadoop', {})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        self._refuse(f"HDFSClient({given})")

    def _refuse(self, received: str) -> NoReturn:
        raise UnsupportedError(
            "HDFSClient is not part of tstatic: there is no client for Hadoop's file system",
            expected="files that this machine can open",
            received=received,
            fix="mount the folder, or copy the files first, and use fleet.utils.LocalFS",
        )


__all__ = ["HDFSClient", "LocalFS"]
